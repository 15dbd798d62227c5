"""`car1000:ROOT`: an image folder with labels.csv, by type of car, or the sedans among them by size."""

import csv
import posixpath
from pathlib import Path

from mpt.data.cache import cached, stamp
from mpt.data.dataset import SPLITS, Dataset
from mpt.data.gather import Item, determined_by, gathered
from mpt.data.left_out import LeftOut
from mpt.data.request import DatasetSpec

LABELS = "labels.csv"
COLUMNS = {"coarse": ("path", "type", "split"), "fine": ("path", "type", "size", "split")}
SEDAN = "sedan"

Row = dict[str, str]


def load_car1000(request: DatasetSpec) -> Dataset:
    """The classes are the column `type`, or with `?level=fine` the column `size` where the type is sedan."""
    root, level = request.path, request.options.get("level", "coarse")
    if level not in COLUMNS:
        raise request.error(f"level is {level!r}, should be coarse (by type) or fine (sedans by size)")
    left_out = LeftOut()
    rows = _labelled(_rows(request, root / LABELS, COLUMNS[level]), level, left_out)
    stamps = {row["path"]: stamp(root / row["path"]) for row in rows}
    return cached(
        "car1000",
        (
            *determined_by(request),
            str(root.resolve()),
            level,
            stamp(root / LABELS),
            *(f"{path} {stamped}" for path, stamped in stamps.items()),
        ),
        lambda: _read(request, root, rows, stamps, left_out),
    )


def _read(request: DatasetSpec, root: Path, rows: list[Row], stamps: dict[str, str], left_out: LeftOut) -> Dataset:
    if not rows:
        raise request.error(f"no rows of a class in {root / LABELS} ({left_out.clause()}), should have some")
    classes = sorted({row["class"] for row in rows})
    items: dict[str, list[Item]] = {which: [] for which in SPLITS}
    absent = [row for row in rows if not stamps[row["path"]]]
    for row in absent:
        left_out.add("absent images", row["path"])
    if len(absent) > len(rows) / 2:
        raise request.error(
            f"{len(absent):,} of {len(rows):,} images are absent (first {absent[0]['path']}), should be in {root}"
        )
    for row in rows:
        if stamps[row["path"]]:
            items[row["split"]].append(Item(row["path"], classes.index(row["class"]), row["path"]))
    return gathered(request, root, classes, items, left_out)


def _labelled(rows: list[Row], level: str, left_out: LeftOut) -> list[Row]:
    """The rows that belong to a class and a split, each path once."""
    kept: dict[str, Row] = {}
    for number, row in enumerate(rows, start=2):
        kind = row["type"]
        name = kind if level == "coarse" or kind != SEDAN else row["size"]
        if not row["path"]:
            left_out.add("rows without a path", f"line {number}")
        elif row["path"].startswith(("/", "../")) or row["path"][1:2] == ":":
            left_out.add("paths outside the folder", row["path"])
        elif row["split"] not in SPLITS:
            left_out.add("rows of a split that is neither train nor test", row["split"] or "none")
        elif level == "fine" and kind != SEDAN:
            left_out.add("types that are not sedan", kind or "none")
        elif not name:
            left_out.add("rows without a type" if level == "coarse" else "sedans without a size", row["path"])
        elif row["path"] in kept:
            left_out.add("paths that are there twice", row["path"])
        else:
            kept[row["path"]] = {**row, "class": name}
    return list(kept.values())


def _rows(request: DatasetSpec, path: Path, columns: tuple[str, ...]) -> list[Row]:
    """The columns of the file, in lower case and without needless white space but for the path."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file, strict=True)
            header = [name.strip().lower() for name in next(reader, [])]
            missing = [name for name in columns if name not in header]
            if missing:
                there = ", ".join(filter(None, header)) or "none"
                raise request.error(f"no column {missing[0]!r} in {path}, should be beside those there: {there}")
            at = {name: header.index(name) for name in columns}
            cells = [{name: row[i] if i < len(row) else "" for name, i in at.items()} for row in reader if row]
    except FileNotFoundError:
        raise request.error(f"no file {path}, should be a CSV file with {', '.join(columns)}") from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise request.error(f"{path} cannot be read ({error}), should be a CSV file in UTF-8") from None
    if not cells:
        raise request.error(f"no rows in {path}, should have some")
    return [
        {name: " ".join(cell.lower().split()) for name, cell in row.items()} | {"path": _path(row["path"])}
        for row in cells
    ]


def _path(text: str) -> str:
    """As it stands, in one spelling: ./a\\b.jpg is a/b.jpg."""
    return posixpath.normpath(plain) if (plain := text.strip().replace("\\", "/")) else ""
