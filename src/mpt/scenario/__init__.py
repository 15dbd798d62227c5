"""Who is there when, and who holds what, as data: events, presences that are made or read, and whole scenarios."""

from mpt.scenario.drawing import lanes, text_lanes
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
from mpt.scenario.holdings import by_places, choose_holders, concentrated
from mpt.scenario.kinds import KINDS
from mpt.scenario.logbook import sessions
from mpt.scenario.makers import parking_lot, poisson, with_failures, with_goodbyes
from mpt.scenario.office import workplace
from mpt.scenario.presence import Presence, leaves_of, never_leaving, present_when
from mpt.scenario.presence_file import read_presence, write_presence
from mpt.scenario.spec import Played, Scenario, find_scenario, read_scenario, shipped_scenarios
from mpt.scenario.truth import absent_pairs, true_departures

__all__ = [
    "KINDS",
    "Event",
    "PlanError",
    "Played",
    "Presence",
    "Scenario",
    "absent_pairs",
    "by_places",
    "check_rounds",
    "check_vehicles",
    "choose_holders",
    "concentrated",
    "departure",
    "find_scenario",
    "lanes",
    "leaves_of",
    "left_after",
    "never_leaving",
    "parking_lot",
    "parse_events",
    "poisson",
    "present",
    "present_when",
    "read_presence",
    "read_scenario",
    "sessions",
    "shipped_scenarios",
    "text_lanes",
    "true_departures",
    "with_failures",
    "with_goodbyes",
    "workplace",
    "write_presence",
]
