"""What became of the concentrated classes: their coverage, the server's state and its decisions, round by round."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from mpt.pages.lanes import RoundAxis, fitted, glyph
from mpt.pages.svg import FONT, esc, mark, n, spaced, text, width_of
from mpt.report.scenario_files import ClassRound, Decided, stretches

MARKS = {
    "watched": ("circle", "hollow"),
    "suspected": ("triangle", "hollow"),
    "deposited": ("square", "mark"),
    "departed": ("down", "mark"),
    "held-out": ("diamond", "mark"),
    "recovered": ("circle", "mark"),
    "lost": ("plus", "mark"),
}
"""A decision's mark and its class in the page's style."""

STATES = {"measured": "is-measured", "deposit": "is-deposit", "held out": "is-held-out"}
"""A state's class in the page's style."""

STYLE = """
.away { fill: var(--ink); opacity: .075; }
.cover { fill: var(--accent); opacity: .2; } .cover-line { stroke: var(--accent); stroke-width: 1.5; fill: none; }
.carry { stroke: var(--soft); stroke-dasharray: 2 3; fill: none; }
.is-measured { fill: var(--c4); background: var(--c4); } .is-deposit { fill: var(--c3); background: var(--c3); }
.is-held-out { fill: var(--c0); background: var(--c0); }
.chart .in { fill: var(--on); }
.decision { --c: var(--ink); } .decision.recovered { --c: var(--accent); } .decision.lost { --c: rgb(var(--loss)); }
.decision .leader { opacity: .7; }
"""

_GAP = 14.0
_MOST_STRETCHES = 8
_TOP, _FOOT = 4.0, 42.0
_DECIDED, _SHARE, _RIBBON, _BETWEEN = 22.0, 40.0, 18.0, 26.0
_ROW = _DECIDED + _SHARE + 5 + _RIBBON + _BETWEEN


@dataclass(frozen=True)
class Strip:
    """A class over the rounds.

    Attributes:
        name: of the class.
        holder: the vehicle with most of it, "" where that is not known.
        rounds: a value a round.
        decisions: those that concern it.
    """

    name: str
    holder: str
    rounds: tuple[ClassRound, ...]
    decisions: tuple[Decided, ...]

    @classmethod
    def of(cls, name: str, holder: str, rounds: tuple[ClassRound, ...], decisions: Sequence[Decided]) -> "Strip":
        """With those decisions that concern the class or its holder."""
        mine = [
            one
            for one in decisions
            if one.what in MARKS and (name in one.classes or (not one.classes and holder and one.vehicle == holder))
        ]
        return cls(name, holder, rounds, tuple(mine))


def draw_strips(strips: Sequence[Strip], axis: RoundAxis, carry_share: float | None) -> str:
    """One SVG: of each class the decisions, the share of its samples that is there, and the server's state.

    Args:
        strips: of the classes.
        axis: of the rounds, that of the presence.
        carry_share: up to which a class may be absent, as a line; None: not known.
    """
    bottom = _TOP + _ROW * len(strips) - _BETWEEN + 6
    parts = [axis.rules(_TOP, bottom)]
    parts += [_strip(strip, axis, _TOP + _ROW * i, carry_share) for i, strip in enumerate(strips)]
    about = "; ".join(f"{strip.name}: {told(strip.rounds)}" for strip in strips)
    return (
        f'<svg class="chart strips" viewBox="0 0 {n(axis.width)} {n(bottom + _FOOT)}" role="img" '
        f'aria-label="{esc(f"Coverage and state of classes by round. {about}")}" font-size="{FONT}">'
        f"{''.join(parts)}</svg>"
    )


def told(rounds: Sequence[ClassRound]) -> str:
    """When a class was absent, and what the server did, in words."""
    away = stretches(one.absent for one in rounds)
    parts = [f"absent in {in_rounds(away)}"] if away else ["never absent"]
    for state in ("deposit", "held out"):
        found = stretches(one.state == state for one in rounds)
        if found:
            parts.append(f"{state} in {in_rounds(found)}")
    return ", ".join(parts)


def in_rounds(found: Sequence[tuple[int, int]]) -> str:
    """Round 3; rounds 3 to 5, 9; or how many, where they are scattered."""
    if len(found) > _MOST_STRETCHES:
        return f"{sum(last - first + 1 for first, last in found):,} rounds"
    parts = [str(first) if first == last else f"{first} to {last}" for first, last in found]
    one = len(found) == 1 and found[0][0] == found[0][1]
    return f"round{'' if one else 's'} {', '.join(parts)}"


def _strip(strip: Strip, axis: RoundAxis, top: float, carry_share: float | None) -> str:
    cover, ribbon = top + _DECIDED, top + _DECIDED + _SHARE + 5
    base = cover + _SHARE
    room = axis.left - 10
    parts = [
        f'<rect class="away" x="{n(axis.edge(first))}" y="{n(cover - 4)}" width="{n(axis.cell * (last - first + 1))}" '
        f'height="{n(_SHARE + 9 + _RIBBON)}"><title>{esc(f"{strip.name} is absent in {in_rounds([(first, last)])}")}'
        "</title></rect>"
        for first, last in stretches(one.absent for one in strip.rounds)
    ]
    parts.append(_coverage(strip, axis, base))
    if carry_share is not None:
        y = base - _SHARE * carry_share
        parts.append(f'<path class="carry" d="M{n(axis.left)} {n(y)}H{n(axis.right)}"/>')
    parts.append(_ribbon(strip, axis, ribbon))
    parts.append(_decisions(strip, axis, top + 9, cover - 2))
    parts.append(text(0, cover + 15, fitted(strip.name, room), "who"))
    if strip.holder:
        parts.append(text(0, cover + 31, fitted(f"on {strip.holder}", room), "tick"))
    return f"<g>{''.join(parts)}</g>"


def _coverage(strip: Strip, axis: RoundAxis, base: float) -> str:
    """The share of the class's samples on vehicles that are there, as steps."""
    steps, place = [], 1
    for share, same in groupby(one.share for one in strip.rounds):
        last = place + len(list(same))
        y = base - _SHARE * share
        steps.append(f"{n(axis.edge(place))} {n(y)}H{n(axis.edge(last))}")
        place = last
    line = "L".join(steps)
    return (
        f'<path class="cover" d="M{n(axis.left)} {n(base)}L{line}V{n(base)}Z"/><path class="cover-line" d="M{line}"/>'
    )


def _ribbon(strip: Strip, axis: RoundAxis, top: float) -> str:
    """What the server does, named where there is room."""
    parts, place = [], 1
    for state, same in groupby(one.state for one in strip.rounds):
        count = len(list(same))
        x, wide = axis.edge(place), axis.cell * count
        title = esc(f"{strip.name}: {state} in {in_rounds([(place, place + count - 1)])}")
        parts.append(
            f'<rect class="{STATES[state]}" x="{n(x)}" y="{n(top)}" width="{n(wide)}" height="{n(_RIBBON)}">'
            f"<title>{title}</title></rect>"
        )
        if width_of(state) <= wide - 4:
            parts.append(text(x + wide / 2, top + _RIBBON - 5, state, "in", "middle"))
        place += count
    return "".join(parts)


def _decisions(strip: Strip, axis: RoundAxis, y: float, down_to: float) -> str:
    """Marks beside each other, each with a line to its round."""
    wanted = [axis.middle(one.round) for one in strip.decisions]
    gap = min(_GAP, (axis.right - axis.left) / max(len(wanted), 1))
    places = spaced(wanted, gap, axis.left + 6, axis.right)
    parts = []
    for one, x, at in zip(strip.decisions, places, wanted, strict=True):
        kind, style = MARKS[one.what]
        title = f"round {one.round}, {one.what}{f' ({one.vehicle})' if one.vehicle else ''}: {one.why}"
        parts.append(
            f'<g class="decision {esc(one.what)}"><title>{esc(title)}</title>'
            f'<path class="leader" d="M{n(x)} {n(y + 5)}L{n(at)} {n(down_to)}"/>{mark(kind, x, y, 4.6, style)}</g>'
        )
    return "".join(parts)


def strips_key(strips: Sequence[Strip], carry: bool) -> str:
    """What the marks, the colours and the shading mean; of the marks and states those that are there."""
    made = {one.what for strip in strips for one in strip.decisions}
    marks = [
        f'<span class="decision {what}">{glyph(mark(kind, 11, 7, 4.6, style), what).removeprefix("<span>")}'
        for what, (kind, style) in MARKS.items()
        if what in made
    ]
    there = {one.state for strip in strips for one in strip.rounds}
    states = [
        f'<span><i class="patch {name}"></i>{esc(state)}</span>' for state, name in STATES.items() if state in there
    ]
    more = [glyph('<rect class="away" width="22" height="14"/>', "the class is absent")]
    if carry:
        more.append(glyph('<path class="carry" d="M0 7H22"/>', "carry-share"))
    rows = (marks, [*states, *more])
    return "".join(f'<div class="patches">{"".join(row)}</div>' for row in rows if row)
