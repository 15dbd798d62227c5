"""`folder:PATH`: train/ and test/, in each a folder of images per class; of a vehicle's own, train/ alone."""

import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from mpt.data.dataset import Dataset, LocalData, Split
from mpt.data.encoded import Encoded, decoded, header, image_side, pixels, readable, require_pillow
from mpt.data.left_out import SPLIT_HERE, LeftOut, alone, last_fifth
from mpt.data.request import DatasetSpec

TRAINS = ("train", "training")
TESTS = ("test", "testing", "val", "valid", "validation")
"""What the folders of training and of test samples may be called, in capitals or not; the first one counts."""

SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")


def load_folder(request: DatasetSpec) -> Dataset:
    """The classes are the folders' names in sorted order, the samples the image files in them in sorted order.

    Where there is no test/, val/ is the test split. Where there is neither, nor another of `TESTS`, the last fifth of a
    class's images is for the test.
    """
    wanted = "one with a folder of images per class, or with train/ and test/ that have these"
    root, left_out = request.folder(wanted), LeftOut()
    trains, tests = called(root, TRAINS), called(root, TESTS)
    if not any(path.is_dir() for place in (*trains, *tests) for path in place.iterdir()):
        trains = tests = []  # a class may be called train
    if tests and not trains:
        raise request.error(f"{root} has {tests[0].name}/ but no train/, should have both, or a folder per class alone")
    if tests:
        samples = _split(request, trains[0], tests[0])
    else:
        place = trains[0] if trains else root
        samples = {name: _divided(request, folder) for name, folder in _class_folders(request, place).items()}
        left_out.lack("split here", SPLIT_HERE)
    for path in (*trains[1:], *tests[1:]):
        left_out.lack("not read", f"{path.name}/")
    classes, lots = sorted(samples), []
    for part in range(2):
        files = [samples[name][part] for name in classes]
        labels = np.repeat(np.arange(len(classes)), [len(f) for f in files])
        lots.append(([Encoded(file, str(file.relative_to(root))) for group in files for file in group], labels))
    return decoded(request, root.resolve().name or "folder", classes, lots[0], lots[1], left_out)


def called(root: Path, names: Sequence[str]) -> list[Path]:
    """The folders in it that have one of these names, in this order; capitals do not count."""
    there = [path for path in sorted(root.iterdir(), reverse=True) if path.name.lower() in names and path.is_dir()]
    return sorted(there, key=lambda path: names.index(path.name.lower()))


def _split(request: DatasetSpec, train: Path, test: Path) -> dict[str, tuple[list[Path], list[Path]]]:
    """By class, the images of both."""
    folders = [_class_folders(request, place) for place in (train, test)]
    if strange := sorted(set(folders[0]) ^ set(folders[1])):
        name = strange[0]
        has, lacks = (train, test) if name in folders[0] else (test, train)
        raise request.error(f"class {name!r} is in {has.name}/ but not in {lacks.name}/, should be in both")
    return {name: (_images(request, folders[0][name]), _images(request, folders[1][name])) for name in folders[0]}


def _divided(request: DatasetSpec, folder: Path) -> tuple[list[Path], list[Path]]:
    """The images of a class, for training and for the test."""
    files = _images(request, folder)
    if len(files) < 2:
        raise request.error(alone(str(folder), "image", "train/ and test/ around it"))
    tested = last_fifth(len(files))
    return files[:-tested], files[-tested:]


def load_local_folder(request: DatasetSpec, which: str = "train") -> LocalData:
    """What a vehicle has in train/, of one class or more; broken images and empty folders are left out and counted.

    With "test", what a server has in test/ or val/; where train/ is not there either, the class folders are PATH's own.
    """
    root = request.folder(f"one with {which}/ that has a folder of images per class")
    pillow, left_out = require_pillow(request), LeftOut()
    bare = which == "test" and not called(root, (*TRAINS, *TESTS))
    place = root if bare else next(iter(called(root, TRAINS if which == "train" else TESTS)), root / which)
    encoded: list[tuple[Encoded, str]] = []
    for name, folder in sorted(_class_folders(request, place, least=1).items()):
        files = _images_in(folder)
        encoded += [(Encoded(file, str(file.relative_to(root))), name) for file in files]
        if not files:
            left_out.add("classes without images", name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = readable(partial(header, pillow), encoded, left_out)
        headers = [h for h, _, _ in found]
        if headers:
            side, grey = image_side(headers, headers, request.image_size), all(h.grey for h in headers)
        read = readable(lambda e: pixels(pillow, e, side, grey), ((e, name) for _, e, name in found), left_out)
    if not read:
        raise request.error(f"no images in {place}, should have at least one; {left_out.clause()}")
    classes = sorted({name for _, _, name in read})
    split = Split(np.stack([image for image, _, _ in read]), np.array([classes.index(name) for _, _, name in read]))
    return LocalData(root.resolve().name or "folder", tuple(classes), split, tuple(filter(None, (left_out.clause(),))))


def _class_folders(request: DatasetSpec, folder: Path, least: int = 2) -> dict[str, Path]:
    if not folder.is_dir():
        raise request.error(f"no folder {folder}, should have a folder per class")
    found = {path.name: path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")}
    if len(found) < least:
        told = f"{len(found)} class folder{'' if len(found) == 1 else 's'}"
        raise request.error(f"{folder} has {told}, should have at least {least}")
    return found


def _images(request: DatasetSpec, folder: Path) -> list[Path]:
    files = _images_in(folder)
    if not files:
        raise request.error(f"no images in {folder}, should have at least one ({', '.join(SUFFIXES)})")
    return files


def _images_in(folder: Path) -> list[Path]:
    return sorted(f for f in folder.rglob("*") if f.suffix.lower() in SUFFIXES and not f.name.startswith("."))
