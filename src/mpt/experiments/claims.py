"""What the paper claims, judged by what the cells have measured: agrees, does not, or not run."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from mpt.experiments import figures
from mpt.experiments.paper import LABELS, section_of
from mpt.experiments.plans import CellSpec
from mpt.experiments.results import CellOutcome, Results
from mpt.experiments.table import Entry, Table, TableRow, number
from mpt.experiments.tables import departure_wanted, table2_wanted, table3_wanted
from mpt.runs.summary import over

ClaimStatus = Literal["agrees", "agrees so far", "does not", "in part", "not run"]
BASELINES = ("ccvr", "icarl", "sdc", "ldc", "frozen")


@dataclass(frozen=True)
class ClaimVerdict:
    """Whether a claim holds here, and the figures that say so."""

    status: ClaimStatus
    figures: str = ""


NOT_RUN = ClaimVerdict("not run")


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, and how it is judged.

    Attributes:
        text: the sentence.
        line: of the paper's source; None: a sentence on a user's own method.
        exhibit: that has what it is judged by.
        judge: whether it holds.
    """

    text: str
    line: int | None
    exhibit: str
    judge: Callable[[Results], ClaimVerdict]


Outcomes = list[tuple[str, CellOutcome]]


def found(results: Results, wanted: Iterable[CellSpec]) -> Outcomes:
    """The outcomes that there are, with a short name each."""
    made = []
    for one in dict.fromkeys(wanted):
        outcome = results.of(one)
        if outcome is not None:
            made.append((results.name(one), outcome))
    return made


def f1(outcome: CellOutcome, method: str) -> float:
    """At the last round, mean over seeds; NaN where the method is not there."""
    stat = over(outcome.last(method))
    return np.nan if stat is None else stat.mean


def strongest(outcome: CellOutcome, rivals: Sequence[str] = BASELINES) -> tuple[str, float]:
    """The rival with the highest F1 at the last round, the baselines unless others are named."""
    there = [m for m in rivals if m in outcome.methods]
    best = max(there, key=lambda m: f1(outcome, m))
    return best, f1(outcome, best)


def counted(holds: int, run: int, planned: int, told: str = "") -> ClaimVerdict:
    """In how many of the settings that were run something holds."""
    if not run:
        return NOT_RUN
    whole: ClaimStatus = "agrees" if run == planned else "agrees so far"
    status: ClaimStatus = whole if holds == run else "in part" if holds else "does not"
    missing = "" if run == planned else f" that were run, of {planned}"
    return ClaimVerdict(status, f"in {holds} of {run} settings{missing}{told}")


def beats_baselines(
    results: Results, wanted: Sequence[CellSpec], ours: tuple[str, ...], rivals: Sequence[str] = BASELINES
) -> ClaimVerdict:
    """One of ours is ahead of every baseline, or of other rivals."""
    gaps = {}
    for name, outcome in found(results, wanted):
        if not set(ours) <= set(outcome.methods) or not set(rivals) & set(outcome.methods):
            continue
        rival, score = strongest(outcome, rivals)
        gaps[f"{LABELS[rival]} on {name}"] = max(f1(outcome, m) for m in ours) - score
    if not gaps:
        return NOT_RUN
    worst = min(gaps, key=lambda k: gaps[k])
    told = f"; the least lead: {_signed(gaps[worst])} over {worst}"
    return counted(sum(g > 0 for g in gaps.values()), len(gaps), len(wanted), told)


def _highest_by_set(results: Results) -> ClaimVerdict:
    return beats_baselines(results, table2_wanted(results), ("mpt", "mpt-lite"))


def _mpt_by_set(results: Results) -> ClaimVerdict:
    return beats_baselines(results, table2_wanted(results), ("mpt",))


def _highest_by_backbone(results: Results) -> ClaimVerdict:
    return beats_baselines(results, table3_wanted(results), ("mpt", "mpt-lite"))


def _exceeds_oracle(results: Results) -> ClaimVerdict:
    least = min(results.grid.scale.remaining)
    some = found(results, [CellSpec(remaining=least)])
    if not some:
        return NOT_RUN
    outcome = some[0][1]
    ours, oracle, honest = (f1(outcome, m) for m in ("mpt", "oracle", "oracle-train"))
    told = f"at {100 * least:g}%: MPT {number(ours)}, oracle {number(oracle)}, oracle-train {number(honest)}"
    return ClaimVerdict("agrees" if ours > oracle else "does not", told)


def _lite_on_fine(results: Results) -> ClaimVerdict:
    wanted = [w for w in table2_wanted(results) if w.set == "car1000-fine"]
    some = found(results, wanted)
    return counted(
        sum(f1(o, "mpt-lite") < strongest(o)[1] < f1(o, "mpt") for _, o in some),
        len(some),
        len(wanted),
        "".join(f"; {n}: lite {number(f1(o, 'mpt-lite'))}, {LABELS[strongest(o)[0]]} "
                f"{number(strongest(o)[1])}, MPT {number(f1(o, 'mpt'))}" for n, o in some),
    )  # fmt: skip


def _lite_on_cnns(results: Results) -> ClaimVerdict:
    gaps: dict[str, list[float]] = {}
    for wanted in table3_wanted(results):
        outcome = results.of(wanted)
        if outcome is not None:
            gaps.setdefault(wanted.backbone, []).append(f1(outcome, "mpt") - f1(outcome, "mpt-lite"))
    means = {backbone: float(np.mean(some)) for backbone, some in gaps.items()}
    cnns = [v for k, v in means.items() if k != "vit-tiny"]
    if not cnns or "vit-tiny" not in means:
        return NOT_RUN
    told = "MPT less lite: " + ", ".join(f"{k} {_signed(v)}" for k, v in means.items())
    return ClaimVerdict("agrees" if max(cnns) < means["vit-tiny"] and max(cnns) < 0.03 else "does not", told)


def _frozen_degrades(results: Results) -> ClaimVerdict:
    _, outcome = figures.main(results)
    if outcome is None:
        return NOT_RUN
    points = outcome.curve("frozen").points
    before, after = points[outcome.depart_at].mean, points[outcome.rounds].mean
    first = points.get(outcome.depart_at + 1)
    soon = "" if first is None else f" {number(first.mean)} a round later,"
    told = f"{number(before)} at the departure,{soon} {number(after)} at the last round"
    if after >= before:
        return ClaimVerdict("does not", told)
    at_once = first is not None and before - first.mean > 0.5 * (before - after)
    return ClaimVerdict("in part" if at_once else "agrees", told)


def _fedavg_before(results: Results) -> ClaimVerdict:
    _, outcome = figures.main(results)
    if outcome is None:
        return NOT_RUN
    softmax, ncm = (outcome.curve(m).points[outcome.depart_at].mean for m in ("fedavg", "mpt"))
    told = f"at the departure: softmax {number(softmax)}, NCM {number(ncm)}"
    return ClaimVerdict("agrees" if softmax < 0.5 * ncm else "does not", told)


def _ncm_earlier(results: Results) -> ClaimVerdict:
    outcome = results.of(figures.fig2_wanted(results))
    if outcome is None:
        return NOT_RUN
    early = range(1, outcome.depart_at + 1)
    means = [
        float(np.mean([s.mean for n, s in outcome.curve(m).points.items() if n in early]))
        for m in ("live", "fedavg:live")
    ]
    told = f"mean F1 up to round {outcome.depart_at}: NCM {number(means[0])}, softmax {number(means[1])}"
    return ClaimVerdict("agrees" if means[0] > means[1] else "does not", told)


def _gap_persists(results: Results) -> ClaimVerdict:
    outcome = results.of(figures.fig2_wanted(results))
    if outcome is None:
        return NOT_RUN
    with_, without = outcome.curve("remaining-mean").points, outcome.curve("live").points
    later = [n for n in with_ if n > outcome.depart_at]
    below = sum(with_[n].mean < without[n].mean for n in later)
    accuracy = outcome.curve("remaining-mean", "accuracy").points
    told = f"F1 is below in {below} of {len(later)} rounds; accuracy goes from "
    told += f"{number(accuracy[outcome.depart_at].mean)} to {number(accuracy[outcome.rounds].mean)}"
    rises = accuracy[outcome.rounds].mean > accuracy[outcome.depart_at].mean
    return ClaimVerdict("agrees" if below == len(later) and rises else "in part" if below else "does not", told)


def _errors(outcome: CellOutcome | None, column: str, *methods: str) -> list[float] | None:
    stats = [over(outcome.after(m, column)) for m in methods] if outcome else [None]
    return [s.mean for s in stats if s] if all(stats) else None


def _barycentric(results: Results) -> ClaimVerdict:
    means = _errors(results.of(figures.fig2_wanted(results)), "in_span_error", "mpt:in-span", "remaining-mean")
    if means is None:
        return NOT_RUN
    told = f"mean in-span error: barycentric {means[0]:.2f}, direct {means[1]:.2f}"
    return ClaimVerdict("agrees" if means[0] < means[1] else "does not", told)


def _residual_ages(results: Results) -> ClaimVerdict:
    outcome = results.of(figures.fig2_wanted(results))
    if outcome is None:
        return NOT_RUN
    points = [s.mean for n, s in outcome.curve("mpt:stored-residual", "out_of_span_error").points.items()
              if n > outcome.depart_at]  # fmt: skip
    told = f"out-of-span error {points[0]:.2f} one readout after the departure, {points[-1]:.2f} at the end"
    return ClaimVerdict("agrees" if points[-1] > points[0] else "does not", told)


def _loss_everywhere(results: Results) -> ClaimVerdict:
    table = figures.losses(results)
    values = [v for some in table.values() for v in some.values() if v is not None]
    if not values:
        return NOT_RUN
    pairs = [(some[f], some[g]) for some in table.values() for f in some for g in some if f < g]
    known = [(a, b) for a, b in pairs if a is not None and b is not None]
    grows = sum(a > b for a, b in known)
    if not known:
        return NOT_RUN
    told = (
        f"losses of {min(values):.0f} to {max(values):.0f}%; larger with fewer samples in {grows} of {len(known)} pairs"
    )
    if len(known) < len(pairs):
        told += f"; {len(values)} of {sum(map(len, table.values()))} cells were run"
    if min(values) <= 0 or grows < len(known):
        return ClaimVerdict("in part", told)
    return ClaimVerdict("agrees" if len(known) == len(pairs) else "agrees so far", told)


def _bytes_order(results: Results) -> ClaimVerdict:
    costs = {m: o.own for m, o in figures.overheads(results).items()}
    if not {"mpt", "mpt-lite", "ccvr", "frozen"} <= set(costs):
        return NOT_RUN
    told = ", ".join(f"{LABELS[m]} {costs[m] / 1000:.1f} kB" for m in ("frozen", "mpt-lite", "mpt", "ccvr"))
    holds = costs["frozen"] < costs["mpt-lite"] < costs["mpt"] < costs["ccvr"]
    return ClaimVerdict("agrees" if holds else "does not", f"own bytes a round: {told}")


def _same_time(results: Results) -> ClaimVerdict:
    costs = {m: o.milliseconds for m, o in figures.overheads(results).items()}
    if not {"mpt", "mpt-lite"} <= set(costs):
        return NOT_RUN
    ratio = costs["mpt"] / max(costs["mpt-lite"], 1e-9)
    told = f"MPT {costs['mpt']:.1f} ms, lite {costs['mpt-lite']:.1f} ms a round"
    return ClaimVerdict("agrees" if 0.67 < ratio < 1.5 else "does not", told)


def _slow_ones(results: Results) -> ClaimVerdict:
    costs = {m: o.milliseconds for m, o in figures.overheads(results).items()}
    if not {"mpt", "ldc", "ccvr"} <= set(costs):
        return NOT_RUN
    told = ", ".join(f"{LABELS[m]} {costs[m]:.1f} ms" for m in ("mpt", "ldc", "ccvr"))
    slow = [costs[m] > 1.5 * costs["mpt"] for m in ("ldc", "ccvr")]
    return ClaimVerdict("agrees" if all(slow) else "in part" if any(slow) else "does not", told)


def _components(results: Results) -> ClaimVerdict:
    _, outcome = figures.main(results)
    names = tuple(figures.COMPONENTS)
    means = _errors(outcome, "prototype_distance", *names)
    if means is None:
        return NOT_RUN
    told = ", ".join(f"{figures.COMPONENTS[m]} {v:.2f}" for m, v in zip(names, means, strict=True))
    best = means[-1] == min(means)
    falls = means[0] > means[1] > means[2] > means[3]
    return ClaimVerdict("agrees" if falls else "in part" if best else "does not", f"mean distance: {told}")


def _closer_is_better(results: Results) -> ClaimVerdict:
    _, outcome = figures.main(results)
    told = figures.correlation(outcome) if outcome else None
    if told is None:
        return NOT_RUN
    return ClaimVerdict("agrees" if told[0] < 0 else "does not", f"correlation {told[0]:+.2f} over {told[1]} points")


def _budget(results: Results, index: int, holds: Callable[[float, float, float], bool]) -> ClaimVerdict:
    outcome = results.of(figures.fig7_wanted(results)[index])
    means = _errors(outcome, "out_of_span_error", "mpt:predicted", "mpt:measured", "mpt")
    if means is None:
        return NOT_RUN
    told = f"mean out-of-span error: predicted {means[0]:.2f}, measured {means[1]:.2f}, MPT {means[2]:.2f}"
    return ClaimVerdict("agrees" if holds(*means) else "does not", told)


def _holding_out(results: Results) -> ClaimVerdict:
    outcome = results.of(figures.fig7_wanted(results)[0])
    if outcome is None or "mpt:trained" not in outcome.methods:
        return NOT_RUN
    held, trained = f1(outcome, "mpt"), f1(outcome, "mpt:trained")
    told = f"F1 at the last round: held out {number(held)}, trained on {number(trained)}"
    return ClaimVerdict("agrees" if held > trained else "does not", told)


def _departure_round(results: Results) -> ClaimVerdict:
    some = [(w, o) for w in departure_wanted(results) if (o := results.of(w)) is not None]
    if len(some) < 2:
        return NOT_RUN
    scores = {o.depart_at: f1(o, "mpt") for _, o in some}
    told = "MPT's F1 at the last round: " + ", ".join(f"{number(v)} after {d}" for d, v in scores.items())
    same = max(scores.values()) - min(scores.values()) < 0.05
    whole: ClaimStatus = "agrees" if len(some) == len(departure_wanted(results)) else "agrees so far"
    return ClaimVerdict(whole if same else "does not", told)


def _signed(value: float) -> str:
    return ("+" if value > 0 else "") + number(value)


CLAIMS: tuple[Claim, ...] = (
    Claim("NCM reaches a high rare-class F1 earlier than softmax", 189, "fig2a", _ncm_earlier),
    Claim("After the departure NCM's F1 falls and stays below, while accuracy rises", 189, "fig2a", _gap_persists),
    Claim("The barycentric estimate's in-span error is below that of the remaining samples", 194, "fig2b",
          _barycentric),
    Claim("The residual stored at departure fits less and less", 196, "fig2c", _residual_ages),
    Claim("The loss is there for all classes and grows as fewer samples remain", 198, "fig2d", _loss_everywhere),
    Claim("MPT or MPT-lite has the highest F1 on every set and fraction", 612, "table2", _highest_by_set),
    Claim("MPT beats every baseline", 612, "table2", _mpt_by_set),
    Claim("MPT exceeds the oracle at 1%", 133, "table2", _exceeds_oracle),
    Claim("On the fine-grained set lite is below the best baseline, MPT above", 612, "table2", _lite_on_fine),
    Claim("MPT or MPT-lite has the highest F1 with every backbone", 614, "table3", _highest_by_backbone),
    Claim("Lite is enough on CNNs but not on ViT", 616, "table3", _lite_on_cnns),
    Claim("FedAvg fails to learn the rare class before the departure", 558, "fig4", _fedavg_before),
    Claim("The frozen prototype degrades progressively", 558, "fig4", _frozen_degrades),
    Claim("Bytes: frozen < MPT-lite < MPT < CCVR", 573, "fig5", _bytes_order),
    Claim("The time overhead of MPT and MPT-lite is nearly the same", 575, "fig5", _same_time),
    Claim("LDC and CCVR take substantially longer", 575, "fig5", _slow_ones),
    Claim("Each component brings the prototype closer to the oracle", 635, "fig6", _components),
    Claim("Prototypes closer to the oracle have a higher F1", 634, "fig6", _closer_is_better),
    Claim("With 2% remaining the prediction is the better one, and MPT stays close to it", 647, "fig7",
          lambda r: _budget(r, 0, lambda p, m, both: p < m and abs(both - p) < abs(both - m))),
    Claim("With 20% remaining MPT's residual is better than prediction or measurement alone", 647, "fig7",
          lambda r: _budget(r, 1, lambda p, m, both: both < min(p, m))),
    Claim("Holding out beats training on the remaining samples", 650, "fig7", _holding_out),
    Claim("The round of the departure has no effect", 488, "departure", _departure_round),
)  # fmt: skip


def _own_claims(name: str) -> tuple[Claim, ...]:
    """What a reader asks of a further method: whether it is ahead of the baselines, and of MPT."""
    return (
        Claim(f"{name} beats every baseline", None, "table2", lambda r: beats_baselines(r, table2_wanted(r), (name,))),
        Claim(f"{name} beats MPT", None, "table2", lambda r: _beats(r, table2_wanted(r), name, "mpt")),
    )


def _beats(results: Results, wanted: Sequence[CellSpec], one: str, other: str) -> ClaimVerdict:
    """One method is ahead of another."""
    some = [(name, o) for name, o in found(results, wanted) if one in o.methods]
    gaps = {name: f1(o, one) - f1(o, other) for name, o in some}
    if not gaps:
        return NOT_RUN
    worst = min(gaps, key=lambda k: gaps[k])
    told = f"; the least lead: {_signed(gaps[worst])} on {worst}"
    return counted(sum(g > 0 for g in gaps.values()), len(gaps), len(wanted), told)


def judged(results: Results) -> Table:
    """All claims, judged, and the same of the user's own methods."""
    rows = []
    for claim in (*CLAIMS, *(one for name in results.grid.own_names for one in _own_claims(name))):
        results.looked.clear()
        verdict = claim.judge(results)
        fewer = any(outcome.seeds < results.grid.seeds for outcome in results.looked)
        if fewer and verdict.status != "not run":
            status: ClaimStatus = "agrees so far" if verdict.status == "agrees" else verdict.status
            verdict = ClaimVerdict(status, f"{verdict.figures}; some with fewer than {results.grid.seeds} seeds")
        place = "" if claim.line is None else section_of(claim.line)
        entries = tuple(map(Entry, (place, verdict.status, verdict.figures)))
        rows.append(TableRow(claim.text, entries, judged_by=claim.exhibit))
    labels = "; ".join(source.label for source in results.grid.sources.values())
    warning = " Too small to decide any of them." if results.grid.scale.name == "quick" else ""
    seeds = f"{results.grid.seeds}{' or more' * results.grid.every_seed}"
    notes = (f"Data: {labels or 'none'}. Scale {results.grid.scale.name}, seeds: {seeds}.{warning}",)
    columns = (("", "section of the paper"), ("", "here"), ("", "figures"))
    return Table("claims", "The paper's claims", "Claim", columns, tuple(rows), notes)
