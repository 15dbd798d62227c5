"""Two rows on the same seeds: figures, differences and tests."""

from dataclasses import dataclass
from pathlib import Path

from mpt.base.text import score
from mpt.runs.pooling import Rows
from mpt.runs.significance import TTest


@dataclass(frozen=True)
class PairedFigure:
    """One figure of two rows on the same seeds.

    Attributes:
        one, other: their means over these seeds.
        by_seed: `one` less `other`, seed by seed.
        difference: their mean, its 95% interval, and the paired t-test of it.
    """

    one: float
    other: float
    by_seed: tuple[float, ...]
    difference: TTest

    def __str__(self) -> str:
        """+.012 ± .009 (p = 0.03)."""
        found = self.difference
        half = "" if found.half is None else f" ± {score(found.half)}"
        tested = "" if found.p is None else f" (p = {found.p:.2g})"
        return f"{'-' if found.mean < 0 else '+'}{score(abs(found.mean))}{half}{tested}"


@dataclass(frozen=True, repr=False)
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
        holm: p-value of `mean_f1`, corrected by Holm for all pairs of the comparison; None where there is no test.
    """

    cells: tuple[Path, Path]
    rows: Rows
    seeds: tuple[int, ...]
    rounds: tuple[int, ...]
    last_f1: PairedFigure
    mean_f1: PairedFigure
    balanced: PairedFigure
    holm: float | None = None

    def __repr__(self) -> str:
        one, other = (row.method for row in self.rows)
        seeds = f"{len(self.seeds)} seed{'s' * (len(self.seeds) > 1)}"
        last = f"round {self.rounds[-1]} {self.last_f1}"
        return f"<F1 of {one} less {other}, {seeds}: mean after the departure {self.mean_f1}, {last}>"
