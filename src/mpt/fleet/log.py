"""Decisions as they are taken: one JSON object a line into a file, one sentence a line for people.

{"time": "2026-11-15T12:00:00.123456+00:00", "round": 7, "event": "suspected", "vehicle": "1049...",
 "name": "vehicle-7", "classes": ["truck"], "class_numbers": [2], "why": "it did not answer"}
"""

import json
import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

from mpt.base.files import owners, private_folder
from mpt.tracking.errors import FleetError
from mpt.tracking.roster import Decision

LARGEST = 16 * 2**20
"""Bytes that a log has at most, unless one piece alone is longer; then it is rotated."""
EARLIER = 4
"""Rotated files that are kept: `.1`, the latest, up to `.4`."""


def stamp(time: datetime) -> str:
    """A time as the logs have it."""
    return time.isoformat(timespec="microseconds")


def record(decision: Decision, time: datetime) -> dict[str, Any]:
    """A decision as the JSON object of its line."""
    return {
        "time": stamp(time),
        "round": decision.round,
        "event": decision.what,
        "vehicle": decision.vehicle or None,
        "name": decision.name or None,
        "classes": list(decision.class_names or decision.classes),
        "class_numbers": list(decision.classes),
        "why": decision.why,
    }


def now() -> datetime:
    """The time, in UTC."""
    return datetime.now(UTC)


@dataclass(frozen=True)
class DecisionLog:
    """Writes decisions to a file, to a stream, or to both.

    A server that is killed between writing and checkpointing a round decides it again after its restart, so the same
    decision may stand there twice; `round` tells.

    Attributes:
        path: the file, added to; None: no file.
        stream: for people; None: nothing; default: standard error.
        clock: gives the time.
    """

    path: Path | str | None = None
    stream: TextIO | None = field(default_factory=lambda: sys.stderr)
    clock: Callable[[], datetime] = now

    def write(self, decisions: Iterable[Decision]) -> None:
        """Log decisions, in one piece and to the disk."""
        several, time = list(decisions), self.clock()
        if self.path is not None and several:
            append(Path(self.path), "".join(json.dumps(record(d, time)) + "\n" for d in several), rotate=True)
        if self.stream is not None:
            for decision in several:
                print(f"mpt: {decision}", file=self.stream, flush=True)


def append(path: Path, lines: str, *, rotate: bool = False) -> None:
    """Add whole lines to a file; one that a killed server left unfinished is ended first and spoils no other.

    Args:
        path: the file.
        lines: each with its end.
        rotate: a file that would become larger than `LARGEST` is renamed first, `decisions.jsonl` to
            `decisions.jsonl.1`, and a new one begun; `EARLIER` such files are kept. Of what is read again from its
            beginning, as orders are, nothing may be lost: there say nothing.
    """
    data = lines.encode()
    try:
        private_folder(path.parent)
        size = path.stat().st_size if rotate and path.is_file() else 0
        if size and size + len(data) > LARGEST:
            _rotate(path)
        with open(path, "a+b", opener=owners) as file:
            if file.tell():
                file.seek(-1, os.SEEK_END)
                data = data if file.read(1) == b"\n" else b"\n" + data
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise FleetError(f"log: {path} cannot be written ({error.strerror})") from error


def logs_of(path: Path) -> tuple[Path, ...]:
    """A log and what was rotated of it, as far as there are such files; the oldest first."""
    return tuple(one for one in (*reversed(_earlier(path)), path) if one.is_file())


def _earlier(path: Path) -> list[Path]:
    return [path.with_name(f"{path.name}.{number}") for number in range(1, EARLIER + 1)]


def _rotate(path: Path) -> None:
    """Rename a log and those before it, up to the first name that is free; only where none is the oldest goes.

    A server that is killed in between leaves one name free and has lost nothing.
    """
    names = [path, *_earlier(path)]
    free = next((number for number, name in enumerate(names) if number and not name.exists()), EARLIER)
    for number in range(free, 0, -1):
        os.replace(names[number - 1], names[number])
