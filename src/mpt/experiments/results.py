"""What the cells have measured, as the exhibits ask for it."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, TypeVar

from mpt.base.seeds import Curve, Stat
from mpt.experiments.cells import Cell, CellStore
from mpt.experiments.plans import FURTHER, TUNED, CellSpec, Grid
from mpt.experiments.sets import SETS
from mpt.runs.summary import Figures, over
from mpt.runs.tables import Row, Tables

T = TypeVar("T")


@dataclass(frozen=True)
class CellOutcome:
    """A finished cell.

    Attributes:
        tables: what it measured.
        departing: the class that departs.
        depart_at, rounds: of the run.
        manifest: where the numbers come from.
    """

    tables: Tables
    departing: str
    depart_at: int
    rounds: int
    manifest: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def figures(self) -> Figures:
        """Of the class that departs."""
        return Figures.of(self.tables.metrics, self.departing, self.depart_at)

    @property
    def methods(self) -> tuple[str, ...]:
        """In the order of the file."""
        return tuple(dict.fromkeys(series.method for series in self.figures.series))

    @property
    def seeds(self) -> int:
        """How many there are."""
        return len(self.figures.seeds)

    def in_place_of(self, rows: Mapping[str, str]) -> "CellOutcome":
        """With other rows in the place of some: by the name that each of them gets, those that there are."""
        taken = {other: name for name, other in rows.items() if other in self.methods}
        renamed = {f.name: self._renamed(getattr(self.tables, f.name), taken) for f in fields(self.tables)}
        return replace(self, tables=Tables(**renamed))

    @staticmethod
    def _renamed(records: Iterable[Row], taken: Mapping[str, str]) -> tuple[Row, ...]:
        replaced = set(taken.values())
        return tuple(
            {**r, "method": taken.get(r["method"], r["method"])} for r in records if r["method"] not in replaced
        )

    def curve(self, method: str, column: str = "f1") -> Curve:
        """A figure of a method by round."""
        return self.figures.curve(self.figures.first(method), column)

    def last(self, method: str, column: str = "f1") -> dict[int, float]:
        """At the last round, by seed."""
        return self.figures.last(self.figures.first(method), column, round=self.rounds)

    def shared(self, methods: Iterable[str]) -> frozenset[int]:
        """The rounds after the departure in which all of these methods that were read out at all were."""
        return self.figures.shared_rounds(map(self.figures.first, methods))

    def after(self, method: str, column: str = "f1", rounds: Iterable[int] | None = None) -> dict[int, float]:
        """Mean over the rounds after the departure, or those of `rounds`, in which the method was read out, by seed."""
        return self.figures.mean(self.figures.first(method), column, rounds)

    def cost(self, method: str, *columns: str) -> float | None:
        """The sum of columns in a round, mean over the rounds after the departure and seeds."""
        return self.figures.cost(self.figures.first(method), *columns)


@dataclass(frozen=True)
class Results:
    """All that there is for a reproduction.

    Attributes:
        grid: what it is made with.
        store: the cells.
        tuned: whether methods have their tuned rows' figures, in regimes in which they were tuned.
        looked: outcomes that were asked for, for who wants to know what a claim rests on.
    """

    grid: Grid
    store: CellStore
    tuned: bool = False
    looked: list[CellOutcome] = field(default_factory=list)
    _read: dict[str, CellOutcome | None] = field(default_factory=dict)
    _made: dict[str, Any] = field(default_factory=dict)

    def once(self, name: str, make: Callable[[], T]) -> T:
        """What several exhibits need, made once."""
        if name not in self._made:
            self._made[name] = make()
        made: T = self._made[name]
        return made

    def within(self, regime: str) -> "Results":
        """The same cells' store in another regime of training; what has been read is shared."""
        return replace(self, grid=replace(self.grid, regime=regime), looked=[], _made={})

    @property
    def with_tuned(self) -> "Results":
        """The same with every method's tuned row in its place."""
        return replace(self, tuned=True, looked=[], _read={}, _made={})

    def of(self, wanted: CellSpec) -> CellOutcome | None:
        """A cell's outcome, with the seeds that it has so far; None where it is missing.

        A main one has the rows of `FURTHER` and of the user's own methods too, of the seeds that it has, where the
        cells that have them are there.
        """
        cell = self.grid.cell(wanted)
        if cell is None:
            return None
        if cell.key not in self._read:
            tables = self.store.tables(cell, every=self.grid.every_seed)
            if tables is not None and wanted.study == "main":
                tables += self._beside(wanted, tables.seeds)
            read = None if tables is None else self._outcome(cell, tables)
            rows = TUNED.get(wanted.regime or self.grid.regime, {}) if self.tuned else {}
            self._read[cell.key] = read.in_place_of(rows) if read and rows else read
        outcome = self._read[cell.key]
        self.looked.extend([outcome] if outcome else [])
        return outcome

    def _outcome(self, cell: Cell, tables: Tables) -> CellOutcome:
        manifest = self.store.manifest(cell)
        departing = manifest["classes"][manifest["rare"]]
        return CellOutcome(tables, departing, cell.config.depart_at, cell.config.rounds, manifest)

    def _beside(self, wanted: CellSpec, seeds: tuple[int, ...]) -> Tables:
        """The rows that belong to a main cell and are in cells of their own."""
        tables = Tables()
        if (further := self.of(wanted.further)) is not None:
            tables += further.tables.only(FURTHER, seeds)
        if self.grid.own and (own := self.of(wanted.own)) is not None:
            tables += own.tables.only(self.grid.own_names, seeds)
        return tables

    def name(self, wanted: CellSpec) -> str:
        """Of a cell, for sentences: never that of the paper's set where a stand-in is used."""
        source = self.grid.sources.get(wanted.set)
        where = source.short if source else f"no data for {SETS[wanted.set].title}"
        if source and wanted.rare is not None:
            where = f"{source.name} ({self.grid.dataset(wanted.set).classes[wanted.rare]})"
        how = [name for name in (wanted.regime or self.grid.regime, wanted.uneven, wanted.augment) if name]
        return f"{where} {100 * wanted.remaining:g}% {', '.join(how) or wanted.backbone}"

    def missing(self, wanted: Iterable[CellSpec]) -> list[str]:
        """A sentence for each cell that is not there, first for those that were begun."""
        begun: list[str] = []
        others: list[str] = []
        for one in wanted:
            cell = self.grid.cell(one)
            if cell is None:
                others.append(f"{one.set}: no data was named for {SETS[one.set].title}")
            elif not self.store.finished(cell):
                seeds = self.store.seeds(cell)
                so_far = f"{seeds} of {cell.config.seeds} seeds so far" if seeds else "not computed yet"
                failure = self.store.failure(cell)
                (begun if seeds or failure else others).append(f"{cell.label}: {failure or so_far}")
        return list(dict.fromkeys([*begun, *others]))

    def cells(self, wanted: Iterable[CellSpec], jobs: int = 1) -> list[Cell]:
        """Those that have data, as they are asked for; for several processes the longest first, so that these end at
        about the same time.
        """
        found = [cell for one in wanted if (cell := self.grid.cell(one)) is not None]
        if jobs == 1:
            return found
        return sorted(found, key=lambda c: (c.config.backbone == "cnn3", -c.config.rounds))


def last(outcome: CellOutcome | None, method: str, column: str = "f1") -> Stat | None:
    """At the last round, over seeds; None where there is nothing."""
    return None if outcome is None else over(outcome.last(method, column))


def after(outcome: CellOutcome | None, method: str, column: str = "f1") -> Stat | None:
    """Mean after the departure, over seeds; None where there is nothing."""
    return None if outcome is None else over(outcome.after(method, column))
