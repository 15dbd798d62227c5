"""What features of no samples could have given: answers that are refused."""

import numpy as np

from mpt.core import ClassStatistics, CrossStatistics, StatisticsError
from mpt.tracking.settings import TrackerSettings

_LARGEST = {"sums": 1e18, "earlier": 1e18, "squares": 1e36, "scatter": 1e36, "gram": 1e36, "cross": 1e36}
_MOST_SAMPLES = 10**8
_ROUNDING = 1e-3
_HALVES = 1e-2
"""What may be off where float16 numbers are squared."""
_SMALLEST = 1e-30


def _check_sizes(stats: ClassStatistics | CrossStatistics) -> None:
    for name, most in _LARGEST.items():
        values = getattr(stats, name, None)
        if values is not None and np.abs(values).max() > most:
            raise StatisticsError(f"answer: {name} up to {np.abs(values).max():.1e}, should be below {most:.0e}")


def check_moments(moments: CrossStatistics, stats: ClassStatistics, settings: TrackerSettings) -> None:
    """Cross moments and statistics belong to the same samples: same counts and sums of h, and

    |sum a z h^T|^2 <= sum a |z|^2 sum a |h|^2,   sum_k a |sum z|^2 / n <= sum a |z|^2.
    """
    _check_sizes(moments)
    if not np.array_equal(moments.counts, stats.counts):
        raise StatisticsError("answer: the counts of the cross moments are not those of the statistics")
    n, a = np.maximum(stats.counts, 1), moments.weights
    apart = np.sum((moments.sums - stats.sums) ** 2, axis=1)
    if np.any(apart > _ROUNDING**2 * n * stats.squares + _SMALLEST):
        name = settings.name_of(int(np.argmax(apart)))
        raise StatisticsError(f"answer: the sums of class {name} in the cross moments are not those of the statistics")
    trace, least = float(np.trace(moments.gram)), float(a @ (np.sum(moments.earlier**2, axis=1) / n))
    if least > trace * (1 + _ROUNDING) + _SMALLEST:
        raise StatisticsError(f"answer: the gram's trace is {trace:.3g}, its earlier sums need {least:.3g}")
    if float(np.sum(moments.cross**2)) > trace * float(a @ stats.squares) * (1 + _HALVES) + _SMALLEST:
        raise StatisticsError("answer: the cross moments are larger than features of these lengths can give")


def check_statistics(stats: ClassStatistics, settings: TrackerSettings, *, unit: bool = False) -> None:
    """Sizes are possible, and squares and scatter belong to the same samples:

    |sum h|^2 <= n sum |h|^2, and the scatter's trace is that sum. Features of unit length have squares of at most n.
    """
    _check_sizes(stats)
    if stats.counts.max() > _MOST_SAMPLES:
        raise StatisticsError(f"answer: {stats.counts.max()} samples of a class, should be at most {_MOST_SAMPLES}")
    if unit and np.any(stats.squares > stats.counts * (1 + _ROUNDING)):
        c = int(np.argmax(stats.squares - stats.counts))
        found, name = f"{stats.squares[c]:.3g}", settings.name_of(c)
        raise StatisticsError(f"answer: squares of class {name} are {found}, of unit length at most {stats.counts[c]}")
    if stats.span is not None:
        return
    least = np.sum(stats.sums**2, axis=1) / np.maximum(stats.counts, 1)
    if np.any(least > stats.squares * (1 + _ROUNDING) + _SMALLEST):
        c = int(np.argmax(least - stats.squares))
        found, name = f"{stats.squares[c]:.3g}", settings.name_of(c)
        raise StatisticsError(f"answer: squares of class {name} are {found}, its sums need {least[c]:.3g}")
    if stats.scatter is not None:
        expected, trace = float(np.delete(stats.squares, stats.watched).sum()), float(np.trace(stats.scatter))
        if abs(trace - expected) > _ROUNDING * max(expected, trace) + _SMALLEST:
            raise StatisticsError(f"answer: the scatter's trace is {trace:.3g}, its squares add up to {expected:.3g}")
