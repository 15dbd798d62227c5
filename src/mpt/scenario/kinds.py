"""The kinds of presence that a scenario's file can name, each with its settings.

A kind is a frozen dataclass with `make`, and a line in `KINDS`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal, Protocol

import numpy as np

from mpt.base.settings import check, setting
from mpt.base.text import did_you_mean
from mpt.scenario.events import PlanError
from mpt.scenario.logbook import sessions
from mpt.scenario.makers import parking_lot, poisson
from mpt.scenario.office import workplace
from mpt.scenario.presence import Presence, named
from mpt.scenario.presence_file import read_presence

Pool = tuple[str, ...] | int  # names of vehicles, or how many


class PresenceKind(Protocol):
    """What all kinds have."""

    needs_rounds: ClassVar[bool]
    needs_vehicles: ClassVar[bool]

    def make(self, vehicles: Pool | None, rounds: int | None, rng: np.random.Generator, folder: Path) -> Presence:
        """A presence of these vehicles over these rounds; paths are relative to `folder`."""
        ...


@dataclass(frozen=True)
class ParkingLot:
    """Everybody is there from the start, some leave, some of these return.

    Attributes:
        leaves: for a vehicle, by name or number, its last round.
        returns: likewise the first round with it again.
    """

    leaves: Mapping[str, int] = field(default_factory=dict)
    returns: Mapping[str, int] = field(default_factory=dict)
    needs_rounds: ClassVar[bool] = True
    needs_vehicles: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for name in ("leaves", "returns"):
            table = getattr(self, name)
            if not isinstance(table, Mapping) or not all(type(number) is int for number in table.values()):
                raise PlanError(f"{name}: {table!r}, should be a table of rounds by vehicle, like {{ v1 = 15 }}")

    def make(self, vehicles: Pool | None, rounds: int | None, rng: np.random.Generator, folder: Path) -> Presence:
        """`parking_lot`."""
        names = named(vehicles or 0)
        leaves = {number_of(name, names, "leaves"): last for name, last in self.leaves.items()}
        returns = {number_of(name, names, "returns"): first for name, first in self.returns.items()}
        return parking_lot(names, rounds or 0, leaves, returns)


@dataclass(frozen=True)
class PoissonArrivals:
    """Vehicles of a closed pool arrive by a Poisson process, stay, leave, and may come again."""

    arrivals: float = setting(1.0, "mean number of arrivals a round", above=0)
    stay: float = setting(8.0, "mean number of rounds of a stay", least=1)
    stays: Literal["exponential", "lognormal"] = setting(
        "exponential", "how stays are spread", choices=("exponential", "lognormal")
    )
    spread: float = setting(0.5, "deviation of the logarithm of a lognormal stay", least=0)
    rhythm: float | None = setting(None, "rounds of a day, where arrivals follow a daily curve", least=2)
    least: int = setting(0, "vehicles that are there in each round", least=0)
    needs_rounds: ClassVar[bool] = True
    needs_vehicles: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check(self, PlanError)

    def make(self, vehicles: Pool | None, rounds: int | None, rng: np.random.Generator, folder: Path) -> Presence:
        """`poisson`."""
        return poisson(
            vehicles or 0, rounds or 0, rng, arrivals=self.arrivals, stay=self.stay, stays=self.stays,
            spread=self.spread, rhythm=self.rhythm, least=self.least,
        )  # fmt: skip


@dataclass(frozen=True)
class Workplace:
    """Vehicles of people who work there; a round is a working day."""

    regulars: float = setting(0.59, "share of the vehicles that come often", least=0, most=1)
    stops: float = setting(0.04, "share that stops coming for good", least=0, most=1)
    holidays: float = setting(0.35, "share that is away for a while", least=0, most=1)
    places: int = setting(12, "chargers", least=1)
    least: int = setting(1, "vehicles that come on each day", least=0)
    needs_rounds: ClassVar[bool] = True
    needs_vehicles: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check(self, PlanError)

    def make(self, vehicles: Pool | None, rounds: int | None, rng: np.random.Generator, folder: Path) -> Presence:
        """`workplace`."""
        return workplace(
            vehicles or 0, rounds or 0, rng, regulars=self.regulars, stops=self.stops, holidays=self.holidays,
            places=self.places, least=self.least,
        )  # fmt: skip


@dataclass(frozen=True)
class SessionList:
    """Real sessions from a CSV file: vehicle, arrived, departed, station."""

    path: str = setting("", "the CSV file", should="a CSV file of sessions", fits=bool)
    hours: float = setting(24.0, "hours of a round", above=0)
    since: str | None = setting(None, "date of the first round")
    skip_empty: bool = setting(True, "leave out rounds with nobody")
    needs_rounds: ClassVar[bool] = False
    needs_vehicles: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check(self, PlanError)

    def make(self, vehicles: Pool | None, rounds: int | None, rng: np.random.Generator, folder: Path) -> Presence:
        """`sessions`."""
        if isinstance(vehicles, tuple):
            raise PlanError("vehicles: a list of names, should be a number for sessions, which have names of their own")
        return sessions(
            folder / self.path, hours=self.hours, since=self.since, rounds=rounds, vehicles=vehicles,
            skip_empty=self.skip_empty,
        )  # fmt: skip


@dataclass(frozen=True)
class PresenceFile:
    """A presence that somebody has written down, a line a stay."""

    path: str = setting("", "the CSV file", should="a CSV file of stays", fits=bool)
    needs_rounds: ClassVar[bool] = False
    needs_vehicles: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check(self, PlanError)

    def make(self, vehicles: Pool | None, rounds: int | None, rng: np.random.Generator, folder: Path) -> Presence:
        """`read_presence`."""
        presence = read_presence(folder / self.path)
        for name, given, found in (
            ("rounds", rounds, presence.rounds),
            ("vehicles", len(vehicles) if isinstance(vehicles, tuple) else vehicles, len(presence.vehicles)),
        ):
            if given not in (None, found):
                raise PlanError(f"{name}: {given}, but {self.path} has {found}, should be that or left out")
        return presence


KINDS: dict[str, type[PresenceKind]] = {
    "parking-lot": ParkingLot,
    "poisson": PoissonArrivals,
    "workplace": Workplace,
    "sessions": SessionList,
    "file": PresenceFile,
}


def number_of(vehicle: str | int, names: tuple[str, ...], what: str) -> int:
    """A vehicle's number from its name or its number."""
    if vehicle in names:
        return names.index(str(vehicle))
    text = str(vehicle)
    if text.isdecimal() and int(text) < len(names):
        return int(text)
    possible = f"should be 0 to {len(names) - 1} or one of {', '.join(names)}"
    raise PlanError(f"{what}: there is no vehicle {vehicle!r}, {did_you_mean(text, names, possible)}")
