"""The report's sentences: the title, the verdict, and numbers as the paper writes them."""

from collections.abc import Mapping, Sequence
from typing import Any

from mpt.base.seeds import Series
from mpt.base.text import listed, score
from mpt.pages.styles import SeriesStyle, kind_of
from mpt.runs.reader import Run
from mpt.runs.summary import Summary, difference

SEED_NOISE = 0.05


def title(run: Run) -> str:
    """Truck departed after round 15."""
    name = run.rare_name
    plain = name[:1].isalpha() and name.replace(" ", "").replace("-", "").isalnum()
    subject = name[:1].upper() + name[1:] if plain else f"Class {name}"
    reached = run.figures.last_evaluated >= run.depart_at
    return f"{subject} {'departed' if reached else 'departs'} after round {run.depart_at}"


def verdict(run: Run, summaries: Sequence[Summary], looks: Sequence[SeriesStyle]) -> list[str]:
    """What the numbers say, a sentence or two, and never more than they say."""
    label = {look.series: look.label for look in looks}
    told = [s for s in summaries if s.mean_f1 is not None]
    if not told:
        return ["No evaluated round lies after the departure, so these files do not say what it does to the class."]
    rivals = sorted((s for s in told if kind_of(s.series.method) != "reference"), key=lambda s: -s.f1)
    first = {s.series.method: s for s in reversed(told)}
    sentences = [_levels(run, first)] if {"fedavg", "mpt"} & set(first) else []
    if len(rivals) > 1 or (rivals and not sentences):
        sentences.append(_ranking(run, rivals, first.get("mpt"), label))
    if not rivals:
        parts = [f"{label[s.series]} with {score(s.f1)}" for s in told]
        sentences.append(f"Only references are here: they recognise {run.rare_name} on average as {listed(parts)}.")
    return sentences


def _levels(run: Run, first: dict[str, Summary]) -> str:
    """The softmax head, mpt, and what tracking could reach at best."""
    parts = []
    if "fedavg" in first:
        f1 = score(first["fedavg"].f1)
        parts.append(f"the softmax head (fedavg) recognises {run.rare_name} with F1 {f1} on average")
    if "mpt" in first:
        mpt, best = first["mpt"], first.get("oracle-train")
        text = f"mpt {'' if parts else f'recognises {run.rare_name} '}with {'' if parts else 'F1 '}{score(mpt.f1)}"
        text += "" if parts else " on average"
        if best is not None and best.f1 > 0:
            text += f", which is {100 * mpt.f1 / best.f1:.0f}% of oracle-train\N{RIGHT SINGLE QUOTATION MARK}s"
            text += f" {score(best.f1)}"
        parts.append(text)
    return f"After the departure, {', '.join(parts)}."


def _ranking(run: Run, rivals: Sequence[Summary], mpt: Summary | None, label: dict[Series, str]) -> str:
    """Which of the methods that need no oracle is the best, and by how much."""
    best, count = rivals[0], len(rivals)
    what = "methods" if count == len({s.series.method for s in rivals}) else "rows"
    if best.f1 < 0.0005:
        return f"None of the {count} {what} that need no oracle recognises {run.rare_name} any more."
    if count == 1:
        return (
            f"{label[best.series]} recognises {run.rare_name} with F1 {score(best.f1)} on average after the departure."
        )
    other = rivals[1] if mpt is None or best is mpt else mpt
    gap = difference(best, other)
    level = gap is not None and abs(gap.mean) < 0.0005
    if level:
        text = f"Of the {count} {what} that need no oracle, {label[best.series]} and {label[other.series]} are level"
        return f"{text} at {score(best.f1)}."
    if mpt is None or best is mpt:
        text = f"Of the {count} {what} that need no oracle, {label[best.series]} has the highest mean F1"
        text += f"{f' ({score(best.f1)})' if mpt is None else ''}, ahead of {label[other.series]} ({score(other.f1)})"
    else:
        text = f"Of the {count} {what} that need no oracle, the best is not mpt but {label[best.series]} "
        text += f"({score(best.f1)}),"
        text += " ahead of it"
    price = _price(best, other, label)
    if gap is None:
        return f"{text}; the two share no seed{price}."
    if gap.half is None:
        small = abs(gap.mean) < SEED_NOISE
        hint = f" (one seed; between seeds F1 often moves by .02 to {score(SEED_NOISE, 2)})" if small else " (one seed)"
        return f"{text} by {score(gap.mean)}{hint}{price}."
    apart = "" if gap.clear else ", which does not tell them apart"
    interval = f"by {score(gap.mean)} ± {score(gap.half)} (95% interval, {gap.seeds} paired seeds)"
    return f"{text} {interval}{apart}{price}."


def _price(best: Summary, other: Summary, label: dict[Series, str]) -> str:
    """What the best row's F1 costs the other classes, where that is much more than the other row's."""
    if not best.others.mean < other.others.mean - SEED_NOISE:
        return ""
    recalls = f"{score(best.others.mean)} against {score(other.others.mean)} with {label[other.series]}"
    return f"; but the other classes pay for it: their mean recall is {recalls} at the last round"


def notes(run: Run, summaries: Sequence[Summary]) -> list[str]:
    """What a reader must know before believing the numbers."""
    found = []
    planned = run.config.get("seeds", len(run.figures.seeds))
    if not run.finished:
        reached, begun = run.figures.last_evaluated, len(run.figures.seeds)
        found.append(
            f"This run is unfinished: evaluated up to round {reached} of {run.rounds}, with {begun} of "
            f"{planned} seeds begun. The same mpt run command resumes it; the numbers below are those so far."
        )
    if isinstance(run.manifest.get("thinned"), dict):
        found.append(_thinned(run.manifest["thinned"]))
    if run.replayed:
        found.append(f"Replayed on what the run has recorded, after it: {listed(list(run.replayed))}.")
    if run.figures.uneven:
        over = f"; mean F1 is over {run.figures.mean_over}" if run.figures.mean_over else ""
        found.append(f"Not all rows have the same seeds and rounds{over}.")
    if len(run.figures.seeds) == 1 and run.finished and any(s.mean_f1 for s in summaries):
        found.append("One seed: differences of a few hundredths between rows may be chance.")
    return found


def _thinned(about: Mapping[str, Any]) -> str:
    """What of the run a thinned copy has, and what that costs."""
    rounds = listed([str(number) for number in about.get("rounds", [])] or ["?"])
    gap = score(float(about.get("f1_differs_by_up_to", 0.0)))
    return (
        f"This is a thinned copy of a run: rounds {rounds}, features rounded to {about.get('step')} deviations, up to "
        f"{about.get('train')} training and {about.get('test')} test samples a class. The rows were scored on it; "
        f"their F1 differs by up to {gap} from that of the run, whose own rows are in original/."
    )
