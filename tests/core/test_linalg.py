"""Products and decompositions that are faster than NumPy's or SciPy's own."""

import numpy as np
import pytest
import scipy.linalg

from mpt.core.linalg import gram, row_space, triangular


@pytest.mark.parametrize("d", [1, 7, 256, 300])
def test_a_gram_matrix_is_exactly_symmetric(d):
    rows = np.random.default_rng(d).normal(size=(40, d))
    found = gram(rows)
    assert np.array_equal(found, found.T)
    np.testing.assert_allclose(found, rows.T @ rows, rtol=1e-12, atol=1e-12)


def test_the_space_of_rows_that_are_independent():
    rows = np.random.default_rng(0).normal(size=(4, 9))
    basis = row_space(rows)
    np.testing.assert_allclose(basis.T @ basis, np.eye(4), atol=1e-12)
    np.testing.assert_allclose(rows @ basis @ basis.T, rows, atol=1e-12)
    for dependent in (np.vstack([rows, rows[0] + rows[1]]), np.vstack([rows, np.zeros(9)]), rows[:, :3]):
        assert row_space(dependent) is None


@pytest.mark.parametrize("transposed", [False, True])
def test_a_triangle_is_solved(transposed):
    rng = np.random.default_rng(1)
    factor = np.linalg.cholesky(np.cov(rng.normal(size=(5, 40))))
    columns = rng.normal(size=(5, 3))
    expected = scipy.linalg.solve_triangular(factor, columns, lower=True, trans=int(transposed))
    np.testing.assert_allclose(triangular(factor, columns, transposed=transposed), expected, rtol=1e-12)
    assert triangular(factor, columns[:, :0]).shape == (5, 0)
