"""One page with every exhibit: claims with their verdicts, then tables and interactive plots. It needs no network."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.resources import files

from mpt.experiments.claims import ClaimStatus
from mpt.experiments.figures import Figure, Panel
from mpt.experiments.plots import Plane
from mpt.experiments.table import MISSING, Table, TableRow
from mpt.experiments.table_html import MARKS, status_of, table_html, verdict
from mpt.pages.document import document
from mpt.pages.html import SWITCHES, legend
from mpt.pages.lines import Chart
from mpt.pages.styles import SeriesStyle
from mpt.pages.svg import esc
from mpt.version import MADE_BY

SINGLE, PAIRED = (780.0, 400.0), (640.0, 380.0)
"""Of a panel that stands alone, and of those that stand side by side."""

Exhibits = Mapping[str, Table | Figure]


def page(
    exhibits: Exhibits,
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
    by_key = {f"s{look.index}": look for look in styles}
    sections = [_table(t) if isinstance(t, Table) else _figure(t, by_key) for t in exhibits.values()]
    front = f'<div class="front">{_claims(claims, exhibits)}{_contents(exhibits)}</div>'
    body = [_header(claims, sources, scale), front, *sections, f"<footer>Made by {MADE_BY}.</footer>"]
    style = (files("mpt.pages") / "exhibits.css").read_text(encoding="utf-8")
    return document("The paper reproduced", body, charts, styles, style)


def _header(claims: Table, sources: Sequence[str], scale: str) -> str:
    """What this is, how many claims have which verdict, and what it was made from."""
    counts = Counter(_said(row)[1] for row in claims.rows)
    tally = "".join(f"<li>{verdict(status)} {counts[status]}</li>" for status in MARKS if counts[status])
    about = "".join(f"<li>{esc(source)}</li>" for source in sources)
    warning = "This scale shows that everything runs; it decides nothing." if scale == "quick" else ""
    return (
        '<header><p class="over">Missing prototype tracking</p>'
        "<h1>The paper&rsquo;s claims, tables and figures, made again</h1>"
        f'<p class="verdict">{len(claims.rows)} claims, judged by what was measured here:</p>'
        f'<ul class="tally">{tally}</ul>{f"""<p class="warning">{warning}</p>""" if warning else ""}'
        f'<p class="facts">Scale {esc(scale)}. Made from:</p><ul class="small">{about}</ul>'
        '<p class="jump"><a href="#contents">Contents</a></p></header>'
    )


def _said(row: TableRow) -> tuple[str, ClaimStatus, str]:
    """Of a claim: where the paper makes it, its verdict, and the figures that say so."""
    place, status, figures = (str(entry.ours) for entry in row.entries)
    return place, status_of(status) or "not run", figures


def _claims(claims: Table, exhibits: Exhibits) -> str:
    """Each claim with its verdict, and the exhibit that judges it."""
    rows = []
    for row in claims.rows:
        place, status, figures = _said(row)
        where = f"the paper: {place}" if place else ""
        told = " · ".join(esc(part) for part in (figures, where) if part)
        seen = exhibits.get(row.judged_by)
        link = f'<a href="#{row.judged_by}">{_short(seen)}</a>' if seen else esc(row.judged_by)
        rows.append(
            f'<li>{verdict(status)}<div class="said">{esc(row.label)}<small>{told}</small></div>'
            f'<div class="by">{link}</div></li>'
        )
    return (
        f'<section id="{claims.name}"><h2>{esc(claims.title)}</h2><ul class="claims">{"".join(rows)}</ul>'
        f"{_caption(claims.notes)}{_files(claims)}</section>"
    )


def _short(thing: Table | Figure) -> str:
    """Figure 2 (a), of its title."""
    return esc(thing.title.partition(":")[0])


def _contents(exhibits: Exhibits) -> str:
    """All exhibits by their titles, and what switches methods in all plots."""
    items = []
    for name, thing in exhibits.items():
        rest = thing.title.partition(":")[2].strip()
        items.append(f'<li><a href="#{name}">{_short(thing)}</a>{f" <small>{esc(rest)}</small>" if rest else ""}</li>')
    return (
        f'<nav id="contents" aria-label="Contents"><h2>Contents</h2><ul>{"".join(items)}</ul>'
        f'<p class="hint">A name above a plot switches its method off and on in all plots. {SWITCHES}</p></nav>'
    )


def _figure(figure: Figure, looks: Mapping[str, SeriesStyle]) -> str:
    several = len(figure.panels) > 1
    panels = "".join(_panel(panel, figure.name, looks, *(PAIRED if several else SINGLE)) for panel in figure.panels)
    table = (
        "" if figure.table is None else f"<details><summary>as a table</summary>{table_html(figure.table)}</details>"
    )
    return (
        f'<section id="{figure.name}"><h2>{esc(figure.title)}</h2>'
        f'<div class="panels{" several" if several else ""}">{panels}</div>'
        f"{_caption(figure.notes)}{_files(figure)}{table}</section>"
    )


def _panel(panel: Panel, figure: str, looks: Mapping[str, SeriesStyle], width: float, height: float) -> str:
    """A drawing between its legend and its caption."""
    drawing = panel.drawing
    drawn, keys = f'<p class="warning">{MISSING}</p>', ""
    if drawing is not None:
        drawn = drawing.figure(width, height)
        keys = legend(_drawn_looks(drawing, looks), switches=False) if isinstance(drawing, Chart | Plane) else ""
    name = f' id="{panel.name}"' if panel.name != figure else ""
    caption = " ".join(filter(None, (panel.title.rstrip(".") + "." if panel.title else "", _reading(drawing))))
    told = f"<figcaption>{esc(caption)}</figcaption>" if caption else ""
    return f"<figure{name}>{keys}{drawn}{told}</figure>"


def _drawn_looks(drawing: Chart | Plane, looks: Mapping[str, SeriesStyle]) -> list[SeriesStyle]:
    """What a drawing shows, under the names that it has there."""
    if isinstance(drawing, Chart):
        return [replace(looks[line.key], label=line.label) for line in drawing.lines]
    return list({point.look.label: point.look for point in drawing.points}.values())


def _reading(drawing: object) -> str:
    """How curves are read."""
    if not isinstance(drawing, Chart):
        return ""
    spread = any(stat.deviation for line in drawing.lines for stat in line.curve.points.values())
    return "Means over seeds; the bands are ± one deviation." if spread else ""


def _table(table: Table) -> str:
    return (
        f'<section id="{table.name}"><h2>{esc(table.title)}</h2><figure>{table_html(table)}'
        f"<figcaption>{_caption([*_bold(table), *table.notes])}{_files(table)}</figcaption></figure></section>"
    )


def _bold(table: Table) -> list[str]:
    """What bold numbers are, where there are any."""
    some = any(entry.best for row in table.rows for entry in row.entries)
    return ["Bold: the highest of its column, rows below the rule apart."] if some else []


def _caption(notes: Sequence[str]) -> str:
    return "".join(f'<p class="caption">{esc(note)}</p>' for note in notes)


def _files(thing: Table | Figure) -> str:
    """Links to the exhibit's files, which lie beside the page."""
    table = thing if isinstance(thing, Table) else thing.table
    kinds = {"CSV": "csv", "TeX": "tex", "Markdown": "md"}
    links = [] if table is None else [(text, f"{table.name}.{end}") for text, end in kinds.items()]
    panels = thing.panels if isinstance(thing, Figure) else ()
    drawn = [panel.name for panel in panels if panel.drawing is not None]
    links += [(f"SVG{f' {name}' if drawn[1:] else ''}", f"{name}.svg") for name in drawn]
    shown = "".join(f'<a href="{esc(path)}">{esc(text)}</a>' for text, path in links)
    return f'<p class="files">{shown}<a href="#contents">contents ↑</a></p>'
