"""Who is there when as a drawing: a lane a vehicle, on an axis of rounds that other drawings may share."""

from collections.abc import Sequence
from dataclasses import dataclass

from mpt.pages.svg import FONT, esc, n, text, ticks, width_of

PHONE = 360
"""In which a drawing for a phone is drawn."""
_TALL, _LOW, _TINY = 38.0, 21.0, 8.0
"""Heights of a lane: of a holder, of another vehicle, of one of very many."""
MANY = 40
"""Of more vehicles, only holders are named."""
_BAR = 11.0
_TOP, _FOOT = 6.0, 42.0

STYLE = """
.lane { fill: var(--strong); } .lane.holder { fill: var(--accent); }
.silent { fill: var(--paper); stroke: var(--strong); } .holder + .silent, .silent.holder { stroke: var(--accent); }
.goodbye { fill: var(--ink); }
.chart .who { font-weight: 600; }
.upright { stroke: var(--rule); fill: none; }
.glyph { width: 22px; height: 14px; vertical-align: -2px; margin-right: 6px; }
.patches > span { display: inline-flex; align-items: center; }
"""


@dataclass(frozen=True)
class RoundAxis:
    """Rounds from left to right; each has a cell, in whose middle its number stands."""

    width: float
    left: float
    right: float
    rounds: int

    @property
    def cell(self) -> float:
        """Width of a round."""
        return (self.right - self.left) / self.rounds

    def edge(self, round: int) -> float:
        """Where a round begins; that of the round after the last is the right end."""
        return self.left + self.cell * (round - 1)

    def middle(self, round: int) -> float:
        """Where a round's number stands."""
        return self.edge(round) + self.cell / 2

    def rules(self, top: float, bottom: float) -> str:
        """Upright rules at some rounds, their numbers below them, and what is on the axis."""
        parts = []
        about = 10 if self.width > 600 else 5
        shown = [int(tick) for tick in ticks(self.rounds, about) if tick == int(tick) and 0 < tick <= self.rounds]
        for number in shown if 1 in shown or (shown and shown[0] < 3) else [1, *shown]:
            x = self.middle(number)
            parts.append(f'<path class="upright" d="M{n(x)} {n(top)}V{n(bottom)}"/>')
            parts.append(text(x, bottom + 17, str(number), "tick", "middle"))
        parts.append(text(self.right, bottom + 34, "round", "tick", "end"))
        return "".join(parts)


@dataclass(frozen=True)
class Lane:
    """A vehicle's.

    Attributes:
        name: of the vehicle.
        holds: classes that are concentrated on it.
        stays: first and last round of each.
        silent: rounds in which it is there but its answer does not come.
        goodbyes: rounds after which it leaves and says so.
    """

    name: str
    holds: tuple[str, ...]
    stays: tuple[tuple[int, int], ...]
    silent: tuple[int, ...] = ()
    goodbyes: tuple[int, ...] = ()


def axis_for(width: float, rounds: int, names: Sequence[str]) -> RoundAxis:
    """An axis that leaves room for names on its left, on a phone a third of the width at most."""
    widest = max((width_of(name) for name in names), default=0.0) + 14
    return RoundAxis(width, min(max(widest, 44.0), 0.27 * width), width - 14, rounds)


def fitted(name: str, room: float) -> str:
    """As much of a name as fits into `room`, which is its beginning and an ellipsis."""
    if width_of(name) <= room:
        return name
    kept = name
    while kept and width_of(f"{kept}…") > room:
        kept = kept[:-1]
    return f"{kept}…"


def draw_lanes(lanes: Sequence[Lane], axis: RoundAxis, labels: Sequence[str] = ()) -> str:
    """One SVG, a lane a vehicle; those of holders are taller and named with their classes.

    Args:
        lanes: of the vehicles, in the order in which they are drawn.
        axis: of the rounds.
        labels: what the rounds are called, or nothing.
    """
    few = len(lanes) <= MANY
    heights = [_TALL if lane.holds else _LOW if few else _TINY for lane in lanes]
    bottom = _TOP + sum(heights)
    parts, top = [axis.rules(_TOP, bottom)], _TOP
    for lane, height in zip(lanes, heights, strict=True):
        parts.append(_lane(lane, axis, top, height, labels))
        top += height
    told = "; ".join(f"{lane.name} holds {', '.join(lane.holds)}" for lane in lanes if lane.holds)
    about = f"Presence of {len(lanes)} vehicles over {axis.rounds} rounds{told and f'; {told}'}"
    return (
        f'<svg class="chart lanes" viewBox="0 0 {n(axis.width)} {n(bottom + _FOOT)}" role="img" '
        f'aria-label="{esc(about)}" font-size="{FONT}">{"".join(parts)}</svg>'
    )


def _lane(lane: Lane, axis: RoundAxis, top: float, height: float, labels: Sequence[str]) -> str:
    middle, thick = top + height / 2, min(_BAR, height - 2)
    holder = " holder" if lane.holds else ""
    parts = [f'<path class="rule" d="M{n(axis.left)} {n(middle)}H{n(axis.right)}"/>']
    for first, last in lane.stays:
        x, wide = axis.edge(first), axis.cell * (last - first + 1)
        parts.append(
            f'<rect class="lane{holder}" x="{n(x)}" y="{n(middle - thick / 2)}" width="{n(max(wide, 1))}" '
            f'height="{n(thick)}" rx="2"><title>{esc(_stay(lane, first, last, labels))}</title></rect>'
        )
    for number in lane.silent:
        wide = max(axis.cell - 2, 2)
        parts.append(
            f'<rect class="silent{holder}" x="{n(axis.middle(number) - wide / 2)}" y="{n(middle - thick / 2 + 0.5)}" '
            f'width="{n(wide)}" height="{n(thick - 1)}"><title>{esc(lane.name)} does not answer in '
            f"{esc(_round(number, labels))}</title></rect>"
        )
    parts += [_goodbye(axis.edge(number + 1), middle, lane.name, _round(number, labels)) for number in lane.goodbyes]
    room = axis.left - 10
    if lane.holds:
        parts.append(text(0, middle - 3, fitted(lane.name, room), "who"))
        parts.append(text(0, middle + 12, fitted(f"holds {', '.join(lane.holds)}", room), "tick"))
    elif height > FONT:
        parts.append(text(0, middle + 4, fitted(lane.name, room), "tick"))
    return f"<g>{''.join(parts)}</g>"


def _stay(lane: Lane, first: int, last: int, labels: Sequence[str]) -> str:
    holds = f" (holds {', '.join(lane.holds)})" if lane.holds else ""
    when = _round(first, labels) + ("" if first == last else f" to {_round(last, labels).removeprefix('round ')}")
    return f"{lane.name}{holds}: there in {when.replace('round ', 'rounds ', 1) if first != last else when}"


def _round(number: int, labels: Sequence[str]) -> str:
    return f"round {number}" + (f" ({labels[number - 1]})" if labels else "")


def _goodbye(x: float, y: float, name: str, when: str) -> str:
    points = f"{n(x)},{n(y - 6)} {n(x + 8)},{n(y)} {n(x)},{n(y + 6)}"
    title = esc(f"{name} says goodbye in {when}")
    return f'<g><title>{title}</title><polygon class="goodbye" points="{points}"/></g>'


def lanes_key(*, silent: bool, goodbyes: bool) -> str:
    """What the signs of the lanes mean."""
    shown = [
        ('<rect class="lane holder" y="2" width="22" height="10" rx="2"/>', "a vehicle that holds a class, there"),
        ('<rect class="lane" y="2" width="22" height="10" rx="2"/>', "another vehicle, there"),
    ]
    if silent:
        sign = (
            '<rect class="lane" y="2" width="22" height="10"/><rect class="silent" x="7" y="2.5" width="8" height="9"/>'
        )
        shown.append((sign, "there, but its answer does not come"))
    if goodbyes:
        sign = '<rect class="lane" y="2" width="12" height="10"/><polygon class="goodbye" points="12,1 20,7 12,13"/>'
        shown.append((sign, "says goodbye"))
    return f'<div class="patches">{"".join(glyph(sign, meaning) for sign, meaning in shown)}</div>'


def glyph(sign: str, meaning: str) -> str:
    """A sign of 22 by 14, as SVG, and what it means."""
    return f'<span><svg class="glyph" viewBox="0 0 22 14" aria-hidden="true">{sign}</svg>{esc(meaning)}</span>'
