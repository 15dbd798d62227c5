"""`simulate`: a whole run from its settings, with the tables it gives; killed and started again, it resumes."""

import logging
import shlex
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from mpt.base.settings import default_of
from mpt.base.text import quantity
from mpt.data import Dataset, load
from mpt.federation.engine import Federation, rounds
from mpt.federation.measurement import Measurement
from mpt.federation.plan import Plan
from mpt.federation.state import FederationState
from mpt.federation.upgrades import UpgradedFederation, applicable
from mpt.methods import find_method, find_methods
from mpt.runs import models, record
from mpt.runs.checkpoint import RunCheckpoint
from mpt.runs.config import ConfigError, RunConfig
from mpt.runs.folder import Folder
from mpt.runs.interrupts import Stopped, interruptible
from mpt.runs.manifest import manifest_of
from mpt.runs.models import ModelFolder
from mpt.runs.record import Record, RecordedLabels, Recorder
from mpt.runs.result import RunResult
from mpt.runs.tables import Tables, tables_of

_LOG = logging.getLogger("mpt")

Progress = Callable[[int, int, Sequence[Measurement]], None]
"""Called after every round with the seed, the round's number and its rows."""

Begin = Callable[[Mapping[str, Any]], None]
"""Called once before the first round with the manifest: all that is known beforehand."""

Say = Callable[[str], None]
"""Takes a sentence for the user."""


def simulate(
    config: RunConfig,
    *,
    out: Path | str | None = None,
    overwrite: bool = False,
    begin: Begin | None = None,
    progress: Progress | None = None,
    say: Say = _LOG.warning,
) -> RunResult:
    """Run all seeds of `config` on one device.

    Args:
        config: the settings.
        out: a folder for the results. What an unfinished run of the same settings has left there is resumed; a finished
            one is read and not run again, but for seeds that are new.
        overwrite: whatever run is in the folder, begin anew.
        begin: called once with the manifest, before the first round that is computed.
        progress: called after every round.
        say: takes a sentence on what was left out of the dataset, and on what was found in the folder.

    Raises:
        Stopped: on Ctrl-C, after what has been done is on the disk.
    """
    run = _Run.of(config, say)
    begin = begin or _nothing
    if out is None:
        if config.record:
            raise ConfigError("record: there is no folder to record into, should come with --out DIR")
        begin(run.manifest)
        begun = RunCheckpoint("", config.first_seed, None)
        return RunResult(run.config, run.manifest, run.go(begun, None, progress))
    folder = Folder(_made(Path(out)), run.config, run.manifest, run.device, say)
    with folder.locked():
        return _resume(run, folder, overwrite, begin, progress)


def _nothing(_: Mapping[str, Any]) -> None:
    pass


def _resume(run: "_Run", folder: Folder, overwrite: bool, begin: Begin, progress: Progress | None) -> RunResult:
    """What the folder lacks of the run is computed."""
    if overwrite:
        folder.clear()
    tables = folder.found()
    computed = tables is None or len(tables.seeds) < run.config.seeds
    if tables is None or computed:
        run.check_room(folder.path)
        begin(run.manifest)
        begun = folder.begin(run.dataset, tables or Tables())
        if begun.seed > run.config.first_seed or begun.round:
            where = f"after round {begun.round} of seed {begun.seed}" if begun.round else f"with seed {begun.seed}"
            folder.say(f"{folder.path} holds part of this run, it resumes {where}")
        tables = run.go(begun, folder, progress)
        folder.finish(tables)
    return RunResult(run.config, {**run.manifest, "finished": True}, tables, computed, folder.path)


@dataclass(frozen=True)
class _Run:
    """What a run needs before its first round.

    Attributes:
        federations: by seed; `go` takes each out, so that what it holds on the device goes with its last round.
    """

    config: RunConfig
    dataset: Dataset
    device: str
    federations: dict[int, Federation]
    manifest: dict[str, Any]

    @classmethod
    def of(cls, config: RunConfig, say: Say) -> "_Run":
        """Everything that can be wrong with the settings is said here."""
        device = choose_device(config.device)
        dataset, federations = federations_of(config, device, say)
        if dataset.versions:
            names = {method.name for method in federations[config.first_seed].methods}
            config = replace(config, methods=tuple(text for text in config.methods if find_method(text).name in names))
        if config.partition == "vehicle":
            say(_who_leaves(federations[config.first_seed]))
        for note in federations[config.first_seed].model_notes:
            say(note)
        return cls(config, dataset, device, federations, manifest_of(config, federations, device))

    def check_room(self, out: Path) -> None:
        """`ConfigError` where the disk is too full for the record or the models."""
        first = self.federations[self.config.first_seed]
        samples = len(self.dataset.train.labels) + len(self.dataset.test.labels)
        free = shutil.disk_usage(out).free
        if self.config.record:
            each = record.expected_bytes(first.plan, tuple(first.losses.values()), samples, first.dim)
            needed = self.config.seeds * each - Record.of(out).size
            if needed > free:
                raise ConfigError(
                    f"record: will take about {quantity(needed)}, but {out} has {quantity(free)} left; a larger "
                    "--eval-every records fewer rounds"
                )
        if self.config.models and not self.dataset.versions:
            each = models.expected_bytes(len(first.trainings), self.manifest["model_bytes"])
            needed = self.config.seeds * each - ModelFolder.of(out).size
            if needed > free:
                raise ConfigError(
                    f"models: will take about {quantity(needed)}, but {out} has {quantity(free)} left; --no-models "
                    "keeps none"
                )

    def go(self, begun: RunCheckpoint, folder: Folder | None, progress: Progress | None) -> Tables:
        """From there to the last round of the last seed."""
        last = begun
        try:
            with interruptible() as asked:
                for seed in self.config.seed_numbers[begun.seed - self.config.first_seed :]:
                    federation = self.federations.pop(seed)
                    plan = federation.plan
                    if folder is not None and self.config.record:
                        self._record(folder.path, federation)
                    start = (begun.state if seed == begun.seed else None) or federation.start()
                    for state, rows in rounds(federation, start):
                        if folder is not None and self.config.models and not self.dataset.versions:
                            _keep(folder.path, federation, state, rows)
                        measured = tables_of(rows, (plan.depart_at, plan.rounds), self.dataset.classes)
                        last = last.then(seed, state, measured)
                        if folder is not None:
                            folder.checkpoint(last, always=bool(rows))
                        if progress is not None:
                            progress(seed, state.round, rows)
                        if asked():
                            raise KeyboardInterrupt
        except KeyboardInterrupt:
            where = f"stopped after round {last.round} of seed {last.seed}"
            if folder is None:
                raise Stopped(f"{where}; with --out DIR the same command would resume from there") from None
            folder.checkpoint(last, always=True)
            raise Stopped(f"{where}; the same command resumes from there") from None
        return last.tables

    def _record(self, out: Path, federation: Federation) -> None:
        kept = Record.of(out)
        held = RecordedLabels(federation.labels, self.dataset.test.labels, federation.partition.owner)
        kept.write_samples(federation.plan.seed, held)
        federation.record = Recorder(kept, federation.presence)


def _keep(out: Path, federation: Federation, state: FederationState, rows: Sequence[Measurement]) -> None:
    """The models of the departure and of the last round, each once."""
    plan = federation.plan
    if state.round in (plan.depart_at, plan.rounds):
        trainings = {method.name: method.training for method in federation.methods}
        ModelFolder.of(out).write(plan.seed, state.round, state.models, rows, trainings)


def federations_of(config: RunConfig, device: str, say: Say) -> tuple[Dataset, dict[int, Federation]]:
    """The dataset, and a federation a seed, before the first round."""
    dataset = load(config.dataset, image_size=config.image_size, per_class=config.per_class, say=say)
    rare = _rare(config, dataset)
    dataset.require(rare, 10)
    dataset.require(rare, 1, "test")
    plans = [Plan.of(config, rare, seed) for seed in config.seed_numbers]
    if not dataset.versions:
        return dataset, {plan.seed: Federation(dataset, plan, torch.device(device)) for plan in plans}
    asked = find_methods(config.methods, ridge=config.ridge, cov_ridge=config.cov_ridge)
    methods, left_out = applicable(list(asked.values()))
    for name, why in left_out.items():
        say(f"{name} is left out: {why}")
    return dataset, {p.seed: UpgradedFederation(dataset, p, torch.device(device), methods=methods) for p in plans}


def _rare(config: RunConfig, dataset: Dataset) -> int:
    """The class that departs; where the default is none of the classes, nobody has said one."""
    if config.rare == default_of(RunConfig, "rare") and config.rare not in dataset.classes:
        raise ConfigError(
            f"rare: {config.rare!r}, the default, is no class of {dataset.name}, should be one of "
            f"{', '.join(dataset.classes)}, as in --rare {shlex.quote(dataset.classes[0])}"
        )
    return dataset.class_index(config.rare)


def choose_device(wanted: str) -> str:
    """The device to run on, tried out; "auto" is a GPU where there is one."""
    if wanted == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.zeros(1, device=wanted).cpu()
    except (RuntimeError, AssertionError, NotImplementedError):
        raise ConfigError(
            f"device: {wanted!r} is none that works here, should be auto, cpu, cuda, cuda:1, ..."
        ) from None
    return wanted


def _who_leaves(federation: Federation) -> str:
    partition, rare = federation.partition, federation.dataset.classes[federation.plan.rare]
    held = federation.dataset.count(federation.plan.rare) - partition.remaining
    return (
        f"partition: vehicle {partition.owner} ({partition.names[partition.owner]}) leaves with {held} samples of "
        f"{rare!r}; {partition.remaining} remain on the {len(partition.indices) - 1} others"
    )


def _made(out: Path) -> Path:
    """The folder for the results, made before the work begins."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"out: {out} cannot be made a folder ({error.strerror})") from None
    return out
