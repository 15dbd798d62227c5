"""What is true of a presence, for scoring: which classes are away when, and who has left until when."""

import numpy as np

from mpt.scenario.events import PlanError
from mpt.scenario.makers import fraction
from mpt.scenario.presence import Bools, Ints, Presence


def absent_pairs(presence: Presence, counts: Ints, carry_share: float = 0.25) -> Bools:
    """(R, C): the rounds in which a class is away.

    It is where its holder, the vehicle with most of its samples and the first of several, is not there but was in a
    round before, and at most `carry_share` of its samples are on vehicles that are there. A class without samples
    never is.

    Args:
        presence: V vehicles over R rounds.
        counts: (V, C) samples of each class on each vehicle.
        carry_share: share of a class's samples up to which the vehicles that are there do not carry it.
    """
    held = _checked(presence, counts)
    fraction("carry_share", carry_share)
    holders = held.argmax(axis=0)
    been = np.zeros_like(presence.there)
    been[1:] = np.logical_or.accumulate(presence.there, axis=0)[:-1]
    away = ~presence.there[:, holders] & been[:, holders]
    carried = presence.there.astype(np.int64) @ held
    total = held.sum(axis=0)
    return np.asarray(away & (carried <= carry_share * total) & (total > 0), dtype=np.bool_)


def true_departures(presence: Presence, counts: Ints) -> list[tuple[int, int, int | None]]:
    """Each leave as (vehicle, its last round, the first round with it again or None), by round and vehicle.

    Nobody leaves after the last round. Vehicles without a sample (`counts` (V, C)) take nothing away and are left out.
    """
    held = _checked(presence, counts)
    leaves: list[tuple[int, int, int | None]] = []
    for vehicle in map(int, np.flatnonzero(held.sum(axis=1))):
        stays = presence.stays(vehicle)
        for place, (_, last) in enumerate(stays):
            if last < presence.rounds:
                leaves.append((vehicle, last, stays[place + 1][0] if place + 1 < len(stays) else None))
    return sorted(leaves, key=lambda leave: (leave[1], leave[0]))


def _checked(presence: Presence, counts: Ints) -> Ints:
    held, V = np.asarray(counts), len(presence.vehicles)
    if held.ndim != 2 or held.shape[0] != V or not held.shape[1] or held.dtype.kind not in "iu" or held.min() < 0:
        found = f"{held.dtype} of shape {held.shape}"
        raise PlanError(f"counts: {found}, should be whole numbers from 0 on of shape ({V}, classes), a row a vehicle")
    return held.astype(np.int64)
