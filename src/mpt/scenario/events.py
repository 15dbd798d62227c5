"""Who is there when: a scenario is a list of events, of which the paper's single departure is one."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from mpt.base.errors import MptError

_EVENT = re.compile(r"(?:(leave)\s+(\d+)\s+after|(join)\s+(\d+)\s+at)\s+(\d+)")


class PlanError(MptError):
    """A run cannot go as planned; the message says what is in the way and what would be right."""


@dataclass(frozen=True, order=True)
class Event:
    """A vehicle joins before a round's training, or leaves after it.

    Attributes:
        round: the first round with the vehicle, or its last.
        vehicle: its id.
        kind: "join" or "leave".
    """

    round: int
    vehicle: int
    kind: Literal["join", "leave"]


def departure(vehicle: int, after: int) -> tuple[Event, ...]:
    """The paper's scenario: everybody is there from the start, one vehicle leaves for good after a round."""
    return (Event(after, vehicle, "leave"),)


def present(vehicles: Iterable[int], events: Iterable[Event], round: int) -> tuple[int, ...]:
    """The vehicles that take part in `round`, by id.

    A vehicle whose first event is a join is absent before it; every other one is there from the start.
    """
    history: dict[int, list[Event]] = {}
    for event in sorted(events):
        history.setdefault(event.vehicle, []).append(event)

    def there(vehicle: int) -> bool:
        mine = history.get(vehicle, [])
        here = not (mine and mine[0].kind == "join")
        for event in mine:
            if event.kind == "join" and event.round <= round:
                here = True
            elif event.kind == "leave" and event.round < round:
                here = False
        return here

    return tuple(v for v in sorted(vehicles) if there(v))


def left_after(events: Iterable[Event], round: int) -> tuple[int, ...]:
    """The vehicles whose last round this is."""
    return tuple(sorted(e.vehicle for e in events if e.kind == "leave" and e.round == round))


def parse_events(text: str) -> tuple[Event, ...]:
    """Events as text: "leave 3 after 20, join 4 at 30".

    Example:
        >>> parse_events("leave 3 after 20")
        (Event(round=20, vehicle=3, kind='leave'),)
    """
    events = []
    for part in filter(None, map(str.strip, text.split(","))):
        found = _EVENT.fullmatch(part)
        if not found:
            raise PlanError(
                f"events: {part!r}, should be like 'leave 3 after 20' or 'join 4 at 30', with commas between"
            )
        vehicle, number = int(found[2] or found[4]), int(found[5])
        events.append(Event(number, vehicle, "leave") if found[1] else Event(number, vehicle, "join"))
    return tuple(events)


def check_rounds(events: Iterable[Event], rounds: int) -> None:
    """`PlanError` where an event could not be seen: nobody joins before round 2 or leaves after the last."""
    for event in events:
        first, last = (2, rounds) if event.kind == "join" else (1, rounds - 1)
        if not first <= event.round <= last:
            raise PlanError(f"events: {_text(event)}, should be a round from {first} to {last}")


def check_vehicles(events: Iterable[Event], vehicles: Iterable[int], owner: int) -> None:
    """`PlanError` where an event names the departing vehicle or none, or somebody joins or leaves twice in a row."""
    known, there = set(vehicles), dict[int, bool]()
    for event in sorted(events):
        if event.vehicle not in known:
            ids = f"{min(known)} to {max(known)}"
            raise PlanError(f"events: {_text(event)}, but there is no vehicle {event.vehicle}, should be {ids}")
        if event.vehicle == owner:
            raise PlanError(
                f"events: {_text(event)}, but vehicle {owner} is the one that departs with the rare class, should be "
                "another one"
            )
        joins = event.kind == "join"
        if there.get(event.vehicle, not joins) == joins:
            where = "is there already" if joins else "has left already"
            raise PlanError(f"events: {_text(event)}, but vehicle {event.vehicle} {where}")
        there[event.vehicle] = joins


def _text(event: Event) -> str:
    return f"'{event.kind} {event.vehicle} {'at' if event.kind == 'join' else 'after'} {event.round}'"
