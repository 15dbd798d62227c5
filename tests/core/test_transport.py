import numpy as np
import ot
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mpt
from mpt.core import transport as module
from mpt.core.equations import regularize, ridge_floor
from mpt.core.linalg import cholesky_factor, dot, gram
from mpt.core.transport import direct, krylov, transport

from .worlds import decaying, spd


def pot_map(source, target):
    zero = np.zeros(len(source))
    return ot.gaussian.bures_wasserstein_mapping(zero, zero, source, target)[0]


def ridged(matrix, ridge):
    return matrix + ridge * np.eye(len(matrix))


def ours(vector, source, target, ridges=(0.0, 0.0)):
    factor = cholesky_factor(ridged(source, ridges[0]), "source")
    return transport(vector, source, target, ridges=ridges, factor=factor)


def krylov_only(vector, source, target, ridges, **options):
    start = np.linalg.solve(ridged(source, ridges[0]), vector)
    return krylov(start, source, target, ridges=ridges, scales=(1.0, 1.0), **options)


def direct_only(vector, source, target, ridges):
    factor = cholesky_factor(ridged(source, ridges[0]), "source")
    return direct(vector, target, ridge=ridges[1], factor=factor, scales=(1.0, 1.0))


def relative(a, b):
    return np.linalg.norm(a - b) / np.linalg.norm(b)


@given(seed=st.integers(0, 2**32 - 1), d=st.integers(1, 40), condition=st.floats(1, 1e4))
def test_against_pot(seed, d, condition):
    rng = np.random.default_rng(seed)
    source, target, vector = spd(rng, d, condition), spd(rng, d, condition), rng.standard_normal(d)
    assert relative(ours(vector, source, target), vector @ pot_map(source, target)) < 1e-8


@pytest.mark.parametrize("d", [250, 400])
def test_the_krylov_way_against_pot(d, monkeypatch):
    """Where the Krylov way is taken: the eigendecomposition is made unreachable."""
    rng = np.random.default_rng(d)
    source = decaying(rng, d, 1 / np.arange(1, d + 1))
    target = decaying(rng, d, 3 / np.arange(1, d + 1))
    vector = rng.standard_normal(d)
    ridges = ridge_floor(source, 0.1), ridge_floor(target, 0.1)
    expected = vector @ pot_map(regularize(source, 0.1), regularize(target, 0.1))
    monkeypatch.setattr(module, "direct", None)
    assert relative(ours(vector, source, target, ridges), expected) < 1e-8


@pytest.mark.parametrize("rtol", [1e-2, 1e-4, 1e-6, 1e-8])
@pytest.mark.parametrize("kind", ["1/i", "same basis", "exponential", "spiked", "isotropic"])
def test_the_bound_never_understates_the_error(kind, rtol):
    rng = np.random.default_rng(5)
    d = 160
    spectrum = {
        "exponential": np.exp(-np.arange(d) / 8),
        "spiked": np.where(np.arange(d) < 5, 100.0, 1.0),
        "isotropic": np.ones(d),
    }.get(kind, 1 / np.arange(1, d + 1))
    source = decaying(rng, d, spectrum)
    target = source @ source if kind == "same basis" else decaying(rng, d, spectrum[::-1] * 4)
    problem = rng.standard_normal(d), source, target, (ridge_floor(source, 0.1), ridge_floor(target, 0.1))
    found = krylov_only(*problem, max_steps=d, rtol=rtol)
    assert relative(found, direct_only(*problem)) < max(rtol, 1e-12)


def test_too_few_steps_give_none_and_the_eigendecomposition_follows():
    rng = np.random.default_rng(6)
    d = 300
    source, target = decaying(rng, d, np.exp(-np.arange(d) / 30)), decaying(rng, d, np.exp(-np.arange(d) / 60))
    ridges = ridge_floor(source, 1e-6), ridge_floor(target, 1e-6)
    vector = rng.standard_normal(d)
    assert krylov_only(vector, source, target, ridges, max_steps=d // 3) is None
    mapping = pot_map(ridged(source, ridges[0]), ridged(target, ridges[1]))
    assert relative(ours(vector, source, target, ridges), vector @ mapping) < 1e-6


def test_a_krylov_space_that_is_exhausted_ends():
    d = 200
    vector = np.eye(d)[0]
    found = krylov_only(vector, 3 * np.eye(d), 0.5 * np.eye(d), (1.0, 0.5), max_steps=60)
    np.testing.assert_allclose(found, vector / 2, atol=1e-12)


def test_zero_stays_zero_and_a_target_that_is_not_a_covariance_is_refused():
    rng = np.random.default_rng(7)
    assert ours(np.zeros(4), spd(rng, 4), np.eye(4)).tolist() == [0, 0, 0, 0]
    with pytest.raises(mpt.StatisticsError, match="not positive semi-definite"):
        ours(np.ones(4), spd(rng, 4), np.diag([1.0, 1.0, 1.0, -0.5]))
    with pytest.raises(mpt.StatisticsError, match="not positive semi-definite"):
        ours(np.ones(250), spd(rng, 250), np.diag(np.r_[np.ones(249), -0.5]), (0.1, 0.1))
    with pytest.raises(mpt.StatisticsError, match="S_d: not positive definite"):
        cholesky_factor(np.diag([1.0, 0.0]), "S_d")


@given(
    shapes=st.sampled_from(
        [((4, 3), (3, 5)), ((4, 3), (3,)), ((3,), (3, 5)), ((3,), (3,)), ((4, 0), (0, 5)), ((1, 1),) * 2]
    ),
    orders=st.tuples(st.sampled_from("CF"), st.sampled_from("CF")),
    step=st.sampled_from([1, 2]),
)
def test_dot_is_matmul_whatever_the_memory_order(shapes, orders, step):
    rng = np.random.default_rng(0)
    wide = [(s[0] * step, *s[1:]) for s in shapes]
    a, b = (np.asarray(rng.standard_normal(s), order=o)[::step] for s, o in zip(wide, orders, strict=True))
    assert dot(a, b).shape == (a @ b).shape
    np.testing.assert_allclose(dot(a, b), a @ b, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("shape", [(3, 1), (1, 5), (0, 4), (30, 64), (30, 65), (200, 150)])
@pytest.mark.parametrize("order", ["C", "F"])
def test_gram_is_exactly_symmetric(shape, order):
    rows = np.asarray(np.random.default_rng(0).standard_normal(shape), order=order)
    product = gram(rows)
    np.testing.assert_allclose(product, rows.T @ rows, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(product, product.T)
