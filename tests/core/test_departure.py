import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize

import mpt
from mpt.core.equations import barycentric_weights, span_basis

from .worlds import make_world


def absolute_ridge(reference, ridge):
    return ridge * np.mean(np.sum((reference - reference.mean(axis=0)) ** 2, axis=1))


def objective(weights, prototype, reference, penalty):
    return np.sum((prototype - weights @ reference) ** 2) + penalty * np.sum(weights**2)


@pytest.mark.parametrize("ridge", [0.0, 1e-3, 0.1, 3.0])
@pytest.mark.parametrize(("k", "d"), [(2, 5), (5, 12), (9, 4), (1, 3)])
def test_weights_solve_the_constrained_problem(k, d, ridge):
    """Against SciPy's general-purpose constrained optimiser, which shares no line with the closed form."""
    rng = np.random.default_rng(k * d)
    reference, prototype = rng.standard_normal((k, d)) + 2, rng.standard_normal(d) + 2
    penalty = absolute_ridge(reference, ridge)
    found = optimize.minimize(
        objective,
        np.full(k, 1 / k),
        args=(prototype, reference, penalty),
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1},
        method="SLSQP",
        options={"ftol": 1e-15, "maxiter": 2000},
    )
    weights = barycentric_weights(prototype, reference, ridge)
    assert weights.sum() == pytest.approx(1, abs=1e-12)
    assert objective(weights, prototype, reference, penalty) <= found.fun + 1e-9
    if ridge > 0 or k <= d:
        np.testing.assert_allclose(weights, found.x, atol=2e-5)


@given(seed=st.integers(0, 2**32 - 1), k=st.integers(1, 12), d=st.integers(1, 8), ridge=st.floats(1e-4, 10))
def test_weights_solve_the_bordered_linear_system(seed, k, d, ridge):
    """Against the (K+1)-square system of the Lagrange conditions."""
    rng = np.random.default_rng(seed)
    reference, prototype = rng.standard_normal((k, d)), rng.standard_normal(d)
    penalty = absolute_ridge(reference, ridge)
    system = np.zeros((k + 1, k + 1))
    system[:k, :k] = reference @ reference.T + penalty * np.eye(k)
    system[:k, k] = system[k, :k] = 1
    expected = np.linalg.lstsq(system, np.append(reference @ prototype, 1), rcond=None)[0][:k]
    np.testing.assert_allclose(barycentric_weights(prototype, reference, ridge), expected, atol=1e-7)


@pytest.mark.parametrize(
    "reference",
    [
        np.array([[1.0, 2.0, 3.0]] * 4),
        np.outer(np.arange(5), [1.0, -1.0, 2.0]) + 7,
        np.random.default_rng(0).standard_normal((9, 3)),
        np.zeros((3, 3)),
        np.repeat(np.random.default_rng(1).standard_normal((2, 3)), 3, axis=0),
    ],
    ids=["duplicated", "collinear", "more than d", "zero", "two, three times each"],
)
@pytest.mark.parametrize("ridge", [0.0, 0.1])
def test_degenerate_prototypes_give_the_shortest_best_weights(reference, ridge):
    prototype = np.array([2.0, 0.5, -1.0])
    weights = barycentric_weights(prototype, reference, ridge)
    assert weights.sum() == pytest.approx(1)
    centred = reference - reference.mean(axis=0)
    nearest = reference.mean(axis=0) + (prototype - reference.mean(axis=0)) @ np.linalg.pinv(centred) @ centred
    if ridge == 0:
        np.testing.assert_allclose(weights @ reference, nearest, atol=1e-10)
        shortest = 1 / len(reference) + (prototype - reference.mean(axis=0)) @ np.linalg.pinv(centred)
        np.testing.assert_allclose(weights, shortest, atol=1e-10)
    for i, row in enumerate(reference):
        twins = [j for j, other in enumerate(reference) if np.array_equal(row, other)]
        np.testing.assert_allclose(weights[twins], weights[i], atol=1e-12)


@pytest.mark.parametrize("gap", [1e-4, 1e-6, 1e-8, 1e-10, 1e-12])
def test_weights_sum_to_one_however_close_two_prototypes_are(gap):
    rng = np.random.default_rng(0)
    reference = rng.standard_normal((4, 8))
    reference[1] = reference[0] + gap * rng.standard_normal(8)
    prototype = rng.standard_normal(8)
    weights = barycentric_weights(prototype, reference, 0.0)
    assert abs(weights.sum() - 1) < 1e-13 * np.abs(weights).max()


def test_a_deposit_holds_the_decomposition():
    world = make_world()
    stats = world.stats()
    deposit = mpt.deposit(stats, 2, ridge=0.3, cov_ridge=0.2)
    assert deposit.departed == 2
    assert deposit.classes.tolist() == [0, 1, 3, 4, 5]
    assert (deposit.ridge, deposit.cov_ridge) == (0.3, 0.2)
    np.testing.assert_array_equal(deposit.reference, stats.means[[0, 1, 3, 4, 5]])
    np.testing.assert_array_equal(deposit.prototype, stats.means[2])
    np.testing.assert_array_equal(deposit.covariance, stats.covariance())
    np.testing.assert_allclose(deposit.weights @ deposit.reference + deposit.residual, deposit.prototype, rtol=1e-13)
    assert "class 2 from 5 reference classes, d=12" in repr(deposit)


def test_prototype_comes_from_all_vehicles_and_references_from_those_that_stay():
    leaving, staying = make_world(seed=1).stats(), make_world(seed=2, per_class=30).stats()
    before = leaving + staying
    deposit = mpt.deposit(before, 2, staying=staying)
    np.testing.assert_array_equal(deposit.prototype, before.means[2])
    np.testing.assert_array_equal(deposit.reference, staying.means[deposit.classes])
    np.testing.assert_array_equal(deposit.covariance, staying.covariance())
    assert mpt.deposit(before, 2) == mpt.deposit(before, 2, staying=before)


def test_classes_that_nobody_staying_has_or_that_are_watched_are_no_reference():
    world = make_world()
    here = ~np.isin(world.labels, [5])
    staying = mpt.ClassStatistics.from_features(world.features[here], world.labels[here], 6, watched=[2, 0])
    deposit = mpt.deposit(world.stats(watched=[1, 2]), 2, staying=staying)
    assert deposit.classes.tolist() == [3, 4]


def test_several_departed_classes_give_a_deposit_each():
    world = make_world()
    stats = world.stats(watched=[1, 2, 4])
    both = mpt.deposit(stats, [4, 1])
    assert [d.departed for d in both] == [4, 1]
    assert both == (mpt.deposit(stats, 4), mpt.deposit(stats, 1))
    assert all(d.classes.tolist() == [0, 3, 5] for d in both)
    assert mpt.deposit(stats, (4,)) == (mpt.deposit(stats, 4),)
    assert mpt.deposit(stats, np.int64(4)) == mpt.deposit(stats, 4)


def test_one_reference_class_is_enough():
    world = make_world(num_classes=2, rare=0)
    deposit = mpt.deposit(world.stats(), 0)
    assert deposit.weights.tolist() == [1.0]
    np.testing.assert_allclose(deposit.residual, deposit.prototype - deposit.reference[0])


def test_the_spread_is_the_variance_outside_the_reference_span():
    world = make_world()
    full = mpt.deposit(world.stats(), 2)
    off_span = np.eye(12) - span_basis(full.reference) @ span_basis(full.reference).T
    assert full.spread == pytest.approx(np.trace(off_span @ full.covariance))
    lite = mpt.deposit(world.stats(scatter=False, span=full.reference), 2)
    assert lite.covariance is None
    n = len(world.labels[world.labels != 2])
    assert lite.spread == pytest.approx(full.spread * (n - 5) / n)


def test_a_deposit_without_span_and_scatter_warns():
    with pytest.warns(UserWarning, match="span=the reference prototypes"):
        deposit = mpt.deposit(make_world().stats(scatter=False), 2)
    assert not deposit.spread_outside
