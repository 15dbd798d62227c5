"""A presence from a list of charging sessions: who was plugged in when."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mpt.scenario.events import PlanError
from mpt.scenario.makers import positive
from mpt.scenario.presence import Bools, Ints, Presence, present_when

COLUMNS = ("vehicle", "arrived", "departed")
_MOST_CELLS = 200_000_000


def sessions(
    path: Path | str,
    *,
    hours: float = 24.0,
    since: str | None = None,
    rounds: int | None = None,
    vehicles: int | None = None,
    skip_empty: bool = True,
) -> Presence:
    """A round every so many hours; a vehicle is there where any of its sessions overlaps the round.

    A session ends before its `departed`, so one that ends at midnight is not there in the day that begins then.

    Args:
        path: CSV with the columns vehicle, arrived, departed (ISO 8601, UTC where they name no other) and, where the
            places are known, station.
        hours: between the beginnings of two rounds.
        since: the first round begins at midnight UTC of this date, or at this time; None: of the day of the first
            arrival. Sessions that end before it are left out.
        rounds: at most so many; None: up to the last session.
        vehicles: the so many with most sessions from `since` on, the first by name of several; None: all.
        skip_empty: rounds with nobody are left out. The labels say when each round begins.

    Returns:
        vehicles by name; `visits` count the sessions in these rounds by station.
    """
    if not 0 < hours < np.inf:
        raise PlanError(f"hours: {hours}, should be above 0")
    log = _read(Path(path))
    begin = int(log.arrived.min()) // 86400 * 86400 if since is None else _since(since)
    log = log.where((log.departed > begin) | (log.arrived >= begin))
    if not len(log.arrived):
        raise PlanError(f"since: {since}, but all sessions of {path} end before it, should be an earlier date")
    if vehicles is not None:
        log = _most_frequent(log, positive("vehicles", vehicles), str(path))
    step = hours * 3600
    first = np.maximum(0, np.floor((log.arrived - begin) / step)).astype(np.int64)
    last = np.maximum(first, np.ceil((log.departed - begin) / step).astype(np.int64) - 1)
    names, numbers = np.unique(log.vehicle, return_inverse=True)
    there = _overlaps(first, last, numbers, len(names))
    kept = np.flatnonzero(there.any(axis=1)) if skip_empty else np.arange(len(there))
    if rounds is not None:
        kept = kept[: positive("rounds", rounds)]
    seen = first <= kept[-1]
    visits, places = _visits(log, numbers, seen, len(names))
    labels = [_label(begin + step * int(row), hours) for row in kept]
    return present_when([str(n) for n in names], there[kept], labels=labels, visits=visits, places=places)


@dataclass(frozen=True, eq=False)
class _Log:
    """N sessions: names (N,), seconds since 1970 (N,), and stations (N,) or None."""

    vehicle: NDArray[np.str_]
    arrived: Ints
    departed: Ints
    station: NDArray[np.str_] | None

    def where(self, kept: Bools) -> "_Log":
        station = None if self.station is None else self.station[kept]
        return _Log(self.vehicle[kept], self.arrived[kept], self.departed[kept], station)


def _read(path: Path) -> _Log:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = csv.DictReader(file, restval="")
            missing = [name for name in COLUMNS if name not in (rows.fieldnames or ())]
            if missing:
                raise PlanError(f"{path}: no column {missing[0]}, should be {', '.join(COLUMNS)} and perhaps station")
            with_station = "station" in (rows.fieldnames or ())
            found = [_session(path, rows.line_num, row, with_station) for row in rows]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise PlanError(f"{path}: cannot be read as CSV, {error}") from None
    if not found:
        raise PlanError(f"{path}: no sessions, should be at least one")
    names, arrived, departed, stations = zip(*found, strict=True)
    return _Log(
        np.array(names), np.array(arrived), np.array(departed), np.array(stations) if with_station else None
    )  # fmt: skip


def _session(path: Path, line: int, row: dict[str, str], with_station: bool) -> tuple[str, int, int, str]:
    where = f"{path}, line {line}"
    if not row["vehicle"].strip():
        raise PlanError(f"{where}: no vehicle, should be its name")
    times = []
    for name in COLUMNS[1:]:
        try:
            times.append(_seconds(row[name].strip()))
        except ValueError:
            raise PlanError(f"{where}: {name} {row[name]!r}, should be a time like 2019-03-04T08:30:00Z") from None
    if times[1] < times[0]:
        raise PlanError(f"{where}: departed {row['departed']} before it arrived {row['arrived']}, should be after it")
    return row["vehicle"].strip(), times[0], times[1], (row["station"].strip() or "?") if with_station else ""


def _seconds(text: str) -> int:
    time = datetime.fromisoformat(text)
    return int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp())


def _since(text: str) -> int:
    try:
        return _seconds(str(text))
    except ValueError:
        raise PlanError(f"since: {text!r}, should be a date like 2019-03-04") from None


def _most_frequent(log: _Log, count: int, path: str) -> _Log:
    names, numbers, sizes = np.unique(log.vehicle, return_inverse=True, return_counts=True)
    if count > len(names):
        raise PlanError(f"vehicles: {count}, but {path} has {len(names)} from then on, should be at most that")
    chosen = np.argsort(-sizes, kind="stable")[:count]
    return log.where(np.isin(numbers, chosen))


def _overlaps(first: Ints, last: Ints, numbers: Ints, vehicles: int) -> Bools:
    """(R, V): from the first and last row (N,) of each session and its vehicle (N,)."""
    rows = int(last.max()) + 1
    if rows * vehicles > _MOST_CELLS:
        raise PlanError(f"hours: gives {rows} rounds of {vehicles} vehicles, should be longer rounds or fewer vehicles")
    change = np.zeros((rows + 1, vehicles), dtype=np.int32)
    np.add.at(change, (first, numbers), 1)
    np.add.at(change, (last + 1, numbers), -1)
    return np.asarray(np.cumsum(change, axis=0)[:-1] > 0, dtype=np.bool_)


def _visits(log: _Log, numbers: Ints, seen: Bools, vehicles: int) -> tuple[Ints | None, Sequence[str]]:
    if log.station is None:
        return None, ()
    places, stations = np.unique(log.station[seen], return_inverse=True)
    visits = np.zeros((vehicles, len(places)), dtype=np.int64)
    np.add.at(visits, (numbers[seen], stations), 1)
    return visits, [str(place) for place in places]


def _label(seconds: float, hours: float) -> str:
    time = datetime.fromtimestamp(seconds, UTC)
    whole_days = hours % 24 == 0 and seconds % 86400 == 0
    return f"{time:%Y-%m-%d}" if whole_days else f"{time:%Y-%m-%d %H:%M}"
