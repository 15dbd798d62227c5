"""Pieces of HTML that several sections share."""

import math
from collections.abc import Sequence

from mpt.base.seeds import Stat
from mpt.base.text import score
from mpt.pages.styles import SeriesStyle
from mpt.pages.svg import esc, mark

DASH = "\N{EN DASH}"
SWITCHES = (
    '<button type="button" class="all" data-all="on">all</button>'
    '<button type="button" class="all" data-all="off">none</button>'
)
"""What switches all rows on or off."""


def badge(word: str, mark: str, kind: str) -> str:
    """A verdict in a colour of its kind; the mark and the word say the same without it."""
    return f'<span class="badge {kind}"><span aria-hidden="true">{esc(mark)}</span> {esc(word)}</span>'


def swatch(look: SeriesStyle) -> str:
    """A piece of a row's line with its mark."""
    dash = f' stroke-dasharray="{look.dash}"' if look.dash else ""
    line = f'<path class="line" stroke-width="{look.width:g}"{dash} d="M1 6H27"/>'
    return f'<svg class="swatch" viewBox="0 0 28 12" aria-hidden="true">{line}{mark(look.mark, 14, 6, 3.4)}</svg>'


def key(look: SeriesStyle) -> str:
    """A row's name, as a button that switches it off and on everywhere."""
    return (
        f'<button type="button" class="key s{look.index}" data-s="s{look.index}" aria-pressed="true" '
        f'title="{esc(look.about)}">{swatch(look)}<span>{esc(look.label)}</span></button>'
    )


def legend(looks: Sequence[SeriesStyle], *, singles: bool = False, switches: bool = True) -> str:
    """All keys, methods before references, and with `switches` what switches all of them."""
    ordered = [*(k for k in looks if k.kind != "reference"), *(k for k in looks if k.kind == "reference")]
    more = SWITCHES
    if singles:
        more += '<button type="button" class="all singles" aria-pressed="false">single seeds</button>'
    keys = "".join(key(look) for look in ordered)
    return f'<div class="legend">{keys}{f"""<span class="switches">{more}</span>""" if switches else ""}</div>'


def figure(shown: str, caption: str, title: str = "") -> str:
    """A drawing or a table between its title and its caption, all of them HTML."""
    return f"<figure>{f'<h3>{title}</h3>' if title else ''}{shown}<figcaption>{caption}</figcaption></figure>"


def with_deviation(value: Stat | None, digits: int = 3) -> str:
    """.400 ± .021."""
    if value is None:
        return DASH
    spread = "" if value.deviation is None else f' <span class="sd">± {score(value.deviation, digits)}</span>'
    return score(value.mean, digits) + spread


def cell(shown: str, value: float | None, classes: str = "") -> str:
    """A cell of a sortable table; `shown` is HTML."""
    named = f' class="{classes}"' if classes else ""
    sorted_by = "" if value is None or math.isnan(value) else f"{value:.9g}"
    return f'<td{named} data-v="{sorted_by}">{shown}</td>'


def pairs(items: Sequence[tuple[str, str]]) -> str:
    """A list of names and values, both plain text."""
    return "<dl>" + "".join(f"<div><dt>{esc(k)}</dt><dd>{esc(v)}</dd></div>" for k, v in items) + "</dl>"
