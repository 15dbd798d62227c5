"""`simulate`: a whole run from its settings, with the tables it gives; killed and started again, it resumes."""

import logging
import shlex
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from mpt.base.settings import default_of
from mpt.base.text import quantity
from mpt.data import Dataset, load
from mpt.federation.engine import Federation
from mpt.federation.plan import Plan
from mpt.federation.trainers import Trainers
from mpt.federation.upgrades import UpgradedFederation, applicable
from mpt.methods import find_method, find_methods
from mpt.runs import models, record
from mpt.runs.checkpoint import RunCheckpoint
from mpt.runs.config import ConfigError, RunConfig
from mpt.runs.folder import Folder
from mpt.runs.going import Going, Progress, go
from mpt.runs.manifest import manifest_of
from mpt.runs.models import ModelFolder
from mpt.runs.record import Record, RecordedLabels, Recorder
from mpt.runs.result import RunResult
from mpt.runs.tables import Tables

_LOG = logging.getLogger("mpt")

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
    trainers: Trainers | None = None,
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
        trainers: those that other runs of the process have used.

    Raises:
        Stopped: on Ctrl-C, after what has been done is on the disk.
    """
    run = PreparedRun.of(config, say, trainers or Trainers())
    begin = begin or _nothing
    if out is None:
        if config.record:
            raise ConfigError("record: there is no folder to record into, should come with --out DIR")
        begin(run.manifest)
        going = Going(run, None, RunCheckpoint("", config.first_seed, None), progress)
        go([going])
        return RunResult(run.config, run.manifest, going.last.tables)
    folder = run.folder(Path(out), say)
    with folder.locked():
        return _resume(run, folder, overwrite, begin, progress)


def simulate_together(
    configs: Sequence[RunConfig],
    outs: Sequence[Path],
    *,
    progress: Sequence[Progress | None],
    say: Sequence[Say],
    finished: Callable[[RunResult], None] | None = None,
    trainers: Trainers | None = None,
) -> list[RunResult]:
    """Several runs whose models are the same: all that they have in common is trained once.

    Each is written to a folder of its own, as `simulate` writes it. A seed that several of them lack they go through
    together; one that was stopped inside a seed first ends it by itself.

    Args:
        configs: settings that differ in what does not concern training, such as methods.
        outs: their folders.
        progress, say: one each, as in `simulate`.
        finished: called with each that is finished, as soon as it is.
        trainers: as in `simulate`.

    Raises:
        ConfigError: where they would train different models.
        Stopped: on Ctrl-C, after what has been done is on the disk.
    """
    if any(config.attack or config.only_training != configs[0].only_training for config in configs):
        raise ConfigError("runs: they train different models, or with an attack, should differ in what is read out")
    shared = trainers or Trainers()
    runs = [PreparedRun.of(config, told, shared) for config, told in zip(configs, say, strict=True)]
    with ExitStack() as stack:
        folders = [run.folder(Path(out), told) for run, out, told in zip(runs, outs, say, strict=True)]
        for folder in folders:
            stack.enter_context(folder.locked())
        each = zip(runs, folders, progress, strict=True)
        found = [_begun(run, folder, folder.found(), _nothing, watch) for run, folder, watch in each]
        lacking = [going for going in found if isinstance(going, Going)]
        for going in lacking:
            going.finished = finished
        go(lacking)
    return [going.result if isinstance(going, Going) else going for going in found]


def _nothing(_: Mapping[str, Any]) -> None:
    pass


def _resume(run: "PreparedRun", folder: Folder, overwrite: bool, begin: Begin, progress: Progress | None) -> RunResult:
    """What the folder lacks of the run is computed."""
    if overwrite:
        folder.clear()
    going = _begun(run, folder, folder.found(), begin, progress)
    if isinstance(going, RunResult):
        return going
    go([going])
    return going.result


def _begun(
    run: "PreparedRun", folder: Folder, found: Tables | None, begin: Begin, progress: Progress | None
) -> "Going | RunResult":
    """From now on the folder holds this run, unfinished, and it goes on from what is there; or all of it is there."""
    if found is not None and len(found.seeds) >= run.config.seeds:
        return RunResult(run.config, {**run.manifest, "finished": True}, found, False, folder.path)
    run.check_room(folder.path)
    begin(run.manifest)
    begun = folder.begin(run.dataset, found or Tables())
    if begun.seed > run.config.first_seed or begun.round:
        where = f"after round {begun.round} of seed {begun.seed}" if begun.round else f"with seed {begun.seed}"
        folder.say(f"{folder.path} holds part of this run, it resumes {where}")
    return Going(run, folder, begun, progress)


@dataclass(frozen=True)
class PreparedRun:
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
    def of(cls, config: RunConfig, say: Say, trainers: Trainers) -> "PreparedRun":
        """Everything that can be wrong with the settings is said here."""
        device = choose_device(config.device)
        dataset, federations = federations_of(config, device, say)
        for federation in federations.values():
            federation.trainers = trainers
        if dataset.versions:
            names = {method.name for method in federations[config.first_seed].methods}
            config = replace(config, methods=tuple(text for text in config.methods if find_method(text).name in names))
        if config.partition == "vehicle":
            say(_who_leaves(federations[config.first_seed]))
        for note in federations[config.first_seed].model_notes:
            say(note)
        return cls(config, dataset, device, federations, manifest_of(config, federations, device))

    def folder(self, out: Path, say: Say) -> Folder:
        """The run's, made."""
        return Folder(_made(out), self.config, self.manifest, self.device, say)

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

    def record(self, out: Path, federation: Federation) -> None:
        """From now on a federation's evaluated rounds are kept."""
        kept = Record.of(out)
        held = RecordedLabels(federation.labels, self.dataset.test.labels, federation.partition.owner)
        kept.write_samples(federation.plan.seed, held)
        federation.record = Recorder(kept, federation.presence)


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
