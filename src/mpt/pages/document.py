"""One page that needs no network: its head, style, script and the data of its charts."""

import json
from collections.abc import Mapping, Sequence
from importlib.resources import files

from mpt.pages.lines import Chart
from mpt.pages.styles import SeriesStyle
from mpt.pages.svg import esc
from mpt.version import MADE_BY

WIDE = 880
"""In which a figure is drawn that takes the page's width: a little larger on a laptop, a little smaller on a tablet."""

POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"


def document(
    title: str, body: Sequence[str], charts: Mapping[str, Chart], styles: Sequence[SeriesStyle], style: str = ""
) -> str:
    """The page as text; the same content gives the same page.

    Args:
        title: of the window.
        body: sections, as HTML.
        charts: by name, whose values the page's script shows under the pointer.
        styles: of the rows that are drawn.
        style: more CSS.
    """
    data = json.dumps({name: chart.values() for name, chart in charts.items()}, separators=(",", ":"))
    data = data.replace("<", "\\u003c").replace("&", "\\u0026")
    resources = files("mpt.pages")
    css = (resources / "page.css").read_text(encoding="utf-8") + series_style(styles) + style
    script = (resources / "page.js").read_text(encoding="utf-8")
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{esc(title)} · MPT</title>\n'
        f'<meta name="generator" content="{MADE_BY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n<link rel="icon" href="data:,">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n<style>\n{css}</style>\n</head>\n<body>\n'
        + "\n".join(section for section in body if section)
        + f'\n<script type="application/json" id="data">{data}</script>\n'
        + f"<script>\n{script}</script>\n</body>\n</html>\n"
    )


def series_style(styles: Sequence[SeriesStyle]) -> str:
    """Each row's colour on a light and on a dark page."""
    light = "".join(f".s{k.index}{{--c:{k.light}}}" for k in styles) + ".drift{--c:#5a6470}.rare-drift{--c:#0b57c4}"
    dark = "".join(f".s{k.index}{{--c:{k.dark}}}" for k in styles) + ".drift{--c:#9ba5b1}.rare-drift{--c:#6ea8ff}"
    return f"{light}\n@media screen and (prefers-color-scheme: dark) {{{dark}}}\n"
