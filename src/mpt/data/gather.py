"""Samples from very many image files: chosen before they are read, read in threads, and what is left out counted."""

import hashlib
import os
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import numpy as np

from mpt.data.dataset import SPLITS, Dataset, Images, Split
from mpt.data.encoded import Encoded, require_pillow, squeezed, upright
from mpt.data.errors import DataError
from mpt.data.left_out import LeftOut
from mpt.data.request import DatasetSpec

VERSION = 2
"""Of what is made of an image; part of what a kept dataset is known by."""
DEFAULT_SIZE = 32
DEFAULT_TEST = 250
MANY = 1000
"""More images than this are announced before they are read."""
_THREADS = 8

Rectangle = tuple[int, int, int, int]


class Item(NamedTuple):
    """A sample that is not read yet.

    Attributes:
        key: what sets it apart from all others; its place in the order of choice comes from it.
        label: its class.
        file: the image, relative to the root.
        box: (left, top, right, bottom) of what to cut from it; None for all of it.
        size: (width, height) that the image should have; None for any.
        vehicle: that recorded it; empty where nothing is known of it.
    """

    key: str
    label: int
    file: str
    box: Rectangle | None = None
    size: tuple[int, int] | None = None
    vehicle: str = ""


def determined_by(request: DatasetSpec) -> list[str]:
    """What a dataset that is gathered depends on besides its files and its loader's options."""
    wanted = (request.image_size or DEFAULT_SIZE, request.per_class, per_class_of_test(request))
    return [f"gathered {VERSION}, Pillow {require_pillow(request).__version__}", repr(wanted)]


def per_class_of_test(request: DatasetSpec) -> int:
    """The option `test_per_class`."""
    return request.integer("test_per_class", DEFAULT_TEST, least=1)


def gathered(
    request: DatasetSpec,
    root: Path,
    classes: Sequence[str],
    items: Mapping[str, Sequence[Item]],
    left_out: LeftOut,
) -> Dataset:
    """The dataset of `items["train"]` and `items["test"]`, of up to so many of each class as the request says.

    A class that is not in both is left out. Images have three channels.
    """
    limits = {"train": request.per_class, "test": per_class_of_test(request)}
    read = {which: _read(request, root, items[which], limits[which], left_out) for which in SPLITS}
    there = sorted(set.intersection(*({item.label for item, _ in read[which]} for which in SPLITS)))
    for c in sorted(set(range(len(classes))) - set(there)):
        left_out.lack("no samples in both train and test", classes[c])
    if len(there) < 2:
        raise request.error(
            f"{len(there)} of {len(classes)} classes have samples in train and test, should be at least 2; "
            f"{left_out.clause()}"
        )
    number = {c: i for i, c in enumerate(there)}
    splits = []
    for which in SPLITS:
        kept = [(item, image) for item, image in read.pop(which) if item.label in number]
        vehicles = np.array([item.vehicle for item, _ in kept])
        splits.append(
            Split(
                np.stack([image for _, image in kept]),
                np.array([number[item.label] for item, _ in kept]),
                vehicles if np.all(vehicles != "") else None,
            )
        )
    notes = tuple(filter(None, (left_out.clause(),)))
    return Dataset(root.resolve().name or "images", tuple(classes[c] for c in there), *splits, notes=notes)


def _read(
    request: DatasetSpec, root: Path, items: Iterable[Item], limit: int | None, left_out: LeftOut
) -> list[tuple[Item, Images]]:
    """Up to `limit` of each class, those first whose keys have the lowest hashes; the next stand in for broken ones."""
    pillow, side = require_pillow(request), request.image_size or DEFAULT_SIZE
    queues: dict[int, list[Item]] = {}
    for item in items:
        queues.setdefault(item.label, []).append(item)
    for queue in queues.values():
        queue.sort(key=_place, reverse=True)
    good: list[tuple[Item, Images]] = []
    broken: dict[str, str] = {}
    whole: set[str] = set()
    missing = Counter({label: len(queue) if limit is None else limit for label, queue in queues.items()})
    with warnings.catch_warnings(), ThreadPoolExecutor(min(_THREADS, os.cpu_count() or 1)) as pool:
        warnings.simplefilter("ignore")
        while batch := [queue.pop() for label, queue in queues.items() for _ in range(min(missing[label], len(queue)))]:
            by_file: dict[str, list[Item]] = {}
            for item in batch:
                by_file.setdefault(item.file, []).append(item)
            unread = [mine for file, mine in by_file.items() if file not in broken]
            if len(unread) > MANY:
                request.say(f"{request.spec}: reading {len(unread):,} images")
            for mine, images in zip(unread, pool.map(partial(_cut, pillow, root, side), unread), strict=True):
                if isinstance(images, str):
                    broken[mine[0].file] = images
                else:
                    whole.add(mine[0].file)
                    good.extend(zip(mine, images, strict=True))
                    missing.subtract(item.label for item in mine)
            for item in batch:
                if item.file in broken:
                    left_out.add(broken[item.file], item.file)
            if len(broken) > len(whole):
                raise request.error(
                    f"{len(broken):,} of {len(broken) + len(whole):,} images that were read are of no use "
                    f"({left_out.clause()}), should be whole JPEG or PNG images"
                )
    return sorted(good, key=lambda pair: (pair[0].label, _place(pair[0])))


def _place(item: Item) -> tuple[bytes, str]:
    return hashlib.sha256(item.key.encode()).digest(), item.key


def _cut(pillow: ModuleType, root: Path, side: int, items: Sequence[Item]) -> list[Images] | str:
    """(side, side, 3) of each item of one file, or why there are none."""
    file = items[0].file
    try:
        with upright(pillow, Encoded(root / file, file), grey=False) as image:
            if any(item.size not in (None, image.size) for item in items):
                return "images of another size than their table says"
            return [squeezed(pillow, image.crop(item.box) if item.box else image, side) for item in items]
    except DataError:
        return "broken images"
