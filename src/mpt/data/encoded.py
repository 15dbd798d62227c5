"""JPEG, PNG and the like into arrays of one size, with Pillow."""

import importlib
import io
import statistics
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from mpt.data.dataset import SPLITS, Dataset, Images, Split
from mpt.data.errors import DataError
from mpt.data.left_out import LeftOut
from mpt.data.request import DatasetSpec

SMALLEST_SIDE, LARGEST_SIDE = 28, 224
BROKEN = "broken images"
_ORIENTATION, _SIDEWAYS = 0x0112, (5, 6, 7, 8)
_GREY = ("1", "L", "LA", "I", "I;16", "I;16B", "I;16L", "I;16N", "F")


T = TypeVar("T")
L = TypeVar("L")


class Encoded(NamedTuple):
    """An encoded image: the bytes or the file that has them, and where that is, for messages."""

    source: bytes | Path
    where: str


class Header(NamedTuple):
    """What an image says about itself before it is decoded."""

    width: int
    height: int
    grey: bool


def decoded(
    request: DatasetSpec,
    name: str,
    classes: Sequence[str],
    train: tuple[Sequence[Encoded], NDArray[np.int64]],
    test: tuple[Sequence[Encoded], NDArray[np.int64]],
    left_out: LeftOut | None = None,
) -> Dataset:
    """A dataset of encoded images. Grey stays one channel where all are grey; `image_side` says the size.

    Broken images are left out and counted; more of them than whole ones, or nothing else in a class, is an error.
    """
    pillow, left_out = require_pillow(request), left_out or LeftOut()
    if len(classes) < 2:
        raise request.error(f"all images are of class {classes[0]!r}, should have at least 2 classes")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = [readable(partial(header, pillow), zip(*lot, strict=True), left_out) for lot in (train, test)]
        every = [h for lot in found for h, _, _ in lot]
        if not every:
            raise request.error(f"no image can be decoded, should be whole JPEG or PNG images; {left_out.clause()}")
        side = image_side([h for h, _, _ in found[0]] or every, every, request.image_size)
        look = partial(pixels, pillow, side=side, grey=all(h.grey for h in every))
        read = [readable(look, ((e, label) for _, e, label in lot), left_out) for lot in found]
    whole, broken = sum(map(len, read)), left_out.total(BROKEN)
    if broken > whole:
        lost = f"{broken:,} of {broken + whole:,} images are of no use ({left_out.clause()})"
        raise request.error(f"{lost}, should be whole JPEG or PNG images")
    splits = []
    for which, lot, (_, wanted) in zip(SPLITS, read, (train, test), strict=True):
        labels = np.array([label for _, _, label in lot], dtype=np.int64)
        for c in sorted(set(wanted.tolist()) - set(labels.tolist())):
            lacks = f"no whole image of {classes[c]!r} in {which}, should be at least one"
            raise request.error(f"{lacks}; {left_out.clause()}")
        splits.append(Split(np.stack([image for image, _, _ in lot]), labels))
    return Dataset(name, tuple(classes), *splits, notes=tuple(filter(None, (left_out.clause(),))))


def readable(
    read: Callable[[Encoded], T], samples: Iterable[tuple[Encoded, L]], left_out: LeftOut
) -> list[tuple[T, Encoded, L]]:
    """What `read` makes of each sample, with it and its label; those that it cannot decode are counted."""
    kept = []
    for encoded, label in samples:
        try:
            kept.append((read(encoded), encoded, label))
        except DataError:
            left_out.add(BROKEN, encoded.where)
    return kept


def image_side(train: Sequence[Header], every: Sequence[Header], wanted: int | None) -> int:
    """The side of all images, which are square: `wanted` if given, or what they have if that is one square size.

    Otherwise, and where they have more than 224, the median of the training images' shorter sides, within 28 to 224.
    """
    if wanted is not None:
        return wanted
    side = int(statistics.median(min(h.width, h.height) for h in train))
    if side <= LARGEST_SIDE and all((h.width, h.height) == (side, side) for h in every):
        return side
    return min(max(side, SMALLEST_SIDE), LARGEST_SIDE)


def require_pillow(request: DatasetSpec) -> ModuleType:
    """Pillow's Image module."""
    try:
        image: ModuleType = importlib.import_module("PIL.Image")
    except ImportError:
        raise request.error("needs Pillow, which is not installed; pip install pillow") from None
    return image


def header(pillow: ModuleType, encoded: Encoded) -> Header:
    """Size and kind of an image, its orientation applied."""
    with _opened(pillow, encoded) as image:
        width, height = image.size
        if "exif" in image.info and image.getexif().get(_ORIENTATION, 1) in _SIDEWAYS:
            width, height = height, width
        return Header(width, height, image.mode in _GREY)


def pixels(pillow: ModuleType, encoded: Encoded, side: int, grey: bool) -> Images:
    """(side, side, C) of one image, antialiased bilinear where its size differs."""
    with upright(pillow, encoded, grey) as image:
        return squeezed(pillow, image, side)


def read_image(path: Path, side: int, channels: int) -> Images:
    """(side, side, channels) of an image file, as a dataset of such files has it; `DataError` where it is none."""
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "there is no such file"
        raise DataError(f"{path}: {what}, should be a JPEG or PNG image")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pixels(require_pillow(DatasetSpec(str(path))), Encoded(path, str(path)), side, channels == 1)


@contextmanager
def upright(pillow: ModuleType, encoded: Encoded, grey: bool) -> Iterator[Any]:
    """The image, decoded, its orientation applied, in grey or RGB; `DataError` where that cannot be."""
    from PIL import ImageOps

    with _opened(pillow, encoded) as opened:
        image = ImageOps.exif_transpose(opened) if "exif" in opened.info else opened
        if image.mode.startswith(("I", "F")):
            image = pillow.fromarray(_eight_bits(np.asarray(image), image.mode))
        if image.mode in ("P", "PA"):
            image = image.convert("RGBA")
        yield image.convert("L" if grey else "RGB")


def _eight_bits(grey: NDArray[Any], mode: str) -> Images:
    """Of 16 bits the upper eight; of 32 bits too, where they go beyond 255. Real numbers go from 0 to 1 or to 255."""
    low, high = grey.min(), grey.max()
    if not (low >= 0 and high <= (255 if mode == "F" else 65535)):
        raise ValueError(f"numbers from {low} to {high}")
    if mode == "F":
        scaled: Images = np.rint(grey * (255 if high <= 1 else 1)).astype(np.uint8)
        return scaled
    return np.asarray(grey if mode == "I" and high <= 255 else grey >> 8, dtype=np.uint8)


def squeezed(pillow: ModuleType, image: Any, side: int) -> Images:
    """(side, side, C) of an image in grey or RGB."""
    if image.size != (side, side):
        image = image.resize((side, side), pillow.Resampling.BILINEAR)
    array: Images = np.array(image, dtype=np.uint8)
    return array[:, :, None] if array.ndim == 2 else array


@contextmanager
def _opened(pillow: ModuleType, encoded: Encoded) -> Iterator[Any]:
    """The image, open; whatever Pillow finds wrong with it while it is in use becomes one sentence."""
    source = io.BytesIO(encoded.source) if isinstance(encoded.source, bytes) else encoded.source
    try:
        with pillow.open(source) as image:
            yield image
    except Exception as error:
        raise DataError(f"{encoded.where}: cannot be decoded, should be a whole JPEG or PNG image") from error
