"""What would be lost if a vehicle or a few of them left, from a table of counts and before any training."""

import csv
import io
import json
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mpt.core.validation import Floats, Ints
from mpt.tracking.coverage import Coverage
from mpt.tracking.errors import FleetError
from mpt.tracking.roster import LONGEST_ID
from mpt.tracking.settings import TrackerSettings

COLUMNS = ("vehicle", "class", "count")
_MOST = 10**12
Alike = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class ClassLoss:
    """What one class would lose with one vehicle.

    Attributes:
        name: of the class.
        count: samples that the vehicle has of it.
        remaining: samples on all others.
        share: of the class's samples, that the vehicle has.
        verdict: "vanishes", where none remain; "becomes rare", where the vehicle has the watched share; else "stays".
    """

    name: str
    count: int
    remaining: int
    share: float
    verdict: str


@dataclass(frozen=True)
class Danger:
    """What would be lost if one vehicle left; `losses` has its classes, the worst first."""

    vehicle: str
    losses: tuple[ClassLoss, ...]

    @property
    def vanish(self) -> tuple[str, ...]:
        """Classes that nobody else has."""
        return tuple(one.name for one in self.losses if one.verdict == "vanishes")

    @property
    def become_rare(self) -> tuple[str, ...]:
        """Classes that others have, but of which this vehicle has at least the watched share."""
        return tuple(one.name for one in self.losses if one.verdict == "becomes rare")

    @property
    def largest(self) -> float:
        """Its largest share of a class."""
        return self.losses[0].share if self.losses else 0.0


@dataclass(frozen=True)
class Held:
    """The fewest vehicles that together hold the watched share of a class: its largest holders.

    Attributes:
        name: of the class.
        samples: of it, on all vehicles.
        vehicles: the largest holder first, of equals the first id; none where more vehicles would be needed than were
            looked for, or where nobody has a sample.
        share: of the class, that they hold together.
        remaining: samples on all others.
        also: other classes that would vanish or become rare if all of them left, the largest share first.
    """

    name: str
    samples: int
    vehicles: tuple[str, ...]
    share: float
    remaining: int
    also: tuple[str, ...]


@dataclass(frozen=True)
class Group:
    """What would be lost if several vehicles left together.

    Attributes:
        vehicles: their ids, sorted.
        holds: classes of which they are the fewest that hold the watched share.
        vanish: classes that nobody else has.
        become_rare: classes that others have, but of which they have at least the watched share.
    """

    vehicles: tuple[str, ...]
    holds: tuple[str, ...]
    vanish: tuple[str, ...]
    become_rare: tuple[str, ...]


@dataclass(frozen=True)
class ToWatch:
    """Classes for `watch`: one vehicle holds the watched share of each.

    Attributes:
        classes: the largest share first, then the most samples; at most `most`.
        crowded: those that are more than may be watched.
        unwritable: those whose names cannot stand between commas and quotation marks.
        most: how many classes may be watched by default.
    """

    classes: tuple[str, ...]
    crowded: tuple[str, ...]
    unwritable: tuple[str, ...]
    most: int

    @property
    def line(self) -> str:
        """The setting as `flwr run -c` and a TOML file take it; empty where there is nothing to watch."""
        return f"watch={json.dumps(','.join(self.classes), ensure_ascii=False)}" if self.classes else ""


def read_counts(path: Path) -> tuple[Coverage, tuple[str, ...]]:
    """A CSV file with the columns vehicle, class, count: the coverage and the classes' names.

    Raises:
        FleetError: with the line's number, where the file is not such a table.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise FleetError(f"{path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError as error:
        raise FleetError(f"{path}: not UTF-8 text (byte {error.start}), should be a CSV file") from None
    counts = dict[str, dict[str, int]]()
    rows, known = csv.reader(io.StringIO(text, newline=""), strict=True), dict[str, str]()
    try:
        header = [cell.strip() for cell in next(rows, [])]
        if sorted(header) != sorted(COLUMNS):
            raise FleetError(f"the columns are {', '.join(header)!r}, should be 'vehicle, class, count'")
        places = [header.index(column) for column in COLUMNS]
        for cells in rows:
            if any(map(str.strip, cells)):
                _add(counts, known, places, cells)
    except csv.Error as error:
        raise FleetError(f"{path}, line {rows.line_num}: not CSV ({error})") from None
    except FleetError as error:
        raise FleetError(f"{path}, line {max(rows.line_num, 1)}: {error}") from None
    if not counts:
        raise FleetError(f"{path}: has no rows, should have one a vehicle and class")
    return _spread(counts)


def dangers(
    coverage: Coverage, names: Sequence[str], watch_share: float = 0.5, *, losing: bool = False
) -> tuple[Danger, ...]:
    """What would be lost with each vehicle, the most dangerous first.

    By the number of classes that would vanish, then of those that would become rare, then by the largest share.

    Args:
        coverage: the counts.
        names: of its classes.
        watch_share: a class is rare without a vehicle that holds this share of it.
        losing: whether to leave out the vehicles without which no class would vanish or become rare.
    """
    _check_share(watch_share)
    largest: Floats = coverage.shares.max(axis=1, initial=0.0)
    chosen = largest >= (watch_share if losing else 0.0)
    vehicles, classes = np.nonzero(np.where(chosen[:, None], coverage.counts, 0))
    counts, shares = coverage.counts[vehicles, classes], coverage.shares[vehicles, classes]
    by_name = np.argsort(np.argsort(np.array(names)))
    order = np.lexsort((by_name[classes], -counts, -shares, vehicles))
    columns = (vehicles, classes, counts, coverage.totals[classes] - counts, shares)
    held: dict[int, list[ClassLoss]] = {i: [] for i in np.flatnonzero(chosen).tolist()}
    for i, c, count, remaining, share in zip(*(column[order].tolist() for column in columns), strict=True):
        verdict = "vanishes" if not remaining else "becomes rare" if share >= watch_share else "stays"
        held[i].append(ClassLoss(names[c], count, remaining, share, verdict))
    found = [Danger(coverage.vehicles[i], tuple(losses)) for i, losses in held.items()]
    return tuple(sorted(found, key=lambda d: (-len(d.vanish), -len(d.become_rare), -d.largest, d.vehicle)))


def smallest_groups(
    coverage: Coverage, names: Sequence[str], watch_share: float = 0.5, largest: int = 3
) -> tuple[Held, ...]:
    """The fewest vehicles that hold the watched share of each class: the fewest first, then by their share.

    Args:
        coverage: the counts.
        names: of its classes.
        watch_share: a class is rare without vehicles that hold this share of it.
        largest: groups of more vehicles are not looked for.
    """
    _check_share(watch_share)
    if largest < 1:
        raise FleetError(f"group: {largest}, should be at least 1")
    order = np.argsort(-coverage.counts, axis=0, kind="stable")[:largest]
    together = np.take_along_axis(coverage.counts, order, axis=0).cumsum(axis=0)
    enough = together / np.maximum(coverage.totals, 1) >= watch_share

    def held(c: int) -> Held:
        samples = int(coverage.totals[c])
        if not enough[:, c].any():
            return Held(names[c], samples, (), 0.0, samples, ())
        size = int(np.argmax(enough[:, c])) + 1
        rows, count = order[:size, c].tolist(), int(together[size - 1, c])
        also = [name for lost in _lost_with(coverage, names, rows, watch_share) for name in lost if name != names[c]]
        vehicles = tuple(coverage.vehicles[i] for i in rows)
        return Held(names[c], samples, vehicles, count / samples, samples - count, tuple(also))

    found = [held(c) for c in range(len(names))]
    return tuple(sorted(found, key=lambda one: (len(one.vehicles) or largest + 1, -one.share, -one.samples)))


def joint_groups(
    coverage: Coverage, names: Sequence[str], held: Iterable[Held], watch_share: float = 0.5
) -> tuple[Group, ...]:
    """The groups of at least two vehicles among `held`, each once: those that lose most classes together first."""
    rows = {vehicle: i for i, vehicle in enumerate(coverage.vehicles)}
    holds = dict[tuple[str, ...], list[str]]()
    for one in held:
        if len(one.vehicles) > 1:
            holds.setdefault(tuple(sorted(one.vehicles)), []).append(one.name)

    def group(vehicles: tuple[str, ...]) -> Group:
        vanish, rare = _lost_with(coverage, names, [rows[v] for v in vehicles], watch_share)
        return Group(vehicles, tuple(holds[vehicles]), vanish, rare)

    found = map(group, holds)
    return tuple(sorted(found, key=lambda g: (-len(g.vanish) - len(g.become_rare), len(g.vehicles), g.vehicles)))


def to_watch(coverage: Coverage, names: Sequence[str], watch_share: float = 0.5) -> ToWatch:
    """What to name in `watch`; nothing where fewer than two vehicles have samples, as nobody would stay."""
    _check_share(watch_share)
    most = TrackerSettings(num_classes=len(names), dim=1).capacity if len(names) > 1 else 0
    held = [] if holders(coverage) < 2 else np.flatnonzero(coverage.largest >= watch_share).tolist()
    wanted = [names[c] for c in sorted(held, key=lambda c: (-coverage.largest[c], -coverage.totals[c], c))]
    unwritable = tuple(name for name in wanted if set(name) & set(",\"'"))
    writable = tuple(name for name in wanted if name not in unwritable)
    return ToWatch(writable[:most], writable[most:], unwritable, most)


def holders(coverage: Coverage) -> int:
    """How many vehicles have samples."""
    return int(np.count_nonzero(coverage.counts.any(axis=1)))


def alike_classes(coverage: Coverage, names: Sequence[str]) -> tuple[Alike, ...]:
    """Names, with samples, that differ in nothing but case, whitespace, "-" and "_": probably one class each."""
    return _alike(names, coverage.totals.tolist(), r"\s_-")


def alike_vehicles(coverage: Coverage) -> tuple[Alike, ...]:
    """Ids, with samples, that differ in nothing but case and whitespace: probably one vehicle each."""
    return _alike(coverage.vehicles, coverage.counts.sum(axis=1).tolist(), r"\s")


def as_json(coverage: Coverage, names: Sequence[str], watch_share: float = 0.5, largest: int = 3) -> dict[str, Any]:
    """The whole answer as plain data: all vehicles, all classes, all groups."""

    def named(one: ClassLoss | Held) -> dict[str, Any]:
        return {"class": one.name, **{key: value for key, value in vars(one).items() if key != "name"}}

    def danger(one: Danger) -> dict[str, Any]:
        lost = {"vanish": list(one.vanish), "become_rare": list(one.become_rare)}
        return {"vehicle": one.vehicle, **lost, "classes": list(map(named, one.losses))}

    def alike(found: Iterable[Alike]) -> list[list[dict[str, Any]]]:
        return [[{"name": name, "samples": samples} for name, samples in one] for one in found]

    held, watch = smallest_groups(coverage, names, watch_share, largest), to_watch(coverage, names, watch_share)
    return {
        "watch_share": watch_share,
        "largest_group": largest,
        "samples": int(coverage.totals.sum()),
        "watch": {**vars(watch), "line": watch.line},
        "alike_classes": alike(alike_classes(coverage, names)),
        "alike_vehicles": alike(alike_vehicles(coverage)),
        "classes": list(map(named, held)),
        "groups": [vars(group) for group in joint_groups(coverage, names, held, watch_share)],
        "vehicles": list(map(danger, dangers(coverage, names, watch_share))),
    }


def _check_share(watch_share: float) -> None:
    if not 0 < watch_share <= 1:
        raise FleetError(f"watch-share: {watch_share}, should be above 0 and at most 1")


def _lost_with(
    coverage: Coverage, names: Sequence[str], rows: list[int], watch_share: float
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The classes that would vanish and that would become rare without these vehicles, the largest share first."""
    counts: Ints = coverage.counts[rows].sum(axis=0)
    shares = counts / np.maximum(coverage.totals, 1)
    lost = sorted(np.flatnonzero(shares >= watch_share).tolist(), key=lambda c: (-shares[c], -counts[c], c))
    gone = [c for c in lost if counts[c] == coverage.totals[c]]
    return tuple(names[c] for c in gone), tuple(names[c] for c in lost if c not in gone)


def _alike(names: Sequence[str], samples: Sequence[int], between: str) -> tuple[Alike, ...]:
    """Names that are the same without what stands between two characters, unless these are digits: 1-1 is not 11."""
    inner = re.compile(rf"(?<=[^{between}])[{between}]+(?=[^{between}])")

    def folded(name: str) -> str:
        text = unicodedata.normalize("NFKC", name).casefold()
        return inner.sub(lambda m: " " if (text[m.start() - 1] + text[m.end()]).isdecimal() else "", text)

    found = dict[str, list[tuple[str, int]]]()
    for name, count in zip(names, samples, strict=True):
        found.setdefault(folded(name), []).append((name, count))
    return tuple(tuple(one) for one in found.values() if len(one) > 1)


def _add(counts: dict[str, dict[str, int]], known: dict[str, str], places: list[int], cells: list[str]) -> None:
    """Add a row; `known` has the names that were seen before, so that each is checked and kept once."""
    if len(cells) != len(places):
        raise FleetError(f"{len(cells)} cells, should be {len(places)}")
    vehicle, name, digits = [cells[i].strip() for i in places]
    for column, value in (("vehicle", vehicle), ("class", name)):
        if value not in known:
            if not 0 < len(value) <= LONGEST_ID or not value.isprintable():
                raise FleetError(f"{column} {value[:40]!r}, should be a name of 1 to {LONGEST_ID} characters")
            known[value] = value
    if not (digits.isascii() and digits.isdigit() and len(digits) < 14 and int(digits) <= _MOST):
        raise FleetError(f"count {digits[:40]!r}, should be a whole number from 0 to {_MOST}")
    row = counts.setdefault(known[vehicle], {})
    if name in row:
        raise FleetError(f"vehicle {vehicle!r} and class {name!r} stand there twice")
    row[known[name]] = int(digits)


def _spread(counts: Mapping[str, Mapping[str, int]]) -> tuple[Coverage, tuple[str, ...]]:
    names = tuple(sorted({name for row in counts.values() for name in row}, key=_natural))
    place = {name: i for i, name in enumerate(names)}
    table = {vehicle: np.zeros(len(names), dtype=np.int64) for vehicle in counts}
    for vehicle, row in counts.items():
        table[vehicle][[place[name] for name in row]] = list(row.values())
    return Coverage.of(table, len(names)), names


def _natural(name: str) -> tuple[bool, int, str]:
    number = name.isascii() and name.isdigit() and len(name) < 19
    return (not number, int(name) if number else 0, name)
