"""How the updates of a round become one model: their mean, with every vehicle's influence bounded, or another rule.

A rule of one's own is a function of `Updates`, `mine.py:rule(share=0.1)`; one that is built in is a line in
`AGGREGATIONS`. Rules that choose among vehicles or coordinates throw away what only one vehicle has learned: the class
that it alone holds.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from mpt.base.credit import MOST_SAMPLES, believed, usual
from mpt.base.extensions import Builtin, Extensions
from mpt.learning.averaging import PlainAverage, RunningAverage
from mpt.learning.settings import DivergedError, LearningError

State = Mapping[str, Tensor]

MOST_UPDATE, MOST_HOLDER = 3.0, 10.0
"""Times the median vehicle's: so much of samples x length counts; of one that holds most of a class, which the others
do not learn, more."""
MOST_PACE, MOST_PACE_HOLDER = 2.5, 4.0
"""Times what is usual for as many samples: so long an update may be, likewise."""
DOUBTFUL = 0.5
"""Where less than this share of somebody's update counts, what was learned in the round is in doubt."""


@dataclass(frozen=True, eq=False)
class Updates:
    """What the vehicles of a round have made of the global model.

    Attributes:
        start: the state dict that they began with.
        states: theirs.
        samples: how many each trained on, or says so.
        batchnorm: the names of the BatchNorm layers that keep running statistics.
        holders: the places of vehicles that hold most of a class.
    """

    start: State
    states: Sequence[State]
    samples: Sequence[float]
    batchnorm: tuple[str, ...] = ()
    holders: frozenset[int] = frozenset()

    def rows(self) -> Tensor:
        """(V, P) float64: the updates of the real parameters, BatchNorm's running statistics left out."""
        names = _learned(self.start, self.batchnorm)
        return torch.stack([torch.cat([(s[n] - self.start[n]).double().flatten() for n in names]) for s in self.states])

    def chosen(self, places: Sequence[int]) -> "Updates":
        """Some of them."""
        return Updates(self.start, [self.states[i] for i in places], [self.samples[i] for i in places], self.batchnorm)


Rule = Callable[[Updates], dict[str, Tensor]]


class Medians(NamedTuple):
    """What is usual among a round's updates: samples, length, samples x length, and how far BatchNorm's running
    statistics have moved; of those that have moved at all: a vehicle with one sample sends the model back as it was."""

    samples: float
    length: float
    moved: float
    statistics: float


_UNBOUNDED = Medians(math.inf, math.inf, math.inf, math.inf)


class BoundedAverage:
    """`RunningAverage` in which no vehicle counts for much more than was usual in the last round.

    A vehicle's samples weigh at most three times what is usual, Eq. (G1). Its update may be 2.5 times as long as is
    usual, more where it has more samples than usual; beyond, the longer the less it counts, Eq. (G7). Samples x length
    counts up to three times what is usual; what it did to BatchNorm's running statistics likewise, apart. A vehicle
    that holds most of a class has learned what the others have not: its update is long, and points away from theirs, as
    a hostile one's does. Its bounds are 4 and 10.

    Attributes:
        shares: by vehicle, how much of its weight and length has counted, where that is not all.
        doubted: whether less than half of somebody's length has.
    """

    def __init__(
        self,
        batchnorm: tuple[str, ...],
        start: State,
        medians: Medians | None = None,
        *,
        quorum: int | None = None,
        most: float = MOST_UPDATE,
    ) -> None:
        """For the updates of one round.

        Args:
            batchnorm: as of `Updates`.
            start: the global model.
            medians: of the round before; None: of the first `quorum` that have moved, which are held until then.
            quorum: None: of all.
            most: times the median, samples x length.
        """
        self._start, self._medians, self._quorum, self._most = start, medians, quorum, most
        learned, running = _learned(start, batchnorm), [name for name in _running(batchnorm) if name in start]
        self._learned = learned, [start[name] for name in learned]
        self._running = running, [start[name] for name in running]
        self._average = RunningAverage(batchnorm)
        self._average.add(start, 0)
        self._held = list[tuple[str, State, float, bool]]()
        self._seen = list[Medians]()
        self._checked: tuple[State, float, float] | None = None
        self.shares, self.doubted = dict[str, float](), False

    def add(self, vehicle: str, state: State, samples: float, holder: bool = False) -> None:
        """Take in one vehicle's model, which fits: see `check`.

        Args:
            vehicle: its id.
            state: its state dict.
            samples: how many it has trained on, or says so.
            holder: whether it holds most of a class.
        """
        if not math.isfinite(samples) or samples <= 0:
            raise LearningError(f"samples: {samples}, should be finite and above 0")
        if self._checked is None or self._checked[0] is not state:
            self.check(state)
        assert self._checked is not None
        (_, learned, running), self._checked = self._checked, None
        self._seen.append(Medians(samples, learned, samples * learned, running))
        if self._medians is not None:
            self._take(vehicle, state, samples, holder, self._seen[-1])
            return
        self._held.append((vehicle, {name: tensor.clone() for name, tensor in state.items()}, samples, holder))
        if self._quorum is not None and sum(one.moved > 0 for one in self._seen) >= self._quorum:
            self._flush()

    def check(self, state: State) -> None:
        """Raise `LearningError` where a state does not fit. `add` of the same one, unchanged, does not look again.

        Its lengths are finite where all of its numbers are, unless they are absurdly large.
        """
        self._average.check_layout(state)
        learned, running = (self._length(state, *names) for names in (self._learned, self._running))
        if math.isfinite(learned + running):
            self._average.check_variances(state)
        else:
            self._average.check(state)
            raise DivergedError("state: too far from the global model for any number, should be near it")
        self._checked = state, learned, running

    def state(self) -> dict[str, Tensor]:
        """The average so far."""
        self._flush()
        return self._average.state()

    @property
    def medians(self) -> Medians | None:
        """Of the updates as they came, for the next round; None where none has moved."""
        return _middle(self._seen)

    def _flush(self) -> None:
        if not self._held:
            return
        self._medians = _middle(self._seen) or _UNBOUNDED
        held, self._held = self._held, []
        for one, mine in zip(held, self._seen, strict=True):
            self._take(*one, mine)

    def _length(self, state: State, names: Sequence[str], start: Sequence[Tensor]) -> float:
        """Of the way from the global model to a vehicle's, along some entries."""
        ways = (state[name] - before for name, before in zip(names, start, strict=True))
        parts = [torch.linalg.vector_norm(way, dtype=torch.float64) for way in ways]
        return float(torch.linalg.vector_norm(torch.stack(parts))) if parts else 0.0

    def _take(self, vehicle: str, state: State, samples: float, holder: bool, mine: Medians) -> None:
        middle = self._medians
        assert middle is not None
        weight = samples * believed(samples, middle.samples, MOST_SAMPLES)
        length = middle.length * max(1.0, weight / middle.samples)
        pace = mine.length / length if length > 0 else 0.0
        learned = shortened(pace, MOST_PACE_HOLDER if holder else MOST_PACE)
        most = max(self._most, MOST_HOLDER) if holder else self._most
        learned *= believed(weight * mine.length * learned, middle.moved, most)
        running = min(learned, believed(mine.statistics, middle.statistics, most))
        self.doubted |= learned < DOUBTFUL
        if min(weight / samples, learned) < 1:
            self.shares[vehicle] = weight / samples * learned
        if running < 1:
            state = _shortened(self._start, state, learned, running, set(self._running[0]))
        self._average.add(state, weight, checked=True)


class HeldUpdates:
    """All updates of a round, for a rule that has to see them together."""

    def __init__(self, rule: Rule, batchnorm: tuple[str, ...], start: State) -> None:
        self._rule, self._batchnorm, self._start = rule, batchnorm, start
        self._fits = RunningAverage(batchnorm)
        self._fits.add(start, 0)
        self._held = list[tuple[State, float, bool]]()
        self.shares, self.doubted = dict[str, float](), False
        self.medians: Medians | None = None

    def add(self, vehicle: str, state: State, samples: float, holder: bool = False) -> None:
        """As of `BoundedAverage`."""
        self._held.append(({name: tensor.clone() for name, tensor in state.items()}, samples, holder))

    def check(self, state: State) -> None:
        """Raise `LearningError` where a state does not fit."""
        self._fits.add(state, 0)

    def state(self) -> dict[str, Tensor]:
        """What the rule makes of them."""
        if not self._held:
            raise LearningError("updates: there are none, should be at least one")
        states, samples, holding = zip(*self._held, strict=True)
        holders = frozenset(place for place, holds in enumerate(holding) if holds)
        return self._rule(Updates(self._start, states, samples, self._batchnorm, holders))


Gathering = BoundedAverage | PlainAverage | HeldUpdates


def gathering(
    text: str, batchnorm: tuple[str, ...], start: State, medians: Medians | None = None, quorum: int = 8
) -> Gathering:
    """What takes in a round's updates as they arrive.

    Args:
        text: the rule. "clipped" and "average" hold no update for long, others hold all of them.
        batchnorm: as of `Updates`.
        start: the global model.
        medians: of the round before.
        quorum: so many are held where there was none before.
    """
    if text == "clipped":
        return BoundedAverage(batchnorm, start, medians, quorum=quorum)
    if text == "average":
        return PlainAverage(batchnorm, start)
    return HeldUpdates(find_aggregation(text), batchnorm, start)


def shortened(pace: float, most: float) -> float:
    """Eq. (G7): the share of an update's length that counts, `pace` times what is usual for as many samples.

    Up to `most` all of it, beyond it ever less, and from twice that on a tenth of `most`: so much that a fleet whose
    steps have all grown goes on, and a larger lie is worth less.

    Example:
        >>> [round(x * shortened(x, most=2.5), 2) for x in (1.0, 2.5, 3.75, 5.0, 1e9)]
        [1.0, 2.5, 1.37, 0.25, 0.25]
    """
    if pace <= most:
        return 1.0
    return most * max(1.9 - 0.9 * pace / most, 0.1) / pace


def _middle(seen: Sequence[Medians]) -> Medians | None:
    moving = [one for one in seen if one.moved > 0]
    return Medians(*usual(*zip(*moving, strict=True))) if moving else None


def _shortened(start: State, state: State, learned: float, running: float, statistics: set[str]) -> dict[str, Tensor]:
    """Part of the way from the global model to a vehicle's, its parameters and BatchNorm's statistics apart."""
    made = {}
    for name, tensor in state.items():
        share = running if name in statistics else learned
        if share >= 1 or not tensor.is_floating_point():
            made[name] = tensor
        else:
            made[name] = (start[name].double() + share * (tensor.double() - start[name].double())).to(tensor.dtype)
    return made


def _running(batchnorm: tuple[str, ...]) -> list[str]:
    """The names of BatchNorm's running statistics."""
    prefixes = [f"{prefix}." if prefix else "" for prefix in batchnorm]
    return [f"{prefix}{name}" for prefix in prefixes for name in ("running_mean", "running_var")]


def _learned(state: State, batchnorm: tuple[str, ...]) -> list[str]:
    """The names of what is learned: all real numbers but these."""
    running = set(_running(batchnorm))
    return [name for name, tensor in state.items() if tensor.is_floating_point() and name not in running]


def average(updates: Updates) -> dict[str, Tensor]:
    """FedAvg: the mean by sample counts."""
    running = RunningAverage(updates.batchnorm)
    for state, samples in zip(updates.states, updates.samples, strict=True):
        running.add(state, samples)
    return running.state()


def clipping(updates: Updates, medians: Medians | None = None, most: float = MOST_UPDATE) -> BoundedAverage:
    """A `BoundedAverage` that has taken in all of them, known by their places; `medians`: of the round before."""
    running = BoundedAverage(updates.batchnorm, updates.start, medians, most=most)
    for place, (state, samples) in enumerate(zip(updates.states, updates.samples, strict=True)):
        running.add(str(place), state, samples, place in updates.holders)
    return running


def clipped(updates: Updates, most: float = MOST_UPDATE) -> dict[str, Tensor]:
    """FedAvg with every vehicle's influence bounded, see `BoundedAverage`."""
    return clipping(updates, most=most).state()


def median(updates: Updates) -> dict[str, Tensor]:
    """The median of every coordinate (Yin et al., ICML 2018); sample counts do not count."""
    return _by_coordinate(updates, lambda rows: rows.quantile(0.5, dim=0))


def trimmed_mean(updates: Updates, share: float = 0.2) -> dict[str, Tensor]:
    """The mean of every coordinate without the largest and smallest `share` of its values (Yin et al., ICML 2018)."""
    if not 0 <= share < 0.5:
        raise LearningError(f"share: {share}, should be at least 0 and below 0.5")
    cut = int(share * len(updates.states))
    return _by_coordinate(updates, lambda rows: rows.sort(dim=0).values[cut : len(rows) - cut].mean(dim=0))


def krum(updates: Updates, hostile: int = 1, keep: int = 1) -> dict[str, Tensor]:
    """The update with the nearest neighbours, or the mean of several such (Blanchard et al., NeurIPS 2017).

    Each is scored by the sum of squared distances to its V - hostile - 2 nearest others.
    """
    _check_enough(updates, 2 * hostile + 3, f"krum(hostile={hostile})")
    best = np.argsort(_krum_scores(updates.rows(), hostile), kind="stable")[:keep]
    return average(updates.chosen(best.tolist()))


def bulyan(updates: Updates, hostile: int = 1) -> dict[str, Tensor]:
    """V - 2 hostile updates by Krum, and of these in every coordinate the values nearest the median (Mhamdi, 2018)."""
    _check_enough(updates, 4 * hostile + 3, f"bulyan(hostile={hostile})")
    rows, left, chosen = updates.rows(), list(range(len(updates.states))), list[int]()
    while len(chosen) < len(updates.states) - 2 * hostile:
        best = int(np.argmin(_krum_scores(rows[left], hostile)))
        chosen.append(left.pop(best))
    keep = len(chosen) - 2 * hostile

    def nearest(values: Tensor) -> Tensor:
        apart = (values - values.quantile(0.5, dim=0)).abs()
        return values.gather(0, apart.argsort(dim=0, stable=True)[:keep]).mean(dim=0)

    return _by_coordinate(updates.chosen(chosen), nearest)


def _krum_scores(rows: Tensor, hostile: int) -> "np.ndarray[Any, np.dtype[np.float64]]":
    near = max(1, len(rows) - hostile - 2)
    apart = torch.cdist(rows, rows, compute_mode="donot_use_mm_for_euclid_dist").square()
    made: np.ndarray[Any, np.dtype[np.float64]] = apart.sort(dim=1).values[:, 1 : near + 1].sum(dim=1).cpu().numpy()
    return made


def _by_coordinate(updates: Updates, rule: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
    """A rule of (V, ...) float64 for every real entry; of integers the largest."""
    made = {}
    for name, first in updates.states[0].items():
        stacked = torch.stack([state[name] for state in updates.states])
        real = first.is_floating_point()
        made[name] = rule(stacked.double()).to(first.dtype) if real else stacked.max(dim=0).values
    return made


def _check_enough(updates: Updates, least: int, what: str) -> None:
    if len(updates.states) < least:
        raise LearningError(f"aggregation: {what} of {len(updates.states)} updates, should be of at least {least}")


AGGREGATIONS: Extensions[Rule] = Extensions(
    "aggregation",
    {
        "average": Builtin(average, "the mean by sample counts, FedAvg"),
        "clipped": Builtin(clipped, "the same, with no vehicle counting for much more than is usual"),
        "median": Builtin(median, "the median of every coordinate"),
        "trimmed-mean": Builtin(trimmed_mean, "every coordinate's mean without its extremes; share=0.2"),
        "krum": Builtin(krum, "the update with the nearest neighbours; hostile=1, keep=1"),
        "bulyan": Builtin(bulyan, "several by Krum, of these a trimmed mean; hostile=1"),
    },
    LearningError,
    own="path.py:function",
    bound=True,
)


@cache
def _found(text: str, file: str) -> Rule:
    return AGGREGATIONS.find(text)


def find_aggregation(text: str) -> Rule:
    """The rule that a text names, the same object as long as the file is."""
    made: Any = _found(text, AGGREGATIONS.known_by(text))
    if not callable(made):
        raise LearningError(f"aggregation: {text!r} is no function, should take Updates and give a state dict")
    rule: Rule = made
    return rule
