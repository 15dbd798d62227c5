"""How `mpt vehicle leave` reaches the app: a file that says whether the vehicle is to leave."""

import contextlib
import logging
import time
from dataclasses import dataclass
from pathlib import Path

from mpt.base.files import write_atomically

QUIET = 30.0
"""Seconds after which no further question of a round is expected."""


@dataclass(frozen=True)
class LeaveFile:
    """A file of one word: "stays" while the vehicle runs, "asked" once it is to leave, "answered" once it has said so.

    It is "saying" in place of "answered" where the server may ask further in the same round: after `QUIET` seconds
    without such a question the vehicle has said it.

    Flower starts a new process for every message, and nothing else of a vehicle's outlives them. The file is replaced,
    never written into, so that it is always whole, and whoever may write to its folder may replace another user's.
    """

    path: Path

    @property
    def asked(self) -> bool:
        """Whether the vehicle is to say that it leaves."""
        return self._word in ("asked", "saying", "answered")

    @property
    def done(self) -> bool:
        """Whether it has said so."""
        return self._word == "answered" or (self._word == "saying" and self._age > QUIET)

    def stays(self) -> None:
        """The vehicle runs, or is back; `OSError` where the file cannot be written."""
        self._write("stays")

    def ask(self) -> None:
        """The vehicle is to leave; `OSError` where the file cannot be written."""
        self._write("asked")

    def answered(self, *, may_follow: bool = False) -> None:
        """The vehicle has said that it leaves. Where that cannot be written it is logged: the answer must go out."""
        try:
            self._write("saying" if may_follow else "answered")
        except OSError as error:
            logging.getLogger("mpt").warning(f"leave-file: {self.path} cannot be written ({error.strerror})")

    def clear(self) -> None:
        """The vehicle has ended."""
        with contextlib.suppress(OSError):
            self.path.unlink()

    @property
    def _word(self) -> str:
        try:
            return self.path.read_text(encoding="utf-8").strip()
        except OSError:
            return ""

    @property
    def _age(self) -> float:
        try:
            return time.time() - self.path.stat().st_mtime
        except OSError:
            return 0.0

    def _write(self, word: str) -> None:
        write_atomically(self.path, f"{word}\n".encode())
