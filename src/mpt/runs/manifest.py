"""`manifest.json`: what a run's numbers depend on besides its settings, and what is needed to read its tables."""

import platform
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mpt.base.extensions import Extensions, files_of
from mpt.data.registry import DATASETS
from mpt.federation.attacks import ATTACKS, spec_of
from mpt.federation.engine import Federation
from mpt.federation.partition import PARTITIONS
from mpt.federation.readouts import READOUTS
from mpt.learning.aggregation import AGGREGATIONS
from mpt.learning.backbones import BACKBONES
from mpt.learning.losses import LOSSES
from mpt.learning.weights_file import known_by
from mpt.methods import METHODS, TRAININGS, find_method, find_training
from mpt.runs.config import RunConfig
from mpt.runs.tables import FORMAT
from mpt.version import ENGINE, __version__

CHECKED = ("mpt", "torch", "numpy", "device", "dataset_fingerprint", "files", "feature_dim", "model_bytes")
"""What of the manifest determines a run's numbers, besides its settings."""

THINNED, ORIGINAL = "thinned", "original"
"""Of a thinned copy: what was thinned, in its manifest, and the folder with the run's own rows."""


def extensions_of(config: RunConfig) -> list[tuple[Extensions[Any], str]]:
    """Every spec in a run's settings, with the point that it is of; trainings and their losses come with methods."""
    pairs: list[tuple[Extensions[Any], str]] = [(METHODS, name) for name in config.methods]
    trainings = dict.fromkeys(find_method(name).training for name in config.methods)
    pairs += [(TRAININGS, text) for text in trainings]
    losses = [find_training(text).loss for text in trainings]
    pairs += [(LOSSES, loss) for loss in (config.loss, *losses) if isinstance(loss, str)]
    pairs += [(READOUTS, name) for name in config.readout]
    pairs += [(ATTACKS, spec_of(text)) for text in config.attack]
    pairs += [] if config.aggregation is None else [(AGGREGATIONS, config.aggregation)]
    return [*pairs, (PARTITIONS, config.partition), (BACKBONES, config.backbone), (DATASETS, config.dataset)]


def own_files(config: RunConfig) -> dict[str, str]:
    """What the user's own files are known by, by what is written in the settings."""
    weights = {} if config.weights is None else {config.weights: known_by(config.weights)}
    return files_of(extensions_of(config)) | weights


def manifest_of(config: RunConfig, federations: Mapping[int, Federation], device: str) -> dict[str, Any]:
    """All of it, for the federations of a run by seed."""
    first = federations[config.first_seed]
    dataset = first.dataset
    classes = range(dataset.num_classes)
    return {
        "format": FORMAT,
        **machine(device),
        "dataset": dataset.name,
        "dataset_fingerprint": dataset.fingerprint(),
        "dataset_notes": list(dataset.notes),
        "files": own_files(config),
        "trainings": {method.name: method.training for method in first.methods},
        "classes": list(dataset.classes),
        "rare": first.plan.rare,
        "counts": {
            "train": [int(np.sum(dataset.train.labels == c)) for c in classes],
            "test": [int(np.sum(dataset.test.labels == c)) for c in classes],
        },
        "image_shape": list(dataset.sample_shape),
        "vehicles": len(first.labels),
        "vehicle_names": list(first.partition.names),
        "remaining_samples": [federation.partition.remaining for federation in federations.values()],
        "feature_dim": first.dim,
        "model_bytes": first.model_bytes,
    }


def machine(device: str) -> dict[str, Any]:
    """The versions and the device that numbers come from."""
    return {
        "mpt": __version__,
        "bench": ENGINE,
        "commit": commit(Path(__file__).parents[3]),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name(device) if device.startswith("cuda") else device,
    }


def commit(checkout: Path) -> str | None:
    """What is checked out where this file lies in a checkout, None where it is installed."""
    if not (checkout / ".git").exists():
        return None
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        return subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
