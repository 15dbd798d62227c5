"""A presence as a CSV file that a person can read and edit: a line for each stay.

    # rounds: 40
    vehicle,first,last,goodbye,silent
    v1,1,15,yes,3 9
    v1,31,40,no,
    v2,,,,

The lines before the header say how many rounds there are, and, where they are known, what the rounds are called
(`# labels: `), the places (`# places: `) and how often a vehicle was at each of them (`# visits: v1,0,4`, a line for
each vehicle). They are rows of CSV as well. Other lines that begin with a # are remarks. A vehicle that is never there
has a line without rounds. Vehicles are numbered in the order in which they come first.
"""

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from mpt.base.files import write_atomically
from mpt.scenario.events import PlanError
from mpt.scenario.presence import Ints, Presence

HEADER = ["vehicle", "first", "last", "goodbye", "silent"]
_NOTES = ("rounds", "labels", "places", "visits")
_MOST_ROUNDS = 1_000_000
_YES = {"yes": True, "no": False, "": False}


def write_presence(presence: Presence, path: Path | str) -> None:
    """Write it as a CSV file; `read_presence` gives the same again."""
    lines = [f"# rounds: {presence.rounds}"]
    if presence.labels:
        lines.append(f"# labels: {_row(presence.labels)}")
    if presence.visits is not None:
        lines.append(f"# places: {_row(presence.places)}")
        for name, row in zip(presence.vehicles, presence.visits, strict=True):
            lines.append(f"# visits: {_row([name, *map(str, row)])}")
    lines.append(_row(HEADER))
    for vehicle, name in enumerate(presence.vehicles):
        stays = presence.stays(vehicle)
        for first, last in stays:
            silent = np.flatnonzero(presence.silent[first - 1 : last, vehicle]) + first
            goodbye = "yes" if presence.goodbye[last - 1, vehicle] else "no"
            lines.append(_row([name, str(first), str(last), goodbye, " ".join(map(str, silent))]))
        if not stays:
            lines.append(_row([name, "", "", "", ""]))
    write_atomically(Path(path), "".join(f"{line}\n" for line in lines).encode())


def read_presence(path: Path | str) -> Presence:
    """Read what `write_presence` has written, or somebody by hand.

    Raises:
        PlanError: the file cannot be read or a line is wrong; the sentence names the line.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PlanError(f"{path}: cannot be read as a text, {error}") from None
    reading = _Reading(path)
    for number, line in enumerate(text.splitlines(), 1):
        reading.take(number, line.strip())
    return reading.presence()


@dataclass
class _Stay:
    line: int
    vehicle: str
    first: int
    last: int
    goodbye: bool
    silent: list[int]


@dataclass
class _Reading:
    """What has been read of a file so far."""

    path: Path
    rounds: int = 0
    labels: list[str] = field(default_factory=list)
    places: list[str] | None = None
    visits: dict[str, list[int]] = field(default_factory=dict)
    vehicles: dict[str, int] = field(default_factory=dict)
    stays: list[_Stay] = field(default_factory=list)
    of_vehicle: dict[str, list[_Stay]] = field(default_factory=dict)
    header: bool = False

    def take(self, line: int, text: str) -> None:
        """Read a line, without the spaces at its ends."""
        if not text:
            return
        if text.startswith("#"):
            if not self.header:
                self._note(line, text[1:])
            return
        fields = _fields(text)
        if not self.header:
            if fields != HEADER:
                raise self.wrong(line, f"{text!r}, should be the header {','.join(HEADER)}")
            if not self.rounds:
                raise self.wrong(line, "the header, but no line before it says how many rounds, like '# rounds: 40'")
            self.header = True
            return
        self._stay(line, fields)

    def wrong(self, line: int, what: str) -> PlanError:
        """An error with its place."""
        return PlanError(f"{self.path}, line {line}: {what}")

    def _note(self, line: int, text: str) -> None:
        name, colon, rest = (part.strip() for part in text.partition(":"))
        if not colon or name not in _NOTES:
            return  # somebody's remark
        fields = _fields(rest)
        if name == "rounds":
            self.rounds = self._number(line, rest, 1, _MOST_ROUNDS)
        elif name == "labels":
            self.labels = fields
        elif name == "places":
            self.places = [one for one in fields if one]
        else:
            self.visits[fields[0] if fields else ""] = [self._number(line, one, 0, None) for one in fields[1:]]

    def _stay(self, line: int, fields: list[str]) -> None:
        if len(fields) != len(HEADER) or not fields[0]:
            raise self.wrong(line, f"{_row(fields)!r}, should be {','.join(HEADER)}, like 'v1,3,9,yes,4 5'")
        name, begins, ends, goodbye, silent = fields
        self.vehicles.setdefault(name, len(self.vehicles))
        if not (begins or ends or goodbye or silent):
            return
        first = self._number(line, begins, 1, self.rounds)
        last = self._number(line, ends, first, self.rounds)
        if goodbye not in _YES:
            raise self.wrong(line, f"goodbye {goodbye!r}, should be yes or no")
        if _YES[goodbye] and last == self.rounds:
            raise self.wrong(
                line, f"goodbye in round {last}, should be no in the last round, after which nobody leaves"
            )
        quiet = [self._number(line, one, first, last) for one in silent.split()]
        for other in self.of_vehicle.setdefault(name, []):
            if first <= other.last + 1 and other.first <= last + 1:
                raise self.wrong(
                    line,
                    f"{name} is there in rounds {first} to {last}, but line {other.line} has it from {other.first} "
                    f"to {other.last}, should be a round or more between two stays",
                )
        self.stays.append(_Stay(line, name, first, last, _YES[goodbye], quiet))
        self.of_vehicle[name].append(self.stays[-1])

    def _number(self, line: int, text: str, least: int, most: int | None) -> int:
        if not (text.isdecimal() and len(text) < 19 and int(text) >= least and (most is None or int(text) <= most)):
            bounds = f"from {least} on" if most is None else f"from {least} to {most}"
            raise self.wrong(line, f"{text!r}, should be a whole number {bounds}")
        return int(text)

    def presence(self) -> Presence:
        """What the lines say together."""
        if not self.header:
            raise PlanError(f"{self.path}: no header, should be {','.join(HEADER)}")
        there, silent, goodbye = np.zeros((3, self.rounds, len(self.vehicles)), dtype=np.bool_)
        for stay in self.stays:
            vehicle = self.vehicles[stay.vehicle]
            there[stay.first - 1 : stay.last, vehicle] = True
            silent[[number - 1 for number in stay.silent], vehicle] = True
            goodbye[stay.last - 1, vehicle] = stay.goodbye
        try:
            return Presence(
                tuple(self.vehicles),
                there,
                silent,
                goodbye,
                tuple(self.labels),
                self._visits(),
                tuple(self.places or ()),
            )
        except PlanError as error:
            raise PlanError(f"{self.path}: {error}") from None

    def _visits(self) -> Ints | None:
        if self.places is None:
            return None
        wrong = [name for name, row in self.visits.items() if name in self.vehicles and len(row) != len(self.places)]
        if wrong or set(self.visits) != set(self.vehicles):
            name = (wrong or sorted(set(self.visits) ^ set(self.vehicles)))[0]
            raise PlanError(f"visits of {name!r}, should be a line for each vehicle with {len(self.places)} numbers")
        rows = [self.visits[name] for name in self.vehicles]
        return np.array(rows, dtype=np.int64).reshape(len(rows), len(self.places))


def _row(fields: Sequence[str]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(fields)
    return text.getvalue()


def _fields(text: str) -> list[str]:
    rows: Iterator[list[str]] = csv.reader([text], skipinitialspace=True)
    return [one.strip() for one in next(rows, [])]
