"""What would be lost if a vehicle left, from a table of counts and before any training."""

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mpt.core.validation import Ints
from mpt.fleet.errors import FleetError
from mpt.fleet.roster import LONGEST_ID
from mpt.fleet.spread import Spread

COLUMNS = ("vehicle", "class", "count")
_MOST = 10**12


@dataclass(frozen=True)
class Loss:
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
    losses: tuple[Loss, ...]

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


def read_counts(path: Path) -> tuple[Spread, tuple[str, ...]]:
    """A CSV file with the columns vehicle, class, count: the spread and the classes' names.

    Raises:
        FleetError: with the line's number, where the file is not such a table.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise FleetError(f"{path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError as error:
        raise FleetError(f"{path}: not UTF-8 text (byte {error.start}), should be a CSV file") from None
    counts = dict[tuple[str, str], int]()
    rows = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        header = [cell.strip() for cell in next(rows, [])]
        if sorted(header) != sorted(COLUMNS):
            raise FleetError(
                f"{path}, line 1: the columns are {', '.join(header)!r}, should be 'vehicle, class, count'"
            )
        for cells in rows:
            if any(map(str.strip, cells)):
                vehicle, name, count = _row(header, cells, f"{path}, line {rows.line_num}")
                if (vehicle, name) in counts:
                    where = f"{path}, line {rows.line_num}"
                    raise FleetError(f"{where}: vehicle {vehicle!r} and class {name!r} stand there twice")
                counts[vehicle, name] = count
    except csv.Error as error:
        raise FleetError(f"{path}, line {rows.line_num}: not CSV ({error})") from None
    if not counts:
        raise FleetError(f"{path}: has no rows, should have one a vehicle and class")
    return _spread(counts)


def dangers(spread: Spread, names: tuple[str, ...], watch_share: float = 0.5) -> tuple[Danger, ...]:
    """What would be lost with each vehicle, the most dangerous first.

    By the number of classes that would vanish, then of those that would become rare, then by the largest share.
    """
    if not 0 < watch_share <= 1:
        raise FleetError(f"watch-share: {watch_share}, should be above 0 and at most 1")

    def loss(i: int, c: int) -> Loss:
        count, remaining = int(spread.counts[i, c]), int(spread.totals[c] - spread.counts[i, c])
        share = float(spread.shares[i, c])
        verdict = "vanishes" if not remaining else "becomes rare" if share >= watch_share else "stays"
        return Loss(names[c], count, remaining, share, verdict)

    def danger(i: int) -> Danger:
        held = [loss(i, c) for c in np.flatnonzero(spread.counts[i]).tolist()]
        return Danger(spread.vehicles[i], tuple(sorted(held, key=lambda one: (-one.share, -one.count, one.name))))

    found = [danger(i) for i in range(len(spread.vehicles))]
    return tuple(sorted(found, key=lambda d: (-len(d.vanish), -len(d.become_rare), -d.largest, d.vehicle)))


def as_json(found: tuple[Danger, ...], watch_share: float) -> dict[str, Any]:
    """The whole answer as plain data."""

    def one(danger: Danger) -> dict[str, Any]:
        return {
            "vehicle": danger.vehicle,
            "vanish": list(danger.vanish),
            "become_rare": list(danger.become_rare),
            "classes": [{"class": x.name, **{k: v for k, v in vars(x).items() if k != "name"}} for x in danger.losses],
        }

    return {"watch_share": watch_share, "vehicles": [one(d) for d in found]}


def _row(header: list[str], cells: list[str], where: str) -> tuple[str, str, int]:
    if len(cells) != len(header):
        raise FleetError(f"{where}: {len(cells)} cells, should be {len(header)}")
    row = dict(zip(header, map(str.strip, cells), strict=True))
    for column in ("vehicle", "class"):
        if not 0 < len(row[column]) <= LONGEST_ID or not row[column].isprintable():
            raise FleetError(
                f"{where}: {column} {row[column][:40]!r}, should be a name of 1 to {LONGEST_ID} characters"
            )
    digits = row["count"]
    if not (digits.isascii() and digits.isdigit() and len(digits) < 14 and int(digits) <= _MOST):
        raise FleetError(f"{where}: count {digits[:40]!r}, should be a whole number from 0 to {_MOST}")
    return row["vehicle"], row["class"], int(digits)


def _spread(counts: Mapping[tuple[str, str], int]) -> tuple[Spread, tuple[str, ...]]:
    names = tuple(sorted({name for _, name in counts}, key=_natural))
    place = {name: i for i, name in enumerate(names)}
    table = dict[str, Ints]()
    for (vehicle, name), count in counts.items():
        table.setdefault(vehicle, np.zeros(len(names), dtype=np.int64))[place[name]] = count
    return Spread.of(table, len(names)), names


def _natural(name: str) -> tuple[bool, int, str]:
    number = name.isascii() and name.isdigit() and len(name) < 19
    return (not number, int(name) if number else 0, name)
