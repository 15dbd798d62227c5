"""What a round's absences do to classes: deposits are made, kept, or no longer needed."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np

from mpt.core import ClassStatistics, Deposit, StatisticsError
from mpt.core.departure import against_samples
from mpt.core.health import DISPUTED
from mpt.core.validation import Ints, check_finite
from mpt.protocol.request import StatisticsRequest
from mpt.tracking.answers import Snapshot, Taken
from mpt.tracking.coverage import Coverage, besides_largest, credible
from mpt.tracking.dialogue import keep
from mpt.tracking.references import refer
from mpt.tracking.roster import AWAITED, UNHEARD, Decision, Roster
from mpt.tracking.settings import TrackerSettings
from mpt.tracking.state import Tracked, TrackerState
from mpt.tracking.trusted import last_snapshot


@dataclass(frozen=True, eq=False)
class Departures:
    """The classes with a deposit after a round.

    Attributes:
        tracked: by class.
        fresh: those whose deposit is from this very round: their vehicle's last answer is in its statistics.
        held_out: those whose remaining samples are held out of training from now on.
        decisions: what changed.
        disputed: those that samples would carry which others than their owners have brought, and which contradict the
            forecast: they are reconstructed all the same.
    """

    tracked: Mapping[int, Tracked]
    fresh: frozenset[int]
    held_out: tuple[int, ...]
    decisions: tuple[Decision, ...]
    disputed: frozenset[int] = frozenset()


def settle(state: TrackerState, request: StatisticsRequest, taken: Taken, roster: Roster) -> Departures:
    """Deposits after a round.

    A holder that has vanished is deposited from the last snapshot, in which it is; one that leaves with an answer from
    this round's. One that is there and does not count has not vanished. A deposit is dropped when the samples that stay
    carry the class and no owner may be back any more: the owner has returned, or others have brought the class.
    """
    settings, number = state.settings, request.round
    vanished = [v for v in state.roster.having("present", *UNHEARD) if roster.state(v) in ("suspected", "departed")]
    vanished = [v for v in vanished if v not in taken.counts]
    left = [v for v in sorted(taken.counts) if roster.state(v) == "departed"]
    staying = np.zeros(settings.num_classes, dtype=np.int64)
    for counts in (*(taken.counts[v] for v in taken.counts.keys() - left), *taken.unasked.values()):
        staying += counts
    whole, known = _whole(state, taken), {**state.counts, **taken.counts}

    tracked, decisions, fresh = dict(state.tracked), list[Decision](), set[int]()
    reasons = dict[int, str]()
    for vehicles, snapshot in (*_by_snapshot(state, vanished), (left, taken.snapshot)):
        if vehicles and snapshot is not None:
            had = _had(settings, snapshot, whole, known)
            owners = _to_deposit(settings, snapshot, vehicles, tracked, request.watched, whole, known)
            for c in [c for c in owners if settings.carries(int(staying[c]), int(had[c]))]:
                if not any(roster.state(v) in AWAITED for v in owners[c]):
                    decisions.append(_carried(number, owners.pop(c), c, int(staying[c])))
            made, failed = _deposits(settings, snapshot, owners, roster, number, had)
            made, doubted = _compared(settings, made, tracked, snapshot, roster, number)
            decisions += [_deposited(number, t, _samples(snapshot, c)) for c, t in made.items()] + doubted
            made, unkept = _with_kept(settings, made, snapshot, roster, number)
            decisions += unkept
            tracked.update({c: _with_former_owners(t, tracked.get(c), roster) for c, t in made.items()})
            reasons.update(failed)
            fresh |= made.keys() if vehicles is left else set()
    disputed = _disputed(settings, tracked, fresh, staying, taken, roster)
    tracked, dropped = _kept(settings, tracked, {*fresh, *disputed}, staying, roster, number)
    carried = {c for d in decisions if d.what == "carried" for c in d.classes}
    lost = _lost(state, taken, (*vanished, *left), staying, tracked, reasons, roster, number)
    decisions += [d for d in lost if carried.isdisjoint(d.classes)]
    due = [c for c in sorted(tracked) if not tracked[c].waits(roster)]
    held_out = tuple(c for c in due if settings.holds_out and (not settings.shadow or c in state.approved))
    made_from = (*state.trusted.values(), state.snapshot, taken.snapshot)
    tracked, referred = refer(settings, tracked, made_from, number)
    decisions += [*dropped, *referred]
    decisions += [_held_out(number, tracked[c], int(staying[c])) for c in held_out if c not in state.held_out]
    decisions += [_shadowed(settings, tracked[c], int(staying[c]), number) for c in _newly_due(state, due, held_out)]
    return Departures(tracked, frozenset(fresh & tracked.keys()), held_out, tuple(decisions), disputed)


def _had(settings: TrackerSettings, snapshot: Snapshot, whole: Ints, known: Mapping[str, Ints]) -> Ints:
    """(C,): what there was of each class, as far as it is credible."""
    had = np.maximum(snapshot.everybody.counts, whole)
    return credible(had, known) if settings.gate else had


def _compared(
    settings: TrackerSettings,
    made: Mapping[int, Tracked],
    tracked: Mapping[int, Tracked],
    snapshot: Snapshot,
    roster: Roster,
    round: int,
) -> tuple[dict[int, Tracked], list[Decision]]:
    """The new deposits, compared with the samples that stay: one that contradicts them replaces no other."""
    kept, decisions = dict(made), list[Decision]()
    staying = snapshot.without([v for v in snapshot.holders if roster.state(v) != "present"])
    if not settings.gate or staying is None:
        return kept, decisions
    for c, one in made.items():
        gap = against_samples(one.deposit, staying)
        if gap is None or gap.ratio <= DISPUTED:
            continue
        instead = "the one that there is stays"
        if c in tracked:
            del kept[c]
        else:
            instead = "there is no other"
        why = f"the deposit is off the samples that stay by {gap.ratio:.2g} times what chance explains; {instead}"
        decisions.append(Decision(round, "disputed", ", ".join(one.owners), (c,), why))
    return kept, decisions


def _disputed(
    settings: TrackerSettings,
    tracked: Mapping[int, Tracked],
    fresh: Collection[int],
    staying: Ints,
    taken: Taken,
    roster: Roster,
) -> frozenset[int]:
    """The classes that somebody else than an owner has brought back, if it were not for the forecast."""
    if not settings.gate or taken.snapshot is None:
        return frozenset()
    found = set[int]()
    for c, one in tracked.items():
        if c in fresh or not settings.carries(int(staying[c]), one.samples):
            continue
        if any(roster.state(v) == "present" for v in one.owners):
            continue
        try:
            made = settings.how.reconstruct(one.deposit, taken.snapshot.everybody)
        except StatisticsError:
            continue
        if made.contradiction is not None and made.contradiction > DISPUTED:
            found.add(c)
    return frozenset(found)


def _whole(state: TrackerState, taken: Taken) -> Ints:
    """(C,): what was there of each class by what vehicles have said, where the last snapshot may not have all of it:
    not all were asked, or of some not everything counted. Else zero."""
    there = state.roster.having("present")
    seen = all(state.roster.members[v].seen == state.round for v in there)
    if not taken.unasked and seen and not state.settings.gate:
        return np.zeros(state.settings.num_classes, dtype=np.int64)
    known = {v: state.counts[v] for v in there if v in state.counts}
    return Coverage.of({**known, **taken.counts}, state.settings.num_classes).totals


def _by_snapshot(state: TrackerState, vanished: Collection[str]) -> list[tuple[list[str], Snapshot | None]]:
    """The vehicles by the snapshot that their last answer is in, the earliest first."""
    found = dict[int, tuple[list[str], Snapshot | None]]()
    for vehicle in vanished:
        snapshot = last_snapshot(state, vehicle)
        found.setdefault(-1 if snapshot is None else snapshot.round, ([], snapshot))[0].append(vehicle)
    return [found[number] for number in sorted(found)]


def _to_deposit(
    settings: TrackerSettings,
    snapshot: Snapshot,
    vehicles: Collection[str],
    tracked: Mapping[int, Tracked],
    watched: Collection[int],
    whole: Ints,
    known: Mapping[str, Ints],
) -> dict[int, tuple[str, ...]]:
    """The holders among `vehicles`, by class; of a class that has a deposit, only where it was measured since.

    In a round that asked some only, one may hold most of what was reported and next to nothing of what is there.
    """
    owners = dict[int, tuple[str, ...]]()
    some = sorted(known.keys() & set(vehicles))
    there = besides_largest(known, some) if settings.gate else dict.fromkeys(some, whole)
    for vehicle in some:
        for c in snapshot.held(vehicle, settings.release, besides=settings.gate):
            measured = c not in tracked or settings.carries(_samples(snapshot, c), tracked[c].samples)
            if c in watched and measured and known[vehicle][c] >= settings.release * there[vehicle][c]:
                owners[c] = (*owners.get(c, ()), vehicle)
    return owners


def _deposits(
    settings: TrackerSettings,
    snapshot: Snapshot,
    owners: Mapping[int, tuple[str, ...]],
    roster: Roster,
    round: int,
    had: Ints,
) -> tuple[dict[int, Tracked], dict[int, str]]:
    """The deposits of the owners' classes, Eq. (1) and (2), or why there are none."""
    if not owners:
        return {}, {}
    before = snapshot.everybody
    staying = snapshot.without([v for v in snapshot.holders if roster.state(v) != "present"])
    why = None
    if staying is None:
        why = "nobody stays"
    else:
        try:
            made = settings.how.deposit(before, sorted(owners), staying)
        except StatisticsError as error:
            why = f"round {snapshot.round}: {error}"
        else:
            failed = _unusable(settings, made, staying)
            return {
                d.departed: Tracked(
                    d,
                    owners[d.departed],
                    snapshot.round,
                    round,
                    int(had[d.departed]),
                )
                for d in made
                if d.departed not in failed
            }, failed
    return {}, dict.fromkeys(owners, why)


def _unusable(settings: TrackerSettings, made: Collection[Deposit], staying: ClassStatistics) -> dict[int, str]:
    """The deposits that nothing can be reconstructed from, and why: tried on the very round that they are of."""
    failed = dict[int, str]()
    for deposit in made:
        try:
            check_finite(settings.how.reconstruct(deposit, staying).prototype, "prototype")
        except StatisticsError as error:
            failed[deposit.departed] = f"a deposit was made, but nothing can be reconstructed from it ({error})"
    return failed


def _with_kept(
    settings: TrackerSettings, made: Mapping[int, Tracked], snapshot: Snapshot, roster: Roster, round: int
) -> tuple[dict[int, Tracked], list[Decision]]:
    """With what a method with questions of its own keeps; where it cannot, the class is tracked as by MPT."""
    if settings.speaks is None:
        return dict(made), []
    gone = [v for v in snapshot.holders if roster.state(v) != "present"]
    after, decisions = dict(made), list[Decision]()
    for c, one in made.items():
        try:
            after[c] = replace(one, method_state=keep(settings, snapshot, c, gone))
        except StatisticsError as error:
            why = f"{error}: it is tracked as by mpt"
            decisions.append(Decision(round, "fallback", ", ".join(one.owners), (c,), why))
    return after, decisions


def _with_former_owners(made: Tracked, former: Tracked | None, roster: Roster) -> Tracked:
    """A deposit in another's place waits for those that the other waited for as well."""
    if former is None:
        return made
    awaited = {v for v in former.owners if roster.state(v) in AWAITED}
    return replace(made, owners=tuple(sorted({*made.owners, *awaited})))


def _kept(
    settings: TrackerSettings,
    tracked: Mapping[int, Tracked],
    fresh: Collection[int],
    staying: Ints,
    roster: Roster,
    round: int,
) -> tuple[dict[int, Tracked], list[Decision]]:
    """Without the deposits that are no longer needed; an owner that has returned owns the deposit no more."""
    kept, decisions = dict[int, Tracked](), list[Decision]()
    for c, one in sorted(tracked.items()):
        samples = int(staying[c])
        returned = tuple(v for v in one.owners if roster.state(v) == "present")
        if c not in fresh and settings.carries(samples, one.samples) and not one.waits(roster):
            how = "its vehicle has returned" if returned else "other vehicles have it"
            why = f"{how}: {samples} samples, it had {one.samples}; measured directly and trained on again"
            decisions.append(Decision(round, "recovered", ", ".join(returned), (c,), why))
            continue
        kept[c] = replace(one, owners=tuple(v for v in one.owners if v not in returned))
    return kept, decisions


def _lost(
    state: TrackerState,
    taken: Taken,
    gone: Collection[str],
    staying: Ints,
    tracked: Mapping[int, Tracked],
    reasons: Mapping[int, str],
    roster: Roster,
    round: int,
) -> list[Decision]:
    """What nothing can be done for: the class had its samples on a vehicle that is gone, and has no deposit."""
    settings, decisions, said = state.settings, list[Decision](), set[int]()
    known = {**state.counts, **taken.counts}
    coverage = Coverage.of(known, settings.num_classes)
    hanging = [(vehicle, c, "") for vehicle in gone for c in coverage.held_by(vehicle, settings.watch_share)]
    hanging += _lost_by_now(state, coverage, gone, roster)
    had = credible(coverage.totals, known) if settings.gate and hanging else coverage.totals
    for vehicle, c, known_why in hanging:
        if c in tracked or settings.carries(int(staying[c]), int(had[c])):
            continue
        unwatched = f"it was not watched when the vehicle answered last, in round {_seen(state, taken, vehicle)}"
        why = f"there is no deposit: {reasons.get(c, known_why or unwatched)}"
        why = f"{why}; {staying[c]} samples remain until the vehicle returns"
        decisions.append(Decision(round, "lost", vehicle, (c,), why))
        said.add(c)
    alive = coverage.totals.copy()
    for vehicle in filter(roster.gone, known):
        alive -= known[vehicle]
    ended = np.flatnonzero((coverage.totals > 0) & (alive == 0)).tolist()
    why = "all vehicles that had samples of it have departed, none of which held enough for it to be watched"
    ended = [c for c in ended if c not in tracked and c not in said]
    return decisions + [Decision(round, "lost", "", (c,), why) for c in ended]


def _lost_by_now(
    state: TrackerState, coverage: Coverage, gone: Collection[str], roster: Roster
) -> list[tuple[str, int, str]]:
    """The holders that were gone before this round, each with a class that was not lost before, and why it may be."""
    settings, found = state.settings, list[tuple[str, int]]()
    for i, c in np.argwhere((coverage.shares >= settings.watch_share) & (coverage.counts > 0)).tolist():
        holder = coverage.vehicles[i]
        if holder not in gone and roster.state(holder) in ("suspected", "departed"):
            found.append((holder, c))
    if not found:
        return []
    before, there = state.coverage, np.zeros(settings.num_classes, dtype=np.int64)
    for vehicle in state.roster.having("present"):
        there += state.counts.get(vehicle, 0)
    totals = credible(before.totals, state.counts) if settings.gate else before.totals
    safe = [c for c, had in enumerate(totals.tolist()) if settings.carries(int(there[c]), had)]
    safe += state.tracked.keys()
    why = "others do not make up for it any more"
    return [(v, c, why) for v, c in found if c in safe or c not in before.held_by(v, settings.watch_share)]


def _seen(state: TrackerState, taken: Taken, vehicle: str) -> int:
    return taken.snapshot.round if vehicle in taken.counts and taken.snapshot else state.roster.members[vehicle].seen


def _samples(snapshot: Snapshot, c: int) -> int:
    return int(snapshot.everybody.counts[c])


def _deposited(round: int, one: Tracked, samples: int) -> Decision:
    held = f"{samples} samples in round {one.round}"
    why = f"made from {held}, relative to {len(one.deposit.classes)} reference classes"
    return Decision(round, "deposited", ", ".join(one.owners), (one.departed,), why)


def _carried(round: int, owners: tuple[str, ...], c: int, samples: int) -> Decision:
    why = f"the vehicle is gone, but {samples} samples stay and carry the class: it needs no deposit"
    return Decision(round, "carried", ", ".join(owners), (c,), why)


def _newly_due(state: TrackerState, due: Collection[int], held_out: Collection[int]) -> list[int]:
    """The classes that shadow mode keeps from being held out, and that were not due in the round before."""
    if not state.settings.shadow or not state.settings.holds_out:
        return []
    before = {c for c in state.tracked if not state.tracked[c].waits(state.roster)}
    return [c for c in due if c not in held_out and c not in before]


def _shadowed(settings: TrackerSettings, one: Tracked, samples: int, round: int) -> Decision:
    why = (
        f"departed, but this is shadow mode: its {samples} remaining samples are trained on until somebody calls "
        f"mpt fleet approve {settings.name_of(one.departed)}"
    )
    return Decision(round, "shadowed", ", ".join(one.owners), (one.departed,), why)


def _held_out(round: int, one: Tracked, samples: int) -> Decision:
    why = f"departed: its {samples} remaining samples are not trained on from now on, they measure its prototype"
    return Decision(round, "held-out", ", ".join(one.owners), (one.departed,), why)
