"""Holders of watched classes that are there, and whose answer does not count: late, refused, quarantined or not asked.

Nothing is deposited, held out or missed because of that. Their last trusted answer is kept, in the snapshot that it is
in: should they leave, or stay silent, the deposit is made from there. Until then their classes are reconstructed from
it in every round, without a deposit.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from mpt.core import ClassStatistics, Reconstruction, StatisticsError
from mpt.core.validation import Ints, check_finite
from mpt.tracking.answers import Snapshot
from mpt.tracking.coverage import credible
from mpt.tracking.roster import UNHEARD, Roster
from mpt.tracking.settings import TrackerSettings
from mpt.tracking.state import TrackerState

_NOBODY: Mapping[str, Ints] = {}


def last_trusted(state: TrackerState, roster: Roster, unasked: Mapping[str, Ints] = _NOBODY) -> dict[str, Snapshot]:
    """By holder that is there and does not count, or was not asked, the last snapshot that its answer is in.

    In a round that asked some only, many hold most of what was reported. Of those who were not asked only the holders
    of a watched class in the whole fleet are kept.
    """
    watched = list(state.watch.classes)
    needed = state.settings.release * state.coverage.totals[watched] if unasked and watched else np.zeros(0)
    holding = [v for v, mine in unasked.items() if np.any((mine[watched] > 0) & (mine[watched] >= needed))]
    found = {v: last_snapshot(state, v) for v in (*roster.having(*UNHEARD), *holding)}
    return {v: snapshot for v, snapshot in found.items() if snapshot is not None and v in snapshot.holders}


def last_snapshot(state: TrackerState, vehicle: str) -> Snapshot | None:
    """The last snapshot that a vehicle's answer may be in."""
    return state.trusted.get(vehicle, state.snapshot)


@dataclass(frozen=True, eq=False)
class Meanwhile:
    """A class whose holder does not count in this round.

    Attributes:
        vehicle: the holder.
        round: of its last trusted answer.
        made: the class's reconstruction from there; None where there is none, for the reason `why`.
    """

    vehicle: str
    round: int
    made: Reconstruction | None
    why: str = ""


def meanwhile(
    settings: TrackerSettings,
    trusted: Mapping[str, Snapshot],
    tracked: Collection[int],
    roster: Roster,
    stats: ClassStatistics,
    counts: Mapping[str, Ints],
) -> dict[int, Meanwhile]:
    """The classes that hang on such holders and that nobody else carries, reconstructed as by MPT; nothing is kept.

    Args:
        settings: the method and the shares.
        trusted: of `last_trusted`.
        tracked: the classes that have a deposit.
        roster: after this round.
        stats: of this round.
        counts: (C,) what each vehicle has.
    """
    holders = dict[int, str]()
    for vehicle, snapshot in sorted(trusted.items()):
        had = credible(snapshot.everybody.counts, counts) if settings.gate else snapshot.everybody.counts
        for c in snapshot.held(vehicle, settings.release, besides=settings.gate):
            if c in tracked or settings.carries(int(stats.counts[c]), int(had[c])):
                continue
            if c not in holders or _held(trusted, vehicle, c) > _held(trusted, holders[c], c):
                holders[c] = vehicle
    found = dict[int, Meanwhile]()
    for c, vehicle in holders.items():
        try:
            made, why = _reconstructed(settings, trusted[vehicle], c, roster, stats), ""
        except StatisticsError as error:
            made, why = None, str(error)
        found[c] = Meanwhile(vehicle, trusted[vehicle].round, made, why)
    return found


def _held(trusted: Mapping[str, Snapshot], vehicle: str, c: int) -> int:
    """A holder's samples of a class; of several holders, who may be in different rounds, the first by this counts."""
    return int(trusted[vehicle].holders[vehicle].counts[c])


def _reconstructed(
    settings: TrackerSettings, snapshot: Snapshot, c: int, roster: Roster, stats: ClassStatistics
) -> Reconstruction:
    staying = snapshot.without([v for v in snapshot.holders if roster.state(v) != "present"])
    if staying is None:
        raise StatisticsError("nobody stays")
    (deposit,) = settings.how.deposit(snapshot.everybody, [c], staying)
    made = settings.how.reconstruct(deposit, stats)
    check_finite(made.prototype, "prototype")
    return made
