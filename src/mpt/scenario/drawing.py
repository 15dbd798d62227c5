"""Who is there when, for charts and for a terminal."""

import numpy as np

from mpt.scenario.events import PlanError
from mpt.scenario.presence import Presence


def lanes(presence: Presence) -> list[tuple[str, int, int]]:
    """The stays as (vehicle's name, first round, last round), vehicle by vehicle; one never there has none."""
    return [(name, *stay) for vehicle, name in enumerate(presence.vehicles) for stay in presence.stays(vehicle)]


def text_lanes(presence: Presence, width: int = 80) -> str:
    """A line for each vehicle, at most `width` characters wide.

    A line for there, a dot for away, x for silent, > for a goodbye. Where there are more rounds than columns, a column
    stands for several and shows the most special of them.

    Example:
        >>> from mpt.scenario import parking_lot
        >>> print(text_lanes(parking_lot(2, 6, {0: 2}, {0: 5})))
        v1  ━━··━━
        v2  ━━━━━━
    """
    name_width = max(map(len, presence.vehicles))
    room = width - name_width - 2
    if room < 1:
        raise PlanError(f"width: {width}, should be at least {name_width + 3}, as the longest name has {name_width}")
    rank = np.select([presence.goodbye, presence.silent, presence.there], [3, 2, 1], 0)
    columns = min(room, presence.rounds)
    starts = np.arange(columns) * presence.rounds // columns
    shown = np.maximum.reduceat(rank, starts, axis=0)
    signs = np.array(["·", "━", "x", ">"])
    return "\n".join(
        f"{name:<{name_width}}  {''.join(signs[shown[:, vehicle]])}" for vehicle, name in enumerate(presence.vehicles)
    )
