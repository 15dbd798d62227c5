"""The files of a run, read and checked: what `mpt run --out DIR` leaves in DIR."""

import base64
import importlib
import io
import json
import math
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from mpt.report.csvfile import Line, read_table, read_text
from mpt.report.errors import ReportError

LARGE_IMAGE, LARGEST_IMAGE = 60_000, 2_000_000
_PNG = b"\x89PNG\r\n\x1a\n"
_T = TypeVar("_T")


class Row(NamedTuple):
    """What a series of points is: a method under a readout."""

    method: str
    readout: str


class Metric(NamedTuple):
    """One line of `metrics.csv`; the distance and the others' accuracy are NaN where there are none."""

    seed: int
    round: int
    row: Row
    rare_f1: float
    rare_precision: float
    rare_recall: float
    accuracy: float
    balanced_accuracy: float
    others_accuracy: float
    prototype_distance: float
    bytes_up: int
    bytes_down: int
    seconds: float


class Diagnostic(NamedTuple):
    """One line of `diagnostics.csv`; the method is "" for the feature space itself, NaN is what does not apply."""

    seed: int
    round: int
    method: str
    alpha: float
    drift: float
    rare_drift: float
    expected_error: float = math.nan
    verdict: float = math.nan


@dataclass(frozen=True)
class Run:
    """A run's files.

    Attributes:
        config: the settings, as in `config.toml`.
        manifest: where the numbers come from, as in `manifest.json`.
        classes: names by index.
        rare: index of the class that departed.
        depart_at: the last round with the departing vehicle.
        rounds: how many there are to be.
        finished: whether the run has come to its end.
        metrics: one a seed, evaluated round, method and readout.
        readout_bytes: what a row's readout sends in a round beyond the method; one value a line of `costs.csv`.
        diagnostics: alpha, drift, and what errors methods expected.
        confusion: by row and round, (C, C) of all seeds together: label, predicted.
        image: `samples.png` as a data URI.
        replayed: methods that `mpt replay` has scored on the run's record.
    """

    config: dict[str, Any]
    manifest: dict[str, Any]
    classes: tuple[str, ...]
    rare: int
    depart_at: int
    rounds: int
    finished: bool
    metrics: tuple[Metric, ...]
    readout_bytes: dict[Row, dict[int, list[int]]]
    diagnostics: tuple[Diagnostic, ...]
    confusion: dict[tuple[Row, int], NDArray[np.int64]]
    image: str | None
    replayed: tuple[str, ...] = ()

    @property
    def rows(self) -> tuple[Row, ...]:
        """In the order of the file."""
        return tuple(dict.fromkeys(m.row for m in self.metrics))

    @property
    def seeds(self) -> tuple[int, ...]:
        """That have at least one line."""
        return tuple(sorted({m.seed for m in self.metrics}))

    @property
    def rare_name(self) -> str:
        """Of the class that departed."""
        return self.classes[self.rare]


def read_run(folder: Path) -> Run:
    """The files under `folder`; `ReportError` where one is missing that must be there, or is broken."""
    if not folder.is_dir():
        what = "is no folder" if folder.exists() else "there is no such folder"
        raise ReportError(f"{folder}: {what}, should be one that mpt run --out has written")
    if not (folder / "metrics.csv").exists():
        raise ReportError(f"{folder}: has no metrics.csv, should be a folder that mpt run --out has written")
    config = _config(folder / "config.toml")
    manifest = _manifest(folder / "manifest.json")
    classes = tuple(manifest["classes"])
    run = Run(
        config=config,
        manifest=manifest,
        classes=classes,
        rare=manifest["rare"],
        depart_at=config["depart_at"],
        rounds=config["rounds"],
        finished=bool(manifest.get("finished", True)),
        metrics=_metrics(folder / "metrics.csv", config["rounds"]),
        readout_bytes=_if_there(_readout_bytes, folder / "costs.csv", {}),
        diagnostics=_if_there(_diagnostics, folder / "diagnostics.csv", ()),
        confusion=_if_there(lambda path: _confusion(path, len(classes)), folder / "confusion.csv", {}),
        image=_if_there(_image, folder / "samples.png", None),
    )
    return _with_replayed(run, folder / "replay")


def _with_replayed(run: Run, folder: Path) -> Run:
    """The run with the rows that `mpt replay` has put into its folder."""
    trainings: dict[str, str] = _if_there(_trainings, folder / "methods.json", {})
    if not trainings:
        return run
    return replace(
        run,
        manifest={**run.manifest, "trainings": {**run.manifest.get("trainings", {}), **trainings}},
        metrics=run.metrics + _metrics(folder / "metrics.csv", run.rounds),
        readout_bytes=run.readout_bytes | _readout_bytes(folder / "costs.csv"),
        diagnostics=run.diagnostics + _diagnostics(folder / "diagnostics.csv"),
        confusion=run.confusion | _confusion(folder / "confusion.csv", len(run.classes)),
        replayed=tuple(trainings),
    )


def _if_there(read: Callable[[Path], _T], path: Path, otherwise: _T) -> _T:
    return read(path) if path.exists() else otherwise


def _config(path: Path) -> dict[str, Any]:
    try:
        config = tomllib.loads(read_text(path))
    except tomllib.TOMLDecodeError as error:
        raise ReportError(f"{path}: is no TOML ({error}), should be as mpt run writes it") from None
    for key in ("rounds", "depart_at"):
        if not _is_whole(config.get(key), 1):
            raise ReportError(f"{path}: {key} is {config.get(key)!r}, should be a whole number of at least 1")
    return config


def _manifest(path: Path) -> dict[str, Any]:
    try:
        manifest = json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise ReportError(f"{path}: is no JSON ({error}), should be as mpt run writes it") from None
    if not isinstance(manifest, dict):
        raise ReportError(f"{path}: is a {type(manifest).__name__}, should be an object with classes and rare")
    classes = manifest.get("classes")
    if not isinstance(classes, list) or len(classes) < 2 or not all(isinstance(name, str) for name in classes):
        raise ReportError(f"{path}: classes should be a list of two names or more")
    rare = manifest.get("rare")
    if not _is_whole(rare, 0) or rare not in range(len(classes)):
        raise ReportError(f"{path}: rare is {rare!r}, should be the index of a class, from 0 to {len(classes) - 1}")
    return manifest


def _trainings(path: Path) -> dict[str, str]:
    """The training that each replayed method reads."""
    try:
        methods = json.loads(read_text(path))
        return {str(name): str(what["training"]) for name, what in methods.items()}
    except (ValueError, AttributeError, KeyError, TypeError):
        raise ReportError(f"{path}: cannot be read, should be as mpt replay writes it") from None


def _is_whole(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


_SCORES = ("rare_f1", "rare_precision", "rare_recall", "accuracy", "balanced_accuracy")


def _row(line: Line) -> Row:
    if not line.text("method"):
        raise line.error("method is empty, should be a name")
    return Row(line.text("method"), line.text("readout"))


def _metrics(path: Path, rounds: int) -> tuple[Metric, ...]:
    others = ("others_accuracy", "prototype_distance", "bytes_up", "bytes_down", "messages", "seconds")
    metrics: dict[tuple[int, int, Row], Metric] = {}
    for line in read_table(path, ("seed", "round", "method", "readout", *_SCORES, *others)):
        metric = Metric(
            seed=line.whole("seed"),
            round=line.whole("round", least=1, below=rounds + 1),
            row=_row(line),
            prototype_distance=line.number_of("prototype_distance", may_be_empty=True),
            bytes_up=line.whole("bytes_up"),
            bytes_down=line.whole("bytes_down"),
            seconds=line.number_of("seconds"),
            others_accuracy=line.number_of("others_accuracy", most=1.0, may_be_empty=True),
            **{column: line.number_of(column, most=1.0) for column in _SCORES},
        )
        key = (metric.seed, metric.round, metric.row)
        if key in metrics:
            raise line.error(f"{metric.row.method} is there twice in round {metric.round} of seed {metric.seed}")
        metrics[key] = metric
    if not metrics:
        raise ReportError(f"{path}: has a header and no more, should have a line for every evaluated round and method")
    return tuple(metrics.values())


def _readout_bytes(path: Path) -> dict[Row, dict[int, list[int]]]:
    """By row and round."""
    found: dict[Row, dict[int, list[int]]] = {}
    columns = ("seed", "round", "method", "readout", "readout_bytes_up", "readout_bytes_down")
    for line in read_table(path, columns):
        total = line.whole("readout_bytes_up") + line.whole("readout_bytes_down")
        found.setdefault(_row(line), {}).setdefault(line.whole("round", least=1), []).append(total)
    return found


def _diagnostics(path: Path) -> tuple[Diagnostic, ...]:
    numbers, later = ("alpha", "drift", "rare_drift"), {"expected_error": math.inf, "verdict": 2.0}
    return tuple(
        Diagnostic(
            seed=line.whole("seed"),
            round=line.whole("round", least=1),
            method=line.text("method"),
            **{column: line.number_of(column, least=-math.inf, may_be_empty=True) for column in numbers},
            **{c: line.number_of(c, most=most, may_be_empty=True) for c, most in later.items() if c in line.cells},
        )
        for line in read_table(path, ("seed", "round", "method", *numbers))
    )


def _confusion(path: Path, classes: int) -> dict[tuple[Row, int], NDArray[np.int64]]:
    found: dict[tuple[Row, int], NDArray[np.int64]] = {}
    for line in read_table(path, ("seed", "round", "method", "readout", "label", "predicted", "count")):
        line.whole("seed")
        key = (_row(line), line.whole("round", least=1))
        matrix = found.setdefault(key, np.zeros((classes, classes), dtype=np.int64))
        matrix[line.whole("label", below=classes), line.whole("predicted", below=classes)] += line.whole("count")
    return found


def _image(path: Path) -> str | None:
    """A data URI, of fewer colours where the image is large; None for one that would make the page too large."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ReportError(f"{path}: cannot be read ({error.strerror}), should be a PNG image") from None
    if not data.startswith(_PNG) or b"IEND" not in data[-12:]:
        raise ReportError(f"{path}: is no whole PNG image, should be one or not be there")
    if len(data) > LARGE_IMAGE:
        data = _of_fewer_colours(data)
    return None if len(data) > LARGEST_IMAGE else "data:image/png;base64," + base64.b64encode(data).decode("ascii")


def _of_fewer_colours(data: bytes) -> bytes:
    """The image with 256 colours where Pillow is there and that helps, or else as it is."""
    try:
        pillow = importlib.import_module("PIL.Image")
        smaller = io.BytesIO()
        pillow.open(io.BytesIO(data)).convert("RGB").quantize(256).save(smaller, "PNG", optimize=True)
    except (ImportError, OSError, ValueError):
        return data
    return min(data, smaller.getvalue(), key=len)


def known(value: float) -> bool:
    """Whether a number is one."""
    return not math.isnan(value)
