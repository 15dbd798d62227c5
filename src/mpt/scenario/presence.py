"""Who is there in which round, as a value: which vehicles, who does not answer, who says that it leaves."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mpt.scenario.events import PlanError

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Presence:
    """V vehicles over R rounds. Rounds count from 1, vehicles from 0. The arrays cannot be changed.

    Attributes:
        vehicles: V different names; a vehicle's number is its place.
        there: (R, V), row r is round r + 1.
        silent: (R, V), there, but its answer does not come.
        goodbye: (R, V), in the last round of a stay it says that it leaves. Nobody leaves after round R.
        labels: what the R rounds are called, or empty.
        visits: (V, P), how often each vehicle was at each place, or None.
        places: P different names, or empty.
    """

    vehicles: tuple[str, ...]
    there: Bools
    silent: Bools
    goodbye: Bools
    labels: tuple[str, ...] = ()
    visits: Ints | None = None
    places: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("vehicles", "labels", "places"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
            _check_names(name, getattr(self, name))
        for name in ("there", "silent", "goodbye"):
            object.__setattr__(self, name, _bools(name, getattr(self, name), len(self.vehicles)))
        self._check_rounds()
        self._check_visits()

    def _check_rounds(self) -> None:
        shape = self.there.shape
        for name in ("silent", "goodbye"):
            if getattr(self, name).shape != shape:
                raise PlanError(f"presence: {name} has shape {getattr(self, name).shape}, should be {shape} as there")
        if self.labels and len(self.labels) != self.rounds:
            raise PlanError(f"presence: {len(self.labels)} labels, should be {self.rounds}, one a round, or none")
        self._nowhere(self.silent & ~self.there, "is silent", "a round in which it is there")
        last = "the last round of a stay that ends before the last of all"
        self._nowhere(self.goodbye & ~_ends(self.there), "says goodbye", last)

    def _nowhere(self, wrong: Bools, does: str, should: str) -> None:
        if wrong.any():
            row, vehicle = (int(i) for i in np.argwhere(wrong)[0])
            raise PlanError(f"presence: vehicle {self.vehicles[vehicle]} {does} in round {row + 1}, should be {should}")

    def _check_visits(self) -> None:
        if self.visits is None:
            if self.places:
                raise PlanError(f"presence: {len(self.places)} places but no visits, should be both or neither")
            return
        visits, shape = np.array(self.visits), (len(self.vehicles), len(self.places))
        if visits.shape != shape:
            raise PlanError(f"presence: visits have shape {visits.shape}, should be {shape}, vehicles by places")
        if visits.size and (visits.dtype.kind not in "iu" or visits.min() < 0):
            raise PlanError("presence: visits should be whole numbers from 0 on")
        visits = visits.astype(np.int64)
        visits.setflags(write=False)
        object.__setattr__(self, "visits", visits)

    @property
    def rounds(self) -> int:
        """How many, R."""
        return int(self.there.shape[0])

    def here(self, round: int) -> tuple[int, ...]:
        """The vehicles that are there in a round, by number."""
        return self._numbers(self.there, round)

    def answering(self, round: int) -> tuple[int, ...]:
        """Those of them whose answer comes."""
        return self._numbers(self.there & ~self.silent, round)

    def leaving(self, round: int) -> tuple[int, ...]:
        """Those that say goodbye in this round; it is the last before they are away."""
        return self._numbers(self.goodbye, round)

    def stays(self, vehicle: int) -> list[tuple[int, int]]:
        """First and last round of each stay of a vehicle, in order."""
        if not 0 <= vehicle < len(self.vehicles):
            raise PlanError(f"presence: there is no vehicle {vehicle}, should be 0 to {len(self.vehicles) - 1}")
        change = np.diff(self.there[:, vehicle].astype(np.int8), prepend=0, append=0)
        firsts, lasts = np.flatnonzero(change == 1) + 1, np.flatnonzero(change == -1)
        return [(int(first), int(last)) for first, last in zip(firsts, lasts, strict=True)]

    def _numbers(self, table: Bools, round: int) -> tuple[int, ...]:
        if not 1 <= round <= self.rounds:
            raise PlanError(f"presence: there is no round {round}, should be 1 to {self.rounds}")
        return tuple(int(vehicle) for vehicle in np.flatnonzero(table[round - 1]))


def present_when(
    vehicles: Sequence[str] | int,
    there: Bools,
    *,
    labels: Sequence[str] = (),
    visits: Ints | None = None,
    places: Sequence[str] = (),
) -> Presence:
    """A presence in which everybody who is there (R, V) answers, and nobody says goodbye."""
    nobody = np.zeros(np.shape(there), dtype=np.bool_)
    return Presence(named(vehicles), there, nobody, nobody, tuple(labels), visits, tuple(places))


def named(vehicles: Sequence[str] | int) -> tuple[str, ...]:
    """The names of vehicles; so many of them are v01, v02, ...

    Example:
        >>> named(3)
        ('v1', 'v2', 'v3')
    """
    if isinstance(vehicles, int):
        if vehicles < 1:
            raise PlanError(f"vehicles: {vehicles}, should be at least 1")
        return tuple(f"v{number:0{len(str(vehicles))}d}" for number in range(1, vehicles + 1))
    return tuple(vehicles)


def never_leaving(presence: Presence, vehicles: Iterable[int]) -> Presence:
    """The same, but these vehicles are there from their first round on without a break, and say no goodbye.

    One that is never there stays away. Who is silent when stays as it is.
    """
    there, goodbye = presence.there.copy(), presence.goodbye.copy()
    for vehicle in vehicles:
        stays = presence.stays(vehicle)
        if stays:
            there[stays[0][0] - 1 :, vehicle] = True
        goodbye[:, vehicle] = False
    return replace(presence, there=there, goodbye=goodbye)


def leaves_of(presence: Presence) -> Bools:
    """(R, V): the last round of each stay that ends before round R, so where somebody leaves."""
    return _ends(presence.there)


def _ends(there: Bools) -> Bools:
    ends = np.zeros_like(there)
    ends[:-1] = there[:-1] & ~there[1:]
    return ends


def _bools(name: str, given: object, vehicles: int) -> Bools:
    table = np.array(given)
    if table.ndim != 2 or table.shape[1] != vehicles or not table.shape[0] or table.dtype != np.bool_:
        found = f"{table.dtype} of shape {table.shape}"
        raise PlanError(f"presence: {name} is {found}, should be bool of shape (rounds, {vehicles}), a row a round")
    table.setflags(write=False)
    return table


def _check_names(what: str, names: tuple[str, ...]) -> None:
    if what == "vehicles" and not names:
        raise PlanError("presence: no vehicles, should be at least one")
    for name in names:
        if not isinstance(name, str) or not name or name != name.strip() or name[0] == "#" or not name.isprintable():
            raise PlanError(
                f"presence: {name!r} among the {what}, should be a text of one line that does not start with # "
                "and has no space at its ends"
            )
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice and what != "labels":
        raise PlanError(f"presence: {twice[0]!r} is twice among the {what}, should be different names")
