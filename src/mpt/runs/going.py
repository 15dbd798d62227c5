"""Runs on their way: seed by seed, those of one training side by side, what is done on the disk."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mpt.federation.engine import Federation
from mpt.federation.lockstep import rounds_together
from mpt.federation.measurement import Measurement
from mpt.federation.state import FederationState
from mpt.runs.checkpoint import RunCheckpoint
from mpt.runs.folder import Folder
from mpt.runs.interrupts import Stopped, interruptible
from mpt.runs.models import ModelFolder
from mpt.runs.result import RunResult
from mpt.runs.tables import tables_of

if TYPE_CHECKING:
    from mpt.runs.simulate import PreparedRun

Progress = Callable[[int, int, Sequence[Measurement]], None]
"""Called after every round with the seed, the round's number and its rows."""


@dataclass(eq=False)
class Going:
    """A run on its way.

    Attributes:
        folder: None: it has none.
        last: the round that is done, with all that has been measured.
        progress: called after every round.
        finished: called when the folder holds the run, finished.
    """

    run: "PreparedRun"
    folder: Folder | None
    last: RunCheckpoint
    progress: Progress | None
    finished: Callable[[RunResult], None] | None = None

    @property
    def seeds(self) -> range:
        """Those that are not done."""
        config = self.run.config
        return config.seed_numbers[self.last.seed - config.first_seed :]

    @property
    def result(self) -> RunResult:
        """Of a run that is finished."""
        run, path = self.run, None if self.folder is None else self.folder.path
        return RunResult(run.config, {**run.manifest, "finished": True}, self.last.tables, True, path)

    def begin(self, seed: int) -> Federation:
        """The federation of a seed, which is recorded where the run is."""
        federation = self.run.federations.pop(seed)
        if self.folder is not None and self.run.config.record:
            self.run.record(self.folder.path, federation)
        return federation

    def take(self, federation: Federation, state: FederationState, rows: Sequence[Measurement]) -> None:
        """A round that is done."""
        plan, dataset, folder = federation.plan, self.run.dataset, self.folder
        if folder is not None and self.run.config.models and not dataset.versions:
            _keep(folder.path, federation, state, rows)
        measured = tables_of(rows, (plan.depart_at, plan.rounds), dataset.classes)
        self.last = self.last.then(plan.seed, state, measured)
        if folder is not None:
            folder.checkpoint(self.last, always=bool(rows))
        if self.progress is not None:
            self.progress(plan.seed, state.round, rows)

    def stop(self) -> str:
        """Ctrl-C: what is done is on the disk."""
        where = f"stopped after round {self.last.round} of seed {self.last.seed}"
        if self.folder is None:
            return f"{where}; with --out DIR the same command would resume from there"
        self.folder.checkpoint(self.last, always=True)
        return f"{where}; the same command resumes from there"


def go(runs: Sequence[Going]) -> None:
    """What runs of one training lack, seed by seed.

    Those that begin with a seed train as one. One that was stopped inside it ends it by itself.

    Raises:
        Stopped: on Ctrl-C, after what has been done is on the disk.
    """
    lacking, going = {one: one.seeds for one in runs}, list(runs)

    def finish(ready: Sequence[Going]) -> None:
        for one in ready:
            going.remove(one)
            if one.folder is not None:
                one.folder.finish(one.last.tables)
                if one.finished is not None:
                    one.finished(one.result)

    try:
        with interruptible() as asked:
            finish([one for one in runs if not lacking[one]])
            for seed in sorted({seed for seeds in lacking.values() for seed in seeds}):
                there = [one for one in going if seed in lacking[one]]
                inside = [one for one in there if one.last.seed == seed and one.last.round]
                beginning = [one for one in there if one not in inside]
                for some in filter(None, [*([one] for one in inside), beginning]):
                    _go_through(seed, some, asked)
                finish([one for one in there if seed == lacking[one][-1]])
    except KeyboardInterrupt:
        raise Stopped("; ".join(dict.fromkeys(one.stop() for one in going)) or "stopped") from None


def _go_through(seed: int, runs: Sequence[Going], asked: Callable[[], bool]) -> None:
    """One seed to its last round; several runs from its first one. What it holds on the device goes with it."""
    federations = [one.begin(seed) for one in runs]
    for other in federations[1:]:
        other.join(federations[0])
    resumed = runs[0].last.state if runs[0].last.seed == seed else None
    states = [resumed or federation.start() for federation in federations]
    with federations[0].trainers.used():
        for after, rows in rounds_together(federations, states):
            for one, federation, state, mine in zip(runs, federations, after, rows, strict=True):
                one.take(federation, state, mine)
            if asked():
                raise KeyboardInterrupt


def _keep(out: Path, federation: Federation, state: FederationState, rows: Sequence[Measurement]) -> None:
    """The models of the departure and of the last round, each once."""
    plan = federation.plan
    if state.round in (plan.depart_at, plan.rounds):
        trainings = {method.name: method.training for method in federation.methods}
        ModelFolder.of(out).write(plan.seed, state.round, state.models, rows, trainings)
