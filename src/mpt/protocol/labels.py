"""Labels as people have them: texts, integers, real numbers or truth values, of one kind in a federation."""

import json
import math
import operator
from collections.abc import Collection, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpt.core import StatisticsError
from mpt.core.validation import Ints, is_several
from mpt.core.wire import Reader

Label = str | int | float | bool
LONGEST_LABEL = 256
_KINDS: dict[type, str] = {str: "a text", bool: "a truth value", int: "an integer", float: "a real number"}
_SEVERAL: dict[type, str] = {str: "texts", bool: "truth values", int: "integers", float: "real numbers"}
_PLAIN = "should be a text, an integer, a real number or a truth value"


def as_label(value: object) -> Label:
    """One label as plain Python has it; NumPy's scalars and members of enumerations that are texts or integers too."""
    plain: Any = value.item() if isinstance(value, np.generic) else value
    if isinstance(plain, bool):
        return plain
    if isinstance(plain, str):
        text = str.__str__(plain)
        if not 0 < len(text) <= LONGEST_LABEL or any("\ud800" <= c <= "\udfff" for c in text):
            raise StatisticsError(f"label: {ascii(text)[:40]}, should be a text of 1 to {LONGEST_LABEL} characters")
        if "\0" in text:
            raise StatisticsError(f"label: {ascii(text)[:40]} has a NUL, which NumPy's texts lose, should have none")
        return text
    if isinstance(plain, int):
        number = operator.index(plain)
        if not -(1 << 63) <= number < 1 << 63:
            raise StatisticsError("label: an integer of more than 64 bits, should be a smaller one, or a text")
        return number
    if isinstance(plain, float):
        if not math.isfinite(plain):
            raise StatisticsError(f"label: {plain}, should be finite; a sample without a label is to be left out")
        return float(plain) + 0.0
    raise StatisticsError(f"label: {ascii(value)[:40]} is a {type(value).__name__}, {_PLAIN}")


def as_label_set(values: object, name: str = "labels", known: Iterable[Label] = ()) -> tuple[Label, ...]:
    """Different labels in the order in which they come, all of one kind, which is also that of `known`."""
    if not is_several(values):
        raise StatisticsError(f"{name}: {ascii(values)[:40]}, should be several labels")
    found = [as_label(value) for value in values]
    kinds = {type(label): label for label in reversed((*found, *known))}
    if len(kinds) > 1:
        other, one = list(kinds.values())[-2:]
        told = (f"{ascii(label)[:40]} is {_KINDS[type(label)]}" for label in (one, other))
        raise StatisticsError(f"{name}: {' and '.join(told)}, all should be of one kind")
    return tuple(dict.fromkeys(found))


def kind_of(labels: Collection[Label]) -> str:
    """What labels are that are all of one kind: texts, integers, real numbers or truth values; empty where none are."""
    return _SEVERAL[type(next(iter(labels)))] if labels else ""


def distinct(values: object) -> tuple[tuple[Label, ...], Ints]:
    """The different labels of some samples, sorted, and (N,) which of them each sample has."""
    array = _one_a_sample(values)
    if array.dtype.kind in "iufbU":
        plain, place = np.unique(array, return_inverse=True)
        return as_label_set(plain), place.astype(np.int64)
    order = {label: i for i, label in enumerate(sorted(as_label_set(array.tolist())))}
    return tuple(order), np.array([order[as_label(value)] for value in array.tolist()], dtype=np.int64)


def _one_a_sample(values: object) -> NDArray[Any]:
    """(N,): as NumPy has them where it would not change any of them, else as objects."""
    if isinstance(values, np.ma.MaskedArray) and np.ma.getmaskarray(values).any():
        raise StatisticsError("labels: has masked entries, should have none; take the rows that count")
    plain: Any = values
    if isinstance(values, list | tuple):
        array = np.empty(len(values), dtype=object)
        for i, value in enumerate(values):
            array[i] = value
    else:
        array = np.asarray(plain)
    if array.ndim != 1:
        raise StatisticsError(f"labels: shape is {array.shape}, should be (N,), one a sample")
    return array


def as_array(labels: Collection[Label]) -> NDArray[Any]:
    """(C,): as NumPy has them."""
    return np.array(list(labels))


def to_json(**about: object) -> bytes:
    """What stands beside the arrays of a message."""
    return json.dumps(about, separators=(",", ":"), allow_nan=False).encode()


def from_json(reader: Reader, what: str, *names: str) -> tuple[Any, ...]:
    """What `to_json` was given under these names."""
    try:
        about = json.loads(reader.block())
        return tuple(about[name] for name in names)
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise StatisticsError(f"{what} bytes: not as this release writes them ({error!r})") from None
