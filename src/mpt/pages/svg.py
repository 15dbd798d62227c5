"""Pieces of SVG: escaped text, nice ticks, marks, and a plot's frame with its axes."""

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass

FONT = 12.5
CHARACTER = 7.7
"""Width of a character of `FONT` in a system font, on the safe side."""
LINE = 14.0
"""Height of a line of `FONT`."""


def esc(value: object) -> str:
    """For text and for attributes in double quotes."""
    return html.escape(str(value), quote=True)


def n(value: float) -> str:
    """A coordinate, short."""
    text = f"{value:.1f}"
    return text.removesuffix(".0") if text != "-0.0" else "0"


def width_of(text: str) -> float:
    """Of a label, about; capitals are wider than other letters, those of East Asian scripts twice as wide."""
    return CHARACTER * sum(2 if ord(c) > 0x2E80 else 1.25 if c.isupper() else 1 for c in text)


def shortened(text: str, most: int = 24) -> str:
    """The end of a long name, which tells paths apart."""
    return text if len(text) <= most else "…" + text[-(most - 1) :]


def wrapped(text: str, room: float) -> list[str]:
    """A text in lines that are no wider than `room`, broken at its blanks.

    Example:
        >>> wrapped("drift a round, in deviations", 110)
        ['drift a round,', 'in deviations']
    """
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and width_of(longer) > room:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines


def ticks(highest: float, about: int = 5) -> list[float]:
    """Round numbers from 0 to at least `highest`."""
    if highest <= 0:
        return [0.0, 1.0]
    raw = highest / about
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * m for m in (1, 2, 2.5, 5, 10) if power * m >= raw * 0.999)
    return [round(i * step, 10) for i in range(math.ceil(highest / step - 1e-9) + 1)]


def decades(lowest: float, highest: float) -> list[float]:
    """Powers of ten around positive numbers."""
    first, last = math.floor(math.log10(lowest)), math.ceil(math.log10(highest))
    return [10.0**i for i in range(first, max(last, first + 1) + 1)]


def mark(kind: str, x: float, y: float, r: float, classes: str = "mark") -> str:
    """A point's mark, of about the same area whatever its kind."""
    if kind == "circle":
        return f'<circle class="{classes}" cx="{n(x)}" cy="{n(y)}" r="{n(r)}"/>'
    s, t = r * 0.9, r * 1.25
    shapes = {
        "square": ((-s, -s), (s, -s), (s, s), (-s, s)),
        "triangle": ((0, -t), (t, s), (-t, s)),
        "down": ((0, t), (t, -s), (-t, -s)),
        "diamond": ((0, -t), (t, 0), (0, t), (-t, 0)),
    }
    h = r / 2.4
    plus = ((-h, -t), (h, -t), (h, -h), (t, -h), (t, h), (h, h), (h, t), (-h, t), (-h, h), (-t, h), (-t, -h), (-h, -h))
    points = " ".join(f"{n(x + a)},{n(y + b)}" for a, b in shapes.get(kind, plus))
    return f'<polygon class="{classes}" points="{points}"/>'


def path(points: Sequence[tuple[float, float]]) -> str:
    """The commands of a line through points."""
    return "M" + "L".join(f"{n(x)} {n(y)}" for x, y in points)


def text(x: float, y: float, content: str, classes: str = "", anchor: str = "start") -> str:
    """A text; its content is escaped here."""
    named = f' class="{classes}"' if classes else ""
    where = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text{named} x="{n(x)}" y="{n(y)}"{where}>{esc(content)}</text>'


def spaced(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Positions near the wanted ones, `gap` apart, between `low` and `high` where there is room."""
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    placed = [0.0] * len(wanted)
    groups: list[list[float]] = []  # sum of the members' wanted starts, members
    for i in order:
        groups.append([wanted[i], 1])
        while len(groups) > 1 and _start(groups[-2], gap) + gap * groups[-2][1] > _start(groups[-1], gap):
            total, members = groups.pop()
            groups[-1][0] += total
            groups[-1][1] += members
    ranks = iter(order)
    floor = low
    for group in groups:
        start = max(_start(group, gap), floor)
        for k in range(int(group[1])):
            placed[next(ranks)] = start + k * gap
        floor = start + gap * group[1]
    limit = high
    for i in reversed(order):  # push up what hangs over
        placed[i] = min(placed[i], limit)
        limit = placed[i] - gap
    return placed


def _start(group: Sequence[float], gap: float) -> float:
    return group[0] / group[1] - gap * (group[1] - 1) / 2


@dataclass(frozen=True)
class Frame:
    """A plot's area in the coordinates of its SVG, with linear scales; `log` makes y logarithmic."""

    width: float
    height: float
    left: float
    right: float
    top: float
    bottom: float
    x_max: float
    y_ticks: tuple[float, ...]
    log: bool = False

    def x(self, value: float) -> float:
        """From 0 at the left."""
        return self.left + (self.right - self.left) * value / self.x_max

    def y(self, value: float) -> float:
        """From the lowest tick at the bottom."""
        low, high = self.y_ticks[0], self.y_ticks[-1]
        if self.log:
            value, low, high = (math.log10(max(v, low)) for v in (value, low, high))
        return self.bottom - (self.bottom - self.top) * (value - low) / (high - low)

    def axes(self, x_ticks: Sequence[float], x_label: str, y_label: str) -> str:
        """Rules at the y ticks, tick labels, and what is on the axes, in two lines below where one has no room."""
        parts = []
        decimals = max((len(f"{t:.6f}".rstrip("0").partition(".")[2]) for t in self.y_ticks), default=0)
        for tick in self.y_ticks:
            y = self.y(tick)
            zero = " zero" if tick == self.y_ticks[0] else ""
            parts.append(f'<path class="rule{zero}" d="M{n(self.left)} {n(y)}H{n(self.right)}"/>')
            label = f"{tick:g}" if self.log else f"{tick:.{decimals}f}"
            parts.append(text(self.left - 8, y + 4, label, "tick", "end"))
        for tick in x_ticks:
            if tick <= self.x_max:
                parts.append(text(self.x(tick), self.bottom + 18, f"{tick:g}", "tick", "middle"))
        for i, line in enumerate(self.below(x_label)):
            parts.append(text(self.right, self.bottom + 36 + LINE * i, line, "tick", "end"))
        parts.append(text(0, self.top - 28, y_label, "tick"))
        return "".join(parts)

    def below(self, x_label: str) -> list[str]:
        """The lines of what is on the x axis."""
        return wrapped(x_label, self.right)


Box = tuple[float, float, float, float]
"""Left, top, right, bottom."""


def place(x: float, y: float, width: float, taken: Sequence[Box], frame: Frame) -> Box | None:
    """The nearest place for a label that overlaps nothing; None where there is none near."""
    for radius in (0, 8, 16, 26, 38, 52):
        for angle in (0, 180, -35, 35, -145, 145, -90, 90, -65, 65, -115, 115):
            dx, dy = math.cos(math.radians(angle)), math.sin(math.radians(angle))
            middle = x + dx * (9 + width / 2 + radius), y + dy * (LINE + 1 + radius)
            box = (middle[0] - width / 2, middle[1] - LINE / 2, middle[0] + width / 2, middle[1] + LINE / 2)
            inside = (
                box[0] >= frame.left + 3
                and box[2] <= frame.width - 2
                and box[1] >= frame.top - 4
                and box[3] <= frame.bottom - 1
            )
            if inside and not any(
                b[0] < box[2] + 3 and b[2] > box[0] - 3 and b[1] < box[3] and b[3] > box[1] for b in taken
            ):
                return box
    return None


def labelled(x: float, y: float, name: str, box: Box) -> str:
    """A name in its place, with a line to its point where that is not beside it."""
    middle = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
    near = min(max(x, box[0]), box[2]), min(max(y, box[1]), box[3])
    far = math.dist(middle, (x, y)) > (box[2] - box[0]) / 2 + 16
    line = f'<path class="leader" d="M{n(x)} {n(y)}L{n(near[0])} {n(near[1])}"/>' if far else ""
    return line + text(box[0], box[3] - 3.5, name, "end")
