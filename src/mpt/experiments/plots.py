"""Plots beyond curves by round: points in a plane and bars in groups, and any of them as a file of its own."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from mpt.pages.lines import NARROW
from mpt.pages.styles import SeriesStyle
from mpt.pages.svg import FONT, Box, Frame, decades, esc, mark, n, place, shortened, text, ticks, width_of
from mpt.version import MADE_BY

_STYLE = (
    "text{fill:#1a1e24;font-family:Helvetica,Arial,sans-serif}.tick{fill:#5a6470}.note{font-weight:600}"
    ".rule{stroke:#e4e7eb;fill:none}.rule.zero{stroke:#b9c0c9}.departure{stroke:#1a1e24;stroke-dasharray:2 3;fill:none}"
    ".line{fill:none;stroke-linejoin:round}.leader{stroke-width:.8;opacity:.5;fill:none}.band{opacity:.1}"
    ".seeds,.cross{display:none}.span{fill:none;stroke-width:1.4;opacity:.6}.cloud .mark{opacity:.6}"
)


@dataclass(frozen=True)
class Point:
    """A method at (x, y), with the range of y where it has one; x below or at 0 stands apart on a log axis."""

    look: SeriesStyle
    x: float
    y: float
    low: float | None = None
    high: float | None = None
    about: str = ""


@dataclass(frozen=True)
class Plane:
    """Points in a plane.

    Attributes:
        name: of its file.
        x_label, y_label: of the axes.
        points: all of them.
        log: whether x is logarithmic.
        named: whether each point bears its method's name; else only the first of each method does.
        diagonal: whether a line is drawn where y equals x.
        marked: a value of x with what it stands for, as a line from top to bottom.
    """

    name: str
    x_label: str
    y_label: str
    points: tuple[Point, ...]
    log: bool = False
    named: bool = True
    diagonal: bool = False
    marked: tuple[float, str] | None = None

    def figure(self, width: float, height: float) -> str:
        """The two drawings, of which the page's style shows one."""
        wide, narrow = self.draw(width, height), self.draw(NARROW, 340)
        return f'<div class="wide">{wide}</div><div class="narrow">{narrow}</div>'

    def draw(self, width: float, height: float) -> str:
        """One SVG."""
        highest = max((p.high if p.high is not None else p.y for p in self.points), default=1.0)
        frame = Frame(width, height, 44, width - 28, 46, height - 48, 1, tuple(ticks(max(highest, 0.05))))
        axis = _Axis.of([p.x for p in self.points], frame.left, frame.right, log=self.log)
        parts = [frame.axes([], self.x_label + (" (log scale)" if self.log else ""), self.y_label), axis.draw(frame)]
        if self.diagonal:
            end = min(axis.marks[-1], frame.y_ticks[-1])
            line = f"M{n(axis.x(0))} {n(frame.y(0))}L{n(axis.x(end))} {n(frame.y(end))}"
            parts.append(f'<path class="departure" d="{line}"/>')
        if self.marked is not None:
            at, words = axis.x(self.marked[0]), self.marked[1]
            parts.append(f'<path class="departure" d="M{n(at)} {n(frame.top)}V{n(frame.bottom)}"/>')
            parts.append(text(at + 4, frame.top - 6, words, "note"))
        places = [(axis.x(p.x), frame.y(p.y)) for p in self.points]
        taken: list[Box] = [(x - 6, y - 6, x + 6, y + 6) for x, y in places] if self.named else []
        seen = set[str]()
        for (x, y), point in zip(places, self.points, strict=True):
            look = point.look
            key = f"s{look.index}"
            parts.append(
                f'<g class="series point {key}" data-s="{key}"><title>{esc(point.about or look.label)}</title>'
            )
            if point.low is not None and point.high is not None:
                low, high = frame.y(point.low), frame.y(point.high)
                parts.append(f'<path class="span line" d="M{n(x)} {n(low)}V{n(high)}M{n(x - 4)} {n(low)}h8')
                parts.append(f'M{n(x - 4)} {n(high)}h8"/>')
            parts.append(mark(look.mark, x, y, 4.5 if self.named else 3))
            if self.named or look.label not in seen:
                seen.add(look.label)
                name = shortened(look.label, 26)
                box = place(x, y, width_of(name), taken, frame)
                taken.append(box)
                parts.append(text(box[0], box[3] - 3.5, name, "end"))
            parts.append("</g>")
        crowd = "" if self.named else " cloud"
        return (
            f'<svg class="chart scatter{crowd}" viewBox="0 0 {n(width)} {n(height)}" role="img" font-size="{FONT}" '
            f'aria-label="{esc(f"{self.y_label} against {self.x_label}")}">{"".join(parts)}</svg>'
        )


@dataclass(frozen=True)
class _Axis:
    """Values to x, linear from 0 or logarithmic in whole decades with a column for 0."""

    left: float
    right: float
    marks: tuple[float, ...]
    log: bool
    zero: bool

    @classmethod
    def of(cls, values: Sequence[float], left: float, right: float, *, log: bool) -> "_Axis":
        positive = [v for v in values if v > 0] or [1.0]
        if not log:
            return cls(left, right, tuple(ticks(max(positive), 6)), False, False)
        return cls(left, right, tuple(decades(min(positive), max(positive))), True, min(values, default=1.0) <= 0)

    @property
    def start(self) -> float:
        return self.left + (0.14 * (self.right - self.left) if self.zero else 0)

    def x(self, value: float) -> float:
        if not self.log:
            return self.left + (self.right - self.left) * max(value, 0) / self.marks[-1]
        if value <= 0:
            return self.left + 0.5 * (self.start - self.left)
        low, high = math.log10(self.marks[0]), math.log10(self.marks[-1])
        return self.start + (self.right - self.start) * (math.log10(value) - low) / (high - low)

    def draw(self, frame: Frame) -> str:
        parts = []
        for value in [*([0.0] if self.zero else []), *self.marks]:
            x = self.x(value)
            parts.append(f'<path class="rule" d="M{n(x)} {n(frame.top)}V{n(frame.bottom)}"/>')
            parts.append(text(x, frame.bottom + 18, f"{value:g}", "tick", "middle"))
        return "".join(parts)


@dataclass(frozen=True)
class Bars:
    """Groups of bars; a value that is None has none.

    Attributes:
        name: of its file.
        y_label: of the axis.
        groups: names, with a value for each of `series`.
        series: what the bars of a group stand for, dark to light.
    """

    name: str
    y_label: str
    groups: tuple[tuple[str, tuple[float | None, ...]], ...]
    series: tuple[str, ...]

    def figure(self, width: float, height: float) -> str:
        """The two drawings, of which the page's style shows one."""
        wide, narrow = self.draw(width, height), self.draw(NARROW, 320)
        return f'<div class="wide">{wide}</div><div class="narrow">{narrow}</div>'

    def draw(self, width: float, height: float) -> str:
        """One SVG; names that are too long for their places are slanted."""
        values = [v for _, some in self.groups for v in some if v is not None]
        left, right = 44.0, width - 12
        slot = (right - left) / max(len(self.groups), 1)
        longest = max((width_of(shortened(name, 14)) for name, _ in self.groups), default=0.0)
        slanted = longest > slot + 8
        bottom = height - 48 - (0.65 * longest - 10 if slanted else 0)
        frame = Frame(width, height, left, right, 60, bottom, 1, tuple(ticks(max([*values, 1.0]))))
        parts = [frame.axes([], "", self.y_label), text(right, height - 12, "rare class", "tick", "end")]
        bar = 0.8 * slot / len(self.series)
        for i, (name, some) in enumerate(self.groups):
            first = left + (i + 0.1) * slot
            for j, value in enumerate(some):
                if value is not None:
                    top = frame.y(max(value, 0))
                    about = f"{name} at {self.series[j]}: {value:.1f}"
                    parts.append(
                        f'<rect x="{n(first + j * bar)}" y="{n(top)}" width="{n(bar - 1)}" '
                        f'height="{n(frame.bottom - top)}" fill="{_shade(j, len(self.series))}">'
                        f"<title>{esc(about)}</title></rect>"
                    )
            middle, below = first + 0.4 * slot, bottom + (14 if slanted else 18)
            label = text(middle, below, shortened(name, 14), "tick", "end" if slanted else "middle")
            turned = f'<g transform="rotate(-40 {n(middle)} {n(below)})">{label}</g>'
            parts.append(turned if slanted else label)
        x = left
        for j, name in enumerate(self.series):
            parts.append(
                f'<rect x="{n(x)}" y="{n(frame.top - 20)}" width="10" height="10" '
                f'fill="{_shade(j, len(self.series))}"/>'
            )
            parts.append(text(x + 14, frame.top - 11, name, "tick"))
            x += width_of(name) + 30
        return (
            f'<svg class="chart bars" viewBox="0 0 {n(width)} {n(height)}" role="img" font-size="{FONT}" '
            f'aria-label="{esc(self.y_label)}">{"".join(parts)}</svg>'
        )


def _shade(index: int, of: int) -> str:
    part = index / max(of - 1, 3)
    red, green, blue = (round(a + (b - a) * part) for a, b in ((11, 190), (87, 214), (196, 245)))
    return f"#{red:02x}{green:02x}{blue:02x}"


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
    below = f'width="{n(width)}" height="{n(height + 22)}" viewBox="0 0 {n(width)} {n(height + 22)}"'
    ground = '<rect width="100%" height="100%" fill="#fff"/>' + text(0, height + 12, caption, "tick")
    return f"{before}{below}{after}><!-- {MADE_BY} --><style>{_STYLE}{colours}</style>{ground}{rest}\n"
