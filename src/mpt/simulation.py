"""`simulate`: a whole run from its settings, with the tables it gives; killed and started again, it goes on."""

import hashlib
import importlib
import importlib.util
import logging
import platform
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch

from mpt.checkpoint import Checkpoint
from mpt.config import ConfigError, RunConfig
from mpt.data import Dataset, load
from mpt.federation.engine import Federation, rounds
from mpt.federation.plan import Plan
from mpt.federation.rows import Row
from mpt.folder import Folder
from mpt.learning import Settings
from mpt.methods import file_of, find_method
from mpt.record import Record, Recorder, Samples, expected_bytes
from mpt.report.words import quantity
from mpt.scenario import parse_events
from mpt.tables import Tables, tables_of
from mpt.version import __version__

_AVERAGED = (
    "balanced_accuracy",
    "others_accuracy",
    "bytes_up",
    "bytes_down",
    "readout_bytes_up",
    "readout_bytes_down",
)
_LOG = logging.getLogger("mpt")

Progress = Callable[[int, int, Sequence[Row]], None]
"""Called after every round with the seed, the round's number and its rows."""


class Stopped(KeyboardInterrupt):
    """The user has stopped a run; the message says how far it has come."""


@dataclass(frozen=True)
class Result:
    """The tables of all seeds as data frames, and where they come from.

    Attributes:
        config: the settings.
        manifest: versions, device and dataset, as in `manifest.json`.
        tables: what was measured, as records.
        computed: False where a finished run was found in the folder.
        report: the page that shows it all; None without a folder.
    """

    config: RunConfig
    manifest: dict[str, Any]
    tables: Tables
    computed: bool = True
    report: Path | None = None

    @property
    def metrics(self) -> Any:
        """One row a seed, evaluated round, method and readout."""
        return self.tables.frame("metrics")

    @property
    def costs(self) -> Any:
        """The same rows: bytes of method and readout, messages, seconds on the vehicles and on the server."""
        return self.tables.frame("costs")

    @property
    def diagnostics(self) -> Any:
        """What methods noted (MPT: alpha, growth, lengths); rows without a method have the feature space's drift."""
        return self.tables.frame("diagnostics")

    @property
    def confusion(self) -> Any:
        """Test samples by label and prediction, in the round of the departure and the last."""
        return self.tables.frame("confusion")

    @property
    def summary(self) -> Any:
        """One row a method and readout: F1 at the departure, at the last round and on average after the departure."""
        import pandas as pd

        return pd.DataFrame.from_records(summarize(self.tables, self.config.depart_at))


def simulate(
    config: RunConfig,
    *,
    out: Path | str | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
    say: Callable[[str], None] = _LOG.warning,
) -> Result:
    """Run all seeds of `config` on one device.

    Args:
        config: the settings.
        out: a folder for the results. What an unfinished run of the same settings has left there is gone on from; a
            finished one is read and not run again, but for seeds that are new.
        overwrite: whatever run is in the folder, begin anew.
        progress: called after every round.
        say: takes a sentence on what was left out of the dataset, and on what was found in the folder.

    Raises:
        Stopped: on Ctrl-C, after what has been done is on the disk.
    """
    run = _Run.of(config, say)
    if out is None:
        if config.record:
            raise ConfigError("record: there is no folder to record into, should come with --out DIR")
        return Result(config, run.manifest, run.go(Checkpoint("", 0, None, Tables()), None, progress))
    folder = Folder(_made(Path(out)), config, run.manifest, run.device, say)
    with folder.alone():
        return _go_on(run, folder, overwrite, progress)


def _go_on(run: "_Run", folder: Folder, overwrite: bool, progress: Progress | None) -> Result:
    """What the folder lacks of the run is computed."""
    if overwrite:
        folder.clear()
    tables = folder.found()
    computed = tables is None or _seeds(tables) < run.config.seeds
    if tables is None or computed:
        run.check_room(folder.path)
        begun = folder.begin(run.dataset, tables or Tables())
        if begun.seed or begun.round:
            where = f"after round {begun.round} of seed {begun.seed}" if begun.round else f"with seed {begun.seed}"
            folder.say(f"{folder.path} holds part of this run, it goes on {where}")
        tables = run.go(begun, folder, progress)
        folder.finish(tables)
    report = _report(folder.path, anew=computed)
    return Result(run.config, {**run.manifest, "finished": True}, tables, computed, report)


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
    def of(cls, config: RunConfig, say: Callable[[str], None]) -> "_Run":
        """Everything that can be wrong with the settings is said here."""
        names = [find_method(name).name for name in config.methods]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise ConfigError(f"methods: two are called {twice!r}, should differ in their names")
        device = choose_device(config.device)
        dataset = load(config.dataset, image_size=config.image_size, per_class=config.per_class, say=say)
        rare = dataset.class_index(config.rare)
        dataset.require(rare, 10)
        dataset.require(rare, 1, "test")
        plans = [plan_of(config, rare, seed) for seed in range(config.seeds)]
        federations = {plan.seed: Federation(dataset, plan, torch.device(device)) for plan in plans}
        if config.partition == "vehicle":
            say(_who_leaves(federations[0]))
        return cls(config, dataset, device, federations, manifest_of(config, federations, device))

    def check_room(self, out: Path) -> None:
        """`ConfigError` where the disk is too full for the record."""
        if not self.config.record:
            return
        first, samples = self.federations[0], len(self.dataset.train.labels) + len(self.dataset.test.labels)
        whole = self.config.seeds * expected_bytes(first.plan, first.trainings, samples, first.model.dim)
        needed, free = whole - Record.of(out).size, shutil.disk_usage(out).free
        if needed > free:
            raise ConfigError(
                f"record: will take about {quantity(needed)}, but {out} has {quantity(free)} left; a larger "
                "--eval-every records fewer rounds"
            )

    def go(self, begun: Checkpoint, folder: Folder | None, progress: Progress | None) -> Tables:
        """From there to the last round of the last seed."""
        last = begun
        try:
            with interruptible() as asked:
                for seed in range(begun.seed, self.config.seeds):
                    federation = self.federations.pop(seed)
                    plan = federation.plan
                    if folder is not None and self.config.record:
                        record = Record.of(folder.path)
                        held = Samples(federation.labels, self.dataset.test.labels, federation.partition.owner)
                        record.write_samples(seed, held)
                        federation.record = Recorder(record, federation.presence)
                    start = (begun.state if seed == begun.seed else None) or federation.start()
                    for state, rows in rounds(federation, start):
                        measured = last.tables + tables_of(rows, (plan.depart_at, plan.rounds))
                        last = Checkpoint(last.key, seed, state, measured)
                        if folder is not None:
                            folder.checkpoint(last, always=bool(rows))
                        if progress is not None:
                            progress(seed, state.round, rows)
                        if asked():
                            raise KeyboardInterrupt
        except KeyboardInterrupt:
            where = f"stopped after round {last.round} of seed {last.seed}"
            if folder is None:
                raise Stopped(f"{where}; with --out DIR the same command would go on from there") from None
            folder.checkpoint(last, always=True)
            raise Stopped(f"{where}; the same command goes on from there") from None
        return last.tables


@contextmanager
def interruptible() -> Iterator[Callable[[], bool]]:
    """Gives a function that says whether Ctrl-C was pressed inside.

    Ctrl-C raises `KeyboardInterrupt` as ever, but where that strikes a destructor or a callback Python drops it.
    """
    pressed = False

    def press(number: int, frame: FrameType | None) -> None:
        nonlocal pressed
        pressed = True
        signal.default_int_handler(number, frame)

    usual = threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT)
    if usual is not signal.default_int_handler:
        yield lambda: False
        return
    signal.signal(signal.SIGINT, press)
    try:
        yield lambda: pressed
    finally:
        signal.signal(signal.SIGINT, usual)


def plan_of(config: RunConfig, rare: int, seed: int) -> Plan:
    """The engine's plan for one seed."""
    return Plan(
        rare=rare,
        methods=config.methods,
        backbone=config.backbone,
        partition=config.partition,
        vehicles=config.vehicles,
        remaining=config.remaining,
        dirichlet=config.dirichlet,
        participation=config.participation,
        rounds=config.rounds,
        depart_at=config.depart_at,
        events=parse_events(config.events),
        eval_every=config.eval_every,
        slow_every=config.slow_every,
        readouts=config.readout,
        ridge=config.ridge,
        cov_ridge=config.cov_ridge,
        settings=Settings(epochs=config.epochs, lr=config.lr, batch_size=config.batch_size, augment=config.augment),
        seed=seed,
        engine=config.engine,
        precision=config.precision,
    )


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


def summarize(tables: Tables, depart_at: int) -> list[dict[str, Any]]:
    """F1 at the departure, at the last round and on average over the rounds after `depart_at`, by seeds.

    Only rounds in which all methods were read out count, so that their means are over the same ones.
    """
    departing: dict[tuple[str, str], list[float]] = {}
    grouped: dict[tuple[str, str], dict[int, list[dict[str, Any]]]] = {}
    read_out: dict[tuple[str, str], set[int]] = {}
    for metrics in tables.metrics:
        if metrics["round"] > depart_at:
            read_out.setdefault((metrics["method"], metrics["readout"]), set()).add(metrics["round"])
        elif metrics["round"] == depart_at:
            departing.setdefault((metrics["method"], metrics["readout"]), []).append(metrics["rare_f1"])
    compared = set.intersection(*read_out.values()) if read_out else set[int]()
    for metrics, costs in zip(tables.metrics, tables.costs, strict=True):
        if metrics["round"] in compared:
            seeds = grouped.setdefault((metrics["method"], metrics["readout"]), {})
            seeds.setdefault(metrics["seed"], []).append({**costs, **metrics})
    summary = []
    for (method, readout), by_seed in grouped.items():
        last = [max(mine, key=lambda r: int(r["round"])) for mine in by_seed.values()]
        final = [r["rare_f1"] for r in last]
        mean = [float(np.mean([r["rare_f1"] for r in mine])) for mine in by_seed.values()]
        summary.append(
            {
                "method": method,
                "readout": readout,
                "seeds": len(by_seed),
                "departure_f1": float(np.mean(departing[method, readout])) if (method, readout) in departing else None,
                "last_f1": float(np.mean(final)),
                "last_f1_sd": float(np.std(final, ddof=1)) if len(final) > 1 else None,
                "mean_f1": float(np.mean(mean)),
                "mean_f1_sd": float(np.std(mean, ddof=1)) if len(mean) > 1 else None,
                **{name: float(np.mean([r[name] for r in last])) for name in _AVERAGED},
            }
        )
    return summary


def manifest_of(config: RunConfig, federations: Mapping[int, Federation], device: str) -> dict[str, Any]:
    """What a run's numbers depend on besides its settings, and what is needed to read its tables."""
    first = federations[0]
    dataset, state = first.dataset, first.model.state_dict()
    files = {name: path for name in config.methods if (path := file_of(name)) is not None}
    classes = range(dataset.num_classes)
    return {
        "mpt": __version__,
        "commit": _commit(Path(__file__).parents[2]),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name(device) if device.startswith("cuda") else device,
        "dataset": dataset.name,
        "dataset_fingerprint": dataset.fingerprint(),
        "dataset_notes": list(dataset.notes),
        "method_files": {name: hashlib.sha256(path.read_bytes()).hexdigest()[:16] for name, path in files.items()},
        "classes": list(dataset.classes),
        "rare": first.plan.rare,
        "counts": {
            "train": [int(np.sum(dataset.train.labels == c)) for c in classes],
            "test": [int(np.sum(dataset.test.labels == c)) for c in classes],
        },
        "vehicles": len(first.labels),
        "vehicle_names": list(first.partition.names),
        "remaining_samples": [federation.partition.remaining for federation in federations.values()],
        "feature_dim": first.model.dim,
        "model_bytes": sum(tensor.numel() * tensor.element_size() for tensor in state.values()),
    }


def _who_leaves(federation: Federation) -> str:
    partition, rare = federation.partition, federation.dataset.classes[federation.plan.rare]
    held = federation.dataset.count(federation.plan.rare) - partition.remaining
    return (
        f"partition: vehicle {partition.owner} ({partition.names[partition.owner]}) leaves with {held} samples of "
        f"{rare!r}; {partition.remaining} remain on the {len(partition.holdings) - 1} others"
    )


def _made(out: Path) -> Path:
    """The folder for the results, made before the work begins."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"out: {out} cannot be made a folder ({error.strerror})") from None
    return out


def _seeds(tables: Tables) -> int:
    return len({record["seed"] for record in tables.metrics})


def _report(folder: Path, *, anew: bool) -> Path | None:
    page = folder / "report.html"
    if importlib.util.find_spec("mpt.report") is None:
        return None
    if anew or not page.exists():
        page = importlib.import_module("mpt.report").write_report(folder)
    return page


def _commit(checkout: Path) -> str | None:
    """What is checked out where this file lies in a checkout, None where it is installed."""
    if not (checkout / ".git").exists():
        return None
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        return subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
