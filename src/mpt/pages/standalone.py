"""Any drawing as a file of its own."""

from collections.abc import Sequence

from mpt.pages.styles import SeriesStyle
from mpt.pages.svg import LINE, n, text, wrapped
from mpt.version import MADE_BY

_STYLE = (
    "text{fill:#1a1e24;font-family:Helvetica,Arial,sans-serif}.tick{fill:#5a6470}.note{font-weight:600}"
    ".rule{stroke:#e4e7eb;fill:none}.rule.zero{stroke:#b9c0c9}.departure{stroke:#1a1e24;stroke-dasharray:2 3;fill:none}"
    ".line{fill:none;stroke-linejoin:round}.leader{stroke-width:.8;opacity:.5;fill:none}.band{opacity:.1}"
    ".seeds,.cross{display:none}.span{fill:none;stroke-width:1.4;opacity:.6}.cloud .mark{opacity:.6}"
)


def standalone(drawing: str, looks: Sequence[SeriesStyle], caption: str) -> str:
    """A drawing as an SVG file: plain colours on white, no variables, and below it what it was made from."""
    colours = "".join(
        f".s{k.index} .line,.s{k.index} .leader,.s{k.index} .span{{stroke:{k.light}}}"
        f".s{k.index} .mark,.s{k.index} .end,.s{k.index} .band{{fill:{k.light}}}"
        for k in looks
        if f'"s{k.index}"' in drawing
    )
    head, rest = drawing.split(">", 1)
    before, box = head.split('viewBox="0 0 ', 1)
    sides, after = box.split('"', 1)
    width, height = (float(side) for side in sides.split())
    before = before.replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"', 1)
    lines = wrapped(caption, width)
    whole = height + 8 + LINE * len(lines)
    below = f'width="{n(width)}" height="{n(whole)}" viewBox="0 0 {n(width)} {n(whole)}"'
    ground = '<rect width="100%" height="100%" fill="#fff"/>'
    ground += "".join(text(0, height + 12 + LINE * i, line, "tick") for i, line in enumerate(lines))
    return f"{before}{below}{after}><!-- {MADE_BY} --><style>{_STYLE}{colours}</style>{ground}{rest}\n"
