r"""How far one vehicle can move what a fleet adds up: one function for each bound, Eq. (G1) to (G4).

What is merely unlikely is clipped, not refused: the only holder of a class is an outlier by nature. A vehicle's samples
of a class are moved as a whole, scatter less, or count as fewer. All of this is known from its sums, and what comes of
it are sums that some samples could have given.

Notation: V vehicles, C classes, feature dimension d; n_v samples of a class on vehicle v, n_o on all others. A
deviation is *whitened* by the lower Cholesky factor L of the pooled covariance S~ = L L^T, Eq. (3); where no covariance
is known, it is taken as it is.
"""

from functools import lru_cache

import numpy as np
import scipy
import scipy.linalg
from numpy.typing import NDArray

from mpt.core.health import whiten
from mpt.core.linalg import dot
from mpt.core.validation import Floats, Ints

Known = NDArray[np.bool_]

HOLDERS = 3
"""A class's means judge one another where so many vehicles have samples of it: two that agree outvote one."""

MOST_SPREAD = 2.0
"""Times the median vehicle's: the variance of a vehicle's samples about their class means counts up to here, (G2)."""

MOST_ENERGY = 1.5
"""Times the median vehicle's: from here on it is looked whether one direction of its scatter stands out, (G2)."""

_DROWNED, _MORE_DOUBT = 1e-3, 10.0
"""Of the median vehicle's variance, and times what rounding may leave of it: beyond both, a scatter is not known."""

RARE, SLACK = 1e-4, 1.5
"""Of Eq. (G3): samples that are Gaussian are beyond the bound with this chance; those of networks have so much more."""

OWN_OFFSET = 4.0
"""By how much a vehicle's squared bound grows at most that lies as far off in its other classes, Eq. (G3)."""

_GROSS = 1.5
"""Times the bound: from here on a deviation counts as none, Eq. (G4)."""
_STEPS = 12
"""Of the iteration for a geometric median."""


def no_majority(counts: Ints) -> Ints:
    """Eq. (G1): (V,), what each vehicle has, at most as much as all others have together; where they have none, all."""
    others = counts.sum() - counts
    return np.where((counts > others) & (others > 0), others, counts)


def capped_remaining(counts: Ints) -> Ints:
    """Eq. (G1): (V,), so many count of each vehicle's samples of a departed class: none has a majority, nor more than

    twice what the median holder has, where there are three. The more samples count, the further they move the mean.
    """
    holding = counts[counts > 0]
    most = 2 * int(np.ceil(np.median(holding))) if len(holding) >= HOLDERS else int(counts.sum())
    return np.minimum(no_majority(counts), most)


def spread_share(spread: Floats, middle: float) -> Floats:
    """Eq. (G2), first part: the factor for a vehicle's scatter about its class means, given its variance a sample.

    Up to twice the median vehicle's all of it counts, beyond it ever less, and from three times on as the median's.
    """
    if middle <= 0:
        return np.where(np.isinf(spread), 0.0, 1.0)
    x = np.nan_to_num(spread / (MOST_SPREAD * middle), nan=0.0, posinf=np.inf)
    effective = np.maximum(1 - (x - 1) / (_GROSS - 1) * (1 - 1 / MOST_SPREAD), 1 / MOST_SPREAD)
    return np.where(x > 1, effective / np.maximum(x, 1.0), 1.0)


def known_spread(spread: Floats, doubt: Floats, usual: tuple[float, float]) -> Floats:
    """Eq. (G2): the variance a sample (V,), infinite where features lie so far off that rounding hides it.

    Sums of such features are right to a fraction of where they lie, and leave a scatter about their means that is
    nobody's: of either sign, and larger than what everybody else's features have. None of it counts.

    Args:
        spread: of each vehicle.
        doubt: what of it may be rounding.
        usual: the median vehicle's of both.
    """
    middle, left = usual
    return np.where(doubt > max(_DROWNED * middle, _MORE_DOUBT * left), np.inf, spread)


def direction_share(within: Floats, samples: float, others: float, factor: Floats) -> float:
    r"""Eq. (G2), second part: the factor for a vehicle's scatter W (d, d) that stands far out in one direction.

    With lambda the largest eigenvalue of L^-1 (W / n) L^-T, in units of the pooled covariance with W in it, that in
    units of the others' alone is (1 - w) lambda / (1 - w lambda), w = n / (n + others). It may be

        2 (1 + sqrt(d / n))^2 (1 - sqrt(d / o))^-2,

    twice the largest that n samples of the same covariance have in units of that of o others; where it is more, all of
    W counts by so much less. Without others there is nothing that it could stand out from.

    Args:
        within: W, about the vehicle's own class means.
        samples: n, its degrees of freedom.
        others: o, those of the others.
        factor: L (d, d).
    """
    d = len(within)
    scaled = whiten(whiten(within / samples, factor).T, factor)
    largest = float(scipy.linalg.eigvalsh((scaled + scaled.T) / 2, driver="evd", check_finite=False)[-1])
    share = samples / (samples + others)
    left = 1 - share * largest
    most = 2 * (1 + np.sqrt(d / samples)) ** 2 / max(1 - np.sqrt(d / max(others, 1.0)), 0.5) ** 2
    if others <= 0 or left * most >= (1 - share) * largest:
        return 1.0
    return float(max(most * left, 0.0) / ((1 - share) * largest))


def chance(counts: Floats | Ints, others: Floats | Ints) -> Floats:
    """1 / n_v + 1 / n_o: the variance of the difference of two means, in units of a sample's; inf without both."""
    with np.errstate(divide="ignore"):
        return 1 / np.asarray(counts, dtype=np.float64) + 1 / np.asarray(others, dtype=np.float64)


def bounds(squares: Floats, usual: Floats, known: Known, dimensions: int) -> Floats:
    r"""Eq. (G3): r^2, how long a whitened deviation x of a vehicle's mean may be, squared. (V, C)

        r^2 = 1.5 chi^2_k(.9999) / chi^2_k(.5) u + min(1.5 o_v, three times that),   u = s k (1/n_v + 1/n_o),

    u is what is usual in k dimensions: s is the median of |x|^2 / (k (1/n_v + 1/n_o)) over all vehicles and classes, so
    that a fleet whose vehicles differ has larger bounds. o_v is the vehicle's own offset, the median over its classes
    of what |x|^2 is beyond the usual: one that lies off in all of them, by its camera say, has a larger bound.

    Args:
        squares: |x|^2 (V, C).
        usual: u (V, C).
        known: (V, C), where these are known.
        dimensions: k; fewer where a deviation is not whitened, so that few directions have most of its length.
    """
    most = SLACK * beyond_median(dimensions) * usual
    beyond = np.where(known, np.maximum(squares - usual, 0.0), np.nan)
    own = np.where(known.sum(axis=1) >= HOLDERS, middle(beyond.T), 0.0)
    return most + np.minimum(SLACK * own[:, None], (OWN_OFFSET - 1) * most)


def half_way(values: Floats) -> float:
    """The median of values (n,), none of them NaN; 0 of none."""
    if not len(values):
        return 0.0
    ordered = np.sort(values)
    return float(ordered[(len(values) - 1) // 2] + ordered[len(values) // 2]) / 2


def middle(values: Floats) -> Floats:
    """The median along the first axis of what is not NaN; NaN where nothing is. Faster than `np.nanmedian`."""
    ordered = np.sort(values, axis=0)
    if not np.isnan(ordered[-1]).any():
        return np.asarray((ordered[(len(values) - 1) // 2] + ordered[len(values) // 2]) / 2)
    columns = ordered.reshape(len(ordered), -1)
    known, places = np.sum(~np.isnan(columns), axis=0), np.arange(columns.shape[1])
    low, high = np.maximum(known - 1, 0) // 2, np.minimum(known // 2, len(ordered) - 1)
    return np.asarray((columns[low, places] + columns[high, places]) / 2).reshape(values.shape[1:])


@lru_cache(maxsize=64)
def beyond_median(dimensions: int) -> float:
    """chi^2_k(1 - RARE) / chi^2_k(.5): how many times its median a squared length rarely is, in k dimensions."""
    half, inverse = max(dimensions, 1) / 2, scipy.special.gammainccinv  # which SciPy imports when it is asked for
    return float(inverse(half, RARE) / inverse(half, 0.5))


def redescending(ratio: Floats) -> Floats:
    """Eq. (G4): the share of a deviation that counts, given how many times its bound it is long.

    Up to the bound all of it counts, beyond it ever less, and from 1.5 times the bound on nothing: a larger lie is
    worth less. The way that counts is continuous in the way that was reported.
    """
    x = np.maximum(ratio, 1.0)
    return np.asarray(np.maximum(_GROSS - x, 0.0) / ((_GROSS - 1) * x))


def geometric_median(points: Floats, counts: Ints) -> Floats:
    """The point (d,) with the least weighted sum of distances to `points` (H, d): where half of them agree, that is it.

    Weiszfeld's iteration from the median of each coordinate. A point counts by its samples (H,), at most as much as the
    median one, so that no claim of many samples is a majority.
    """
    weights = _votes(counts)
    middle: Floats = np.median(points, axis=0)
    for _ in range(_STEPS):
        far = np.linalg.norm(points - middle, axis=1)
        pull = weights / np.maximum(far, 1e-9 * float(np.median(far)) + 1e-300)
        middle = dot(pull / pull.sum(), points)
    return middle


def median_samples(counts: Ints) -> float:
    """(sum of w)^2 / sum of w^2 / n: how many samples know a mean as well as the geometric median of means of n (H,).

    Example:
        >>> round(median_samples(np.array([1000, 2, 2, 2, 2])), 1)
        12.5
    """
    weights = _votes(counts)
    return float(weights.sum() ** 2 / np.sum(weights**2 / counts))


def _votes(counts: Ints) -> Floats:
    """(H,): how much each mean counts in a geometric median."""
    return np.minimum(counts, np.median(counts))
