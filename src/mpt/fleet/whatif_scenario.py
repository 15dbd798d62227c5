"""Which classes a scenario would lose, when, for how long and with whom, before any training."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mpt.core.validation import Ints
from mpt.fleet.whatif import read_counts
from mpt.scenario import Presence, Scenario, absent_pairs
from mpt.tracking.errors import FleetError
from mpt.tracking.settings import TrackerSettings

DEFAULT_CLASSES = 10
"""So many, where nobody says."""
_SAMPLES = 10**6
"""Of each class, where only shares are known."""


@dataclass(frozen=True)
class ClassAbsence:
    """A class that would be absent for a while.

    Attributes:
        name: of the class.
        vehicle: that holds it.
        held: the share of its samples there.
        first, last: rounds of the absence.
        labels: what these rounds are called, or two empty texts.
        stays: the largest share of its samples on vehicles that are there meanwhile.
        back: the first round with the holder again, or None.
        announced: whether the holder said goodbye.
    """

    name: str
    vehicle: str
    held: float
    first: int
    last: int
    labels: tuple[str, str]
    stays: float
    back: int | None
    announced: bool

    @property
    def rounds(self) -> int:
        """How many."""
        return self.last - self.first + 1


@dataclass(frozen=True, eq=False)
class Forecast:
    """What a scenario would lose.

    Attributes:
        scenario: what was played.
        seed: of its draws.
        presence: who would be there when.
        names: of the classes.
        watch_share: of a class, that makes a vehicle its holder.
        carry_share: up to which the vehicles that are there do not carry a class.
        absences: by class, then by round.
    """

    scenario: Scenario
    seed: int
    presence: Presence
    names: tuple[str, ...]
    watch_share: float
    carry_share: float
    absences: tuple[ClassAbsence, ...]

    @property
    def lost(self) -> tuple[str, ...]:
        """The classes that would be absent at some time."""
        return tuple(dict.fromkeys(one.name for one in self.absences))

    @property
    def pairs(self) -> int:
        """Of a class and a round in which it is absent."""
        return sum(one.rounds for one in self.absences)

    def as_json(self) -> dict[str, Any]:
        """Everything, as JSON has it."""
        return {
            "scenario": self.scenario.name,
            "about": self.scenario.about,
            "seed": self.seed,
            "watch_share": self.watch_share,
            "carry_share": self.carry_share,
            "vehicles": list(self.presence.vehicles),
            "rounds": self.presence.rounds,
            "classes": list(self.names),
            "pairs": self.pairs,
            "absences": [{**asdict(one), "rounds": one.rounds} for one in self.absences],
        }


def forecast(
    scenario: Scenario,
    *,
    seed: int = 0,
    classes: Sequence[str] | None = None,
    counts: Path | None = None,
    watch_share: float = TrackerSettings.watch_share,
    carry_share: float = TrackerSettings.carry_share,
) -> Forecast:
    """What a scenario would lose.

    Args:
        scenario: who is there when, and who holds what.
        seed: of the draws, where the scenario has none of its own.
        classes: names of the classes; None: those of `counts`, or else ten.
        counts: a table of counts whose vehicles are the scenario's; None: each has the scenario's shares.
        watch_share: a class has a holder where one vehicle has this share of it.
        carry_share: a class is absent without its holder where at most this share of it is there.
    """
    for name, share in (("watch-share", watch_share), ("carry-share", carry_share)):
        if not 0 < share <= 1:
            raise FleetError(f"{name}: {share}, should be above 0 and at most 1")
    if seed < 0:
        raise FleetError(f"seed: {seed}, should be at least 0")
    if counts is not None and classes is not None:
        raise FleetError(f"classes: given beside {counts}, should be left out, as it names the classes")
    table = None if counts is None else read_counts(counts)
    names = tuple(table[1] if table else default_classes(scenario) if classes is None else classes)
    played = scenario.play(seed, names)
    held = np.rint(played.shares * _SAMPLES).astype(np.int64)
    if table and counts is not None:
        coverage = table[0]
        held = _counts(dict(zip(coverage.vehicles, coverage.counts, strict=True)), played.presence, len(names), counts)
    found = _absences(played.presence, names, held, watch_share, carry_share)
    used = seed if scenario.seed is None else scenario.seed
    return Forecast(scenario, used, played.presence, names, watch_share, carry_share, found)


def parse_classes(text: str) -> tuple[str, ...]:
    """Names with commas between them, or how many there are.

    Example:
        >>> parse_classes("3"), parse_classes("car, bus")
        (('0', '1', '2'), ('car', 'bus'))
    """
    parts = [part.strip() for part in text.split(",")]
    if len(parts) == 1 and parts[0].isascii() and parts[0].isdecimal() and 2 <= int(parts[0]) <= 100_000:
        return tuple(map(str, range(int(parts[0]))))
    if len(parts) < 2 or not all(parts) or len(set(parts)) < len(parts):
        raise FleetError(
            f"classes: {text!r}, should be at least two different names like car,bus, or how many, like 10"
        )
    return tuple(parts)


def default_classes(scenario: Scenario) -> tuple[str, ...]:
    """The classes that a scenario names, after as many numbered ones as make ten."""
    holders = () if isinstance(scenario.holders, int) else tuple(scenario.holders)
    named = [str(one) for one in holders if not str(one).isdecimal()]
    return (*map(str, range(max(DEFAULT_CLASSES - len(named), 1))), *named)


def _counts(found: Mapping[str, Ints], presence: Presence, classes: int, path: Path) -> Ints:
    """(V, C) of a table, in the order of the scenario's vehicles; those that it does not have hold nothing."""
    for vehicle in found:
        if vehicle not in presence.vehicles:
            few = ", ".join(presence.vehicles[:6]) + (", ..." if len(presence.vehicles) > 6 else "")
            raise FleetError(f"{path}: vehicle {vehicle!r} is none of the scenario's, should be one of {few}")
    nothing = np.zeros(classes, dtype=np.int64)
    return np.array([found.get(vehicle, nothing) for vehicle in presence.vehicles], dtype=np.int64)


def _absences(
    presence: Presence, names: Sequence[str], held: Ints, watch_share: float, carry_share: float
) -> tuple[ClassAbsence, ...]:
    totals = held.sum(axis=0)
    concentrated = held.max(axis=0) >= watch_share * totals
    pairs = absent_pairs(presence, held, carry_share) & concentrated
    there = presence.there.astype(np.int64) @ held / np.maximum(totals, 1)
    found = []
    for c in map(int, np.flatnonzero(pairs.any(axis=0))):
        holder = int(held[:, c].argmax())
        change = np.diff(pairs[:, c].astype(np.int8), prepend=0, append=0)
        for first, last in zip(np.flatnonzero(change == 1) + 1, np.flatnonzero(change == -1), strict=True):
            again = np.flatnonzero(presence.there[last:, holder])
            left = int(np.flatnonzero(presence.there[: first - 1, holder])[-1])
            labels = (presence.labels[first - 1], presence.labels[last - 1]) if presence.labels else ("", "")
            found.append(
                ClassAbsence(
                    name=names[c],
                    vehicle=presence.vehicles[holder],
                    held=round(float(held[holder, c] / totals[c]), 4),
                    first=int(first),
                    last=int(last),
                    labels=labels,
                    stays=round(float(there[first - 1 : last, c].max()), 4),
                    back=int(last + again[0] + 1) if len(again) else None,
                    announced=bool(presence.goodbye[left, holder]),
                )
            )
    return tuple(found)
