"""Plots beyond curves by round: points in a plane and bars in groups."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from mpt.pages.lines import NARROW
from mpt.pages.styles import SeriesStyle
from mpt.pages.svg import (
    FONT,
    LINE,
    Box,
    Frame,
    decades,
    esc,
    labelled,
    mark,
    n,
    place,
    shortened,
    text,
    ticks,
    width_of,
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
        named: whether a point bears its method's name, which then has one point; else a legend has them.
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
        """The two drawings, of which the page's style shows one; what is named beside no point is in a legend above."""
        wide, narrow = self.draw(width, height), self.draw(NARROW, 340)
        return f'<div class="wide">{wide}</div><div class="narrow">{narrow}</div>'

    def draw(self, width: float, height: float, *, keys: bool = False) -> str:
        """One SVG; with `keys`, methods that are named beside no point stand below the plot."""
        highest = max((p.high if p.high is not None else p.y for p in self.points), default=1.0)
        frame = Frame(width, height, 44, width - 28, 46, height - 48, 1, tuple(ticks(max(highest, 0.05))))
        axis = _Axis.of([p.x for p in self.points], frame.left, frame.right, log=self.log)
        x_label = self.x_label + (" (log scale)" if self.log else "")
        parts = [frame.axes([], x_label, self.y_label), axis.draw(frame), self._lines(frame, axis)]
        places = self._places(frame, axis) if self.named else {}
        looks = {point.look.label: point.look for point in self.points}
        for label, look in looks.items():
            parts.append(f'<g class="series point s{look.index}" data-s="s{look.index}">')
            for point in self.points:
                if point.look.label == label:
                    x, y = axis.x(point.x), frame.y(point.y)
                    parts.append(self._point(point, x, y, frame))
                    if label in places:
                        parts.append(labelled(x, y, _name(look), places[label]))
            parts.append("</g>")
        bottom = height + LINE * (len(frame.below(x_label)) - 1)
        if keys:
            drawn, bottom = _keys([look for label, look in looks.items() if label not in places], width, bottom)
            parts.append(drawn)
        return (
            f'<svg class="chart scatter{"" if self.named else " cloud"}" viewBox="0 0 {n(width)} {n(bottom)}" '
            f'role="img" font-size="{FONT}" aria-label="{esc(f"{self.y_label} against {self.x_label}")}">'
            f"{''.join(parts)}</svg>"
        )

    def _lines(self, frame: Frame, axis: "_Axis") -> str:
        """The diagonal, and the value of x that is marked."""
        parts = []
        if self.diagonal:
            end = min(axis.marks[-1], frame.y_ticks[-1])
            line = f"M{n(axis.x(0))} {n(frame.y(0))}L{n(axis.x(end))} {n(frame.y(end))}"
            parts.append(f'<path class="departure" d="{line}"/>')
        if self.marked is not None:
            at, words = axis.x(self.marked[0]), self.marked[1]
            right = at < frame.width / 2
            parts.append(f'<path class="departure" d="M{n(at)} {n(frame.top - 17)}V{n(frame.bottom)}"/>')
            side = (6, "start") if right else (-6, "end")
            parts.append(text(at + side[0], frame.top - 7, words, "note", side[1]))
        return "".join(parts)

    def _places(self, frame: Frame, axis: "_Axis") -> dict[str, Box]:
        """Where each method's name stands, beside its point and over nothing; some may have no place."""
        taken: list[Box] = []
        for point in self.points:
            x, y = axis.x(point.x), frame.y(point.y)
            taken.append((x - 6, y - 6, x + 6, y + 6))
            if point.low is not None and point.high is not None:
                taken.append((x - 4, frame.y(point.high), x + 4, frame.y(point.low)))
        found: dict[str, Box] = {}
        for point in self.points:
            box = place(axis.x(point.x), frame.y(point.y), width_of(_name(point.look)), taken, frame)
            if box is not None:
                found[point.look.label] = box
                taken.append(box)
        return found

    def _point(self, point: Point, x: float, y: float, frame: Frame) -> str:
        """Its mark, with the range of y where it has one, and what a pointer shows."""
        span = ""
        if point.low is not None and point.high is not None:
            low, high = frame.y(point.low), frame.y(point.high)
            ends = "".join(f"M{n(x - 4)} {n(end)}h8" for end in (low, high))
            span = f'<path class="span line" d="M{n(x)} {n(low)}V{n(high)}{ends}"/>'
        drawn = span + mark(point.look.mark, x, y, 4.5 if self.named else 3)
        return f"<g><title>{esc(point.about)}</title>{drawn}</g>" if point.about else drawn


def _name(look: SeriesStyle) -> str:
    return shortened(look.label, 26)


def _keys(looks: Sequence[SeriesStyle], width: float, top: float) -> tuple[str, float]:
    """Marks with their names in rows below `top`, and where the last row ends."""
    parts, x, y = [], 8.0, top + 8
    for look in looks:
        room = width_of(_name(look)) + 30
        if x > 8 and x + room > width:
            x, y = 8.0, y + 1.3 * LINE
        key = mark(look.mark, x + 4, y - 4, 4.5) + text(x + 14, y, _name(look), "end")
        parts.append(f'<g class="series s{look.index}" data-s="s{look.index}">{key}</g>')
        x += room
    return "".join(parts), y + 8 if looks else top


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
        right, many = width - 12, max(len(self.groups), 1)
        longest = max((width_of(shortened(name, 14)) for name, _ in self.groups), default=0.0)
        slanted = longest > (right - 44) / many + 8
        left = max(44, 0.5 * longest + 8 - 0.5 * (right - 44) / many) if slanted else 44.0
        slot = (right - left) / many
        bottom = height - 48 - (0.87 * longest - 10 if slanted else 0)
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
            turned = f'<g transform="rotate(-60 {n(middle)} {n(below)})">{label}</g>'
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
