"""`mpt compare`: paired differences and tests over seeds, cell by cell and pooled over cells."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from mpt.base.errors import MptError
from mpt.base.seeds import Series
from mpt.base.settings import default_of, rules_of
from mpt.base.text import did_you_mean
from mpt.runs.cellnames import CellName, cell_names
from mpt.runs.config import RunConfig
from mpt.runs.pair import Pair, PairedFigure
from mpt.runs.pooling import Pooled, Rows, Stratum, pooled
from mpt.runs.reader import Run, is_run, read_run
from mpt.runs.significance import TTest, holm_where_tested, t_test
from mpt.runs.summary import Figures

_NOT_MATCHED = frozenset({"seeds", "device", "methods", "record", "models"})
"""What of the settings does not set two cells apart."""


class CompareError(MptError):
    """There is nothing to compare; the message says why and what would be right."""


@dataclass(frozen=True)
class Comparison:
    """What was found.

    Attributes:
        folders: A and B.
        pairs: row by row, cell by cell.
        names: short ones of the cells of these pairs.
        pooled: the mean F1 after the departure, for each two rows that several cells have.
        differ: settings in which all cells of A differ from all of B, with both sides' values.
        unpaired: a sentence for each thing that has no counterpart.
        of_class: whose F1 it is; None: that of the class that departs.
    """

    folders: tuple[Path, Path]
    pairs: tuple[Pair, ...]
    names: dict[tuple[Path, Path], CellName]
    pooled: tuple[Pooled, ...]
    differ: dict[str, tuple[list[Any], list[Any]]]
    unpaired: tuple[str, ...]
    of_class: str | None = None


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
    found = [
        (_settings(one), pair)
        for one, other in matched
        for pair in _pairs(one, other, methods, against, of_class, unpaired.append)
    ]
    if not found:
        raise CompareError(f"compare: nothing could be paired; {'; '.join(unpaired) or 'there are no methods'}")
    pairs = _once(found, unpaired.append)
    names = _names([both for both in matched if any(pair.cells == (both[0].path, both[1].path) for pair in pairs)])
    pairs = _corrected(sorted(pairs, key=lambda pair: names[pair.cells].order))
    strata: dict[Rows, list[Stratum]] = {}
    for pair in pairs:
        strata.setdefault(pair.rows, []).append(Stratum(names[pair.cells].task, pair.mean_f1.by_seed))
    departs = all(one.rare_name == of_class for one in ones)
    return Comparison(
        folders=(a, a if b is None else b),
        pairs=tuple(pairs),
        names=names,
        pooled=pooled(strata),
        differ=differ,
        unpaired=tuple(dict.fromkeys(unpaired)),
        of_class=None if departs else of_class,
    )


def pair_in(run: Run, one: str, other: str, readout: str | None = None) -> Pair:
    """Two methods of one run, under a readout that the first has; default: its first.

    Raises:
        CompareError: it has not both of them, or they share no seed and round after the departure.
    """
    said, there = list[str](), _by_method(run)
    for pair in _pairs(run, run, [one], other, None, said.append):
        if readout in (None, pair.rows[0].readout):
            return pair
    missing = [name for name in (one, other) if run.row_of(name) not in there]
    if missing:
        raise CompareError(f"compare: no {' and no '.join(missing)}, it has {', '.join(there)}")
    if run.row_of(one) == run.row_of(other):
        raise CompareError(f"compare: {one!r} and {other!r} are one row, should be two methods")
    if readout is not None and readout not in (known := there[run.row_of(one)]):
        raise CompareError(f"compare: {one} has no readout {readout!r}, it has {', '.join(known)}")
    raise CompareError(f"compare: {'; '.join(said)}")


def _corrected(pairs: Sequence[Pair]) -> list[Pair]:
    """With Holm's p-values. The family is all tests of the mean F1 after the departure: each two rows in each cell."""
    adjusted = holm_where_tested([pair.mean_f1.difference.p for pair in pairs])
    return [replace(pair, holm=p) for pair, p in zip(pairs, adjusted, strict=True)]


def _settings(cell: Run) -> frozenset[tuple[str, Any]]:
    """What makes a cell that cell: its settings, and its data rather than the place where they were."""
    data = cell.manifest.get("dataset_fingerprint")
    apart = _NOT_MATCHED | ({"dataset"} if data else set())
    return frozenset({*((k, _hashable(v)) for k, v in cell.config.items() if k not in apart), ("data", data)})


def _once(found: Sequence[tuple[Any, Pair]], say: Callable[[str], None]) -> list[Pair]:
    """Without rows of one cell that is there twice, with other methods beside them: it must not count twice."""
    kept: dict[Any, Pair] = {}
    for settings, pair in found:
        first = kept.setdefault((settings, pair.rows), pair)
        best, other = (pair, first) if len(pair.seeds) > len(first.seeds) else (first, pair)
        kept[settings, pair.rows] = best
        if best is not other:
            say(f"{other.cells[0]} has {pair.rows[0].method} with the settings of {best.cells[0]}, which is taken")
    return list(kept.values())


def _names(matched: Sequence[tuple[Run, Run]]) -> dict[tuple[Path, Path], CellName]:
    """Of cells, by their folders; a cell that is in several folders, with other methods in each, has one name."""
    alike = {_settings(one): (one, other) for one, other in matched}
    names = dict(zip(alike, cell_names(list(alike.values()), _NOT_MATCHED), strict=True))
    return {(one.path, other.path): names[_settings(one)] for one, other in matched}


def cells_of(folder: Path) -> list[Run]:
    """The run in a folder, or all in folders below it."""
    if not folder.is_dir():
        raise CompareError(f"compare: there is no folder {folder}, should be one of mpt run --out, or one with several")
    below = (path.parent for path in folder.rglob("config.toml"))
    found = [folder] if _has_rows(folder) else sorted(filter(_has_rows, below))
    if not found:
        raise CompareError(f"compare: {folder} holds no run that has begun to be read out, should be of mpt run --out")
    return [_completed(read_run(path)) for path in found]


def _completed(run: Run) -> Run:
    """With the settings that there were none of when it was made: they are as they are by default."""
    known = {name: default_of(RunConfig, name) for name in rules_of(RunConfig)}
    return replace(run, config={**known, **run.config})


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
    methods, against = [one.row_of(name) for name in methods], None if against is None else other.row_of(against)
    for name in methods:
        if name not in here:
            say(f"{one.path} has no {name}, it has {', '.join(here)}")
    if against is not None and against not in there:
        say(f"{other.path} has no {against}, it has {', '.join(there)}")
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
        differences = (table[:, 0] - table[:, 1]).tolist()
        return PairedFigure(ours, others, tuple(differences), t_test(differences))

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
    """One flat record a pair, for JSON and CSV; what a single seed does not have is None."""
    made = []
    for pair in comparison.pairs:
        record: dict[str, Any] = {"a": str(pair.cells[0]), "b": str(pair.cells[1])}
        record |= {"cell": str(comparison.names[pair.cells]), **_methods(pair.rows)}
        record |= {"seeds": len(pair.seeds), "rounds": len(pair.rounds), "last_round": pair.rounds[-1]}
        for name, figure in (
            ("last_f1", pair.last_f1),
            ("mean_f1", pair.mean_f1),
            ("balanced_accuracy", pair.balanced),
        ):
            values = {"a": _rounded(figure.one), "b": _rounded(figure.other), **_tested(figure.difference)}
            record |= {f"{name}_{k}": v for k, v in values.items()}
        made.append(record | {"mean_f1_holm": _rounded(pair.holm, "g")})
    return made


def pooled_records(comparison: Comparison) -> list[dict[str, Any]]:
    """One flat record a pooled test, for JSON."""
    return [
        {
            **_methods(one.rows),
            "over": one.over,
            "cells": one.cells,
            "n": one.test.n,
            **{f"mean_f1_{k}": v for k, v in _tested(one.test).items()},
            "mean_f1_holm": _rounded(one.holm, "g"),
        }
        for one in comparison.pooled
    ]


def _methods(rows: Rows) -> dict[str, str]:
    (one, mine), (other, theirs) = rows
    return {"method_a": one, "readout_a": mine, "method_b": other, "readout_b": theirs}


def _tested(test: TTest) -> dict[str, float | None]:
    low, high = (None, None) if test.half is None else (test.mean - test.half, test.mean + test.half)
    values = {"difference": test.mean, "low": low, "high": high, "smallest": test.smallest}
    return {**{k: _rounded(v) for k, v in values.items()}, "p": _rounded(test.p, "g")}


def _rounded(value: float | None, kind: str = "f") -> float | None:
    """To six places, or to six figures, which a p-value needs."""
    return None if value is None or math.isnan(value) else float(f"{value:.6{kind}}")


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
