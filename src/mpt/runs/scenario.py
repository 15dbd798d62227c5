"""A scenario's run: its settings, the files that it writes, and the figures that its rows are compared by.

DIR/config.toml      the settings
DIR/manifest.json    versions, device, classes, who holds what
DIR/presence-S.csv   who was there when, of seed S; `mpt.scenario.read_presence` reads it
DIR/rounds.csv       a line a seed and round: who was there, trained and answered, bytes
DIR/classes.csv      a line a seed, round and class: samples that are there, absent by the truth, what is decided
DIR/decisions.csv    what the server decided, and why
DIR/metrics.csv      a line a seed, evaluated round, method and class: F1, precision, recall
DIR/evidence.csv     with --validation, a line a seed, evaluated round and class: recall of samples set aside
DIR/summary.csv      a line a method: mean F1 over the pairs (class, round) in which the class is absent
"""

import csv
import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mpt.base.errors import ConfigError
from mpt.base.files import write_atomically
from mpt.base.seeds import stat
from mpt.base.settings import to_toml
from mpt.data import Dataset, load
from mpt.federation.living import LEADER, Living, LivingRound
from mpt.federation.metrics import score
from mpt.runs.live import NotebookBar, notebook_display
from mpt.runs.manifest import machine
from mpt.runs.scenario_config import ScenarioConfig
from mpt.runs.simulate import choose_device
from mpt.scenario import Scenario, find_scenario, write_presence

TABLES = ("rounds", "classes", "decisions", "metrics", "evidence", "summary")

Progress = Callable[[int, LivingRound], None]
"""Called after every round with the seed and what happened."""


@dataclass(frozen=True, eq=False)
class ScenarioRun:
    """What came of a scenario.

    Attributes:
        config: the settings.
        scenario: what was played.
        manifest: versions, device, classes, who holds what.
        tables: by name, each a list of lines; see the head of this file.
        folder: where the files are; None where nothing was written.
    """

    config: ScenarioConfig
    scenario: Scenario
    manifest: dict[str, Any]
    tables: dict[str, list[dict[str, Any]]]
    folder: Path | None = None


def play(
    config: ScenarioConfig,
    *,
    out: Path | None = None,
    begin: Callable[[Mapping[str, Any], int], None] | None = None,
    progress: Progress | bool | None = None,
    say: Callable[[str], None] = print,
) -> ScenarioRun:
    """Play all seeds of a scenario.

    Args:
        config: the settings.
        out: a new or empty folder for the files.
        begin: called once before the first round with the manifest and the number of rounds of all seeds.
        progress: called after every round. By default a notebook shows a bar, and nothing is shown elsewhere; False:
            nowhere.
        say: takes a sentence on what was left out of the dataset.
    """
    if callable(progress):
        return _played(config, out, begin, progress, say)
    display = None if progress is False else notebook_display()
    with NotebookBar(f"{config.scenario} on {config.dataset}", 0, display) as bar:

        def began(manifest: Mapping[str, Any], rounds: int) -> None:
            bar.total = rounds
            if begin is not None:
                begin(manifest, rounds)

        def after(seed: int, one: LivingRound) -> None:
            bar.step(bar.done + 1, f"round {one.round}, {len(one.here)} vehicles")

        return _played(config, out, began, after, say)


def _played(
    config: ScenarioConfig,
    out: Path | None,
    begin: Callable[[Mapping[str, Any], int], None] | None,
    progress: Progress,
    say: Callable[[str], None],
) -> ScenarioRun:
    """All seeds."""
    scenario, device = find_scenario(config.scenario), choose_device(config.device)
    dataset = load(config.dataset, image_size=config.image_size, per_class=config.per_class, say=say)
    if dataset.versions:
        raise ConfigError(f"dataset: {config.dataset} has features of models, should be samples to train on")
    if out is not None:
        _empty(out)
    played = {seed: scenario.play(seed, dataset.classes) for seed in config.seed_numbers}
    lives = {
        seed: Living(
            dataset,
            config.plan(seed, one.presence.rounds),
            one.presence,
            one.shares,
            torch.device(device),
            config.server,
            config.asked,
            config.validation,
        )
        for seed, one in played.items()
    }
    manifest = _manifest(config, scenario, dataset, device, lives)
    if begin is not None:
        begin(manifest, sum(living.presence.rounds for living in lives.values()))
    tables: dict[str, list[dict[str, Any]]] = {name: [] for name in TABLES}
    for seed in config.seed_numbers:
        living = lives.pop(seed)
        for one in living.rounds():
            for name, lines in lines_of(seed, living, one).items():
                tables[name] += lines
            progress(seed, one)
        if out is not None:
            write_presence(living.presence, out / f"presence-{seed}.csv")
    tables["summary"] = summary(tables["metrics"], tables["rounds"])
    run = ScenarioRun(config, scenario, manifest, tables, out)
    if out is not None:
        write(run, out)
    return run


def lines_of(seed: int, living: Living, one: LivingRound) -> dict[str, list[dict[str, Any]]]:
    """A round's lines of every table."""
    names, number, pairs = living.dataset.classes, one.round, living.pairs[one.round - 1]
    label = living.presence.labels[number - 1] if living.presence.labels else ""
    numbers = {
        "seed": seed, "round": number, "label": label, "here": len(one.here), "trained": len(one.trained),
        "answered": len(one.answered), **{f"{state}_vehicles": count for state, count in one.states.items()},
        "state_bytes": one.state_bytes, **{f"bytes_up {name}": size for name, size in one.bytes_up.items()},
    }  # fmt: skip
    totals = living.counts.sum(axis=0)
    classes = [
        {
            "seed": seed, "round": number, "class": names[c], "samples": int(one.present[c]),
            "share": round(float(one.present[c]) / max(int(totals[c]), 1), 6), "absent": int(pairs[c]),
            "deposit": int(c in one.tracked), "held_out": int(c in one.held_out),
        }
        for c in range(len(names))
    ]  # fmt: skip
    decisions = [
        {
            "seed": seed, "round": number, "what": d.what, "vehicle": d.vehicle,
            "classes": " ".join(names[c] for c in d.classes), "why": d.why,
        }
        for d in one.decisions
    ]  # fmt: skip
    metrics = []
    for name, confusion in one.confusions.items():
        scores, mine = score(confusion), one.deposited.get(name, one.tracked)
        for c in range(len(names)):
            metrics.append(
                {
                    "seed": seed, "round": number, "method": name, "class": names[c],
                    "f1": round(float(scores.f1[c]), 6), "precision": round(float(scores.precision[c]), 6),
                    "recall": round(float(scores.recall[c]), 6), "absent": int(pairs[c]), "deposit": int(c in mine),
                }
            )  # fmt: skip
    evidence = _evidence(seed, names, one)
    return {"rounds": [numbers], "classes": classes, "decisions": decisions, "metrics": metrics, "evidence": evidence}


def _evidence(seed: int, names: Sequence[str], one: LivingRound) -> list[dict[str, Any]]:
    """A line a class, beside the recall on the test samples."""
    if one.evidence is None:
        return []
    tested = score(one.confusions[LEADER]).recall if LEADER in one.confusions else None
    return [
        {
            "seed": seed, "round": one.round, "class": names[c], "right": found.right, "samples": found.samples,
            "low": round(found.low, 6), "high": round(found.high, 6),
            "test_recall": "" if tested is None else round(float(tested[c]), 6), "deposit": int(c in one.tracked),
        }
        for c, found in enumerate(one.evidence.recalls())
    ]  # fmt: skip


def summary(metrics: Sequence[Mapping[str, Any]], rounds: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A line a method: mean F1 over pairs, over those with a deposit, over the others, and bytes a round.

    A pair is a class and an evaluated round in which it is absent by the truth; pairs are the same for all methods.
    Means are taken a seed, then over the seeds.
    """
    found = []
    for method in dict.fromkeys(line["method"] for line in metrics):
        mine = [line for line in metrics if line["method"] == method]
        seeds = list(dict.fromkeys(line["seed"] for line in mine))
        sizes = [line.get(f"bytes_up {method}") for line in rounds]
        sent = [size for size in sizes if size is not None]
        absent, stored, others = (
            [_mean(line["f1"] for line in mine if line["seed"] == seed and kept(line)) for seed in seeds]
            for kept in (_absent, _stored, _there)
        )
        found.append(
            {
                "method": method,
                "pairs": sum(map(_absent, mine)),
                "f1": _stat(absent),
                "deviation": _deviation(absent),
                "with_deposit": sum(map(_stored, mine)),
                "f1_with_deposit": _stat(stored),
                "others_f1": _stat(others),
                "bytes_up": round(sum(sent) / len(sent)) if sent else "",
            }
        )
    return found


def _absent(line: Mapping[str, Any]) -> bool:
    return bool(line["absent"])


def _stored(line: Mapping[str, Any]) -> bool:
    return bool(line["absent"] and line["deposit"])


def _there(line: Mapping[str, Any]) -> bool:
    return not line["absent"]


def _mean(values: Iterable[float]) -> float | None:
    known = list(values)
    return sum(known) / len(known) if known else None


def _stat(values: Iterable[float | None]) -> float | str:
    known = [value for value in values if value is not None]
    return round(stat(known).mean, 6) if known else ""


def _deviation(values: Iterable[float | None]) -> float | str:
    known = [value for value in values if value is not None]
    deviation = stat(known).deviation if known else None
    return "" if deviation is None else round(deviation, 6)


def _empty(out: Path) -> None:
    """The folder, made, with nothing of another run in it."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        there = sorted(path.name for path in out.iterdir())
    except OSError as error:
        raise ConfigError(f"out: {out} cannot be made a folder ({error.strerror})") from None
    if there:
        raise ConfigError(f"out: {out} is not empty ({there[0]}), should be a new folder")


def write(run: ScenarioRun, out: Path) -> None:
    """The files of a run but for its presence."""
    write_atomically(out / "config.toml", to_toml(run.config).encode())
    write_atomically(out / "manifest.json", (json.dumps(run.manifest, indent=1) + "\n").encode())
    for name, lines in run.tables.items():
        if name == "evidence" and not lines:
            continue
        write_atomically(out / f"{name}.csv", _csv(lines).encode())


def _csv(lines: Sequence[Mapping[str, Any]]) -> str:
    text = io.StringIO(newline="")
    if lines:
        writer = csv.DictWriter(text, list(dict.fromkeys(k for line in lines for k in line)), lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)
    return text.getvalue()


def _manifest(
    config: ScenarioConfig, scenario: Scenario, dataset: Dataset, device: str, lives: Mapping[int, Living]
) -> dict[str, Any]:
    first = lives[config.first_seed]
    holders = {
        str(seed): {
            dataset.classes[c]: one.presence.vehicles[int(one.counts[:, c].argmax())]
            for c in np.flatnonzero(one.pairs.any(axis=0))
        }
        for seed, one in lives.items()
    }
    return {
        **machine(device),
        "scenario": scenario.name,
        "about": scenario.about,
        "dataset": dataset.name,
        "dataset_fingerprint": dataset.fingerprint(),
        "classes": list(dataset.classes),
        "vehicles": list(first.presence.vehicles),
        "rounds": first.presence.rounds,
        "trainings": {row.name: row.training for row in first.rows},
        "lost_with": holders,
        "pairs": {str(seed): int(one.pairs.sum()) for seed, one in lives.items()},
    }
