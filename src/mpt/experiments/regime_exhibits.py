"""The grid of regimes as a figure; Table 2, the claims and two uneven federations in the regime nearest the paper's."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from mpt.base.seeds import Stat
from mpt.experiments.beyond import with_further
from mpt.experiments.claims import CLAIMS, ClaimVerdict, beats_baselines, f1, found
from mpt.experiments.figures import Figure, Panel, looks
from mpt.experiments.paper import LABELS
from mpt.experiments.plans import REGIMES, UNEVEN, CellSpec
from mpt.experiments.plots import Plane, Point
from mpt.experiments.regimes import JUDGES, SUDDEN, Judged, Ranked, paper_shares, ranked_whole, ranking
from mpt.experiments.results import Results
from mpt.experiments.table import Entry, Table, TableRow, number
from mpt.experiments.tables import table2, table2_wanted
from mpt.runs.summary import over

SHOWN = ("frozen", "remaining-mean", "mean-shift", "mpt-lite", "mpt", "mpt-x")
"""In the figure, the last one on top."""

BESIDE = ("icarl", "sdc", "ldc", "ccvr", "stop-at-departure", "dpcr")
"""In the notes besides."""

DASH = "\N{EN DASH}"
BANDS = (0.0, 1.0, 2.0, 4.0, float("inf"))
"""Of the drift a round, by which the notes sum up."""

BY_BACKBONE = (614, 616)
"""Lines of the claims that Table 3 judges: a regime has one backbone."""


def share(results: Results, cell: Judged, method: str) -> float | None:
    """A method's F1 over oracle-train's, both the mean after the departure; None where there is none."""
    outcome = results.of(cell.wanted)
    if outcome is None:
        return None
    rounds = outcome.shared((method, "oracle-train"))
    mine, reference = (over(outcome.after(m, rounds=rounds)) for m in (method, "oracle-train"))
    return mine.mean / reference.mean if mine and reference and reference.mean else None


def regimes(results: Results) -> Figure:
    """Each method's share of oracle-train's F1 against the drift a round, and how near each regime is to the paper."""
    ranked = ranking(results)
    cells = [cell for one in ranked for cell in one.cells]
    points = tuple(
        Point(looks()[m], cell.drift, value, about=f"{cell.name}: {LABELS.get(m, m)} {number(value)} of oracle-train")
        for m in SHOWN
        for cell in sorted(cells, key=lambda c: -c.drift)
        if (value := share(results, cell, m)) is not None and np.isfinite(cell.drift)
    )
    nearest = next(iter(ranked_whole(results)), None)
    place = (float(np.mean([c.drift for c in nearest.cells])), "nearest to the paper") if nearest else None
    label = "drift a round: mean way of the reference prototypes, in deviations"
    plane = Plane("regimes", label, "share of oracle-train's F1", points, True, False, marked=place) if points else None
    about = "F1 after the departure over oracle-train's, a point a regime and tuning class, against the drift a round"
    title = "Regimes: who wins at which drift, and which regime is nearest to the paper's rows"
    return Figure("regimes", title, (Panel("regimes", about, plane),), _ranks(results, ranked), _said(results, ranked))


def _ranks(results: Results, ranked: Sequence[Ranked]) -> Table:
    columns = ["distance", "oracle F1", "drift a round", *(LABELS[row] for row in JUDGES), SUDDEN]
    ours = ("remaining-mean", "mean-shift", "dpcr", "stop-at-departure", "mpt-lite", "mpt", "mpt-x")
    rows = []
    for one in ranked:
        entries = [Entry(Stat(one.distance) if np.isfinite(one.distance) else DASH)]
        entries += [_mean([cell.oracle for cell in one.cells]), _mean([cell.drift for cell in one.cells])]
        entries += [_mean([cell.shares[row] for cell in one.cells if row in cell.shares]) for row in (*JUDGES, SUDDEN)]
        entries += [_mean([s for c in one.cells if (s := share(results, c, m)) is not None]) for m in ours]
        rows.append(TableRow(one.name, tuple(entries)))
    paper = [paper_shares(name) for name, source in results.grid.sources.items() for _ in source.tuning]
    stated = [_mean([p[row] for p in paper if row in p]) for row in (*JUDGES, SUDDEN)]
    blank = (Entry(DASH),) * 3
    rows.append(
        TableRow(
            "paper, 2%, sets weighted by their classes", (*blank, *stated, *(Entry(DASH),) * len(ours)), apart=True
        )
    )
    groups = (*(("", c) for c in columns[:3]), *(("over the oracle, last round", c) for c in columns[3:]))
    groups += tuple(("over oracle-train, mean after", LABELS.get(m, m)) for m in ours)
    return Table("regimes", "Regimes, the nearest to the paper's rows first", "Regime", groups, tuple(rows))


def _mean(values: Sequence[float]) -> Entry:
    return Entry(Stat(float(np.mean(values))) if values else None)


def _said(results: Results, ranked: Sequence[Ranked]) -> tuple[str, ...]:
    whole = ranked_whole(results)
    notes = [
        "Distance: root of the mean squared difference from the paper's six figures at 2% (five rows as shares of "
        "their oracle's F1 at the last round, and the part of frozen's fall that comes in the first round after the "
        "departure, which the paper calls progressive: 0), mean over the tuning classes. Drift: Mahalanobis distance "
        "that the reference prototypes go from one round to the next, mean over the rounds after the departure."
    ]
    if len(whole) > 1:
        first, second = whole[:2]
        notes.append(
            f"Nearest to the paper: {first.name} ({number(first.distance)}); the runner-up: {second.name} "
            f"({number(second.distance)}); what every other exhibit is made with, {next(iter(REGIMES))}: "
            f"{number(next(o.distance for o in ranked if o.name == next(iter(REGIMES))))}."
        )
        told = [f"without {LABELS.get(row, row)} {_first_without(whole, row).name}" for row in (*JUDGES, SUDDEN)]
        notes.append(f"Which would be nearest without one of the six figures: {'; '.join(told)}.")
    return (*notes, *_bands(results, [cell for one in ranked for cell in one.cells]))


def _first_without(ranked: Sequence[Ranked], row: str) -> Ranked:
    """The regime with the smallest distance without one of the six figures."""
    distances = [float(np.mean([cell.without(row) for cell in one.cells])) for one in ranked]
    return ranked[int(np.argmin(distances))]


def _bands(results: Results, cells: Sequence[Judged]) -> list[str]:
    """Each method's mean share of oracle-train's F1 by the drift a round."""
    notes = []
    for low, high in pairwise(BANDS):
        inside = [cell for cell in cells if low <= cell.drift < high]
        told = []
        for method in (*SHOWN, *BESIDE):
            values = [s for cell in inside if (s := share(results, cell, method)) is not None]
            told += [f"{LABELS.get(method, method)} {number(float(np.mean(values)))}"] if values else []
        if told:
            where = f"from {low:g} to {high:g}" if np.isfinite(high) else f"of {low:g} and more"
            notes.append(
                f"Mean share of oracle-train's F1 at a drift {where} a round, {len(inside)} cells: {', '.join(told)}."
            )
    return notes


def nearest(results: Results, place: int = 0) -> Results | None:
    """The same cells' store in the regime that the grid chose, or in the runner-up; None as long as there is none."""
    whole = ranked_whole(results)
    if len(whole) <= place:
        return None
    name = whole[place].name
    return results.once(f"nearest {place}", lambda: results.within(name if REGIMES[name] else ""))


def regime_table2_wanted(results: Results) -> list[CellSpec]:
    """Table 2 in the chosen regime."""
    there = nearest(results)
    if there is None:
        return []
    sets = results.grid.scale.regime_sets
    return with_further(
        results, [replace(w, regime=there.grid.regime) for w in table2_wanted(results) if w.set in sets]
    )


def regime_table2(results: Results) -> Table:
    """F1 at the last round by set, in the chosen regime."""
    there = nearest(results)
    if there is None:
        return Table("table2-regime", "Table 2 in the regime nearest to the paper's", "Method", (), ())
    made = table2(there)
    title = f"Table 2 in the regime nearest to the paper's rows, {_named(there)}: rare-class F1 at the last round"
    return replace(made, name="table2-regime", title=title)


def _named(results: Results) -> str:
    return results.grid.regime or next(iter(REGIMES))


def regime_claims_wanted(results: Results) -> list[CellSpec]:
    """The runner-up's cells at 2%."""
    there = nearest(results, 1)
    if there is None:
        return []
    sets = results.grid.scale.regime_sets
    return with_further(results, [CellSpec(set=s, regime=there.grid.regime) for s in sets])


def regime_claims(results: Results) -> Table:
    """The claims that Table 2's cells judge, in today's regime, the chosen one, and the runner-up."""
    others = (("nearest to the paper", nearest(results)), ("runner-up, 2% only", nearest(results, 1)))
    sides = [("as elsewhere", results), *((name, side) for name, side in others if side is not None)]
    columns = [(name, _named(side)) for name, side in sides]
    rows = []
    for claim in (claim for claim in CLAIMS if claim.line not in BY_BACKBONE):
        verdicts = [claim.judge(side) for _, side in sides]
        if any(v.status != "not run" for v in verdicts[1:]) or len(sides) == 1:
            rows.append(TableRow(claim.text, tuple(Entry(_told(v)) for v in verdicts)))
    verdicts = [beats_baselines(side, table2_wanted(side), ("mpt-x",)) for _, side in sides]
    rows.append(TableRow("MPT-X beats every baseline (not in the paper)", tuple(Entry(_told(v)) for v in verdicts)))
    return Table("claims-regime", "The paper's claims by regime", "Claim", tuple(columns), tuple(rows))


def _told(verdict: ClaimVerdict) -> str:
    return f"{verdict.status}: {verdict.figures}" if verdict.figures else verdict.status


def uneven_wanted(results: Results) -> list[CellSpec]:
    """The main cell with an uneven split, and with a tenth of the vehicles taking part, in the chosen regime."""
    there = nearest(results)
    return [] if there is None else [CellSpec(regime=there.grid.regime, uneven=name) for name in UNEVEN]


def uneven(results: Results) -> Table:
    """F1 at the last round and the paper's main claims in each."""
    wanted = uneven_wanted(results)
    even = [CellSpec(regime=wanted[0].regime)] if wanted else []
    cells = [*even, *wanted]
    methods = ("fedavg", "ccvr", "icarl", "sdc", "ldc", "frozen", "remaining-mean", "mpt-lite", "mpt", "mpt-x",
               "oracle", "oracle-train")  # fmt: skip
    rows = [
        TableRow(LABELS.get(m, m), tuple(Entry(over(o.last(m)) if (o := results.of(w)) else None) for w in cells))
        for m in methods
    ]
    claims = {
        "MPT or MPT-lite has the highest F1": ("mpt", "mpt-lite"),
        "MPT beats every baseline": ("mpt",),
        "MPT-X beats every baseline": ("mpt-x",),
    }
    for text, ours in claims.items():
        verdicts = [beats_baselines(results, [w], ours) for w in cells]
        rows.append(TableRow(text, tuple(Entry(_short(v)) for v in verdicts), apart=True))
    exceeds = [next((f1(o, "mpt") > f1(o, "oracle") for _, o in found(results, [w])), None) for w in cells]
    words = {True: "agrees", False: "does not", None: "not run"}
    rows.append(TableRow("MPT exceeds the oracle", tuple(Entry(words[e]) for e in exceeds), apart=True))
    columns = tuple(("", w.uneven or "even, all take part") for w in cells)
    title = (
        "Uneven federations in the regime nearest to the paper's rows: rare-class F1 at the last round, 2% remaining"
    )
    many = results.grid.scale.many
    few = f"a tenth of {many} vehicles" if many else "a tenth of the vehicles"
    note = f"Dirichlet .1: the other classes are split by Dirichlet(.1). A tenth takes part: {few} trains in a round."
    return Table("uneven", title, "Method", columns, tuple(rows), (note,))


def _short(verdict: ClaimVerdict) -> str:
    """The verdict on one cell, with the lead."""
    lead = verdict.figures.partition("least lead: ")[2].partition(" on ")[0]
    status = {"in part": "agrees", "agrees so far": "agrees"}.get(verdict.status, verdict.status)
    return f"{status}: {lead}" if lead else status
