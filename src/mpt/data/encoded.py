"""JPEG, PNG and the like into arrays of one size, with Pillow."""

import importlib
import io
import statistics
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mpt.data.dataset import Dataset, Images, Split
from mpt.data.errors import DataError
from mpt.data.request import DatasetSpec

SMALLEST_SIDE, LARGEST_SIDE = 28, 224
_ORIENTATION, _SIDEWAYS = 0x0112, (5, 6, 7, 8)
_GREY = ("1", "L", "LA", "I;16")


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
) -> Dataset:
    """A dataset of encoded images. Grey stays one channel where all are grey; `image_side` says the size."""
    pillow = require_pillow(request)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        headers = [[header(pillow, e) for e in images] for images, _ in (train, test)]
        every = headers[0] + headers[1]
        side, grey = image_side(headers[0], every, request.image_size), all(h.grey for h in every)
        splits = [
            Split(np.stack([pixels(pillow, e, side, grey) for e in images]), labels) for images, labels in (train, test)
        ]
    return Dataset(name, tuple(classes), *splits)


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
        if image.mode == "I;16":
            image = pillow.fromarray((np.asarray(image) >> 8).astype(np.uint8))
        if image.mode in ("P", "PA"):
            image = image.convert("RGBA")
        yield image.convert("L" if grey else "RGB")


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
