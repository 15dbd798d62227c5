r"""What is only rounding counts as zero: one rule for every covariance, by feature and by direction.

A covariance is a difference of sums, W = sum h h^T - sum_k n_k m_k m_k^T. Of a feature that is the same for all samples
(a dead unit, a constant) rounding alone is left of it, of either sign. With u the relative precision of the numbers
(2^-53, or 2^-24 where some have travelled as float32), N samples and q_j = sum h_j^2 about the origin, no entry of W is
wrong by more than

    level x sqrt(q_i q_j),   level = 4 u + (64 + N) 2^-52:

each number has been rounded to u, in the scatter and twice in the sums, and a sum of N terms is off by at most N
roundings, in whatever order they were added. So

- a feature j with W_jj <= level q_j has no variance: its row and column are zero;
- a direction has none where it has at most 2 sqrt(d) level in units of sqrt(q), that being the largest eigenvalue that
  errors of such a size make up by themselves. Only where such errors are large enough to matter is this looked for.

Both depend on samples, precision and sums, never on the order of merging. What has no variance takes part in distances
with what the ridge of Eq. (3) gives it, and with nothing else.
"""

import numpy as np
import scipy.linalg

from mpt.core.equations import regularize
from mpt.core.errors import StatisticsError
from mpt.core.linalg import cholesky_factor, gram
from mpt.core.validation import Floats

_NEGATIVE = 1e-3
"""Of the trace: a matrix with a more negative eigenvalue is no covariance, whatever was rounded."""


def rounding_level(samples: int, narrow: bool = False) -> float:
    """What an entry of W may be off by, as a fraction of sqrt(q_i q_j).

    Args:
        samples: N.
        narrow: whether some of the numbers have travelled as float32.
    """
    return 4 * (2.0**-24 if narrow else 2.0**-53) + (64 + samples) * 2.0**-52


def without_rounding(within: Floats, moments: Floats, level: float, harmless: float) -> Floats:
    """W (d, d) in which features and directions have no variance whose variance is only rounding.

    Args:
        within: W, symmetric; changed in place.
        moments: q (d,), the sums of squares that its diagonal was made from.
        level: see the head of this module.
        harmless: what an eigenvalue of W may be off by; directions are looked for only where it may be off by more.
    """
    varied = np.diag(within) > level * moments
    if not varied.all():
        within[~varied] = 0.0
        within[:, ~varied] = 0.0
    largest, total = float(moments[varied].max(initial=0)), float(moments[varied].sum())
    if 2 * level * np.sqrt(largest) * np.sqrt(total) <= harmless:
        return within
    places = np.ix_(varied, varied)
    within[places] = _varied_directions(within[places], np.sqrt(moments[varied]), level)
    return within


def _varied_directions(within: Floats, units: Floats, level: float) -> Floats:
    """W without the directions whose variance in `units` (d,) is at most 2 sqrt(d) level."""
    values, vectors = scipy.linalg.eigh(within / units / units[:, None], driver="evd", check_finite=False)
    kept = values > 2 * np.sqrt(len(units)) * level
    return gram(np.sqrt(values[kept])[:, None] * (vectors[:, kept].T * units))


def positive_part(matrix: Floats, name: str) -> Floats:
    """The nearest matrix (d, d) without negative eigenvalues; `StatisticsError` where that is not near."""
    size = abs(float(np.trace(matrix))) or 1.0
    values, vectors = scipy.linalg.eigh(matrix / size, driver="evd", check_finite=False)
    if values[0] < -_NEGATIVE:
        raise StatisticsError(
            f"{name}: not positive semi-definite, an eigenvalue is {values[0]:.1g} times the trace, "
            "should be those of a covariance"
        )
    kept = values > 0
    return size * gram(np.sqrt(values[kept])[:, None] * vectors[:, kept].T)


def regular_factor(
    matrix: Floats, ridge: float, name: str, wanted: str = "a larger cov_ridge, more samples, "
) -> Floats:
    """The lower Cholesky factor (d, d) of Eq. (3)'s S~ in Fortran order, for any covariance as rounding leaves it.

    Eigenvalues that rounding has left below what the ridge adds count as zero. Without a ridge there is nothing to hold
    a singular matrix up: that is a `StatisticsError`, for which `wanted` says what helps.
    """
    try:
        return cholesky_factor(regularize(matrix, ridge), name, wanted)
    except StatisticsError as error:
        if ridge == 0:
            raise
        try:
            positive = positive_part(matrix, name)
        except StatisticsError:
            raise error from None
    return cholesky_factor(regularize(positive, ridge), name, wanted)
