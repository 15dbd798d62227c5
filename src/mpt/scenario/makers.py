"""Presences that are made: the paper's parking lot, arrivals by a Poisson process, goodbyes and failures to answer."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from mpt.scenario.events import PlanError
from mpt.scenario.presence import Bools, Floats, Ints, Presence, leaves_of, named, present_when

# how many arrive by the time of day, from midnight (0) to midnight (1): none at night, most in the morning
_DAY = ((0.0, 0.0), (0.22, 0.0), (0.35, 1.0), (0.5, 0.45), (0.75, 0.3), (0.9, 0.0), (1.0, 0.0))
_WARM_UP = 5  # mean stays, or two days, that have gone by before round 1


def parking_lot(
    vehicles: Sequence[str] | int,
    rounds: int,
    leaves: Mapping[int, int],
    returns: Mapping[int, int] | None = None,
) -> Presence:
    """The paper's: everybody is there from the start, some vehicles leave after a round.

    Args:
        vehicles: their names, or how many.
        rounds: how many.
        leaves: for a vehicle's number its last round.
        returns: for the number of a vehicle that has left the first round with it again.
    """
    names = named(vehicles)
    there = np.ones((positive("rounds", rounds), len(names)), dtype=np.bool_)
    for vehicle, after in leaves.items():
        _known("leaves", vehicle, names)
        if not 1 <= after < rounds:
            raise PlanError(f"leaves: vehicle {vehicle} after round {after}, should be 1 to {rounds - 1}")
        there[after:, vehicle] = False
    for vehicle, back in (returns or {}).items():
        _known("returns", vehicle, names)
        if vehicle not in leaves:
            raise PlanError(f"returns: vehicle {vehicle}, should be one that leaves")
        if not leaves[vehicle] + 2 <= back <= rounds:
            raise PlanError(
                f"returns: vehicle {vehicle} in round {back}, should be {leaves[vehicle] + 2} to {rounds}, "
                f"as it leaves after round {leaves[vehicle]}"
            )
        there[back - 1 :, vehicle] = True
    return present_when(names, there)


def poisson(
    vehicles: Sequence[str] | int,
    rounds: int,
    rng: np.random.Generator,
    *,
    arrivals: float,
    stay: float,
    stays: Literal["exponential", "lognormal"] = "exponential",
    spread: float = 0.5,
    rhythm: float | None = None,
    least: int = 0,
) -> Presence:
    """A closed pool of vehicles: those that are away arrive by a Poisson process, stay, leave, and may come again.

    It has run for a while before round 1, so that round 1 is like the others. At least one is there in round 1.

    Args:
        vehicles: the pool's names, or how many.
        rounds: how many.
        rng: all draws come from it.
        arrivals: mean number of arrivals a round, over the pool; not more than are away.
        stay: mean number of rounds of a stay, at least 1.
        stays: how its length is spread.
        spread: deviation of the logarithm of a lognormal stay.
        rhythm: rounds of a day, of which round 1 begins at midnight; the arrivals follow a daily curve with none at
            night and most in the morning, and are `arrivals` on average over a day. None: the same at all times.
        least: vehicles that are there in each round; where there would be fewer, some stay longer.
    """
    names = named(vehicles)
    _check_poisson(arrivals, stay, stays, spread, rhythm)
    if not 0 <= least <= len(names):
        raise PlanError(f"least: {least}, should be 0 to {len(names)}, as many as vehicles")
    before = int(np.ceil(_WARM_UP * stay if rhythm is None else 2 * rhythm))
    rates = arrivals * _curve(before, positive("rounds", rounds), rhythm)
    there = np.zeros((before + rounds, len(names)), dtype=np.bool_)
    left = np.zeros(len(names), dtype=np.int64)  # rounds that each will still be there
    for row in range(before + rounds):
        away = np.flatnonzero(~there[row - 1]) if row else np.arange(len(names))
        come = min(int(rng.poisson(rates[row])), len(away))
        left[rng.choice(away, come, replace=False)] = _lengths(rng, come, stay, stays, spread)
        missing = max(least, row == before) - int((left > 0).sum())
        if missing > 0:
            order = rng.permutation(np.flatnonzero(left == 0))
            left[order[np.argsort(~there[row - 1, order], kind="stable")][:missing]] = 1
        there[row] = left > 0
        left = np.maximum(left - 1, 0)
    return present_when(names, there[before:])


def with_goodbyes(presence: Presence, share: float, rng: np.random.Generator) -> Presence:
    """The same, with this share of all leaves announced, drawn from them, in place of those that were."""
    return replace(presence, goodbye=_drawn("announced", leaves_of(presence), share, rng))


def with_failures(presence: Presence, share: float, rng: np.random.Generator) -> Presence:
    """The same, but this share of the (round, vehicle) that are there does not answer, in place of those that did not.

    A goodbye is a message of its own: it comes even where the answer does not.
    """
    return replace(presence, silent=_drawn("failing", presence.there, share, rng))


def positive(name: str, value: int) -> int:
    """A whole number of at least 1, or a sentence."""
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < 1:
        raise PlanError(f"{name}: {value!r}, should be a whole number of at least 1")
    return int(value)


def fraction(name: str, value: float) -> float:
    """A number from 0 to 1, or a sentence."""
    if not 0 <= value <= 1:
        raise PlanError(f"{name}: {value}, should be 0 to 1")
    return float(value)


def _drawn(name: str, among: Bools, share: float, rng: np.random.Generator) -> Bools:
    places = np.argwhere(among)
    chosen = rng.choice(len(places), round(fraction(name, share) * len(places)), replace=False)
    drawn = np.zeros_like(among)
    drawn[tuple(places[chosen].T)] = True
    return drawn


def _check_poisson(arrivals: float, stay: float, stays: str, spread: float, rhythm: float | None) -> None:
    if not 0 < arrivals < np.inf:
        raise PlanError(f"arrivals: {arrivals}, should be above 0, the mean number a round")
    if not 1 <= stay < np.inf:
        raise PlanError(f"stay: {stay}, should be at least 1, the mean number of rounds")
    if stays not in ("exponential", "lognormal"):
        raise PlanError(f"stays: {stays!r}, should be exponential or lognormal")
    if not 0 <= spread < np.inf:
        raise PlanError(f"spread: {spread}, should be at least 0")
    if rhythm is not None and not 2 <= rhythm < np.inf:
        raise PlanError(f"rhythm: {rhythm}, should be at least 2 rounds, or none")


def _curve(before: int, rounds: int, rhythm: float | None) -> Floats:
    """(before + rounds,) factors of mean 1 over a day; round 1, at place `before`, begins at midnight."""
    if rhythm is None:
        return np.ones(before + rounds)
    times, rates = np.array(_DAY).T
    mean = np.diff(times) @ (rates[1:] + rates[:-1]) / 2
    middle = (np.arange(-before, rounds) + 0.5) / rhythm % 1
    return np.asarray(np.interp(middle, times, rates) / mean, dtype=np.float64)


def _lengths(rng: np.random.Generator, count: int, mean: float, stays: str, spread: float) -> Ints:
    """(count,) rounds of stays, at least 1: geometric, which is the exponential in whole rounds, or lognormal."""
    if stays == "exponential":
        return rng.geometric(1 / mean, count).astype(np.int64)
    drawn = rng.lognormal(np.log(mean) - spread**2 / 2, spread, count)
    return np.maximum(1, np.floor(drawn + rng.random(count))).astype(np.int64)


def _known(what: str, vehicle: int, names: tuple[str, ...]) -> None:
    if not 0 <= vehicle < len(names):
        raise PlanError(f"{what}: there is no vehicle {vehicle}, should be 0 to {len(names) - 1}")
