"""`simulate`: a whole run from its settings, with the tables it writes."""

import csv
import json
import platform
import subprocess
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

import mpt
from mpt.config import ConfigError, RunConfig
from mpt.data import Dataset, load
from mpt.federation.engine import run
from mpt.federation.evaluation import Row
from mpt.federation.plan import Plan
from mpt.federation.scenario import parse_events
from mpt.learning import Settings
from mpt.methods import find_method

COLUMNS = (
    "seed",
    "round",
    "method",
    "readout",
    "rare_f1",
    "rare_precision",
    "rare_recall",
    "accuracy",
    "balanced_accuracy",
    "prototype_distance",
    "bytes_up",
    "bytes_down",
    "messages",
    "vehicle_seconds",
    "server_seconds",
)
Progress = Callable[[int, int, Sequence[Row]], None]


@dataclass(frozen=True)
class Result:
    """The rows of all seeds, and where they come from."""

    config: RunConfig
    classes: tuple[str, ...]
    rows: tuple[Row, ...]
    manifest: dict[str, Any]

    def records(self) -> list[dict[str, Any]]:
        """The rows of `metrics.csv`."""
        return [_record(row) for row in self.rows]

    def metrics(self) -> Any:
        """The same as a pandas data frame."""
        import pandas as pd

        return pd.DataFrame.from_records(self.records(), columns=COLUMNS)

    def summary(self) -> list[dict[str, Any]]:
        """One row a method and readout: F1 at the last round and mean over the rounds after the departure, by seeds."""
        return summarize(self.rows, self.config.depart_at)


def simulate(config: RunConfig, *, progress: Progress | None = None) -> Result:
    """Run all seeds of `config` on one device."""
    names = [find_method(name).name for name in config.methods]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ConfigError(f"methods: two are called {twice!r}, should differ in their names")
    device = choose_device(config.device)
    dataset = load(config.dataset, image_size=config.image_size).limited(config.per_class)
    rare = dataset.class_index(config.rare)
    dataset.require(rare, 10)
    dataset.require(rare, 1, "test")
    rows: list[Row] = []
    for seed in range(config.seeds):
        on_round = None if progress is None else (lambda number, new, s=seed: progress(s, number, new))
        rows.extend(run(dataset, plan_of(config, rare, seed), device=device, progress=on_round))
    return Result(config, dataset.classes, tuple(rows), manifest_of(dataset, device))


def plan_of(config: RunConfig, rare: int, seed: int) -> Plan:
    """The engine's plan for one seed."""
    return Plan(
        rare=rare,
        methods=config.methods,
        backbone=config.backbone,
        vehicles=config.vehicles,
        remaining=config.remaining,
        dirichlet=config.dirichlet,
        participation=config.participation,
        rounds=config.rounds,
        depart_at=config.depart_at,
        events=parse_events(config.events),
        eval_every=config.eval_every,
        readouts=config.readout,
        ridge=config.ridge,
        cov_ridge=config.cov_ridge,
        settings=Settings(epochs=config.epochs, lr=config.lr, batch_size=config.batch_size, augment=config.augment),
        seed=seed,
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


def summarize(rows: Iterable[Row], depart_at: int) -> list[dict[str, Any]]:
    """F1 at the last round and mean F1 over the evaluated rounds after `depart_at`: mean and deviation over seeds."""
    grouped: dict[tuple[str, str], dict[int, list[Row]]] = {}
    for row in rows:
        if row.round > depart_at:
            grouped.setdefault((row.method, row.readout), {}).setdefault(row.seed, []).append(row)
    table = []
    for (method, readout), seeds in grouped.items():
        last = [max(mine, key=lambda r: r.round) for mine in seeds.values()]
        final = [r.scores.rare_f1 for r in last]
        mean = [float(np.mean([r.scores.rare_f1 for r in mine])) for mine in seeds.values()]
        table.append(
            {
                "method": method,
                "readout": readout,
                "seeds": len(seeds),
                "last_f1": float(np.mean(final)),
                "last_f1_sd": float(np.std(final, ddof=1)) if len(final) > 1 else None,
                "mean_f1": float(np.mean(mean)),
                "mean_f1_sd": float(np.std(mean, ddof=1)) if len(mean) > 1 else None,
                "balanced_accuracy": float(np.mean([r.scores.balanced_accuracy for r in last])),
                "bytes_up": float(np.mean([r.cost.bytes_up for r in last])),
                "bytes_down": float(np.mean([r.cost.bytes_down for r in last])),
            }
        )
    return table


def save(result: Result, out: Path) -> None:
    """Write `config.toml`, `manifest.json` and `metrics.csv` under `out`."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "config.toml").write_text(result.config.to_toml(), encoding="utf-8")
    (out / "manifest.json").write_text(json.dumps(result.manifest, indent=2) + "\n", encoding="utf-8")
    with (out / "metrics.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(result.records())


def manifest_of(dataset: Dataset, device: str) -> dict[str, Any]:
    """What a run's numbers depend on besides its settings."""
    return {
        "mpt": mpt.__version__,
        "commit": _commit(Path(__file__).parents[2]),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name(device) if device.startswith("cuda") else device,
        "dataset": dataset.name,
        "dataset_fingerprint": dataset.fingerprint(),
    }


def _commit(checkout: Path) -> str | None:
    """What is checked out where this file lies in a checkout, None where it is installed."""
    if not (checkout / ".git").exists():
        return None
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        return subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def _record(row: Row) -> dict[str, Any]:
    scores, cost = row.scores, row.cost
    values = (
        row.seed,
        row.round,
        row.method,
        row.readout,
        f"{scores.rare_f1:.6f}",
        f"{scores.rare_precision:.6f}",
        f"{scores.rare_recall:.6f}",
        f"{scores.accuracy:.6f}",
        f"{scores.balanced_accuracy:.6f}",
        "" if row.prototype_distance is None else f"{row.prototype_distance:.6f}",
        cost.bytes_up,
        cost.bytes_down,
        cost.messages,
        f"{cost.vehicle_seconds:.6f}",
        f"{cost.server_seconds:.6f}",
    )
    return dict(zip(COLUMNS, values, strict=True))
