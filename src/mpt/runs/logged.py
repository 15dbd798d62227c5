"""What of a run goes to other packages: the names and values that MLflow, Weights & Biases and TensorBoard get."""

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mpt.base.extensions import told
from mpt.base.files import write_atomically
from mpt.base.seeds import Series
from mpt.federation.measurement import Measurement
from mpt.runs.config import RunConfig
from mpt.runs.result import RunResult

TRACKING = "tracking.json"
"""In a run's folder: which of MLflow's and Weights & Biases' runs its seeds are."""
FILES = (
    *("report.html", "config.toml", "manifest.json", "samples.png"),
    *("metrics.csv", "diagnostics.csv", "confusion.csv"),
)
"""What of a run's folder is logged at its end, with the first seed."""
_CURVES = ("f1", "precision", "recall", "accuracy", "balanced_accuracy", "others_accuracy")


def scalars(row: Measurement) -> dict[str, float]:
    """What is logged of a row, by name."""
    mine = {name: float(getattr(row.scores, name)[row.departing]) for name in ("f1", "precision", "recall")}
    whole = {name: getattr(row.scores, name) for name in ("accuracy", "balanced_accuracy", "others_accuracy")}
    distance = {} if row.prototype_distance is None else {"prototype_distance": row.prototype_distance}
    return {**mine, **whole, **distance, **row.notes}


def prefixed(rows: Iterable[Measurement]) -> dict[str, float]:
    """The same of several rows, as METHOD.READOUT.NAME."""
    named = ((_name(Series(row.method, row.readout)), scalars(row)) for row in rows)
    return _finite({f"{name}.{key}": value for name, values in named for key, value in values.items()})


def parameters(config: RunConfig, seed: int) -> dict[str, Any]:
    """The settings, and the seed."""
    return {**asdict(config), "seed": seed}


def tags(manifest: Mapping[str, Any]) -> dict[str, str]:
    """What else numbers depend on: versions, the commit, the device and the data."""
    names = ("mpt", "commit", "device", "torch", "numpy", "dataset_fingerprint")
    return {f"mpt.{name}": str(manifest[name]) for name in names if manifest.get(name) is not None}


def curves_of(result: RunResult, seed: int) -> Iterator[tuple[int, dict[str, float]]]:
    """A seed's rounds and their figures, from the tables of a run that was computed before."""
    found: dict[int, dict[str, float]] = {}
    for record in result.figures.metrics:
        if record["seed"] == seed:
            name = _name(Series(record["method"], record["readout"]))
            figures = {f"{name}.{column}": record[column] for column in _CURVES if record[column] is not None}
            found.setdefault(record["round"], {}).update(figures)
    yield from sorted(found.items())


def summary_of(result: RunResult, seed: int) -> dict[str, float]:
    """A seed's last F1 and its mean after the departure, by row, and the balanced accuracy."""
    found: dict[str, float] = {}
    for row in result.figures.summaries:
        name = f"summary.{_name(row.series)}"
        values = {
            "last_f1": result.figures.last(row.series).get(seed),
            "mean_f1": row.mean_by_seed.get(seed),
            "balanced_accuracy": result.figures.last(row.series, "balanced_accuracy").get(seed),
        }
        found |= {f"{name}.{key}": value for key, value in values.items() if value is not None}
    return _finite(found)


def files_of(result: RunResult) -> list[Path]:
    """What there is of `FILES`."""
    return [] if result.folder is None else [path for name in FILES if (path := result.folder / name).is_file()]


def without_password(place: str) -> str:
    """An address without a user's name and password, which are written nowhere.

    Example:
        >>> without_password("https://me:secret@host:5000/mlflow")
        'https://host:5000/mlflow'
    """
    return re.sub(r"(?<=://)[^/\s]*@", "", place)


def why(error: Exception) -> str:
    """What another package says of its failure, in a line of at most 200 characters."""
    return without_password(told(error))[:200]


def known_runs(folder: Path | None, name: str, place: str) -> dict[int, str]:
    """By seed, the runs that a folder's `tracking.json` has of a package at a place."""
    try:
        found = json.loads((folder / TRACKING).read_text(encoding="utf-8"))[name] if folder else {}
        there: dict[str, str] = found.get("runs", {}) if found.get("place") == without_password(place) else {}
        return {int(seed): str(run) for seed, run in there.items()}
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return {}


def keep_runs(folder: Path | None, name: str, place: str, runs: Mapping[int, str]) -> None:
    """Write them there."""
    if folder is None:
        return
    try:
        found = json.loads((folder / TRACKING).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        found = {}
    kept = {**(found if isinstance(found, dict) else {}), name: {"place": without_password(place), "runs": dict(runs)}}
    write_atomically(folder / TRACKING, (json.dumps(kept, indent=2) + "\n").encode())


def plain(name: str) -> str:
    """A row's name without what folders and MLflow do not take.

    Example:
        >>> plain("mpt(ridge=0.3)")
        'mpt-ridge-0.3'
    """
    return re.sub(r"[^\w.]+", "-", name).strip("-")


def _name(series: Series) -> str:
    return f"{plain(series.method)}.{plain(series.readout)}"


def _finite(values: Mapping[str, float]) -> dict[str, float]:
    return {name: float(value) for name, value in values.items() if math.isfinite(value)}
