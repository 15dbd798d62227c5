r"""Eq. (6): the Bures-Wasserstein transport of one vector, without forming the d x d map.

    T = S_d^(-1/2) (S_d^(1/2) S_t S_d^(1/2))^(1/2) S_d^(-1/2) = (S_t S_d)^(1/2) S_d^(-1)

is the symmetric positive definite solution of T S_d T = S_t. T v is thus a square root applied to one vector,
p = S_d^(-1) v. Two ways lead there: a Krylov space of S_t S_d, grown until a bound on the error is met, and a
decomposition, for small d and wherever the first would take too many steps.
"""

import numpy as np
import scipy.linalg
from scipy.linalg import blas

from mpt.core.errors import StatisticsError
from mpt.core.rounding import positive_part
from mpt.core.validation import Floats

RTOL = 1e-8
"""Bound on the relative error of T v at which the Krylov space stops growing."""

_DIRECT_UP_TO = 192
_CHECK_EVERY = 4
_NODES = 64
_ILL_CONDITIONED = 1e-9


def transport(vector: Floats, source: Floats, target: Floats, *, ridges: tuple[float, float], factor: Floats) -> Floats:
    """Eq. (6): T v for the map from S~_d = S_d + f_d I to S~_t = S_t + f_t I.

    Args:
        vector: v (d,).
        source: S_d (d, d), symmetric positive semi-definite, not zero.
        target: S_t (d, d), likewise.
        ridges: f_d and f_t, as `ridge_floor` gives them; where one is 0, the Krylov way is not tried.
        factor: (d, d), the lower Cholesky factor of S~_d in Fortran order.

    Returns:
        T v (d,), by the Krylov way to a relative error below `RTOL`, by the decomposition about to rounding times the
        condition number of the two covariances.
    """
    d = len(vector)
    if not vector.any():
        return np.zeros(d)
    scales = float(np.trace(source)) / d, float(np.trace(target)) / d
    if min(scales) <= 0:
        raise StatisticsError("covariance: its trace is not positive, should be that of a covariance")
    transported = None
    if d > _DIRECT_UP_TO and min(ridges) > 0:
        start = scipy.linalg.cho_solve((factor, True), scales[0] * vector, check_finite=False)
        transported = krylov(start, source, target, ridges=ridges, scales=scales, max_steps=d // 3)
    if transported is None:
        transported = direct(vector, target, ridge=ridges[1], factor=factor, scales=scales)
    return float(np.sqrt(scales[1] / scales[0])) * transported


def direct(vector: Floats, target: Floats, *, ridge: float, factor: Floats, scales: tuple[float, float]) -> Floats:
    """T v = L^-T A^(1/2) L^-1 v by the eigendecomposition of A = L^T S~_t L, where S~_d = L L^T.

    Both covariances are divided by `scales`, their mean variances, so that no product leaves the range of float64.
    Where A is ill-conditioned its square root is taken as U s U^T from the singular values s of L^T G, S~_t = G G^T.
    """
    size = float(np.sqrt(scales[0]))
    regular = np.divide(target, scales[1]).T
    regular.flat[:: len(vector) + 1] += ridge / scales[1]
    try:
        inner = blas.dtrmm(1 / size, factor, regular, side=1, lower=1)
        inner = blas.dtrmm(1 / size, factor, inner, lower=1, trans_a=1, overwrite_b=1)
        values, vectors = scipy.linalg.eigh(inner, driver="evd", overwrite_a=True, check_finite=False)
        roots = np.sqrt(values.clip(min=0))
        if values[0] < -1e-8 * values[-1]:
            return direct(vector, positive_part(target, "covariance"), ridge=ridge, factor=factor, scales=scales)
        if ridge > 0 and values[0] < _ILL_CONDITIONED * values[-1]:
            other = scipy.linalg.cholesky(regular, lower=True, check_finite=False)
            inner = blas.dtrmm(1 / size, factor, np.asfortranarray(other), lower=1, trans_a=1)
            vectors, roots, _ = scipy.linalg.svd(inner, check_finite=False)
    except np.linalg.LinAlgError:
        raise StatisticsError("covariance: cannot be decomposed; use a larger cov_ridge") from None
    start = blas.dtrsv(factor, size * vector, lower=1)
    root = blas.dgemv(1.0, vectors, roots * blas.dgemv(1.0, vectors, start, trans=1))
    return blas.dtrsv(factor, size * root, lower=1, trans=1)


class _ErrorBound:
    """The bound of `krylov`'s error after each of its steps: the integral over log t, at nodes that stay."""

    def __init__(self, ridge_source: float, ridge_target: float, highest: float, length: float) -> None:
        lowest = ridge_source * ridge_target
        self.nodes = np.geomspace(1e-3 * lowest, highest, _NODES)
        log_step = np.log(self.nodes[1] / self.nodes[0])
        weights = np.log(log_step / np.pi * length / np.sqrt(ridge_source))
        self.log_terms = 1.5 * np.log(self.nodes) - np.log(lowest + self.nodes) + weights
        self.pivots = np.full(_NODES, np.inf)

    def step(self, diagonal: float, beside: float, before: float) -> None:
        """One Lanczos step further: its coefficients a_m and b_m, and b_(m-1)."""
        self.pivots = diagonal + self.nodes - before**2 / self.pivots
        with np.errstate(divide="ignore", invalid="ignore"):
            self.log_terms = self.log_terms + (np.log(beside) - np.log(self.pivots))

    @property
    def bound(self) -> float:
        """Of the length of the error."""
        return float(np.exp(self.log_terms).sum())


def krylov(
    start: Floats,
    source: Floats,
    target: Floats,
    *,
    ridges: tuple[float, float],
    scales: tuple[float, float],
    max_steps: int,
    rtol: float = RTOL,
) -> Floats | None:
    r"""T v = A^(1/2) p by the Lanczos process on A = S~_t S~_d from p = `start`; None if `max_steps` do not suffice.

    A is self-adjoint in the inner product <x, y> = x^T S~_d y, in which all of this happens. The error after m steps is
    known up to the resolvent of A: with the Lanczos coefficients a_i, b_i, the tridiagonal T_m made of them, q the next
    Lanczos vector, and A^(1/2) = (1/pi) int_0^inf t^(-1/2) A (A + t)^(-1) dt,

        A^(1/2) p - approximation = (1/pi) int_0^inf t^(1/2) rho(t) (A + t)^(-1) q dt,
        rho(t) = |p| b_1 ... b_m / det(T_m + t)   up to sign.

    No eigenvalue of A is below f_d f_t and no |x|^2 above <x, x> / f_d, f the ridges, so that

        |error| <= (1/pi) f_d^(-1/2) int_0^inf t^(1/2) rho(t) / (f_d f_t + t) dt,

    an integral over log t of a smooth positive function, kept up to date with one pivot of T_m + t a step and node. The
    bound lies above the error (`benchmarks/reconstruction.py` prints that): a few steps too many, but no guess. It
    does not know of rounding, which counts once the condition number of A nears 1 / eps.

    A step reads S_d and S_t once; each Lanczos vector is made orthogonal to all earlier ones. Both covariances and
    their ridges are divided by `scales`, their mean variances, so that no product leaves the range of float64.
    """
    d = len(start)
    ridge_source, ridge_target = ridges[0] / scales[0], ridges[1] / scales[1]
    vectors, duals = np.empty((d, max_steps + 1), order="F"), np.empty((d, max_steps + 1), order="F")
    diagonal, beside = np.empty(max_steps), np.empty(max_steps)

    def times_source(x: Floats) -> Floats:
        return blas.dsymv(1 / scales[0], source.T, x, beta=ridge_source, y=x, lower=1)

    def times_target(x: Floats) -> Floats:
        return blas.dsymv(1 / scales[1], target.T, x, beta=ridge_target, y=x, lower=1)

    dual = times_source(start)
    square = blas.ddot(start, dual)
    if square <= 0:
        return None
    length = float(np.sqrt(square))
    vectors[:, 0], duals[:, 0] = start / length, dual / length

    highest = d * (1 + ridge_source) * d * (1 + ridge_target)
    error = _ErrorBound(ridge_source, ridge_target, highest, length)
    size = np.inf
    for j in range(max_steps):
        new = times_target(duals[:, j])
        overlaps = blas.dgemv(1.0, duals[:, : j + 1], new, trans=1)
        new = blas.dgemv(-1.0, vectors[:, : j + 1], overlaps, beta=1.0, y=new, overwrite_y=1)
        dual = times_source(new)
        square = blas.ddot(new, dual)
        if square < 0:
            return None
        diagonal[j], beside[j] = overlaps[j], np.sqrt(square)
        error.step(diagonal[j], beside[j], beside[j - 1] if j else 0.0)
        exhausted = beside[j] <= 4 * np.finfo(np.float64).eps * highest
        if exhausted or j % _CHECK_EVERY == _CHECK_EVERY - 1:
            bound = error.bound
            if bound <= rtol * size:
                values, rotation = scipy.linalg.eigh_tridiagonal(diagonal[: j + 1], beside[:j], check_finite=False)
                root = np.sqrt(values.clip(min=0)) * rotation[0]
                transported = blas.dgemv(length, vectors[:, : j + 1], blas.dgemv(1.0, rotation, root))
                size = float(blas.dnrm2(transported))
                if bound <= rtol * size:
                    return transported
        if exhausted:
            return None
        vectors[:, j + 1], duals[:, j + 1] = new / beside[j], dual / beside[j]
    return None
