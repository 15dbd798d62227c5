"""How far a run has come: a bar on a terminal, a line for every evaluated round elsewhere."""

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from mpt.runs.config import RunConfig

if TYPE_CHECKING:
    from mpt.federation.measurement import Measurement
    from mpt.runs.logbook import MetricLogger

SHOWN = ("mpt", "frozen", "fedavg", "oracle-train")
"""Whose F1 is shown while a run goes on; where none of them runs, the first three methods'."""


class Reporter:
    """Shows seed, round, the rare class's F1 of a few methods, and the time left; hands the rows on to a logger."""

    def __init__(self, config: RunConfig, console: Console, logger: "MetricLogger | None" = None) -> None:
        self.config, self.logger = config, logger
        self.terminal = console.is_terminal
        self.shown = [name for name in SHOWN if name in config.methods]
        self.f1 = ""
        self.started, self.first = time.perf_counter(), 0
        self.bar = Progress(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), console=console
        )
        self.task = self.bar.add_task("starting", total=config.seeds * config.rounds)

    def __enter__(self) -> "Reporter":
        if self.terminal:
            self.bar.start()
        return self

    def __exit__(self, *_: Any) -> None:
        if self.terminal:
            self.bar.stop()
        if self.logger is not None:
            self.logger.close()

    def __call__(self, seed: int, number: int, rows: "Sequence[Measurement]") -> None:
        """After every round."""
        done = (seed - self.config.first_seed) * self.config.rounds + number
        if not self.first:
            self.first, self.started = done, time.perf_counter()
        if rows:
            f1 = {row.method: row.f1 for row in reversed(rows)}
            names = self.shown or list(dict.fromkeys(row.method for row in rows))[:3]
            self.f1 = "F1 of the class  " + "  ".join(f"{name} {f1[name]:.3f}" for name in names)
        text = f"seed {seed}  round {number}/{self.config.rounds}  {self.f1}"
        if self.terminal:
            self.bar.update(self.task, completed=done, description=text)
        elif rows:
            print(f"{text}{self._left(done)}", file=sys.stderr, flush=True)
        if self.logger is not None:
            self.logger(seed, number, rows)

    def _left(self, done: int) -> str:
        todo, timed = self.config.seeds * self.config.rounds - done, done - self.first
        if not todo or not timed:
            return ""
        return f"  about {todo * (time.perf_counter() - self.started) / timed:.0f} s left"
