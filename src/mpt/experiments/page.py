"""One page with every exhibit: interactive plots, tables, claims. It needs no network."""

from collections.abc import Mapping, Sequence

from mpt.base.seeds import Stat
from mpt.base.text import score
from mpt.experiments.figures import Figure, Panel
from mpt.experiments.table import MISSING, Entry, Table
from mpt.pages.document import WIDE, document
from mpt.pages.html import legend
from mpt.pages.lines import Chart
from mpt.pages.styles import SeriesStyle
from mpt.pages.svg import esc
from mpt.version import MADE_BY

_STYLE = (
    ".chart .span{fill:none;stroke-width:1.4;opacity:.6;stroke:var(--c)}.cloud .mark{opacity:.55}"
    "td.missing{color:var(--soft);font-style:italic}td.text{text-align:left;white-space:normal;min-width:16rem}"
    "table.exhibit tbody th{white-space:normal}table.exhibit:has(td.text) tbody th{min-width:min(16rem,30vw)}"
    "nav{display:flex;flex-wrap:wrap;gap:4px 16px;font-size:.9375rem}a{color:var(--accent)}"
    "table.exhibit thead th{text-align:right}table.exhibit th.left,table.exhibit thead th.text{text-align:left}"
    "tr.apart td,tr.apart th{color:var(--soft)}td small{font-weight:400}.small{font-size:.875rem}"
)


def page(
    exhibits: Mapping[str, Table | Figure],
    claims: Table,
    sources: Sequence[str],
    scale: str,
    styles: Sequence[SeriesStyle],
) -> str:
    """The page as text."""
    charts = {
        panel.name: panel.drawing
        for thing in exhibits.values()
        if isinstance(thing, Figure)
        for panel in thing.panels
        if isinstance(panel.drawing, Chart)
    }
    drawn = {line.key for chart in charts.values() for line in chart.lines}
    shown = [look for look in styles if f"s{look.index}" in drawn]
    links = "".join(f'<a href="#{name}">{name}</a>' for name in (*exhibits, "claims"))
    sections = [_table(t) if isinstance(t, Table) else _figure(t) for t in exhibits.values()]
    about = "".join(f"<li>{esc(source)}</li>" for source in sources)
    header = (
        '<header><p class="over">Missing prototype tracking</p><h1>The paper&rsquo;s tables and figures</h1>'
        f'<p class="facts">Scale {esc(scale)}. Made from:</p><ul class="small">{about}</ul><nav>{links}</nav></header>'
    )
    switches = f"<section>{legend(shown)}<p>A name switches its method off and on in all plots.</p></section>"
    body = [header, switches, *sections, _table(claims), f"<footer>Made by {MADE_BY}.</footer>"]
    return document("The paper reproduced", body, charts, styles, _STYLE)


def _figure(figure: Figure) -> str:
    panels = "".join(_panel(panel) for panel in figure.panels)
    table = "" if figure.table is None else f"<details><summary>as a table</summary>{_grid(figure.table)}</details>"
    return f'<section id="{figure.name}"><h2>{esc(figure.title)}</h2>{panels}{table}{_notes(figure.notes)}</section>'


def _panel(panel: Panel) -> str:
    title = f"<h3>{esc(panel.title)}</h3>" if panel.title else ""
    if panel.drawing is None:
        return f'<figure id="{panel.name}">{title}<p class="warning">{MISSING}</p></figure>'
    return f'<figure id="{panel.name}">{title}{panel.drawing.figure(WIDE, 400)}</figure>'


def _table(table: Table) -> str:
    return f'<section id="{table.name}"><h2>{esc(table.title)}</h2>{_grid(table)}{_notes(table.notes)}</section>'


def _grid(table: Table) -> str:
    texts = {i for row in table.rows for i, entry in enumerate(row.entries) if _is_text(entry)}
    heads = "".join(
        f'<th class="{"text" if i in texts else "number"}">{esc(group)}<br>{esc(column)}</th>'
        for i, (group, column) in enumerate(table.columns)
    )
    rows = []
    for row in table.rows:
        cells = "".join(_cell(entry) for entry in row.entries)
        apart = ' class="apart"' if row.apart else ""
        rows.append(f'<tr{apart}><th class="left" scope="row">{esc(row.label)}</th>{cells}</tr>')
    return (
        f'<div class="scroll" tabindex="0"><table class="exhibit"><thead><tr><th class="left">{esc(table.corner)}</th>'
        f"{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def _cell(entry: Entry) -> str:
    paper = "" if entry.paper is None else f" <small>paper {_value(entry.paper)}</small>"
    if entry.ours is None:
        return f'<td class="missing">{MISSING}{paper}</td>'
    kind = ' class="text"' if _is_text(entry) else ' class="main"' if entry.best else ""
    return f"<td{kind}>{_value(entry.ours)}{paper}</td>"


def _is_text(entry: Entry) -> bool:
    return isinstance(entry.ours, str) and len(entry.ours) > 24


def _value(value: Stat | str) -> str:
    if isinstance(value, str):
        return esc(value)
    return score(value.mean) + ("" if value.deviation is None else f" ± {score(value.deviation)}")


def _notes(notes: Sequence[str]) -> str:
    return "".join(f'<p class="caption">{esc(note)}</p>' for note in notes)
