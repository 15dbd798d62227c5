"""A run's figures, round by round, in TensorBoard or MLflow where one of them is installed."""

import importlib
import re
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal, Protocol, get_args

from mpt.federation.measurement import Measurement
from mpt.runs.config import ConfigError, RunConfig

Name = Literal["tensorboard", "mlflow"]
_MODULES: dict[str, str] = {"tensorboard": "torch.utils.tensorboard", "mlflow": "mlflow"}


class MetricLogger(Protocol):
    """Takes the rows of every round."""

    def __call__(self, seed: int, number: int, rows: Sequence[Measurement]) -> None:
        """Log the rows of one round."""
        ...

    def close(self) -> None:
        """No more rounds come."""
        ...


def track(name: str, config: RunConfig, out: Path | None) -> MetricLogger:
    """The logger of that name, or `ConfigError` where it is not installed."""
    if name not in get_args(Name):
        raise ConfigError(f"track: {name!r}, should be tensorboard or mlflow")
    if name == "tensorboard" and out is None:
        raise ConfigError("track: tensorboard writes into the results' folder, should come with --out DIR")
    try:
        module = importlib.import_module(_MODULES[name])
    except ImportError:
        raise ConfigError(f"track: {name} is not installed, pip install {name} brings it") from None
    return _TensorBoard(module, Path(out)) if name == "tensorboard" and out else _MLflow(module, config)


def scalars(row: Measurement) -> dict[str, float]:
    """What is logged of a row, by name."""
    mine = {name: float(getattr(row.scores, name)[row.departing]) for name in ("f1", "precision", "recall")}
    whole = {name: getattr(row.scores, name) for name in ("accuracy", "balanced_accuracy", "others_accuracy")}
    distance = {} if row.prototype_distance is None else {"prototype_distance": row.prototype_distance}
    return {**mine, **whole, **distance, **row.notes}


def _plain(name: str) -> str:
    """A row's name without what folders and MLflow do not take: `mpt(ridge=0.3)` is `mpt-ridge-0.3`."""
    return re.sub(r"[^\w.]+", "-", name).strip("-")


class _TensorBoard:
    """Curves under OUT/tensorboard, one run a seed, method and readout."""

    def __init__(self, module: Any, out: Path) -> None:
        self.module, self.folder = module, out / "tensorboard"
        self.writers: dict[str, Any] = {}

    def __call__(self, seed: int, number: int, rows: Sequence[Measurement]) -> None:
        for row in rows:
            name = f"seed-{seed}/{_plain(row.method)}/{_plain(row.readout)}"
            if name not in self.writers:
                self.writers[name] = self.module.SummaryWriter(str(self.folder / name), purge_step=number)
            for key, value in scalars(row).items():
                self.writers[name].add_scalar(key, value, number)
        for writer in self.writers.values() if rows else ():
            writer.flush()

    def close(self) -> None:
        for writer in self.writers.values():
            writer.close()


class _MLflow:
    """One MLflow run a seed in the experiment "mpt", where MLflow's own settings say; metrics: METHOD.READOUT.NAME."""

    def __init__(self, module: Any, config: RunConfig) -> None:
        self.module, self.config, self.seed = module, config, -1
        module.set_experiment("mpt")

    def __call__(self, seed: int, number: int, rows: Sequence[Measurement]) -> None:
        if seed != self.seed:
            self.close()
            self.seed = seed
            self.module.start_run(run_name=f"{self.config.dataset} {self.config.rare} seed {seed}")
            self.module.log_params({**asdict(self.config), "seed": seed})
        for row in rows:
            prefix = f"{_plain(row.method)}.{_plain(row.readout)}"
            values = {f"{prefix}.{key}": value for key, value in scalars(row).items()}
            self.module.log_metrics(values, step=number)

    def close(self) -> None:
        if self.module.active_run() is not None:
            self.module.end_run()
