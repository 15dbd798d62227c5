"""The grid of regimes as a figure, and which of them the rule chose."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from mpt.base.seeds import Stat
from mpt.experiments.figures import Figure, Panel, looks
from mpt.experiments.paper import LABELS
from mpt.experiments.plans import REGIMES
from mpt.experiments.plots import Plane, Point
from mpt.experiments.regimes import JUDGES, SUDDEN, Judged, Ranked, paper_shares, ranked_whole, ranking
from mpt.experiments.results import Results
from mpt.experiments.table import Entry, Table, TableRow, number
from mpt.runs.summary import over

SHOWN = ("frozen", "remaining-mean", "mean-shift", "mpt-lite", "mpt", "mpt-x")
"""In the figure, the last one on top."""

BESIDE = ("icarl", "sdc", "ldc", "ccvr", "stop-at-departure", "dpcr")
"""In the notes besides."""

DASH = "\N{EN DASH}"
BANDS = (0.0, 1.0, 2.0, 4.0, float("inf"))
"""Of the drift a round, by which the notes sum up."""


def share(results: Results, cell: Judged, method: str) -> float | None:
    """A method's F1 over oracle-train's, both the mean after the departure; None where there is none."""
    outcome = results.of(cell.wanted)
    if outcome is None:
        return None
    rounds = outcome.shared((method, "oracle-train"))
    mine, reference = (over(outcome.after(m, rounds=rounds)) for m in (method, "oracle-train"))
    return mine.mean / reference.mean if mine and reference and reference.mean else None


def regimes(results: Results) -> Figure:
    """Each method's share of oracle-train's F1 against the drift a round, and how near each regime is to the paper."""
    ranked = ranking(results)
    cells = [cell for one in ranked for cell in one.cells]
    points = tuple(
        Point(looks()[m], cell.drift, value, about=f"{cell.name}: {LABELS.get(m, m)} {number(value)} of oracle-train")
        for m in SHOWN
        for cell in sorted(cells, key=lambda c: -c.drift)
        if (value := share(results, cell, m)) is not None and np.isfinite(cell.drift)
    )
    nearest = next(iter(ranked_whole(results)), None)
    place = (float(np.mean([c.drift for c in nearest.cells])), "nearest to the paper") if nearest else None
    label = "drift a round: mean way of the reference prototypes, in deviations"
    plane = Plane("regimes", label, "share of oracle-train's F1", points, True, False, marked=place) if points else None
    about = "F1 after the departure over oracle-train's, a point a regime and tuning class, against the drift a round"
    title = "Regimes: who wins at which drift, and which regime is nearest to the paper's rows"
    return Figure("regimes", title, (Panel("regimes", about, plane),), _ranks(results, ranked), _said(results, ranked))


def _ranks(results: Results, ranked: Sequence[Ranked]) -> Table:
    columns = ["distance", "oracle F1", "drift a round", *(LABELS[row] for row in JUDGES), SUDDEN]
    ours = ("remaining-mean", "mean-shift", "dpcr", "stop-at-departure", "mpt-lite", "mpt", "mpt-x")
    rows = []
    for one in ranked:
        entries = [Entry(Stat(one.distance) if np.isfinite(one.distance) else DASH)]
        entries += [_mean([cell.oracle for cell in one.cells]), _mean([cell.drift for cell in one.cells])]
        entries += [_mean([cell.shares[row] for cell in one.cells if row in cell.shares]) for row in (*JUDGES, SUDDEN)]
        entries += [_mean([s for c in one.cells if (s := share(results, c, m)) is not None]) for m in ours]
        rows.append(TableRow(one.name, tuple(entries)))
    paper = [paper_shares(name) for name, source in results.grid.sources.items() for _ in source.tuning]
    stated = [_mean([p[row] for p in paper if row in p]) for row in (*JUDGES, SUDDEN)]
    blank = (Entry(DASH),) * 3
    rows.append(
        TableRow(
            "paper, 2%, sets weighted by their classes", (*blank, *stated, *(Entry(DASH),) * len(ours)), apart=True
        )
    )
    groups = (*(("", c) for c in columns[:3]), *(("over the oracle, last round", c) for c in columns[3:]))
    groups += tuple(("over oracle-train, mean after", LABELS.get(m, m)) for m in ours)
    return Table("regimes", "Regimes, the nearest to the paper's rows first", "Regime", groups, tuple(rows))


def _mean(values: Sequence[float]) -> Entry:
    return Entry(Stat(float(np.mean(values))) if values else None)


def _said(results: Results, ranked: Sequence[Ranked]) -> tuple[str, ...]:
    whole = ranked_whole(results)
    notes = [
        "Distance: root of the mean squared difference from the paper's six figures at 2% (five rows as shares of "
        "their oracle's F1 at the last round, and the part of frozen's fall that comes in the first round after the "
        "departure, which the paper calls progressive: 0), mean over the tuning classes. Drift: Mahalanobis distance "
        "that the reference prototypes go from one round to the next, mean over the rounds after the departure."
    ]
    if len(whole) > 1:
        first, second = whole[:2]
        notes.append(
            f"Nearest to the paper: {first.name} ({number(first.distance)}); the runner-up: {second.name} "
            f"({number(second.distance)}); what every other exhibit is made with, {next(iter(REGIMES))}: "
            f"{number(next(o.distance for o in ranked if o.name == next(iter(REGIMES))))}."
        )
        told = [f"without {LABELS.get(row, row)} {_first_without(whole, row).name}" for row in (*JUDGES, SUDDEN)]
        notes.append(f"Which would be nearest without one of the six figures: {'; '.join(told)}.")
    return (*notes, *_bands(results, [cell for one in ranked for cell in one.cells]))


def _first_without(ranked: Sequence[Ranked], row: str) -> Ranked:
    """The regime with the smallest distance without one of the six figures."""
    distances = [float(np.mean([cell.without(row) for cell in one.cells])) for one in ranked]
    return ranked[int(np.argmin(distances))]


def _bands(results: Results, cells: Sequence[Judged]) -> list[str]:
    """Each method's mean share of oracle-train's F1 by the drift a round."""
    notes = []
    for low, high in pairwise(BANDS):
        inside = [cell for cell in cells if low <= cell.drift < high]
        told = []
        for method in (*SHOWN, *BESIDE):
            values = [s for cell in inside if (s := share(results, cell, method)) is not None]
            told += [f"{LABELS.get(method, method)} {number(float(np.mean(values)))}"] if values else []
        if told:
            where = f"from {low:g} to {high:g}" if np.isfinite(high) else f"of {low:g} and more"
            notes.append(
                f"Mean share of oracle-train's F1 at a drift {where} a round, {len(inside)} cells: {', '.join(told)}."
            )
    return notes
