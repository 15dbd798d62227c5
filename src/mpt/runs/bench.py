"""Recorded runs as many settings of methods are scored on them: each record is read once, nothing is written there."""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from mpt.federation.plan import Plan
from mpt.federation.view import ServerView
from mpt.methods import Method, find_method
from mpt.runs.config import ConfigError, RunConfig
from mpt.runs.errors import RecordError, RunError
from mpt.runs.reader import is_run
from mpt.runs.record import Record
from mpt.runs.replay import RecordedRound, check_files, read_finished, read_rounds, scored_rounds
from mpt.runs.summary import Figures
from mpt.runs.tables import tables_of

FIGURES = ("mean_f1", "last_f1")
"""Of the class that departs: over the rounds after the departure, or in the last."""
REFERENCE = "oracle-train"
"""What a figure is a share of."""
_SCORED_BY = (
    "seeds",
    "first_seed",
    "rounds",
    "depart_at",
    "events",
    "eval_every",
    "slow_every",
    "readout",
    "ridge",
    "cov_ridge",
)
"""The settings of a run by which its record is scored."""
THINNED_BYTES = 16
"""Of a thinned copy's record in memory, for each on the disk, about."""
_UNKNOWN_MEMORY = 4 * 2**30
Seen = Iterable[tuple[int, Mapping[str, ServerView]]]


@dataclass(frozen=True, eq=False)
class TuningRun:
    """A finished run with a record.

    Attributes:
        folder: of the run.
        config: its settings, with its first readout alone.
        classes: names by index.
        rare: the class that departs.
        trainings: that were recorded.
        key: what the record, and how it is scored, are known by.
    """

    folder: Path
    config: RunConfig
    classes: tuple[str, ...]
    rare: int
    trainings: frozenset[str]
    key: str

    @classmethod
    def of(cls, folder: Path) -> "TuningRun":
        """The run in a folder; `RunError` where there is none that can be replayed from a record."""
        config, manifest, _ = read_finished(folder)
        if not config.record:
            raise RecordError(f"tune: {folder} holds a run without a record, should be of mpt run --record")
        check_files(folder, config, manifest)
        config, rare = replace(config, readout=config.readout[:1]), int(manifest["rare"])
        trainings = frozenset(map(str, manifest["trainings"].values()))
        needed = find_method(REFERENCE).training
        if needed not in trainings:
            raise RecordError(
                f"tune: {folder} has no record of the training {needed!r}, which {REFERENCE} reads, should be of a run "
                f"with {REFERENCE}"
            )
        known = [Record.of(folder).fingerprint(), rare, *(getattr(config, name) for name in _SCORED_BY)]
        key = hashlib.sha256(json.dumps(known).encode()).hexdigest()[:8]
        return cls(folder, config, tuple(manifest["classes"]), rare, trainings, key)

    @property
    def plans(self) -> list[Plan]:
        """One a seed."""
        return [Plan.of(self.config, self.rare, seed) for seed in self.config.seed_numbers]


def tuning_runs(folders: Iterable[Path]) -> tuple[TuningRun, ...]:
    """The runs in folders, or in folders below them, each once, by their keys."""
    found: dict[Path, None] = {}
    for folder in folders:
        if not folder.is_dir():
            raise RunError(f"tune: there is no folder {folder}, should be one of mpt run --record --out")
        below = (path.parent for path in folder.rglob("config.toml"))
        here = [folder] if is_run(folder) else sorted(filter(is_run, below))
        if not here:
            raise RunError(f"tune: {folder} holds no run, should be of mpt run --record --out, or a folder with such")
        found |= dict.fromkeys(path.resolve() for path in here)
    if not found:
        raise ConfigError("runs: none, should be at least one folder of mpt run --record --out")
    runs = sorted((TuningRun.of(_short(path)) for path in found), key=lambda run: run.key)
    for one, other in pairwise(runs):
        if one.key == other.key:
            raise ConfigError(f"runs: {one.folder} and {other.folder} are the same run, should be named once")
    return tuple(runs)


def known_by(runs: Iterable[TuningRun]) -> str:
    """What several runs are known by, in whatever order they were named."""
    return hashlib.sha256(" ".join(sorted(run.key for run in runs)).encode()).hexdigest()[:8]


def _short(path: Path) -> Path:
    """From the current folder, where it is below it."""
    here = Path.cwd().resolve()
    return path.relative_to(here) if path.is_relative_to(here) and path != here else path


class Bench:
    """Scores methods on recorded runs.

    A record is read when it is first needed, and kept as long as there is room; of a run for which there is none it is
    read again every time. What vehicles have answered is kept for one method's settings: `turn_to` another forgets it.
    """

    def __init__(self, runs: Sequence[TuningRun], figure: str, say: Callable[[str], None], room: int | None = None):
        self.runs, self.figure, self.say = runs, figure, say
        self._room = available_memory() // 2 if room is None else room
        self._rounds: dict[tuple[str, int], tuple[RecordedRound, ...] | None] = {}
        self._seen: dict[tuple[str, int], Seen] = {}
        self._reference: dict[tuple[str, int], Figures] = {}

    def turn_to(self) -> None:
        """Another method is next."""
        self._seen.clear()

    def shares(self, spec: str) -> dict[str, float]:
        """By a run's key, the method's figure as a share of oracle-train's in the same seed, the mean over seeds."""
        found = {}
        for run in self.runs:
            method = find_method(spec, ridge=run.config.ridge, cov_ridge=run.config.cov_ridge)
            found[run.key] = float(np.mean([self._share(run, plan, method) for plan in run.plans]))
        return found

    def _share(self, run: TuningRun, plan: Plan, method: Method) -> float:
        """Of one seed, over the rounds in which the method was read out."""
        place = run.key, plan.seed
        if place not in self._reference:
            self._reference[place] = _figures(run, plan, find_method(REFERENCE), self._views(run, plan))
        mine, theirs = _figures(run, plan, method, self._views(run, plan)), self._reference[place]
        (reference,) = theirs.series
        (row,) = (series for series in mine.series if mine.rounds_after(series))
        if self.figure == "last_f1":
            value, whole = mine.last(row)[plan.seed], theirs.last(reference)[plan.seed]
        else:
            value = mine.mean(row)[plan.seed]
            whole = theirs.mean(reference, rounds=mine.rounds_after(row))[plan.seed]
        if whole <= 0:
            raise RecordError(
                f"tune: the {self.figure} of {REFERENCE} is 0 in seed {plan.seed} of {run.folder}, so nothing can be a "
                "share of it; leave the run out"
            )
        return value / whole

    def _views(self, run: TuningRun, plan: Plan) -> Seen:
        """What the server sees in the rounds of a seed."""
        place = run.key, plan.seed
        if place in self._seen:
            return self._seen[place]
        if place not in self._rounds:
            self._rounds[place] = self._read(run, plan)
        kept = self._rounds[place]
        if kept is None:
            return ((one.number, one.seen()) for one in read_rounds(Record.of(run.folder), plan))
        self._seen[place] = [(one.number, one.seen()) for one in kept]
        return self._seen[place]

    def _read(self, run: TuningRun, plan: Plan) -> tuple[RecordedRound, ...] | None:
        """A seed's rounds; None where there is no room for them: float32 in the record is float64 in memory."""
        record = Record.of(run.folder)
        needed = (2 if record.samples(plan.seed).rounds is None else THINNED_BYTES) * record.size // run.config.seeds
        if needed > self._room:
            self.say(f"seed {plan.seed} of {run.folder} has no room in memory and is read again for every try")
            return None
        self._room -= needed
        return tuple(read_rounds(record, plan))


def _figures(run: TuningRun, plan: Plan, method: Method, seen: Seen) -> Figures:
    """Of one method in one seed, as a run's summary takes them."""
    metrics: list[dict[str, Any]] = []
    with np.errstate(all="ignore"):
        for rows in scored_rounds(plan, [method], seen, run.folder):
            metrics.extend(tables_of(rows, (), run.classes).metrics)
    return Figures.of(metrics, run.classes[run.rare], plan.depart_at)


def available_memory() -> int:
    """Bytes that can be had, as Linux says; elsewhere a few gigabytes."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return _UNKNOWN_MEMORY
