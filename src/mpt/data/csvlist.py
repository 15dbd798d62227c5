"""`csv:PATH`: a table with a row for every image: its path, its label and, where there is a column, its split."""

import csv
from collections.abc import Sequence

import numpy as np

from mpt.data.dataset import Dataset
from mpt.data.encoded import Encoded, decoded
from mpt.data.folder import TESTS
from mpt.data.left_out import SPLIT_HERE, LeftOut, last_fifth
from mpt.data.request import DatasetSpec

COLUMNS = {
    "image": ("image", "path", "file", "filename"),
    "label": ("label", "class"),
    "split": ("split", "part"),
}
"""What columns may be called; options of these names name others."""
LEAST = 2


def load_csv(request: DatasetSpec) -> Dataset:
    """Paths are relative to the file's folder. Without a split, the last fifth of a class is for the test."""
    path = request.path
    if not path.is_file():
        raise request.error(f"no file {path}, should be a CSV file with a row for every image")
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            columns, rows = list(reader.fieldnames or ()), list(reader)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise request.error(f"cannot be read ({error}), should be a CSV file in UTF-8") from None
    image, label, split = (_column(request, columns, option) for option in COLUMNS)
    parts: dict[str, tuple[list[str], list[str]]] = {}
    for number, row in enumerate(rows, start=2):
        if not row[image] or not row[label]:
            raise request.error(f"line {number} has no {image if not row[image] else label}, should have both")
        train, test = parts.setdefault(row[label], ([], []))
        (test if split and _tests(request, number, row[split]) else train).append(row[image])
    if len(parts) < LEAST:
        raise request.error(f"{len(parts)} classes, should have at least {LEAST}")
    for name, (train, test) in parts.items():
        if not split and len(train) > 1:
            test.extend(train[-last_fifth(len(train)) :])
            del train[-len(test) :]
        if not train or not test:
            raise request.error(f"class {name!r} has no image for {'test' if train else 'train'}, should have one")
    classes, lots = sorted(parts), []
    for part in range(2):
        files = [parts[name][part] for name in classes]
        labels = np.repeat(np.arange(len(classes)), [len(f) for f in files])
        lots.append(([Encoded(path.parent / file, file) for group in files for file in group], labels))
    if not any((path.parent / row[image]).exists() for row in rows):
        raise request.error(f"no file {rows[0][image]} in {path.parent}, nor any other, paths should be relative to it")
    left_out = LeftOut()
    if not split:
        left_out.lack("split here", SPLIT_HERE)
    return decoded(request, path.stem, classes, lots[0], lots[1], left_out)


def _column(request: DatasetSpec, columns: Sequence[str], option: str) -> str:
    """Its name; empty where there is no split and none was asked for."""
    wanted = [request.options[option]] if option in request.options else list(COLUMNS[option])
    found = next((name for name in wanted if name in columns), "")
    if not found and (option != "split" or option in request.options):
        has = ", ".join(columns) or "none"
        raise request.error(f"no column {' or '.join(wanted)}, should be one of {has}, named by ?{option}=")
    return found


def _tests(request: DatasetSpec, number: int, text: str | None) -> bool:
    """Whether a row is for the test."""
    word = (text or "").strip().lower()
    if word not in ("train", *TESTS):
        raise request.error(f"line {number} has split {text!r}, should be train or one of {', '.join(TESTS)}")
    return word != "train"
