"""What features of no samples could have given: answers that are refused.

Only that: whatever some samples could have given is let through here, however unlikely it is. A class's only holder is
an outlier by nature.
"""

from collections.abc import Callable

import numpy as np

from mpt.core import ClassStatistics, CrossStatistics, StatisticsError
from mpt.core.equations import outside
from mpt.core.linalg import gram
from mpt.core.rounding import rounding_level
from mpt.core.validation import Floats

_LARGEST = {"sums": 1e18, "earlier": 1e18, "squares": 1e36, "scatter": 1e36, "gram": 1e36, "cross": 1e36}
_MOST_SAMPLES = 10**8
_ROUNDING = 1e-3
_HALVES = 1e-2
"""What may be off where float16 numbers are squared."""
_FLUSHED = 1e-4
"""Of the largest of float16 numbers: what the small ones beside it may be off by."""
_PROJECTED = 1e-9
"""Of a squared length: what projecting off a span may leave of it, once sums have travelled as float32."""
_SMALLEST = 1e-30
_LOST = 2.0**-146
"""What a number may have been that float32 has made zero."""


def check_statistics(
    stats: ClassStatistics, name_of: Callable[[int], str] = str, *, basis: Floats | None = None, unit: bool = False
) -> None:
    """Sizes are possible, and counts, sums, squares and scatter are of the same samples:

    |sum h|^2 <= n sum |h|^2 for every class, outside the span where one was sent; the scatter's trace is the sum of the
    squares, and what is left of it about the class means has no negative eigenvalue. Features of unit length have
    squares of at most n.

    Args:
        stats: of one vehicle, about the request's span and origin.
        name_of: names classes.
        basis: (d, r), an orthonormal basis of the request's span; None where it has none.
        unit: whether features of unit length were asked for.
    """
    _check_sizes(stats)
    if stats.counts.max() > _MOST_SAMPLES:
        raise StatisticsError(f"answer: {stats.counts.max()} samples of a class, should be at most {_MOST_SAMPLES}")
    if unit and np.any(stats.squares > stats.counts * (1 + _ROUNDING)):
        c = int(np.argmax(stats.squares - stats.counts))
        found, name = f"{stats.squares[c]:.3g}", name_of(c)
        raise StatisticsError(f"answer: squares of class {name} are {found}, of unit length at most {stats.counts[c]}")
    n = np.maximum(stats.counts, 1)
    sums = stats.sums if basis is None else outside(stats.sums, basis)
    least, left = np.sum(sums**2, axis=1) / n, 0.0 if basis is None else _PROJECTED * np.sum(stats.sums**2, axis=1) / n
    if np.any(least > stats.squares * (1 + _ROUNDING) + left + _SMALLEST):
        c = int(np.argmax(least - stats.squares))
        found, name = f"{stats.squares[c]:.3g}", name_of(c)
        raise StatisticsError(f"answer: squares of class {name} are {found}, its sums need {least[c]:.3g}")
    if stats.scatter is not None:
        if stats.span is None:
            expected, trace = float(np.delete(stats.squares, stats.watched).sum()), float(np.trace(stats.scatter))
            if abs(trace - expected) > _ROUNDING * max(expected, trace) + _SMALLEST:
                why = f"the scatter's trace is {trace:.3g}, its squares add up to {expected:.3g}"
                raise StatisticsError(f"answer: {why}")
        pooled = stats.reference_classes
        scaled = stats.sums[pooled] / np.sqrt(stats.counts[pooled])[:, None]
        level = rounding_level(int(stats.counts.sum()), stats.narrow)
        _check_moments_of_samples(stats.scatter, scaled, level, "scatter")


def check_moments(moments: CrossStatistics, stats: ClassStatistics, name_of: Callable[[int], str] = str) -> None:
    """Cross moments and statistics belong to the same samples: same counts and sums of h; the gram is one about their

    earlier sums; and |sum a z_i h_j|^2 <= sum a z_i^2 sum a h_j^2, of which the latter is known up to the largest a.
    """
    _check_sizes(moments)
    if not np.array_equal(moments.counts, stats.counts):
        raise StatisticsError("answer: the counts of the cross moments are not those of the statistics")
    n, a = np.maximum(stats.counts, 1), moments.weights
    apart = np.sum((moments.sums - stats.sums) ** 2, axis=1)
    if np.any(apart > _ROUNDING**2 * n * stats.squares + _SMALLEST):
        name = name_of(int(np.argmax(apart)))
        raise StatisticsError(f"answer: the sums of class {name} in the cross moments are not those of the statistics")
    scaled = moments.earlier * np.sqrt(a / n)[:, None]
    _check_moments_of_samples(
        moments.gram, scaled, rounding_level(int(stats.counts.sum()), moments.narrow), "gram of the cross moments"
    )
    if stats.scatter is None or stats.span is not None:
        lengths = np.full(stats.dim, float(a @ stats.squares))
    else:
        lengths = a.max(initial=0) * (stats.scatter.diagonal() + stats.squares[list(stats.watched)].sum())
    most = np.sqrt(np.outer(moments.gram.diagonal(), lengths)) * (1 + _HALVES)
    if np.any(np.abs(moments.cross) > most + _FLUSHED * np.abs(moments.cross).max() + _SMALLEST):
        raise StatisticsError("answer: the cross moments are larger than features of these lengths can give")
    total = float(np.trace(moments.gram)) * min(float(a @ stats.squares), float(lengths.sum()))
    if float(np.sum(moments.cross**2)) > total * (1 + _HALVES) + _SMALLEST:
        raise StatisticsError("answer: the cross moments are larger than features of these lengths can give")


def _check_sizes(stats: ClassStatistics | CrossStatistics) -> None:
    for name, most in _LARGEST.items():
        values = getattr(stats, name, None)
        if values is not None and np.abs(values).max() > most:
            raise StatisticsError(f"answer: {name} up to {np.abs(values).max():.1e}, should be below {most:.0e}")


def _check_moments_of_samples(moments: Floats, scaled: Floats, level: float, name: str) -> None:
    """Refuse a (d, d) matrix that is no sum of x x^T over samples with these class sums: in units of its diagonal no
    entry is beyond 1, and without what the class means account for it has no eigenvalue below what rounding makes.

    Args:
        moments: sum of x x^T, symmetric.
        scaled: (K, d), the sums of x of each class over the root of its weight.
        level: of `rounding_level`.
        name: for the sentence.
    """
    d, units = len(moments), np.sqrt(moments.diagonal() + _LOST)
    inside = moments / units / units[:, None]
    if np.abs(inside).max() > 1 + 8 * level:
        raise StatisticsError(f"answer: the {name} has entries beyond what its diagonal allows")
    inside -= gram(scaled / units)
    inside.flat[:: d + 1] += 2 * d * level + _LOST / units**2
    try:
        np.linalg.cholesky(inside)
    except np.linalg.LinAlgError:
        raise StatisticsError(f"answer: the {name} has negative eigenvalues, no samples give such a one") from None
