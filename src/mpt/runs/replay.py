"""`mpt replay`: methods and readouts scored on a finished run, by the code that scores them in a run, without training.

From a record (`mpt run --record`) all evaluated rounds; else from the models that the run has kept, the round of the
departure and the last.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mpt.base.errors import MptError
from mpt.base.extensions import files_of
from mpt.base.files import LockedError, exclusive_lock
from mpt.base.seeds import Series
from mpt.data import Dataset, load
from mpt.data.registry import DATASETS
from mpt.federation.engine import Federation
from mpt.federation.features import Embedding
from mpt.federation.hostile import Hostile
from mpt.federation.measurement import Anchors, Measurement
from mpt.federation.partition import PARTITIONS
from mpt.federation.plan import Plan
from mpt.federation.presence import PlannedPresence
from mpt.federation.readouts import READOUTS
from mpt.federation.scoring import evaluate
from mpt.federation.state import Handle, Model
from mpt.federation.view import ServerView, views
from mpt.learning.backbones import BACKBONES
from mpt.methods import METHODS, TRAININGS, Method, MethodError, find_methods
from mpt.runs.config import ConfigError, RunConfig, make_config, read_toml
from mpt.runs.errors import RecordError, RunError
from mpt.runs.manifest import extensions_of
from mpt.runs.models import ModelFolder
from mpt.runs.reader import read_manifest, read_tables
from mpt.runs.record import Record
from mpt.runs.replayed import Replayed
from mpt.runs.simulate import choose_device
from mpt.runs.summary import Figures
from mpt.runs.tables import Tables, tables_of
from mpt.version import ENGINE, __version__

_UNEQUAL = ("vehicle_seconds", "server_seconds")
"""Columns that differ whenever a row is computed again."""


@dataclass(frozen=True)
class Again:
    """A row that the run has itself, replayed.

    Attributes:
        rows: how many lines it has in the rounds that were replayed.
        differ: how many of them differ from the run's in anything but seconds.
        largest: the largest difference in F1 of the departing class.
    """

    rows: int
    differ: int
    largest: float


@dataclass(frozen=True)
class Replay:
    """What came of it.

    Attributes:
        config: the run's settings.
        dataset: its name.
        tables: the run's rows and all replayed ones.
        figures: of them.
        new: the rows that are in `DIR/replay` now.
        again: rows that the run has itself; the run's stay as they are.
        rounds: those that were scored.
    """

    config: RunConfig
    dataset: str
    tables: Tables
    figures: Figures
    new: tuple[Series, ...]
    again: dict[Series, Again]
    rounds: tuple[int, ...]


def replay(
    folder: Path,
    methods: Sequence[str] = (),
    *,
    readouts: Sequence[str] = (),
    overwrite: bool = False,
    device: str = "auto",
) -> Replay:
    """Score `methods` under `readouts` on a finished run.

    Args:
        folder: of the run.
        methods: names, or `path.py:Class`; none: those of the run.
        readouts: likewise.
        overwrite: put a row that has changed in place of an earlier one of its name.
        device: where models are loaded, where there is no record.

    Raises:
        RunError: the folder holds no run that can be replayed.
        MethodError: a method cannot be found, is there already, or reads a training that was not kept.
    """
    if not folder.is_dir():
        raise RunError(f"{folder}: there is no such folder, should be one of mpt run --out")
    try:
        with exclusive_lock(folder):
            return _replay(folder, tuple(methods), tuple(readouts), overwrite, device)
    except LockedError:
        raise ConfigError(f"replay: another process is writing to {folder}; wait until it is done") from None


def _replay(folder: Path, methods: tuple[str, ...], readouts: tuple[str, ...], overwrite: bool, device: str) -> Replay:
    config, manifest, tables = read_finished(folder)
    if not config.record and not ModelFolder.of(folder).size:
        raise RecordError(
            f"replay: {folder} holds a run without a record and without models, should be of mpt run --record, or "
            "without --no-models"
        )
    # features or models are in the folder: the file that training began with is not read
    chosen = replace(config, methods=methods or config.methods, readout=readouts or config.readout, weights=None)
    found = find_methods(chosen.methods, ridge=config.ridge, cov_ridge=config.cov_ridge)
    replayed = Replayed.of(folder)
    before, earlier = replayed.read()
    classes = manifest["classes"]
    made = Tables()
    check_files(folder, chosen, manifest)
    samples = None if config.record else _dataset(folder, config, manifest)
    for plan in (Plan.of(chosen, manifest["rare"], seed) for seed in config.seed_numbers):
        for rows in _rounds(folder, samples, plan, list(found.values()), device):
            made += tables_of(rows, (plan.depart_at, plan.rounds), classes)
    own, mine = _series(tables), _series(made)
    new = tuple(series for series in mine if series not in own)
    whats = {m.name: _what(spec, m, chosen.readout) for spec, m in found.items() if m.name in {s.method for s in new}}
    for name, what in whats.items():
        if name in before and _differ(before[name], what) and not overwrite:
            raise MethodError(
                f"method: {replayed.path} has a {name} of {before[name]['method']} that was another one; --overwrite "
                "replaces it, another name keeps both"
            )
        what["files"] = {**before.get(name, what)["files"], **what["files"]}
    kept = _only(earlier, {s for s in _series(earlier) if s not in new})
    noted = {r["method"] for r in (*tables.diagnostics, *kept.diagnostics)}
    fresh = _only(made, set(new))
    kept += replace(fresh, diagnostics=tuple(r for r in fresh.diagnostics if r["method"] not in noted))
    if new:
        replayed.write({**before, **whats}, kept)
    departing = classes[manifest["rare"]]
    again = {s: _again(_only(made, {s}), _only(tables, {s}), departing) for s in mine if s in own}
    whole = tables + kept
    rounds = tuple(sorted({r["round"] for r in made.metrics}))
    figures = Figures.of(whole.metrics, departing, config.depart_at)
    return Replay(config, manifest["dataset"], whole, figures, new, again, rounds)


def _dataset(folder: Path, config: RunConfig, manifest: dict[str, Any]) -> Dataset:
    """The run's samples, which have to be as they were."""
    dataset = load(config.dataset, image_size=config.image_size, per_class=config.per_class, say=lambda _: None)
    if dataset.fingerprint() != manifest["dataset_fingerprint"]:
        raise RunError(f"replay: the samples of {config.dataset} are not those of the run in {folder}; run it again")
    return dataset


def check_files(folder: Path, config: RunConfig, manifest: dict[str, Any]) -> None:
    """What the run was made of has to be as it was; methods and readouts may be new."""
    points = (TRAININGS, PARTITIONS, DATASETS, BACKBONES)
    used = [(point, text) for point, text in extensions_of(config) if any(point is one for one in points)]
    for text, digest in files_of(used).items():
        if manifest["files"].get(text, digest) != digest:
            raise RunError(f"replay: {text} has changed since the run in {folder}; run it again, or put the file back")


def _rounds(
    folder: Path, dataset: Dataset | None, plan: Plan, methods: Sequence[Method], device: str
) -> Iterator[list[Measurement]]:
    """The rows of each round that can be scored again: from the record, or from models and samples."""
    if dataset is None:
        yield from recorded_rounds(Record.of(folder), plan, methods)
        return
    where = torch.device(choose_device(device))
    yield from modelled_rounds(ModelFolder.of(folder), Federation(dataset, plan, where, methods=methods))


@dataclass(frozen=True, eq=False)
class RecordedRound:
    """An evaluated round as it was recorded.

    Attributes:
        number: of the round.
        presence: who is there.
        current: what each training's model makes of the samples.
        before: the same of the departure's round; empty before it.
        hostile: who lies in reports.
    """

    number: int
    presence: PlannedPresence
    current: Mapping[str, Embedding]
    before: Mapping[str, Embedding]
    hostile: Hostile

    def seen(self) -> dict[str, ServerView]:
        """What the server sees of each training; what it has been asked is kept there."""
        return views(self.presence, self.number, self.current, self.before, self.hostile)


def recorded_rounds(record: Record, plan: Plan, methods: Sequence[Method]) -> Iterator[list[Measurement]]:
    """The rows of each evaluated round of one seed, as `Federation` gives them; of a thinned copy, of those it has.

    Raises:
        RecordError: a round was not recorded.
        MethodError: a method reads a training that was not recorded.
    """
    rounds = ((one.number, one.seen()) for one in read_rounds(record, plan))
    yield from scored_rounds(plan, methods, rounds, record.path)


def read_rounds(record: Record, plan: Plan) -> Iterator[RecordedRound]:
    """The evaluated rounds of one seed, read from the record one after the other."""
    samples = record.samples(plan.seed)
    presence = PlannedPresence(plan, tuple(samples.labels), samples.owner)
    hostile, before = None, dict[str, Embedding]()
    for number in samples.rounds or filter(plan.evaluates, range(1, plan.rounds + 1)):
        current: dict[str, Embedding] = dict(record.round(plan.seed, number, samples))
        if hostile is None:
            hostile = Hostile.of(presence, samples.labels, len(next(iter(current.values())).head[1]))
        if number == plan.depart_at:
            before = current
        yield RecordedRound(number, presence, current, before, hostile)


def scored_rounds(
    plan: Plan, methods: Sequence[Method], rounds: Iterable[tuple[int, Mapping[str, ServerView]]], path: Path
) -> Iterator[list[Measurement]]:
    """The rows of evaluated rounds, given by number and what the server sees; `path` is theirs, for sentences."""
    states: dict[str, Any] = {}
    anchors = Anchors()
    for number, seen in rounds:
        _check_trainings(methods, seen, path)
        rows, states, anchors = evaluate(plan, number, methods, seen, states, anchors)
        yield rows


def modelled_rounds(kept: ModelFolder, federation: Federation) -> Iterator[list[Measurement]]:
    """The rows of the departure's round and of the last, from the models of these rounds.

    They have no step: the evaluated round before is not there.

    Raises:
        RunError: a model is not there.
        MethodError: a method reads a training of which no model was kept.
    """
    plan, earlier = federation.plan, dict[str, Model]()
    states: dict[str, Any] = {}
    anchors = Anchors()
    for number in (plan.depart_at, plan.rounds):
        found = kept.read(plan.seed, number).models
        _check_trainings(federation.methods, found, kept.path)
        _check_shapes(federation.model.state_dict(), [found[t] for t in federation.trainings], kept.path)
        different = {id(tensors): i for i, tensors in enumerate(found.values())}
        models = {
            t: Model(Handle(number, different[id(found[t])]), {k: v.to(federation.device) for k, v in found[t].items()})
            for t in federation.trainings
        }
        earlier = models if number == plan.depart_at else earlier
        rows, states, anchors = federation.read_out(number, models, earlier, states, replace(anchors, previous=None))
        yield rows


def _check_trainings(methods: Sequence[Method], there: Any, path: Path) -> None:
    for method in methods:
        if method.training not in there:
            raise MethodError(
                f"method: {method.name} reads the training {method.training!r}, which {path} does not have; "
                f"it has {', '.join(there)}, those that the methods of the run read"
            )


def _check_shapes(wanted: Mapping[str, Tensor], there: Sequence[Mapping[str, Tensor]], path: Path) -> None:
    shapes = {name: tensor.shape for name, tensor in wanted.items()}
    if any({name: tensor.shape for name, tensor in tensors.items()} != shapes for tensors in there):
        raise RunError(f"{path}: a model does not fit the run's backbone; mpt run --overwrite makes it anew")


def read_finished(folder: Path, what: str = "replay") -> tuple[RunConfig, dict[str, Any], Tables]:
    """The settings, manifest and own rows of a finished run; `what` is done with it."""
    manifest = read_manifest(folder)
    try:
        config = make_config(read_toml(folder / "config.toml"))
    except MptError as error:
        raise RunError(f"{what}: {folder} holds a run that cannot be read ({error})") from None
    if not manifest.get("finished"):
        raise RunError(f"{what}: {folder} holds an unfinished run; the same mpt run command resumes it")
    return config, manifest, read_tables(folder)


def _what(spec: str, method: Method, readouts: tuple[str, ...]) -> dict[str, Any]:
    pairs: list[tuple[Any, str]] = [(METHODS, spec), *((READOUTS, text) for text in readouts)]
    return {"method": spec, "training": method.training, "files": files_of(pairs), "mpt": __version__, "bench": ENGINE}


def _differ(before: dict[str, Any], now: dict[str, Any]) -> bool:
    """Whether two methods of one name are of different files, or of one that has changed."""
    first, second = (what["files"].get(what["method"], what["method"]) for what in (before, now))
    return first != second or any(before["files"].get(text, digest) != digest for text, digest in now["files"].items())


def _series(tables: Tables) -> tuple[Series, ...]:
    return tuple(dict.fromkeys(Series(r["method"], r["readout"]) for r in tables.metrics))


def _only(tables: Tables, series: set[Series]) -> Tables:
    """The records of some rows; what methods note is of the method."""
    methods = {one.method for one in series}
    return Tables(
        tuple(r for r in tables.metrics if Series(r["method"], r["readout"]) in series),
        tuple(r for r in tables.diagnostics if r["method"] in methods),
        tuple(r for r in tables.confusion if Series(r["method"], r["readout"]) in series),
    )


def _again(mine: Tables, theirs: Tables, departing: str) -> Again:
    """Rows as they are in the files, without seconds, in the rounds that both have."""
    rounds = {r["round"] for r in mine.metrics}

    def by_key(tables: Tables) -> dict[tuple[int, int], list[dict[str, Any]]]:
        rows: dict[tuple[int, int], list[dict[str, Any]]] = {}
        for record in (*tables.metrics, *tables.confusion):
            if record["round"] in rounds:
                line = {k: v for k, v in record.items() if k not in _UNEQUAL}
                rows.setdefault((record["seed"], record["round"]), []).append(line)
        return rows

    def f1(lines: list[dict[str, Any]]) -> float:
        return float(next(line["f1"] for line in lines if line.get("class") == departing))

    here, there = by_key(mine), by_key(theirs)
    gaps = [abs(f1(here[k]) - f1(there[k])) if k in here and k in there else math.inf for k in {*here, *there}]
    return Again(len(there), sum(here.get(k) != there.get(k) for k in {*here, *there}), max(gaps, default=0.0))
