"""Who is there when, as data: a list of events, of which the paper's single departure is one."""

from mpt.scenario.events import (
    Event,
    PlanError,
    check_rounds,
    check_vehicles,
    departure,
    left_after,
    parse_events,
    present,
)

__all__ = [
    "Event",
    "PlanError",
    "check_rounds",
    "check_vehicles",
    "departure",
    "left_after",
    "parse_events",
    "present",
]
