"""How `mpt vehicle leave` reaches the app: a file that says whether the vehicle is to leave."""

import contextlib
import logging
from dataclasses import dataclass
from pathlib import Path

from mpt.files import write_atomically


@dataclass(frozen=True)
class LeaveFile:
    """A file of one word: "stays" while the vehicle runs, "asked" once it is to leave, "answered" once it has said so.

    Flower starts a new process for every message, and nothing else of a vehicle's outlives them. The file is replaced,
    never written into, so that it is always whole, and whoever may write to its folder may replace another user's.
    """

    path: Path

    @property
    def asked(self) -> bool:
        """Whether the vehicle is to say that it leaves."""
        return self._word in ("asked", "answered")

    @property
    def done(self) -> bool:
        """Whether it has said so."""
        return self._word == "answered"

    def stays(self) -> None:
        """The vehicle runs, or is back; `OSError` where the file cannot be written."""
        self._write("stays")

    def ask(self) -> None:
        """The vehicle is to leave; `OSError` where the file cannot be written."""
        self._write("asked")

    def answered(self) -> None:
        """The vehicle has said that it leaves. Where that cannot be written it is logged: the answer must go out."""
        try:
            self._write("answered")
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

    def _write(self, word: str) -> None:
        write_atomically(self.path, f"{word}\n".encode())
