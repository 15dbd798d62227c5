"""The server's app: `mpt.fleet.flower.server_app:app` in a Flower project."""

import json
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

import mpt
from mpt.data import Dataset
from mpt.federation.files import TakenError, alone, private_folder
from mpt.fleet.errors import FleetError
from mpt.fleet.flower.config import AppConfig, names
from mpt.fleet.flower.transport import FlowerTransport
from mpt.fleet.holdings import loaded
from mpt.fleet.judge import judge
from mpt.fleet.log import DecisionLog, append, now, stamp
from mpt.fleet.server import VERSION, Finished, Server
from mpt.fleet.settings import Settings
from mpt.fleet.store import SqliteStore, open_store
from mpt.fleet.tracker import Tracker
from mpt.fleet.vehicle import arrays
from mpt.learning import Classifier, build

_RESULT_KEYS = ("num_rounds", "state", "deadline", "quorum", "least", "wait", "tries", "events", "fail")
"""What may differ between a run and the one that goes on with it."""


def server_app(after: Callable[[Finished], None] | None = None, **defaults: Any) -> ServerApp:
    """The app of the server; `defaults` are settings of `AppConfig` for what the run's configuration leaves open.

    Args:
        after: called with every finished round.
        defaults: for what the run's configuration leaves open.
    """
    made = ServerApp()

    @made.main()
    def main(grid: Grid, context: Context) -> None:
        serve(AppConfig.of({**defaults, **context.run_config}), grid, after)

    return made


def serve(config: AppConfig, grid: Grid, after: Callable[[Finished], None] | None = None) -> None:
    """All rounds, from where the state folder left off."""
    folder = folder_of(config)
    with ExitStack() as stack:
        if folder is not None:
            try:
                stack.enter_context(alone(folder))
            except TakenError:
                raise FleetError(f"state: another server writes to {folder}; stop it first, or give another") from None
        _serve(config, grid, folder, after)


def _serve(config: AppConfig, grid: Grid, folder: Path | None, after: Callable[[Finished], None] | None) -> None:
    ready = prepare(config)

    def record(finished: Finished) -> None:
        line = summary(finished, ready)
        print("mpt: " + sentence(line, config), file=sys.stderr, flush=True)
        if folder is not None:
            append(folder / "rounds.jsonl", json.dumps(line) + "\n")

    server = server_of(config, ready, grid)
    server.record = record
    server.resume()
    if server.tracker.round >= config.num_rounds:
        print(f"mpt: round {server.tracker.round} of {config.num_rounds} is done already", file=sys.stderr)
    for finished in server.rounds(config.num_rounds):
        if after is not None:
            after(finished)


@dataclass(frozen=True, eq=False)
class Ready:
    """What the server needs before its first round.

    Attributes:
        classes: the fleet's.
        model: fresh.
        dataset: with test samples to evaluate on; None where `classes` were given.
    """

    classes: tuple[str, ...]
    model: Classifier
    dataset: Dataset | None


def prepare(config: AppConfig) -> Ready:
    """The classes, a fresh model, and test samples where the server has any."""
    dataset, classes, size, channels = None, config.class_names, config.image_size, config.channels
    if not classes:
        dataset = loaded(config.dataset, image_size=size, per_class=config.per_class)
        classes, (_, size, channels) = dataset.classes, dataset.image_shape
    elif not size:
        raise FleetError("config: image-size is 0, should be given where classes are")
    model = build(config.backbone, num_classes=len(classes), in_channels=channels, image_size=size, seed=config.seed)
    return Ready(classes, model, dataset)


def server_of(config: AppConfig, ready: Ready, grid: Grid) -> Server:
    """The server over a grid."""
    unknown = [name for name in names(config.watch) if name not in ready.classes]
    if unknown:
        raise FleetError(f"config: watch names {unknown[0]!r}, should be of {', '.join(ready.classes)}")
    tracker = Tracker(
        Settings(
            num_classes=len(ready.classes),
            dim=ready.model.dim,
            variant=config.variant,  # type: ignore[arg-type]
            grace=config.grace,
            watch_share=config.watch_share,
            watch=tuple(ready.classes.index(name) for name in names(config.watch)),
            ridge=config.ridge,
            cov_ridge=config.cov_ridge,
        )
    )
    folder = folder_of(config)
    log = DecisionLog(None if folder is None else folder / "decisions.jsonl")
    key = {name: value for name, value in asdict(config).items() if name not in _RESULT_KEYS}
    built = {"in_channels": ready.model.in_channels, "image_size_used": ready.model.image_size}
    return Server(
        ready.model,
        arrays(ready.model.state_dict()),
        tracker,
        FlowerTransport(grid, config.vehicle_ids),  # type: ignore[arg-type]
        config.rules,
        {**key, **built, VERSION: mpt.__version__, "class_names": list(ready.classes)},
        open_store(config.state) if config.state else None,
        log.write,
    )


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
        "tracked": [ready.classes[c] for c in sorted(finished.outcome.reconstructions)],
        "verdicts": {
            ready.classes[c]: made.verdict
            for c, made in sorted(finished.outcome.reconstructions.items())
            if made.verdict is not None
        },
    }
    if ready.dataset is not None:
        record |= judge(ready.model, finished.model, finished.outcome.readout, ready.dataset.test, ready.classes)
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
        scores = f", accuracy {record['accuracy']:.3f}"
        if config.rare in record["f1"]:
            scores += f", F1 of {config.rare} {record['f1'][config.rare]:.3f}"
    tracked = f", tracked: {tracked_classes(record)}" if record["tracked"] else ""
    return (
        f"round {record['round']} of {config.num_rounds}: {record['updated']} of {record['asked']} updates, "
        f"{record['answered']} reports, {record['seconds']:.1f} s{scores}{tracked}"
    )


app = server_app()
