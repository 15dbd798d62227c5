"""`DIR/replay`: the rows of methods that were replayed, apart from the run's own files, which stay as they are."""

import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from mpt.files import write_atomically
from mpt.tables import COLUMNS, Record, Tables

FOLDER, METHODS = "replay", "methods.json"


@dataclass(frozen=True)
class Replayed:
    """The folder: tables as a run has them, and `methods.json` with what each method was."""

    path: Path

    @classmethod
    def of(cls, run: Path) -> "Replayed":
        """That of a run."""
        return cls(run / FOLDER)

    def remove(self) -> None:
        """Remove its files, and the folder where nothing else is in it."""
        for name in (METHODS, *(f"{table}.csv" for table in COLUMNS)):
            (self.path / name).unlink(missing_ok=True)
        if self.path.is_dir() and not any(self.path.iterdir()):
            self.path.rmdir()

    def read(self) -> tuple[dict[str, dict[str, Any]], Tables]:
        """What each method was, by its name, and the rows; nothing where nothing was replayed.

        Raises:
            ValueError, KeyError, OSError: where the files are broken.
        """
        if not (self.path / METHODS).exists():
            return {}, Tables()
        methods = dict(json.loads((self.path / METHODS).read_text(encoding="utf-8")))
        return methods, chosen(Tables.read(self.path), methods)

    def write(self, methods: dict[str, dict[str, Any]], tables: Tables) -> None:
        """Put these in place of what is there."""
        self.path.mkdir(exist_ok=True)
        tables.write(self.path)
        write_atomically(self.path / METHODS, (json.dumps(methods, indent=2) + "\n").encode())


def chosen(tables: Tables, methods: Any) -> Tables:
    """The records of some methods."""

    def mine(records: tuple[Record, ...]) -> tuple[Record, ...]:
        return tuple(record for record in records if record["method"] in methods)

    return Tables(*(mine(getattr(tables, field.name)) for field in fields(tables)))
