"""The tables of a run, as records, as CSV files and as data frames; reading what was written gives the same again."""

import csv
import io
import math
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from mpt.federation.rows import Row
from mpt.files import write_atomically

Record = dict[str, Any]
Columns = dict[str, type]

_WHAT: Columns = {"seed": int, "round": int, "method": str, "readout": str}
COLUMNS: dict[str, Columns] = {
    "metrics": {
        **_WHAT,
        "rare_f1": float,
        "rare_precision": float,
        "rare_recall": float,
        "accuracy": float,
        "balanced_accuracy": float,
        "others_accuracy": float,
        "prototype_distance": float,
        "in_span_error": float,
        "out_of_span_error": float,
        "bytes_up": int,
        "bytes_down": int,
        "messages": int,
        "seconds": float,
    },
    "costs": {
        **_WHAT,
        "messages": int,
        "bytes_up": int,
        "bytes_down": int,
        "readout_bytes_up": int,
        "readout_bytes_down": int,
        "vehicle_seconds": float,
        "server_seconds": float,
    },
    "diagnostics": {
        "seed": int,
        "round": int,
        "method": str,
        "alpha": float,
        "growth": float,
        "noise": float,
        "remaining": int,
        "in_span_norm": float,
        "predicted_norm": float,
        "measured_norm": float,
        "residual_norm": float,
        "drift": float,
        "rare_drift": float,
    },
    "confusion": {**_WHAT, "label": int, "predicted": int, "count": int},
}
"""What each file of a run's folder has, as its columns' names and kinds; `diagnostics` gets a column more for whatever
else a method notes."""


@dataclass(frozen=True)
class Tables:
    """All that a run has measured so far. Numbers are rounded to six decimals, as in the files; None is an empty cell.

    Attributes:
        metrics: one record a seed, evaluated round, method and readout.
        costs: the same rows, with what was sent and how long it took.
        diagnostics: what methods noted, and one record a round, without a method, with the drift.
        confusion: test samples by label and prediction, in the round of the departure and the last.
    """

    metrics: tuple[Record, ...] = ()
    costs: tuple[Record, ...] = ()
    diagnostics: tuple[Record, ...] = ()
    confusion: tuple[Record, ...] = ()

    def __add__(self, other: "Tables") -> "Tables":
        return Tables(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    def only(self, methods: Container[str], seeds: Container[int] | None = None) -> "Tables":
        """The records of some methods, of some seeds."""

        def wanted(record: Mapping[str, Any]) -> bool:
            return record["method"] in methods and (seeds is None or record["seed"] in seeds)

        return Tables(*(tuple(filter(wanted, getattr(self, f.name))) for f in fields(self)))

    def frame(self, name: str) -> Any:
        """One of them as a pandas data frame."""
        import pandas as pd

        records, columns = getattr(self, name), columns_of(name, getattr(self, name))
        made = pd.DataFrame.from_records(list(records), columns=list(columns))
        gaps = {c for c in columns for r in records if r.get(c) is None}
        kinds = {int: "Int64", float: "float64", str: "object"}
        return made.astype({c: "int64" if k is int and c not in gaps else kinds[k] for c, k in columns.items()})

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
    def read(cls, folder: Path) -> "Tables":
        """What `write` wrote."""
        return cls(**{name: tuple(_read(folder / f"{name}.csv", name)) for name in COLUMNS})


def tables_of(rows: Sequence[Row], confused: Iterable[int]) -> Tables:
    """The rows of one round; with its confusion matrices where it is one of `confused`."""
    return Tables(
        tuple(map(_metrics, rows)),
        tuple(map(_costs, rows)),
        tuple(_diagnostics(rows)),
        tuple(record for row in rows if row.round in set(confused) for record in _confusion(row)),
    )


def columns_of(name: str, records: Iterable[Record]) -> Columns:
    """The columns of a table, those that methods noted of their own last."""
    columns = dict(COLUMNS[name])
    for record in records:
        for column in record:
            columns.setdefault(column, float)
    return columns


def _rounded(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else round(float(value), 6) + 0.0


def _what(row: Row) -> Record:
    return {"seed": row.seed, "round": row.round, "method": row.method, "readout": row.readout}


def _metrics(row: Row) -> Record:
    scores, cost = row.scores, row.cost
    return {
        **_what(row),
        "rare_f1": _rounded(scores.rare_f1),
        "rare_precision": _rounded(scores.rare_precision),
        "rare_recall": _rounded(scores.rare_recall),
        "accuracy": _rounded(scores.accuracy),
        "balanced_accuracy": _rounded(scores.balanced_accuracy),
        "others_accuracy": _rounded(scores.others_accuracy),
        "prototype_distance": _rounded(row.prototype_distance),
        "in_span_error": _rounded(row.span_errors and row.span_errors[0]),
        "out_of_span_error": _rounded(row.span_errors and row.span_errors[1]),
        "bytes_up": cost.bytes_up,
        "bytes_down": cost.bytes_down,
        "messages": cost.messages,
        "seconds": _rounded(cost.vehicle_seconds + cost.server_seconds),
    }


def _costs(row: Row) -> Record:
    cost, readout = row.cost, row.readout_cost
    return {
        **_what(row),
        "messages": cost.messages,
        "bytes_up": cost.bytes_up,
        "bytes_down": cost.bytes_down,
        "readout_bytes_up": readout.bytes_up,
        "readout_bytes_down": readout.bytes_down,
        "vehicle_seconds": _rounded(cost.vehicle_seconds),
        "server_seconds": _rounded(cost.server_seconds),
    }


def _diagnostics(rows: Sequence[Row]) -> Iterator[Record]:
    if not rows:
        return
    empty: Record = dict.fromkeys(COLUMNS["diagnostics"])
    space = {**empty, "seed": rows[0].seed, "round": rows[0].round, "method": ""}
    drift = next((row.drift for row in rows if row.drift is not None), None)
    if drift is not None:
        space |= {"drift": _rounded(drift.references), "rare_drift": _rounded(drift.rare)}
    yield space
    told = set()
    for row in rows:
        if row.notes and row.method not in told:
            told.add(row.method)
            kinds = COLUMNS["diagnostics"]
            notes = {k: int(v) if kinds.get(k) is int else _rounded(v) for k, v in row.notes.items()}
            yield {**empty, "seed": row.seed, "round": row.round, "method": row.method, **notes}


def _confusion(row: Row) -> Iterator[Record]:
    matrix = row.scores.confusion
    for label, predicted in zip(*np.nonzero(matrix), strict=True):
        count = int(matrix[label, predicted])
        yield {**_what(row), "label": int(label), "predicted": int(predicted), "count": count}


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:.6f}" if isinstance(value, float) else str(value)


def _read(path: Path, name: str) -> Iterator[Record]:
    with path.open(newline="", encoding="utf-8") as file:
        for line in csv.DictReader(file):
            record = {}
            for column, cell in line.items():
                kind = COLUMNS[name].get(column, float)
                if cell or kind is str:
                    record[column] = kind(cell)
                elif column in COLUMNS[name]:
                    record[column] = None
            yield record
