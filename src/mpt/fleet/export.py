"""A fleet's model for deployment: the last checkpoint's backbone with the current readout as its last linear layer.

Of "mpt-duo" two models: the current one, and the one of the latest departure.
"""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from mpt.core.two_views import JoinedViews
from mpt.export import EXTENSIONS, ClassStanding, DeployableModel, Metadata, Origin, Release
from mpt.export.model import missing_of
from mpt.export.release import settings_hash
from mpt.export.two_models import TwoModelMetadata, TwoModels
from mpt.fleet.checkpoint import json_object, read_part
from mpt.fleet.exchange import Arrays
from mpt.fleet.reference_models import models_in, unpacked
from mpt.fleet.store import TRACKER, Checkpoint, Store, StoreError
from mpt.fleet.vehicle import load
from mpt.learning import Classifier, build
from mpt.methods import calibrated
from mpt.tracking import state as states
from mpt.tracking.prototypes import read_out
from mpt.tracking.trusted import meanwhile


def deployable(store: Store, hesitation: float | None = None) -> DeployableModel:
    """The model and the readout of a store's last checkpoint.

    Args:
        store: of the server.
        hesitation: of a readout of two models: up to which the earlier one is asked, Eq. (D6); by default always.

    Raises:
        FleetError: where there is none, or it holds no model, or one model where `hesitation` is given.
    """
    return _deployable(_latest(store), hesitation)


def releasable(store: Store, hesitation: float | None = None) -> Release:
    """The same, with where it comes from and what the server says of its classes."""
    found = _latest(store)
    model = _deployable(found, hesitation)
    key, state = read_part(found, "key", json_object), read_part(found, TRACKER, states.from_bytes)
    origin = Origin(
        kind="fleet",
        method=state.settings.method,
        readout="",
        settings=settings_hash(key),
        dataset=None if key.get("classes") else key.get("dataset"),
        dataset_fingerprint=None,
        seed=state.settings.seed,
        mpt=model.metadata.mpt,
        commit=None,
        classes=tuple(_standings(state, model.metadata)),
    )
    return Release(model, origin)


def _standings(state: states.TrackerState, about: Metadata) -> Iterator[ClassStanding]:
    """How each class's prototype came about in the last round."""
    stats = None if state.snapshot is None else state.snapshot.everybody
    apart = {} if stats is None else meanwhile(
        state.settings, state.trusted, state.tracked.keys(), state.roster, stats, state.counts
    )  # fmt: skip
    holds = calibrated(state.settings.method)
    for c, name in enumerate(about.class_names):
        if name in about.missing:
            yield ClassStanding(name, "missing")
        elif state.linear is None and state.made[c] < state.round:
            yield ClassStanding(name, "kept")
        elif c in state.health:
            known = state.health[c]
            yield ClassStanding(name, "reconstructed", known.verdict if holds else None, float(known.expected_error))
        elif c in apart:
            made = apart[c].made
            error = None if made is None or made.expected_error is None else float(made.expected_error)
            yield ClassStanding(name, "reconstructed", made.verdict if made and holds else None, error)
        elif c in state.tracked and not _carried(state, c):
            yield ClassStanding(name, "departed")
        else:
            yield ClassStanding(name, "measured")


def _carried(state: states.TrackerState, c: int) -> bool:
    """Whether a class with a deposit is measured: samples carry it, or the deposit is of this round's answers."""
    if state.snapshot is None:
        return False
    one = state.tracked[c]
    there = int(state.snapshot.everybody.counts[c])
    return state.settings.carries(there, one.samples) or one.round == state.round


def _latest(store: Store) -> Checkpoint:
    found = store.latest()
    if found is None:
        raise StoreError("no whole checkpoint of a fleet's server is there, and no run; should be one of them")
    for part in (TRACKER, "model", "key"):
        if part not in found.payload:
            raise StoreError(f"the checkpoint of round {found.round} has no part {part!r}, so it holds no whole model")
    return found


def _deployable(found: Checkpoint, hesitation: float | None) -> DeployableModel:
    key, state = read_part(found, "key", json_object), read_part(found, TRACKER, states.from_bytes)
    for name in ("class_names", "backbone", "in_channels", "image_size_used"):
        if name not in key:
            raise StoreError(f"the key of round {found.round} has no {name!r}; it is of an older release")
    readout, references = read_out(state, [], most=1)
    if readout is None:
        raise StoreError(f"no class has a prototype in round {found.round}, so there is no readout to export")
    classes = tuple(key["class_names"])
    channels, size = key["in_channels"], key["image_size_used"]
    alone = readout.current if isinstance(readout, JoinedViews) else readout
    weight, bias = (np.asarray(array, dtype=np.float64) for array in alone.to_linear())
    about = Metadata(
        class_names=classes,
        missing=missing_of(classes, bias),
        tracked=tuple(classes[c] for c in sorted(state.tracked)),
        round=found.round,
        backbone=key["backbone"],
        in_channels=channels,
        image_size=size,
        input_shape=(channels, size, size),
        mpt=key.get("mpt", ""),
    )
    made = DeployableModel(_model(about, read_part(found, "model", unpacked)), weight, bias, about)
    if isinstance(readout, JoinedViews):
        return _two(made, readout, references[0], models_in(found), hesitation)
    if hesitation is not None:
        raise StoreError(f"hesitation: {hesitation:g}, but the readout of round {found.round} reads one model")
    return made


def _model(about: Metadata, state: Arrays) -> Classifier:
    """The backbone with these weights, in evaluation mode."""
    classes, channels, size = len(about.class_names), about.in_channels, about.image_size
    model = build(about.backbone, num_classes=classes, in_channels=channels, image_size=size, seed=0)
    load(model, state)
    return model.eval()


def _two(
    made: DeployableModel, readout: JoinedViews, round: int, kept: Mapping[int, Arrays], hesitation: float | None
) -> TwoModels:
    """The current model and the one of an earlier round, with their rule."""
    if hesitation is not None and not hesitation >= 0:
        raise StoreError(f"hesitation: {hesitation:g}, should be 0 or more")
    if round not in kept:
        raise StoreError(f"the checkpoint of round {made.metadata.round} has no model of round {round}, should have it")
    limit = math.inf if hesitation is None else readout.gap_limit(hesitation)
    about = TwoModelMetadata(**vars(made.metadata), ask_below=f"{limit:.6g}", earlier_round=round)
    earlier, (weight, bias) = _model(about, kept[round]), readout.layers()[1]
    return TwoModels(made.model, made.weight, made.bias, about, earlier, weight, bias, readout.departed, limit)


def default_name(where: str, kind: str) -> Path:
    """The file that is written where none is named: beside the state.

    Example:
        >>> default_name("sqlite:state/fleet.db", "onnx").as_posix()
        'state/fleet.onnx'
        >>> default_name("state", "torchscript").as_posix()
        'state/model.pt'
    """
    path = Path(where.removeprefix("sqlite:"))
    in_file = where.startswith("sqlite:") or path.is_file()
    return path.with_suffix(EXTENSIONS[kind]) if in_file else path / f"model{EXTENSIONS[kind]}"
