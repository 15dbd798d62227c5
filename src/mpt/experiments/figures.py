"""The paper's figures, made from the cells: curves, planes and bars, with the table of what they show."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from mpt.base.seeds import Series, Stat
from mpt.base.text import quantity
from mpt.experiments.paper import LABELS
from mpt.experiments.plans import FURTHER, CellSpec
from mpt.experiments.plots import Bars, Plane, Point
from mpt.experiments.results import CellOutcome, Results, after, last
from mpt.experiments.table import Entry, Table, TableRow, number
from mpt.methods import METHODS
from mpt.pages.lines import Chart, Line
from mpt.pages.styles import SeriesStyle, styles_of


@cache
def looks(own: tuple[str, ...] = ()) -> dict[str, SeriesStyle]:
    """How each method looks in every figure of the page, the user's own among them."""
    about = {name: METHODS.about(name) for name in METHODS}
    made = styles_of([Series(name, "") for name in (*METHODS, *own)], about)
    return {row.method: replace(look, label=LABELS.get(row.method, row.method)) for row, look in made.items()}


Drawing = Chart | Plane | Bars


def drawn(drawing: Drawing, width: float, height: float) -> str:
    """One SVG that needs no legend beside it."""
    if isinstance(drawing, Chart):
        return drawing.draw(width, height, labels=True)
    return drawing.draw(width, height, keys=True) if isinstance(drawing, Plane) else drawing.draw(width, height)


@dataclass(frozen=True)
class Panel:
    """One plot: what it is, and what the paper's counterpart says where it states anything."""

    name: str
    title: str
    drawing: Drawing | None
    said: str = ""


@dataclass(frozen=True)
class Figure:
    """A figure as data; panels without a drawing are missing."""

    name: str
    title: str
    panels: tuple[Panel, ...]
    table: Table | None = None
    notes: tuple[str, ...] = ()


def main(results: Results, remaining: float = 0.02) -> tuple[CellSpec, CellOutcome | None]:
    """The cell that most figures show: nuImages, three-layer CNN."""
    wanted = CellSpec(remaining=remaining)
    return wanted, results.of(wanted)


def lines(
    name: str,
    outcome: CellOutcome | None,
    methods: Mapping[str, str],
    column: str = "f1",
    label: str = "F1 of the rare class",
    ceiling: float | None = 1.0,
    own: tuple[str, ...] = (),
) -> Chart | None:
    """Curves by round of some methods, under the given names; `own` are the user's own among them."""
    if outcome is None:
        return None
    found = []
    for method, called in methods.items():
        curve = outcome.curve(method, column)
        if curve.points:
            look = looks(own)[method]
            found.append(Line.of(replace(look, label=called or look.label), curve))
    note = f"departure after round {outcome.depart_at}"
    return Chart(name, label, tuple(found), outcome.depart_at, outcome.rounds, note, ceiling) if found else None


def fig2_wanted(results: Results) -> CellSpec:
    """Figure 2 (a) to (c): the rare class with very few samples remaining, over the window."""
    return CellSpec(study="preliminary", remaining=results.grid.scale.few)


def fig2a(results: Results) -> Figure:
    """Softmax against NCM, with and without a departure."""
    outcome = results.of(fig2_wanted(results))
    named = {
        "fedavg:live": "softmax, no departure",
        "live": "NCM, no departure",
        "fedavg": "softmax",
        "remaining-mean": "NCM",
    }
    return Figure(
        "fig2a",
        "Figure 2 (a): rare-class F1 and overall accuracy under a departure",
        (
            Panel("fig2a-f1", "F1 of the rare class", lines("fig2a-f1", outcome, named)),
            Panel(
                "fig2a-accuracy",
                "Accuracy over all classes",
                lines("fig2a-accuracy", outcome, named, "accuracy", "accuracy"),
            ),
        ),
        _ends("fig2a", "at the last round", outcome, named, ("f1", "accuracy")),
    )


def fig2b(results: Results) -> Figure:
    """How far an estimate's in-span part is from the oracle's."""
    outcome = results.of(fig2_wanted(results))
    named = {"remaining-mean": "direct (remaining)", "mpt:in-span": "barycentric"}
    chart = lines("fig2b", outcome, named, "in_span_error", "Euclidean distance inside the span", None)
    table = _ends("fig2b", "mean after the departure", outcome, named, ("in_span_error",), mean=True)
    return Figure("fig2b", "Figure 2 (b): error of the in-span part", (Panel("fig2b", "", chart),), table)


def fig2c(results: Results) -> Figure:
    """How far the residual stored at departure is from the oracle's."""
    outcome = results.of(fig2_wanted(results))
    named = {"mpt:stored-residual": "stored residual's error", "mpt:in-span": "oracle residual's length"}
    chart = lines("fig2c", outcome, named, "out_of_span_error", "Euclidean distance outside the span", None)
    table = _ends("fig2c", "at the last round", outcome, named, ("out_of_span_error",))
    return Figure("fig2c", "Figure 2 (c): the out-of-span residual", (Panel("fig2c", "", chart),), table)


def fig2d_wanted(results: Results) -> list[CellSpec]:
    """Every class as the rare one, at every fraction; the truck's with few samples is that of (a) to (c)."""
    scale, classes = results.grid.scale, results.grid.classes()
    made = [
        fig2_wanted(results)
        if fraction == scale.few and c == classes[0]
        else CellSpec(study="loss", remaining=fraction, rare=c)
        for fraction in scale.fractions
        for c in classes
    ]
    return made or [fig2_wanted(results)]


def loss(outcome: CellOutcome | None) -> float | None:
    """Mean decrease of NCM's F1 over the rounds after the departure, in per cent of the F1 without one."""
    if outcome is None:
        return None
    falls = []
    for seed, without in outcome.curve("live").seeds.items():
        mine = outcome.curve("remaining-mean").seeds.get(seed, {})
        falls += [
            100 * (1 - mine[n] / without[n]) for n in mine if n > outcome.depart_at and n in without and without[n] > 0
        ]
    return float(np.mean(falls)) if falls else None


def losses(results: Results) -> dict[str, dict[float, float | None]]:
    """By class and fraction, classes in the order of their mean loss."""
    found: dict[str, dict[float, float | None]] = {}
    if "nuimages" not in results.grid.sources:
        return found
    names = results.grid.dataset("nuimages").classes
    for wanted in fig2d_wanted(results):
        rare = results.grid.classes()[0] if wanted.rare is None else wanted.rare
        found.setdefault(names[rare], {})[wanted.remaining] = loss(results.of(wanted))
    mean = {c: float(np.mean([v for v in some.values() if v is not None] or [0.0])) for c, some in found.items()}
    return dict(sorted(found.items(), key=lambda item: mean[item[0]]))


def fig2d(results: Results) -> Figure:
    """The loss by class and fraction."""
    found, fractions = losses(results), results.grid.scale.fractions
    groups = tuple((name, tuple(some.get(f) for f in fractions)) for name, some in found.items())
    series = tuple(f"{100 * f:g}%" for f in fractions)
    label = "mean decrease of F1, %, by remaining fraction"
    some = any(v is not None for _, values in groups for v in values)
    bars = Bars("fig2d", label, groups, series) if some else None
    rows = tuple(
        TableRow(name, tuple(Entry(None if v is None else f"{v:.1f}") for v in values)) for name, values in groups
    )
    columns = tuple(("", f"{s} remain") for s in series)
    title = "Figure 2 (d): loss of F1 by class and remaining fraction, per cent"
    return Figure("fig2d", title, (Panel("fig2d", "", bars),), Table("fig2d", title, "rare class", columns, rows))


PER_ROUND = ("fedavg", "ccvr", "icarl", "sdc", "ldc", "frozen", "mpt-lite", "mpt", *FURTHER, "oracle")


def per_round(results: Results) -> tuple[str, ...]:
    """The methods of Figures 4 and 5, with the user's own before the oracle."""
    return (*PER_ROUND[:-1], *results.grid.own_names, PER_ROUND[-1])


def fig4(results: Results) -> Figure:
    """F1 by round."""
    _, outcome = main(results)
    shown = dict.fromkeys(per_round(results), "")
    chart = lines("fig4", outcome, shown, own=results.grid.own_names)
    table = _ends("fig4", "at the last round", outcome, shown, ("f1",), own=results.grid.own_names)
    return Figure("fig4", "Figure 4: rare-class F1 by round, 2% remaining", (Panel("fig4", "", chart),), table)


def fig5_wanted(results: Results) -> list[CellSpec]:
    """All fractions of the main set."""
    return [CellSpec(remaining=f) for f in results.grid.scale.remaining]


@dataclass(frozen=True)
class Overhead:
    """What a method costs in a round after the departure, all vehicles together, and its F1.

    Attributes:
        own: bytes of its own messages.
        whole: with those that its readout needs besides.
        milliseconds: on vehicles and server, without the forward pass.
        f1: at the last round, by remaining fraction.
    """

    own: float
    whole: float
    milliseconds: float
    f1: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Of F1."""
        return float(np.mean(self.f1))


def overheads(results: Results) -> dict[str, Overhead]:
    """By method, over all fractions that are there; a method that one of them lacks is left out."""
    found = [o for w in fig5_wanted(results) if (o := results.of(w)) is not None]

    def mean(method: str, *columns: str) -> float:
        return float(np.mean([c for o in found if (c := o.cost(method, *columns)) is not None]))

    made = {}
    for method in per_round(results):
        f1 = tuple(s.mean for o in found if (s := last(o, method)) is not None)
        costs = [o.cost(method, "bytes_up") for o in found]
        if f1 and method != "oracle" and len(f1) == len(found) and None not in costs:
            own = mean(method, "bytes_up", "bytes_down")
            whole = own + mean(method, "readout_bytes_up", "readout_bytes_down")
            made[method] = Overhead(own, whole, 1000 * mean(method, "vehicle_seconds", "server_seconds"), f1)
    return made


def _entries(overhead: Overhead | None) -> tuple[Entry, ...]:
    if overhead is None:
        return (Entry(None),) * 4
    texts = quantity(overhead.own), quantity(overhead.whole), f"{overhead.milliseconds:.1f}"
    return (*map(Entry, texts), Entry(Stat(overhead.mean)))


def fig5(results: Results) -> Figure:
    """Overhead against F1."""
    found, styles = overheads(results), looks(results.grid.own_names)

    def plane(name: str, unit: str, cost: Callable[[Overhead], float]) -> Plane | None:
        points = tuple(
            Point(styles[m], cost(o), o.mean, min(o.f1), max(o.f1), f"{styles[m].label}: F1 {number(o.mean)}, "
                  f"{quantity(o.whole)}, {o.milliseconds:.1f} ms")
            for m, o in found.items()
        )  # fmt: skip
        return Plane(name, unit, "F1 at the last round", points, log=True) if points else None

    rows = tuple(TableRow(styles[m].label, _entries(found.get(m))) for m in per_round(results) if m != "oracle")
    columns = (("a round", "own bytes"), ("a round", "with readout"), ("a round", "ms"), ("F1", "last round"))
    title = "Figure 5: overhead over FedAvg against rare-class F1"
    communication = plane("fig5a", "kB a round, all vehicles", lambda o: o.whole / 1000)
    time = plane("fig5b", "ms a round, all vehicles", lambda o: o.milliseconds)
    return Figure(
        "fig5",
        title,
        (
            Panel("fig5a", "(a) Communication, the readout's included", communication),
            Panel("fig5b", "(b) Time on vehicles and server, without the forward pass", time),
        ),
        Table("fig5", title, "Method", columns, rows),
        ("Bars span F1 over the remaining fractions. Milliseconds are those of this machine, all vehicles together.",),
    )


COMPONENTS = {
    "frozen": "Frozen Prototype",
    "mpt:in-span": "Barycentric Prototype",
    "mpt:stored-residual": "Bary. + Stored Residual",
    "mpt": "MPT",
}


def correlation(outcome: CellOutcome) -> tuple[float, int] | None:
    """Pearson's, of prototype distance and F1 over rounds after the departure, components and seeds; and how many."""
    pairs = [
        (r["prototype_distance"], r["f1"])
        for r in outcome.figures.metrics
        if r["method"] in COMPONENTS and r["round"] > outcome.depart_at and r["prototype_distance"] is not None
    ]
    x, y = np.array(pairs).T if pairs else (np.zeros(0), np.zeros(0))
    if len(pairs) < 3 or x.std() == 0 or y.std() == 0:
        return None
    return float(np.corrcoef(x, y)[0, 1]), len(pairs)


def fig6(results: Results) -> Figure:
    """Prototype error by component, and F1 against it."""
    _, outcome = main(results)
    chart = lines("fig6a", outcome, COMPONENTS, "prototype_distance", "Mahalanobis distance to oracle-train's", None)
    plane, found = None, None
    if outcome is not None:
        points = tuple(
            Point(replace(looks()[m], label=COMPONENTS[m]), r["prototype_distance"], r["f1"])
            for m in COMPONENTS
            for r in outcome.figures.metrics
            if r["method"] == m and r["round"] > outcome.depart_at and r["prototype_distance"] is not None
        )
        label = "Mahalanobis distance to oracle-train's"
        plane = Plane("fig6b", label, "F1 of the rare class", points, named=False) if points else None
        found = correlation(outcome)
    told = f"Pearson's correlation {found[0]:+.2f} over {found[1]} points." if found else ""
    return Figure(
        "fig6",
        "Figure 6: prototype reconstruction error and F1",
        (
            Panel("fig6a", "(a) Distance of each reconstruction to the oracle, 2% remaining", chart),
            Panel("fig6b", f"(b) F1 against that distance. {told}".strip(), plane),
        ),
        _ends("fig6", "mean after the departure", outcome, COMPONENTS, ("prototype_distance", "f1"), mean=True),
        ("The oracle here is oracle-train, the mean of all training samples; the paper's is the test samples' mean.",),
    )


RESIDUALS = {"mpt:predicted": "Predicted Only", "mpt:measured": "Measured Only", "mpt": "MPT"}
USES = {"mpt": "held out", "mpt:trained": "trained on"}


def fig7_wanted(results: Results) -> list[CellSpec]:
    """The two budgets."""
    return [CellSpec(remaining=f) for f in results.grid.scale.budgets]


def fig7(results: Results) -> Figure:
    """Out-of-span error with two budgets; holding the remaining samples out or training on them."""
    panels, rows = [], []
    for letter, wanted in zip("ab", fig7_wanted(results), strict=True):
        outcome, share = results.of(wanted), f"{100 * wanted.remaining:g}% remaining"
        label = "Euclidean distance outside the span"
        chart = lines(f"fig7{letter}", outcome, RESIDUALS, "out_of_span_error", label, None)
        panels.append(Panel(f"fig7{letter}", f"({letter}) Error of the out-of-span residual, {share}", chart))
        for method, called in RESIDUALS.items():
            value = after(outcome, method, "out_of_span_error")
            rows.append(TableRow(f"{called}, {share}", (Entry(value), Entry(""))))
    first = results.of(fig7_wanted(results)[0])
    panels.append(Panel("fig7c", "(c) Remaining samples held out or trained on", lines("fig7c", first, USES)))
    rows += [TableRow(f"MPT, remaining samples {c}", (Entry(""), Entry(after(first, m)))) for m, c in USES.items()]
    title = "Figure 7: out-of-span reconstruction error, and how the remaining samples are used"
    columns = (("mean after the departure", "out-of-span error"), ("mean after the departure", "F1"))
    return Figure("fig7", title, tuple(panels), Table("fig7", title, "", columns, tuple(rows)))


_NAMES = {
    "f1": "F1",
    "accuracy": "accuracy",
    "in_span_error": "in-span error",
    "out_of_span_error": "out-of-span error",
    "prototype_distance": "distance",
}


def _ends(
    name: str,
    when: str,
    outcome: CellOutcome | None,
    methods: Mapping[str, str],
    columns: Sequence[str],
    mean: bool = False,
    own: tuple[str, ...] = (),
) -> Table:
    """What a figure's curves come to, as a table."""
    styles = looks(own)

    def entry(method: str, column: str) -> Entry:
        value = (after if mean else last)(outcome, method, column)
        empty = value is None and outcome is not None and method in outcome.methods
        return Entry("\N{EN DASH}" if empty else value)

    rows = tuple(
        TableRow(c or styles[m].label, tuple(entry(m, column) for column in columns)) for m, c in methods.items()
    )
    title = f"Figure {name.removeprefix('fig')}, {when}"
    return Table(name, title, "", tuple((when, _NAMES[c]) for c in columns), rows)
