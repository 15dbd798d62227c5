"""Two rows compared over several cells at once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from mpt.base.seeds import Series
from mpt.runs.significance import TTest, holm_where_tested, stratified_t_test, t_test

UNITS = ("cells", "tasks", "seeds")
"""What a pooled test may take as one observation; the first is the primary one."""

Rows = tuple[Series, Series]


class Stratum(NamedTuple):
    """A cell's differences, seed by seed, and the cell's task, which is its dataset and class."""

    task: str
    by_seed: Sequence[float]


@dataclass(frozen=True)
class Pooled:
    """The difference of two rows, pooled over several cells.

    Attributes:
        rows: the method and readout of each.
        over: what is taken as one observation, one of `UNITS`.
        cells: how many the mean is over.
        test: of the mean difference.
        holm: its p-value, corrected by Holm for all two rows that are pooled in this way; None where there is no test.
    """

    rows: Rows
    over: str
    cells: int
    test: TTest
    holm: float | None


def pooled(strata: Mapping[Rows, Sequence[Stratum]]) -> tuple[Pooled, ...]:
    """For each two rows that several cells have, the mean over cells of their difference, tested three ways.

    - "cells": a one-sample t-test of the cells' mean differences. How much cells differ from each other is its noise,
      so it speaks of further cells like these. It is the primary test: that is what a comparison over cells is read
      for, and it asks nothing of the seeds, neither that they be independent nor that a cell have several.
    - "tasks": the same of one mean a task, a dataset and class. Cells of one task at several fractions of remaining
      samples share images and seeds and are *not* independent, so the p-value over cells is too small. This one allows
      for that, and has few observations. It is left out where each cell is a task of its own.
    - "seeds": `stratified_t_test`. Cells are fixed and seeds within them vary, so it speaks of these very cells and no
      others. It takes seeds of different cells as independent, which those of the same number are not quite. Cells of
      one seed are left out.

    Holm's correction is over all two rows that are pooled in the same way.
    """
    several = {rows: mine for rows, mine in strata.items() if len(mine) > 1}
    made: dict[Rows, list[Pooled]] = {rows: [] for rows in several}
    for unit in UNITS:
        tests = {rows: found for rows, mine in several.items() if (found := _test(mine, unit)) is not None}
        adjusted = holm_where_tested([test.p for _, test in tests.values()])
        for (rows, (cells, test)), p in zip(tests.items(), adjusted, strict=True):
            made[rows].append(Pooled(rows, unit, cells, test, p))
    return tuple(one for mine in made.values() for one in mine)


def _test(cells: Sequence[Stratum], unit: str) -> tuple[int, TTest] | None:
    """Over how many cells, and the test; None where this unit has none of its own."""
    if unit == "seeds":
        several = [cell.by_seed for cell in cells if len(cell.by_seed) > 1]
        return (len(several), stratified_t_test(several)) if several else None
    means = [float(np.mean(cell.by_seed)) for cell in cells]
    if unit == "cells":
        return len(cells), t_test(means)
    tasks: dict[str, list[float]] = {}
    for cell, mean in zip(cells, means, strict=True):
        tasks.setdefault(cell.task, []).append(mean)
    return None if len(tasks) == len(cells) else (len(cells), t_test([float(np.mean(m)) for m in tasks.values()]))
