"""`mpt run --scenario`: vehicles come and go, and the server decides."""

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column, Table

from mpt.base.text import quantity
from mpt.cli.render import console, note, prose, say, show
from mpt.runs.config import ConfigError
from mpt.runs.scenario_config import ScenarioConfig, make_scenario_config

if TYPE_CHECKING:
    from mpt.federation.living import LivingRound
    from mpt.runs.scenario import ScenarioRun

SAID = ("deposited", "held-out", "recovered", "lost", "crowded")
"""Decisions about classes that are shown while a scenario is played; decisions.csv has all of them."""
_SILENCE = 10.0


def run_scenario(settings: Mapping[str, Any], out: Path | None, overwrite: bool, track: str | None) -> None:
    """Play a scenario and print what came of it."""
    for name, given in (("overwrite", overwrite), ("track", track)):
        if given:
            raise ConfigError(f"{name}: is for the paper's departure, should be left out with --scenario")
    config = make_scenario_config(settings)
    with Watcher(config) as watcher:  # before torch, which takes seconds to come
        from mpt.report.scenario import write_scenario_report
        from mpt.runs.scenario import play

        result = play(config, out=out, begin=watcher.begin, progress=watcher, say=watcher.say)
    print_scenario(result)
    if out is not None:
        say(f"\nin {out}: {', '.join(sorted(path.name for path in out.iterdir()))}")
        say(str(write_scenario_report(out)))


class Watcher:
    """Shows how far a scenario is, and what the server decides about classes."""

    def __init__(self, config: ScenarioConfig) -> None:
        self.config, self.done, self.total, self.started = config, 0, 1, time.perf_counter()
        self.names: tuple[str, ...] = ()
        self.said = self.started
        self.above = console.is_terminal and sys.stderr.isatty()  # before rich has put itself in its place
        self.bar = Progress(
            TextColumn("{task.description}", markup=False), BarColumn(None), TextColumn("{task.percentage:>3.0f}%"),
            TimeRemainingColumn(compact=True), TextColumn("left"), console=console, expand=True, transient=True,
        )  # fmt: skip
        self.task = self.bar.add_task(f"reading {config.dataset}", total=1)

    def __enter__(self) -> "Watcher":
        if console.is_terminal:
            self.bar.start()
        else:
            note(f"reading {self.config.dataset}")
        return self

    def __exit__(self, *_: object) -> None:
        if console.is_terminal:
            self.bar.stop()

    def say(self, sentence: str) -> None:
        """A sentence that stays."""
        if self.above:
            self.bar.console.print(f"mpt: {sentence}")
        else:
            note(sentence)

    def begin(self, manifest: Mapping[str, Any], rounds: int) -> None:
        """Before the first round: what is there."""
        self.total, self.names = rounds, tuple(manifest["classes"])
        self.bar.update(self.task, total=rounds, description="round 1 trains")
        lost = manifest["lost_with"][str(self.config.first_seed)]
        held = ", ".join(f"{name} with {vehicle}" for name, vehicle in lost.items())
        self.say(f"{manifest['scenario']}: {manifest['about']}")
        self.say(
            f"{len(manifest['vehicles'])} vehicles, {manifest['rounds']} rounds, {len(self.names)} classes of "
            f"{manifest['dataset']}; " + (f"away for some time: {held}" if held else "no class is ever away")
        )

    def __call__(self, seed: int, one: "LivingRound") -> None:
        """After every round."""
        self.done += 1
        text = f"round {one.round}, {len(one.here)} vehicles"
        text = f"seed {seed}, {text}" if self.config.seeds > 1 else text
        self.bar.update(self.task, completed=self.done, description=text)
        told = [d for d in one.decisions if d.what in SAID]
        for decision in told:
            self.say(str(decision))
        if not console.is_terminal and (told or time.perf_counter() - self.said > _SILENCE):
            self.said = time.perf_counter()
            left = (self.total - self.done) * (self.said - self.started) / self.done
            print(f"{text}  about {left:.0f} s left", file=sys.stderr, flush=True)


def print_scenario(result: "ScenarioRun") -> None:
    """The rows by their mean F1 over the pairs, and what the columns are."""
    lines = result.tables["summary"]
    pairs = lines[0]["pairs"] if lines else 0
    if not pairs:
        prose("No class was away in a round that was read out: there is nothing to compare.")
    table = Table(
        Column("method", no_wrap=True),
        title=f"{result.scenario.name} on {result.config.dataset}",
        title_justify="left",
        box=None,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    for column in ("F1\naway", "with a\ndeposit", "other\nclasses", "bytes up\na round"):
        table.add_column(column, justify="right", vertical="bottom")
    for line in sorted(lines, key=lambda line: (line["f1"] == "", line["f1"])):
        spread = "" if line["deviation"] == "" else f" ± {line['deviation']:.3f}"
        sent = "" if line["bytes_up"] == "" else quantity(line["bytes_up"])
        table.add_row(
            line["method"], _f1(line["f1"]) + spread, _f1(line["f1_with_deposit"]), _f1(line["others_f1"]), sent
        )
    show(table)
    prose(
        f"F1 away: mean over {pairs} pairs of a class and a round in which its holder is away and at most "
        f"{result.config.carry_share:.0%} of its samples are there; the same for all rows."
    )
    if result.tables["evidence"]:
        _print_evidence(result.tables["evidence"])


def _print_evidence(lines: list[dict[str, Any]]) -> None:
    """The last round's, of classes with a deposit and of the others together."""
    last = [line for line in lines if (line["seed"], line["round"]) == (lines[-1]["seed"], lines[-1]["round"])]
    for line in last:
        if line["deposit"]:
            interval = f"{line['low']:.2f} to {line['high']:.2f}"
            say(f"evidence: {line['class']} {line['right']} of {line['samples']} recognised, {interval}")
    others = [line for line in last if not line["deposit"]]
    right, samples = (sum(line[name] for line in others) for name in ("right", "samples"))
    say(f"evidence: all other classes {right} of {samples} recognised, by samples that vehicles have set aside")


def _f1(value: float | str) -> str:
    return "" if isinstance(value, str) else f"{value:.3f}"
