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


def inner_problem(source, target, vector):
    factor = cholesky_factor(source, "source")
    return factor.T @ target @ factor, np.linalg.solve(factor, vector), factor


def relative(a, b):
    return np.linalg.norm(a - b) / np.linalg.norm(b)


@given(seed=st.integers(0, 2**32 - 1), d=st.integers(1, 40), condition=st.floats(1, 1e4))
def test_against_pot(seed, d, condition):
    rng = np.random.default_rng(seed)
    source, target, vector = spd(rng, d, condition), spd(rng, d, condition), rng.standard_normal(d)
    ours = transport(vector, cholesky_factor(source, "source"), target)
    assert relative(ours, vector @ pot_map(source, target)) < 1e-8


@pytest.mark.parametrize("d", [250, 400])
def test_the_krylov_way_against_pot(d, monkeypatch):
    """Where the Krylov way is taken: the eigendecomposition is made unreachable."""
    rng = np.random.default_rng(d)
    source = decaying(rng, d, 1 / np.arange(1, d + 1))
    target = decaying(rng, d, 3 / np.arange(1, d + 1))
    vector = rng.standard_normal(d)
    regular_source, regular_target = regularize(source, 0.1), regularize(target, 0.1)
    monkeypatch.setattr(module, "direct", None)
    ours = transport(
        vector,
        cholesky_factor(regular_source, "source"),
        regular_target,
        floors=(ridge_floor(source, 0.1), ridge_floor(target, 0.1)),
    )
    assert relative(ours, vector @ pot_map(regular_source, regular_target)) < 1e-8


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
    source, target = regularize(source, 0.1), regularize(target, 0.1)
    floors = np.linalg.eigvalsh(source)[0], np.linalg.eigvalsh(target)[0]
    problem = inner_problem(source, target, rng.standard_normal(d))
    found = krylov(*problem, floors=floors, max_steps=d, rtol=rtol)
    assert relative(found, direct(*problem)) < max(rtol, 1e-12)


def test_too_few_steps_give_none_and_the_fallback_is_exact():
    rng = np.random.default_rng(6)
    d = 300
    source, target = decaying(rng, d, np.exp(-np.arange(d) / 30)), decaying(rng, d, np.exp(-np.arange(d) / 60))
    floors = ridge_floor(source, 1e-6), ridge_floor(target, 1e-6)
    source, target = regularize(source, 1e-6), regularize(target, 1e-6)
    vector = rng.standard_normal(d)
    assert krylov(*inner_problem(source, target, vector), floors=floors, max_steps=d // 3) is None
    ours = transport(vector, cholesky_factor(source, "source"), target, floors=floors)
    mapping = pot_map(source, target)
    assert relative(ours, vector @ mapping) < 1e-6
    np.testing.assert_allclose(mapping @ source @ mapping, target, atol=1e-6 * np.abs(target).max())


def test_a_krylov_space_that_is_exhausted_ends():
    d = 200
    factor = np.asfortranarray(2 * np.eye(d))
    vector = np.eye(d)[0]
    found = krylov(factor.T @ np.eye(d) @ factor, vector / 2, factor, floors=(4.0, 1.0), max_steps=60)
    np.testing.assert_allclose(found, vector / 2, atol=1e-12)


def test_zero_stays_zero_and_a_target_that_is_not_a_covariance_is_refused():
    rng = np.random.default_rng(7)
    factor = cholesky_factor(spd(rng, 4), "source")
    assert transport(np.zeros(4), factor, np.eye(4)).tolist() == [0, 0, 0, 0]
    with pytest.raises(mpt.StatisticsError, match="not positive semi-definite"):
        transport(np.ones(4), factor, np.diag([1.0, 1.0, 1.0, -0.5]))
    large = cholesky_factor(spd(rng, 250), "source")
    with pytest.raises(mpt.StatisticsError, match="not positive semi-definite"):
        transport(np.ones(250), large, np.diag(np.r_[np.ones(249), -0.5]), floors=(0.1, 0.1))
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
