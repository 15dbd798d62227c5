"""The tables of a run: their columns, as records, as CSV files and as data frames.

`COLUMNS` is the one schema. A line of `metrics.csv` is a seed, evaluated round, method, readout and class. The class
that departs has all figures; the lines of the others have their F1, precision and recall alone.
"""

import csv
import io
import math
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mpt.base.files import write_atomically
from mpt.base.text import installs
from mpt.federation.measurement import Measurement
from mpt.runs.csvfile import CsvLine, read_lines
from mpt.runs.errors import RunError

FORMAT = 2
"""Of the files in a run's folder; raised when a table's columns change their meaning."""

Row = dict[str, Any]


class Column(NamedTuple):
    """What a column holds; None is an empty cell, where that may be."""

    kind: type
    most: float = math.inf
    may_be_empty: bool = False
    least: float = 0.0


_SHARE, _SHARE_OR_NONE = Column(float, 1.0), Column(float, 1.0, True)
_COUNT_OR_NONE, _NUMBER_OR_NONE = Column(int, may_be_empty=True), Column(float, may_be_empty=True)
_ANY_OR_NONE = Column(float, may_be_empty=True, least=-math.inf)
_WHAT = {"seed": Column(int), "round": Column(int, least=1), "method": Column(str), "readout": Column(str)}
COLUMNS: dict[str, dict[str, Column]] = {
    "metrics": {
        **_WHAT,
        "class": Column(str),
        "departed": Column(int, 1),
        "f1": _SHARE,
        "precision": _SHARE,
        "recall": _SHARE,
        "accuracy": _SHARE_OR_NONE,
        "balanced_accuracy": _SHARE_OR_NONE,
        "others_accuracy": _SHARE_OR_NONE,
        "prototype_distance": _NUMBER_OR_NONE,
        "in_span_error": _NUMBER_OR_NONE,
        "out_of_span_error": _NUMBER_OR_NONE,
        "messages": _COUNT_OR_NONE,
        "bytes_up": _COUNT_OR_NONE,
        "bytes_down": _COUNT_OR_NONE,
        "readout_bytes_up": _COUNT_OR_NONE,
        "readout_bytes_down": _COUNT_OR_NONE,
        "vehicle_seconds": _NUMBER_OR_NONE,
        "server_seconds": _NUMBER_OR_NONE,
    },
    "diagnostics": {
        "seed": Column(int),
        "round": Column(int, least=1),
        "method": Column(str),
        "class": Column(str),
        "alpha": _ANY_OR_NONE,
        "growth": _ANY_OR_NONE,
        "noise": _ANY_OR_NONE,
        "remaining": _COUNT_OR_NONE,
        "in_span_norm": _ANY_OR_NONE,
        "predicted_norm": _ANY_OR_NONE,
        "measured_norm": _ANY_OR_NONE,
        "residual_norm": _ANY_OR_NONE,
        "drift": _ANY_OR_NONE,
        "rare_drift": _ANY_OR_NONE,
        "step_references": _ANY_OR_NONE,
        "step_rare": _ANY_OR_NONE,
        "step_rounds": Column(int, may_be_empty=True, least=1),
    },
    "confusion": {**_WHAT, "label": Column(str), "predicted": Column(str), "count": Column(int)},
}
"""What each file of a run's folder has; `diagnostics` gets a column more for whatever else a method notes."""


_LATER = ("step_references", "step_rare", "step_rounds")
"""Columns that files written before they were there may lack."""

_NOTED = {
    "expected_error": _NUMBER_OR_NONE,
    "verdict": Column(float, 4.0, True),
    "contradiction": _NUMBER_OR_NONE,
    "clipped": _NUMBER_OR_NONE,
    "refused": _NUMBER_OR_NONE,
}
"""What methods of the MPT family note of themselves."""


@dataclass(frozen=True)
class Tables:
    """All that a run has measured so far. Numbers are rounded to six decimals, as in the files; None is an empty cell.

    Attributes:
        metrics: one record a seed, evaluated round, method, readout and class.
        diagnostics: what methods noted, and one record a round, without a method, with the drift and the step.
        confusion: test samples by label and prediction, in the round of the departure and the last.
    """

    metrics: tuple[Row, ...] = ()
    diagnostics: tuple[Row, ...] = ()
    confusion: tuple[Row, ...] = ()

    def __add__(self, other: "Tables") -> "Tables":
        return Tables(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    @property
    def seeds(self) -> tuple[int, ...]:
        """That have at least one line."""
        return tuple(sorted({record["seed"] for record in self.metrics}))

    def only(self, methods: Container[str], seeds: Container[int] | None = None) -> "Tables":
        """The records of some methods, of some seeds."""

        def wanted(record: Mapping[str, Any]) -> bool:
            return record["method"] in methods and (seeds is None or record["seed"] in seeds)

        return Tables(*(tuple(filter(wanted, getattr(self, f.name))) for f in fields(self)))

    def of_seeds(self, seeds: Container[int]) -> "Tables":
        """The records of some seeds."""
        return Tables(*(tuple(r for r in getattr(self, f.name) if r["seed"] in seeds) for f in fields(self)))

    def frame(self, name: str) -> Any:
        """One of them as a pandas data frame."""
        pd = pandas()
        records, columns = getattr(self, name), columns_of(name, getattr(self, name))
        made = pd.DataFrame.from_records(list(records), columns=list(columns))
        gaps = {c for c in columns for r in records if r.get(c) is None}
        kinds = {int: "Int64", float: "float64", str: "object"}
        return made.astype(
            {
                c: "int64" if column.kind is int and c not in gaps else kinds[column.kind]
                for c, column in columns.items()
            }
        )

    def write(self, folder: Path) -> None:
        """Each as a CSV file."""
        for name in COLUMNS:
            text = io.StringIO(newline="")
            columns = columns_of(name, getattr(self, name))
            writer = csv.writer(text, lineterminator="\n")
            writer.writerow(columns)
            for record in getattr(self, name):
                writer.writerow([_cell(record.get(column)) for column in columns])
            write_atomically(folder / f"{name}.csv", text.getvalue().encode())

    @classmethod
    def read(cls, folder: Path, check: "LineCheck | None" = None) -> "Tables":
        """What `write` wrote; `RunError` with file, line and column where it is not that, or where `check` says so."""
        return cls(**{name: tuple(_read(folder / f"{name}.csv", name, check)) for name in COLUMNS})


def pandas() -> Any:
    """The package; `RunError` where it is not installed."""
    try:
        import pandas as pd
    except ImportError:
        raise RunError(f"pandas is not installed, {installs('data')} brings it; .tables has it as records") from None
    return pd


LineCheck = Callable[[str, CsvLine, Row], None]
"""Looks at a line of a table, and raises the line's error where something is wrong with it."""


def columns_of(name: str, records: Iterable[Row]) -> dict[str, Column]:
    """The columns of a table, those that methods noted of their own last."""
    columns = dict(COLUMNS[name])
    for record in records:
        for column in record:
            columns.setdefault(column, _ANY_OR_NONE)
    return columns


def tables_of(rows: Sequence[Measurement], confused: Iterable[int], classes: Sequence[str]) -> Tables:
    """The rows of one round; with its confusion matrices where it is one of `confused`."""
    return Tables(
        tuple(record for row in rows for record in _metrics(row, classes)),
        tuple(_diagnostics(rows, classes)),
        tuple(record for row in rows if row.round in set(confused) for record in _confusion(row, classes)),
    )


def _rounded(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else round(float(value), 6) + 0.0


def _what(row: Measurement) -> Row:
    return {"seed": row.seed, "round": row.round, "method": row.method, "readout": row.readout}


def _metrics(row: Measurement, classes: Sequence[str]) -> Iterator[Row]:
    """A record a class: that of the departing one, with all figures, and those of the others that have test samples."""
    scores, cost, extra = row.scores, row.cost, row.readout_cost
    yield {
        **_scored(row, row.departing, classes),
        "accuracy": _rounded(scores.accuracy),
        "balanced_accuracy": _rounded(scores.balanced_accuracy),
        "others_accuracy": _rounded(scores.others_accuracy),
        "prototype_distance": _rounded(row.prototype_distance),
        "in_span_error": _rounded(row.span_errors and row.span_errors[0]),
        "out_of_span_error": _rounded(row.span_errors and row.span_errors[1]),
        "messages": cost.messages,
        "bytes_up": cost.bytes_up,
        "bytes_down": cost.bytes_down,
        "readout_bytes_up": extra.bytes_up,
        "readout_bytes_down": extra.bytes_down,
        "vehicle_seconds": _rounded(cost.vehicle_seconds),
        "server_seconds": _rounded(cost.server_seconds),
    }
    empty = dict.fromkeys(COLUMNS["metrics"])
    yield from ({**empty, **_scored(row, c, classes)} for c in scores.tested if c != row.departing)


def _scored(row: Measurement, c: int, classes: Sequence[str]) -> Row:
    return {
        **_what(row),
        "class": classes[c],
        "departed": int(row.gone and c == row.departing),
        "f1": _rounded(row.scores.f1[c]),
        "precision": _rounded(row.scores.precision[c]),
        "recall": _rounded(row.scores.recall[c]),
    }


def _diagnostics(rows: Sequence[Measurement], classes: Sequence[str]) -> Iterator[Row]:
    if not rows:
        return
    what = {"seed": rows[0].seed, "round": rows[0].round, "class": classes[rows[0].departing]}
    empty: Row = dict.fromkeys(COLUMNS["diagnostics"])
    space = {**empty, **what, "method": ""}
    drift = next((row.drift for row in rows if row.drift is not None), None)
    if drift is not None:
        space |= {"drift": _rounded(drift.references), "rare_drift": _rounded(drift.rare)}
    step = next((row.step for row in rows if row.step is not None), None)
    if step is not None:
        space |= {"step_references": _rounded(step.references), "step_rare": _rounded(step.rare)}
        space["step_rounds"] = step.rounds
    yield space
    told = set()
    for row in rows:
        if row.notes and row.method not in told:
            told.add(row.method)
            whole = {name for name, column in COLUMNS["diagnostics"].items() if column.kind is int}
            notes = {k: int(v) if k in whole else _rounded(v) for k, v in row.notes.items()}
            yield {**empty, **what, "method": row.method, **notes}


def _confusion(row: Measurement, classes: Sequence[str]) -> Iterator[Row]:
    matrix = row.scores.confusion
    for label, predicted in zip(*np.nonzero(matrix), strict=True):
        count = int(matrix[label, predicted])
        yield {**_what(row), "label": classes[label], "predicted": classes[predicted], "count": count}


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:.6f}" if isinstance(value, float) else str(value)


def _read(path: Path, name: str, check: LineCheck | None) -> Iterator[Row]:
    columns = COLUMNS[name]
    for line in read_lines(path, [column for column in columns if column not in _LATER]):
        record = {c: _value(line, c, kind) if c in line.cells else None for c, kind in columns.items()}
        if name == "diagnostics":
            noted = {c: _value(line, c, _NOTED.get(c, _ANY_OR_NONE)) for c in line.cells if c not in columns}
            record |= {column: value for column, value in noted.items() if value is not None}
        if check is not None:
            check(name, line, record)
        yield record


def _value(line: CsvLine, column: str, kind: Column) -> Any:
    if kind.kind is str:
        return line.text(column)
    if kind.may_be_empty and not line.text(column):
        return None
    if kind.kind is int:
        below = None if kind.most == math.inf else int(kind.most) + 1
        return line.whole(column, least=int(kind.least), below=below)
    return line.number(column, least=kind.least, most=kind.most)
