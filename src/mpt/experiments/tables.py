"""The paper's tables, made from the cells."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from mpt.base.seeds import Stat
from mpt.experiments import paper
from mpt.experiments.capabilities import capabilities
from mpt.experiments.plans import FURTHER, METHODS_OF, TABLE, CellSpec
from mpt.experiments.results import Results, last
from mpt.experiments.sets import SETS
from mpt.experiments.table import Entry, Table, TableRow
from mpt.methods import find_method
from mpt.pages.styles import kind_of

MORE = ("ldc:all", "remaining-mean", "oracle-train")
"""Rows below the paper's: LDC from all samples, the plain mean of the remaining ones, and the honest reference."""

IN_REGIMES = ("dpcr", "stop-at-departure")
"""Rows below these, where a cell has them."""

PAPERS = "Beside ours the paper's numbers, on "
SPREAD = "Ours are means over seeds; ± is their standard deviation."
QUICK = "This scale is too small to set the paper's numbers beside."


def table1(results: Results) -> Table:
    """What methods can do, as the paper marks it and as ours were seen doing it."""
    rows = []
    for text in (*paper.TABLE1, "mpt-lite", *FURTHER, *results.grid.own):
        method = find_method(text)
        seen, stated = capabilities(method), paper.TABLE1.get(text)
        marks = zip(seen.marks, stated or [None] * 4, strict=True)
        entries = [Entry(_mark(ours), None if theirs is None else _mark(theirs)) for ours, theirs in marks]
        rows.append(TableRow(paper.LABELS.get(text, method.name), (*entries, Entry(_mark(seen.embeds_twice)))))
    columns = ("PD", "HFL", "PF", "TF", "embeds twice")
    return Table(
        "table1",
        "Table 1: capabilities, ours and the paper's",
        "Method",
        tuple(("", column) for column in columns),
        tuple(rows),
        (
            "PD: keeps something from the departure (or is told the truth) that moves with the feature space. HFL: all "
            "that it learns comes as answers of vehicles. PF: its messages do not grow with the samples. TF: it trains "
            "nothing of its own. Each mark is what the method was seen doing on a small fleet, but for TF, which it "
            "declares. Embeds twice: vehicles need the departure-time model besides the current one.",
            "Where marks differ, the method differs: SDC and LDC are federated here (sums over vehicles, LDC's map "
            "solved in closed form), and iCaRL reports means of unit features, not exemplars.",
            "Data: none; a fleet of made-up features.",
        ),
    )


def _mark(value: bool) -> str:
    return "✓" if value else "✗"


def table2_wanted(results: Results) -> list[CellSpec]:
    """Three sets, all fractions, three-layer CNN."""
    return [CellSpec(set=s, remaining=f) for s in SETS for f in results.grid.scale.remaining]


def table2(results: Results) -> Table:
    """F1 at the last round by set."""
    sources = results.grid.sources
    groups = {
        w: (sources[w.set].short if w.set in sources else f"no data for {SETS[w.set].title}", w.set)
        for w in table2_wanted(results)
    }
    rounds = results.grid.scale.rounds
    title = f"Table 2: rare-class F1 for different datasets, three-layer CNN, round {rounds}"
    note = f"{PAPERS}nuImages (truck), coarse-grained Car-1000 (van) and fine-grained Car-1000 (micro sedan)."
    return _grid("table2", title, results, groups, paper.TABLE2, note)


def table3_wanted(results: Results) -> list[CellSpec]:
    """Four backbones on the main set."""
    scale = results.grid.scale
    return [CellSpec(backbone=b, remaining=f) for b in scale.backbones for f in scale.backbone_remaining]


def table3(results: Results) -> Table:
    """F1 at the last round by backbone."""
    groups = {w: (paper.BACKBONES[w.backbone], w.backbone) for w in table3_wanted(results)}
    source = results.grid.sources.get("nuimages")
    title = f"Table 3: rare-class F1 for different backbones{f' on {source.short}' if source else ''}"
    note = f"{PAPERS}nuImages (truck)."
    made = _grid("table3", title, results, groups, paper.TABLE3, note)
    own = {b: dict(s) for b, s in results.grid.scale.backbones.items() if s}
    if not own:
        return made
    told = [f"{paper.BACKBONES[b]}: {', '.join(f'{k} {v}' for k, v in s.items())}." for b, s in own.items()]
    return replace(made, notes=(f"At this scale some have settings of their own. {' '.join(told)}", *made.notes))


def _grid(
    name: str,
    title: str,
    results: Results,
    groups: Mapping[CellSpec, tuple[str, str]],
    stated: dict[str, dict[str, tuple[Stat, ...]]],
    note: str,
) -> Table:
    outcomes = {w: results.of(w) for w in groups}
    rows = []
    quick = results.grid.scale.name == "quick"  # ten rounds on stand-ins: nothing to set the paper's numbers beside
    stated, notes = ({}, (QUICK,)) if quick else (stated, (note, SPREAD))
    there = {m for outcome in outcomes.values() if outcome for m in outcome.methods}
    for method in (*_with_own(TABLE, results), *MORE, *(m for m in IN_REGIMES if m in there)):
        entries = []
        for wanted, (_, key) in groups.items():
            entries.append(Entry(last(outcomes[wanted], method), paper.stated(stated, key, method, wanted.remaining)))
        apart = kind_of(method) == "reference" or method in (*MORE, *IN_REGIMES)
        rows.append(TableRow(paper.LABELS.get(method, method), tuple(entries), apart))
    columns = tuple((group, f"{100 * w.remaining:g}%") for w, (group, _) in groups.items())
    return Table(name, title, "Method", columns, tuple(_with_best(rows)), notes)


def _with_own(methods: Sequence[str], results: Results) -> list[str]:
    """Rows of a table with the user's own before the oracle."""
    return [*methods[:-1], *results.grid.own_names, methods[-1]]


def _with_best(rows: Sequence[TableRow]) -> Iterable[TableRow]:
    """The highest mean of each column is marked, references and rows apart left out."""
    best = []
    for column in zip(*(row.entries for row in rows), strict=True):
        means = [
            e.ours.mean if isinstance(e.ours, Stat) and not row.apart else None
            for row, e in zip(rows, column, strict=True)
        ]
        best.append(max((m for m in means if m is not None), default=None))
    for row in rows:
        marked = [
            replace(e, best=not row.apart and isinstance(e.ours, Stat) and e.ours.mean == high and high > 0)
            for e, high in zip(row.entries, best, strict=True)
        ]
        yield replace(row, entries=tuple(marked))


def departure_wanted(results: Results) -> list[CellSpec]:
    """The departure round swept; that of the scale is the main cell."""
    scale = results.grid.scale
    return [CellSpec() if d == scale.depart_at else CellSpec(study="departure", depart_at=d) for d in scale.departures]


def departure(results: Results) -> Table:
    """F1 at the last round by the round of the departure."""
    wanted = departure_wanted(results)
    outcomes = [results.of(w) for w in wanted]
    rows = [
        TableRow(paper.LABELS.get(m, m), tuple(Entry(last(o, m)) for o in outcomes), m == "oracle-train")
        for m in METHODS_OF["departure"]
    ]
    columns = tuple(("departure after round", str(d)) for d in results.grid.scale.departures)
    note = "The paper does not say it; a passage of its source that is commented out does: the round has no effect."
    return Table("departure", "The departure round swept: rare-class F1 at the last round, 2% remaining", "Method",
                 columns, tuple(rows), (note,))  # fmt: skip


def augmentation_wanted(results: Results) -> list[CellSpec]:
    """ResNet-18 with the samples as they are, which it learns by heart, and with crops and mirrored ones."""
    fractions = results.grid.scale.backbone_remaining
    plain = CellSpec(backbone="resnet18", remaining=0.02 if 0.02 in fractions else fractions[0], study="beyond")
    return [plain, replace(plain, augment="crop-flip")]


def augmentation(results: Results) -> Table:
    """F1 at the last round without augmentation and with it, by method, and how well the other classes are told."""
    wanted = augmentation_wanted(results)
    outcomes = [results.of(w) for w in wanted]
    ordered = sorted(METHODS_OF["beyond"], key=lambda method: kind_of(method) == "reference")
    rows = [
        TableRow(paper.LABELS.get(m, m), tuple(Entry(last(o, m)) for o in outcomes), kind_of(m) == "reference")
        for m in ordered
    ]
    others = tuple(Entry(last(o, "oracle-train", "others_accuracy")) for o in outcomes)
    rows.append(TableRow("accuracy on the other classes, oracle-train", others, apart=True))
    remaining = f"{100 * wanted[0].remaining:g}%"
    columns = tuple(("", w.augment or "none") for w in wanted)
    title = f"Augmentation: rare-class F1 at the last round, ResNet-18, {remaining} remaining"
    return Table("augmentation", title, "Method", columns, tuple(rows), (SPREAD,))
