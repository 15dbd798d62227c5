"""A run's folder, read and checked: what `mpt run --out DIR` leaves in DIR, and what `mpt replay` has added."""

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpt.base.seeds import Series
from mpt.runs.csvfile import CsvLine, read_text
from mpt.runs.errors import RunError
from mpt.runs.replayed import Replayed
from mpt.runs.summary import Figures
from mpt.runs.tables import COLUMNS, FORMAT, Row, Tables


@dataclass(frozen=True, eq=False)
class Run:
    """A run's files.

    Attributes:
        path: its folder.
        config: the settings, as in `config.toml`.
        manifest: where the numbers come from, as in `manifest.json`.
        tables: the run's rows, and those that were replayed.
        replayed: methods that `mpt replay` has scored, with the training that each reads.
        specs: what was given for each of these, with the name that it has.
    """

    path: Path
    config: Mapping[str, Any]
    manifest: Mapping[str, Any]
    tables: Tables
    replayed: Mapping[str, str]
    specs: Mapping[str, str] = field(default_factory=dict)

    @property
    def classes(self) -> tuple[str, ...]:
        """Names by index."""
        return tuple(self.manifest["classes"])

    @property
    def rare(self) -> int:
        """Index of the class that departed."""
        return int(self.manifest["rare"])

    @property
    def rare_name(self) -> str:
        """Its name."""
        return self.classes[self.rare]

    @property
    def share_remaining(self) -> float | None:
        """Fraction of its samples that stay behind: as set, or by the counts where a partition of one's own made it.

        None where vehicles keep what they have recorded, and where the run does not say.
        """
        partition, share = self.config.get("partition", "concentrate"), self.config.get("remaining")
        if partition == "concentrate":
            return float(share) if isinstance(share, int | float) else None
        counts, left = self.manifest.get("counts"), self.manifest.get("remaining_samples")
        if partition == "vehicle" or not isinstance(counts, dict) or not isinstance(left, list) or not left:
            return None
        return float(f"{sum(left) / len(left) / max(counts['train'][self.rare], 1):.2g}")

    @property
    def depart_at(self) -> int:
        """The last round with the departing vehicle."""
        return int(self.config["depart_at"])

    @property
    def rounds(self) -> int:
        """How many there are to be."""
        return int(self.config["rounds"])

    @property
    def finished(self) -> bool:
        """Whether the run has come to its end."""
        return bool(self.manifest.get("finished", True))

    @cached_property
    def figures(self) -> Figures:
        """Of the class that departed."""
        return Figures.of(self.tables.metrics, self.rare_name, self.depart_at)

    @property
    def diagnostics(self) -> tuple[Row, ...]:
        """What methods noted, and the drift."""
        return self.tables.diagnostics

    @cached_property
    def confusion(self) -> dict[tuple[Series, int], NDArray[np.int64]]:
        """By row and round, (C, C) of all seeds together: label, predicted."""
        found: dict[tuple[Series, int], NDArray[np.int64]] = {}
        places = {name: i for i, name in enumerate(self.classes)}
        for record in self.tables.confusion:
            key = (Series(record["method"], record["readout"]), record["round"])
            matrix = found.setdefault(key, np.zeros((len(places), len(places)), dtype=np.int64))
            matrix[places[record["label"]], places[record["predicted"]]] += record["count"]
        return found

    def training_of(self, method: str) -> str:
        """The training that a method reads; "" where the run does not say."""
        told = self.manifest.get("trainings")
        trainings = {**(told if isinstance(told, dict) else {}), **self.replayed}
        return str(trainings.get(method, ""))

    def row_of(self, spec: str) -> str:
        """The row that a method's spec made, `blend` of `blend.py:Blend`; the text itself where no method had it."""
        specs, told = self.config.get("methods"), self.manifest.get("trainings")
        names = list(told) if isinstance(told, dict) else []
        made = dict(zip(specs, names, strict=True)) if isinstance(specs, list) and len(specs) == len(names) else {}
        return str({**made, **self.specs}.get(spec, spec))


def read_run(folder: Path) -> Run:
    """The files under `folder`; `RunError` where one is missing that must be there, or is broken."""
    if not folder.is_dir():
        what = "is no folder" if folder.exists() else "there is no such folder"
        raise RunError(f"{folder}: {what}, should be one that mpt run --out has written")
    if not (folder / "metrics.csv").exists():
        raise RunError(f"{folder}: has no metrics.csv, should be a folder that mpt run --out has written")
    config, manifest = read_config(folder), read_manifest(folder)
    replayed, more = Replayed.of(folder).read(_Checker.of(config, manifest))
    trainings = {name: str(what["training"]) for name, what in replayed.items()}
    specs = {str(what["method"]): name for name, what in replayed.items() if "method" in what}
    return Run(folder, config, manifest, read_tables(folder) + more, trainings, specs)


def is_run(folder: Path) -> bool:
    """Whether a folder holds a run, begun or finished."""
    return (folder / "manifest.json").is_file() and (folder / "config.toml").is_file()


def read_tables(folder: Path) -> Tables:
    """A run's own tables, checked; `RunError` where one is missing or broken."""
    config, manifest = read_config(folder), read_manifest(folder)
    checker = _Checker.of(config, manifest)
    tables, path = Tables.read(folder, checker), folder / "metrics.csv"
    if not tables.metrics:
        raise RunError(f"{path}: has a header and no more, should have a line for every evaluated round and method")
    if not any(record["class"] == checker.departing for record in tables.metrics):
        raise RunError(f"{path}: has no line of {checker.departing}, the class that departs")
    return tables


def toml_in(path: Path) -> dict[str, Any]:
    """A TOML file that `mpt run` has written."""
    try:
        return tomllib.loads(read_text(path))
    except tomllib.TOMLDecodeError as error:
        raise RunError(f"{path}: is no TOML ({error}), should be as mpt run writes it") from None


def json_in(path: Path, should: str) -> dict[str, Any]:
    """A JSON object that `mpt run` has written; `should` says what it should be."""
    try:
        found = json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise RunError(f"{path}: is no JSON ({error}), should be as mpt run writes it") from None
    if not isinstance(found, dict):
        raise RunError(f"{path}: is a {type(found).__name__}, should be {should}")
    return found


def classes_in(path: Path, manifest: Mapping[str, Any]) -> list[str]:
    """The names of a manifest's classes."""
    classes = manifest.get("classes")
    if not isinstance(classes, list) or len(classes) < 2 or not all(isinstance(name, str) for name in classes):
        raise RunError(f"{path}: classes should be a list of two names or more")
    return classes


def read_config(folder: Path) -> dict[str, Any]:
    """A run's settings, as they stand in its `config.toml`."""
    path = folder / "config.toml"
    config = toml_in(path)
    for key in ("rounds", "depart_at"):
        if not _is_whole(config.get(key), 1):
            raise RunError(f"{path}: {key} is {config.get(key)!r}, should be a whole number of at least 1")
    return config


def read_manifest(folder: Path) -> dict[str, Any]:
    """A run's `manifest.json`."""
    path = folder / "manifest.json"
    manifest = json_in(path, "an object with classes and rare")
    if manifest.get("format", 1) != FORMAT:
        raise RunError(
            f"{path}: the run has format {manifest.get('format', 1)}, this release of mpt reads {FORMAT}; run it again"
        )
    classes = classes_in(path, manifest)
    rare = manifest.get("rare")
    if not _is_whole(rare, 0) or rare not in range(len(classes)):
        raise RunError(f"{path}: rare is {rare!r}, should be the index of a class, from 0 to {len(classes) - 1}")
    return manifest


_WHOLE = tuple(
    name
    for name in COLUMNS["metrics"]
    if name not in ("others_accuracy", "prototype_distance", "in_span_error", "out_of_span_error")
)
"""What the line of the class that departs has in any case."""


@dataclass
class _Checker:
    """What a cell does not show by itself: classes and rounds are the run's, and no line is there twice."""

    classes: tuple[str, ...]
    departing: str
    rounds: int
    seen: set[tuple[Any, ...]] = field(default_factory=set)

    @classmethod
    def of(cls, config: Mapping[str, Any], manifest: Mapping[str, Any]) -> "_Checker":
        """For a run."""
        return cls(tuple(manifest["classes"]), manifest["classes"][manifest["rare"]], int(config["rounds"]))

    def __call__(self, table: str, line: CsvLine, record: Row) -> None:
        """Raise the line's error where something is wrong with it."""
        if not record["method"] and table != "diagnostics":
            raise line.error("method is empty, should be a name")
        if record["round"] > self.rounds:
            raise line.error(f"round is {record['round']}, should be from 1 to {self.rounds}")
        for column in ("class", "label", "predicted"):
            if column in record and record[column] not in self.classes:
                raise line.error(f"{column} is {record[column]!r}, should be one of {', '.join(self.classes)}")
        if table == "metrics":
            self._check_metrics(line, record)

    def _check_metrics(self, line: CsvLine, record: Row) -> None:
        key = (record["seed"], record["round"], record["method"], record["readout"], record["class"])
        if key in self.seen:
            when = f"in round {record['round']} of seed {record['seed']}"
            raise line.error(f"{record['method']} is there twice {when}, with the class {record['class']}")
        self.seen.add(key)
        for column in _WHOLE if record["class"] == self.departing else ():
            if record[column] is None:
                kind = "a whole number" if COLUMNS["metrics"][column].kind is int else "a number"
                raise line.error(f"{column} is '', should be {kind}")


def _is_whole(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least
