"""Cost against F1: bytes of a round on a logarithmic axis, with a column for none at all."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from mpt.base.seeds import Series
from mpt.base.text import quantity, score
from mpt.pages.document import WIDE
from mpt.pages.lines import NARROW
from mpt.pages.styles import SeriesStyle
from mpt.pages.svg import FONT, LINE, Box, Frame, esc, labelled, mark, n, place, shortened, text, ticks, width_of
from mpt.runs.summary import Summary

_X_LABEL = "bytes a round, up and down, all vehicles together"


@dataclass(frozen=True)
class Axis:
    """Bytes to x: zero has a column of its own at the left."""

    left: float
    right: float
    low: int
    high: int
    zero: bool

    @classmethod
    def around(cls, values: Sequence[float], left: float, right: float) -> "Axis":
        """Whole decades around the positive values."""
        positive = [v for v in values if v > 0] or [1e3]
        low, high = math.floor(math.log10(min(positive))), math.ceil(math.log10(max(positive)))
        return cls(left, right, low, max(high, low + 1), any(v <= 0 for v in values))

    @property
    def start(self) -> float:
        """Where the logarithmic part begins."""
        return self.left + (max(76, 0.16 * (self.right - self.left)) if self.zero else 0)

    def x(self, value: float) -> float:
        """Of a number of bytes."""
        if value <= 0:
            return self.left + 0.36 * (self.start - self.left)
        return self.start + (self.right - self.start) * (math.log10(value) - self.low) / (self.high - self.low)

    def draw(self, frame: Frame) -> str:
        """Its rules and labels."""
        parts = []
        step = 1 if frame.width > NARROW or self.high - self.low <= 4 else 2
        for power in range(self.low, self.high + 1, step):
            x = self.x(10.0**power)
            parts.append(f'<path class="rule" d="M{n(x)} {n(frame.top)}V{n(frame.bottom)}"/>')
            parts.append(text(x, frame.bottom + 18, quantity(10.0**power).replace(".0", ""), "tick", "middle"))
        if self.zero:
            x = self.left + 0.78 * (self.start - self.left)
            parts.append(f'<path class="break" d="M{n(x)} {n(frame.top)}V{n(frame.bottom)}"/>')
            parts.append(text(self.x(0), frame.bottom + 18, "0", "tick", "middle"))
        return "".join(parts)


def scatter(summaries: Sequence[Summary], looks: dict[Series, SeriesStyle], traffic: float | None) -> str:
    """The two drawings: for a wide screen and for a phone. Labels find their place in the order of F1, mpt's first; a
    legend stands beside them for those that find none.
    """
    ordered = sorted(summaries, key=lambda s: (s.series.method != "mpt", -s.f1))
    mine = [looks[s.series] for s in ordered]
    wide = _draw(ordered, mine, traffic, WIDE, 420)
    narrow = _draw(ordered, mine, traffic, NARROW, 380)
    return f'<div class="wide">{wide}</div><div class="narrow">{narrow}</div>'


def _draw(
    summaries: Sequence[Summary], looks: Sequence[SeriesStyle], traffic: float | None, width: float, height: float
) -> str:
    own = [s.bytes_up + s.bytes_down for s in summaries]
    readouts = [0.0 if k.kind == "reference" else s.readout_bytes for s, k in zip(summaries, looks, strict=True)]
    whole = [b + r for b, r in zip(own, readouts, strict=True)]
    y_ticks = tuple(ticks(max(*(s.f1 for s in summaries), 0.05)))
    frame = Frame(width, height, 44, width - 28, 46, height - 48, 1, y_ticks)
    axis = Axis.around([*own, *whole, *([traffic] if traffic else [])], frame.left, frame.right)
    after = any(s.mean_f1 is not None for s in summaries)
    y_label = "mean F1 after the departure" if after else "F1 at the last evaluated round"
    parts = [frame.axes([], _X_LABEL, y_label), axis.draw(frame)]
    if traffic:
        x = axis.x(traffic)
        parts.append(f'<path class="departure" d="M{n(x)} {n(frame.top)}V{n(frame.bottom)}"/>')
        note = "FedAvg's models"
        right = x + width_of(note) + 8 < frame.right
        parts.append(text(x + (6 if right else -6), frame.top - 4, note, "note", "start" if right else "end"))
    points = [(axis.x(b), frame.y(s.f1)) for b, s in zip(own, summaries, strict=True)]
    ends = [axis.x(b) for b in whole]
    places = _places(points, ends, [_name(look) for look in looks], frame)
    for (x, y), end, box, summary, look in zip(points, ends, places, summaries, looks, strict=True):
        about = f"{look.label}: F1 {score(summary.f1)}, {quantity(summary.bytes_up + summary.bytes_down)} a round"
        if end > x + 1 and summary.readout_bytes:
            about += f", and {quantity(summary.readout_bytes)} for its readout"
        parts.append(f'<g class="series point s{look.index}" data-s="s{look.index}"><title>{esc(about)}</title>')
        if end > x + 1:
            parts.append(f'<path class="with" d="M{n(x)} {n(y)}H{n(end)}"/>{mark(look.mark, end, y, 4, "hollow")}')
        parts.append(mark(look.mark, x, y, 5.5 if look.series.method == "mpt" else 4.5))
        parts.append(("" if box is None else labelled(x, y, _name(look), box)) + "</g>")
    bottom = height + LINE * (len(frame.below(_X_LABEL)) - 1)
    return (
        f'<svg class="chart scatter" viewBox="0 0 {n(width)} {n(bottom)}" role="img" font-size="{FONT}" '
        f'aria-label="Cost against F1; the summary table has the numbers">{"".join(parts)}</svg>'
    )


def _name(look: SeriesStyle) -> str:
    return shortened(look.label, 22)


def _places(
    points: Sequence[tuple[float, float]], ends: Sequence[float], names: Sequence[str], frame: Frame
) -> list[Box | None]:
    """Where each name stands, over no mark and no other name; None where there is no room for it."""
    taken: list[Box] = []
    for (x, y), end in zip(points, ends, strict=True):
        taken.append((x - 6, y - 6, x + 6, y + 6))
        taken.append((end - 5, y - 5, end + 5, y + 5))
        if end > x + 1:
            taken.append((x, y - 3, end, y + 3))
    found: list[Box | None] = []
    for (x, y), name in zip(points, names, strict=True):
        box = place(x, y, width_of(name), taken, frame)
        found.append(box)
        taken += [box] if box is not None else []
    return found
