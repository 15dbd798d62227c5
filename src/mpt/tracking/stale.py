"""The remaining samples of vehicles that did not answer: remembered as they were when they last did.

The server knows where a departed class would be if nobody had a sample of it: p = M_t^T w0 + r_pred, its forecast. Of
every vehicle's last answer it keeps, for each class with a deposit, the offset: the sum of h - p over its n remaining
samples. As long as the vehicle is suspected or late they count as if they had moved as p has, with the sum
offset + n p_t. Once it answers, its answer counts; once it has departed, nothing of it does, so `grace` bounds how old
they get.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from mpt.core import ClassStatistics, Reconstruction
from mpt.core.equations import assemble, measured_residual, reliability, span_basis
from mpt.core.validation import Floats, read_only
from mpt.tracking.answers import Taken
from mpt.tracking.roster import AWAITED, Roster
from mpt.tracking.state import Tracked, TrackerState

Offsets = Mapping[str, Mapping[int, Floats]]
"""(d,) by vehicle and class."""


@dataclass(frozen=True, eq=False)
class StaleSamples:
    """The remaining samples of a class on suspected vehicles.

    Attributes:
        samples: how many.
        offset: (d,), the sum of h - p over them, each in the round in which its vehicle answered last.
        rounds: the first and the last of those rounds.
    """

    samples: int
    offset: Floats
    rounds: tuple[int, int]


def forecast(made: Reconstruction) -> Floats:
    """(d,): p = M_t^T w0 + r_pred, the prototype as it would be without remaining samples."""
    return made.in_span + made.predicted


def still_known(state: TrackerState, tracked: Mapping[int, Tracked], roster: Roster) -> Offsets:
    """The offsets of vehicles that did not count, of classes whose deposit is the one their forecast was made from."""
    return {
        v: {
            c: offset
            for c, offset in state.stale_offsets[v].items()
            if c in tracked and tracked[c].since <= roster.members[v].seen
        }
        for v in roster.having(*AWAITED)
        if v in state.stale_offsets
    }


def stale_samples(state: TrackerState, known: Offsets, roster: Roster, c: int) -> StaleSamples | None:
    """What is known of a class's remaining samples on suspected and late vehicles; None where there is nothing."""
    vehicles = [v for v in sorted(known) if c in known[v] and roster.state(v) in ("suspected", "late")]
    if not vehicles:
        return None
    seen = [roster.members[v].seen for v in vehicles]
    offset: Floats = np.sum([known[v][c] for v in vehicles], axis=0)
    return StaleSamples(sum(int(state.counts[v][c]) for v in vehicles), offset, (min(seen), max(seen)))


def with_stale_samples(made: Reconstruction, stats: ClassStatistics, known: StaleSamples) -> Reconstruction:
    """Eq. (5), (7) and (4) again, the remembered samples among the remaining ones.

    Args:
        made: the reconstruction from `stats` alone.
        stats: this round's statistics.
        known: of the same class.
    """
    c, samples = made.departed, made.samples + known.samples
    answered = stats.sums[c] + stats.counts[c] * stats.origin
    mean = (answered + known.offset + known.samples * forecast(made)) / samples
    measured = measured_residual(mean, span_basis(stats.means_of(made.classes)))
    alpha = reliability(measured, made.predicted, made.noise, samples)
    return replace(
        made,
        prototype=read_only(assemble(made.in_span, measured, made.predicted, alpha)),
        measured=read_only(measured),
        alpha=alpha,
        samples=samples,
    )


def offsets(taken: Taken, roster: Roster, forecasts: Mapping[int, Floats]) -> Offsets:
    """Of the vehicles that answered and stay, in the classes with a forecast."""
    if taken.snapshot is None:
        return {}
    origin = taken.snapshot.everybody.origin
    return {
        v: {c: read_only(taken.counts[v][c] * (rows[c] - (forecasts[c] - origin))) for c in rows if c in forecasts}
        for v, rows in taken.watched.items()
        if roster.state(v) == "present"
    }
