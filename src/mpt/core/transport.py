r"""Eq. (6): the Bures-Wasserstein transport of one vector, without forming the d x d map.

    T = S_d^(-1/2) (S_d^(1/2) S_t S_d^(1/2))^(1/2) S_d^(-1/2)

is the symmetric positive definite solution of T S_d T = S_t. With S_d = L L^T it is also L^-T A^(1/2) L^-1 where
A = L^T S_t L, so that T v takes the square root of A times one vector y = L^-1 v. Two ways lead there: a Krylov space
grown until a bound on its error is met, and the eigendecomposition of A, for small d and wherever the first would take
too many steps.
"""

import numpy as np
import scipy.linalg
from scipy.linalg import blas

from mpt.core.errors import StatisticsError
from mpt.core.validation import Floats

RTOL = 1e-8
"""Bound on the relative error of T v at which the Krylov space stops growing."""

_DIRECT_UP_TO = 192
_CHECK_EVERY = 4
_NODES = 64


def transport(vector: Floats, factor: Floats, target: Floats, *, floors: tuple[float, float] = (0.0, 0.0)) -> Floats:
    """Eq. (6): T v for the map from S_d to S_t.

    Args:
        vector: v (d,).
        factor: L (d, d), the lower Cholesky factor of S_d.
        target: S_t (d, d), symmetric positive semi-definite.
        floors: lower bounds on the eigenvalues of S_d and of S_t, such as the ridge of Eq. (3) gives. They bound the
            error of the Krylov way; where one is 0, the eigendecomposition is taken.

    Returns:
        T v (d,), by the Krylov way to a relative error below `RTOL`, by the eigendecomposition to rounding.
    """
    if not vector.any():
        return np.zeros_like(vector)
    inner = blas.dtrmm(1.0, factor, target.T, side=1, lower=1)
    inner = blas.dtrmm(1.0, factor, inner, lower=1, trans_a=1, overwrite_b=1)
    start = blas.dtrsv(factor, vector, lower=1)
    transported = None
    if len(vector) > _DIRECT_UP_TO and min(floors) > 0:
        transported = krylov(inner, start, factor, floors=floors, max_steps=len(vector) // 3)
    return direct(inner, start, factor) if transported is None else transported


def direct(inner: Floats, start: Floats, factor: Floats) -> Floats:
    """L^-T A^(1/2) y by the eigendecomposition of A = `inner`, y = `start`."""
    values, vectors = scipy.linalg.eigh(inner, driver="evd", check_finite=False)
    if values[0] < -1e-8 * values[-1]:
        raise StatisticsError(
            f"covariance: not positive semi-definite (an eigenvalue is {values[0] / values[-1]:.1g} of the largest); "
            "use a larger cov_ridge, or an origin near the features so that less cancels"
        )
    root = np.sqrt(values.clip(min=0)) * blas.dgemv(1.0, vectors, start, trans=1)
    return blas.dtrsv(factor, blas.dgemv(1.0, vectors, root), lower=1, trans=1)


def krylov(
    inner: Floats, start: Floats, factor: Floats, *, floors: tuple[float, float], max_steps: int, rtol: float = RTOL
) -> Floats | None:
    r"""L^-T A^(1/2) y by the Lanczos process on A = `inner` from y = `start`; None if `max_steps` do not suffice.

    The error after m steps is known up to the resolvent of A. With the Lanczos coefficients a_i, b_i, the tridiagonal
    T_m made of them, q the next Lanczos vector, and A^(1/2) = (1/pi) int_0^inf t^(-1/2) A (A + t)^(-1) dt,

        A^(1/2) y - approximation = (1/pi) int_0^inf t^(1/2) rho(t) (A + t)^(-1) q dt,
        rho(t) = |y| b_1 ... b_m / det(T_m + t)   up to sign.

    As |(A + t)^(-1) q| <= 1 / (f_d f_t + t) and |L^-T| <= f_d^(-1/2), f the floors, this bounds the error of the result
    by an integral over log t of a smooth positive function, kept up to date with one pivot of T_m + t a step and node.
    On spectra that decay like 1/i the bound lies some twenty times above the error: a few steps too many, but no guess.

    Each Lanczos vector is made orthogonal to all earlier ones.
    """
    floor_source, floor_target = floors
    length = float(blas.dnrm2(start))
    basis = np.empty((len(start), max_steps + 1), order="F")
    basis[:, 0] = start / length
    diagonal, beside = np.empty(max_steps), np.empty(max_steps)

    lowest, highest = floor_source * floor_target, float(np.trace(inner))
    nodes = np.geomspace(1e-3 * lowest, highest, _NODES)
    log_step = float(np.log(nodes[1] / nodes[0]))
    log_terms = 1.5 * np.log(nodes) - np.log(lowest + nodes) + np.log(log_step / np.pi * length / np.sqrt(floor_source))
    pivots = np.full(_NODES, np.inf)
    rounding = 4 * float(np.finfo(np.float64).eps) * highest
    size = np.inf

    for j in range(max_steps):
        w = blas.dsymv(1.0, inner, basis[:, j], lower=1)
        diagonal[j] = blas.ddot(basis[:, j], w)
        so_far = basis[:, : j + 1]
        w = blas.dgemv(-1.0, so_far, blas.dgemv(1.0, so_far, w, trans=1), beta=1.0, y=w, overwrite_y=1)
        beside[j] = blas.dnrm2(w)
        pivots = diagonal[j] + nodes - (beside[j - 1] ** 2 if j else 0.0) / pivots
        with np.errstate(divide="ignore", invalid="ignore"):
            log_terms = log_terms + (np.log(beside[j]) - np.log(pivots))
        exhausted = beside[j] <= rounding
        if exhausted or j % _CHECK_EVERY == _CHECK_EVERY - 1:
            bound = float(np.exp(log_terms).sum())
            if bound <= rtol * size:
                values, vectors = scipy.linalg.eigh_tridiagonal(diagonal[: j + 1], beside[:j], check_finite=False)
                root = blas.dgemv(length, so_far, vectors @ (np.sqrt(values.clip(min=0)) * vectors[0]))
                transported = blas.dtrsv(factor, root, lower=1, trans=1)
                size = float(blas.dnrm2(transported))
                if bound <= rtol * size:
                    return transported
        if exhausted:
            return None
        basis[:, j + 1] = w / beside[j]
    return None
