"""A run's model for deployment: what `mpt export RUN` writes and `mpt predict RUN` asks."""

import math
from pathlib import Path
from typing import Any

from mpt.base.extensions import told
from mpt.base.seeds import Series
from mpt.base.text import did_you_mean
from mpt.core.health import VERDICTS
from mpt.export import ClassStanding, DeployableModel, Metadata, Origin, Release
from mpt.export.model import missing_of
from mpt.export.release import settings_hash
from mpt.export.two_models import TwoModelMetadata, TwoModels
from mpt.learning import Classifier
from mpt.learning.backbones import build_for
from mpt.learning.backbones.classifier import KINDS
from mpt.methods import calibrated
from mpt.runs.errors import RunError
from mpt.runs.models import JoinedLayer, KeptModels, ModelFolder
from mpt.runs.reader import read_config, read_manifest, read_tables

PREFERRED = ("mpt-x", "mpt")
"""Whose readout is taken where none is named: the first of these that the run has, or else its first method."""
FEATURES = "features"
_OF_FEATURES = (
    "a run of precomputed features, in which no backbone was trained, so there is no model; should be a run of images, "
    "series or vectors"
)


def deployable(
    folder: Path | str,
    method: str | None = None,
    readout: str | None = None,
    seed: int | None = None,
    hesitation: float | None = None,
) -> DeployableModel:
    """The last round's model that a method reads, with its readout.

    Args:
        folder: of a finished run that has kept its models.
        method: whose readout; by default see `PREFERRED`.
        readout: where the method has several; by default its first.
        seed: whose model; by default the run's first.
        hesitation: of a readout of two models: up to which the earlier one is asked, Eq. (D6); by default always.

    Raises:
        RunError: the run is unfinished, is of features and has no model, has kept no models, or has no such row or
            seed, or the row has one model.
    """
    folder = Path(folder)
    config, manifest = read_config(folder), read_manifest(folder)
    if not manifest.get("finished"):
        raise RunError(f"{folder}: the run is unfinished; the same mpt run command resumes it")
    if samples_of(manifest) == FEATURES:
        raise RunError(f"export: {folder} is {_OF_FEATURES}")
    first, seeds = int(config.get("first_seed", 0)), int(config.get("seeds", 1))
    seed = _seed(config, seed)
    if not first <= seed < first + seeds:
        raise RunError(f"seed: {seed}, but {folder} has {seeds}, should be from {first} to {first + seeds - 1}")
    kept = ModelFolder.of(folder).read(seed, int(config["rounds"]))
    series = _chosen(kept, method, readout)
    weight, bias = (tensor.double().numpy() for tensor in kept.readouts[series])
    made = _made(config, manifest, kept, series, weight, bias)
    if series not in kept.joined:
        if hesitation is not None:
            raise RunError(f"hesitation: {hesitation:g}, but {series.method} reads one model, should be left out")
        return made
    before = ModelFolder.of(folder).read(seed, int(config["depart_at"]))
    return _two(config, manifest, before, made, kept.joined[series], hesitation)


def _two(
    config: dict[str, Any],
    manifest: dict[str, Any],
    before: KeptModels,
    made: DeployableModel,
    layer: JoinedLayer,
    hesitation: float | None,
) -> TwoModels:
    if hesitation is not None and not hesitation >= 0:
        raise RunError(f"hesitation: {hesitation:g}, should be 0 or more")
    limit = math.inf if hesitation is None else hesitation * layer.scale
    earlier = _model(config, manifest, before, made.metadata.method)
    weight, bias = (tensor.double().numpy() for tensor in layer[:2])
    about = TwoModelMetadata(**vars(made.metadata), ask_below=f"{limit:.6g}", earlier_round=before.round)
    return TwoModels(made.model, made.weight, made.bias, about, earlier, weight, bias, layer.departed, limit)


def _model(config: dict[str, Any], manifest: dict[str, Any], kept: KeptModels, method: str) -> Classifier:
    """The model that a method reads, in evaluation mode."""
    model = build_for(config["backbone"], _input_shape(manifest), num_classes=len(manifest["classes"]), seed=0)
    try:
        model.load_state_dict(dict(kept.models[kept.trainings[method]]))
    except (RuntimeError, KeyError) as error:
        raise RunError(
            f"the run's model does not fit {config['backbone']} ({told(error)[:200]}); has its file changed since?"
        ) from None
    return model.eval()


def releasable(
    folder: Path | str,
    method: str | None = None,
    readout: str | None = None,
    seed: int | None = None,
    hesitation: float | None = None,
) -> Release:
    """The same, with where it comes from and what the run says of the class that departed."""
    folder = Path(folder)
    model = deployable(folder, method, readout, seed, hesitation)
    config, manifest = read_config(folder), read_manifest(folder)
    about, seed = model.metadata, _seed(config, seed)
    classes = tuple(
        ClassStanding(name, "missing") if name in about.missing
        else _departed(folder, name, about, seed) if name in about.tracked
        else ClassStanding(name, "measured")
        for name in about.class_names
    )  # fmt: skip
    origin = Origin(
        kind="run",
        method=about.method,
        readout=about.readout,
        settings=settings_hash(config),
        dataset=str(config["dataset"]),
        dataset_fingerprint=manifest.get("dataset_fingerprint"),
        seed=seed,
        mpt=about.mpt,
        commit=manifest.get("commit"),
        classes=classes,
    )
    return Release(model, origin)


def _seed(config: dict[str, Any], seed: int | None) -> int:
    return int(config.get("first_seed", 0)) if seed is None else seed


def _departed(folder: Path, name: str, about: Metadata, seed: int) -> ClassStanding:
    """Of the class that departed: what the method noted of itself in the model's round."""
    tables, place = read_tables(folder), (seed, about.round, about.method, name)
    whose = ("seed", "round", "method", "class")
    gone = any(r["departed"] for r in tables.metrics if tuple(r[key] for key in whose) == place)
    if not gone:
        return ClassStanding(name, "measured")
    noted = next((r for r in tables.diagnostics if tuple(r[key] for key in whose) == place), {})
    error, verdict = noted.get("expected_error"), noted.get("verdict")
    if error is None:
        return ClassStanding(name, "departed")
    if verdict is None or not calibrated(about.method):
        return ClassStanding(name, "reconstructed", None, float(error))
    return ClassStanding(name, "reconstructed", VERDICTS[int(verdict)], float(error))


def samples_of(manifest: dict[str, Any]) -> str:
    """What a run is of: images, series, vectors, or features that were there beforehand."""
    return FEATURES if manifest.get("model_bytes") == 0 else KINDS[len(manifest["image_shape"])]


def check_images(folder: Path) -> None:
    """`RunError` where a run's model cannot be asked about image files."""
    kind = samples_of(read_manifest(folder))
    if kind == FEATURES:
        raise RunError(f"predict: {folder} is {_OF_FEATURES}")
    if kind != "images":
        raise RunError(
            f"predict: {folder} is a run of {kind}, should be of images; mpt export {folder} writes its model as a "
            f"file that takes {kind}"
        )


def _input_shape(manifest: dict[str, Any]) -> tuple[int, ...]:
    """Of one sample, as the model takes it: channels first."""
    *rest, last = manifest["image_shape"]
    return (last, *rest) if len(rest) == 2 else (*rest, last)


def _made(
    config: dict[str, Any], manifest: dict[str, Any], kept: KeptModels, series: Series, weight: Any, bias: Any
) -> DeployableModel:
    classes, shape = tuple(manifest["classes"]), _input_shape(manifest)
    about = Metadata(
        class_names=classes,
        missing=missing_of(classes, bias),
        tracked=(classes[manifest["rare"]],),
        round=kept.round,
        backbone=config["backbone"],
        in_channels=shape[0],
        image_size=shape[-1] if len(shape) > 1 else 1,
        input_shape=shape,
        mpt=manifest["mpt"],
        method=series.method,
        readout=series.readout,
    )
    return DeployableModel(_model(config, manifest, kept, series.method), weight, bias, about)


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
