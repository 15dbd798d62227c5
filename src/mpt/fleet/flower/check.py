"""`mpt fleet check`: what `flwr run` would do with these settings, before anything is started."""

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from mpt.base.files import LockedError, exclusive_lock, importable
from mpt.data import DataError, load_test
from mpt.data.encoded import SMALLEST_SIDE
from mpt.fleet.checkpoint import json_object, read_part
from mpt.fleet.exchange import nbytes
from mpt.fleet.flower.config import AppConfig, examined, names
from mpt.fleet.flower.given import given
from mpt.fleet.flower.server_app import Ready, key_of, loss_of, prepare
from mpt.fleet.server import differing
from mpt.fleet.store import SqliteStore, open_store
from mpt.fleet.vehicle import arrays
from mpt.learning import LearningError
from mpt.learning.losses import find_loss
from mpt.learning.weights_file import known_by as weights_known_by
from mpt.methods import MethodError, find_on_fleet, find_training
from mpt.scenario import PlanError, parse_events, read_presence
from mpt.tracking.errors import FleetError


@dataclass(frozen=True)
class Checked:
    """What was found.

    Attributes:
        problems: why the run would fail, a sentence each; none: it can be started.
        notes: what it would do, a sentence each.
        taken: whether the one problem is that another server writes to the state folder now.
    """

    problems: tuple[str, ...]
    notes: tuple[str, ...] = ()
    taken: bool = False


class _StateLockedError(FleetError):
    """Another server writes to the state folder."""


def check(texts: Sequence[str], app: Path = Path()) -> Checked:
    """Hold settings, as after `flwr run -c`, against everything that can be known on this machine.

    The model is built, the data that the server needs are loaded, and the state is looked at, without changing it.
    Where a setting is wrong the others are still looked at, so that most of what is wrong is said at once.

    Args:
        texts: the settings.
        app: the app's folder, in which files of the user's own are looked for, as Flower finds them.
    """
    if not app.is_dir():
        return Checked((f"app: there is no folder {app}, should be the one that flwr run is given",))
    with importable(app.resolve()):
        return _check(texts)


def _check(texts: Sequence[str]) -> Checked:
    try:
        chosen, problems = examined(given(texts, "config"))
    except FleetError as error:
        return Checked((str(error),))
    config = AppConfig(**chosen)
    parts = (_scenario, _method, _loss, _weights, _prepared, _kept if not problems else _place)
    found, notes, taken = list(problems), list[str](), False
    for part in (*parts, _test_set):
        try:
            if part is not _test_set or found:
                notes += part(_mended(config) if problems else config)
        except (FleetError, LearningError, DataError, PlanError) as error:
            found.append(str(error).removeprefix("config: "))
            taken = isinstance(error, _StateLockedError)
    said = tuple(dict.fromkeys(found))
    return Checked(said, () if said else tuple(notes), taken and len(said) == 1)


def _mended(config: AppConfig) -> AppConfig:
    """Without what is wrong with settings beside each other, which has been said."""
    classes = tuple(dict.fromkeys(config.class_names))
    if len(classes) == 1:
        classes = (*classes, f"not {classes[0]}")
    watch = [name for name in names(config.watch) if name in classes] if classes else []
    size = config.image_size or (32 if classes else 0)
    release = min(config.release_share, config.watch_share)
    return replace(
        config, classes=",".join(classes), watch=",".join(watch[:-1]), image_size=size, release_share=release
    )


def _scenario(config: AppConfig) -> list[str]:
    if config.events.endswith(".csv"):
        read_presence(config.events)
    else:
        parse_events(config.events)
    return []


def _method(config: AppConfig) -> list[str]:
    """It can be had here, where the server's files are."""
    try:
        made = find_on_fleet(config.method, ridge=config.ridge, cov_ridge=config.cov_ridge)
    except MethodError as error:
        raise FleetError(str(error)) from None
    said = "not trained on" if find_training(made.training).holds_out else "trained on"
    loss = loss_of(config)
    with_loss = "" if loss == AppConfig.loss else f", all with the loss {loss}"
    return [f"method {config.method}: remaining samples of departed classes are {said}{with_loss}"]


def _loss(config: AppConfig) -> list[str]:
    """It can be had, also where the method is wrong."""
    find_loss(config.loss)
    return []


def _weights(config: AppConfig) -> list[str]:
    """The file can be read, also where the backbone is wrong and nothing is loaded."""
    if config.weights:
        weights_known_by(config.weights)
    return []


def _prepared(config: AppConfig) -> list[str]:
    ready = prepare(config)
    settings = config.tracker(ready.classes, ready.model.dim)
    size = nbytes(arrays(ready.model.state_dict()))
    side, channels = ready.model.image_size, ready.model.in_channels
    free = settings.capacity - len(settings.watch)
    more = f"up to {free} more as one vehicle holds {settings.watch_share:.0%} of them" if free > 0 else "no others"
    notes = [
        f"{config.backbone}: {len(ready.classes)} classes, d = {ready.model.dim}, {size:,} bytes a model, "
        f"images of {side} x {side} x {channels}",
        f"classes: {', '.join(ready.classes)}",
        f"watched from the first round on: {', '.join(ready.classes[c] for c in settings.watch) or 'none'}; {more}",
    ]
    notes += ready.model.notes
    if config.freeze:
        notes.append("freeze: vehicles train the head alone, the backbone stays as it is")
    if config.shadow:
        notes.append("shadow mode: no class is held out of training before mpt fleet approve says so")
    return notes + _tested(ready)


def _test_set(config: AppConfig) -> list[str]:
    """The test samples can be read; for where something else is wrong already."""
    if config.test:
        load_test(config.test, image_size=SMALLEST_SIDE, say=lambda _: None)
    return []


def _tested(ready: Ready) -> list[str]:
    if ready.test is None:
        return ['test: none, so there will be no F1; test = "folder:PATH" has it']
    counts = torch.bincount(ready.test.labels, minlength=len(ready.classes)).tolist()
    notes = ["test samples: " + ", ".join(f"{name} {n}" for name, n in zip(ready.classes, counts, strict=True))]
    lacking = [name for name, n in zip(ready.classes, counts, strict=True) if not n]
    if lacking:
        notes.append(f"no test samples, hence no F1: {', '.join(lacking)}")
    if ready.left_out:
        counted = ", ".join(f"{name} {n}" for name, n in sorted(ready.left_out.items()))
        notes.append(f"test samples left out, of classes that are none of the fleet's: {counted}")
    return notes


def _place(config: AppConfig) -> list[str]:
    """The state's folder can be made, or written to."""
    if not config.state:
        return ["state: none, so nothing survives the server"]
    place = _folder(config)
    if not place.exists():
        above = next(folder for folder in place.absolute().parents if folder.exists())
        if not _writable(above):
            raise FleetError(f"state: {place} cannot be made, this user cannot write to {above}")
        return [f"state: {place} is not there yet and will be made: the fleet begins with round 1"]
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        raise FleetError(f"state: this user cannot write to {place}, should be a folder of its own")
    return []


def _writable(folder: Path) -> bool:
    """Whether a file can be made there; a nameless one is, since /proc and the like only say that it could."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _folder(config: AppConfig) -> Path:
    store = open_store(config.state)
    return store.path.parent if isinstance(store, SqliteStore) else store.folder


def _kept(config: AppConfig) -> list[str]:
    """Whether the fleet begins, or is resumed from a checkpoint."""
    if notes := _place(config):
        return notes
    place, found = _folder(config), open_store(config.state).latest()
    if found is None:
        return [f"state: {place} holds no checkpoint: the fleet begins with round 1", *_taken(place)]
    if "key" not in found.payload:
        raise FleetError(f"state: round {found.round} in {place} is not a server's, give another place")
    key = read_part(found, "key", json_object)
    if wrong := differing(key, key_of(config, prepare(config))):
        raise FleetError(wrong)
    if found.round >= config.num_rounds:
        return [f"state: round {found.round} of {config.num_rounds} is done already, nothing is left to do"]
    return [f"state: {place} holds round {found.round}: the fleet resumes with round {found.round + 1}", *_taken(place)]


def _taken(place: Path) -> list[str]:
    try:
        with exclusive_lock(place):
            return []
    except LockedError:
        raise _StateLockedError(f"state: another server writes to {place}; stop it first, or give another") from None
