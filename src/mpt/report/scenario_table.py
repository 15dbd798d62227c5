"""The tables of a scenario's page: a line a method, and what the server decided."""

from collections.abc import Sequence

from mpt.base.seeds import Series
from mpt.base.text import quantity, score
from mpt.pages.html import DASH, cell, key, with_deviation
from mpt.pages.styles import SeriesStyle
from mpt.pages.svg import esc
from mpt.report.scenario_files import Decided, MethodLine, ScenarioFiles

MOST_DECISIONS = 2000
"""So many stand in the page."""

_COLUMNS = (
    ("method", "the row"),
    ("F1, mean over pairs", "of the absent class, over all pairs"),
    ("with a deposit", "the same over the pairs in which the row has a deposit of the class"),
    ("pairs with a deposit", "how many these are"),
    ("other classes' F1", "mean over the classes that are not absent"),
    ("bytes a round", "reports of all vehicles to the server"),
)


def summary_table(summary: Sequence[MethodLine], looks: dict[Series, SeriesStyle]) -> str:
    """Methods, and references apart from them, each by F1."""
    head = "".join(_heading(i, *column) for i, column in enumerate(_COLUMNS))
    bodies = []
    for references, name in ((False, "Methods"), (True, "References: they use what no method may know")):
        mine = [line for line in summary if (_look(line, looks).kind == "reference") == references]
        if mine:
            ordered = sorted(mine, key=lambda line: -line.f1.mean if line.f1 else 1.0)
            lines = "".join(_line(line, _look(line, looks)) for line in ordered)
            above = f'<tr class="group"><th colspan="{len(_COLUMNS)}" scope="rowgroup"><span>{name}</span></th></tr>'
            bodies.append(f'<tbody class="{"references" if references else "methods"}">{above}{lines}</tbody>')
    return (
        '<div class="scroll" tabindex="0" role="region" aria-label="Summary table"><table class="summary sortable">'
        f"<thead><tr>{head}</tr></thead>{''.join(bodies)}</table></div>"
    )


def _look(line: MethodLine, looks: dict[Series, SeriesStyle]) -> SeriesStyle:
    return looks[Series(line.method, "")]


def _heading(place: int, name: str, about: str) -> str:
    more = ' class="left"' if place == 0 else ' aria-sort="descending"' if place == 1 else ""
    return f'<th scope="col"{more}><button type="button" title="{esc(about)}">{esc(name)}</button></th>'


def _line(line: MethodLine, look: SeriesStyle) -> str:
    mpt = " is-mpt" if line.method == "mpt" else ""
    cells = [
        cell(with_deviation(line.f1), line.f1.mean if line.f1 else None, "main"),
        _fraction(line.f1_with_deposit),
        cell(f"{line.with_deposit:,}", line.with_deposit),
        _fraction(line.others_f1),
        cell(DASH if line.bytes_up is None else quantity(line.bytes_up), line.bytes_up),
    ]
    return (
        f'<tr class="series kind-{look.kind}{mpt}" data-s="s{look.index}">'
        f'<th scope="row" data-v="{esc(look.label)}">{key(look)}</th>{"".join(cells)}</tr>'
    )


def _fraction(value: float | None) -> str:
    return cell(DASH if value is None else score(value), value)


def decisions_table(files: ScenarioFiles) -> str:
    """What the server decided and why, folded away; that a vehicle joined at the start is left out."""
    shown = [one for one in files.decisions if not (one.what == "joined" and one.round == 1)]
    if not shown:
        return ""
    several = len(files.seeds) > 1
    heads = [*(["seed"] if several else []), "round", "decision", "vehicle", "classes", "why"]
    head = "".join(f'<th scope="col" class="left">{name}</th>' for name in heads)
    rows = "".join(_decision(one, several) for one in shown[:MOST_DECISIONS])
    left = len(shown) - MOST_DECISIONS
    more = f'<p class="caption">And {left:,} more, in decisions.csv.</p>' if left > 0 else ""
    return (
        f"<details><summary>What the server decided, and why ({len(shown):,} decisions)</summary>"
        '<div class="scroll" tabindex="0" role="region" aria-label="Decisions of the server"><table class="decisions">'
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>{more}</details>"
    )


def _decision(one: Decided, several: bool) -> str:
    cells = [*([str(one.seed)] if several else []), str(one.round), one.what, one.vehicle, ", ".join(one.classes)]
    return f'<tr>{"".join(f"<td>{esc(text)}</td>" for text in cells)}<td class="why">{esc(one.why)}</td></tr>'
