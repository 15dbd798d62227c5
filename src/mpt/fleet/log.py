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
            append(Path(self.path), "".join(json.dumps(record(d, time)) + "\n" for d in several))
        if self.stream is not None:
            for decision in several:
                print(f"mpt: {decision}", file=self.stream, flush=True)


def append(path: Path, lines: str) -> None:
    """Add whole lines to a file; one that a killed server left unfinished is ended first and spoils no other."""
    try:
        private_folder(path.parent)
        with open(path, "a+b", opener=owners) as file:
            if file.tell():
                file.seek(-1, os.SEEK_END)
                lines = lines if file.read(1) == b"\n" else "\n" + lines
            file.write(lines.encode())
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise FleetError(f"log: {path} cannot be written ({error.strerror})") from error
