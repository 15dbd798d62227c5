"""What arrays of others hold, images, series or vectors: told by dtype and shape, or by the options kind and channels.

What is not certain is said in a note, with the option that says otherwise.
"""

from collections.abc import Mapping
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from mpt.data.errors import DataError
from mpt.data.request import DatasetSpec
from mpt.data.sample_kinds import SampleKind

KINDS: tuple[SampleKind, ...] = get_args(SampleKind)
CHANNELS = ("first", "last")
_SHAPES: dict[SampleKind, str] = {
    "images": "(N, H, W), (N, H, W, C) or (N, C, H, W)",
    "series": "(N, channels, length)",
    "vectors": "(N, d)",
}
_NUMBERS = "images as uint8 of shape (N, H, W) or (N, H, W, C), series of shape (N, channels, length) or vectors (N, d)"
_DIMENSIONS: dict[SampleKind, tuple[int, ...]] = {"images": (3, 4), "series": (2, 3), "vectors": (2, 3, 4)}
_LEAST_SIDE = 8
_SQUARE = 1.5
_LONGER = 2

Arrays = Mapping[str, NDArray[Any]]


def as_samples(request: DatasetSpec, arrays: Arrays) -> tuple[list[NDArray[Any]], tuple[str, ...]]:
    """Arrays of one kind, by name, as `Split` takes them, and notes on what was guessed; the first one decides.

    Raises:
        DataError: they are no samples; the message names dtype and shape, and what would do.
    """
    kind, channels = _option(request, "kind", KINDS), _option(request, "channels", CHANNELS)
    for name, array in arrays.items():
        if array.dtype.kind not in "biuf" or array.ndim not in (2, 3, 4):
            raise DataError(f"{_told(name, array)}, should be numbers: {_NUMBERS}")
    (name, first), *others = arrays.items()
    for other, array in others:
        if array.ndim != first.ndim:
            raise DataError(f"{_told(name, first)} and {_told(other, array)}, should have as many dimensions")
    found = kind or _guessed(arrays)
    if first.ndim not in _DIMENSIONS[found]:
        raise DataError(f"{_told(name, first)}, should be {_SHAPES[found]} for ?kind={found}")
    mark = "&" if request.options else "?"
    notes = [] if kind else _doubts(name, first, found, mark)
    if found == "images":
        return _images(arrays, channels, notes), tuple(notes)
    if found == "vectors":
        return [_real(array.reshape(len(array), -1)) for array in arrays.values()], tuple(notes)
    return _series(arrays, channels, mark, notes), tuple(notes)


def _option(request: DatasetSpec, option: str, allowed: tuple[Any, ...]) -> Any:
    value = request.options.get(option)
    if value is not None and value not in allowed:
        raise DataError(f"{option} is {value!r}, should be {', '.join(allowed[:-1])} or {allowed[-1]}")
    return value


def _told(name: str, array: NDArray[Any]) -> str:
    return f"{name} is {array.dtype} of shape {array.shape}"


def _guessed(arrays: Arrays) -> SampleKind:
    """Bytes are pixels; other numbers in three dimensions are series, but for those that look like grey images."""
    first = next(iter(arrays.values()))
    if first.ndim == 2:
        return "vectors"
    if first.ndim == 4 or first.dtype == np.uint8:
        return "images"
    low, high = _range(arrays)
    pixels = low >= 0 and (high <= 1 or (high <= 255 and all(_whole(one) for one in arrays.values())))
    return "images" if pixels and _nearly_square(first) else "series"


def _nearly_square(array: NDArray[Any]) -> bool:
    """(N, a, b) with sides that a picture may have."""
    short, long = sorted(array.shape[1:3])
    return bool(short >= _LEAST_SIDE and long <= _SQUARE * short)


def _whole(array: NDArray[Any]) -> bool:
    return array.dtype.kind != "f" or bool(np.all(array == np.rint(array)))


def _range(arrays: Arrays) -> tuple[float, float]:
    """Least and largest number of those that are no bytes; NaN where there is one, none where nothing is in them."""
    ends = [(float(one.min()), float(one.max())) for one in arrays.values() if one.size and one.dtype != np.uint8]
    if not ends:
        return 0.0, 255.0
    return float(np.min([low for low, _ in ends])), float(np.max([high for _, high in ends]))


def _doubts(name: str, array: NDArray[Any], found: SampleKind, mark: str) -> list[str]:
    """What was guessed and may be otherwise."""
    if array.ndim == 2 and array.dtype == np.uint8:
        return [f"{_told(name, array)}: taken for vectors; images should be of shape (N, H, W) or (N, H, W, C)"]
    if array.ndim != 3 or array.dtype == np.uint8 or not _nearly_square(array):
        return []
    if found == "images":
        return [f"{_told(name, array)}: taken for grey images, say {mark}kind=series for series"]
    return [f"{_told(name, array)}: taken for series, say {mark}kind=images for grey images"]


def _images(arrays: Arrays, channels: str | None, notes: list[str]) -> list[NDArray[Any]]:
    """(N, H, W, C) uint8. Numbers from 0 to 1 are multiplied by 255; numbers up to 255 are rounded."""
    low, high = _range(arrays)
    factor = 255 if high <= 1 else 1
    name, array = next(((n, one) for n, one in arrays.items() if one.dtype != np.uint8), ("", None))
    if array is not None and not (low >= 0 and high <= 255):
        spread = f"has numbers from {low:g} to {high:g}" if np.isfinite([low, high]).all() else "has NaN or infinity"
        raise DataError(
            f"{_told(name, array)} and {spread}, should be uint8 or from 0 to 1 for images, or of shape "
            "(N, channels, length) for series or (N, d) for vectors"
        )
    if array is not None:
        notes.append(f"{name} is {array.dtype} from {low:g} to {high:g}: taken for pixels from 0 to {255 // factor}")
    return [_upright(_pixels(one, factor), channels) for one in arrays.values()]


def _pixels(array: NDArray[Any], factor: int) -> NDArray[Any]:
    if array.dtype == np.uint8:
        return array
    if array.dtype.kind == "f":
        scaled: NDArray[Any] = np.rint(array * factor).astype(np.uint8)
        return scaled
    return np.multiply(array.astype(np.uint8), np.uint8(factor))


def _upright(images: NDArray[Any], channels: str | None) -> NDArray[Any]:
    """(N, H, W), (N, C, H, W) or (N, H, W, C) -> (N, H, W, C)."""
    if images.ndim == 3:
        return images[..., None]
    first = images.shape[1] in (1, 3) and images.shape[3] not in (1, 3)
    if channels == "first" or (channels is None and first):
        return np.ascontiguousarray(images.transpose(0, 2, 3, 1))
    return images


def _series(arrays: Arrays, channels: str | None, mark: str, notes: list[str]) -> list[NDArray[Any]]:
    """(N, channels, length) float32; one channel where they come as (N, length)."""
    name, first = next(iter(arrays.items()))
    if first.ndim == 2:
        return [_real(array[:, None, :]) for array in arrays.values()]
    _, second, third = first.shape
    turned = channels == "last" or (channels is None and second >= _LONGER * third)
    if channels is None and second > third:
        length, width = (second, third) if turned else (third, second)
        how = ", turned around" if turned else ""
        other = "first" if turned else "last"
        notes.append(
            f"{_told(name, first)}: taken for series of {width} channels and length {length}{how}, say "
            f"{mark}channels={other} for {length} channels"
        )
    return [_real(array.transpose(0, 2, 1) if turned else array) for array in arrays.values()]


def _real(array: NDArray[Any]) -> NDArray[Any]:
    """Whole numbers as float32; `Split` looks at real ones."""
    return array if array.dtype.kind == "f" else array.astype(np.float32)
