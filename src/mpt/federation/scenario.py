"""Who is there when: a scenario is a list of events, of which the paper's single departure is one."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal


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
