"""A run's model for deployment: what `mpt export RUN` writes and `mpt predict RUN` asks."""

from pathlib import Path
from typing import Any

from mpt.base.extensions import told
from mpt.base.seeds import Series
from mpt.base.text import did_you_mean
from mpt.export import DeployableModel, Metadata
from mpt.export.model import missing_of
from mpt.learning import build
from mpt.runs.errors import RunError
from mpt.runs.models import KeptModels, ModelFolder
from mpt.runs.reader import read_config, read_manifest

PREFERRED = ("mpt-x", "mpt")
"""Whose readout is taken where none is named: the first of these that the run has, or else its first method."""


def deployable(
    folder: Path, method: str | None = None, readout: str | None = None, seed: int | None = None
) -> DeployableModel:
    """The last round's model that a method reads, with its readout.

    Args:
        folder: of a finished run that has kept its models.
        method: whose readout; by default see `PREFERRED`.
        readout: where the method has several; by default its first.
        seed: whose model; by default the run's first.

    Raises:
        RunError: the run is unfinished, has kept no models, or has no such row or seed.
    """
    config, manifest = read_config(folder), read_manifest(folder)
    if not manifest.get("finished"):
        raise RunError(f"{folder}: the run is unfinished; the same mpt run command resumes it")
    first, seeds = int(config.get("first_seed", 0)), int(config.get("seeds", 1))
    seed = first if seed is None else seed
    if not first <= seed < first + seeds:
        raise RunError(f"seed: {seed}, but {folder} has {seeds}, should be from {first} to {first + seeds - 1}")
    kept = ModelFolder.of(folder).read(seed, int(config["rounds"]))
    series = _chosen(kept, method, readout)
    weight, bias = (tensor.double().numpy() for tensor in kept.readouts[series])
    return _made(config, manifest, kept, series, weight, bias)


def _made(
    config: dict[str, Any], manifest: dict[str, Any], kept: KeptModels, series: Series, weight: Any, bias: Any
) -> DeployableModel:
    classes = tuple(manifest["classes"])
    if len(manifest["image_shape"]) != 3:
        kind = "series" if len(manifest["image_shape"]) == 2 else "vectors"
        raise RunError(f"export: the run is of {kind}, should be of images; its models are in the folder's models/")
    _, size, channels = manifest["image_shape"]
    model = build(config["backbone"], num_classes=len(classes), in_channels=channels, image_size=size, seed=0)
    try:
        model.load_state_dict(dict(kept.models[kept.trainings[series.method]]))
    except (RuntimeError, KeyError) as error:
        raise RunError(
            f"the run's model does not fit {config['backbone']} ({told(error)[:200]}); has its file changed since?"
        ) from None
    about = Metadata(
        class_names=classes,
        missing=missing_of(classes, bias),
        tracked=(classes[manifest["rare"]],),
        round=kept.round,
        backbone=config["backbone"],
        in_channels=channels,
        image_size=size,
        mpt=manifest["mpt"],
        method=series.method,
        readout=series.readout,
    )
    return DeployableModel(model.eval(), weight, bias, about)


def _chosen(kept: KeptModels, method: str | None, readout: str | None) -> Series:
    """The row that is meant."""
    names = list(dict.fromkeys(series.method for series in kept.readouts))
    if not names:
        raise RunError("method: no method of the run has a readout that is a linear layer, so none can be exported")
    name = method or next((name for name in PREFERRED if name in names), names[0])
    if name not in names:
        why = "has no linear readout" if name in kept.trainings else "is none of the run"
        raise RunError(f"method: {name!r} {why}, {did_you_mean(name, names, 'should be one of ' + ', '.join(names))}")
    readouts = [series.readout for series in kept.readouts if series.method == name]
    if readout is not None and readout not in readouts:
        raise RunError(f"readout: {name} has no linear readout {readout!r}, should be one of {', '.join(readouts)}")
    return Series(name, readout or readouts[0])
