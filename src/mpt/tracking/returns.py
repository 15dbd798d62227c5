"""How likely an absent vehicle is to come back, from the absences that a fleet has seen.

The length T of an absence is the number of questions in a row that a vehicle has missed when it answers again. Absences
that have ended are counted by their length, without names: up to 63 questions two lengths in one bin, then doubling
ones. An absence that lasts, of a suspected or a departed vehicle, says that T is at least its length so far. The
estimate is Kaplan and Meier's over these bins: of the n(k) absences that were seen through bin k, d(k) ended in it, and

    P(T >= end of bin k | T >= its beginning) = 1 - d(k) / n(k),    n(k) = PRIOR + those that ended in bin k or later
                                                                          + those that last and went through it.

One that is in the middle of a bin counts for the share of the bin that it went through. `PRIOR` more absences are
taken as seen that never end. So the chance of a return is 0 where nothing was seen, and at most n / (n + PRIOR) after n
absences that ended. Within a bin an absence is as likely to end at every question.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

Kind = Literal["off", "pooled", "own"]
Absence = tuple[int, int]
"""How long a vehicle's own absence was, and the round in which it ended."""

PRIOR = 5
"""Absences that never end, taken as seen."""
OWN_PRIOR = 2
"""A vehicle's own absences that the fleet's chance counts for."""
MOST_OWN = 8
"""Of a vehicle's own absences, so many are kept: the latest."""

_PAIRS, _DOUBLINGS = 32, 9
_EDGES = np.array([1, *range(2, 2 * _PAIRS, 2), *(2 * _PAIRS * 2**k for k in range(_DOUBLINGS + 1))])
BINS = len(_EDGES) - 1


def bin_of(length: int) -> int:
    """The bin of an absence of `length` questions, at least 1; the last bin has all that are longer as well.

    Example:
        >>> [bin_of(length) for length in (1, 2, 3, 4, 63, 64, 127, 128, 10**6)]
        [0, 1, 1, 2, 31, 32, 32, 33, 40]
    """
    if length < 2 * _PAIRS:
        return length // 2
    return min(_PAIRS + (length // (2 * _PAIRS)).bit_length() - 1, BINS - 1)


def counted(absences: Sequence[int], ended: Iterable[int]) -> tuple[int, ...]:
    """A histogram of absences by their bins, with some more that have ended."""
    after = list(absences)
    for length in ended:
        place = bin_of(length)
        after += [0] * (place + 1 - len(after))
        after[place] += 1
    return tuple(after)


@dataclass(frozen=True)
class Returns:
    """The distribution of absences.

    Attributes:
        survival: P(T >= t) where the bins begin, and where the last one ends.
    """

    survival: tuple[float, ...]

    def beyond(self, length: int) -> float:
        """P(T >= length)."""
        if length <= 1:
            return 1.0
        k = bin_of(length)
        share = min((length - int(_EDGES[k])) / int(_EDGES[k + 1] - _EDGES[k]), 1.0)
        first, last = self.survival[k], self.survival[k + 1]
        return float(first * (last / first) ** share)

    def chance(self, so_far: int, horizon: int) -> float:
        """The probability that a vehicle which has missed `so_far` questions answers one of the next `horizon`."""
        return 1.0 - self.beyond(so_far + horizon) / self.beyond(so_far)


def estimate(ended: Sequence[int], lasting: Mapping[int, float]) -> Returns:
    """From a histogram of absences that have ended, and how many last, by their length so far."""
    counts = np.zeros(BINS)
    counts[: len(ended)] = ended
    first, width = _EDGES[:-1], np.diff(_EDGES)
    so_far, times = np.array([*lasting], dtype=float), np.array([*lasting.values()], dtype=float)
    through = np.clip((so_far[:, None] - first) / width, 0, 1)
    seen = PRIOR + np.cumsum(counts[::-1])[::-1] + (times[:, None] * through).sum(axis=0)
    return Returns((1.0, *np.cumprod(1 - counts / seen).tolist()))


def own_chance(pooled: float, lengths: Collection[int], so_far: int, horizon: int) -> float:
    """The chance from a vehicle's own absences that lasted so long; the fleet's counts for `OWN_PRIOR` more of them."""
    like = [length for length in lengths if length >= so_far]
    soon = sum(length < so_far + horizon for length in like)
    return (soon + OWN_PRIOR * pooled) / (len(like) + OWN_PRIOR)


@dataclass(frozen=True)
class Waiting:
    """How long a vehicle is waited for that has missed more than the grace.

    Attributes:
        returns: "off": no longer; "pooled": as long as a return is likely, from the absences of the fleet; "own": from
            the vehicle's own as well.
        chance: as long as a return is more likely than this.
        most: never for more questions than this.
        retention: for so many rounds a vehicle's own absences are kept.
    """

    returns: Kind = "off"
    chance: float = 0.5
    most: int = 40
    retention: int = 0

    def kept(self, own: tuple[Absence, ...], round: int) -> tuple[Absence, ...]:
        """Of a vehicle's own absences, those that are still kept."""
        if not own or self.returns != "own":
            return ()
        return tuple(one for one in own if round - one[1] < self.retention)[-MOST_OWN:]
