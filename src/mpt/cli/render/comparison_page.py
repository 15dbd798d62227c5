"""`mpt compare` as one page that needs no network."""

from collections.abc import Sequence

from mpt.base.text import score, signed
from mpt.cli.render import comparison_lines as lines
from mpt.pages.document import document
from mpt.pages.html import cell
from mpt.pages.svg import esc, n
from mpt.runs.compare import Comparison
from mpt.runs.pair import Pair
from mpt.runs.significance import LEVEL, TTest

_STYLE = (
    ".compared tbody th{padding-left:14px}.compared tr.head th{padding:20px 0 6px;border-bottom-color:var(--strong);"
    "font-weight:640;max-width:none}.compared td.strip{padding:0 4px;width:230px;min-width:160px}"
    ".strip svg{display:block;width:100%;height:24px}.strip path{stroke:var(--strong);fill:none}"
    ".strip .interval{stroke:var(--soft);stroke-width:2}.strip .clear{stroke:var(--accent)}"
    ".strip circle{fill:var(--soft)}.strip circle.clear{fill:var(--accent)}.compared small{display:block}"
)
_WIDE = 230.0
_Scale = tuple[float, float]
"""The lowest and the highest end of all intervals, and zero."""


def as_page(found: Comparison) -> str:
    """The page as text; the same comparison gives the same page."""
    tests = [*(pair.mean_f1.difference for pair in found.pairs), *(one.test for one in found.pooled)]
    ends = [test.mean + side * (test.half or 0.0) for test in tests for side in (-1, 1)]
    scale = (min(0.0, *ends), max(0.0, *ends))
    return document(lines.title(found), [_header(found), _pooled(found, scale), _cells(found, scale)], {}, [], _STYLE)


def _header(found: Comparison) -> str:
    cells = len({found.names[pair.cells] for pair in found.pairs})
    counts = f"{_counted(cells, 'cell')} · {_counted(len(found.pairs), 'paired difference')}"
    differ = [f"{name}: {_plain(here)} in A, {_plain(there)} in B" for name, (here, there) in found.differ.items()]
    facts = " · ".join([counts, *differ])
    missing = "".join(f"<li>{esc(sentence)}</li>" for sentence in found.unpaired)
    folded = (
        f"<details><summary>{len(found.unpaired)} not paired</summary><ul>{missing}</ul></details>" if missing else ""
    )
    return (
        '<header><p class="over">Missing prototype tracking · a comparison</p>'
        f'<h1>{esc(lines.title(found))}</h1><p class="facts">{esc(facts)}</p>{folded}</header>'
    )


def _cells(found: Comparison, scale: _Scale) -> str:
    heads = [
        "seeds",
        "F1 of A",
        "F1 of B",
        "A less B",
        "",
        "p",
        "Holm",
        "could show",
        "last round",
        "bal. acc.",
    ]
    bodies = []
    for group in lines.groups(found):
        rows = [_row(label, _figures(pair, scale)) for label, pair in group.lines]
        bodies.append(_body(group.heading, rows, len(heads) + 1))
    return _section("Cell by cell", lines.about(found), _table(lines.corner(found), heads, bodies))


def _figures(pair: Pair, scale: _Scale) -> list[str]:
    test, figure = pair.mean_f1.difference, pair.mean_f1
    levels = [cell(str(len(pair.seeds)), len(pair.seeds)), *(cell(score(v), v) for v in (figure.one, figure.other))]
    others = [_with_p(other.difference) for other in (pair.last_f1, pair.balanced)]
    return [*levels, *_test(test, pair.holm, scale), *others]


def _pooled(found: Comparison, scale: _Scale) -> str:
    if not found.pooled:
        return ""
    heads = ["n", "cells", "A less B", "", "p", "Holm", "could show"]
    by_rows: dict[str, list[str]] = {}
    for one in found.pooled:
        counts = [cell(str(value), value) for value in (one.test.n, one.cells)]
        row = _row(lines.OVER[one.over], [*counts, *_test(one.test, one.holm, scale)])
        by_rows.setdefault(lines.label_of(found, one.rows), []).append(row)
    bodies = [_body(label, rows, len(heads) + 1) for label, rows in by_rows.items()]
    return _section("Pooled over cells", lines.about_pooled(found), _table("one observation", heads, bodies))


def _test(test: TTest, holm: float | None, scale: _Scale) -> list[str]:
    half = "" if test.half is None else f" ± {score(test.half)}"
    shown = esc(signed(test.mean)) + half + ("*" if test.clear else "")
    return [
        cell(shown, test.mean, "main" if test.clear else ""),
        f'<td class="strip">{_strip(test, scale)}</td>',
        cell(esc(lines.p_value(test.p)), test.p),
        cell(esc(lines.p_value(holm)), holm, "main" if holm is not None and holm < LEVEL else ""),
        cell(lines.smallest(test), test.smallest),
    ]


def _with_p(test: TTest) -> str:
    return cell(f"{lines.short_difference(test)}<small>p {esc(lines.p_value(test.p))}</small>", test.mean)


def _strip(test: TTest, scale: _Scale) -> str:
    """The interval, its middle and zero; what is of one seed, or does not vary, is a point."""
    low, high = scale

    def x(value: float) -> float:
        return 6 + (value - low) / ((high - low) or 1.0) * (_WIDE - 12)

    clear = " clear" if test.clear else ""
    half = test.half or 0.0
    interval = (
        f'<path class="interval{clear}" d="M{n(x(test.mean - half))} 12H{n(x(test.mean + half))}"/>' if half else ""
    )
    return (
        f'<svg viewBox="0 0 {n(_WIDE)} 24" role="img" aria-label="{esc(lines.difference(test))}">'
        f'<path d="M{n(x(0.0))} 0V24"/>{interval}'
        f'<circle class="point{clear}" cx="{n(x(test.mean))}" cy="12" r="4"/></svg>'
    )


def _section(heading: str, about: Sequence[str], table: str) -> str:
    said = "".join(f"<p>{esc(sentence)}</p>" for sentence in about)
    return f"<section><h2>{esc(heading)}</h2>{said}{table}</section>"


def _table(corner: str, heads: Sequence[str], bodies: Sequence[str]) -> str:
    named = "".join(f'<th scope="col">{esc(head)}</th>' for head in heads)
    return (
        '<div class="scroll" tabindex="0" role="region" aria-label="Comparison"><table class="compared"><thead><tr>'
        f'<th scope="col" class="left">{esc(corner)}</th>{named}</tr></thead>{"".join(bodies)}</table></div>'
    )


def _body(heading: str, rows: Sequence[str], wide: int) -> str:
    head = f'<tr class="head"><th colspan="{wide}" scope="rowgroup">{esc(heading)}</th></tr>'
    return f"<tbody>{head}{''.join(rows)}</tbody>"


def _row(label: str, cells: Sequence[str]) -> str:
    return f'<tr><th scope="row">{esc(label)}</th>{"".join(cells)}</tr>'


def _plain(values: Sequence[object]) -> str:
    return ", ".join(map(str, values))


def _counted(many: int, what: str) -> str:
    return f"{many} {what}{'' if many == 1 else 's'}"
