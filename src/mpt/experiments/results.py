"""What the cells have measured, as the exhibits ask for it."""

from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mpt.experiments.cells import Cell, Store
from mpt.experiments.plans import FURTHER, Lab, Wanted
from mpt.experiments.sets import SETS
from mpt.report.numbers import Curve, Stat, curve, stat
from mpt.tables import Tables


@dataclass(frozen=True)
class Outcome:
    """A finished cell.

    Attributes:
        tables: what it measured.
        depart_at, rounds: of the run.
        manifest: where the numbers come from.
    """

    tables: Tables
    depart_at: int
    rounds: int
    manifest: dict[str, Any] = field(default_factory=dict)

    @property
    def methods(self) -> tuple[str, ...]:
        """In the order of the file."""
        return tuple(dict.fromkeys(r["method"] for r in self.tables.metrics))

    @property
    def seeds(self) -> int:
        """How many there are."""
        return len({r["seed"] for r in self.tables.metrics})

    def curve(self, method: str, column: str = "rare_f1") -> Curve:
        """A figure of a method by round."""
        found = ((r["seed"], r["round"], r.get(column)) for r in self.tables.metrics if r["method"] == method)
        return curve((seed, number, value) for seed, number, value in found if value is not None)

    def last(self, method: str, column: str = "rare_f1") -> dict[int, float]:
        """At the last round, by seed."""
        return {s: v[self.rounds] for s, v in self.curve(method, column).seeds.items() if self.rounds in v}

    def shared(self, methods: Iterable[str]) -> frozenset[int]:
        """The rounds after the departure in which all of these methods that were read out at all were."""
        rounds = [{n for n in self.curve(m).points if n > self.depart_at} for m in methods]
        read_out = [some for some in rounds if some]
        return frozenset(set.intersection(*read_out)) if read_out else frozenset()

    def after(self, method: str, column: str = "rare_f1", rounds: Container[int] | None = None) -> dict[int, float]:
        """Mean over the rounds after the departure, or those of `rounds`, in which the method was read out, by seed."""
        seeds = self.curve(method, column).seeds
        counted = range(self.depart_at + 1, self.rounds + 1) if rounds is None else rounds
        later = {s: [x for n, x in v.items() if n in counted] for s, v in seeds.items()}
        return {seed: float(np.mean(values)) for seed, values in later.items() if values}

    def cost(self, method: str, *columns: str) -> float | None:
        """The sum of columns of `costs.csv`, mean over the rounds after the departure and seeds."""
        mine = [r for r in self.tables.costs if r["method"] == method and r["round"] > self.depart_at]
        return float(np.mean([sum(r[c] for c in columns) for r in mine])) if mine else None


@dataclass(frozen=True)
class Results:
    """All that there is for a reproduction.

    Attributes:
        lab: what it is made with.
        store: the cells.
        looked: outcomes that were asked for, for who wants to know what a claim rests on.
    """

    lab: Lab
    store: Store
    looked: list[Outcome] = field(default_factory=list)
    _read: dict[str, Outcome | None] = field(default_factory=dict)

    def of(self, wanted: Wanted) -> Outcome | None:
        """A cell's outcome, with the seeds that it has so far; None where it is missing.

        A main one has the rows of `FURTHER` too, of the seeds that it has, where the cell that has them is there.
        """
        cell = self.lab.cell(wanted)
        if cell is None:
            return None
        if cell.key not in self._read:
            tables = self.store.tables(cell)
            if tables is not None and wanted.study == "main" and (more := self.of(wanted.further)) is not None:
                tables += more.tables.only(FURTHER, {r["seed"] for r in tables.metrics})
            self._read[cell.key] = (
                None
                if tables is None
                else Outcome(tables, cell.config.depart_at, cell.config.rounds, self.store.manifest(cell))
            )
        outcome = self._read[cell.key]
        self.looked.extend([outcome] if outcome else [])
        return outcome

    def name(self, wanted: Wanted) -> str:
        """Of a cell, for sentences: never that of the paper's set where a stand-in is used."""
        source = self.lab.sources.get(wanted.set)
        where = source.short if source else f"no data for {SETS[wanted.set].title}"
        if source and wanted.rare is not None:
            where = f"{source.name} ({self.lab.dataset(wanted.set).classes[wanted.rare]})"
        return f"{where} {100 * wanted.remaining:g}% {wanted.backbone}"

    def missing(self, wanted: Iterable[Wanted]) -> list[str]:
        """A sentence for each cell that is not there, first for those that were begun."""
        begun: list[str] = []
        others: list[str] = []
        for one in wanted:
            cell = self.lab.cell(one)
            if cell is None:
                others.append(f"{one.set}: no data was named for {SETS[one.set].title}")
            elif not self.store.finished(cell):
                seeds = self.store.seeds(cell)
                so_far = f"{seeds} of {cell.config.seeds} seeds so far" if seeds else "not computed yet"
                failure = self.store.failure(cell)
                (begun if seeds or failure else others).append(f"{cell.label}: {failure or so_far}")
        return list(dict.fromkeys([*begun, *others]))

    def cells(self, wanted: Iterable[Wanted], jobs: int = 1) -> list[Cell]:
        """Those that have data, as they are asked for; for several processes the longest first, so that these end at
        about the same time.
        """
        found = [cell for one in wanted if (cell := self.lab.cell(one)) is not None]
        if jobs == 1:
            return found
        return sorted(found, key=lambda c: (c.config.backbone == "cnn3", -c.config.rounds))


def last(outcome: Outcome | None, method: str, column: str = "rare_f1") -> Stat | None:
    """At the last round, over seeds; None where there is nothing."""
    return None if outcome is None else over(outcome.last(method, column))


def after(outcome: Outcome | None, method: str, column: str = "rare_f1") -> Stat | None:
    """Mean after the departure, over seeds; None where there is nothing."""
    return None if outcome is None else over(outcome.after(method, column))


def over(values: dict[int, float]) -> Stat | None:
    """Mean and deviation over seeds; None where there are none."""
    return stat(values.values()) if values else None
