"""CSV files line by line, with the line and the column of what is wrong."""

import csv
import io
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from mpt.runs.errors import RunError


class CsvLine:
    """One line of a table; its cells are read as numbers with a sentence for what is none."""

    def __init__(self, path: Path, line: int, cells: dict[str, str]) -> None:
        self.path, self.line, self.cells = path, line, cells

    def error(self, what: str) -> RunError:
        """What is wrong here."""
        return RunError(f"{self.path}, line {self.line}: {what}")

    def text(self, column: str) -> str:
        """The cell as it is."""
        return self.cells[column]

    def whole(self, column: str, *, least: int = 0, below: int | None = None) -> int:
        """A whole number of at least `least` and below `below`."""
        cell = self.cells[column]
        try:
            value = int(cell)
        except ValueError:
            raise self.error(f"{column} is {cell!r}, should be a whole number") from None
        if value < least or (below is not None and value >= below):
            limits = f"at least {least}" if below is None else f"from {least} to {below - 1}"
            raise self.error(f"{column} is {value}, should be {limits}")
        return value

    def number(self, column: str, *, least: float = 0.0, most: float = math.inf) -> float:
        """A finite number from `least` to `most`."""
        cell = self.cells[column]
        try:
            value = float(cell)
        except ValueError:
            raise self.error(f"{column} is {cell!r}, should be a number") from None
        if not math.isfinite(value) or not least <= value <= most:
            limits = f"a finite number from {least:g} on" if most == math.inf else f"from {least:g} to {most:g}"
            limits = "a finite number" if least == -math.inf else limits
            raise self.error(f"{column} is {cell}, should be {limits}")
        return value


def read_text(path: Path) -> str:
    """A text file in UTF-8."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise RunError(f"{path}: there is no such file, should be one of those that mpt run --out writes") from None
    except OSError as error:
        raise RunError(f"{path}: cannot be read ({error.strerror}), should be a file of mpt run --out") from None
    except UnicodeDecodeError as error:
        raise RunError(f"{path}: byte {error.start} is no UTF-8, should be a text file of mpt run --out") from None


def read_lines(path: Path, columns: Sequence[str]) -> Iterator[CsvLine]:
    """The lines of a CSV file that has at least `columns`, in whatever order."""
    text = read_text(path)
    if not text.strip():
        raise RunError(f"{path}: is empty, should begin with the header {','.join(columns)}")
    if not text.endswith("\n"):
        raise RunError(f"{path}: breaks off in line {text.count(chr(10)) + 1}, should end with a whole line")
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        header = next(reader)
        missing = [column for column in columns if column not in header]
        if missing:
            raise RunError(f"{path}, line 1: there is no column {missing[0]}, should be {','.join(columns)}")
        for cells in reader:
            if len(cells) != len(header):
                raise RunError(f"{path}, line {reader.line_num}: {len(cells)} cells, should be {len(header)}")
            yield CsvLine(path, reader.line_num, dict(zip(header, cells, strict=True)))
    except csv.Error as error:
        raise RunError(f"{path}, line {reader.line_num}: is no CSV ({error}), should be as mpt run writes") from None
