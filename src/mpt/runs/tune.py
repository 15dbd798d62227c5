"""`mpt tune`: every method, ours too, gets the same number of tries on tuning runs; every try is a line of a file."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mpt.base.errors import MptError
from mpt.base.extensions import digest, told
from mpt.methods import METHODS, MethodError, Space, Traits, find_method, find_space
from mpt.runs.bench import FIGURES, Bench, TuningRun, known_by, tuning_runs
from mpt.runs.config import ConfigError
from mpt.runs.errors import OtherRunError, RunError
from mpt.runs.interrupts import Stopped
from mpt.runs.tries import Append, Arguments, Tried, spec_of, text_of, tries_file, tries_of
from mpt.version import __version__

Progress = Callable[[str, int, int], None]
"""Called before a try is computed, with the method, the try's number and how many the method has."""


@dataclass(frozen=True)
class Tuned:
    """A method and its tries.

    Attributes:
        method: as it was named.
        tries: all of them, the default first.
        settings: the arguments of each.
        whole: whether there are no more settings than these, fewer than the budget.
    """

    method: str
    tries: tuple[Tried, ...]
    settings: tuple[Arguments, ...]
    whole: bool

    @property
    def default(self) -> Tried:
        """The default setting."""
        return self.tries[0]

    @property
    def best(self) -> Tried | None:
        """The one with the highest score, the earliest of several; None where all have failed."""
        there = [tried for tried in self.tries if tried.score is not None]
        return max(there, key=lambda tried: (tried.score, -tried.number)) if there else None

    @property
    def failed(self) -> tuple[Tried, ...]:
        """Those that raised something."""
        return tuple(tried for tried in self.tries if tried.error)

    def spec(self, tried: Tried) -> str:
        """A try's setting as a name for `--methods`."""
        return spec_of(self.method, self.settings[tried.number])


@dataclass(frozen=True)
class Tuning:
    """What came of it.

    Attributes:
        runs: that were tuned on.
        methods: in the order in which they were named.
        left_out: methods with a space that read a training which was not recorded, where none were named.
        computed: how many tries were not in the file before.
        budget, seed, figure, out: as they were given.
    """

    runs: tuple[TuningRun, ...]
    methods: tuple[Tuned, ...]
    left_out: tuple[str, ...]
    computed: int
    budget: int
    seed: int
    figure: str
    out: Path


def tune(
    folders: Sequence[Path],
    methods: Sequence[str] = (),
    *,
    budget: int,
    out: Path,
    seed: int = 0,
    figure: str = "mean_f1",
    progress: Progress | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Tuning:
    """Try settings of methods on finished runs with a record; what the file has already is not computed again.

    A score is the departed class's F1 as a share of oracle-train's in the same run and seed, the mean over seeds, then
    over runs.

    Args:
        folders: of the runs, or with several of them.
        methods: names, or `path.py:Class`, with arguments that are to stay; none: all built-in ones with a space whose
            training was recorded.
        budget: tries of each method, the default setting among them.
        out: the file of tries.
        seed: of the settings that are drawn.
        figure: "mean_f1", over the rounds after the departure, or "last_f1".
        progress: called before every try that is computed.
        say: takes a sentence for the user.

    Raises:
        RunError: a run cannot be replayed from its record.
        MethodError: a method cannot be found, or reads a training that was not recorded.
        OtherRunError: the file has tries of other runs, another seed, figure or version.
        Stopped: on Ctrl-C.
    """
    _check(budget, seed, figure)
    runs = tuning_runs(folders)
    trainings = frozenset.intersection(*(run.trainings for run in runs))
    chosen, left_out = _methods(tuple(methods), trainings)
    frames = {method: _Frame.of(method, runs, seed, figure) for method in chosen}
    plans = {method: _planned(method, budget, seed) for method in chosen}
    bench, computed, tuned = Bench(runs, figure, say), 0, []
    with tries_file(out) as (there, append):
        _check_same(out, there, frames, plans)
        known = {(tried.method, tried.number): tried for tried in there}
        for method in chosen:
            bench.turn_to()
            tries = []
            for number, arguments in enumerate(plans[method]):
                if (method, number) not in known:
                    if progress is not None:
                        progress(method, number, len(plans[method]))
                    known[method, number] = _try(bench, frames[method], number, arguments, append, computed)
                    computed += 1
                tries.append(known[method, number])
            whole = len(tries) < budget
            tuned.append(Tuned(method, tuple(tries), tuple(plans[method]), whole))
    return Tuning(runs, tuple(tuned), left_out, computed, budget, seed, figure, out)


def _check(budget: Any, seed: Any, figure: str) -> None:
    for name, value, least in (("budget", budget, 1), ("seed", seed, 0)):
        if type(value) is not int or value < least:
            raise ConfigError(f"{name}: {value!r}, should be a whole number of at least {least}")
    if figure not in FIGURES:
        raise ConfigError(f"figure: {figure!r}, should be {' or '.join(FIGURES)}")


def _methods(named: tuple[str, ...], trainings: frozenset[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Those to tune, and those that are left out."""
    chosen = named or tuple(name for name in METHODS if find_space(name))
    twice = [name for name in chosen if chosen.count(name) > 1]
    if twice:
        raise ConfigError(f"methods: {twice[0]!r} is there twice, should differ from each other")
    missing = {name: find_method(name).training for name in chosen if find_method(name).training not in trainings}
    for name, training in missing.items() if named else ():
        raise MethodError(
            f"method: {name} reads the training {training!r}, which not all of these runs have recorded; they have "
            f"{', '.join(sorted(trainings))}"
        )
    return tuple(name for name in chosen if name not in missing), tuple(missing)


def _planned(method: str, budget: int, seed: int) -> list[Arguments]:
    """The settings of a method that are tried."""
    space: Space = find_space(method)
    made = find_method(method)
    default = {name: getattr(made, name) for name in space if hasattr(made, name)}
    return tries_of(space, default, budget, seed)


@dataclass(frozen=True)
class _Frame:
    """What all tries of a method have in common, in the file."""

    method: str
    runs: str
    seed: int
    figure: str
    version: str

    @classmethod
    def of(cls, method: str, runs: Sequence[TuningRun], seed: int, figure: str) -> "_Frame":
        path = METHODS.file_of(method)
        own = "" if path is None else f" {digest(path)}"
        version = f"{__version__} {Traits.of(find_method(method)).version}{own}"
        return cls(method, known_by(runs), seed, figure, version)

    def tried(self, number: int, arguments: Arguments, shares: dict[str, float], seconds: float, error: str) -> Tried:
        """A line of the file."""
        score = None if error else sum(shares.values()) / len(shares)
        return Tried(**vars(self), number=number, arguments=text_of(arguments), score=score, shares=shares,
                     seconds=seconds, error=error)  # fmt: skip


def _check_same(
    out: Path, there: Sequence[Tried], frames: dict[str, _Frame], plans: dict[str, list[Arguments]]
) -> None:
    """What the file has has to be of the same runs, seed and figure, and of the same methods as they are now."""
    first = next(iter(frames.values()), None)
    for tried in there if first is not None else ():
        assert first is not None
        for name, words in (("runs", "other runs"), ("seed", "another seed"), ("figure", "another figure")):
            other, mine = getattr(tried, name), getattr(first, name)
            if other != mine:
                raise OtherRunError(
                    f"out: {out} has tries of {words}, {other}, should be {mine}; --out names another file"
                )
        if tried.method not in frames:
            continue
        planned = plans[tried.method]
        changed = tried.number < len(planned) and tried.arguments != text_of(planned[tried.number])
        if changed or tried.version != frames[tried.method].version:
            raise OtherRunError(
                f"out: {out} has tries of {tried.method} as it was before it, its space or mpt changed; --out names "
                "another file"
            )


def _try(bench: Bench, frame: _Frame, number: int, arguments: Arguments, append: Append, before: int) -> Tried:
    """Compute a try and write its line; what it raises is its error, unless it is the record's or the machine's."""
    start, shares, error = time.perf_counter(), dict[str, float](), ""
    try:
        shares = bench.shares(spec_of(frame.method, arguments))
    except KeyboardInterrupt:
        raise Stopped(f"stopped after {before} tries; the same command resumes from there") from None
    except (RunError, OSError, MemoryError):
        raise
    except (Exception, SystemExit) as raised:
        error = " ".join(str(raised).split()) if isinstance(raised, MptError) else told(raised)
    tried = frame.tried(number, arguments, shares, round(time.perf_counter() - start, 3), error)
    append(tried)
    return tried
