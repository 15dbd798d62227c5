"""A round's prototypes: measured, reconstructed, or of an earlier round where neither can be had."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from mpt.core import (
    ClassStatistics,
    CrossStatistics,
    NearestClassMean,
    Reconstruction,
    StatisticsError,
)
from mpt.core.reconstruction import witnessed
from mpt.core.two_views import JoinedViews
from mpt.core.validation import Floats, Ints, check_finite, read_only
from mpt.methods import Traits
from mpt.methods.simple import Linear
from mpt.tracking.answers import Snapshot, Taken
from mpt.tracking.book import ENOUGH
from mpt.tracking.departures import Departures
from mpt.tracking.dialogue import Told
from mpt.tracking.joint import heard, joined
from mpt.tracking.roster import Roster, line, titled
from mpt.tracking.settings import TrackerSettings
from mpt.tracking.stale import Offsets, StaleSamples, forecast, stale_samples, with_stale_samples
from mpt.tracking.state import ReferenceModel, Tracked, TrackerState
from mpt.tracking.trusted import Meanwhile, meanwhile
from mpt.tracking.views import Views

AnyReadout = NearestClassMean | JoinedViews | Linear


@dataclass(frozen=True, eq=False)
class Current:
    """What the classes look like in a round.

    Attributes:
        prototypes: (C, d).
        made: (C,), the round that each is from; -1 where there is none.
        covariance: (d, d) or None.
        readout: None as long as no class has a prototype.
        linear: the same, where a method gave it.
        reconstructions: by class.
        tracked: the classes whose prototype is reconstructed or, by a method with questions of its own, given.
        forecasts: (d,) by class, of the classes with a deposit: what remaining samples are remembered about.
        outward: the classes that the readout has further out, Eq. (X10).
        problems: a sentence each.
        views: what a readout of two views is made of.
        references: the rounds of the earlier views that the readout reads.
    """

    prototypes: Floats
    made: Ints
    covariance: Floats | None
    readout: AnyReadout | None
    linear: Linear | None
    reconstructions: Mapping[int, Reconstruction]
    tracked: tuple[int, ...]
    forecasts: Mapping[int, Floats]
    outward: tuple[int, ...]
    problems: tuple[str, ...]
    views: Views = field(default_factory=Views)
    references: tuple[int, ...] = ()


def measured_in(settings: TrackerSettings, departed: Departures, taken: Taken) -> frozenset[int]:
    """The classes with a deposit that are measured: samples carry them, or it is their vehicle's last answer."""
    if taken.snapshot is None:
        return frozenset()
    counts = taken.snapshot.everybody.counts
    carried = {c for c, one in departed.tracked.items() if settings.carries(int(counts[c]), one.samples)}
    return frozenset((carried - departed.disputed) | departed.fresh)


def current(
    state: TrackerState,
    departed: Departures,
    taken: Taken,
    roster: Roster,
    known: Offsets,
    told: Told,
    trusted: Mapping[str, Snapshot],
    round: int,
) -> Current:
    """This round's prototypes and readout.

    A class is measured where its samples carry it, and in the round of its vehicle's last answer; else reconstructed
    from its deposit. One whose holder is there and does not count is reconstructed from its last trusted answer. One
    that has neither samples nor a deposit now keeps its last prototype as long as a vehicle may bring it back.
    """
    settings, problems = state.settings, list[str](told.problems)
    if taken.snapshot is None:
        return _as_before(state, problems)
    stats = taken.snapshot.everybody
    prototypes, made = stats.means, np.where(stats.counts > 0, round, -1)
    reconstructions, forecasts, mapped = dict[int, Reconstruction](), dict[int, Floats](), set[int]()
    directly = measured_in(settings, departed, taken)
    outward_too = Traits.of(settings.speaks or settings.how).outward
    for c, prototype in told.prototypes.items():
        prototypes[c], made[c] = prototype, round
    mapped |= told.prototypes.keys() if outward_too else set()
    for c, one in sorted(departed.tracked.items()):
        measured = c in directly
        if (measured and not settings.remembers) or c in told.prototypes or told.readout is not None:
            continue
        try:
            made_now, by_map = _reconstructed(settings, one, stats, taken.cross.get(c), round, problems)
        except StatisticsError as error:
            problems += [] if measured else [f"class {settings.name_of(c)} cannot be reconstructed: {error}"]
            continue
        forecasts[c] = forecast(made_now)
        if not measured:
            silent = stale_samples(state, known, roster, c)
            if silent is not None:
                made_now = with_stale_samples(made_now, stats, silent)
                problems.append(_said(settings.name_of(c), silent, made_now.samples))
            if settings.gate:
                made_now = witnessed(made_now, sum(mine[c] > 0 for mine in taken.counts.values()))
            reconstructions[c] = made_now
            if by_map and outward_too:
                mapped.add(c)
            prototypes[c], made[c] = made_now.prototype, round
    for c, held in meanwhile(settings, trusted, departed.tracked.keys(), roster, stats, state.counts).items():
        prototypes[c] = state.prototypes[c] if held.made is None else held.made.prototype
        made[c] = state.made[c] if held.made is None else round
        problems.append(_held(settings.name_of(c), held, roster))
    for c in np.flatnonzero((made < 0) & (state.made >= 0)).tolist():
        if c in departed.tracked or _may_return(state, taken, roster, c):
            prototypes[c], made[c] = state.prototypes[c], state.made[c]
            name = settings.name_of(c)
            problems.append(f"class {name} has no samples in this round, its prototype is that of round {made[c]}")
    covariance = _covariance(settings, stats, problems)
    outward = tuple(c for c in departed.held_out if c in mapped)
    views = heard(state, departed.tracked, taken.joint, stats, sorted(reconstructions), problems)
    readout, read = (
        (told.readout, ())
        if told.readout
        else _readout(settings, prototypes, stats, covariance, outward, views, problems)
    )
    found = departed.tracked.keys() - directly if told.readout else reconstructions.keys() | told.prototypes.keys()
    return Current(
        read_only(prototypes),
        read_only(made),
        covariance,
        readout,
        told.readout,
        reconstructions,
        tuple(sorted(found)),
        forecasts,
        outward,
        tuple(problems),
        views,
        read,
    )


def _as_before(state: TrackerState, problems: list[str]) -> Current:
    """Where nobody answered."""
    last, stats = state.snapshot, None if state.snapshot is None else state.snapshot.everybody
    kept = "there are no prototypes yet" if last is None else f"the prototypes are those of round {last.round}"
    problems.append(f"nobody answered: {kept}")
    covariance = None if stats is None else _covariance(state.settings, stats, problems)
    readout, read = read_out(state, problems)
    return Current(
        state.prototypes,
        state.made,
        covariance,
        readout,
        state.linear,
        {},
        (),
        {},
        state.outward,
        tuple(problems),
        state.views,
        read,
    )


def _reconstructed(
    settings: TrackerSettings,
    one: Tracked,
    stats: ClassStatistics,
    moments: CrossStatistics | None,
    round: int,
    problems: list[str],
) -> tuple[Reconstruction, bool]:
    """From cross moments, where they were asked for and are enough (True), or without."""
    how = settings.how
    if settings.asks.cross and one.reference is not None and one.since < round:
        try:
            made = how.reconstruct(one.deposit, stats, _enough(moments, stats, one.reference))
            check_finite(made.prototype, "prototype")
        except StatisticsError as error:
            name = settings.name_of(one.departed)
            problems.append(f"class {name} is reconstructed as by mpt in this round: {error}")
        else:
            return made, True
    made = how.reconstruct(one.deposit, stats)
    check_finite(made.prototype, "prototype")
    return made, False


def _enough(moments: CrossStatistics | None, stats: ClassStatistics, reference: ReferenceModel) -> CrossStatistics:
    """The cross moments, unless those of most samples with a weight are missing."""
    weighty = reference.weights > 0
    there, all_there = 0 if moments is None else int(moments.counts[weighty].sum()), int(stats.counts[weighty].sum())
    if moments is None or there < ENOUGH * all_there:
        raise StatisticsError(
            f"cross: moments of {there} of {all_there} samples of its reference classes, should be of {ENOUGH:.0%}; "
            f"the other vehicles do not have the global model of round {reference.round}"
        )
    return moments


def _said(name: str, silent: StaleSamples, samples: int) -> str:
    first, last = silent.rounds
    when = f"round {last}" if first == last else f"rounds {first} to {last}"
    return f"class {name}: {silent.samples} of {samples} remaining samples are remembered from {when}"


def _held(name: str, held: Meanwhile, roster: Roster) -> str:
    vehicle = titled(held.vehicle, roster.name(held.vehicle))
    how = "reconstructed from it" if held.made is not None else f"as it was ({held.why})"
    state = roster.state(held.vehicle)
    why = f"its holder, vehicle {line(vehicle, 70)}, {'was not asked' if state == 'present' else f'is {state}'}"
    return f"class {name}: {why} and was trusted last in round {held.round}; the class is {how}"


def readout_of(state: TrackerState) -> AnyReadout | None:
    """The readout of the last round that was closed; None as long as no class has a prototype."""
    return read_out(state, [])[0]


def read_out(
    state: TrackerState, problems: list[str], most: int | None = None
) -> tuple[AnyReadout | None, tuple[int, ...]]:
    """The same, and the rounds of the earlier views that it reads: at most `most`, the latest, where that is given."""
    if state.linear is not None:
        return state.linear, ()
    stats = None if state.snapshot is None else state.snapshot.everybody
    covariance = None if stats is None else _covariance(state.settings, stats, [])
    return _readout(state.settings, state.prototypes, stats, covariance, state.outward, state.views, problems, most)


def _may_return(state: TrackerState, taken: Taken, roster: Roster, c: int) -> bool:
    """Whether somebody who may be there has not said in this round what it has of a class, and had samples of it."""
    return any(counts[c] > 0 and not roster.gone(v) for v, counts in state.counts.items() if v not in taken.counts)


def _covariance(settings: TrackerSettings, stats: ClassStatistics, problems: list[str]) -> Floats | None:
    if not settings.scatter:
        return None
    try:
        return stats.covariance()
    except StatisticsError as error:
        problems.append(f"no covariance, the readout is Euclidean: {error}")
        return None


def _readout(
    settings: TrackerSettings,
    prototypes: Floats,
    stats: ClassStatistics | None,
    covariance: Floats | None,
    outward: tuple[int, ...],
    views: Views,
    problems: list[str],
    most: int | None = None,
) -> tuple[NearestClassMean | JoinedViews | None, tuple[int, ...]]:
    """Of the current view and the earlier ones, where they can be read together; else of the current one alone."""
    if np.isnan(prototypes).all():
        return None, ()
    try:
        made = NearestClassMean(prototypes, covariance, cov_ridge=settings.cov_ridge)
    except StatisticsError as error:
        problems.append(f"the readout is Euclidean: {error}")
        made = NearestClassMean(prototypes, cov_ridge=settings.cov_ridge)
    both = None if stats is None else joined(settings, views, stats, made, outward, problems, most)
    return (made.outwards(outward), ()) if both is None else both
