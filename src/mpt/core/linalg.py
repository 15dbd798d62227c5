"""Products and decompositions, all through SciPy's BLAS.

NumPy's `@` and `numpy.linalg` bring a second BLAS with threads of its own, which go on spinning for a while after each
call and slow down SciPy's, without which the transport cannot do.
"""

import numpy as np
import scipy.linalg
from scipy.linalg import blas, lapack

from mpt.core.errors import StatisticsError
from mpt.core.validation import Floats

ROUNDING = 64 * float(np.finfo(np.float64).eps)
"""What rounding alone may leave of what should be zero, as a fraction of what it was made of."""

SMALL = 256
"""Of a matrix: up to so many rows it need not be gone through in tiles."""
DEPENDENT = 1e-6
"""Of the longest: what is left of a row beyond the others, below which it is not trusted to be independent of them."""


def dot(a: Floats, b: Floats) -> Floats:
    """a @ b for vectors and matrices, without a copy of either where it is contiguous."""
    if a.ndim == b.ndim == 1:
        return np.asarray(blas.ddot(a, b))
    if a.size == 0 or b.size == 0:
        return np.zeros(a.shape[:-1] + b.shape[1:])
    if a.ndim == 1:
        return _times_vector(b.T, a)
    if b.ndim == 1:
        return _times_vector(a, b)
    (left, flip_left), (right, flip_right) = _fortran(a), _fortran(b)
    return blas.dgemm(1.0, left, right, trans_a=flip_left, trans_b=flip_right)


def gram(rows: Floats) -> Floats:
    """rows^T rows (d, d) for (n, d), exactly symmetric, in C order, from half the products."""
    if rows.size == 0:
        return np.zeros((rows.shape[1], rows.shape[1]))
    columns, flipped = _fortran(rows)
    product = blas.dsyrk(1.0, columns, trans=not flipped, lower=1)
    if len(product) <= SMALL:
        lengths = product.diagonal().copy()
        product.flat[:: len(product) + 1] = 0
        whole = product + product.T
        whole.flat[:: len(whole) + 1] = lengths
        return whole
    for start in range(0, len(product), 64):
        tile = slice(start, start + 64)
        product[:start, tile] = product[tile, :start].T
        corner = np.tril(product[tile, tile])
        product[tile, tile] = corner + np.tril(corner, -1).T
    return product.T


def svd(matrix: Floats) -> tuple[Floats, Floats, Floats]:
    """Thin singular value decomposition: (left, values, right)."""
    return scipy.linalg.svd(matrix, full_matrices=False, check_finite=False)


def row_space(rows: Floats) -> Floats | None:
    """(d, n): an orthonormal basis of n rows (n, d), by QR; None where they are not clearly independent."""
    if len(rows) > rows.shape[1]:
        return None
    triangle, tau, _, _ = lapack.dgeqrf(rows.T)
    size = np.abs(triangle.diagonal())
    if not size.min() > DEPENDENT * size.max():
        return None
    return np.asarray(lapack.dorgqr(triangle, tau)[0])


def cholesky_factor(matrix: Floats, name: str, wanted: str = "a larger cov_ridge, more samples, ") -> Floats:
    """The lower Cholesky factor L of a symmetric positive definite `matrix` (d, d), in Fortran order.

    `wanted` is what, besides an origin, helps where it is not: for the error.
    """
    try:
        factor = scipy.linalg.cholesky(matrix.T, lower=True, check_finite=False)
        singular = bool(np.any(np.diag(factor) ** 2 <= ROUNDING * len(matrix) * np.diag(matrix)))
    except np.linalg.LinAlgError:
        singular = True
    if singular:
        raise StatisticsError(
            f"{name}: not positive definite; use {wanted}or an origin near the features so that less cancels"
        )
    return np.asfortranarray(factor)


def triangular(factor: Floats, columns: Floats, *, transposed: bool = False) -> Floats:
    """L^-1 X, or L^-T X, for a lower triangle L (d, d) and X (d, n), in Fortran order."""
    if columns.size == 0:
        return np.zeros_like(columns)
    return blas.dtrsm(1.0, factor, columns, lower=1, trans_a=transposed)


def _times_vector(matrix: Floats, vector: Floats) -> Floats:
    columns, flipped = _fortran(matrix)
    return blas.dgemv(1.0, columns, vector, trans=flipped)


def _fortran(matrix: Floats) -> tuple[Floats, bool]:
    """`matrix` or its transpose, whichever is in Fortran order, and whether it is the transpose."""
    return (matrix, False) if matrix.flags.f_contiguous else (matrix.T, True)
