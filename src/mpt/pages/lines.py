"""Curves by round, drawn twice: for a wide screen and for a phone."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mpt.base.seeds import Curve, Series
from mpt.pages.styles import SeriesStyle
from mpt.pages.svg import FONT, Frame, decades, esc, mark, n, path, shortened, spaced, text, ticks, width_of

NARROW = 360
_GAP = 15.0
_MANY_POINTS = 26
_CROWD = 12
_BOLD = 8.2


@dataclass(frozen=True)
class Line:
    """A curve and how it looks; `key` is the series that a legend switches."""

    key: str
    label: str
    curve: Curve
    dash: str = ""
    width: float = 1.8
    mark: str = "circle"

    @classmethod
    def of(cls, look: SeriesStyle, curve: Curve) -> "Line":
        """A row's."""
        return cls(f"s{look.index}", look.label, curve, look.dash, look.width, look.mark)


@dataclass(frozen=True)
class Chart:
    """What a chart of curves shows.

    Attributes:
        name: under which the page's data has its values.
        label: of the y axis.
        lines: in the order in which they are drawn, the last on top.
        depart_at, last: the round of the departure, the last round on the axis.
        note: beside the line that marks the departure.
        ceiling: an upper end of the y axis, where it has one.
    """

    name: str
    label: str
    lines: tuple[Line, ...]
    depart_at: int
    last: int
    note: str
    ceiling: float | None = None

    def figure(self, width: float, height: float) -> str:
        """The two drawings, of which the page's style shows one."""
        return (
            f'<div class="wide">{self.draw(width, height, labels=True)}</div>'
            f'<div class="narrow">{self.draw(NARROW, 300, labels=False)}</div>'
        )

    def values(self) -> dict[str, object]:
        """For the tooltip: rounds, and by series the label and [mean, deviation] a round."""
        rounds = sorted({number for line in self.lines for number in line.curve.points})
        series = {}
        for line in self.lines:
            stats = [line.curve.points.get(number) for number in rounds]
            cells = [s and [round(v, 4) for v in s if v is not None] for s in stats]
            series[line.key] = {"label": line.label, "at": cells}
        return {"rounds": rounds, "series": series}

    def _y_ticks(self) -> tuple[tuple[float, ...], bool]:
        points = [(s.mean, s.mean + (s.deviation or 0)) for line in self.lines for s in line.curve.points.values()]
        highest = max((high for _, high in points), default=1.0)
        highest = highest if self.ceiling is None else min(highest, self.ceiling)
        ends = sorted(v.mean for line in self.lines for k, v in line.curve.points.items() if k > self.depart_at)
        positive = [value for value in ends if value > 0]
        if self.ceiling is None and positive and highest > 30 * positive[len(positive) // 2]:
            return tuple(decades(positive[0], highest)), True
        return tuple(ticks(max(highest, 0.05))), False

    def draw(self, width: float, height: float, *, labels: bool) -> str:
        """One SVG; with `labels` each curve's name stands at its end."""
        shown = [line for line in self.lines if line.curve.points]
        names = [shortened(line.label) for line in shown]
        margin = max((width_of(name) for name in names), default=0) + 22 if labels else 18
        top, bottom = 50.0, height - 48
        bottom = max(bottom, top + _GAP * len(shown)) if labels else bottom
        y_ticks, log = self._y_ticks()
        frame = Frame(width, bottom + 48, 44, width - margin, top, bottom, max(self.last, 1), y_ticks, log)
        x_ticks = ticks(self.last, 10 if width > 600 else 5)
        parts = [frame.axes([t for t in x_ticks if t == int(t)], "round", self.label + (" (log scale)" if log else ""))]
        parts.append(self._departure(frame))
        crowd = " crowd" if len(shown) > _CROWD else ""
        ends = [frame.y(list(line.curve.points.values())[-1].mean) for line in shown]
        places = spaced(ends, _GAP, top, bottom) if labels else ends
        for line, name, end, place in zip(shown, names, ends, places, strict=True):
            parts.append(f'<g class="series {line.key}" data-s="{line.key}">')
            parts.append(self._curve(frame, line))
            if labels:
                x = frame.x(max(line.curve.points))
                parts.append(f'<path class="leader" d="M{n(x + 5)} {n(end)}L{n(frame.right + 14)} {n(place)}"/>')
                parts.append(text(frame.right + 18, place + 4, name, "end"))
            parts.append("</g>")
        parts.append(f'<path class="cross" d="M0 {n(top)}V{n(bottom)}"/>')
        about = f"{self.label} by round; {self.note}"
        return (
            f'<svg class="chart lines{crowd}" viewBox="0 0 {n(width)} {n(frame.height)}" role="img" '
            f'aria-label="{esc(about)}" tabindex="0" font-size="{FONT}" data-chart="{esc(self.name)}" '
            f'data-left="{n(frame.left)}" data-right="{n(frame.right)}" '
            f'data-last="{frame.x_max:g}">{"".join(parts)}</svg>'
        )

    def _departure(self, frame: Frame) -> str:
        x = frame.x(self.depart_at)
        right = x < frame.width / 2
        room = (frame.width - x if right else x) - 6
        note = shortened(self.note, int(room / _BOLD))
        return f'<path class="departure" d="M{n(x)} {n(frame.top - 17)}V{n(frame.bottom)}"/>' + text(
            x + (6 if right else -6), frame.top - 7, note, "note", "start" if right else "end"
        )

    def _curve(self, frame: Frame, line: Line) -> str:
        parts = []
        stats = line.curve.points
        if any(s.deviation for s in stats.values()):
            highest = math.inf if self.ceiling is None else self.ceiling
            up = [(frame.x(k), frame.y(min(s.mean + (s.deviation or 0), highest))) for k, s in stats.items()]
            down = [(frame.x(k), frame.y(max(s.mean - (s.deviation or 0), 0))) for k, s in stats.items()]
            parts.append(f'<path class="band" d="{path([*up, *reversed(down)])}Z"/>')
        if len(line.curve.seeds) > 1:
            single = [[(frame.x(k), frame.y(v)) for k, v in sorted(s.items())] for s in line.curve.seeds.values()]
            parts.append(f'<path class="seeds" d="{"".join(path(points) for points in single)}"/>')
        points = [(frame.x(k), frame.y(s.mean)) for k, s in stats.items()]
        dash = f' stroke-dasharray="{line.dash}"' if line.dash else ""
        parts.append(f'<path class="line" stroke-width="{line.width:g}"{dash} d="{path(points)}"/>')
        if len(points) <= _MANY_POINTS:
            parts.extend(mark(line.mark, x, y, 2.6 if line.width < 2 else 3.4) for x, y in points)
        return "".join(parts)


def lines_of(curves: Mapping[Series, Curve], look: Mapping[Series, SeriesStyle]) -> tuple[Line, ...]:
    """References at the bottom, the MPT family on top."""
    order = {"reference": 0, "method": 1, "mpt": 2}
    rows = sorted(curves, key=lambda row: (order[look[row].kind], row.method == "mpt"))
    return tuple(Line.of(look[row], curves[row]) for row in rows if curves[row].points)


def last_round(curves: Sequence[Curve]) -> int:
    """The last round that any of them has."""
    return max((number for curve in curves for number in curve.points), default=1)
