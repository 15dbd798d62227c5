"""Regimes of training, and the rule by which one of them is called the paper's. The rule stood before the grid was run.

The paper names neither learning rate nor momentum, augmentation, batch size nor the network's last layers. What it does
state are the rows of other methods: how far each is below its oracle. A regime is near the paper's where those rows are
as far below theirs. MPT's rows have no say.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from mpt.experiments.paper import TABLE2, stated
from mpt.experiments.plans import CellSpec
from mpt.experiments.results import CellOutcome, Results
from mpt.experiments.sets import SetName
from mpt.runs.summary import over

JUDGES = ("frozen", "sdc", "ldc", "icarl", "ccvr")
"""The rows that have a say: none is ours."""

SUDDEN = "frozen's fall"
"""The sixth: which part of frozen's fall comes in the first round after the departure."""

REMAINING = 0.02
LEAST_ORACLE = 0.2
"""Below it, shares of the oracle's F1 are noise."""


@dataclass(frozen=True)
class Judged:
    """A cell of the grid, held against the paper.

    Attributes:
        wanted: the cell.
        name: for people.
        shares: of each of `JUDGES` its F1 over the oracle's at the last round, and `SUDDEN`.
        paper: the paper's.
        oracle: the oracle's F1.
        drift: how far the reference prototypes went a round after the departure, mean, Mahalanobis.
    """

    wanted: CellSpec
    name: str
    shares: Mapping[str, float]
    paper: Mapping[str, float]
    oracle: float
    drift: float

    @property
    def distance(self) -> float:
        """Root of the mean squared difference of the six."""
        return self.without(None)

    def without(self, row: str | None) -> float:
        """The same without one of them."""
        gaps = [self.shares[one] - self.paper[one] for one in self.paper if one != row]
        return float(np.sqrt(np.mean(np.square(gaps))))


@dataclass(frozen=True)
class Ranked:
    """A regime and what its cells of the tuning classes say.

    Attributes:
        name: the regime's.
        cells: those that have been run.
        planned: how many there are to be.
    """

    name: str
    cells: tuple[Judged, ...] = ()
    planned: int = 0

    @property
    def distance(self) -> float:
        """The mean over its cells; infinite where one is missing or its oracle is too low to divide by."""
        if not self.cells or len(self.cells) < self.planned or min(c.oracle for c in self.cells) < LEAST_ORACLE:
            return float("inf")
        return float(np.mean([cell.distance for cell in self.cells]))


def regimes_wanted(results: Results) -> list[CellSpec]:
    """Every regime of the scale with every tuning class."""
    grid = results.grid
    return [
        CellSpec(set=name, remaining=REMAINING, study="regimes", rare=rare, regime=regime)
        for regime in grid.scale.regimes
        for name, source in grid.sources.items()
        for rare in (grid.dataset(name).class_index(tuning) for tuning in source.tuning)
    ]


def paper_shares(name: SetName) -> dict[str, float]:
    """Table 2 at 2% as shares of its oracle; frozen's fall is progressive, the paper says: no part of it at once."""
    oracle = stated(TABLE2, name, "oracle", REMAINING)
    rows = {row: stated(TABLE2, name, row, REMAINING) for row in JUDGES}
    if oracle is None:
        return {}
    return {row: value.mean / oracle.mean for row, value in rows.items() if value is not None} | {SUDDEN: 0.0}


def sudden(outcome: CellOutcome) -> float:
    """Which part of frozen's fall from the departure to the last round comes in the round after it, 0 to 1."""
    points = outcome.curve("frozen").points
    before, next_, end = (points[n].mean for n in (outcome.depart_at, outcome.depart_at + 1, outcome.rounds))
    return float(np.clip((before - next_) / (before - end), 0, 1)) if before > end else 0.0


def drift_a_round(outcome: CellOutcome) -> float:
    """How far the reference prototypes go in a round after the departure, mean over rounds and seeds."""
    steps = [
        r["step_references"] / r["step_rounds"]
        for r in outcome.tables.diagnostics
        if not r["method"] and r["round"] > outcome.depart_at and r.get("step_references") is not None
    ]
    return float(np.mean(steps)) if steps else float("nan")


def held_against(results: Results, wanted: CellSpec) -> Judged | None:
    """A cell of the grid beside the paper's rows; None where it is missing."""
    outcome = results.of(wanted)
    if outcome is None:
        return None
    ends = {row: stat.mean for row in (*JUDGES, "oracle") if (stat := over(outcome.last(row))) is not None}
    oracle = ends.pop("oracle")
    shares = {row: value / oracle if oracle else 0.0 for row, value in ends.items()}
    shares[SUDDEN] = sudden(outcome)
    paper = paper_shares(wanted.set)
    return Judged(wanted, results.name(wanted), shares, paper, oracle, drift_a_round(outcome))


def ranking(results: Results) -> list[Ranked]:
    """The regimes, the nearest to the paper's rows first."""
    return results.once("ranking", lambda: _ranking(results))


def _ranking(results: Results) -> list[Ranked]:
    cells: dict[str, list[Judged]] = {}
    wanted = regimes_wanted(results)
    for one in wanted:
        judged = held_against(results, one)
        cells.setdefault(one.regime, []).extend([judged] if judged else [])
    planned = {name: sum(one.regime == name for one in wanted) for name in cells}
    made = [Ranked(name, tuple(some), planned[name]) for name, some in cells.items()]
    return sorted(made, key=lambda ranked: ranked.distance)


def ranked_whole(results: Results) -> list[Ranked]:
    """The regimes that have a distance, once every cell of the grid is there or has failed; none before."""
    cells = [cell for one in regimes_wanted(results) if (cell := results.grid.cell(one)) is not None]
    if not all(results.store.finished(cell) or results.store.failure(cell) is not None for cell in cells):
        return []
    return [one for one in ranking(results) if np.isfinite(one.distance)]
