"""`nuimages:ROOT`: objects cut from the images of a nuImages folder by their boxes."""

import hashlib
import json
import math
import os
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from mpt.data.cache import cached, stamp
from mpt.data.dataset import Dataset
from mpt.data.gather import Item, Rectangle, determined_by, gathered
from mpt.data.jsonlist import json_list
from mpt.data.left_out import LeftOut
from mpt.data.request import DatasetSpec

TABLES = ("category", "log", "sample", "sample_data", "object_ann")
GROUPS = Path(__file__).with_name("nuimages.toml")
DEFAULT_MIN_SIDE = 32
TEST_EVERY = 5
_DANGLING = "boxes with a dangling token"
_FAR = 1e9


@dataclass(frozen=True)
class Choice:
    """What the options of a request ask for.

    Attributes:
        train: the version folder of the training samples, such as v1.0-train.
        test: that of the test samples; where it is the same, every fifth log is test.
        groups: the categories of each class.
        min_side: the least width and height of a box in pixels.
    """

    train: str
    test: str
    groups: Mapping[str, tuple[str, ...]]
    min_side: int


def load_nuimages(request: DatasetSpec) -> Dataset:
    """Crops of the boxes in object_ann, squeezed to squares; classes as in `nuimages.toml`, vehicles from log."""
    root = request.path
    if not root.is_dir():
        raise request.error(f"no folder {root}, should have samples/ and v1.0-train/, v1.0-val/ or v1.0-mini/")
    choice = _choice(request, root)
    tables = [_table(request, root / version, name) for version in (choice.train, choice.test) for name in TABLES]
    images = _images(request, root)
    return cached(
        "nuimages",
        (
            *determined_by(request),
            str(root.resolve()),
            json.dumps([choice.train, choice.test, choice.min_side, choice.groups]),
            *(stamp(table) for table in tables),
            *(f"{name} {stamped}" for name, stamped in sorted(images.items())),
        ),
        lambda: _read(request, root, choice, images),
    )


def _read(request: DatasetSpec, root: Path, choice: Choice, images: Mapping[str, str]) -> Dataset:
    left_out = LeftOut()
    train = _items(request, root / choice.train, choice, images, left_out)
    if choice.test != choice.train:
        test = _items(request, root / choice.test, choice, images, left_out)
        items = {"train": [i for some in train.values() for i in some], "test": [i for s in test.values() for i in s]}
        return gathered(request, root, tuple(choice.groups), items, left_out)
    if len(train) < 2:
        raise request.error(
            f"all usable boxes of {choice.train} are of one log, should be several for train and test to differ in them"
        )
    logs = sorted(train, key=lambda log: hashlib.sha256(log.encode()).digest())
    items = {
        "train": [i for rank, log in enumerate(logs) if rank % TEST_EVERY for i in train[log]],
        "test": [i for log in logs[::TEST_EVERY] for i in train[log]],
    }
    return gathered(request, root, tuple(choice.groups), items, left_out)


def _choice(request: DatasetSpec, root: Path) -> Choice:
    there = sorted(path.parent.name for path in root.glob("*/object_ann.json"))
    train = request.options.get("train", "v1.0-mini" if there == ["v1.0-mini"] else "v1.0-train")
    test = request.options.get("test", "v1.0-val" if train == "v1.0-train" else train)
    for which, version in (("train", train), ("test", test)):
        if not (root / version).is_dir():
            names = ", ".join(there) or "there is none"
            raise request.error(f"no folder {root / version}, should be named by ?{which}= as one of: {names}")
    return Choice(train, test, _groups(request), request.integer("min_side", DEFAULT_MIN_SIDE, least=1))


def _groups(request: DatasetSpec) -> dict[str, tuple[str, ...]]:
    """The table of classes, every category once."""
    path = Path(request.options["groups"]).expanduser() if "groups" in request.options else GROUPS
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise request.error(f"groups: {path} cannot be read ({error.strerror}), should be a TOML file") from None
    except ValueError as error:
        told = " ".join(str(error).split())
        raise request.error(f"groups: {path} cannot be read ({told}), should be TOML") from None
    owner: dict[str, str] = {}
    for name, categories in table.items():
        if not isinstance(categories, list) or not categories or not all(isinstance(c, str) for c in categories):
            raise request.error(f'groups: {name} in {path} should be a list of categories, as in ["vehicle.car"]')
        for category in categories:
            for other, its_class in owner.items():
                if f"{category}.".startswith(f"{other}.") or f"{other}.".startswith(f"{category}."):
                    raise request.error(
                        f"groups: {category!r} of {name} and {other!r} of {its_class} in {path} cover the same, "
                        "should be there once"
                    )
            owner[category] = name
    if len(table) < 2:
        raise request.error(f"groups: {path} has {len(table)} classes, should have at least 2")
    return {name: tuple(categories) for name, categories in table.items()}


def _images(request: DatasetSpec, root: Path) -> dict[str, str]:
    """Every file in samples/*/ as sample_data names it, with size and time of change."""
    try:
        cameras = sorted(entry.name for entry in os.scandir(root / "samples") if entry.is_dir())
    except OSError:
        raise request.error(f"no folder {root / 'samples'}, should have a folder of images per camera") from None
    files = (f"samples/{camera}/{entry.name}" for camera in cameras for entry in os.scandir(root / "samples" / camera))
    return {name: stamped for name in files if (stamped := stamp(root / name))}


def _items(
    request: DatasetSpec, folder: Path, choice: Choice, images: Mapping[str, str], left_out: LeftOut
) -> dict[str, list[Item]]:
    """The boxes of one version that can be used, as far as its tables tell, by log."""
    logs = {row["token"]: row["vehicle"] for row in _rows(request, folder, "log", token=str, vehicle=str)}
    samples = {row["token"]: row["log_token"] for row in _rows(request, folder, "sample", token=str, log_token=str)}
    earlier = left_out.total(_DANGLING)
    boxes, total = _boxes(request, folder, choice, left_out)
    wanted = {box.picture for box in boxes}
    kinds = {"token": str, "sample_token": str, "filename": str, "width": int, "height": int}
    pictures = {row["token"]: row for row in _rows(request, folder, "sample_data", **kinds) if row["token"] in wanted}
    items, absent, seen = dict[str, list[Item]](), set[str](), set[str]()
    for token, picture, label, bbox in boxes:
        row = pictures.get(picture)
        log = samples.get(row["sample_token"]) if row else None
        if row is None or log is None or log not in logs:
            field = "sample_data_token" if row is None else "sample_token" if log is None else "log_token"
            left_out.add(_DANGLING, f"{token}: {field}")
            continue
        size, file = (row["width"], row["height"]), row["filename"]
        seen.add(file)
        box = box_within(bbox, *size)
        if file not in images:
            absent.add(file)
            left_out.add("absent images", file)
        elif box is None:
            left_out.add("boxes without area")
        elif min(box[2] - box[0], box[3] - box[1]) < choice.min_side:
            left_out.add(f"boxes under {choice.min_side} pixels")
        else:
            items.setdefault(log, []).append(Item(token, label, file, box, size, logs[log]))
    dangling = left_out.total(_DANGLING) - earlier
    if dangling > total / 2:
        raise request.error(
            f"{dangling:,} of {total:,} boxes of {folder} name a token that its tables do not have "
            f"({left_out.clause()}), should be tables of one version"
        )
    if len(absent) > len(seen) / 2:
        raise request.error(
            f"{len(absent):,} of {len(seen):,} images of {folder} are absent (first {min(absent)}), should be in "
            f"{folder.parent / 'samples'}"
        )
    if not items:
        raise request.error(f"no usable box in {folder} ({left_out.clause()}), should have some")
    return items


class _Labelled(NamedTuple):
    """A box whose class is known: its token, that of its image, its class, its bbox as the table has it."""

    token: str
    picture: str
    label: int
    bbox: object


def _boxes(request: DatasetSpec, folder: Path, choice: Choice, left_out: LeftOut) -> tuple[list[_Labelled], int]:
    """The boxes of a class, and the number of all."""
    names = {row["token"]: row["name"] for row in _rows(request, folder, "category", token=str, name=str)}
    label = {token: _label(name, choice.groups) for token, name in names.items()}
    if all(c is None for c in label.values()):
        there = ", ".join(sorted(names.values())[:5]) or "none at all"
        raise request.error(f"no category of {folder} is in a class of the groups, should be some of: {there}, ...")
    for member in (m for members in choice.groups.values() for m in members):
        if not any(f"{name}.".startswith(f"{member}.") for name in names.values()):
            left_out.lack("no category of the groups' names", member)
    boxes, total, known = list[_Labelled](), 0, set[str]()
    for total, row in enumerate(_rows(request, folder, "object_ann"), start=1):
        token, category, picture = (
            value if isinstance(value := row.get(field), str) else ""
            for field in ("token", "category_token", "sample_data_token")
        )
        c = label.get(category)
        if token and token in known:
            left_out.add("annotations that are there twice", token)
            continue
        known.add(token)
        if c is not None:
            boxes.append(_Labelled(token or f"row {total}", picture, c, row.get("bbox")))
        elif category in label:
            left_out.add("categories in no class", names[category])
        else:
            left_out.add(_DANGLING, f"{token or f'row {total}'}: category_token")
    if not total:
        raise request.error(f"no boxes in {folder / 'object_ann.json'}, should have some; v1.0-test has none")
    return boxes, total


def _label(category: str, groups: Mapping[str, tuple[str, ...]]) -> int | None:
    for c, members in enumerate(groups.values()):
        if any(f"{category}.".startswith(f"{member}.") for member in members):
            return c
    return None


def box_within(value: object, width: int, height: int) -> Rectangle | None:
    """A bbox [xmin, ymin, xmax, ymax] in whole pixels, as much of it as is in the image; None where nothing is.

    Example:
        >>> box_within([-3.5, 10.2, 40, 30], 1600, 900)
        (0, 10, 40, 30)
        >>> box_within([40, 10, 40, 30], 1600, 900)
    """
    if not isinstance(value, list) or len(value) != 4:
        return None
    if not all(isinstance(v, int | float) and -_FAR < v < _FAR for v in value):
        return None
    left, top = max(math.floor(value[0]), 0), max(math.floor(value[1]), 0)
    right, bottom = min(math.ceil(value[2]), width), min(math.ceil(value[3]), height)
    return (left, top, right, bottom) if left < right and top < bottom else None


def _table(request: DatasetSpec, folder: Path, name: str) -> Path:
    path = folder / f"{name}.json"
    if not path.is_file():
        raise request.error(f"no table {path}, should be there with {', '.join(TABLES)}")
    return path


def _rows(request: DatasetSpec, folder: Path, table: str, /, **kinds: type) -> Iterator[dict[str, Any]]:
    """The rows of a table that have all of `kinds`, one at a time: object_ann, with its masks, is very large."""
    path = _table(request, folder, table)
    try:
        for value in json_list(path):
            row = value if isinstance(value, dict) else {}
            if all(isinstance(row.get(field), kind) and row[field] for field, kind in kinds.items()):
                yield row
    except (OSError, ValueError) as error:
        raise request.error(f"{path} cannot be read ({error}), should be a whole JSON list of rows") from None
