"""The runner of a sweep: every process does the same, takes cells that nobody has, and waits for those of others."""

import math
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from mpt.experiments.cells import Cell, CellStore

if TYPE_CHECKING:
    from mpt.federation.trainers import Trainers

POLL = 1.0
"""Seconds between two looks at cells that other processes compute."""

SHOWN = ("mpt", "frozen", "fedavg", "live", "oracle-train")

Message = tuple[str, str, Any]
"""What happens (begun, round, done, failed, note), the cell's key, and the figures that belong to it."""


@dataclass(frozen=True)
class Swept:
    """How a sweep ended.

    Attributes:
        done: keys of the cells that are finished, by whomever.
        computed: of those that this call computed.
        failed: why a cell could not be computed, by key.
        asked: keys of all its cells.
    """

    done: tuple[str, ...]
    computed: tuple[str, ...]
    failed: dict[str, str]
    asked: frozenset[str] = frozenset()

    def __add__(self, other: "Swept") -> "Swept":
        """Of two sweeps, one after the other."""
        done = tuple(dict.fromkeys((*self.done, *other.done)))
        computed = (*self.computed, *other.computed)
        return Swept(done, computed, {**self.failed, **other.failed}, self.asked | other.asked)


def sweep(
    cells: Sequence[Cell],
    store: CellStore,
    *,
    jobs: int = 1,
    device: str = "auto",
    until: float = math.inf,
    console: Console,
) -> Swept:
    """Compute what the store lacks of `cells`, each once whoever else works on the same folder.

    Args:
        cells: in the order in which they are begun; the same one may be there twice.
        store: where they are.
        jobs: processes; with several, on a machine with several GPUs, each has its own in turn.
        device: as in `RunConfig`.
        until: when it is later than that (`time.time`), no further cell is begun; those that are running end.
        console: for the progress display; a line a cell where it is no terminal.

    Raises:
        KeyboardInterrupt: on Ctrl-C, after what has been done is on the disk.
    """
    todo = list({cell.key: cell for cell in cells}.values())
    with Display(todo, store, console) as display:
        missing = [cell for cell in todo if not store.finished(cell)]
        started = time.time()
        if jobs <= 1 or len(missing) <= 1:
            work(missing, store, device, started, display, until)
        else:
            _spread(missing, store, min(jobs, len(missing)), device, started, display, until)
    done = tuple(cell.key for cell in todo if store.finished(cell))
    left = len(todo) - len({*done, *display.failed})
    if left:
        display.line(f"the time is over, {left} of {len(todo)} cells were not begun or are with others")
    return Swept(done, tuple(display.computed), dict(display.failed), frozenset(cell.key for cell in todo))


def work(
    cells: Sequence[Cell],
    store: CellStore,
    device: str,
    started: float,
    report: Callable[[Message], None],
    until: float = math.inf,
) -> None:
    """Compute cells that nobody else has; return when all are finished or have failed, here or elsewhere, or `until`
    is over. Cells of one training are computed together.
    """
    from mpt.federation.trainers import Trainers

    waiting, trainers = list(cells), Trainers()
    while waiting:
        taken, computed = [], set[str]()
        for cell in waiting:
            if cell.key in computed:
                continue
            if store.finished(cell):
                report(("done", cell.key, None))
            elif (failure := store.failure(cell, started)) is not None:
                report(("failed", cell.key, failure))
            elif time.time() < until:
                with ExitStack() as claims:
                    ours = [cell] if claims.enter_context(store.claimed(cell)) else []
                    mates = [c for c in waiting if ours and c.training == cell.training and c is not cell]
                    ours += [c for c in mates if claims.enter_context(store.claimed(c))]
                    ours = [c for c in ours if _open(c, store, started)]
                    if cell in ours:
                        _compute(ours, store, device, report, trainers)
                        computed |= {c.key for c in ours}
                    else:
                        taken.append(cell)  # in the next turn it is reported, or waited for
        if len(taken) == len(waiting):
            time.sleep(POLL)
        waiting = [cell for cell in taken if cell.key not in computed]


def _open(cell: Cell, store: CellStore, since: float) -> bool:
    """Whether it is neither finished nor has failed."""
    return not store.finished(cell) and store.failure(cell, since) is None


def _compute(
    cells: Sequence[Cell], store: CellStore, device: str, report: Callable[[Message], None], trainers: "Trainers"
) -> None:
    """Those of one training; where they cannot be computed together, one by one."""
    begun = time.perf_counter()
    for cell in cells:
        report(("begun", cell.key, None))
    told, say = [partial(_told, cell, report) for cell in cells], [partial(_said, cell, report) for cell in cells]
    if len(cells) > 1:
        try:
            store.compute_together(cells, device, told, say, trainers)
        except Exception as error:  # whichever of them it is, the others go on
            for noted in (noted for cell, noted in zip(cells, say, strict=True) if not store.paged(cell)):
                noted(f"not computed with others of its training ({type(error).__name__}: {error}), but by itself")
    for cell, progress, noted in zip(cells, told, say, strict=True):
        try:
            if not store.paged(cell):
                store.compute(cell, device, progress, noted, trainers)
        except Exception as error:  # one cell that fails leaves the others
            report(("failed", cell.key, f"{type(error).__name__}: {error}"))
        else:
            report(("done", cell.key, time.perf_counter() - begun))


def _said(cell: Cell, report: Callable[[Message], None], sentence: str) -> None:
    report(("note", cell.key, sentence))


def _told(cell: Cell, report: Callable[[Message], None], seed: int, number: int, rows: Sequence[Any]) -> None:
    """A round of a cell."""
    parent = multiprocessing.parent_process()
    if parent is not None and not parent.is_alive():
        raise KeyboardInterrupt
    report(("round", cell.key, (seed, number, {row.method: row.f1 for row in rows if row.method in SHOWN})))


def _spread(
    cells: Sequence[Cell], store: CellStore, jobs: int, device: str, started: float, display: "Display", until: float
) -> None:
    """The same in several processes."""
    context = multiprocessing.get_context("spawn")
    queue: Any = context.Queue()
    devices = _devices(device, jobs)
    threads = max(1, (os.cpu_count() or 1) // jobs)
    workers = [
        context.Process(
            target=_worker, args=(list(cells), store.path, one, started, queue, threads, until), daemon=False
        )
        for one in devices
    ]
    for worker in workers:
        worker.start()
    try:
        while any(worker.is_alive() for worker in workers) or not queue.empty():
            _drain(queue, display)
    except KeyboardInterrupt:  # every process of the terminal's group got it too, and writes its checkpoint
        for worker in workers:
            if worker.is_alive():
                worker.join()
        raise
    for worker in workers:
        worker.join()
    for cell in cells:
        begun = cell.key in display.tasks or time.time() < until
        if begun and not store.finished(cell) and cell.key not in display.failed:
            display(("failed", cell.key, store.failure(cell) or "the process that computed it has ended"))


def _drain(queue: Any, display: "Display") -> None:
    from queue import Empty

    try:
        display(queue.get(timeout=0.2))
    except Empty:
        return


def _worker(cells: list[Cell], path: Path, device: str, started: float, queue: Any, threads: int, until: float) -> None:
    """The target of a process."""
    import torch

    torch.set_num_threads(threads)
    try:
        work(cells, CellStore(path), device, started, queue.put, until)
    except KeyboardInterrupt:
        sys.exit(130)


def _devices(device: str, jobs: int) -> list[str]:
    """One a process: with "auto", the GPUs in turn."""
    import torch

    count = torch.cuda.device_count() if device in ("auto", "cuda") and torch.cuda.is_available() else 0
    return [f"cuda:{i % count}" if count > 1 else device for i in range(jobs)]


@dataclass
class Display:
    """Shows how far a sweep has come: bars on a terminal, elsewhere a line for every cell that ends."""

    cells: Sequence[Cell]
    store: CellStore
    console: Console
    computed: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.by_key = {cell.key: cell for cell in self.cells}
        self.done = {cell.key for cell in self.cells if self.store.finished(cell)}
        self.found = len(self.done)
        self.started = time.perf_counter()
        self.tasks: dict[str, TaskID] = {}
        self.f1: dict[str, dict[str, float]] = {}
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=self.console,
            transient=True,
        )
        self.all = self.bar.add_task("cells", total=len(self.cells), completed=len(self.done))

    def __enter__(self) -> "Display":
        if self.found and self.found < len(self.cells):
            self.line(f"{self.found} of {len(self.cells)} cells are there already")
        if self.console.is_terminal:
            self.bar.start()
        return self

    def __exit__(self, *_: Any) -> None:
        if self.console.is_terminal:
            self.bar.stop()

    def __call__(self, message: Message) -> None:
        """Take one message."""
        kind, key, figures = message
        cell = self.by_key[key]
        if kind == "begun":
            self.tasks[key] = self.bar.add_task(cell.label, total=cell.config.seeds * cell.config.rounds)
        elif kind == "round":
            seed, number, f1 = figures
            self.f1[key] = {**self.f1.get(key, {}), **f1}
            if key in self.tasks:
                self.bar.update(
                    self.tasks[key], completed=(seed - cell.config.first_seed) * cell.config.rounds + number
                )
        elif kind == "note":
            self.line(f"{cell.label}: {figures}")
        elif kind == "done":
            if figures is not None:  # by a process of ours, though another one may have been first to see it
                self.computed.append(key)
            if key not in self.done:
                self.done.add(key)
                self._ended(cell, "" if figures is None else f", {figures:.0f} s")
        elif kind == "failed" and key not in self.failed:
            self.failed[key] = figures
            self._ended(cell, f" failed: {figures}")

    def _ended(self, cell: Cell, what: str) -> None:
        if cell.key in self.tasks:
            self.bar.remove_task(self.tasks.pop(cell.key))
        ended = len(self.done) + len(self.failed)
        self.bar.update(self.all, completed=ended)
        shown = "".join(f"  {name} {value:.3f}" for name, value in self.f1.pop(cell.key, {}).items())
        left = ""
        if ended - self.found > 0 and ended < len(self.cells):
            each = (time.perf_counter() - self.started) / (ended - self.found)
            left = f", about {each * (len(self.cells) - ended):.0f} s left"
        self.line(f"[{ended}/{len(self.cells)}] {cell.label}{what}{shown}{left}")

    def line(self, text: str) -> None:
        """A line that stays."""
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)
