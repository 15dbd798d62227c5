"""A scenario: who is there when, and who holds what, as a TOML file.

about = "Two classes on two of eight vans; both leave, one returns."
rounds = 40
vehicles = 8                      # or a list of names, or "classes": as many as the dataset has classes
announced = 0.5                   # share of the leaves that are announced
failing = 0.02                    # share of the answers that do not come

[presence]
kind = "parking-lot"              # with its own settings, see `kinds.py`
leaves = { v1 = 12, v2 = 16 }
returns = { v2 = 28 }

[holdings]
holders = { truck = "v1", bus = "v2" }   # or a list of classes, or how many, of the last of the dataset's
remaining = 0.02
concentration = 0.3               # the other classes follow the places where the vehicles were
"""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mpt.base.generators import numpy_generator
from mpt.base.settings import check, setting
from mpt.base.text import did_you_mean
from mpt.scenario.events import PlanError
from mpt.scenario.holdings import by_places, choose_holders, concentrated
from mpt.scenario.kinds import KINDS, ParkingLot, PresenceKind, number_of
from mpt.scenario.makers import with_failures, with_goodbyes
from mpt.scenario.presence import Floats, Presence

SHIPPED = Path(__file__).with_name("shipped")
_TOP = ("name", "about", "rounds", "vehicles", "seed", "announced", "failing", "presence", "holdings")
_HOLDINGS = ("holders", "remaining", "concentration")


@dataclass(frozen=True, eq=False)
class Played:
    """A scenario with its draws.

    Attributes:
        presence: V vehicles over R rounds.
        shares: (V, C), which share of each class each vehicle holds; columns add up to 1.
        holders: for the number of each concentrated class the number of its vehicle.
    """

    presence: Presence
    shares: Floats
    holders: dict[int, int]


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """Who is there when, and who holds what, before anything is drawn.

    Attributes:
        vehicles: how many, their names, "classes" for as many as the dataset has classes, or None for all of a file.
        kind: of presence, one of `KINDS`.
        settings: of that kind.
        holders: classes that are on one vehicle each: by class the vehicle; or the classes; or how many, which are the
            last of the dataset's. Classes and vehicles by name or number. Vehicles that are not said are chosen among
            those that leave and come back (`choose_holders`).
        folder: what paths are relative to.
    """

    name: str = setting("mine", "what it is called")
    about: str = setting("", "what happens, in a line")
    rounds: int | None = setting(None, "how many", least=2)
    vehicles: int | str | tuple[str, ...] | None = None
    kind: str = setting("parking-lot", "kind of presence", choices=tuple(KINDS))
    settings: PresenceKind = field(default_factory=ParkingLot)
    seed: int | None = setting(None, "of the draws; none: the run's", least=0)
    announced: float | None = setting(None, "share of leaves that are announced; none: as a file says", least=0, most=1)
    failing: float | None = setting(None, "share of answers that do not come; none: as a file says", least=0, most=1)
    holders: int | tuple[str | int, ...] | Mapping[str, str | int] = 0
    remaining: float = setting(0.02, "share of a concentrated class on other vehicles", least=0, below=1)
    concentration: float | None = setting(None, "of the places' mixes of classes; none: even shares", above=0)
    folder: Path = Path()

    def __post_init__(self) -> None:
        check(self, PlanError)
        _check_vehicles(self.vehicles)
        _check_holders(self.holders)
        needed = {"rounds": self.settings.needs_rounds, "vehicles": self.settings.needs_vehicles}
        for name, needs in needed.items():
            if needs and getattr(self, name) is None:
                raise PlanError(f"{name}: not given, should be for presence of kind {self.kind}")

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that it reads when it is played."""
        path = getattr(self.settings, "path", "")
        return (self.folder / path,) if path else ()

    def play(self, seed: int, classes: Sequence[str]) -> Played:
        """Draw who is there and who holds what of these classes; the same for the same seed on every machine.

        Args:
            seed: of the run; it does not matter where the scenario has a seed of its own.
            classes: the dataset's, by name.
        """
        seed = seed if self.seed is None else self.seed
        presence = self._presence(seed, len(classes))
        holders = self._holders(presence, classes)
        base = None
        if self.concentration is not None:
            if presence.visits is None:
                raise PlanError(
                    f"scenario {self.name}: concentration {self.concentration:g}, but presence of kind {self.kind} "
                    "says nothing of places, should be left out"
                )
            base = by_places(
                presence.visits, len(classes), numpy_generator(seed, "scenario: places"), self.concentration
            )  # fmt: skip
        shares = concentrated(len(presence.vehicles), len(classes), holders, self.remaining, base)
        return Played(presence, shares, holders)

    def _presence(self, seed: int, classes: int) -> Presence:
        vehicles = classes if isinstance(self.vehicles, str) else self.vehicles
        rng = numpy_generator(seed, "scenario: presence")
        presence = self.settings.make(vehicles, self.rounds, rng, self.folder)
        if self.announced is not None:
            presence = with_goodbyes(presence, self.announced, numpy_generator(seed, "scenario: goodbyes"))
        if self.failing is not None:
            presence = with_failures(presence, self.failing, numpy_generator(seed, "scenario: failures"))
        return presence

    def _holders(self, presence: Presence, classes: Sequence[str]) -> dict[int, int]:
        if isinstance(self.holders, Mapping):
            named = {_class_number(one, classes, self.name): one for one in self.holders}
            return {c: number_of(self.holders[one], presence.vehicles, "holders") for c, one in named.items()}
        if isinstance(self.holders, int):
            if self.holders > len(classes):
                raise PlanError(
                    f"holders: {self.holders} classes, should be at most {len(classes)}, as many as there are"
                )
            numbers = list(range(len(classes)))[len(classes) - self.holders :]
        else:
            numbers = list(dict.fromkeys(_class_number(one, classes, self.name) for one in self.holders))
        return dict(zip(numbers, choose_holders(presence, len(numbers)), strict=True))


def find_scenario(text: str) -> Scenario:
    """A scenario that comes with the package, by name, or one's own, by a path that ends in .toml.

    Raises:
        PlanError: there is none, or its file is wrong.
    """
    if text.endswith(".toml"):
        return read_scenario(Path(text))
    if text not in shipped_scenarios():
        known = shipped_scenarios()
        possible = f"should be one of {', '.join(known)} or a path that ends in .toml"
        raise PlanError(f"scenario: there is no {text!r}, {did_you_mean(text, known, possible)}")
    return read_scenario(SHIPPED / f"{text}.toml")


def shipped_scenarios() -> tuple[str, ...]:
    """The names of those that come with the package."""
    return tuple(sorted(path.stem for path in SHIPPED.glob("*.toml")))


def read_scenario(path: Path) -> Scenario:
    """A scenario from its TOML file; its name is the file's where it does not say another."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise PlanError(f"scenario: {path} cannot be read, {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise PlanError(f"scenario: {path} is no TOML, {error}") from None
    try:
        return _from_table({"name": path.stem, **table}, path.parent)
    except PlanError as error:
        raise PlanError(f"scenario {path}: {error}") from None


def _from_table(table: dict[str, Any], folder: Path) -> Scenario:
    _only(table, _TOP, "")
    presence, holdings = (_table(table.pop(name, {}), name) for name in ("presence", "holdings"))
    _only(holdings, _HOLDINGS, "holdings.")
    kind = presence.pop("kind", None)
    if not isinstance(kind, str) or kind not in KINDS:
        possible = f"should be one of {', '.join(KINDS)}"
        raise PlanError(f"presence.kind: {kind!r}, {did_you_mean(str(kind), KINDS, possible)}")
    owner = KINDS[kind]
    _only(presence, [name for name in owner.__dataclass_fields__ if not name.startswith("needs_")], "presence.")  # type: ignore[attr-defined]
    try:
        settings = owner(**{name: str(v) if name == "since" else v for name, v in presence.items()})
    except PlanError as error:
        raise PlanError(f"presence.{error}") from None
    for values, name in ((table, "vehicles"), (holdings, "holders")):
        if isinstance(values.get(name), list):
            values[name] = tuple(values[name])
    return Scenario(**table, kind=kind, settings=settings, **holdings, folder=folder)


def _table(value: object, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise PlanError(f"{name}: {value!r}, should be a table, [{name}]")
    return dict(value)


def _only(table: Mapping[str, Any], known: Sequence[str], where: str) -> None:
    for name in table:
        if name not in known:
            possible = f"should be one of {', '.join(known)}"
            raise PlanError(f"{where}{name}: there is no such setting, {did_you_mean(name, known, possible)}")


def _class_number(given: str | int, classes: Sequence[str], scenario: str) -> int:
    if given in classes:
        return list(classes).index(str(given))
    text = str(given)
    if text.isdecimal() and int(text) < len(classes):
        return int(text)
    possible = f"should be 0 to {len(classes) - 1} or one of {', '.join(classes)}"
    raise PlanError(
        f"scenario {scenario}: the dataset has no class {given!r}, {did_you_mean(text, classes, possible)}"
    )  # fmt: skip


def _check_vehicles(vehicles: object) -> None:
    names = isinstance(vehicles, tuple) and len(vehicles) > 0 and all(isinstance(name, str) for name in vehicles)
    number = type(vehicles) is int and vehicles >= 2
    if not (vehicles is None or vehicles == "classes" or names or number):
        raise PlanError(f"vehicles: {vehicles!r}, should be a number of at least 2, a list of names, or 'classes'")


def _check_holders(holders: object) -> None:
    values = list(holders.values()) if isinstance(holders, Mapping) else holders
    count = type(values) is int and values >= 0
    if not (count or (isinstance(values, tuple | list) and all(type(one) in (str, int) for one in values))):
        raise PlanError(
            f"holders: {holders!r}, should be a number of classes, a list of classes, or a table of vehicles by class"
        )


__all__ = ["Played", "Scenario", "find_scenario", "read_scenario", "shipped_scenarios"]
