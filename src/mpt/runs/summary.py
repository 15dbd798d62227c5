"""The figures that everybody takes from a run's tables: the terminal, the report, `mpt compare`, the exhibits.

- **F1 at the last round**: in each seed's last evaluated round.
- **Mean F1 after the departure**: over the evaluated rounds after it in which *all* rows were read out, so that rows
  that are read out less often (CCVR, LDC) are compared over the same rounds. `Summary.rounds` has them.
- **Bytes and seconds**: of one round, all vehicles together, the mean over the evaluated rounds after the departure in
  which the row *itself* was read out; before one lies after it, over all. `Summary.cost_rounds` says how many.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from mpt.base.seeds import Curve, Difference, Series, Stat, curve, paired, stat
from mpt.runs.tables import Row

BYTES = "of a round, all vehicles together: mean over the rounds after the departure in which the row was read out"
"""What bytes are, wherever they are shown."""


@dataclass(frozen=True)
class Summary:
    """What is said of a row.

    Attributes:
        series: the method and its readout.
        seeds: how many.
        last_round: the last one that every seed of the row has been evaluated in.
        departure_f1: in the round of the departure; None where it was not read out there.
        last_f1, precision, recall, balanced, others: at each seed's last evaluated round.
        mean_f1: over `rounds`; None where there are none, or the row was not read out in all of them.
        rounds: after the departure, in which all rows were read out.
        mean_by_seed: the mean F1 of each seed.
        bytes_up, bytes_down, readout_bytes_up, readout_bytes_down, milliseconds: of a round.
        cost_rounds: how many rounds these are means over.
    """

    series: Series
    seeds: int
    last_round: int
    departure_f1: float | None
    last_f1: Stat
    precision: Stat
    recall: Stat
    balanced: Stat
    others: Stat
    mean_f1: Stat | None
    rounds: tuple[int, ...]
    bytes_up: float
    bytes_down: float
    readout_bytes_up: float
    readout_bytes_down: float
    milliseconds: float
    cost_rounds: int
    mean_by_seed: dict[int, float] = field(default_factory=dict)

    @property
    def f1(self) -> float:
        """By which rows are ordered: the mean after the departure, or else the last."""
        return (self.mean_f1 or self.last_f1).mean

    @property
    def readout_bytes(self) -> float:
        """What the readout needs beyond the method, both ways."""
        return self.readout_bytes_up + self.readout_bytes_down

    def record(self) -> Row:
        """As one flat record, for a data frame."""
        mean = self.mean_f1 or Stat(float("nan"))
        return {
            "method": self.series.method,
            "readout": self.series.readout,
            "seeds": self.seeds,
            "departure_f1": self.departure_f1,
            "last_f1": self.last_f1.mean,
            "last_f1_sd": self.last_f1.deviation,
            "mean_f1": mean.mean,
            "mean_f1_sd": mean.deviation,
            "mean_rounds": len(self.rounds),
            "balanced_accuracy": self.balanced.mean,
            "others_accuracy": self.others.mean,
            "bytes_up": self.bytes_up,
            "bytes_down": self.bytes_down,
            "readout_bytes_up": self.readout_bytes_up,
            "readout_bytes_down": self.readout_bytes_down,
            "milliseconds": self.milliseconds,
            "cost_rounds": self.cost_rounds,
        }


@dataclass(frozen=True, eq=False)
class Figures:
    """A run's lines of the class that departs, and what is taken from them.

    Attributes:
        metrics: records of `metrics.csv`; those of other classes are left out.
        departing: the class's name.
        depart_at: the last round with the departing vehicle.
    """

    metrics: tuple[Row, ...]
    departing: str
    depart_at: int

    @classmethod
    def of(cls, metrics: Iterable[Row], departing: str, depart_at: int) -> "Figures":
        """From all lines of a run."""
        return cls(tuple(m for m in metrics if m["class"] == departing), departing, depart_at)

    @cached_property
    def by_series(self) -> Mapping[Series, tuple[Row, ...]]:
        """The lines of each row, in the order of the file."""
        found: dict[Series, list[Row]] = {}
        for record in self.metrics:
            found.setdefault(Series(record["method"], record["readout"]), []).append(record)
        return {series: tuple(mine) for series, mine in found.items()}

    @property
    def series(self) -> tuple[Series, ...]:
        """The rows, in the order of the file."""
        return tuple(self.by_series)

    @cached_property
    def seeds(self) -> tuple[int, ...]:
        """That have at least one line."""
        return tuple(sorted({m["seed"] for m in self.metrics}))

    @cached_property
    def last_evaluated(self) -> int:
        """The last round that any row was read out in."""
        return max((m["round"] for m in self.metrics), default=0)

    def first(self, method: str) -> Series:
        """A method's first row, or one without lines."""
        return next((s for s in self.series if s.method == method), Series(method, ""))

    def by_seed(self, series: Series) -> dict[int, dict[int, Row]]:
        """A row's lines by seed and round."""
        found: dict[int, dict[int, Row]] = {}
        for record in self.by_series.get(series, ()):
            found.setdefault(record["seed"], {})[record["round"]] = record
        return found

    def curve(self, series: Series, column: str = "f1") -> Curve:
        """A figure of a row by round."""
        return curve((r["seed"], r["round"], r[column]) for r in self.by_series.get(series, ()))

    def rounds_after(self, series: Series) -> set[int]:
        """Those after the departure in which a row was read out."""
        return {r["round"] for r in self.by_series.get(series, ()) if r["round"] > self.depart_at}

    def shared_rounds(self, some: Iterable[Series] | None = None) -> frozenset[int]:
        """The rounds after the departure in which all of these rows were read out; default: all rows.

        Rows that were read out in one round alone, as a replay from models is, have no say where others have several.
        """
        rounds = [self.rounds_after(series) for series in (self.series if some is None else some)]
        several = [mine for mine in rounds if len(mine) > 1]
        read_out = several or [mine for mine in rounds if mine]
        return frozenset(set.intersection(*read_out)) if read_out else frozenset()

    def last(self, series: Series, column: str = "f1", round: int | None = None) -> dict[int, float]:
        """A figure at each seed's last evaluated round, or at `round` where the seed has it; by seed."""
        found = {}
        for seed, lines in self.by_seed(series).items():
            at = max(lines) if round is None else round
            if at in lines and lines[at][column] is not None:
                found[seed] = float(lines[at][column])
        return found

    def mean(self, series: Series, column: str = "f1", rounds: Iterable[int] | None = None) -> dict[int, float]:
        """A figure's mean over rounds after the departure, by seed; default: those in which the row was read out."""
        counted = set(self.rounds_after(series) if rounds is None else rounds)
        found = {}
        for seed, lines in self.by_seed(series).items():
            values = [r[column] for number, r in lines.items() if number in counted and r[column] is not None]
            if values:
                found[seed] = float(np.mean(values))
        return found

    def cost(self, series: Series, *columns: str) -> float | None:
        """The sum of columns in a round, as `BYTES` says; None where no round lies after the departure."""
        mine = [r for r in self.by_series.get(series, ()) if r["round"] > self.depart_at]
        return float(np.mean([sum(r[c] for c in columns) for r in mine])) if mine else None

    @cached_property
    def summaries(self) -> tuple[Summary, ...]:
        """One a row, in the order of the file."""
        shared = tuple(sorted(self.shared_rounds()))
        return tuple(self._summary(series, shared) for series in self.series)

    def _summary(self, series: Series, shared: tuple[int, ...]) -> Summary:
        mine = self.by_series[series]
        whole = set(shared) <= self.rounds_after(series)
        means = self.mean(series, rounds=shared) if whole else {}
        after = [r for r in mine if r["round"] > self.depart_at] or list(mine)
        departing = [r["f1"] for r in mine if r["round"] == self.depart_at]

        def at_last(column: str) -> Stat:
            return stat(self.last(series, column).values() or [float("nan")])

        def cost(*columns: str) -> float:
            return float(np.mean([sum(r[c] for c in columns) for r in after]))

        return Summary(
            series=series,
            seeds=len(self.by_seed(series)),
            last_round=min(max(lines) for lines in self.by_seed(series).values()),
            departure_f1=float(np.mean(departing)) if departing else None,
            last_f1=at_last("f1"),
            precision=at_last("precision"),
            recall=at_last("recall"),
            balanced=at_last("balanced_accuracy"),
            others=at_last("others_accuracy"),
            mean_f1=stat(means.values()) if means else None,
            rounds=shared,
            mean_by_seed=means,
            bytes_up=cost("bytes_up"),
            bytes_down=cost("bytes_down"),
            readout_bytes_up=cost("readout_bytes_up"),
            readout_bytes_down=cost("readout_bytes_down"),
            milliseconds=1000 * cost("vehicle_seconds", "server_seconds"),
            cost_rounds=len({r["round"] for r in after}),
        )

    @property
    def mean_over(self) -> str:
        """Which rounds the mean F1 after the departure is over, for a sentence; empty where there are none."""
        shared = sorted(self.shared_rounds())
        rounds = sorted({n for series in self.series for n in self.rounds_after(series)})
        if not shared:
            return ""
        named = f" ({', '.join(map(str, shared))})" if len(shared) < min(len(rounds), 5) else ""
        whole = f"all {len(rounds)}" if len(shared) == len(rounds) else f"{len(shared)} of {len(rounds)}"
        why = "" if len(shared) == len(rounds) else f", those in which every row was{named}"
        whole = "the one round that was" if whole == "all 1" else f"{whole} rounds that were"
        return f"{whole} read out after the departure{why}"

    @property
    def costs_over(self) -> str:
        """What bytes and seconds are, for a sentence."""
        after = any(record["round"] > self.depart_at for record in self.metrics)
        return BYTES if after else "of a round, all vehicles together: mean over all evaluated rounds"

    @property
    def uneven(self) -> bool:
        """Whether some rows lack seeds or rounds that others have."""
        return len({frozenset((r["seed"], r["round"]) for r in mine) for mine in self.by_series.values()}) > 1


def difference(one: Summary, other: Summary) -> Difference | None:
    """How far `one`'s mean F1 after the departure lies above `other`'s, on the seeds that both have."""
    both = [seed for seed in one.mean_by_seed if seed in other.mean_by_seed]
    if not both:
        return None
    return paired([one.mean_by_seed[s] - other.mean_by_seed[s] for s in both])


def curves(figures: Figures, column: str | Callable[[Row], Any]) -> dict[Series, Curve]:
    """A curve for every row."""
    if isinstance(column, str):
        return {series: figures.curve(series, column) for series in figures.series}
    return {s: curve((r["seed"], r["round"], column(r)) for r in mine) for s, mine in figures.by_series.items()}


def over(values: Mapping[int, float]) -> Stat | None:
    """Mean and deviation over seeds; None where there are none."""
    return stat(values.values()) if values else None


def records(summaries: Sequence[Summary]) -> list[Row]:
    """Flat ones, for a data frame."""
    return [summary.record() for summary in summaries]
