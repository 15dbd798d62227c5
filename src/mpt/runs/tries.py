"""The tries of `mpt tune`: which settings of a method are tried, and the file that has a line for each of them."""

import csv
import io
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from scipy.stats import qmc

from mpt.base.errors import ConfigError
from mpt.base.files import LockedError, exclusive_lock
from mpt.base.generators import numpy_generator
from mpt.methods import METHODS, Space
from mpt.methods.spaces import number_of_settings
from mpt.runs.csvfile import CsvLine, read_lines, read_text
from mpt.runs.errors import RunError

_AT_ONCE = 64
"""Points of the sequence that are drawn together; so many, whatever the budget is."""

Arguments = dict[str, Any]
"""Of a try, by name; none: the method's default setting."""


def tries_of(space: Space, default: Mapping[str, Any], budget: int, seed: int) -> list[Arguments]:
    """The settings to try, `budget` of them: the default first, then those of a seeded, scrambled Halton sequence.

    The tries of a smaller budget are the first of a larger one's. A space of lists alone gives each setting once, and
    no more than there are.

    Args:
        space: what can be set; nothing: the default is the only try.
        default: what is set where nothing is said, in the order of the space, as far as it is known.
        budget: at least 1.
        seed: of the sequence.
    """
    many = number_of_settings(space)
    tries: list[Arguments] = [{}]
    if not space:
        return tries
    seen = {text_of(default)} if many is not None and _listed(space, default) else set()
    most = budget if many is None else min(budget, 1 + many - len(seen))
    sequence = qmc.Halton(len(space), seed=numpy_generator(seed, "tune"))
    while len(tries) < most:
        for point in sequence.random(_AT_ONCE).tolist():
            made = {name: one.at(share) for (name, one), share in zip(space.items(), point, strict=True)}
            if len(tries) < most and (many is None or text_of(made) not in seen):
                seen.add(text_of(made))
                tries.append(made)
    return tries


def _listed(space: Space, default: Mapping[str, Any]) -> bool:
    """Whether the default is one of the settings of a space of lists."""
    return all(repr(default.get(name)) in map(repr, getattr(one, "values", ())) for name, one in space.items())


def text_of(arguments: Mapping[str, Any]) -> str:
    """As they are written in a name: `ridge=0.3, cov_ridge=0.1`."""
    return ", ".join(f"{name}={value!r}" for name, value in arguments.items())


def spec_of(method: str, arguments: Arguments) -> str:
    """A method with arguments, by its name: `mpt(ridge=0.3)`; those that the name has already come first."""
    if not arguments:
        return method
    spec = METHODS.parse(method)
    given = [*map(repr, spec.positional), text_of({**spec.named, **arguments})]
    return f"{spec.head}({', '.join(given)})"


@dataclass(frozen=True)
class Tried:
    """A try: a line of the file.

    Attributes:
        method: as it was named.
        number: of the try, from 0, the default setting.
        arguments: that were set, as in `text_of`; "": the default.
        runs: what the tuning runs are known by, all together.
        seed: of the settings that are drawn.
        figure: what the score is a share of.
        version: of mpt and the method; of a user's own, what its file is known by.
        score: the mean of `shares`; None where the try has failed.
        shares: by what a run is known by, its F1 as a share of oracle-train's.
        seconds: that it took.
        error: why it has failed; "" where it has not.
    """

    method: str
    number: int
    arguments: str
    runs: str
    seed: int
    figure: str
    version: str
    score: float | None
    shares: Mapping[str, float]
    seconds: float
    error: str = ""

    def line(self) -> list[str]:
        """As cells of the file."""
        shares = " ".join(f"{run}={share!r}" for run, share in self.shares.items())
        score = "" if self.score is None else repr(self.score)
        what = [self.method, str(self.number), self.arguments, self.runs, str(self.seed), self.figure]
        return [*what, self.version, score, shares, f"{self.seconds:.3f}", self.error]

    @classmethod
    def read(cls, line: CsvLine) -> "Tried":
        """What `line` has written."""
        score = None if not line.text("score") else line.number("score")
        try:
            shares = {run: float(share) for run, share in (p.split("=") for p in line.text("shares").split())}
        except ValueError:
            raise line.error(f"shares is {line.text('shares')!r}, should be as mpt tune writes them") from None
        if (score is None) != bool(line.text("error")):
            raise line.error("should have either a score or an error")
        texts = {name: line.text(name) for name in ("method", "arguments", "runs", "figure", "version", "error")}
        return cls(
            **texts,
            number=line.whole("try"),
            seed=line.whole("seed"),
            score=score,
            shares=shares,
            seconds=line.number("seconds"),
        )


COLUMNS = tuple("try" if f.name == "number" else f.name for f in fields(Tried))
_HEADER = ",".join(COLUMNS) + "\n"
Append = Callable[[Tried], None]


@contextmanager
def tries_file(path: Path) -> Iterator[tuple[list[Tried], Append]]:
    """The tries in a file, made where there is none, and what adds one; the file is this process's alone inside.

    A line is on the disk before the next try begins. One that a killed process has not written to its end is left out.

    Raises:
        ConfigError: another process writes to it.
        RunError: it is no file of tries.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    except OSError as error:
        raise ConfigError(f"out: {path} cannot be written ({error.strerror}), should be a CSV file") from None
    if not path.is_file():
        raise ConfigError(f"out: {path} is no file, should be a CSV file")
    try:
        with exclusive_lock(path):
            yield _begin(path), lambda tried: _append(path, tried.line())
    except LockedError:
        raise ConfigError(f"out: another process is writing to {path}; wait until it is done") from None


def _begin(path: Path) -> list[Tried]:
    """Its tries, once what was not written to its end is gone and there is a header."""
    text = read_text(path)
    whole = text[: text.rfind("\n") + 1]
    if not (whole.startswith(_HEADER) or (not whole and _HEADER.startswith(text))):
        raise RunError(f"{path}: is no file of mpt tune, should begin with {_HEADER.strip()}; --out names another")
    if whole != text:
        os.truncate(path, len(whole.encode()))
    if not whole:
        _append(path, COLUMNS)
    found = [Tried.read(line) for line in read_lines(path, COLUMNS)]
    for (method, number), times in Counter((tried.method, tried.number) for tried in found).items():
        if times > 1:
            raise RunError(f"{path}: try {number} of {method} is there {times} times, should be there once")
    return found


def _append(path: Path, cells: Sequence[str]) -> None:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerow(cells)
    with path.open("ab") as file:
        file.write(text.getvalue().encode())
        file.flush()
        os.fsync(file.fileno())
