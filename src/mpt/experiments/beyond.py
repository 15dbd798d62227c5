"""MPT-X beside MPT and oracle-train, in many cells: the exhibit `beyond`, which the paper does not have."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mpt.base.seeds import Difference, Stat, paired
from mpt.experiments.figures import Figure, Panel, looks
from mpt.experiments.paper import LABELS
from mpt.experiments.plans import LIKE_FOR_LIKE, METHODS_OF, CellSpec
from mpt.experiments.plots import Plane, Point
from mpt.experiments.results import CellOutcome, Results
from mpt.experiments.sets import SETS, SetName
from mpt.experiments.table import Entry, Table, TableRow, number
from mpt.runs.summary import over

COLUMNS = tuple(m for m in METHODS_OF["beyond"] if m not in LIKE_FOR_LIKE)
SHOWN = ("frozen", "remaining-mean", "mpt", "ldc:all", "mpt-x")
"""In the figure, the last one on top."""

WITHOUT = {"mpt-x": "mpt-x:in-place", "mpt:outward": "mpt", "oracle-train:outward": "oracle-train"}
"""The same prototype with Eq. (X10), and without."""

DASH = "\N{EN DASH}"


@dataclass(frozen=True)
class Compared:
    """What a cell says of MPT-X.

    Attributes:
        name: the cell's.
        f1: the mean F1 of each of `COLUMNS` and `LIKE_FOR_LIKE`.
        gap: MPT-X's F1 less MPT's, paired over seeds.
        others: MPT-X's accuracy on the other classes less oracle-train's, mean over seeds.
        outward: the same with Eq. (X10) for both.
        called: the rare class's precision and recall of MPT-X, MPT and oracle-train, means over seeds.
    """

    name: str
    f1: Mapping[str, float]
    gap: Difference
    others: float
    outward: float
    called: tuple[tuple[float, float], ...]

    @property
    def ratio(self) -> float | None:
        """MPT-X's F1 over oracle-train's; None where that is 0."""
        return self.f1["mpt-x"] / self.f1["oracle-train"] if self.f1["oracle-train"] else None


def beyond_wanted(results: Results) -> list[CellSpec]:
    """Table 2's settings that have data; where the scale says so the further classes, and ResNet-18 at 2%."""
    scale, sources = results.grid.scale, results.grid.sources
    sets = [s for s in SETS if s in sources]
    made = [CellSpec(set=s, remaining=f, study="beyond") for s in sets or SETS for f in scale.remaining]
    if scale.beyond:
        made += [
            CellSpec(set=s, remaining=f, study="beyond", rare=c)
            for s in sets
            for c in results.grid.further(s)
            for f in scale.remaining
        ]
        deep: tuple[SetName, ...] = ("nuimages", "car1000-coarse")
        made += [CellSpec(set=s, backbone="resnet18", study="beyond") for s in deep if s in sources]
    return made


def with_further(results: Results, wanted: Sequence[CellSpec]) -> list[CellSpec]:
    """Main cells, then those with their rows of `FURTHER`, where `beyond` or Table 3 has them, and of the user's own
    methods.
    """
    there = [*beyond_wanted(results), *(backbones_wanted(results) if results.grid.scale.beyond else [])]
    own = [one.own for one in wanted] if results.grid.own else []
    return [*wanted, *(one.further for one in wanted if one.further in there), *own]


def backbones_wanted(results: Results) -> list[CellSpec]:
    """Table 3's settings, where they have data."""
    scale = results.grid.scale
    there = "nuimages" in results.grid.sources
    return [
        CellSpec(backbone=b, remaining=f, study="beyond")
        for b in (scale.backbones if there else ())
        for f in scale.backbone_remaining
    ]


def compared(name: str, outcome: CellOutcome) -> Compared | None:
    """A cell's comparison over the rounds that all columns share; None where a method was not read out."""
    methods = METHODS_OF["beyond"]
    rounds = outcome.shared(methods)
    f1 = {method: outcome.after(method, rounds=rounds) for method in methods}
    there = [s for s in f1["mpt-x"] if all(s in mine for mine in f1.values())]
    if not there:
        return None

    def mean(method: str, column: str) -> float:
        values = outcome.after(method, column, rounds)
        return float(np.mean([values[s] for s in there]))

    return Compared(
        name,
        {method: mean(method, "f1") for method in methods},
        paired([f1["mpt-x"][s] - f1["mpt"][s] for s in there]),
        mean("mpt-x", "others_accuracy") - mean("oracle-train", "others_accuracy"),
        mean("mpt-x", "others_accuracy") - mean("oracle-train:outward", "others_accuracy"),
        tuple((mean(m, "precision"), mean(m, "recall")) for m in ("mpt-x", "mpt", "oracle-train")),
    )


def within(outcome: CellOutcome, method: str) -> list[bool]:
    """Whether the true distance was within the stated error, for all seeds and rounds after the departure that state
    one, as `mpt.report.health` has it.
    """
    distances = {(r["seed"], r["round"], r["method"]): r["prototype_distance"] for r in outcome.figures.metrics}
    pairs = [
        (distances.get((r["seed"], r["round"], method)), r.get("expected_error"))
        for r in outcome.tables.diagnostics
        if r["method"] == method and r["round"] > outcome.depart_at
    ]
    return [true <= stated for true, stated in pairs if true is not None and stated is not None]


def beyond(results: Results) -> Figure:
    """F1 after the departure by cell, and what it comes to."""
    wanted = beyond_wanted(results)
    rows, found, outcomes = [], [], []
    for one in wanted:
        name, outcome = results.name(one), results.of(one)
        if outcome is None:
            rows.append(TableRow(name, (Entry(None),) * (len(COLUMNS) + 2)))
            continue
        outcomes.append(outcome)
        rounds = outcome.shared(COLUMNS)
        entries = [Entry(over(outcome.after(method, rounds=rounds))) for method in COLUMNS]
        cell = compared(name, outcome)
        if cell is None:
            entries += [Entry(None), Entry(None)]
        else:
            found.append(cell)
            ratio = Entry(DASH if cell.ratio is None else Stat(cell.ratio))
            entries += [ratio, Entry(Stat(cell.gap.mean, cell.gap.half))]
        rows.append(TableRow(name, tuple(entries)))
    title = "Beyond the paper: rare-class F1 of MPT-X, mean after the departure"
    columns = (*(("", LABELS[m]) for m in COLUMNS), ("MPT-X", "/ oracle-train"), ("MPT-X", "less MPT"))
    about = "F1 against that of the departed data themselves, a point a cell and method; on the line they are equal"
    panel = Panel("beyond", about, _plane(found))
    notes = tuple(_notes(results, found, outcomes, len(wanted)))
    return Figure("beyond", title, (panel,), Table("beyond", title, "Cell", columns, tuple(rows)), notes)


def _plane(cells: Sequence[Compared]) -> Plane | None:
    points = tuple(
        Point(looks()[m], cell.f1["oracle-train"], cell.f1[m], about=f"{cell.name}: {LABELS[m]} {number(cell.f1[m])}")
        for m in SHOWN
        for cell in sorted(cells, key=lambda cell: -cell.f1["oracle-train"])
    )
    return Plane("beyond", "oracle-train", "F1", points, named=False, diagonal=True) if points else None


def _notes(results: Results, cells: Sequence[Compared], outcomes: Sequence[CellOutcome], asked: int) -> list[str]:
    notes = [
        "Means over the rounds after the departure in which all of these methods were read out; ± is the deviation "
        "over seeds, for differences half of the 95% interval, paired over seeds."
    ]
    if not results.grid.scale.beyond:
        notes.append("Further classes and ResNet-18 are run at the paper's scale only.")
    if not cells:
        return notes
    ahead = sum(cell.gap.mean > 0 for cell in cells)
    clear = [cell.gap.mean > 0 for cell in cells if cell.gap.clear]
    intervals = sum(cell.gap.half is not None for cell in cells)
    notes.append(
        f"MPT-X is above MPT in {ahead} of {len(cells)} cells that were run, of {asked}; of the {intervals} that have "
        f"several seeds significantly above in {sum(clear)} and below in {len(clear) - sum(clear)} (interval wholly on "
        "that side of 0)."
    )
    for cell in cells:
        if cell.gap.clear and cell.gap.mean < 0:
            named = zip(("MPT-X", "MPT", "oracle-train"), cell.called, strict=True)
            said = ", ".join(f"{name} {number(precision)} and {number(recall)}" for name, (precision, recall) in named)
            notes.append(f"Precision and recall in {cell.name}, where it is below: {said}.")
    ratios = [(cell.ratio, cell.name) for cell in cells if cell.ratio is not None]
    if ratios:
        worst, where = min(ratios)
        notes.append(
            f"MPT-X's F1 over oracle-train's: {number(float(np.mean([r for r, _ in ratios])))} on average over cells, "
            f"{number(worst)} at worst, in {where}."
        )
    notes += _like_for_like(cells)
    notes.append(
        "Accuracy on the other classes, MPT-X less oracle-train: "
        f"{number(float(np.mean([cell.others for cell in cells])), 4)} on average over cells, "
        f"{number(min(cell.others for cell in cells), 4)} at worst, within .01 in "
        f"{sum(abs(cell.others) <= 0.01 for cell in cells)} of {len(cells)}; both further out "
        f"{number(float(np.mean([cell.outward for cell in cells])), 4)} on average."
    )
    for method in ("mpt-x", "mpt"):
        held = [one for outcome in outcomes for one in within(outcome, method)]
        if held:
            notes.append(
                f"{LABELS[method]}'s true distance to oracle-train's prototype was within the error that it expected "
                f"in {np.mean(held):.1%} of {len(held)} readouts, over all cells, seeds and rounds after the departure."
            )
    return notes


def _like_for_like(cells: Sequence[Compared]) -> list[str]:
    """What the readout of Eq. (X10) gives, and MPT-X beside the others under one readout."""

    def ratio(one: str, other: str) -> str:
        found = [cell.f1[one] / cell.f1[other] for cell in cells if cell.f1[other]]
        return f"{number(float(np.mean(found)))} ({number(min(found))} at worst)" if found else DASH

    given = ", ".join(f"{one} over {other} {ratio(one, other)}" for one, other in WITHOUT.items())
    ahead = sum(cell.f1["mpt-x"] > cell.f1["mpt:outward"] for cell in cells)
    return [
        f"Read out further out, Eq. (X10), over in place, F1 on average over cells: {given}.",
        "Under one readout, MPT-X over oracle-train: "
        f"further out {ratio('mpt-x', 'oracle-train:outward')}, in place {ratio('mpt-x:in-place', 'oracle-train')}; "
        f"further out it is above MPT in {ahead} of {len(cells)} cells.",
    ]
