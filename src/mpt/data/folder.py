"""`folder:PATH`: train/ and test/, in each a folder of images per class."""

from pathlib import Path

import numpy as np

from mpt.data.dataset import SPLITS, Dataset
from mpt.data.encoded import Encoded, decoded
from mpt.data.request import Request

SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")


def load_folder(request: Request) -> Dataset:
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


def _class_folders(request: Request, folder: Path) -> dict[str, Path]:
    if not folder.is_dir():
        raise request.error(f"no folder {folder}, should have a folder per class")
    found = {path.name: path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")}
    if len(found) < 2:
        raise request.error(f"{folder} has {len(found)} class folders, should have at least 2")
    return found


def _images(request: Request, folder: Path) -> list[Path]:
    files = sorted(f for f in folder.rglob("*") if f.suffix.lower() in SUFFIXES and not f.name.startswith("."))
    if not files:
        raise request.error(f"no images in {folder}, should have at least one ({', '.join(SUFFIXES)})")
    return files
