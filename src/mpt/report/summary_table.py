"""The summary table, and the numbers behind the first chart."""

from collections.abc import Sequence

from mpt.base.seeds import Curve, Series
from mpt.base.text import quantity, score, signed
from mpt.pages.html import DASH, cell, key, with_deviation
from mpt.pages.styles import SeriesStyle
from mpt.pages.svg import esc
from mpt.runs.reader import Run
from mpt.runs.summary import BYTES, Summary, difference

_COLUMNS = (
    ("row", "method", "with the readout, and the training whose model it reads"),
    ("", "F1, mean after departure", "over the evaluated rounds after the departure"),
    ("", "F1, last round", "at the last evaluated round"),
    ("", "against mpt", "mean F1 after the departure less mpt's, paired by seed, with a 95% interval"),
    ("", "precision", "of the rare class, at the last evaluated round"),
    ("", "recall", "of the rare class, at the last evaluated round"),
    ("", "balanced accuracy", "mean recall over all classes, at the last evaluated round"),
    (
        "",
        "others' accuracy",
        "others_accuracy: mean recall over all classes but the rare one, at the last evaluated round",
    ),
    ("", "bytes up", f"from the vehicles to the server, {BYTES}"),
    ("", "bytes down", f"from the server to the vehicles, {BYTES}"),
    ("", "readout's bytes", f"what the readout needs beyond the method, {BYTES}"),
    ("", "ms", f"milliseconds on vehicles and server, {BYTES}"),
)

MOST_ROUNDS = 15
"""Of a table, which a laptop's screen has room for."""


def summary_table(run: Run, summaries: Sequence[Summary], looks: dict[Series, SeriesStyle]) -> str:
    """Methods, and references apart from them, each by F1."""
    mpt = next((s for s in summaries if s.series.method == "mpt" and s.mean_f1 is not None), None)
    kept = [
        i
        for i, (_, name, _) in enumerate(_COLUMNS)
        if not (name == "against mpt" and (mpt is None or len(summaries) == 1))
    ]
    head = "".join(_heading(*_COLUMNS[i]) for i in kept)
    bodies = []
    for references, name in ((False, "Methods"), (True, "References: they use what no method may know")):
        mine = [s for s in summaries if (looks[s.series].kind == "reference") == references]
        if mine:
            lines = []
            for s in sorted(mine, key=lambda s: (s.mean_f1 is None, -s.f1)):
                cells = _cells(run, s, looks[s.series], mpt)
                kind = looks[s.series].kind + (" is-mpt" if s.series.method == "mpt" else "")
                content = "".join(cells[i] for i in kept)
                lines.append(f'<tr class="series kind-{kind}" data-s="s{looks[s.series].index}">{content}</tr>')
            title = f'<tr class="group"><th colspan="{len(kept)}" scope="rowgroup"><span>{name}</span></th></tr>'
            bodies.append(f'<tbody class="{"references" if references else "methods"}">{title}{"".join(lines)}</tbody>')
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="Summary table"><table class="summary sortable">'
        f"<thead><tr>{head}</tr></thead>{''.join(bodies)}</table></div>"
    )


def _heading(kind: str, name: str, about: str) -> str:
    order = ' aria-sort="descending"' if name == "F1, mean after departure" else ""
    left = ' class="left"' if kind else ""
    title = f' title="{esc(about)}"' if about else ""
    return f'<th scope="col"{left}{order}><button type="button"{title}>{esc(name)}</button></th>'


def _cells(run: Run, s: Summary, look: SeriesStyle, mpt: Summary | None) -> list[str]:
    gap = None if mpt is None or mpt is s else difference(s, mpt)
    against = "" if gap is None else signed(gap.mean)
    if gap is not None and gap.half is not None:
        against += f' <span class="sd">± {score(gap.half)}</span>'
    training = run.training_of(s.series.method)
    reads = f"{s.series.readout} readout" + (f", {training}" if training else "")
    ms = f"{s.milliseconds:.1f}" if s.milliseconds < 99.95 else f"{s.milliseconds:,.0f}"
    return [
        f'<th scope="row" data-v="{esc(look.label)}">{key(look)}<small>{esc(reads)}</small></th>',
        cell(with_deviation(s.mean_f1), s.mean_f1 and s.mean_f1.mean, "main"),
        cell(with_deviation(s.last_f1), s.last_f1.mean),
        cell(against, None if gap is None else gap.mean, "clear" if gap is not None and gap.clear else ""),
        *(cell(score(value.mean), value.mean) for value in (s.precision, s.recall, s.balanced, s.others)),
        *(cell(quantity(value), value) for value in (s.bytes_up, s.bytes_down)),
        cell(quantity(s.readout_bytes), s.readout_bytes),
        cell(ms, s.milliseconds),
    ]


def by_round(curves: dict[Series, Curve], looks: dict[Series, SeriesStyle], depart_at: int) -> str:
    """Every point of the first chart as a table, folded away; of many rounds several tables."""
    rounds = sorted({number for curve in curves.values() for number in curve.points})
    starts = range(0, len(rounds), MOST_ROUNDS)
    tables = "".join(_rounds(curves, looks, depart_at, rounds[i : i + MOST_ROUNDS]) for i in starts)
    return f"<details><summary>The same as a table</summary>{tables}</details>"


def _rounds(
    curves: dict[Series, Curve], looks: dict[Series, SeriesStyle], depart_at: int, rounds: Sequence[int]
) -> str:
    head = "".join(f'<th scope="col"{" class=at" if k == depart_at else ""}>{k}</th>' for k in rounds)
    lines = []
    for row, curve in curves.items():
        stats = [curve.points.get(number) for number in rounds]
        cells = "".join(f"<td>{DASH if s is None else score(s.mean)}</td>" for s in stats)
        lines.append(f'<tr><th scope="row">{esc(looks[row].label)}</th>{cells}</tr>')
    return (
        '<div class="scroll" tabindex="0" role="region" aria-label="F1 by round"><table class="rounds">'
        f'<thead><tr><th scope="col" class="left">round</th>{head}</tr></thead><tbody>{"".join(lines)}</tbody>'
        "</table></div>"
    )


def meanings(run: Run, looks: Sequence[SeriesStyle]) -> str:
    """What each method does, folded away."""
    about = {look.series.method: look.about for look in looks}
    items = "".join(
        f"<div><dt>{esc(m)}</dt><dd>{esc(line)}{_reads(run.training_of(m))}</dd></div>" for m, line in about.items()
    )
    return f'<details><summary>What the rows are</summary><dl class="meanings">{items}</dl></details>'


def _reads(training: str) -> str:
    return f" <small>({esc(training)} training)</small>" if training else ""
