"""The part of a method that runs on vehicles: declared where it is written, found there by name, never sent.

    @on_vehicle(moved=("d",), weight=(), earlier=True)
    def moved(self, asked, local):
        ...
        return {"moved": ..., "weight": ...}

What it gives is a set of named arrays of the declared shapes, which add up over vehicles; so checking, merging and
counting bytes are the same for all parts.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from mpt.core import StatisticsError
from mpt.core import validation as check
from mpt.core.validation import Floats
from mpt.core.value import Value
from mpt.core.wire import Reader, Writer
from mpt.protocol.local import Local
from mpt.protocol.messages import pack, unpack

_KIND = b"P"
_REFERENCE = 1
_LONGEST_NAME = 1000
LARGEST = 1e36
"""No number in an answer may be larger."""

Shape = tuple[int | str, ...]
"""Of an array: numbers, "C" for the classes, "d" for the features, "d*" for the lower triangle of a d x d matrix."""


@dataclass(frozen=True)
class Asked:
    """What a vehicle is asked.

    Attributes:
        round: whose global model the features come from.
        num_classes: C.
        departed: the class in question.
        arrays: what the server sent along, rounded to float32, by name.
    """

    round: int
    num_classes: int
    departed: int
    arrays: Mapping[str, Floats]

    def __getitem__(self, name: str) -> Floats:
        return self.arrays[name]


Answers = Callable[[Asked, Local], Mapping[str, Floats]]


@dataclass(frozen=True)
class Part:
    """What a method has vehicles compute.

    Attributes:
        name: of the method's attribute that it is.
        shapes: of what it gives, in the order in which it travels.
        earlier: whether it reads `local.earlier()`: samples are embedded under the departure-time model too.
        answer: on a vehicle.
    """

    name: str
    shapes: Mapping[str, Shape]
    earlier: bool
    answer: Answers

    def sizes(self, num_classes: int, dim: int) -> dict[str, tuple[int, ...]]:
        """The shapes as numbers."""
        known = {"C": num_classes, "d": dim, "d*": dim * (dim + 1) // 2}
        return {
            name: tuple(known[n] if isinstance(n, str) else n for n in shape) for name, shape in self.shapes.items()
        }

    def made(self, asked: Asked, local: Local) -> bytes:
        """On a vehicle: the answer as bytes."""
        mine = local if self.earlier else replace(local, earlier=self._undeclared)
        given = self.answer(asked, mine)
        return pack(*_checked(self, given, self.sizes(asked.num_classes, mine.features.shape[1])).values())

    def _undeclared(self) -> Floats:
        raise StatisticsError(f"{self.name}: it reads local.earlier(), should say so: @on_vehicle(earlier=True, ...)")

    def read(self, answer: bytes, num_classes: int, dim: int | None = None) -> dict[str, Floats]:
        """On the server: what a vehicle answered; without `dim`, on one machine, its shapes are right already."""
        arrays = unpack(answer)
        if len(arrays) != len(self.shapes):
            raise StatisticsError(f"answer: {len(arrays)} arrays, {self.name} gives {len(self.shapes)}")
        named = dict(zip(self.shapes, arrays, strict=True))
        return named if dim is None else _checked(self, named, self.sizes(num_classes, dim))


def _checked(part: Part, given: Any, sizes: Mapping[str, tuple[int, ...]]) -> dict[str, Floats]:
    if not isinstance(given, Mapping) or set(given) != set(sizes):
        found = ", ".join(map(str, given)) if isinstance(given, Mapping) else type(given).__name__
        raise StatisticsError(f"answer: {part.name} gave {found}, should be {', '.join(sizes)}, by name")
    arrays = {name: np.asarray(given[name], dtype=np.float64) for name in sizes}
    for name, array in arrays.items():
        if array.shape != sizes[name]:
            raise StatisticsError(f"answer: {name} of {part.name} has shape {array.shape}, should be {sizes[name]}")
        if not np.isfinite(array).all() or np.abs(array).max(initial=0) > LARGEST:
            raise StatisticsError(f"answer: {name} of {part.name} should be finite and at most {LARGEST:.0e}")
    return arrays


def on_vehicle(*, earlier: bool = False, **shapes: Shape) -> Callable[[Any], Any]:
    """Declare a function of a method, `(self, asked, local)`, as a part that runs on vehicles.

    Args:
        earlier: whether it reads `local.earlier()`.
        shapes: of the arrays that it gives, by name.
    """
    for name, shape in shapes.items():
        wrong = [n for n in shape if n not in ("C", "d", "d*") and (not isinstance(n, int) or n < 0)]
        if wrong:
            raise StatisticsError(f"{name}: shape {shape!r}, should be of numbers, 'C', 'd' and 'd*'")

    def declare(function: Any) -> Any:
        function.declared = (dict(shapes), earlier)
        return function

    return declare


def part_of(function: Any) -> Part:
    """The part that a method's function was declared as."""
    declared = getattr(function, "declared", None)
    if declared is None or not callable(function):
        name = getattr(function, "__name__", repr(function))
        raise StatisticsError(f"{name}: it is not declared to run on vehicles, should have @on_vehicle(...)")
    return Part(function.__name__, declared[0], declared[1], function)


def parts_of(method: object) -> dict[str, Part]:
    """All parts of a method, by name."""
    names = [name for name in dir(type(method)) if hasattr(getattr(type(method), name, None), "declared")]
    return {name: part_of(getattr(method, name)) for name in names}


@dataclass(frozen=True, eq=False)
class PartRequest(Value):
    """A question to a part, as it travels on a fleet.

    Attributes:
        round: whose global model the features come from.
        num_classes: C.
        departed: the class in question.
        method: whose part it is: a name that the vehicle has in what is installed or bundled there.
        part: its name.
        reference: the round of the departure-time model; None where the part does not read features under it.
        arrays: what is sent along, by name.
    """

    round: int
    num_classes: int
    departed: int
    method: str
    part: str
    reference: int | None = None
    arrays: Mapping[str, Floats] = field(default_factory=dict)

    def __post_init__(self) -> None:
        number = check.as_int(self.round, "round", least=0)
        classes = check.as_int(self.num_classes, "num_classes", least=1)
        check.as_int(self.departed, "departed", least=0, most=classes - 1)
        if self.reference is not None:
            check.as_int(self.reference, "reference", least=0, most=number)
        for text in (self.method, self.part, *self.arrays):
            if not isinstance(text, str) or not text or len(text) > _LONGEST_NAME:
                raise StatisticsError(f"part: {text!r:.40}, should be a name")

    @property
    def asked(self) -> Asked:
        """What the part is asked; arrays as the vehicle has them."""
        return Asked(self.round, self.num_classes, self.departed, self.arrays)

    def to_bytes(self) -> bytes:
        """The request as bytes for `from_bytes`."""
        writer = Writer(_KIND, _REFERENCE * (self.reference is not None), "float64")
        writer.numbers("5I", self.round, self.num_classes, self.departed, self.reference or 0, len(self.arrays))
        for text in (self.method, self.part, *self.arrays):
            writer.block(text.encode())
        writer.block(pack(*self.arrays.values()))
        return writer.finish()

    @classmethod
    def from_bytes(cls, data: bytes | bytearray | memoryview) -> "PartRequest":
        """What `to_bytes` was called on."""
        reader = Reader(data, _KIND, _REFERENCE)
        number, classes, departed, reference, count = reader.numbers("5I")
        try:
            method, part, *names = (reader.block().decode() for _ in range(2 + count))
        except UnicodeDecodeError:
            raise StatisticsError("PartRequest bytes: a name is no text") from None
        arrays = unpack(reader.block())
        reader.finish()
        if len(arrays) != len(names) or len(set(names)) != len(names):
            raise StatisticsError("PartRequest bytes: should have as many arrays as names")
        known = reference if reader.flags & _REFERENCE else None
        return cls(number, classes, departed, method, part, known, dict(zip(names, arrays, strict=True)))
