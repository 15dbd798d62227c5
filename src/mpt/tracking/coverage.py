"""How classes are spread over vehicles, and which of them are watched therefore."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from mpt.core.influence import HOLDERS
from mpt.core.validation import Floats, Ints
from mpt.tracking.roster import Decision, Roster
from mpt.tracking.settings import TrackerSettings

CREDIBLE = 3
"""Times the median class's samples."""


@dataclass(frozen=True, eq=False)
class Coverage:
    """Samples by vehicle and class.

    Attributes:
        vehicles: V ids, sorted.
        counts: (V, C) int64.
    """

    vehicles: tuple[str, ...]
    counts: Ints

    @classmethod
    def of(cls, counts: Mapping[str, Ints], num_classes: int) -> "Coverage":
        """The coverage over vehicles with these counts, (C,) each."""
        vehicles = tuple(sorted(counts))
        table = np.array([counts[v] for v in vehicles], dtype=np.int64).reshape(len(vehicles), num_classes)
        return cls(vehicles, table)

    @cached_property
    def totals(self) -> Ints:
        """(C,): samples of each class."""
        totals: Ints = self.counts.sum(axis=0)
        return totals

    @cached_property
    def shares(self) -> Floats:
        """(V, C): the share of a class that a vehicle holds; 0 where nobody has a sample."""
        return self.counts / np.maximum(self.totals, 1)

    @cached_property
    def largest(self) -> Floats:
        """(C,): the largest share of each class that one vehicle holds."""
        largest: Floats = self.shares.max(axis=0, initial=0.0)
        return largest

    @cached_property
    def _rows(self) -> Mapping[str, int]:
        return {vehicle: i for i, vehicle in enumerate(self.vehicles)}

    def holder(self, c: int) -> str | None:
        """The vehicle that holds most of a class, the first of several; None where nobody has a sample."""
        return self.vehicles[int(np.argmax(self.counts[:, c]))] if self.largest[c] > 0 else None

    def held_by(self, vehicle: str, share: float) -> tuple[int, ...]:
        """The classes of which a vehicle holds at least this share."""
        if vehicle not in self._rows:
            return ()
        mine = self.shares[self._rows[vehicle]]
        return tuple(np.flatnonzero((mine >= share) & (mine > 0)).tolist())


def grown(before: Mapping[str, Ints], now: Coverage) -> Coverage:
    """The coverage, in which a vehicle has at most twice what it had of a class, and a median vehicle's samples more.

    So what one claims all at once is watched by and by. Who is new has `probation`.

    Args:
        before: (C,) what each vehicle had in the round before.
        now: what they say that they have.
    """
    some = now.counts[now.counts > 0]
    more = int(np.median(some)) if len(some) else 0
    most = [2 * before[v] + more if v in before else now.counts[i] for i, v in enumerate(now.vehicles)]
    return Coverage(now.vehicles, np.minimum(now.counts, np.array(most).reshape(now.counts.shape)))


def credible(totals: Ints, counts: Mapping[str, Ints]) -> Ints:
    """(C,): samples of each class, at most three times as many as the median class has: no more need stay to carry one.

    So a vehicle that claims a class of which others have enough, and leaves, leaves no deposit behind.

    Args:
        totals: (C,), samples of each class, as vehicles say.
        counts: (C,) of each vehicle; where four or more have samples, the median class is one without the largest, of
            two as large without the one that comes later by its id.
    """
    named = (counts[v] for v in sorted(counts))
    some = sorted((mine for mine in named if mine.any()), key=lambda mine: int(mine.sum()))
    others = np.sum(some[:-1] if len(some) > HOLDERS else some or [totals], axis=0)
    known = others[others > 0]
    return np.minimum(totals, int(CREDIBLE * np.median(known))) if len(known) else totals


def besides_largest(counts: Mapping[str, Ints], vehicles: Iterable[str]) -> dict[str, Ints]:
    """(C,) each: what there is of every class, a vehicle's own included, without what any one other vehicle claims.

    A vehicle holds a share of that: who claims very many samples of a class does not make its holder a small one.

    Args:
        counts: (C,) of each vehicle.
        vehicles: some of them.
    """
    rows = np.array(list(counts.values()))
    if len(rows) < 2:
        return {v: counts[v] for v in vehicles}
    whole, (second, first) = rows.sum(axis=0), np.partition(rows, len(rows) - 2, axis=0)[-2:]
    return {v: whole - np.where((counts[v] == first) & (second < first), second, first) for v in vehicles}


@dataclass(frozen=True)
class Watch:
    """The watched classes.

    Attributes:
        since: the first round whose statistics watch a class, by class.
        calm: for how many rounds in a row no vehicle has held `release_share` of a watched class.
        crowded: classes that should be watched, but too many are already.
    """

    since: Mapping[int, int] = field(default_factory=dict)
    calm: Mapping[int, int] = field(default_factory=dict)
    crowded: tuple[int, ...] = ()

    @property
    def classes(self) -> tuple[int, ...]:
        """The watched classes, sorted."""
        return tuple(sorted(self.since))


def watch_next(
    settings: TrackerSettings, watch: Watch, coverage: Coverage, kept: Collection[int], roster: Roster, round: int
) -> tuple[Watch, tuple[Decision, ...]]:
    """What to watch after `round`, and what changed.

    A class comes in at `watch_share` and goes out after `patience` rounds below `release_share`: every change takes a
    reference class from the deposits there are, so it is better to watch early than often. Classes that are watched
    already go before others, then those of which one vehicle holds most. Below two vehicles no class is added: there
    would be nobody to stay. For the sake of a vehicle that joined a running fleet a class is watched once it has been
    there for `probation` rounds, and for the sake of one vehicle at most `slots` classes are.

    Args:
        settings: the shares and bounds.
        watch: as it was.
        coverage: over the vehicles that are not departed, by what each reported last.
        kept: classes with a deposit; they stay watched.
        roster: who joined when.
        round: the round that is being closed.
    """
    always = {*settings.watch, *kept}
    since, calm, decisions = dict(watch.since), dict(watch.calm), list[Decision]()
    for c in sorted(always - since.keys()):
        since[c] = round + 1
    for c in sorted(since):
        calm[c] = 0 if c in always or coverage.largest[c] >= settings.release else calm.get(c, 0) + 1
        if calm[c] >= settings.patience:
            del since[c], calm[c]
            why = f"no vehicle has held {settings.release:.0%} of it for {settings.patience} rounds"
            decisions.append(Decision(round, "released", "", (c,), why))

    wanted = np.flatnonzero(coverage.largest >= settings.watch_share).tolist() if len(coverage.vehicles) > 1 else []
    crowded, taken = [], Counter(coverage.holder(c) for c in since if c not in always)
    for c in sorted((c for c in wanted if c not in since), key=lambda c: (-coverage.largest[c], c)):
        holder, share = coverage.holder(c) or "", coverage.largest[c]
        if _on_probation(settings, roster, holder, round):
            continue
        if len(since) < settings.capacity and taken[holder] < settings.slots:
            since[c], calm[c] = round + 1, 0
            taken[holder] += 1
            why = f"the vehicle holds {share:.0%} of its samples; from round {round + 1} on"
            decisions.append(Decision(round, "watched", holder, (c,), why))
            continue
        crowded.append(c)
        if c not in watch.crowded:
            decisions.append(Decision(round, "crowded", holder, (c,), _crowded(settings, share, len(since))))
    return Watch(since, calm, tuple(crowded)), tuple(decisions)


def _on_probation(settings: TrackerSettings, roster: Roster, vehicle: str, round: int) -> bool:
    """Whether a vehicle joined a running fleet so lately that no class is watched for its sake."""
    joined = roster.members[vehicle].joined if vehicle in roster.members else round
    first = min((m.joined for m in roster.members.values() if m.joined), default=round)
    return joined > first and round - joined < settings.probation


def _crowded(settings: TrackerSettings, share: float, watched: int) -> str:
    if watched < settings.capacity:
        full = f"{settings.slots} classes are watched for its sake already, as many as one vehicle gets"
    else:
        full = f"{watched} classes are watched already and the others are needed as reference classes"
    return f"the vehicle holds {share:.0%} of its samples, but {full}; if it vanishes the class is lost"
