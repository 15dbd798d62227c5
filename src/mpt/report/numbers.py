"""The report's figures: curves by round, one summary a row, and paired differences on the same seeds."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from scipy.special import stdtrit

from mpt.report.reader import Metric, Row, Run, known


class Stat(NamedTuple):
    """Mean over seeds, and their standard deviation, None for a single one."""

    mean: float
    deviation: float | None = None


@dataclass(frozen=True)
class Curve:
    """A figure by round: over seeds, and of each seed."""

    points: dict[int, Stat]
    seeds: dict[int, dict[int, float]]


@dataclass(frozen=True)
class Summary:
    """What the summary table says of a row.

    Attributes:
        row: the method and its readout.
        seeds: how many.
        last_round: the last one that every seed of the row has been evaluated in.
        last_f1, precision, recall, balanced, others: at each seed's last evaluated round.
        mean_f1: over the evaluated rounds after the departure; None where there are none.
        mean_by_seed: the same, of each seed.
        bytes_up, bytes_down, readout_bytes, milliseconds: of a round, mean over those after the departure, or over all
            evaluated ones where there are none; the readout's bytes are None where nothing is known of them.
    """

    row: Row
    seeds: int
    last_round: int
    last_f1: Stat
    precision: Stat
    recall: Stat
    balanced: Stat
    others: Stat
    mean_f1: Stat | None
    bytes_up: float
    bytes_down: float
    readout_bytes: float | None
    milliseconds: float
    mean_by_seed: dict[int, float] = field(default_factory=dict)

    @property
    def f1(self) -> float:
        """By which rows are ordered: the mean after the departure, or else the last."""
        return (self.mean_f1 or self.last_f1).mean


class Difference(NamedTuple):
    """Of two rows' figures on the same seeds, with half the width of a 95% interval, None for a single seed."""

    mean: float
    half: float | None
    seeds: int

    @property
    def clear(self) -> bool:
        """Whether the interval leaves out zero."""
        return self.half is not None and abs(self.mean) > self.half


def stat(values: Iterable[float]) -> Stat:
    """Mean and deviation (ddof = 1)."""
    array = np.asarray(list(values), dtype=np.float64)
    return Stat(float(array.mean()), float(array.std(ddof=1)) if len(array) > 1 else None)


def curve(values: Iterable[tuple[int, int, float]]) -> Curve:
    """From (seed, round, value); values that are NaN are left out."""
    seeds: dict[int, dict[int, float]] = {}
    rounds: dict[int, list[float]] = {}
    for seed, number, value in values:
        if known(value):
            seeds.setdefault(seed, {})[number] = value
            rounds.setdefault(number, []).append(value)
    return Curve({number: stat(rounds[number]) for number in sorted(rounds)}, seeds)


def curves(run: Run, value: Callable[[Metric], float]) -> dict[Row, Curve]:
    """A curve for every row."""
    return {row: curve((m.seed, m.round, value(m)) for m in run.metrics if m.row == row) for row in run.rows}


def summarize(run: Run) -> list[Summary]:
    """One summary a row, in the order of the file. Means are over the rounds in which every row was read out."""
    rounds = [{m.round for m in run.metrics if m.row == row and m.round > run.depart_at} for row in run.rows]
    read_out = [some for some in rounds if some]
    compared = set.intersection(*read_out) if read_out else set[int]()
    return [_summary(run, row, [m for m in run.metrics if m.row == row], compared) for row in run.rows]


def _summary(run: Run, row: Row, metrics: Sequence[Metric], compared: set[int]) -> Summary:
    seeds: dict[int, list[Metric]] = {}
    for metric in metrics:
        seeds.setdefault(metric.seed, []).append(metric)
    last = [max(mine, key=lambda m: m.round) for mine in seeds.values()]
    after = {seed: [m for m in mine if m.round in compared] for seed, mine in seeds.items()}
    means = {seed: float(np.mean([m.rare_f1 for m in mine])) for seed, mine in after.items() if mine}
    counted = [m for m in metrics if m.round > run.depart_at] or list(metrics)
    extra = run.readout_bytes.get(row, {})
    later = [b for number, values in extra.items() if number > run.depart_at for b in values]
    later = later or [b for values in extra.values() for b in values]
    return Summary(
        row=row,
        seeds=len(seeds),
        last_round=min(m.round for m in last),
        last_f1=stat(m.rare_f1 for m in last),
        precision=stat(m.rare_precision for m in last),
        recall=stat(m.rare_recall for m in last),
        balanced=stat(m.balanced_accuracy for m in last),
        others=stat(m.others_accuracy for m in last),
        mean_f1=stat(means.values()) if means else None,
        mean_by_seed=means,
        bytes_up=float(np.mean([m.bytes_up for m in counted])),
        bytes_down=float(np.mean([m.bytes_down for m in counted])),
        readout_bytes=float(np.mean(later)) if later else None,
        milliseconds=1000 * float(np.mean([m.seconds for m in counted])),
    )


def difference(one: Summary, other: Summary) -> Difference | None:
    """How far `one`'s mean F1 after the departure lies above `other`'s, on the seeds that both have."""
    both = [seed for seed in one.mean_by_seed if seed in other.mean_by_seed]
    if not both:
        return None
    return paired([one.mean_by_seed[s] - other.mean_by_seed[s] for s in both])


def paired(differences: Sequence[float]) -> Difference:
    """Their mean, with half the width of its 95% t-interval."""
    mean, deviation = stat(differences)
    if deviation is None:
        return Difference(mean, None, 1)
    half = float(stdtrit(len(differences) - 1, 0.975)) * deviation / math.sqrt(len(differences))
    return Difference(mean, half, len(differences))


def uneven(run: Run) -> bool:
    """Whether some rows lack seeds or rounds that others have."""
    have: dict[Row, set[tuple[int, int]]] = {}
    for metric in run.metrics:
        have.setdefault(metric.row, set()).add((metric.seed, metric.round))
    return len({frozenset(pairs) for pairs in have.values()}) > 1
