"""How far a run has come: on a terminal a bar with the time left, elsewhere lines on standard error."""

import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from mpt.cli.render import note
from mpt.runs.config import RunConfig

if TYPE_CHECKING:
    from mpt.federation.measurement import Measurement
    from mpt.runs.logbook import MetricLogger

SILENCE = 10.0
"""Seconds after which a round that is not read out is a line, too, elsewhere than on a terminal."""


class Reporter:
    """Shows seed, round, time left, and the rare class's F1 of a few methods; says when the vehicle leaves.

    Rows are handed on to a logger.
    """

    def __init__(self, config: RunConfig, console: Console, logger: "MetricLogger | None" = None) -> None:
        self.config, self.console, self.logger = config, console, logger
        self.terminal = console.is_terminal
        self.above = self.terminal and sys.stderr.isatty()  # while the bar is there, rich has put itself in its place
        self.known: Mapping[str, Any] = {}
        self.started = self.said = time.perf_counter()
        self.first = 0
        self.f1 = Text(no_wrap=True, overflow="ellipsis")
        self.bar = Progress(
            TextColumn("{task.description}", markup=False), BarColumn(None), TextColumn("{task.percentage:>3.0f}%"),
            TimeRemainingColumn(compact=True), TextColumn("left"), console=console, expand=True,
        )  # fmt: skip
        self.task = self.bar.add_task(f"reading {config.dataset}", total=config.seeds * config.rounds)
        self.live = Live(Group(self.bar, self.f1), console=console, refresh_per_second=4, transient=True)

    def __enter__(self) -> "Reporter":
        if self.terminal:
            self.live.start()
        else:
            note(f"reading {self.config.dataset}")
        return self

    def __exit__(self, *_: Any) -> None:
        if self.terminal:
            self.live.stop()
        if self.logger is not None:
            self.logger.close()

    def say(self, sentence: str) -> None:
        """A sentence that stays, above the bar where there is one."""
        if self.above:
            self.console.print(f"mpt: {sentence}")
        else:
            note(sentence)

    def begin(self, manifest: Mapping[str, Any]) -> None:
        """Before the first round: what is there."""
        self.known = manifest
        if self.logger is not None:
            self.logger.begin(manifest)
        train, test = (sum(manifest["counts"][split]) for split in ("train", "test"))
        shape, of = manifest["image_shape"], " of"
        kind = {1: "vectors", 2: "series"}.get(len(shape), "images")
        if kind != "images":
            kind, of = f"{kind} of {' x '.join(map(str, shape))}", ","
        told = f"{self.config.backbone} on {manifest['device']}"
        if not manifest["model_bytes"]:
            kind, told = f"features of {shape[0]}", f"{self.config.rounds} versions of a model"
        self.say(
            f"{train:,} training and {test:,} test {kind}{of} {len(manifest['classes'])} classes, "
            f"{manifest['vehicles']} vehicles, {told}"
        )
        self.bar.update(self.task, description="round 1 trains")

    def __call__(self, seed: int, number: int, rows: "Sequence[Measurement]") -> None:
        """After every round."""
        done = (seed - self.config.first_seed) * self.config.rounds + number
        if not self.first:
            self.first, self.started = done, time.perf_counter()
        if rows:
            from mpt.runs.live import f1_line

            rare = self.known["classes"][self.known["rare"]] if self.known else "the class"
            self.f1.plain = f"F1 of {rare}  {f1_line(rows)}"
        text = f"round {number}/{self.config.rounds}"
        text = f"seed {seed}, {text}" if self.config.seeds > 1 else text
        if self.terminal:
            self.bar.update(self.task, completed=done, description=text)
        elif rows or time.perf_counter() - self.said > SILENCE:
            self.said = time.perf_counter()
            print("  ".join(filter(None, (text, self.f1.plain, self._left(done)))), file=sys.stderr, flush=True)
        if number == self.config.depart_at and self.known:
            self.say(f"{text}: {self._departure(seed)}")
        if self.logger is not None:
            self.logger(seed, number, rows)

    def _departure(self, seed: int) -> str:
        """Who has left, with what, and what remains."""
        rare = self.known["rare"]
        remain = self.known["remaining_samples"][seed - self.config.first_seed]
        gone = self.known["counts"]["train"][rare] - remain
        return (
            f"a vehicle leaves for good, with {gone:,} of the {gone + remain:,} training samples of "
            f"{self.known['classes'][rare]!r}; {remain:,} remain{'s' * (remain == 1)} on others"
        )

    def _left(self, done: int) -> str:
        todo, timed = self.config.seeds * self.config.rounds - done, done - self.first
        if not todo or not timed:
            return ""
        return f"about {todo * (time.perf_counter() - self.started) / timed:.0f} s left"
