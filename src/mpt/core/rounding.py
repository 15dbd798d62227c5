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
  errors of such a size make up by themselves. Only where such errors are large enough to matter is this looked for;
- a feature whose class means differ by at most twice level of their distance from the origin has one mean.

All depend on samples, precision and sums, never on the order of merging. What has no variance takes part in distances
with what the ridge of Eq. (3) gives it, and with nothing else.
"""

import numpy as np
import scipy.linalg

from mpt.core.equations import regularize
from mpt.core.errors import StatisticsError
from mpt.core.linalg import cholesky_factor, dot, gram
from mpt.core.validation import Floats

_PROJECTED = (64 * 2.0**-52) ** 2
"""Of a squared length: what projecting off a span may leave of it."""

_NEGATIVE = 1e-3
"""Of the trace: a matrix with a more negative eigenvalue is no covariance, whatever was rounded."""


def rounding_level(samples: int, narrow: bool = False) -> float:
    """What an entry of W may be off by, as a fraction of sqrt(q_i q_j).

    Args:
        samples: N.
        narrow: whether some of the numbers have travelled as float32.
    """
    return 4 * (2.0**-24 if narrow else 2.0**-53) + (64 + samples) * 2.0**-52


def without_rounding(
    within: Floats,
    moments: Floats,
    level: float,
    *,
    ridge: float,
    between: float = 0.0,
    beside: Floats | None = None,
) -> None:
    """Take out of W (d, d), in place, the features and directions whose variance is only rounding.

    Args:
        within: W, symmetric.
        moments: q (d,), the sums of squares that its diagonal was made from.
        level: of `rounding_level`.
        ridge: what will be added to the eigenvalues, relative to their mean, as in Eq. (3). Directions are looked for
            where eigenvalues may be off by more than a tenth of it.
        between: what else than W's trace that mean is of.
        beside: (d, m) or None, a matrix whose rows belong to the same features; they and the directions are taken out
            of it too.
    """
    varied = np.diag(within) > level * moments
    if not varied.all():
        within[~varied] = 0.0
        within[:, ~varied] = 0.0
        if beside is not None:
            beside[~varied] = 0.0
    if not varied.any():
        return
    largest, total = float(moments[varied].max()), float(moments[varied].sum())
    size = (float(np.trace(within)) + between) / len(within)
    if 2 * level * np.sqrt(largest) * np.sqrt(total) <= ridge / 10 * size:
        return
    places, units = np.ix_(varied, varied), np.sqrt(moments[varied])
    basis, values = _varied_directions(within[places] / units / units[:, None], level)
    within[places] = gram(np.sqrt(values)[:, None] * (basis.T * units))
    if beside is not None:
        rows = beside[varied] / units[:, None]
        beside[varied] = dot(basis, dot(basis.T, rows)) * units[:, None]


def _varied_directions(within: Floats, level: float) -> tuple[Floats, Floats]:
    """Of W in units of sqrt(q): an orthonormal basis (d, r) of the directions with variance, and how much each has."""
    values, vectors = scipy.linalg.eigh(within, driver="evd", check_finite=False)
    kept = values > 2 * np.sqrt(len(within)) * level
    return np.ascontiguousarray(vectors[:, kept]), values[kept]


def steady(means: Floats, origin: Floats, level: float) -> Floats:
    """Means (K, d) in which features that differ between the K by rounding alone are the same for all of them.

    A mean is a sum about `origin` (d,) over a count: it is right to `level` of its distance from there.
    """
    off = level * np.abs(means - origin).max(axis=0)
    same = np.ptp(means, axis=0) <= 2 * off
    if not same.any():
        return means
    made = means.copy()
    made[:, same] = means[:, same].mean(axis=0)
    return made


def span_tilt(rows: Floats, origin: Floats, level: float) -> float:
    """The angle by which the span of K prototypes (K, d) may be turned: what they are off by over the smallest of their
    singular values that is more than that. Each is right to `level` of its distance from `origin` (d,)."""
    off = level * np.sqrt(len(rows)) * float(np.linalg.norm(rows - origin, axis=1).max())
    values = scipy.linalg.svdvals(rows, check_finite=False)
    kept = values[values > off]
    return off / float(kept[-1]) if len(kept) else 0.0


def projection_rounding(squares: Floats, whole: Floats) -> Floats:
    """Squares (C,) of what lies outside a span, zero where that is what projecting features of `whole` leaves."""
    return np.where(squares <= _PROJECTED * whole, 0.0, squares)


def positive_part(matrix: Floats, name: str, most: float = _NEGATIVE) -> Floats:
    """The nearest matrix (d, d) without negative eigenvalues; `StatisticsError` where one is below -`most` traces."""
    size = abs(float(np.trace(matrix))) or 1.0
    values, vectors = scipy.linalg.eigh(matrix / size, driver="evd", check_finite=False)
    if values[0] < -most:
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
