r"""Cross-moment tracking's equations, beyond the paper, one function each, on plain float64 arrays.

Notation as in `mpt.core.equations`; z is a feature under the reference model, h the same sample's under the current
one. m_k (K, d) are the reference classes' means of z, n_k (K,) those of h, w_k (K,) how much each class counts: its
samples times its weight. W = sum of a (z - m)(z - m)^T and V = sum of a (z - m)(h - n)^T are taken about each sample's
own class means.
"""

from typing import NamedTuple

import numpy as np
import scipy.linalg

from mpt.core.linalg import cholesky_factor, dot
from mpt.core.validation import Floats

DEFAULT_WIDTH = 0.15
"""s^2 of Eq. (X1), relative to the median squared distance."""

DEFAULT_MAP_RIDGE = 0.003
"""lambda of Eq. (X2), relative to the mean variance of a dimension of z."""

_LEAST_NOISE = 0.02
"""Of the whole variance, Eq. (X5)."""

_SURE = 2.0
"""How many standard deviations of chance a disagreement must exceed to count, Eq. (X6)."""


def nearness(prototype: Floats, reference: Floats, factor: Floats, width: float = DEFAULT_WIDTH) -> Floats:
    r"""Eq. (X1): a_k, how much each reference class counts, near ones more; their mean is one. (K,)

        a_k ~ exp(-D_k^2 / 2 s^2),   D_k^2 = (m_k - mu)^T S~_d^-1 (m_k - mu),   s^2 = `width` x median_k D_k^2.

    Args:
        prototype: mu (d,).
        reference: M_d (K, d).
        factor: (d, d), the lower Cholesky factor of S~_d.
        width: relative s^2, positive.
    """
    squares = np.sum(whiten(reference - prototype, factor) ** 2, axis=1)
    middle = float(np.median(squares))
    if middle <= 0:
        return np.ones(len(reference))
    weights = np.exp((squares.min() - squares) / (2 * width * middle))
    return np.asarray(weights / weights.mean())


def whiten(rows: Floats, factor: Floats) -> Floats:
    """L^-1 x for a vector x (d,) or each row of (N, d), S~ = L L^T: Euclidean lengths there are Mahalanobis here."""
    return np.asarray(scipy.linalg.solve_triangular(factor, rows.T, lower=True, check_finite=False).T)


class AffineMap(NamedTuple):
    """h = centre + (z - earlier_centre) matrix, and how far it is from classes that it was not fitted to.

    Attributes:
        earlier_centre: (d,), z's weighted mean.
        centre: (d,), h's.
        matrix: A (d, d) of Eq. (X2).
        errors: (K, d), of Eq. (X3): each reference class's mean of h less what the map would say without that class.
    """

    earlier_centre: Floats
    centre: Floats
    matrix: Floats
    errors: Floats

    def __call__(self, rows: Floats) -> Floats:
        """The map applied to a vector (d,) or to rows (N, d) of the reference model's space."""
        return self.centre + dot(rows - self.earlier_centre, self.matrix)


def affine_map(
    earlier: Floats,
    current: Floats,
    counted: Floats,
    within: Floats,
    within_cross: Floats,
    ridge: float = DEFAULT_MAP_RIDGE,
) -> AffineMap:
    r"""Eq. (X2) and (X3): the ridge regression of h on z over the samples of the reference classes, from their sums.

        G = W + sum_k w_k (m_k - m)(m_k - m)^T,   X = V + sum_k w_k (m_k - m)(n_k - n)^T,
        A = (G + lambda I)^-1 X,   lambda = `ridge` x tr(G) / d,

    m and n the weighted means of z and h. Without class k's mean, but with the scatter within it, the regression's
    error at that class is known without solving again, as in any linear regression:

        e_k = (n_k - map(m_k)) / (1 - H_k),   H_k = w_k / sum(w) + w_k (m_k - m)^T (G + lambda I)^-1 (m_k - m).

    Args:
        earlier: m_k (K, d).
        current: n_k (K, d).
        counted: w_k (K,), positive.
        within: W (d, d).
        within_cross: V (d, d).
        ridge: relative ridge, not negative.
    """
    share = counted / counted.sum()
    centre, earlier_centre = dot(share, current), dot(share, earlier)
    dz, dh = earlier - earlier_centre, current - centre
    weighted = dz * counted[:, None]
    whole = within + dot(weighted.T, dz)
    whole = (whole + whole.T) / 2
    size = float(np.trace(whole)) / len(whole)
    if size <= 0:
        return AffineMap(earlier_centre, centre, np.zeros_like(whole), dh)
    whole.flat[:: len(whole) + 1] += ridge * size
    factor = cholesky_factor(whole, "gram")
    matrix = scipy.linalg.cho_solve((factor, True), within_cross + dot(weighted.T, dh), check_finite=False)
    solved = scipy.linalg.cho_solve((factor, True), dz.T, check_finite=False)
    leverage = share + counted * np.sum(dz * solved.T, axis=1)
    errors = (dh - dot(dz, matrix)) / np.maximum(1 - leverage, 1e-6)[:, None]
    return AffineMap(earlier_centre, centre, matrix, errors)


def corrected_mean(mapped: AffineMap, prototype: Floats, earlier_mean: Floats, mean: Floats) -> Floats:
    """Eq. (X4): the remaining samples' mean, corrected for how they differ from their class: n + (mu - m) A. (d,)

    m and n are their means of z and h. What the class's samples have in common with these is measured, the rest is
    carried over by the map; the noise that is left is that of the map's residual, smaller than that of n.
    """
    return np.asarray(mean + dot(prototype - earlier_mean, mapped.matrix))


def residual_noise(
    mapped: AffineMap, covariance: Floats, within: Floats, within_cross: Floats, counted: float, factor: Floats
) -> float:
    r"""Eq. (X5): sigma^2, the variance per sample and whitened dimension of h - map(z) within a class.

        R = S - (V^T A + A^T V - A^T W A) / sum(w),   sigma^2 = tr(S~_t^-1 R) / d,

    and at least a fiftieth of tr(S~_t^-1 S) / d: S is not known to more than that. Where the map leaves nothing
    unexplained, prediction and measurement agree, and the floor changes nothing.

    Args:
        mapped: the map.
        covariance: S (d, d), that of h within the classes, each counted as in W and V.
        within: W (d, d).
        within_cross: V (d, d).
        counted: sum(w).
        factor: (d, d), the lower Cholesky factor of S~_t.
    """
    explained = dot(2 * within_cross.T - dot(mapped.matrix.T, within), mapped.matrix) / counted
    total, left = _whitened_mean(covariance, factor), _whitened_mean(covariance - explained, factor)
    return max(left, _LEAST_NOISE * total)


def _whitened_mean(matrix: Floats, factor: Floats) -> float:
    """tr(L^-1 M L^-T) / d."""
    return float(np.trace(whiten(whiten(matrix, factor).T, factor))) / len(matrix)


def trust(gap: Floats, noise: float, samples: int, prior: float) -> tuple[float, float]:
    r"""Eq. (X6): alpha, how far the corrected mean is trusted against the map's prediction, and tau^2.

        D = |gap|^2 / d,   tau^2 = max(prior, D - (1 + 2 sqrt(2 / d)) sigma^2 / N),
        alpha = tau^2 / (tau^2 + sigma^2 / N).

    As Eq. (7), in whitened coordinates, with two differences: what the map gets wrong on reference classes it was not
    fitted to is a lower bound on what it gets wrong here, and D counts only beyond what chance explains.

    Args:
        gap: (d,), the corrected mean less the prediction, whitened.
        noise: sigma^2 of Eq. (X5).
        samples: N, the number of remaining samples.
        prior: the map's mean squared error per whitened dimension on reference classes, Eq. (X3).
    """
    if samples == 0:
        return 0.0, prior
    error, d = noise / samples, len(gap)
    signal = max(prior, float(np.sum(gap**2)) / d - (1 + _SURE * np.sqrt(2 / d)) * error)
    return (signal / (signal + error) if signal > 0 else 0.0) if error > 0 else 1.0, signal
