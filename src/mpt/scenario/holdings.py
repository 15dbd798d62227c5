"""Who holds which share of each class: (V, C) arrays whose columns add up to 1."""

from collections.abc import Mapping
from itertools import pairwise

import numpy as np

from mpt.scenario.events import PlanError
from mpt.scenario.makers import fraction, positive
from mpt.scenario.presence import Floats, Ints, Presence


def concentrated(
    vehicles: int, classes: int, holders: Mapping[int, int], remaining: float = 0.02, base: Floats | None = None
) -> Floats:
    """(V, C): some classes on one vehicle each but for what remains, the others spread evenly.

    Args:
        vehicles: how many, V.
        classes: how many, C.
        holders: for the number of a class the vehicle that holds it; one vehicle may hold several.
        remaining: share of a held class on the other vehicles, evenly.
        base: (V, C) shares of the other classes; None: even.
    """
    V, C = positive("vehicles", vehicles), positive("classes", classes)
    if base is not None and np.shape(base) != (V, C):
        raise PlanError(f"holdings: base has shape {np.shape(base)}, should be {(V, C)}, vehicles by classes")
    shares = np.full((V, C), 1 / V) if base is None else np.array(base, dtype=np.float64)
    fraction("remaining", remaining)
    if holders and V < 2:
        raise PlanError("holders: one vehicle, should be at least 2 where a class is concentrated on one")
    for number, vehicle in holders.items():
        if not (0 <= number < C and 0 <= vehicle < V):
            raise PlanError(
                f"holders: class {number} on vehicle {vehicle}, should be a class from 0 to {C - 1} "
                f"and a vehicle from 0 to {V - 1}"
            )
        shares[:, number] = remaining / (V - 1)
        shares[vehicle, number] = 1 - remaining
    return shares


def by_places(visits: Ints, classes: int, rng: np.random.Generator, concentration: float = 0.3) -> Floats:
    """(V, C): each place has its own mix of classes, and a vehicle's share follows from how often it was where.

    Args:
        visits: (V, P) how often each vehicle was at each place. One that was nowhere holds nothing.
        classes: how many, C.
        rng: the places' mixes come from it.
        concentration: of the Dirichlet distribution of a place's mix; small: few classes at each place.
    """
    counts = np.asarray(visits, dtype=np.float64)
    if counts.ndim != 2 or not counts.sum() > 0 or counts.min() < 0:
        raise PlanError(
            f"holdings: visits of shape {counts.shape}, should be (vehicles, places), from 0 on, not all of them 0"
        )
    if not 0 < concentration < np.inf:
        raise PlanError(f"concentration: {concentration}, should be above 0")
    mixes = rng.dirichlet(np.full(positive("classes", classes), concentration), size=counts.shape[1])
    held = counts @ mixes
    held[:, held.sum(axis=0) <= 0] = counts.sum(axis=1, keepdims=True)  # a class that is at no visited place
    return np.asarray(held / held.sum(axis=0), dtype=np.float64)


def choose_holders(presence: Presence, count: int) -> tuple[int, ...]:
    """So many different vehicles whose absence matters: the first leaves for good, the next comes back, and so on.

    Of those that leave for good the one comes first that is there for long and away for long; of those that come back
    the one with a long absence between a long time there and another. Where no more leave or come back, those that are
    there most.
    """
    V = len(presence.vehicles)
    if not 0 <= count <= V:
        raise PlanError(f"holders: {count} classes each on one vehicle, should be at most {V}, as many as vehicles")
    gone, back = _away_for_good(presence), _away_and_back(presence)
    most = np.argsort(-presence.there.sum(axis=0), kind="stable")
    chosen: list[int] = []
    for place in range(count):
        wanted = (gone, back) if place % 2 == 0 else (back, gone)
        ranked = [vehicle for scores in wanted for vehicle in _best_first(scores)] + [int(v) for v in most]
        chosen.append(next(vehicle for vehicle in ranked if vehicle not in chosen))
    return tuple(chosen)


def _best_first(scores: list[int]) -> list[int]:
    return sorted((v for v, score in enumerate(scores) if score), key=lambda v: (-scores[v], v))


def _away_for_good(presence: Presence) -> list[int]:
    """For each vehicle the rounds there, or the rounds after the last of them, whichever is less."""
    scores = []
    for vehicle in range(len(presence.vehicles)):
        stays = presence.stays(vehicle)
        after = presence.rounds - stays[-1][1] if stays else 0
        scores.append(min(int(presence.there[:, vehicle].sum()), after))
    return scores


def _away_and_back(presence: Presence) -> list[int]:
    """For each vehicle the least of an absence's rounds and the rounds there before and after it; of its best one."""
    scores = []
    for vehicle in range(len(presence.vehicles)):
        stays, before, best = presence.stays(vehicle), 0, 0
        total = int(presence.there[:, vehicle].sum())
        for (first, last), (following, _) in pairwise(stays):
            before += last - first + 1
            best = max(best, min(before, following - last - 1, total - before))
        scores.append(best)
    return scores
