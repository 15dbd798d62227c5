"""A round's accepted answers, each of which then moves the sums by a bounded amount; they need not all be held.

The features are of a new model in every round, so that answers can be compared with those of the same round alone. The
first are held until there is a quorum. What they agree on is what all of them, and every one that comes later, are
compared with; from then on each goes through as it comes.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, NamedTuple, TypeVar

from mpt.core import ClassStatistics, CrossStatistics
from mpt.core.bounded import Clip, Consensus, bounded, clip_of, clipped
from mpt.core.bounded_cross import BoundedCross, CrossClip, CrossConsensus, bounded_cross, bounded_more
from mpt.core.equations import DEFAULT_COV_RIDGE
from mpt.core.validation import Floats
from mpt.protocol.question import JOINT
from mpt.tracking.history import Expected, held_back

Vehicle = TypeVar("Vehicle", str, int)

LEAST_QUORUM, MOST_QUORUM, HELD = 8, 64, 2**27
"""Answers that are held: at least and at most, and in between so many as take this many bytes."""
_NOTHING: Mapping[int, CrossStatistics] = {}


class Passed(NamedTuple, Generic[Vehicle]):
    """An answer as it counts."""

    vehicle: Vehicle
    statistics: ClassStatistics
    cross: Mapping[int, CrossStatistics]


@dataclass
class Gate(Generic[Vehicle]):
    """Bounds what each answer of a round adds to their sum.

    Attributes:
        departed: classes of whose remaining samples no vehicle has a majority.
        exempt: whether that does not hold for a vehicle, a class and its samples of it: it brings the class back.
        cov_ridge: lambda_Sigma of Eq. (3).
        history: of the round before, for classes that fewer than three vehicles have; None: they are taken as they are.
        consensus: what answers are compared with, as soon as there is a quorum.
        clips: by vehicle, what of its statistics did not count.
        cross_clips: by vehicle and departed class, the same of its cross moments; by `JOINT` and more, of joint ones.
    """

    departed: Collection[int] = ()
    cov_ridge: float = DEFAULT_COV_RIDGE
    exempt: Callable[[Vehicle, int, int], bool] = lambda *_: False
    history: Callable[[Vehicle, ClassStatistics, Consensus], Mapping[int, Expected]] | None = None
    consensus: Consensus | None = None
    clips: dict[Vehicle, Clip] = field(default_factory=dict)
    cross_clips: dict[Vehicle, dict[int, CrossClip]] = field(default_factory=dict)
    _held: list[Passed[Vehicle]] = field(default_factory=list)
    _open: bool = False
    _crosses: dict[int, CrossConsensus | None] = field(default_factory=dict)

    def take(
        self, vehicle: Vehicle, statistics: ClassStatistics, cross: Mapping[int, CrossStatistics] = _NOTHING
    ) -> list[Passed[Vehicle]]:
        """The answers that go through now that this one has come; none while a quorum is waited for."""
        if self._open:
            return [self._more(Passed(vehicle, statistics, cross))]
        self._held.append(Passed(vehicle, statistics, cross))
        return self.flush() if len(self._held) >= quorum_of(statistics) else []

    @property
    def held(self) -> tuple[Vehicle, ...]:
        """Whose answers are held."""
        return tuple(one.vehicle for one in self._held)

    def without(self, vehicles: Collection[Vehicle]) -> "Gate[Vehicle]":
        """As if these had not answered, while answers are held."""
        held = [one for one in self._held if one.vehicle not in vehicles]
        return Gate(self.departed, self.cov_ridge, self.exempt, self.history, _held=held)

    def flush(self) -> list[Passed[Vehicle]]:
        """Those that are held, compared with each other: there is a quorum, or no more will come."""
        passed = self._compared(self._held) if self._held else []
        self._held = []
        return passed

    def _compared(self, held: Sequence[Passed[Vehicle]]) -> list[Passed[Vehicle]]:
        owners = [(place, c) for place, one in enumerate(held) for c in self.departed if self._brings(one, c)]
        reports_held = [one.statistics for one in held]
        found = bounded(reports_held, departed=self.departed, owners=owners, cov_ridge=self.cov_ridge)
        self.consensus, self._open = found.consensus, True
        clips, reports = dict[Vehicle, Clip | None](), dict[Vehicle, ClassStatistics]()
        for one, clip, report in zip(held, found.clips, found.reports, strict=True):
            whole = self._with_history(one, clip)
            reports[one.vehicle] = report if whole is clip or whole is None else clipped(one.statistics, whole)
            clips[one.vehicle] = whole
        self.clips |= {vehicle: clip for vehicle, clip in clips.items() if clip is not None}
        crosses: dict[Vehicle, dict[int, CrossStatistics]] = {one.vehicle: {} for one in held}
        for c in sorted({c for one in held for c in one.cross}):
            some = [one for one in held if c in one.cross]
            made: BoundedCross = bounded_cross(
                [one.cross[c] for one in some], [clips[one.vehicle] for one in some], found.consensus
            )
            self._crosses[c] = made.consensus
            for one, moments, cut in zip(some, made.reports, made.clips, strict=True):
                crosses[one.vehicle][c] = moments
                self._note(one.vehicle, c, cut)
        return [Passed(one.vehicle, reports[one.vehicle], crosses[one.vehicle]) for one in held]

    def _more(self, one: Passed[Vehicle]) -> Passed[Vehicle]:
        """One that comes after the quorum."""
        others = [c for c in self.departed if not self._brings(one, c)]
        clip = None if self.consensus is None else clip_of(one.statistics, self.consensus, departed=others)
        clip = self._with_history(one, clip)
        statistics = one.statistics if clip is None else clipped(one.statistics, clip)
        found = {c: bounded_more(report, clip, self._crosses.get(c)) for c, report in one.cross.items()}
        if clip is not None:
            self.clips[one.vehicle] = clip
        for c, (_, cut) in found.items():
            self._note(one.vehicle, c, cut)
        return Passed(one.vehicle, statistics, {c: moments for c, (moments, _) in found.items()})

    def _brings(self, one: Passed[Vehicle], c: int) -> bool:
        return self.exempt(one.vehicle, c, int(one.statistics.counts[c]))

    def _with_history(self, one: Passed[Vehicle], clip: Clip | None) -> Clip | None:
        """The clip, and with it the means of classes that have nobody to be compared with but themselves."""
        if self.history is None or self.consensus is None:
            return clip
        expected = self.history(one.vehicle, one.statistics, self.consensus)
        if not expected:
            return clip
        means, times, reported = dict[int, Floats](), dict[int, float](), one.statistics.means
        for c, where in expected.items():
            back = held_back(where, reported[c], self.consensus.means.factor)
            if back is not None:
                means[c], times[c] = back
        if not means:
            return clip
        before = Clip() if clip is None else clip
        return replace(before, means={**before.means, **means}, times={**before.times, **times})

    def _note(self, vehicle: Vehicle, c: int, cut: CrossClip | None) -> None:
        if cut is not None:
            self.cross_clips.setdefault(vehicle, {})[c] = cut


def quorum_of(statistics: ClassStatistics) -> int:
    """How many such answers are held."""
    size = 8 * (statistics.sums.size + (0 if statistics.scatter is None else statistics.scatter.size))
    return max(LEAST_QUORUM, min(MOST_QUORUM, HELD // size))


def told(clip: Clip | None, cuts: Mapping[int, CrossClip], name_of: Callable[[int], str]) -> str:
    """What of a vehicle's answer was unlikely and did not count, for a log; that it has many samples is no reason."""
    said = list[str]()
    if clip is not None:
        if clip.times:
            far = ", ".join(f"{name_of(c)} ({times:.1f} times the bound)" for c, times in sorted(clip.times.items()))
            said.append(f"its mean of {far} is far off")
        if clip.spread < 1:
            said.append(f"{clip.spread:.1%} of its scatter counts")
    for c, cut in sorted(cuts.items()):
        if cut.residual < 1 or cut.spread < 1 or cut.times:
            what = "joint moments" if c >= JOINT else f"cross moments for {name_of(c)}"
            said.append(f"its {what} are far off")
    return "; ".join(said)
