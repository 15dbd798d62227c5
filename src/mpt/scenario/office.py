"""A presence like that of a car park at work, made by us after figures of real charging sessions."""

from collections.abc import Sequence

import numpy as np

from mpt.scenario.events import PlanError
from mpt.scenario.makers import fraction, positive
from mpt.scenario.presence import Bools, Floats, Presence, named, present_when

_WEEK = ("Mon", "Tue", "Wed", "Thu", "Fri")
_BUSY = np.array([1.02, 1.1, 1.07, 1.06, 0.77])  # visits by weekday, over their mean
_REGULAR, _OCCASIONAL = (2.6, 2.9), (3.0, 17.0)  # Beta: share of days with a visit, means .47 and .15
_STEADY = 1.5  # how much a vehicle keeps to its own weekdays: small, always the same ones


def workplace(
    vehicles: Sequence[str] | int,
    days: int,
    rng: np.random.Generator,
    *,
    regulars: float = 0.59,
    stops: float = 0.04,
    holidays: float = 0.35,
    places: int = 12,
    least: int = 1,
) -> Presence:
    """Vehicles of people who work there, a round a working day: regulars, occasional ones, holidays, some stop coming.

    The shape follows ACN-Data's sessions at Caltech, January 2019 to February 2020, in windows of 60 working days,
    vehicles with at least 5 visits. Theirs, and ours with 60 vehicles and 20 seeds:

        vehicles that come on at least a quarter of the days    59%    61%
        share of days on which these come                       49%    48%
        share of days on which the others come                  15%    16%
        visits on a Friday, over the mean of the weekdays       77%    78%
        comes on the working day after a visit                  56%    47%
        longest absence, median                                8 days 9 days
        vehicles with an absence of 10 days or more             37%    42%
        stop for good 10 days or more before the end             4%    `stops`

    A vehicle's favourite charger has 17% of its visits there in the median, of 52; with 12 places ours has 44%.

    Args:
        vehicles: their names, or how many.
        days: working days, from a Monday on.
        rng: all draws come from it.
        regulars: share of the vehicles that come often, rounded to whole vehicles.
        stops: share that stops coming for good between a quarter and three quarters of the days, likewise, of the
            regulars first.
        holidays: share that is away for a while, 5 to 15 working days and at most a third of all, likewise.
        places: chargers.
        least: vehicles that come on each day, those that have not stopped; where it would be fewer, the likeliest do.

    Returns:
        `visits` count the days by charger. Each vehicle comes at least once.
    """
    names = named(vehicles)
    V, D = len(names), positive("days", days)
    often = np.arange(V) < round(fraction("regulars", regulars) * V)
    often = often[rng.permutation(V)]
    habits = np.where(often, rng.beta(*_REGULAR, V), rng.beta(*_OCCASIONAL, V))
    chances = np.minimum(0.98, _by_weekday(habits, rng)[np.arange(D) % 5])
    there = rng.random((D, V)) < chances
    employed = _employed(often, D, stops, rng)
    free = _on_holiday(V, D, holidays, rng)
    there &= employed & ~free
    if not 0 <= least <= V:
        raise PlanError(f"least: {least}, should be 0 to {V}, as many as vehicles")
    _fill(there, np.where(free, 0.01, 1) * (chances + 0.01) * employed, least)
    weeks = [f"week {day // 5 + 1} {_WEEK[day % 5]}" for day in range(D)]
    likes = rng.dirichlet(np.full(positive("places", places), 0.3), size=V)
    visits = rng.multinomial(there.sum(axis=0), likes).astype(np.int64)
    return present_when(names, there, labels=weeks, visits=visits, places=[f"charger {p + 1}" for p in range(places)])


def _by_weekday(habits: Floats, rng: np.random.Generator) -> Floats:
    """(5, V): the chance of a visit on each weekday; each vehicle has its own weekdays."""
    own = rng.beta(_STEADY * habits, _STEADY * (1 - habits), size=(len(_WEEK), len(habits)))
    return np.asarray(own * _BUSY[:, None], dtype=np.float64)


def _employed(often: Bools, days: int, stops: float, rng: np.random.Generator) -> Bools:
    """(D, V): up to the day on which a vehicle stops coming."""
    count = round(fraction("stops", stops) * len(often))
    order = rng.permutation(len(often))
    order = order[np.argsort(~often[order], kind="stable")]
    employed = np.ones((days, len(often)), dtype=np.bool_)
    for vehicle in order[:count]:
        employed[int(days * rng.uniform(0.25, 0.75)) :, vehicle] = False
    return employed


def _on_holiday(vehicles: int, days: int, holidays: float, rng: np.random.Generator) -> Bools:
    """(D, V): a block of days for each vehicle that has one, neither in the first sixth nor in the last."""
    free = np.zeros((days, vehicles), dtype=np.bool_)
    for vehicle in rng.permutation(vehicles)[: round(fraction("holidays", holidays) * vehicles)]:
        length = min(int(rng.integers(5, 16)), days // 3)
        begin = days // 6 + int(rng.integers(0, days - length - 2 * (days // 6) + 1))
        free[begin : begin + length, vehicle] = True
    return free


def _fill(there: Bools, chances: Floats, least: int) -> None:
    """On a day with too few the likeliest come after all, and one that never does on its likeliest day."""
    for day in np.flatnonzero(there.sum(axis=1) < least):
        order = np.argsort(-(chances[day] + there[day]), kind="stable")[:least]
        there[day, order] = chances[day, order] > 0
    never = np.flatnonzero(~there.any(axis=0))
    there[chances[:, never].argmax(axis=0), never] = True
