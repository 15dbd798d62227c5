"""How `mpt vehicle leave` reaches the app: a file that is there as long as the vehicle is to leave."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class LeaveFile:
    """A file beside the vehicle's key: "asked" is in it once the vehicle is to leave, "answered" once it has said so.

    Flower starts a new process for every message, and nothing else of a vehicle's outlives them.
    """

    path: Path

    @property
    def asked(self) -> bool:
        """Whether the vehicle is to say that it leaves."""
        return self.path.exists()

    @property
    def done(self) -> bool:
        """Whether it has said so."""
        return self.path.exists() and self.path.read_text(encoding="utf-8").strip() == "answered"

    def ask(self) -> None:
        """The vehicle is to leave."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text("asked\n", encoding="utf-8")

    def answered(self) -> None:
        """The vehicle has said that it leaves."""
        self.path.write_text("answered\n", encoding="utf-8")

    def clear(self) -> None:
        """The vehicle stays, or is back."""
        self.path.unlink(missing_ok=True)
