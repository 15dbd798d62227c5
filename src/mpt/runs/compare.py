"""`mpt compare`: paired differences over seeds, run by run."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mpt.base.errors import MptError
from mpt.base.seeds import Difference, Series, paired
from mpt.base.text import did_you_mean
from mpt.runs.reader import Run, is_run, read_run
from mpt.runs.summary import Figures

_NOT_MATCHED = frozenset({"seeds", "device", "methods", "record", "models"})
"""What of the settings does not set two cells apart."""


class CompareError(MptError):
    """There is nothing to compare; the message says why and what would be right."""


@dataclass(frozen=True)
class PairedFigure:
    """One figure of two rows on the same seeds.

    Attributes:
        one, other: their means over these seeds.
        difference: `one` less `other`, with half the width of its 95% interval.
    """

    one: float
    other: float
    difference: Difference


@dataclass(frozen=True)
class Pair:
    """Two rows of one cell, or of two.

    Attributes:
        cells: where they are from.
        rows: the method and readout of each.
        seeds: that both have.
        rounds: after the departure, in which both were read out for all these seeds.
        last_f1: of the rare class, in the last of these rounds.
        mean_f1: of the rare class, over all of them.
        balanced: mean recall over all classes, in the last of them.
    """

    cells: tuple[Path, Path]
    rows: tuple[Series, Series]
    seeds: tuple[int, ...]
    rounds: tuple[int, ...]
    last_f1: PairedFigure
    mean_f1: PairedFigure
    balanced: PairedFigure


@dataclass(frozen=True)
class Comparison:
    """What was found.

    Attributes:
        pairs: row by row, cell by cell.
        differ: settings in which all cells of A differ from all of B, with both sides' values.
        unpaired: a sentence for each thing that has no counterpart.
    """

    pairs: tuple[Pair, ...]
    differ: dict[str, tuple[list[Any], list[Any]]]
    unpaired: tuple[str, ...]


def compare(
    a: Path,
    b: Path | None = None,
    *,
    methods: Sequence[str] = (),
    against: str | None = None,
    of_class: str | None = None,
) -> Comparison:
    """The rows of `a` less those of `b`.

    Args:
        a: a run's folder, or one with several runs in it.
        b: another one, whose cells are matched by their settings; None: `a` again.
        methods: of `a`; by default all.
        against: the method of `b` that they are compared with; by default each with itself.
        of_class: whose F1 is compared; by default that of the class that departs.

    Raises:
        CompareError: nothing can be paired.
        RunError: a file of a run is broken.
    """
    if b is None and against is None:
        raise CompareError("compare: one folder and no --against, should be two folders or a method to compare with")
    ones = cells_of(a)
    others = ones if b is None else cells_of(b)
    unpaired: list[str] = []
    differ: dict[str, tuple[list[Any], list[Any]]] = {}
    matched = [(cell, cell) for cell in ones]
    if b is not None:
        differ = differing(ones, others)
        matched = list(_matched(ones, others, set(differ), unpaired.append))
    pairs = [p for one, other in matched for p in _pairs(one, other, methods, against, of_class, unpaired.append)]
    if not pairs:
        raise CompareError(f"compare: nothing could be paired; {'; '.join(unpaired) or 'there are no methods'}")
    return Comparison(tuple(pairs), differ, tuple(dict.fromkeys(unpaired)))


def cells_of(folder: Path) -> list[Run]:
    """The run in a folder, or all in folders below it."""
    if not folder.is_dir():
        raise CompareError(f"compare: there is no folder {folder}, should be one of mpt run --out, or one with several")
    below = (path.parent for path in folder.rglob("config.toml"))
    found = [folder] if _has_rows(folder) else sorted(filter(_has_rows, below))
    if not found:
        raise CompareError(f"compare: {folder} holds no run that has begun to be read out, should be of mpt run --out")
    return [read_run(path) for path in found]


def _has_rows(folder: Path) -> bool:
    return is_run(folder) and (folder / "metrics.csv").is_file()


def differing(ones: Sequence[Run], others: Sequence[Run]) -> dict[str, tuple[list[Any], list[Any]]]:
    """Settings of which the two sides have no value in common: what is compared, not what is matched."""
    names = dict.fromkeys(name for cell in (*ones, *others) for name in cell.config if name not in _NOT_MATCHED)
    found = {}
    for name in names:
        sides = [list({_hashable(c.config.get(name)): c.config.get(name) for c in s}.values()) for s in (ones, others)]
        if not {*map(_hashable, sides[0])} & {*map(_hashable, sides[1])}:
            found[name] = (sides[0], sides[1])
    return found


def _matched(
    ones: Sequence[Run], others: Sequence[Run], differ: set[str], say: Callable[[str], None]
) -> Iterator[tuple[Run, Run]]:
    """Cells with the same settings, but for those that differ throughout."""

    def key(cell: Run) -> Any:
        return frozenset((k, _hashable(v)) for k, v in cell.config.items() if k not in differ and k not in _NOT_MATCHED)

    def several(cells: Sequence[Run]) -> dict[Any, list[Run]]:
        made: dict[Any, list[Run]] = {}
        for cell in cells:
            made.setdefault(key(cell), []).append(cell)
        return made

    here, there = several(ones), several(others)
    for k in dict.fromkeys((*here, *there)):
        mine, theirs = here.get(k, []), there.get(k, [])
        if len(mine) == len(theirs) == 1:
            yield mine[0], theirs[0]
        elif mine and theirs:
            names = ", ".join(str(cell.path) for cell in (*mine, *theirs))
            say(f"{names} have the same settings, so it is not clear which to pair")
        else:
            for cell in (*mine, *theirs):
                say(f"{cell.path} has no counterpart with the same settings")


def _pairs(
    one: Run,
    other: Run,
    methods: Sequence[str],
    against: str | None,
    of_class: str | None,
    say: Callable[[str], None],
) -> Iterator[Pair]:
    here, there = _by_method(one), _by_method(other)
    for name in methods:
        if name not in here:
            say(f"{one.path} has no {name}")
    if against is not None and against not in there:
        say(f"{other.path} has no {against}")
        return
    for name in [name for name in here if not methods or name in methods]:
        counterpart = name if against is None else against
        if one is other and counterpart == name:
            continue
        if counterpart not in there:
            say(f"{other.path} has no {counterpart}")
            continue
        for readout in here[name]:
            if readout not in there[counterpart] and len(there[counterpart]) > 1:
                say(f"{name} in {one.path} is read out by {readout}, {counterpart} in {other.path} by none like it")
                continue
            fitting = readout if readout in there[counterpart] else there[counterpart][0]
            made = _pair(one, other, Series(name, readout), Series(counterpart, fitting), of_class, say)
            if made is not None:
                yield made
    if against is None and not methods:
        for name in there:
            if name not in here:
                say(f"{one.path} has no {name}")


def _by_method(run: Run) -> dict[str, list[str]]:
    """The readouts of each method."""
    found: dict[str, list[str]] = {}
    for series in run.figures.series:
        found.setdefault(series.method, []).append(series.readout)
    return found


def _pair(
    one: Run, other: Run, mine: Series, theirs: Series, of_class: str | None, say: Callable[[str], None]
) -> Pair | None:
    departed = max(one.depart_at, other.depart_at)
    scored = [(_of(run, of_class), series) for run, series in ((one, mine), (other, theirs))]
    here, there = (_after(figures, series, departed) for figures, series in scored)
    seeds = sorted(set(here) & set(there))
    for run, series, extra in ((one, mine, set(here) - set(there)), (other, theirs, set(there) - set(here))):
        if extra:
            listed = ", ".join(map(str, sorted(extra)))
            say(f"{series.method} in {run.path} has seeds that its counterpart has not: {listed}")
    rounds = sorted(set.intersection(*(set(here[s]) & set(there[s]) for s in seeds))) if seeds else []
    if not rounds:
        names = f"{mine.method} in {one.path} and {theirs.method} in {other.path}"
        say(f"{names} share no seed and round after the departure")
        return None
    sides = [(one.figures, mine), (other.figures, theirs)]

    def figure(values: Callable[[Figures, Series], Mapping[int, float]], some: Any = sides) -> PairedFigure:
        both = [values(*side) for side in some]
        table = np.array([[mine[s] for mine in both] for s in seeds])
        ours, others = table.mean(axis=0).tolist()
        return PairedFigure(ours, others, paired(table[:, 0] - table[:, 1]))

    return Pair(
        (one.path, other.path),
        (mine, theirs),
        tuple(seeds),
        tuple(rounds),
        figure(lambda figures, series: figures.last(series, round=rounds[-1]), scored),
        figure(lambda figures, series: figures.mean(series, rounds=rounds), scored),
        figure(lambda figures, series: figures.last(series, "balanced_accuracy", round=rounds[-1])),
    )


def _of(run: Run, name: str | None) -> Figures:
    """Of the class that departs, or of another one."""
    if name is None or name == run.rare_name:
        return run.figures
    if name not in run.classes:
        known = did_you_mean(name, run.classes, f"should be one of {', '.join(run.classes)}")
        raise CompareError(f"class: {name!r} is none of {run.path}, {known}")
    found = Figures.of(run.tables.metrics, name, run.depart_at)
    if not found.metrics:
        raise CompareError(f"class: {run.path} has no lines of {name!r}, should be of a run with test samples of it")
    return found


def _after(figures: Figures, series: Series, departed: int) -> dict[int, set[int]]:
    """The rounds after the departure in which a row was read out, by seed."""
    rounds = {seed: {n for n in lines if n > departed} for seed, lines in figures.by_seed(series).items()}
    return {seed: mine for seed, mine in rounds.items() if mine}


def records(comparison: Comparison) -> list[dict[str, Any]]:
    """One flat record a pair, for JSON and CSV; an interval of a single seed is None."""
    made = []
    for pair in comparison.pairs:
        record: dict[str, Any] = {"a": str(pair.cells[0]), "b": str(pair.cells[1])}
        for side, row in zip("ab", pair.rows, strict=True):
            record |= {f"method_{side}": row.method, f"readout_{side}": row.readout}
        record |= {"seeds": len(pair.seeds), "rounds": len(pair.rounds), "last_round": pair.rounds[-1]}
        for name, figure in (
            ("last_f1", pair.last_f1),
            ("mean_f1", pair.mean_f1),
            ("balanced_accuracy", pair.balanced),
        ):
            gap = figure.difference
            low, high = (None, None) if gap.half is None else (gap.mean - gap.half, gap.mean + gap.half)
            values = {"a": figure.one, "b": figure.other, "difference": gap.mean, "low": low, "high": high}
            record |= {f"{name}_{k}": None if v is None or math.isnan(v) else round(v, 6) for k, v in values.items()}
        made.append(record)
    return made


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
