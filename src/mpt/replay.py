"""`mpt replay`: methods scored on a recorded run, by the code that scores them in a run, without training."""

import hashlib
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mpt.config import ConfigError, RunConfig, make_config, read_toml
from mpt.federation.features import Embedding
from mpt.federation.plan import Plan
from mpt.federation.presence import Presence
from mpt.federation.rows import Anchor, Row
from mpt.federation.scoring import evaluate
from mpt.federation.view import views
from mpt.files import TakenError, alone
from mpt.methods import Method, MethodError, file_of, find_method
from mpt.methods.method import Training
from mpt.record import Record, RecordError
from mpt.replayed import Replayed, chosen
from mpt.report import write_report
from mpt.simulation import plan_of
from mpt.tables import Tables, tables_of
from mpt.version import __version__

_UNEQUAL = ("seconds", "vehicle_seconds", "server_seconds")
"""Columns that differ whenever a row is computed again."""


@dataclass(frozen=True)
class Again:
    """A method that the run has itself, replayed.

    Attributes:
        rows: how many it has.
        differ: how many of them differ from the run's in anything but seconds.
        largest: the largest difference in F1 of the rare class.
    """

    rows: int
    differ: int
    largest: float


@dataclass(frozen=True)
class Replay:
    """What came of it.

    Attributes:
        config: the run's settings.
        manifest: the run's surroundings.
        tables: the run's rows and all replayed ones.
        new: the methods whose rows are in `DIR/replay` now.
        again: methods that the run has itself; the run's rows stay as they are.
        report: the page that shows all of it.
    """

    config: RunConfig
    manifest: dict[str, Any]
    tables: Tables
    new: tuple[str, ...]
    again: dict[str, Again]
    report: Path


def replay(folder: Path, methods: Sequence[str], *, overwrite: bool = False) -> Replay:
    """Score `methods` on what `mpt run --record --out folder` has recorded.

    Args:
        folder: of a finished run.
        methods: names, or `path.py:Class`.
        overwrite: put a method that has changed in place of an earlier one of its name.

    Raises:
        ConfigError, RecordError: the folder holds no run that can be replayed.
        MethodError: a method cannot be found, is there already, or reads a training that was not recorded.
    """
    try:
        with alone(folder):
            return _replay(folder, methods, overwrite)
    except TakenError:
        raise ConfigError(f"replay: another process is writing to {folder}; wait until it is done") from None
    except FileNotFoundError as error:
        raise ConfigError(f"replay: there is no {error.filename}, should be a folder of mpt run --record") from None


def _replay(folder: Path, methods: Sequence[str], overwrite: bool) -> Replay:
    config, manifest, tables = _read(folder)
    known = {method.name: (spec, method) for spec, method in _found(methods, config)}
    mine = [method for _, method in known.values()]
    own = {record["method"] for record in tables.metrics}
    replayed = Replayed.of(folder)
    try:
        before, earlier = replayed.read()
    except (OSError, ValueError, KeyError) as error:
        raise RecordError(f"replay: {replayed.path} cannot be read ({error}); remove it and replay again") from None
    whats = {name: _what(spec, method) for name, (spec, method) in known.items() if name not in own}
    for name, what in whats.items():
        if before.get(name, what)["file"] != what["file"] and not overwrite:
            raise MethodError(
                f"method: {replayed.path} has a {name} of {before[name]['method']} that was another one; --overwrite "
                "replaces it, another name keeps both"
            )
    made = Tables()
    for seed in range(config.seeds):
        plan = plan_of(config, manifest["rare"], seed)
        for rows in replayed_rounds(Record.of(folder), plan, mine):
            made += tables_of(rows, (plan.depart_at, plan.rounds))
    again = {name: _again(chosen(made, {name}), chosen(tables, {name})) for name in known if name in own}
    kept = chosen(earlier, set(before) - set(whats)) + chosen(made, whats)
    if whats:
        replayed.write({**before, **whats}, kept)
    page = write_report(folder) if whats else folder / "report.html"
    return Replay(config, manifest, tables + kept, tuple(whats), again, page)


def replayed_rounds(record: Record, plan: Plan, methods: Sequence[Method]) -> Iterator[list[Row]]:
    """The rows of each evaluated round of one seed, as `Federation` gives them.

    Raises:
        RecordError: a round was not recorded.
        MethodError: a method reads a training that was not recorded.
    """
    samples = record.samples(plan.seed)
    presence = Presence(plan, tuple(samples.labels), samples.owner)
    before: dict[Training, Embedding] = {}
    kept: dict[str, Any] = {}
    anchor: Anchor | None = None
    for number in filter(plan.evaluates, range(1, plan.rounds + 1)):
        current: dict[Training, Embedding] = dict(record.round(plan.seed, number, samples))
        for method in methods:
            if method.training not in current:
                raise MethodError(
                    f"method: {method.name} reads the training {method.training!r}, which {record.path} does not have; "
                    f"it has {', '.join(current)}, those that the methods of the run read"
                )
        if number == plan.depart_at:
            before = current
        seen = views(presence, number, current, before)
        rows, kept, anchor = evaluate(plan, number, methods, seen, kept, anchor)
        yield rows


def _read(folder: Path) -> tuple[RunConfig, dict[str, Any], Tables]:
    """A finished run that was recorded."""
    try:
        manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        config = make_config(read_toml(folder / "config.toml"))
        if not config.record:
            raise RecordError(f"record: {folder} holds a run without one, should be of mpt run --record")
        if not manifest.get("finished"):
            raise RecordError(f"record: {folder} holds an unfinished run; the same mpt run command goes on with it")
        return config, manifest, Tables.read(folder)
    except RecordError:
        raise
    except FileNotFoundError:
        raise
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"replay: {folder} holds a run that cannot be read ({error})") from None


def _found(methods: Sequence[str], config: RunConfig) -> Iterator[tuple[str, Method]]:
    names = set[str]()
    for spec in methods:
        method = find_method(spec, ridge=config.ridge, cov_ridge=config.cov_ridge)
        if method.name in names:
            raise MethodError(f"methods: two are called {method.name!r}, should differ in their names")
        names.add(method.name)
        yield spec, method


def _what(spec: str, method: Method) -> dict[str, Any]:
    path = file_of(spec)
    return {
        "method": spec,
        "training": method.training,
        "file": None if path is None else hashlib.sha256(path.read_bytes()).hexdigest()[:16],
        "mpt": __version__,
    }


def _again(mine: Tables, theirs: Tables) -> Again:
    """Rows as they are in the files, without seconds."""

    def by_key(tables: Tables) -> dict[tuple[Any, ...], list[dict[str, Any]]]:
        rows: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        for record in (*tables.metrics, *tables.costs, *tables.confusion):
            key = (record["seed"], record["round"], record["readout"])
            rows.setdefault(key, []).append({k: v for k, v in record.items() if k not in _UNEQUAL})
        return rows

    here, there = by_key(mine), by_key(theirs)
    gaps = [
        abs(here[k][0]["rare_f1"] - there[k][0]["rare_f1"]) if k in here and k in there else math.inf
        for k in {*here, *there}
    ]
    return Again(len(there), sum(here.get(k) != there.get(k) for k in {*here, *there}), max(gaps, default=0.0))
