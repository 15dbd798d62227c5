"""How much of what somebody claims is believed, by what is usual."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

MOST_SAMPLES = 3.0
"""Times what is usual: so many of one vehicle's samples count, whether they weigh its update or its report."""
ABSURD = 100.0
"""Times what is usual: a claim that large is not believed at all."""


def usual(samples: "Sequence[float] | np.ndarray[Any, Any]", *columns: Sequence[float]) -> tuple[float, ...]:
    """What is usual among vehicles: of their samples, and of further columns, the median by samples.

    Half of the samples are on vehicles with at least so many: a crowd with a sample each does not make that usual. Of V
    vehicles the sqrt(V) / 3 with most samples are left out, two of ten: a few that claim very many do not, either.
    Zeros where nobody has any.

    Example:
        >>> usual([1, 1, 1, 1, 1, 100, 120, 140, 10**9])
        (120.0,)
    """
    rows = np.array([samples, *columns], dtype=np.float64)
    rows = rows[:, rows[0] > 0]
    rows = rows[:, np.argsort(rows[0], kind="stable")]
    vehicles = rows.shape[1]
    if not vehicles:
        return (0.0,) * len(rows)
    kept = rows[:, : max(vehicles - math.ceil(math.sqrt(vehicles) / 3), 1)]
    return tuple(_median(column, kept[0]) for column in kept)


def _median(values: "np.ndarray[Any, Any]", weights: "np.ndarray[Any, Any]") -> float:
    """The least value such that half of the weights are at or below it."""
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(reached, reached[-1] / 2)])


def believed(claim: float, middle: float, most: float) -> float:
    """The share of a claim that counts, Eq. (G1): up to `most` times the usual one all of it, beyond it so much.

    From half of `ABSURD` times on it falls, and from that on it counts as the usual one. Where that is zero, nothing
    counts.

    Example:
        >>> [x * believed(x, middle=2.0, most=5.0) for x in (1.0, 8.0, 40.0, 1e9)]
        [1.0, 8.0, 10.0, 2.0]
    """
    if claim <= most * middle:
        return 1.0
    if middle <= 0:
        return 0.0
    times = claim / middle
    falling = most + (1 - most) * (2 * times / ABSURD - 1)
    return min(most, max(falling, 1.0)) / times
