"""Arrays as people have them, made plain: texts or numbers, no Python objects.

A column of pandas is an array of objects. A file that has one cannot be read without unpickling, and nobody here does.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpt.data.errors import DataError

_EXACT = 2.0**53
"""Up to here every whole number is a float64 of its own."""
_SHOWN = 40


def plain(name: str, values: object) -> NDArray[Any]:
    """An array without Python objects; where all objects are texts or all are numbers, it is of these.

    Raises:
        DataError: one is missing, is neither, or is not of the others' kind; the message begins with `name`.
    """
    try:
        array = np.asarray(values)
    except ValueError:
        raise DataError(f"{name} cannot be read as one array, all entries should have the same shape") from None
    try:
        if array.dtype.kind == "S":
            return np.char.decode(array, "utf-8")
        if array.dtype.kind == "T":
            return array.astype(np.str_)
    except (UnicodeDecodeError, ValueError):
        raise DataError(f"{name} has bytes that are no UTF-8 or a text that is missing, should be texts") from None
    return _of_objects(name, array) if array.dtype.kind == "O" else array


def _of_objects(name: str, array: NDArray[Any]) -> NDArray[Any]:
    """The same as texts or as numbers."""
    values = array.ravel().tolist()
    kinds = [_kind(value) for value in values]
    for kind, wrong in (("missing", "is missing"), ("array", "is an array or a list"), ("other", "")):
        if kind in kinds:
            at = kinds.index(kind)
            told = f"{wrong} ({_shown(values[at])})" if wrong else f"is of type {type(values[at]).__name__}"
            raise DataError(f"{name}: entry {at} {told}, should be a text or a number")
    if len(set(kinds)) > 1:
        text, number = kinds.index("text"), kinds.index("number")
        raise DataError(
            f"{name}: entry {text} is the text {_shown(values[text])} and entry {number} the number "
            f"{_shown(values[number])}, should be all texts or all numbers"
        )
    made = np.array(values, dtype=np.str_ if "number" not in kinds else None).reshape(array.shape)
    if made.dtype.kind == "O":
        raise DataError(f"{name} has numbers beyond 64 bits, should be smaller ones or texts")
    return made


def _kind(value: object) -> str:
    if isinstance(value, str):
        return "text"
    if isinstance(value, float | np.floating):
        return "missing" if np.isnan(value) else "number"
    if isinstance(value, bool | int | np.integer | np.bool_):
        return "number"
    if isinstance(value, np.ndarray | list | tuple):
        return "array"
    missing = value is None or type(value).__name__ in ("NAType", "NaTType")
    return "missing" if missing else "other"


def _shown(value: object) -> str:
    text = repr(value.item() if isinstance(value, np.generic) else value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


def one_each(name: str, values: object, what: str = "labels") -> NDArray[Any]:
    """(N,) texts or whole numbers, one for each sample; real numbers only where they are not all whole.

    Raises:
        DataError: a text is empty, a number is NaN or infinite, or there are several a sample.
    """
    array = plain(name, values)
    if array.dtype.kind not in "biufU":
        raise DataError(f"{name} is {array.dtype} of shape {array.shape}, should be texts or numbers")
    if array.ndim > 1 and array.size > max(array.shape):
        hint = "; of one-hot rows take .argmax(axis=1)" if what == "labels" and array.ndim == 2 else ""
        raise DataError(f"{name} is of shape {array.shape}, should be ({len(array)},), one for each sample{hint}")
    flat = array.ravel()
    if flat.dtype.kind == "U" and not np.all(flat != ""):
        raise DataError(f"{name}: entry {int(np.argmax(flat == ''))} is an empty text, should be a name")
    return whole(name, flat) if flat.dtype.kind == "f" else flat


def whole(name: str, numbers: NDArray[Any]) -> NDArray[Any]:
    """Real numbers (N,), as integers where all are whole."""
    finite = np.isfinite(numbers)
    if not finite.all():
        at = int(np.argmin(finite))
        raise DataError(f"{name}: entry {at} is {numbers[at]}, should be a finite number or a text")
    exact = np.all(numbers == np.rint(numbers)) and np.all(np.abs(numbers) <= _EXACT)
    return numbers.astype(np.int64) if exact else numbers
