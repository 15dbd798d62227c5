"""Figures over seeds: mean and deviation, curves by round, paired differences with an interval."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import stdtrit


class Series(NamedTuple):
    """What a series of points is: a method under a readout."""

    method: str
    readout: str


class Stat(NamedTuple):
    """Mean over seeds, and their standard deviation, None for a single one."""

    mean: float
    deviation: float | None = None


@dataclass(frozen=True)
class Curve:
    """A figure by round: over seeds, and of each seed."""

    points: dict[int, Stat]
    seeds: dict[int, dict[int, float]]


class Difference(NamedTuple):
    """Of two rows' figures on the same seeds, with half the width of a 95% interval, None for a single seed."""

    mean: float
    half: float | None
    seeds: int

    @property
    def clear(self) -> bool:
        """Whether the interval leaves out zero."""
        return self.half is not None and abs(self.mean) > self.half


def stat(values: Iterable[float]) -> Stat:
    """Mean and deviation (ddof = 1)."""
    array = np.asarray(list(values), dtype=np.float64)
    return Stat(float(array.mean()), float(array.std(ddof=1)) if len(array) > 1 else None)


def curve(values: Iterable[tuple[int, int, float | None]]) -> Curve:
    """From (seed, round, value); values that are None or NaN are left out."""
    seeds: dict[int, dict[int, float]] = {}
    rounds: dict[int, list[float]] = {}
    for seed, number, value in values:
        if value is not None and not math.isnan(value):
            seeds.setdefault(seed, {})[number] = value
            rounds.setdefault(number, []).append(value)
    return Curve({number: stat(rounds[number]) for number in sorted(rounds)}, seeds)


def paired(differences: Sequence[float]) -> Difference:
    """Their mean, with half the width of its 95% t-interval."""
    mean, deviation = stat(differences)
    if deviation is None:
        return Difference(mean, None, 1)
    half = float(stdtrit(len(differences) - 1, 0.975)) * deviation / math.sqrt(len(differences))
    return Difference(mean, half, len(differences))
