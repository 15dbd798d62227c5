"""`DIR/replay`: the rows of methods that were replayed, apart from the run's own files, which stay as they are."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mpt.base.files import remove_files, write_atomically
from mpt.runs.csvfile import read_text
from mpt.runs.errors import RunError
from mpt.runs.tables import COLUMNS, LineCheck, Tables

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
        remove_files(self.path, [self.path / name for name in (METHODS, *(f"{table}.csv" for table in COLUMNS))])

    def read(self, check: LineCheck | None = None) -> tuple[dict[str, dict[str, Any]], Tables]:
        """What each method was, by its name, and the rows; nothing where nothing was replayed.

        Raises:
            RunError: where the files are broken.
        """
        path = self.path / METHODS
        if not path.exists():
            return {}, Tables()
        try:
            methods = {str(name): {**what, "training": str(what["training"])} for name, what in _json(path).items()}
        except (ValueError, AttributeError, KeyError, TypeError):
            raise RunError(f"{path}: cannot be read, should be as mpt replay writes it") from None
        return methods, Tables.read(self.path, check).only(methods)

    def write(self, methods: dict[str, dict[str, Any]], tables: Tables) -> None:
        """Put these in place of what is there."""
        self.path.mkdir(exist_ok=True)
        tables.write(self.path)
        write_atomically(self.path / METHODS, (json.dumps(methods, indent=2) + "\n").encode())


def _json(path: Path) -> dict[str, Any]:
    return dict(json.loads(read_text(path)))
