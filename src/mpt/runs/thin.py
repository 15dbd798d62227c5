"""`mpt thin`: a small copy of a recorded run, in which methods are scored as in any run's folder.

The rows of the run's own methods are scored on the copy, so that a new method is compared like for like; the rows that
the run itself had are kept beside them, in `original/`, so that one sees what thinning costs.
"""

import json
import math
import os
import shutil
import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from mpt.base.extensions import files_of
from mpt.base.seeds import Series
from mpt.base.text import did_you_mean, quantity
from mpt.federation.plan import Plan
from mpt.federation.readouts import READOUTS
from mpt.methods import METHODS, Method, find_methods
from mpt.runs.coded import COARSEST, FINEST
from mpt.runs.config import ConfigError, RunConfig
from mpt.runs.errors import RecordError, RunError
from mpt.runs.folder import key_of
from mpt.runs.manifest import ORIGINAL, THINNED, commit, extensions_of
from mpt.runs.record import Record
from mpt.runs.replay import read_finished, recorded_rounds
from mpt.runs.summary import Figures
from mpt.runs.tables import Tables, tables_of
from mpt.runs.thinning import Amount, Selection, amounts, rounds_of
from mpt.version import ENGINE, __version__

MOST_BYTES = 5_000_000
_ROOM = 16_000
"""For settings and manifest."""


@dataclass(frozen=True)
class Thinned:
    """What came of it.

    Attributes:
        config: of the copy.
        about: what was kept, as in its `manifest.json`.
        figures: of the rows scored on the copy.
        original: of the rows that the run had in the same rounds.
        size: bytes of the copy, all files together.
        source: bytes of the run's record.
    """

    config: RunConfig
    about: dict[str, Any]
    figures: Figures
    original: Figures
    size: int
    source: int


def thin(
    folder: Path,
    out: Path,
    *,
    rounds: Sequence[int] = (),
    methods: Sequence[str] = (),
    seeds: int | None = None,
    step: float | None = None,
    train: int | None = None,
    test: int | None = None,
    most: int = MOST_BYTES,
) -> Thinned:
    """Write a small copy of the run in `folder` to `out`.

    Args:
        folder: of a finished run of mpt run --record.
        out: a folder that is not there yet, or is empty.
        rounds: kept besides the departure's and the last; none: two between them.
        methods: of the run, whose rows and trainings are kept; none: all.
        seeds: the first so many; None: all.
        step: to which features are rounded, in deviations; None: as fine as fits.
        train: training samples of the largest class; None: as many as fit.
        test: likewise test samples.
        most: bytes that all files may take together.

    Raises:
        ConfigError: nothing that small can be made, or an argument is none.
        RunError: the folder holds no run that can be thinned.
    """
    _check(out, step, {"seeds": seeds, "train": train, "test": test, "most": most})
    if not folder.is_dir():
        raise RecordError(f"{folder}: there is no such folder, should be one of mpt run --record --out")
    config, manifest, tables = read_finished(folder, "thin")
    if THINNED in manifest:
        raise RecordError(f"thin: {folder} holds a thinned copy, should be the run itself")
    if not config.record:
        raise RecordError(f"thin: {folder} holds a run without a record, should be of mpt run --record")
    if seeds is not None and seeds > config.seeds:
        raise ConfigError(f"seeds: {seeds}, should be at most {config.seeds}, as many as the run has")
    chosen = replace(config, methods=_chosen(config, methods), seeds=seeds or config.seeds, models=False)
    scored = [pair for pair in extensions_of(chosen) if pair[0] is METHODS or pair[0] is READOUTS]
    for text, digest in files_of(scored).items():
        if manifest["files"].get(text, digest) != digest:
            raise RunError(f"thin: {text} has changed since the run in {folder}; run it again, or put the file back")
    numbers = rounds_of(Plan.of(chosen, manifest["rare"], 0), rounds)
    source = _Source(Record.of(folder), chosen, manifest, numbers, key_of(config, manifest))
    out.parent.mkdir(parents=True, exist_ok=True)
    place = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    try:
        made = source.copied(place, tables, (step, train, test), most)
        place.chmod(0o755)
        os.replace(place, out)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return made


@dataclass(frozen=True)
class _Source:
    """A recorded run, and what of it is kept whatever the size."""

    record: Record
    config: RunConfig
    manifest: Mapping[str, Any]
    rounds: tuple[int, ...]
    key: str

    @property
    def methods(self) -> list[Method]:
        """Those that are kept."""
        config = self.config
        return list(find_methods(config.methods, ridge=config.ridge, cov_ridge=config.cov_ridge).values())

    @property
    def plans(self) -> list[Plan]:
        """A seed each."""
        return [Plan.of(self.config, self.manifest["rare"], seed) for seed in self.config.seed_numbers]

    def copied(
        self, place: Path, tables: Tables, given: tuple[float | None, int | None, int | None], most: int
    ) -> Thinned:
        """The copy, in an empty folder."""
        names = {method.name for method in self.methods}
        original = _in_rounds(tables.only({*names, ""}, self.config.seed_numbers), self.rounds)
        (place / ORIGINAL).mkdir()
        original.write(place / ORIGINAL)
        kept = Record.of(place)
        amount = self._fitted(kept, given, most - 2 * _size(place / ORIGINAL) - _ROOM, most)
        scored = self._scored(kept)
        scored.write(place)
        departing = self.manifest["classes"][self.manifest["rare"]]
        figures, before = (Figures.of(t.metrics, departing, self.config.depart_at) for t in (scored, original))
        about = self._about(amount, figures, before)
        (place / "config.toml").write_text(self.config.to_toml(), encoding="utf-8")
        (place / "manifest.json").write_text(json.dumps(self._manifest(kept, about), indent=2) + "\n", encoding="utf-8")
        size = _size(place)
        if size > most:
            raise ConfigError(self._too_large(size, most))
        return Thinned(self.config, about, figures, before, size, self.record.size)

    def _fitted(self, kept: Record, given: tuple[float | None, int | None, int | None], room: int, most: int) -> Amount:
        """Write the record with as much as fits."""
        tried, size = list(amounts(self.record.samples(self.config.first_seed), *given)), 0
        for amount in tried:
            if amount is not tried[-1] and self._least(amount) > room:
                continue
            kept.remove()
            size = self._written(kept, amount, math.inf if amount is tried[-1] else room)
            if size <= room:
                return amount
        raise ConfigError(self._too_large(size + most - room, most))

    def _written(self, kept: Record, amount: Amount, room: float) -> int:
        """Write the record with so much; its size, or that of its first files where these take more than `room`."""
        read = {method.training for method in self.methods}
        for plan in self.plans:
            samples = self.record.samples(plan.seed)
            selection = Selection.of(samples, plan.rare, amount, plan.seed)
            kept.write_samples(plan.seed, selection.labels(samples, self.rounds))
            for number in self.rounds:
                found = {t: m for t, m in self.record.round(plan.seed, number, samples).items() if t in read}
                made = {model: selection.features(model) for model in dict.fromkeys(found.values())}
                models = {training: made[model] for training, model in found.items()}
                who = {training: sorted(model.features) for training, model in models.items()}
                kept.write_round(plan.seed, number, models, who, amount.step)
                if kept.size > room:
                    return kept.size
        return kept.size

    def _least(self, amount: Amount) -> float:
        """Bytes that a record with so much will hardly stay below: those of the samples that are there throughout."""
        trainings, plan = len({method.training for method in self.methods}), self.plans[0]
        models = sum(1 if number <= plan.depart_at else trainings for number in self.rounds)
        samples = self.record.samples(self.config.first_seed)
        selection = Selection.of(samples, plan.rare, amount, self.config.first_seed)
        many = len(selection.test) + sum(len(m) for v, m in selection.vehicles.items() if v != samples.owner)
        return self.config.seeds * models * many * int(self.manifest["feature_dim"]) * amount.bits / 8

    def _scored(self, kept: Record) -> Tables:
        """The rows of the methods, on the copy."""
        made, methods = Tables(), self.methods
        for plan in self.plans:
            for rows in recorded_rounds(kept, plan, methods):
                made += tables_of(rows, (plan.depart_at, plan.rounds), self.manifest["classes"])
        return made

    def _too_large(self, size: int, most: int) -> str:
        trainings = list(dict.fromkeys(method.training for method in self.methods))
        return (
            f"thin: at least {quantity(size)} with {len(self.rounds)} rounds of {self.config.seeds} seeds and the "
            f"trainings {', '.join(trainings)}, should be at most {quantity(most)}; fewer --rounds, --seeds, or "
            "--methods that read fewer trainings take less, and so do --step, --train and --test"
        )

    def _about(self, amount: Amount, figures: Figures, original: Figures) -> dict[str, Any]:
        """What was kept, and of what."""
        known, gaps = self.manifest, [abs(gap) for gap in _gaps(figures, original)]
        return {
            "mpt": __version__,
            "bench": ENGINE,
            "commit": commit(Path(__file__).parents[3]),
            "rounds": list(self.rounds),
            "trainings": list(dict.fromkeys(method.training for method in self.methods)),
            **asdict(amount),
            "f1_differs_by_up_to": round(max(gaps, default=0.0), 6),
            "from": {
                "key": self.key,
                "mpt": known.get("mpt"),
                "bench": known.get("bench", 1),
                "commit": known.get("commit"),
                "counts": known.get("counts"),
                "record_bytes": self.record.size,
            },
        }

    def _manifest(self, kept: Record, about: dict[str, Any]) -> dict[str, Any]:
        """The run's, with what the copy has of it."""
        samples = kept.samples(self.config.first_seed)
        train, classes = np.concatenate(list(samples.labels.values())), range(len(self.manifest["classes"]))
        counts = {
            name: [int(np.sum(labels == c)) for c in classes]
            for name, labels in (("train", train), ("test", samples.test_labels))
        }
        names = {method.name: method.training for method in self.methods}
        return {**self.manifest, "trainings": names, "counts": counts, THINNED: about, "finished": True}


def _check(out: Path, step: float | None, counts: Mapping[str, int | None]) -> None:
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(f"out: {out} is there and not empty, should be a folder that is new")
    if step is not None and not FINEST <= step <= COARSEST:
        raise ConfigError(f"step: {step:g}, should be from {FINEST:g} to {COARSEST:g}")
    for name, value in counts.items():
        if value is not None and value < 1:
            raise ConfigError(f"{name}: {value}, should be at least 1")


def _chosen(config: RunConfig, wanted: Sequence[str]) -> tuple[str, ...]:
    """The run's methods that are kept, as its settings write them."""
    found = find_methods(config.methods, ridge=config.ridge, cov_ridge=config.cov_ridge)
    known = {name: text for text, method in found.items() for name in (text, method.name)}
    for name in wanted:
        if name not in known:
            told = did_you_mean(name, known, f"should be of {', '.join(config.methods)}")
            raise ConfigError(f"methods: {name!r} is none of the run's, {told}")
    kept = {known[name] for name in wanted}
    return tuple(text for text in config.methods if not wanted or text in kept)


def _in_rounds(tables: Tables, rounds: Collection[int]) -> Tables:
    some = (tables.metrics, tables.diagnostics, tables.confusion)
    return Tables(*(tuple(record for record in table if record["round"] in rounds) for table in some))


def _gaps(figures: Figures, original: Figures) -> list[float]:
    """By how much the departing class's F1 differs, line by line."""

    def by_line(some: Figures) -> dict[tuple[int, int, Series], float]:
        return {(r["seed"], r["round"], Series(r["method"], r["readout"])): r["f1"] for r in some.metrics}

    here, there = by_line(figures), by_line(original)
    return [here[line] - there[line] for line in here if line in there]


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
