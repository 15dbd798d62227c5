"""What of a method can be tuned, and between what: declared beside the method, read by `mpt tune`.

    @dataclass(frozen=True)
    class Sdc:
        space: ClassVar[Space] = {"sigma": Log(0.05, 3)}
        sigma: float = 0.3

A method without a `space` has nothing to tune.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mpt.methods.trainings import MethodError


@dataclass(frozen=True)
class Uniform:
    """Any number from `low` to `high`, all alike."""

    low: float
    high: float

    def __post_init__(self) -> None:
        _check(self, -math.inf)

    def at(self, share: float) -> float:
        """The number below which a `share` in [0, 1) of the range lies, to four digits, as it is written in a name."""
        return _short(self.low + share * (self.high - self.low))


@dataclass(frozen=True)
class Log:
    """Any number from `low` to `high`, all orders of magnitude alike."""

    low: float
    high: float

    def __post_init__(self) -> None:
        _check(self, 0.0)

    def at(self, share: float) -> float:
        """low (high / low)^share, to four digits."""
        return _short(self.low * (self.high / self.low) ** share)


@dataclass(frozen=True)
class OneOf:
    """One of these values, all alike."""

    values: tuple[Any, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.values, tuple) or len(set(map(repr, self.values))) < max(2, len(self.values)):
            raise MethodError(
                f"space: OneOf({self.values!r}), should be a tuple of two values or more, none of them twice"
            )

    def at(self, share: float) -> Any:
        """The value at a `share` in [0, 1) of the list."""
        return self.values[int(share * len(self.values))]


Range = Uniform | Log | OneOf
Space = Mapping[str, Range]
"""By the name of an argument."""


def space_of(method: object) -> dict[str, Range]:
    """A method's space; `MethodError` where it is none."""
    said: Any = getattr(method, "space", {})
    if not isinstance(said, Mapping):
        raise MethodError(f"space: {type(said).__name__}, should be a dict of arguments and what they may be")
    for name, one in said.items():
        if not isinstance(name, str) or not isinstance(one, Range):
            raise MethodError(
                f"space: {name} is {one!r}, should be Log(low, high), Uniform(low, high) or OneOf(values)"
            )
    return dict(said)


def number_of_settings(space: Space) -> int | None:
    """How many there are; None where there is no end of them."""
    ranges = list(space.values())
    lists = [one for one in ranges if isinstance(one, OneOf)]
    return math.prod(len(one.values) for one in lists) if len(lists) == len(ranges) else None


def _check(given: Uniform | Log, above: float) -> None:
    bounds = (given.low, given.high)
    wrong = any(isinstance(b, bool) or not isinstance(b, int | float) or not math.isfinite(b) for b in bounds)
    if wrong or not above < given.low < given.high:
        positive = "positive " if above == 0 else ""
        raise MethodError(f"space: {given}, should be two {positive}numbers, the smaller one first")


def _short(value: float) -> float:
    return float(f"{value:.4g}")
