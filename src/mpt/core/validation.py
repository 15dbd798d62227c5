"""Checks on what comes in: each returns the value in the form the core works with, or raises `StatisticsError`."""

import math
import operator
from collections.abc import Iterable, Iterator
from typing import Any, TypeGuard, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mpt.core.errors import StatisticsError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Array = TypeVar("Array", bound=NDArray[Any])

MOST_CLASSES = 1 << 24
_MOST_SAMPLES = 1 << 53
_BLOCK_ELEMENTS = 1 << 20


def as_array(value: object, name: str, *, kinds: str = "fiu") -> NDArray[Any]:
    """`value` as an array whose dtype is one of `kinds` (f: real, i and u: integer)."""
    try:
        array = np.asarray(value)
    except Exception as error:
        raise StatisticsError(f"{name}: cannot be read as an array ({error})") from error
    if isinstance(value, np.ma.MaskedArray) and np.ma.getmaskarray(value).any():
        raise StatisticsError(f"{name}: has masked entries, should have none; take the rows that count")
    if array.size == 0 and array.dtype == np.float64 and "f" not in kinds:
        return array.astype(np.int64)
    if array.dtype.kind not in kinds:
        wanted = "real numbers" if "f" in kinds else "integers"
        raise StatisticsError(f"{name}: dtype is {array.dtype}, should be {wanted}")
    return array


def check_shape(array: NDArray[Any], name: str, shape: tuple[int | None, ...]) -> None:
    """Refuse an array that has not `shape`, in which None stands for any length."""
    fits = array.ndim == len(shape)
    if not fits or any(want not in (None, have) for want, have in zip(shape, array.shape, strict=True)):
        wanted = ", ".join("any" if n is None else str(n) for n in shape) + ("," if len(shape) == 1 else "")
        raise StatisticsError(f"{name}: shape is {array.shape}, should be ({wanted})")


def check_sizes(what: str, found: tuple[int, int], shape: tuple[int, int] | None) -> None:
    """Refuse bytes that say they are of another (C, d) than `shape`, where that is known."""
    if shape is not None and found != shape:
        raise StatisticsError(f"{what} bytes: (classes, dimension) are {found}, should be {shape}")


def read_only(array: Array) -> Array:
    """`array` itself, its values fixed from now on."""
    array.setflags(write=False)
    return array


def same(a: object, b: object) -> bool:
    """Whether two field values are equal, arrays entry by entry."""
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return a is b or np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
    return type(a) is type(b) and a == b


def check_finite(array: Floats, name: str) -> None:
    """Refuse NaN and infinity, and say where the first one stands."""
    finite = np.isfinite(array)
    if not finite.all():
        where = tuple(int(i) for i in np.argwhere(~finite)[0])
        raise StatisticsError(f"{name}: {array[where]} at {list(where)}, should be finite")


def as_floats(value: ArrayLike, name: str, shape: tuple[int | None, ...]) -> Floats:
    """`value` as a read-only, finite float64 copy of `shape`."""
    array = as_array(value, name)
    check_shape(array, name, shape)
    floats = np.array(array, dtype=np.float64, order="C")
    check_finite(floats, name)
    return read_only(floats)


def as_symmetric(value: ArrayLike, name: str, d: int | None = None) -> Floats:
    """`value` as a read-only symmetric (d, d) float64 copy; asymmetry at rounding level is averaged out."""
    matrix = as_floats(value, name, (d, d))
    if matrix.shape[0] != matrix.shape[1]:
        raise StatisticsError(f"{name}: shape is {matrix.shape}, should be square")
    if _mirrors(matrix):
        return matrix
    gap, size = float(np.abs(matrix - matrix.T).max()), float(np.abs(matrix).max())
    if gap > 1e-6 * size:
        raise StatisticsError(f"{name}: entries differ from their mirror image by up to {gap:.3g}, should be symmetric")
    return read_only(matrix / 2 + matrix.T / 2)


def _mirrors(matrix: Floats) -> bool:
    """Whether a square matrix equals its transpose, compared tile by tile so that the strided side stays in cache."""
    tiles = (slice(start, start + 64) for start in range(0, len(matrix), 64))
    return all(np.array_equal(matrix[rows, : rows.stop], matrix[: rows.stop, rows].T) for rows in tiles)


def as_counts(value: ArrayLike, name: str) -> Ints:
    """`value` as a read-only int64 copy of shape (C,), none negative."""
    array = as_array(value, name, kinds="iu")
    check_shape(array, name, (None,))
    if array.size == 0:
        raise StatisticsError(f"{name}: empty, should have one entry a class")
    counts = np.array(array, dtype=np.int64)
    if counts.min() < 0:
        c = int(np.argmin(counts))
        raise StatisticsError(f"{name}: class {c} has {counts[c]} samples, should not be negative")
    if counts.max() > _MOST_SAMPLES // len(counts):
        raise StatisticsError(
            f"{name}: {counts.max()} samples of class {np.argmax(counts)}, more than can be summed exactly"
        )
    return read_only(counts)


def as_int(value: object, name: str, *, least: int, most: int = MOST_CLASSES) -> int:
    """`value` as an integer from `least` to `most`."""
    if isinstance(value, bool | np.bool_) or not hasattr(value, "__index__"):
        raise StatisticsError(f"{name}: {value!r}, should be an integer")
    number = operator.index(value)
    if number < least:
        raise StatisticsError(f"{name}: {number}, should be at least {least}")
    if number > most:
        raise StatisticsError(f"{name}: {number}, should be at most {most}")
    return number


def check_report(value: object, kind: type) -> None:
    """Refuse what is no report of that kind, such as the bytes of one."""
    if not isinstance(value, kind):
        raise StatisticsError(
            f"merge: {type(value).__name__}, should be {kind.__name__}, which from_bytes makes of bytes"
        )


def as_ridge(value: object, name: str) -> float:
    """`value` as a finite number that is not negative."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | float | np.integer | np.floating):
        raise StatisticsError(f"{name}: {value!r}, should be a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number) or number < 0:
        raise StatisticsError(f"{name}: {number}, should be finite and not negative")
    return number


def as_class(value: object, name: str, num_classes: int) -> int:
    """`value` as one class index."""
    c = as_int(value, name, least=0)
    if c >= num_classes:
        raise StatisticsError(f"{name}: class {c}, but there are {num_classes} classes (0 to {num_classes - 1})")
    return c


def as_classes(value: object, name: str, num_classes: int) -> tuple[int, ...]:
    """`value`, one class or several, as class indices in the given order, each once."""
    if value is None:
        raise StatisticsError(f"{name}: None, should be a class index or several; () for none")
    if not is_several(value):
        return (as_class(value, name, num_classes),)
    return tuple(dict.fromkeys(as_class(c, name, num_classes) for c in value))


def is_several(value: object) -> TypeGuard[Iterable[Any]]:
    """Whether `value` holds several things rather than being one; a text is one, and an array without dimensions."""
    return (
        isinstance(value, Iterable)
        and not isinstance(value, str)
        and not (isinstance(value, np.ndarray) and value.ndim == 0)
    )


def as_labels(value: ArrayLike, n: int, num_classes: int) -> Ints:
    """`value` as int64 labels of `n` samples."""
    labels = as_array(value, "labels", kinds="iu")
    check_shape(labels, "labels", (n,))
    wrong = (labels < 0) | (labels >= num_classes)
    if wrong.any():
        i = int(np.argmax(wrong))
        raise StatisticsError(
            f"labels: sample {i} has class {labels[i]}, but there are {num_classes} classes (0 to {num_classes - 1})"
        )
    return labels.astype(np.int64)


def as_features(value: ArrayLike, d: int | None = None) -> NDArray[Any]:
    """`value` as (N, d) features in their own dtype; `feature_blocks` reads them as float64."""
    features = as_array(value, "features")
    if features.ndim == 1 and d is not None and features.shape == (d,):
        raise StatisticsError(f"features: shape is ({d},), should be (N, {d}); one sample is features[None, :]")
    if features.ndim != 2:
        raise StatisticsError(f"features: shape is {features.shape}, should be (N, d), one row a sample")
    check_shape(features, "features", (None, d))
    if features.shape[1] == 0:
        raise StatisticsError("features: the feature dimension is 0, should be at least 1")
    return features


def feature_blocks(features: NDArray[Any], name: str = "features") -> Iterator[tuple[slice, Floats]]:
    """The rows of `features`, some at a time, as float64 and checked to be finite.

    The copy that float64 needs is one block's, however many samples there are.
    """
    n, d = features.shape
    step = max(1, _BLOCK_ELEMENTS // d)
    for start in range(0, n, step):
        rows = slice(start, min(n, start + step))
        block = np.asarray(features[rows], dtype=np.float64)
        if not np.isfinite(block).all():
            i, j = (int(k) for k in np.argwhere(~np.isfinite(block))[0])
            raise StatisticsError(f"{name}: {block[i, j]} at sample {start + i}, column {j}, should be finite")
        yield rows, block
