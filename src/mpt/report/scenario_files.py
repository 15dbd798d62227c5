"""The files of a scenario's run, read and checked: what `mpt run --scenario` leaves in its folder."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from mpt.base.errors import MptError
from mpt.base.seeds import Stat
from mpt.runs.csvfile import CsvLine, read_lines, read_text
from mpt.runs.errors import RunError
from mpt.runs.reader import classes_in, json_in, toml_in
from mpt.scenario import Presence, read_presence

Points = tuple[tuple[int, int, float], ...]
"""Seed, round and value."""


class ClassRound(NamedTuple):
    """A class in a round.

    Attributes:
        share: of its samples, that are on vehicles which are there.
        absent: by the truth.
        deposit: whether the server has a deposit of it.
        held_out: whether it is held out of training.
    """

    share: float
    absent: bool
    deposit: bool
    held_out: bool

    @property
    def state(self) -> str:
        """What the server does: "held out", "deposit" or "measured"."""
        return "held out" if self.held_out else "deposit" if self.deposit else "measured"


class Decided(NamedTuple):
    """A decision of the server."""

    seed: int
    round: int
    what: str
    vehicle: str
    classes: tuple[str, ...]
    why: str


class MethodLine(NamedTuple):
    """A line of `summary.csv`; None where there is nothing to take a mean of."""

    method: str
    pairs: int
    f1: Stat | None
    with_deposit: int
    f1_with_deposit: float | None
    others_f1: float | None
    bytes_up: float | None


@dataclass(frozen=True, eq=False)
class ScenarioFiles:
    """A scenario's run.

    Attributes:
        config: the settings, as in `config.toml`.
        manifest: versions, device, classes, who holds what.
        presences: who was there when, by seed.
        classes: by seed and class, a value a round.
        decisions: of all seeds.
        f1: by class and method, of the classes that were absent some time.
        summary: a line a method.
    """

    config: Mapping[str, Any]
    manifest: Mapping[str, Any]
    presences: Mapping[int, Presence]
    classes: Mapping[int, Mapping[str, tuple[ClassRound, ...]]]
    decisions: tuple[Decided, ...]
    f1: Mapping[str, Mapping[str, Points]]
    summary: tuple[MethodLine, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The classes, by index."""
        return tuple(self.manifest["classes"])

    @property
    def seeds(self) -> tuple[int, ...]:
        """In order."""
        return tuple(self.presences)

    def absent(self, seed: int) -> dict[str, list[tuple[int, int]]]:
        """The classes that were absent in a seed, each with the first and last rounds of its absences."""
        told = {name: stretches([one.absent for one in rounds]) for name, rounds in self.classes[seed].items()}
        return {name: found for name, found in told.items() if found}

    def concerned(self, seed: int) -> list[str]:
        """The classes that were absent in a seed, or of which the server took a deposit."""
        return [
            name
            for name, rounds in self.classes[seed].items()
            if any(one.absent or one.deposit or one.held_out for one in rounds)
        ]

    def holder(self, seed: int, name: str) -> str:
        """The vehicle with most of a class that was absent; "" where the run does not say."""
        return str(self.manifest["lost_with"].get(str(seed), {}).get(name, ""))


def stretches(values: Iterable[object]) -> list[tuple[int, int]]:
    """First and last places, counted from 1, of what is the case without a break.

    Example:
        >>> stretches([0, 1, 1, 0, 1])
        [(2, 3), (5, 5)]
    """
    found: list[tuple[int, int]] = []
    for place, value in enumerate(values, 1):
        if value and found and found[-1][1] == place - 1:
            found[-1] = (found[-1][0], place)
        elif value:
            found.append((place, place))
    return found


def read_scenario_files(folder: Path) -> ScenarioFiles:
    """The files under `folder`; `RunError` with one sentence where one is missing or broken."""
    if not folder.is_dir():
        what = "is no folder" if folder.exists() else "there is no such folder"
        raise RunError(f"{folder}: {what}, should be one that mpt run --scenario has written")
    config, manifest = _config(folder), _manifest(folder)
    presences = _presences(folder)
    names = tuple(manifest["classes"])
    classes = _classes(folder, names, presences)
    chosen = {name for told in classes.values() for name, rounds in told.items() if any(one.absent for one in rounds)}
    decisions, f1 = _decisions(folder, names, presences), _f1(folder, names, chosen, presences)
    return ScenarioFiles(config, manifest, presences, classes, decisions, f1, _summary(folder))


def _config(folder: Path) -> dict[str, Any]:
    path = folder / "config.toml"
    config = toml_in(path)
    if not isinstance(config.get("scenario"), str):
        raise RunError(f"{path}: has no scenario, should be of a run of mpt run --scenario")
    return config


def _manifest(folder: Path) -> dict[str, Any]:
    path = folder / "manifest.json"
    manifest = json_in(path, "an object with classes and lost_with")
    classes_in(path, manifest)
    holders = manifest.get("lost_with")
    if not isinstance(holders, dict) or not all(isinstance(of_seed, dict) for of_seed in holders.values()):
        raise RunError(f"{path}: lost_with should be an object with the vehicles of absent classes by seed")
    return manifest


def _presences(folder: Path) -> dict[int, Presence]:
    paths = {path.stem.removeprefix("presence-"): path for path in folder.glob("presence-*.csv")}
    seeds = sorted(int(seed) for seed in paths if seed.isascii() and seed.isdecimal())
    if not seeds:
        raise RunError(f"{folder}: has no presence-0.csv or the like, should be a folder of mpt run --scenario")
    try:
        return {seed: read_presence(paths[str(seed)]) for seed in seeds}
    except MptError as error:
        raise RunError(str(error)) from None


def _classes(
    folder: Path, names: Sequence[str], presences: Mapping[int, Presence]
) -> dict[int, dict[str, tuple[ClassRound, ...]]]:
    path = folder / "classes.csv"
    found: dict[tuple[int, str], list[ClassRound]] = {}
    for line in read_lines(path, ("seed", "round", "class", "share", "absent", "deposit", "held_out")):
        seed, number, name = _where(line, presences, names)
        rounds = found.setdefault((seed, name), [])
        if number != len(rounds) + 1:
            raise line.error(f"round is {number}, should be {len(rounds) + 1}, the next of class {name}")
        share = line.number("share", most=1)
        flags = (bool(line.whole(column, below=2)) for column in ("absent", "deposit", "held_out"))
        rounds.append(ClassRound(share, *flags))
    for seed, presence in presences.items():
        for name in names:
            count = len(found.get((seed, name), ()))
            if count != presence.rounds:
                raise RunError(f"{path}: {count} rounds of class {name} in seed {seed}, should be {presence.rounds}")
    return {seed: {name: tuple(found[seed, name]) for name in names} for seed in presences}


def _decisions(folder: Path, names: Sequence[str], presences: Mapping[int, Presence]) -> tuple[Decided, ...]:
    """Of all seeds; a run in which the server decided nothing has an empty file."""
    path = folder / "decisions.csv"
    if not read_text(path).strip():
        return ()
    found = []
    for line in read_lines(path, ("seed", "round", "what", "vehicle", "classes", "why")):
        seed, number, _ = _where(line, presences)
        classes = split_names(line.text("classes"), names)
        if classes is None:
            raise line.error(f"classes is {line.text('classes')!r}, should be names of classes with blanks between")
        found.append(Decided(seed, number, line.text("what"), line.text("vehicle"), classes, line.text("why")))
    return tuple(found)


def split_names(text: str, names: Sequence[str]) -> tuple[str, ...] | None:
    """The names in a text with blanks between them, where names may have blanks too; None where it is none of that.

    Example:
        >>> split_names("bus traffic light", ["traffic light", "bus", "traffic", "light"])
        ('bus', 'traffic light')
    """
    words, known = text.split(" ") if text else [], set(names)
    longest = max((name.count(" ") for name in names), default=0) + 1
    reached: dict[int, tuple[str, ...]] = {0: ()}
    for end in range(1, len(words) + 1):
        starts = [start for start in range(max(0, end - longest), end) if start in reached]
        ways = [(*reached[i], " ".join(words[i:end])) for i in starts if " ".join(words[i:end]) in known]
        if ways:
            reached[end] = min(ways, key=len)
    return reached.get(len(words))


def _f1(
    folder: Path, names: Sequence[str], chosen: set[str], presences: Mapping[int, Presence]
) -> dict[str, dict[str, Points]]:
    found: dict[str, dict[str, list[tuple[int, int, float]]]] = {name: {} for name in names if name in chosen}
    for line in read_lines(folder / "metrics.csv", ("seed", "round", "method", "class", "f1")):
        if line.text("class") in chosen:
            seed, number, name = _where(line, presences, names)
            points = found[name].setdefault(line.text("method"), [])
            points.append((seed, number, line.number("f1", most=1)))
    return {name: {method: tuple(points) for method, points in told.items()} for name, told in found.items()}


def _summary(folder: Path) -> tuple[MethodLine, ...]:
    columns = ("method", "pairs", "f1", "deviation", "with_deposit", "f1_with_deposit", "others_f1", "bytes_up")
    return tuple(_method_lines(read_lines(folder / "summary.csv", columns)))


def _method_lines(lines: Iterable[CsvLine]) -> Iterator[MethodLine]:
    for line in lines:
        f1 = _perhaps(line, "f1", most=1)
        yield MethodLine(
            line.text("method"),
            line.whole("pairs"),
            None if f1 is None else Stat(f1, _perhaps(line, "deviation", most=1)),
            line.whole("with_deposit"),
            _perhaps(line, "f1_with_deposit", most=1),
            _perhaps(line, "others_f1", most=1),
            _perhaps(line, "bytes_up"),
        )


def _perhaps(line: CsvLine, column: str, most: float = float("inf")) -> float | None:
    return line.number(column, most=most) if line.text(column) else None


def _where(line: CsvLine, presences: Mapping[int, Presence], names: Sequence[str] = ()) -> tuple[int, int, str]:
    """Seed, round and class of a line, which are those of the run."""
    seed = line.whole("seed")
    if seed not in presences:
        raise line.error(f"seed is {seed}, should be one of {', '.join(map(str, presences))}, of which presences are")
    number = line.whole("round", least=1, below=presences[seed].rounds + 1)
    name = line.text("class") if names else ""
    if names and name not in names:
        raise line.error(f"class is {name!r}, should be one of {', '.join(names)}")
    return seed, number, name
