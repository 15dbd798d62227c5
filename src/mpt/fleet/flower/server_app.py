"""The server's app: `mpt.fleet.flower.server_app:app` in a Flower project."""

import json
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from mpt.base.errors import MptError
from mpt.base.files import LockedError, exclusive_lock, private_folder
from mpt.data import load_test
from mpt.fleet.evaluation import evaluate_readout
from mpt.fleet.flower.config import AppConfig, dashed, names
from mpt.fleet.flower.transport import FlowerTransport, refuse_claimed_ids
from mpt.fleet.local_data import loaded, named, samples
from mpt.fleet.log import DecisionLog, append, now, stamp
from mpt.fleet.server import VERSION, Finished, RoundScores, Server
from mpt.fleet.store import SqliteStore, open_store
from mpt.fleet.vehicle import arrays
from mpt.learning import Classifier, Samples, build
from mpt.learning.losses import find_loss
from mpt.methods import find_on_fleet, find_training
from mpt.tracking.errors import FleetError
from mpt.tracking.tracker import Tracker
from mpt.version import __version__

_MAY_CHANGE = (
    *("num_rounds", "state", "deadline", "quorum", "tail", "tail_seconds", "min_vehicles", "timeout", "max_attempts"),
    *("events", "fail", "test", "train_share", "report_share", "evaluate_every", "validation"),
)
"""What may differ between a run and the one that resumes it."""


def server_app(after: Callable[[Finished], None] | None = None, **defaults: Any) -> ServerApp:
    """The app of the server; `defaults` are settings of `AppConfig` for what the run's configuration leaves open.

    Args:
        after: called with every finished round.
        defaults: for what the run's configuration leaves open.
    """
    made = ServerApp()

    @made.main()
    def main(grid: Grid, context: Context) -> None:
        serve(AppConfig.of({**dashed(defaults), **context.run_config}), grid, after)

    return made


def serve(config: AppConfig, grid: Grid, after: Callable[[Finished], None] | None = None) -> None:
    """All rounds, from where the state folder left off."""
    refuse_claimed_ids(grid, config.vehicle_ids, "config: vehicle-ids")  # type: ignore[arg-type]
    folder = folder_of(config)
    with ExitStack() as stack:
        if folder is not None:
            try:
                stack.enter_context(exclusive_lock(folder))
            except LockedError:
                raise FleetError(f"state: another server writes to {folder}; stop it first, or give another") from None
        _serve(config, grid, folder, after)


def _serve(config: AppConfig, grid: Grid, folder: Path | None, after: Callable[[Finished], None] | None) -> None:
    ready = prepare(config)
    for note in ready.model.notes:
        _say(note)
    for name, count in sorted(ready.left_out.items()):
        _say(f"test: {count} samples of {name!r} are left out, which is none of the fleet's classes")

    def record(finished: Finished) -> RoundScores:
        line = summary(finished, ready)
        _say(sentence(line, config))
        if folder is not None:
            append(folder / "rounds.jsonl", json.dumps(line) + "\n", rotate=True)
        return {name: line[name] for name in ("accuracy", "f1") if name in line}

    server = server_of(config, ready, grid)
    server.record = record
    server.resume()
    if server.tracker.round >= config.num_rounds:
        _say(f"round {server.tracker.round} of {config.num_rounds} is done already")
    for finished in server.rounds(config.num_rounds):
        if after is not None:
            after(finished)


@dataclass(frozen=True, eq=False)
class Ready:
    """What the server needs before its first round.

    Attributes:
        classes: the fleet's.
        model: fresh.
        test: samples to evaluate on; None where the server has none.
        left_out: how many test samples there are of classes that are none of the fleet's, by their names.
    """

    classes: tuple[str, ...]
    model: Classifier
    test: Samples | None
    left_out: Mapping[str, int] = field(default_factory=dict)


def prepare(config: AppConfig) -> Ready:
    """The classes, a fresh model, and test samples where the server has any."""
    dataset, classes, size, channels = None, config.class_names, config.image_size, config.channels
    if not classes:
        dataset = loaded(config.dataset, image_size=size, per_class=config.per_class)
        classes, (_, size, channels) = dataset.classes, dataset.image_shape
    elif not size:
        raise FleetError("config: image-size is 0, should be given where classes are")
    unknown = [name for name in names(config.watch) if name not in classes]
    if unknown:
        raise FleetError(f"config: watch names {unknown[0]!r}, should be of {', '.join(classes)}")
    if dataset is not None and config.rare not in classes:
        raise FleetError(f"config: rare = {config.rare!r}, should be of {', '.join(classes)}")
    model = build(
        config.backbone,
        num_classes=len(classes),
        in_channels=channels,
        image_size=size,
        seed=config.seed,
        weights=config.weights or None,
        freeze=config.freeze,
    )
    if config.test:
        return Ready(classes, model, *_test(config.test, classes, size, channels))
    return Ready(classes, model, None if dataset is None else samples(dataset.test))


def _test(spec: str, classes: tuple[str, ...], size: int, channels: int) -> tuple[Samples, dict[str, int]]:
    """The server's test samples, their classes matched by name, and what of them is left out."""
    data = load_test(spec, image_size=size)
    known, unknown = named(samples(data.train, grey_as_colour=channels == 3), data, classes)
    if not len(known.labels):
        raise FleetError(f"test: {spec} has no samples of the fleet's classes, {', '.join(classes)}")
    if known.images.shape[1] != channels:
        raise FleetError(f"test: {spec} has images of {known.images.shape[1]} channels, should be {channels}")
    return known, unknown


def server_of(config: AppConfig, ready: Ready, grid: Grid) -> Server:
    """The server over a grid."""
    tracker = Tracker(config.tracker(ready.classes, ready.model.dim))
    folder = folder_of(config)
    log = DecisionLog(None if folder is None else folder / "decisions.jsonl")
    return Server(
        ready.model,
        arrays(ready.model.state_dict()),
        tracker,
        FlowerTransport(grid, config.vehicle_ids, restarts=not config.events),  # type: ignore[arg-type]
        config.policy,
        key_of(config, ready),
        loss_of(config),
        open_store(config.state) if config.state else None,
        log.write,
    )


def loss_of(config: AppConfig) -> str:
    """What vehicles minimise: what the method's training says, or else the configuration."""
    try:
        loss = find_training(find_on_fleet(config.method).training).loss or config.loss
        find_loss(loss)
    except MptError as error:
        raise FleetError(str(error)) from None
    if not isinstance(loss, str):
        raise FleetError(
            f"method: {config.method!r} trains with a function, which no vehicle can be told; its training's loss "
            "should be a text, such as path.py:function"
        )
    return loss


def key_of(config: AppConfig, ready: Ready) -> dict[str, Any]:
    """What a checkpoint must agree in, to be resumed from."""
    key = {name: value for name, value in asdict(config).items() if name not in _MAY_CHANGE}
    built = {"in_channels": ready.model.in_channels, "image_size_used": ready.model.image_size}
    return {**key, **built, VERSION: __version__, "class_names": list(ready.classes)}


def folder_of(config: AppConfig) -> Path | None:
    """Where logs go: into the state folder, or beside the state file."""
    if not config.state:
        return None
    store = open_store(config.state)
    folder = store.path.parent if isinstance(store, SqliteStore) else store.folder
    try:
        private_folder(folder)
    except OSError as error:
        raise FleetError(
            f"state: {folder} cannot be made ({error.strerror}), should be a folder or sqlite:PATH"
        ) from None
    return folder


def summary(finished: Finished, ready: Ready) -> dict[str, Any]:
    """A round as a line of `rounds.jsonl`."""
    record: dict[str, Any] = {
        "time": stamp(now()),
        "round": finished.round,
        "asked": finished.asked,
        "updated": finished.updated,
        "answered": len(finished.outcome.answered),
        "seconds": round(finished.seconds, 3),
        "bytes_down": finished.bytes_down,
        "bytes_up": finished.bytes_up,
        "tracked": [ready.classes[c] for c in finished.outcome.tracked],
        "verdicts": {
            ready.classes[c]: made.verdict
            for c, made in sorted(finished.outcome.reconstructions.items())
            if made.verdict is not None
        },
    }
    if finished.evidence is not None:
        told = zip(ready.classes, finished.evidence.recalls(), strict=True)
        record["recall"] = {name: found._asdict() for name, found in told}
    if ready.test is not None:
        about = (ready.model, finished.model, finished.outcome.readout, ready.test, ready.classes)
        record |= evaluate_readout(*about, finished.earlier)
    return record


def tracked_classes(record: Mapping[str, Any]) -> str:
    """The tracked classes of a round's line, with their verdicts.

    Example:
        >>> tracked_classes({"tracked": ["car", "truck"], "verdicts": {"truck": "degraded"}})
        'car, truck (degraded)'
    """
    verdicts = {name: f" ({verdict})" for name, verdict in record["verdicts"].items()}
    return ", ".join(f"{name}{verdicts.get(name, '')}" for name in record["tracked"])


def sentence(record: dict[str, Any], config: AppConfig) -> str:
    """The same for people."""
    scores = ""
    if record.get("accuracy") is not None:
        shown = record["tracked"] or [config.rare]
        f1 = {name: record["f1"][name] for name in shown if record["f1"].get(name) is not None}
        scores = f", accuracy {record['accuracy']:.3f}" + "".join(f", F1 of {c} {value:.3f}" for c, value in f1.items())
    told = record.get("recall", {})
    scores += "".join(
        f", recall of {c} {told[c]['right']}/{told[c]['samples']}" for c in record["tracked"] if c in told
    )
    tracked = f", tracked: {tracked_classes(record)}" if record["tracked"] else ""
    return (
        f"round {record['round']} of {config.num_rounds}: {record['updated']} of {record['asked']} updates, "
        f"{record['answered']} reports, {record['seconds']:.1f} s{scores}{tracked}"
    )


def _say(sentence: str) -> None:
    print(f"mpt: {sentence}", file=sys.stderr, flush=True)


app = server_app()
