"""The paper's equations, one function each, on plain float64 arrays.

Notation: d is the feature dimension, K the number of reference classes, M (K, d) their prototypes, mu (d,) the
departing class's prototype, S (d, d) the pooled within-class covariance. As an index, d means at departure, t now.
Equation (6), the transport, has a module of its own: `mpt.core.transport`.
"""

import numpy as np

from mpt.core.linalg import dot, svd
from mpt.core.validation import Floats

DEFAULT_RIDGE = 0.1
"""lambda of Eq. (1), relative to the mean squared length of the centred reference prototypes."""

DEFAULT_COV_RIDGE = 0.1
"""lambda_Sigma of Eq. (3), relative to the average marginal variance."""


def barycentric_weights(prototype: Floats, reference: Floats, ridge: float) -> Floats:
    r"""Eq. (1): the affine combination of the reference prototypes nearest to the departing one.

        w0 = argmin |mu - M^T w|^2 + lambda |w|^2   subject to   sum(w) = 1,

    lambda = `ridge` x mean_k |m_k - m|^2, m the mean reference prototype.

    With w = 1/K + u the constraint reads sum(u) = 0 and the objective becomes that of a ridge regression of mu - m on
    the centred prototypes, whose solution keeps that constraint by itself. It is solved by SVD: no squared condition
    number, and of the many solutions that duplicated, collinear or more than d + 1 prototypes allow at ridge 0, the
    shortest. Subtracting the mean of `left` keeps the constraint where prototypes are nearly duplicates.

    Args:
        prototype: mu (d,).
        reference: M (K, d), K at least 1.
        ridge: relative ridge, not negative.

    Returns:
        w0 (K,).
    """
    k = len(reference)
    centre = reference.mean(axis=0)
    left, scale, right = svd(reference - centre)
    penalty = ridge * float(np.sum(scale**2)) / k
    kept = scale > _rank_tolerance(reference, float(np.abs(reference).max()))
    left, scale, right = left[:, kept], scale[kept], right[kept]
    left = left - left.mean(axis=0)
    return 1 / k + dot(left, scale / (scale**2 + penalty) * dot(right, prototype - centre))


def residual(prototype: Floats, reference: Floats, weights: Floats) -> Floats:
    """Eq. (2): r0 = mu - M^T w0, the part of the departing prototype that the reference classes do not explain. (d,)"""
    return prototype - dot(weights, reference)


def regularize(covariance: Floats, cov_ridge: float) -> Floats:
    """Eq. (3): S~ = S + lambda_Sigma (tr S / d) I. (d, d)"""
    regularized = covariance.copy()
    regularized.flat[:: len(covariance) + 1] += ridge_floor(covariance, cov_ridge)
    return regularized


def ridge_floor(covariance: Floats, cov_ridge: float) -> float:
    """lambda_Sigma tr S / d: what Eq. (3) adds to every eigenvalue, hence a lower bound on those of S~."""
    return cov_ridge * float(np.trace(covariance)) / len(covariance)


def assemble(in_span: Floats, measured: Floats, predicted: Floats, alpha: float) -> Floats:
    """Eq. (4): mu_hat = M_t^T w0 + alpha r_ho + (1 - alpha) r_pred. (d,)"""
    return in_span + alpha * measured + (1 - alpha) * predicted


def measured_residual(mean: Floats, basis: Floats) -> Floats:
    """Eq. (5): r_ho = Pc m, what of the remaining samples' mean feature m lies outside the reference span. (d,)"""
    return outside(mean, basis)


def reliability(measured: Floats, predicted: Floats, noise: float, samples: int) -> float:
    """Eq. (7): alpha, how far the measured residual is trusted against the predicted one.

        D = |r_ho - r_pred|^2 / d,   tau^2 = max(D - sigma^2 / N, eps),   alpha = tau^2 / (tau^2 + sigma^2 / N).

    eps = 1e-9 sigma^2 / N. Without remaining samples alpha is 0; with samples that carry no noise it is 1.

    Args:
        measured: r_ho (d,).
        predicted: r_pred (d,).
        noise: sigma^2, the variance per sample and dimension of the measured residual.
        samples: N, the number of remaining samples.
    """
    if samples == 0:
        return 0.0
    error = noise / samples
    if error <= 0:
        return 1.0
    gap = measured - predicted
    signal = max(float(np.sum(gap**2)) / len(gap) - error, 1e-9 * error)
    return signal / (signal + error)


def span_basis(rows: Floats) -> Floats:
    """An orthonormal basis (d, r) of the linear span of `rows` (K, d); r is the numerical rank. P = basis basis^T."""
    if rows.size == 0:
        return np.zeros((rows.shape[1], 0))
    _, scale, right = svd(rows)
    return right[scale > _rank_tolerance(rows, float(scale[0]))].T


def outside(vectors: Floats, basis: Floats) -> Floats:
    """Pc x = x - P x for one vector (d,) or each row of (N, d): what lies outside the span of `basis` (d, r)."""
    if basis.shape[1] == basis.shape[0]:
        return np.zeros_like(vectors)
    return vectors - dot(dot(vectors, basis), basis.T)


def outside_trace(covariance: Floats, basis: Floats) -> float:
    """tr(Pc S): the variance outside the span of `basis`, summed over dimensions."""
    if basis.shape[1] == basis.shape[0]:
        return 0.0
    inside = float(np.sum(basis * dot(covariance, basis)))
    return max(float(np.trace(covariance)) - inside, 0.0)


def _rank_tolerance(matrix: Floats, size: float) -> float:
    return float(max(matrix.shape) * np.finfo(np.float64).eps * size)
