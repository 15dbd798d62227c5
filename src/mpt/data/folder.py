"""`folder:PATH`: train/ and test/, in each a folder of images per class; of a vehicle's own, train/ alone."""

import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

import numpy as np

from mpt.data.dataset import SPLITS, Dataset, LocalData, Split
from mpt.data.encoded import Encoded, decoded, header, image_side, pixels, require_pillow
from mpt.data.errors import DataError
from mpt.data.gather import LeftOut
from mpt.data.request import DatasetSpec

T = TypeVar("T")

SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")


def load_folder(request: DatasetSpec) -> Dataset:
    """The classes are the folders' names in sorted order, the samples the image files in them in sorted order."""
    root = request.path
    if not root.is_dir():
        raise request.error(f"no folder {root}, should have train/ and test/ with a folder per class")
    folders = {which: _class_folders(request, root / which) for which in SPLITS}
    classes = sorted(folders["train"])
    if set(folders["test"]) != set(classes):
        name = sorted(set(folders["test"]) ^ set(classes))[0]
        there, lacks = ("train", "test") if name in classes else ("test", "train")
        raise request.error(f"class {name!r} is in {there}/ but not in {lacks}/, should be in both")
    samples = []
    for which in SPLITS:
        files = [_images(request, folders[which][name]) for name in classes]
        labels = np.repeat(np.arange(len(classes)), [len(f) for f in files])
        samples.append(([Encoded(file, str(file)) for group in files for file in group], labels))
    return decoded(request, root.resolve().name or "folder", classes, samples[0], samples[1])


def load_local_folder(request: DatasetSpec, which: str = "train") -> LocalData:
    """What a vehicle has in train/, of one class or more; broken images and empty folders are left out and counted.

    With "test", what a server has in test/; where there are neither train/ nor test/, the class folders are PATH's own.
    """
    pillow, root, left_out = require_pillow(request), request.path, LeftOut()
    if not root.is_dir():
        raise request.error(f"no folder {root}, should have {which}/ with a folder per class")
    bare = which == "test" and root.is_dir() and not any((root / split).is_dir() for split in SPLITS)
    place = root if bare else root / which
    encoded: list[tuple[Encoded, str]] = []
    for name, folder in sorted(_class_folders(request, place, least=1).items()):
        files = _images_in(folder)
        encoded += [(Encoded(file, str(file.relative_to(root))), name) for file in files]
        if not files:
            left_out.add("classes without images", name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = _readable(lambda e: (header(pillow, e), e), encoded, left_out)
        headers = [h for (h, _), _ in found]
        if headers:
            side, grey = image_side(headers, headers, request.image_size), all(h.grey for h in headers)
        read = _readable(lambda e: pixels(pillow, e, side, grey), ((e, name) for (_, e), name in found), left_out)
    if not read:
        raise request.error(f"no images in {place}, should have at least one; {left_out.clause()}")
    classes = sorted({name for _, name in read})
    split = Split(np.stack([image for image, _ in read]), np.array([classes.index(name) for _, name in read]))
    return LocalData(root.resolve().name or "folder", tuple(classes), split, tuple(filter(None, (left_out.clause(),))))


def _readable(
    read: Callable[[Encoded], T], samples: Iterable[tuple[Encoded, str]], left_out: LeftOut
) -> list[tuple[T, str]]:
    """What `read` makes of each sample and its class; those that it cannot decode are counted."""
    kept = []
    for encoded, name in samples:
        try:
            kept.append((read(encoded), name))
        except DataError:
            left_out.add("broken images", encoded.where)
    return kept


def _class_folders(request: DatasetSpec, folder: Path, least: int = 2) -> dict[str, Path]:
    if not folder.is_dir():
        raise request.error(f"no folder {folder}, should have a folder per class")
    found = {path.name: path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")}
    if len(found) < least:
        raise request.error(f"{folder} has {len(found)} class folders, should have at least {least}")
    return found


def _images(request: DatasetSpec, folder: Path) -> list[Path]:
    files = _images_in(folder)
    if not files:
        raise request.error(f"no images in {folder}, should have at least one ({', '.join(SUFFIXES)})")
    return files


def _images_in(folder: Path) -> list[Path]:
    return sorted(f for f in folder.rglob("*") if f.suffix.lower() in SUFFIXES and not f.name.startswith("."))
