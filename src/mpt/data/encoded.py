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
from mpt.data.request import Request

SMALLEST_SIDE, LARGEST_SIDE = 28, 224
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
    request: Request,
    name: str,
    classes: Sequence[str],
    train: tuple[Sequence[Encoded], NDArray[np.int64]],
    test: tuple[Sequence[Encoded], NDArray[np.int64]],
) -> Dataset:
    """A dataset of encoded images. Grey stays one channel where all are grey; `image_side` says the size."""
    pillow = require_pillow(request)
    headers = {which: [header(pillow, e) for e in images] for which, (images, _) in (("train", train), ("test", test))}
    every = headers["train"] + headers["test"]
    size = image_side(headers["train"], every, request.image_size)
    grey = all(h.grey for h in every)
    splits = [
        Split(np.stack([pixels(pillow, e, size, grey) for e in images]), labels) for images, labels in (train, test)
    ]
    return Dataset(name, tuple(classes), *splits)


def image_side(train: Sequence[Header], every: Sequence[Header], wanted: int | None) -> tuple[int, int]:
    """(width, height) for all images: `wanted` if given; the size they have if it is one, square and 28 to 224.

    Otherwise a square as large as the median of the training images' shorter sides, within 28 to 224.
    """
    if wanted is not None:
        return wanted, wanted
    sizes = {(h.width, h.height) for h in every}
    side = int(statistics.median(min(h.width, h.height) for h in train))
    if len(sizes) == 1 and sizes == {(side, side)} and side <= LARGEST_SIDE:
        return side, side
    side = min(max(side, SMALLEST_SIDE), LARGEST_SIDE)
    return side, side


def require_pillow(request: Request) -> ModuleType:
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
        if image.getexif().get(0x0112, 1) >= 5:
            width, height = height, width
        return Header(width, height, image.mode in _GREY)


def pixels(pillow: ModuleType, encoded: Encoded, size: tuple[int, int], grey: bool) -> Images:
    """(H, W, C) of one image, antialiased bilinear where its size differs."""
    from PIL import ImageOps

    with _opened(pillow, encoded) as opened:
        image = ImageOps.exif_transpose(opened)
        if image.mode == "I;16":
            image = pillow.fromarray((np.asarray(image) >> 8).astype(np.uint8))
        if image.mode in ("P", "PA"):
            image = image.convert("RGBA")
        image = image.convert("L" if grey else "RGB")
        if image.size != size:
            image = image.resize(size, pillow.Resampling.BILINEAR)
        array: Images = np.array(image, dtype=np.uint8)
    return array[:, :, None] if grey else array


@contextmanager
def _opened(pillow: ModuleType, encoded: Encoded) -> Iterator[Any]:
    """The image, open; whatever Pillow finds wrong with it while it is in use becomes one sentence."""
    source = io.BytesIO(encoded.source) if isinstance(encoded.source, bytes) else encoded.source
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with pillow.open(source) as image:
                yield image
    except Exception as error:
        raise DataError(f"{encoded.where}: cannot be decoded, should be a whole JPEG or PNG image") from error
