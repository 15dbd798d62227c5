"""Table 2, its distance from the paper's, the claims and two uneven federations, in the regime nearest to the paper."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from mpt.base.seeds import Stat
from mpt.experiments.beyond import with_further
from mpt.experiments.claims import BASELINES, CLAIMS, ClaimVerdict, beats_baselines, f1, found
from mpt.experiments.paper import LABELS, TABLE2, stated
from mpt.experiments.plans import REGIMES, TUNED, UNEVEN, CellSpec
from mpt.experiments.regimes import ranked_whole
from mpt.experiments.results import Results, last
from mpt.experiments.sets import SetName
from mpt.experiments.table import Entry, Table, TableRow, number
from mpt.experiments.tables import table2, table2_wanted
from mpt.runs.summary import over

BY_BACKBONE = (614, 616)
"""Lines of the claims that Table 3 judges: a regime has one backbone."""

BY_TABLE2 = (133, 612)
"""Lines of those that Table 2's F1 judge: what tuning can change."""


def nearest(results: Results, place: int = 0) -> Results | None:
    """The same cells' store in the regime that the grid chose, or in the runner-up; None as long as there is none."""
    whole = ranked_whole(results)
    return _within(results, whole[place].name) if len(whole) > place else None


def other_network(results: Results) -> Results | None:
    """The same in the nearest regime that has another network than the chosen one."""
    networks = {one.name: REGIMES[one.name].get("backbone", "cnn3") for one in ranked_whole(results)}
    name = next((name for name, network in networks.items() if network != next(iter(networks.values()))), None)
    return _within(results, name) if name else None


def _within(results: Results, name: str) -> Results:
    return results.once(f"within {name}", lambda: results.within(name if REGIMES[name] else ""))


def regime_table2_wanted(results: Results) -> list[CellSpec]:
    """Table 2 in the chosen regime."""
    return _table2_wanted(results, nearest(results))


def network_table2_wanted(results: Results) -> list[CellSpec]:
    """Table 2 in the nearest regime with another network."""
    return _table2_wanted(results, other_network(results))


def _table2_wanted(results: Results, there: Results | None) -> list[CellSpec]:
    if there is None:
        return []
    sets = results.grid.scale.regime_sets
    return with_further(
        results, [replace(w, regime=there.grid.regime) for w in table2_wanted(results) if w.set in sets]
    )


def regime_table2(results: Results) -> Table:
    """F1 at the last round by set, in the chosen regime."""
    return _table2(nearest(results), "table2-regime", "the regime nearest to the paper's rows")


def network_table2(results: Results) -> Table:
    """The same in the nearest regime with another network."""
    return _table2(other_network(results), "table2-network", "the nearest regime with another network")


def _table2(there: Results | None, name: str, which: str) -> Table:
    if there is None:
        return Table(name, f"Table 2 in {which}", "Method", (), ())
    made = table2(there)
    tuned = {LABELS[m] for m in TUNED.get(there.grid.regime, {})}
    below = [
        replace(
            row, label=f"{row.label}, tuned", apart=True, entries=tuple(replace(e, best=False) for e in row.entries)
        )
        for row in table2(there.with_tuned).rows
        if row.label in tuned
    ]
    title = f"Table 2 in {which}, {_named(there)}: rare-class F1 at the last round"
    notes = [*made.notes, *_paid(there)]
    if below:
        notes.append("Tuned: with the best of 16 tries on the tuning classes in this regime (results/tune-*.csv).")
    return replace(made, name=name, title=title, rows=(*made.rows, *below), notes=tuple(notes))


def _paid(there: Results) -> list[str]:
    """What stopping at the departure costs the other classes."""
    gaps = [
        stopped.mean - tracked.mean
        for _, outcome in found(there, table2_wanted(there))
        if (stopped := last(outcome, "stop-at-departure", "others_accuracy"))
        and (tracked := last(outcome, "mpt-x", "others_accuracy"))
    ]
    if not gaps:
        return []
    mean = number(float(np.mean(gaps)))
    return [
        f"Accuracy on the other classes at the last round, stop-at-departure less MPT-X: {mean} on average over "
        f" {len(gaps)} cells, {number(min(gaps))} to {number(max(gaps))}."
    ]


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
    """The claims that Table 2's cells judge, by regime; tuned: with every method's best settings of `mpt tune`."""
    sides = _sides(results)
    second = nearest(results, 1)
    if second is not None and second.grid.regime not in {side.grid.regime for _, side in sides}:
        sides.append(("runner-up, 2% only", second))
    rows = []
    for claim in (claim for claim in CLAIMS if claim.line not in BY_BACKBONE):
        told = [
            "as untuned" if side.tuned and claim.line not in BY_TABLE2 else _told(claim.judge(side))
            for _, side in sides
        ]
        if any(t not in ("not run", "as untuned") for t in told[1:]) or len(sides) == 1:
            rows.append(TableRow(claim.text, tuple(map(Entry, told))))
    rivals = {"every baseline": BASELINES, "DPCR": ("dpcr",), "stopping at the departure": ("stop-at-departure",)}
    for name, some in rivals.items():
        verdicts = [beats_baselines(side, table2_wanted(side), ("mpt-x",), some) for _, side in sides]
        rows.append(TableRow(f"MPT-X beats {name} (not in the paper)", tuple(Entry(_told(v)) for v in verdicts)))
    columns = tuple((name, _named(side)) for name, side in sides)
    return Table("claims-regime", "The paper's claims by regime", "Claim", columns, tuple(rows))


def _sides(results: Results) -> list[tuple[str, Results]]:
    """Today's regime, the chosen one, and the nearest with another network; where methods were tuned, tuned too."""
    sides = [("as elsewhere", results)]
    for name, there in (("nearest", nearest(results)), ("another network", other_network(results))):
        if there is not None and there.grid.regime not in {side.grid.regime for _, side in sides}:
            sides.append((name, there))
            if there.grid.regime in TUNED:
                sides.append((f"{name}, tuned", there.with_tuned))
    return sides


def regime_gaps_wanted(results: Results) -> list[CellSpec]:
    """Table 2 wherever it is compared."""
    return [*regime_table2_wanted(results), *network_table2_wanted(results)]


def regime_gaps(results: Results) -> Table:
    """Ours less the paper's F1 in Table 2, by row and set."""
    sides = _sides(results)
    sets = [s for s in results.grid.scale.regime_sets if s in results.grid.sources]
    columns = [(s, side) for s in sets for _, side in sides]
    gaps = {row: [_gaps(side, s, row) for s, side in columns] for row in TABLE2["nuimages"]}
    rows = [TableRow(LABELS[row], tuple(_mean(some) for some in by_column)) for row, by_column in gaps.items()]
    squares = [np.square([g for some in column for g in some]) for column in zip(*gaps.values(), strict=True)]
    whole = [Entry(Stat(float(np.sqrt(np.mean(some)))) if len(some) else None) for some in squares]
    rows.append(TableRow("root of the mean square", tuple(whole), apart=True))
    title = "Where Table 2 differs from the paper's: rare-class F1 less the paper's, mean over the fractions"
    heads = tuple((results.grid.sources[s].short, name) for s in sets for name, _ in sides)
    return Table("gaps-regime", title, "Method", heads, tuple(rows))


def _gaps(results: Results, of: SetName, row: str) -> list[float]:
    """Ours less the paper's at each fraction that has been run."""
    cells = [w for w in table2_wanted(results) if w.set == of]
    pairs = [(last(results.of(w), row), stated(TABLE2, of, row, w.remaining)) for w in cells]
    return [ours.mean - theirs.mean for ours, theirs in pairs if ours and theirs]


def _mean(values: Sequence[float]) -> Entry:
    return Entry(Stat(float(np.mean(values))) if values else None)


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
               "oracle", "oracle-train", "dpcr", "stop-at-departure")  # fmt: skip
    rows = [
        TableRow(LABELS.get(m, m), tuple(Entry(over(o.last(m)) if (o := results.of(w)) else None) for w in cells))
        for m in methods
    ]
    claims = {
        "MPT or MPT-lite has the highest F1": ("mpt", "mpt-lite"),
        "MPT beats every baseline": ("mpt",),
        "MPT-X beats every baseline": ("mpt-x",),
    }
    tuned = {", every method tuned": results.with_tuned} if wanted and wanted[0].regime in TUNED else {}
    for how, side in {"": results, **tuned}.items():
        for text, ours in claims.items():
            verdicts = [beats_baselines(side, [w], ours) for w in cells]
            rows.append(TableRow(f"{text}{how}", tuple(Entry(_short(v)) for v in verdicts), apart=True))
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
