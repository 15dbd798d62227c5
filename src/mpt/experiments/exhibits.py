"""Every exhibit of the paper: which cells it needs, and how it is made of them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from mpt.base.seeds import Stat
from mpt.experiments import figures, paper
from mpt.experiments.beyond import beyond, beyond_wanted, with_further
from mpt.experiments.capabilities import capabilities
from mpt.experiments.figures import Figure
from mpt.experiments.plans import FURTHER, METHODS_OF, TABLE, CellSpec
from mpt.experiments.results import Results, last
from mpt.experiments.sets import SETS
from mpt.experiments.table import Entry, Table, TableRow
from mpt.methods import find_method
from mpt.pages.styles import kind_of

MORE = ("ldc:all", "remaining-mean", "oracle-train")
"""Rows below the paper's: LDC from all samples, the plain mean of the remaining ones, and the honest reference."""

NAMED = 6
"""How many missing cells a note names."""

PAPERS = "Beside ours the paper's numbers, on "


@dataclass(frozen=True)
class Exhibit:
    """A table or a figure of the paper.

    Attributes:
        wanted: the cells it shows.
        make: it, from what there is.
    """

    wanted: Callable[[Results], Sequence[CellSpec]]
    make: Callable[[Results], Table | Figure]


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
    note = f"{PAPERS}nuImages (truck). {' and '.join(paper.LABELS[m] for m in FURTHER)}: only where `beyond` has cells."
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
    for method in (*_with_own(TABLE, results), *MORE):
        entries = []
        for wanted, (_, key) in groups.items():
            entries.append(Entry(last(outcomes[wanted], method), paper.stated(stated, key, method, wanted.remaining)))
        apart = kind_of(method) == "reference" or method in MORE
        rows.append(TableRow(paper.LABELS.get(method, method), tuple(entries), apart))
    columns = tuple((group, f"{100 * w.remaining:g}%") for w, (group, _) in groups.items())
    return Table(name, title, "Method", columns, tuple(_with_best(rows)), (note,))


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
    note = "The paper's source says, in a passage that is commented out (line 488), that the round has no effect."
    return Table("departure", "The departure round swept: rare-class F1 at the last round, 2% remaining", "Method",
                 columns, tuple(rows), (note,))  # fmt: skip


def _further(wanted: Callable[[Results], Sequence[CellSpec]]) -> Callable[[Results], list[CellSpec]]:
    return lambda results: with_further(results, wanted(results))


def _one(wanted: Callable[[Results], CellSpec]) -> Callable[[Results], list[CellSpec]]:
    return lambda results: [wanted(results)]


EXHIBITS: dict[str, Exhibit] = {
    "table1": Exhibit(lambda results: [], table1),
    "table2": Exhibit(_further(table2_wanted), table2),
    "table3": Exhibit(_further(table3_wanted), table3),
    "fig2a": Exhibit(_one(figures.fig2_wanted), figures.fig2a),
    "fig2b": Exhibit(_one(figures.fig2_wanted), figures.fig2b),
    "fig2c": Exhibit(_one(figures.fig2_wanted), figures.fig2c),
    "fig2d": Exhibit(figures.fig2d_wanted, figures.fig2d),
    "fig4": Exhibit(_further(lambda results: [CellSpec()]), figures.fig4),
    "fig5": Exhibit(_further(figures.fig5_wanted), figures.fig5),
    "fig6": Exhibit(lambda results: [CellSpec()], figures.fig6),
    "fig7": Exhibit(figures.fig7_wanted, figures.fig7),
    "departure": Exhibit(departure_wanted, departure),
    "beyond": Exhibit(beyond_wanted, beyond),
}
"""By the names that `mpt reproduce` takes; Figures 1 and 3 of the paper are drawings of the scenario and the design."""


def made(name: str, results: Results) -> Table | Figure:
    """An exhibit with the names of its data, and what is missing."""
    exhibit = EXHIBITS[name]
    wanted = exhibit.wanted(results)
    thing = exhibit.make(results)
    sets = dict.fromkeys(w.set for w in wanted)
    notes = list(thing.notes)
    sources = [results.grid.sources[s] for s in sets if s in results.grid.sources]
    labels = [source.full_label if name == "beyond" else source.label for source in sources]
    if labels:
        notes.append(f"Data: {'; '.join(labels)}. {_made_with(results, wanted)}")
    missing = results.missing(wanted)
    if missing:
        more = f"; and {len(missing) - NAMED} more" if len(missing) > NAMED else ""
        notes.append(f"Missing: {'; '.join(missing[:NAMED])}{more}. To compute them: {command(name, results)}")
    notes = list(dict.fromkeys(notes))
    if isinstance(thing, Figure) and thing.table is not None:
        thing = replace(thing, table=replace(thing.table, notes=tuple(notes)))
    return replace(thing, notes=tuple(notes))


def _made_with(results: Results, wanted: Sequence[CellSpec]) -> str:
    """Scale, seeds and devices."""
    found = [o for w in wanted if (o := results.of(w)) is not None]
    devices = sorted({str(o.manifest.get("device", "")) for o in found} - {""})
    counts = {o.seeds for o in found} or {results.grid.seeds}
    fewest, most = min(counts), max(counts)
    seeds = f"{most} seed{'s' * (most > 1)}" if fewest == most else f"{fewest} to {most} seeds"
    where = f", computed on {' and '.join(devices)}" if devices else ""
    warning = (
        " This scale shows that everything runs; it decides nothing." if results.grid.scale.name == "quick" else ""
    )
    return f"Scale {results.grid.scale.name}, {seeds}{where}.{warning}"


def command(name: str, results: Results) -> str:
    """What computes an exhibit's cells."""
    named = [f" --data '{s.set}={s.spec}:{','.join((s.rare, *s.further))}'" for s in results.grid.sources.values()]
    unnamed = [f" --data {s}=DATASET:CLASS" for s in SETS if s not in results.grid.sources]
    used = dict.fromkeys(w.set for w in EXHIBITS[name].wanted(results))
    told = [text for text in (*named, *unnamed) if any(f"{s}=" in text for s in used)]
    own = f" --methods '{','.join(results.grid.own)}'" if results.grid.own else ""
    return f"mpt reproduce {name} --scale {results.grid.scale.name} --seeds {results.grid.seeds}{''.join(told)}{own}"
