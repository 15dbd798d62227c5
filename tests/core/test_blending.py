"""The prototype that fades between frozen, reconstruction and measurement."""

import numpy as np
import pytest
import scipy.linalg

import mpt
from mpt.core.blending import Missed, blend, fade, left_out, weight

from .worlds import make_world, spd


def moved(world, rng, by):
    """The world under another model: every feature through an affine map that is `by` away from the identity."""
    d = world.features.shape[1]
    return world.features @ (np.eye(d) + by * rng.standard_normal((d, d)) / np.sqrt(d)) + by


def departed(world, by, keep=0, seed=1):
    """The deposit, and this round's statistics with `keep` remaining samples; the class's mean as it would be now."""
    deposit = mpt.deposit(world.stats(), world.rare, staying=world.without_rare(keep).stats())
    features = moved(world, np.random.default_rng(seed), by)
    rare = np.flatnonzero(world.labels == world.rare)
    rows = np.setdiff1d(np.arange(len(world.labels)), rare[keep:])
    stats = mpt.ClassStatistics.from_features(
        features[rows], world.labels[rows], world.num_classes, watched=[world.rare]
    )
    return deposit, stats, features[rare].mean(axis=0)


@pytest.mark.parametrize("seed", range(3))
def test_nothing_moved_and_no_samples_is_the_prototype_as_it_was(seed):
    deposit, stats, _ = departed(make_world(seed, offset=5.0), by=0.0)
    rec = blend(deposit, stats)
    np.testing.assert_allclose(rec.prototype, deposit.prototype, atol=1e-9)
    assert (rec.alpha, rec.samples) == (0, 0)
    assert rec.expected_error == pytest.approx(0, abs=1e-6)
    assert np.linalg.norm(mpt.reconstruct(deposit, stats).prototype - deposit.prototype) > 0.1


def test_a_little_movement_moves_it_a_little():
    world = make_world(0)
    gaps = []
    for by in (1e-2, 1e-4, 1e-6):
        deposit, stats, truth = departed(world, by=by)
        gaps.append(np.linalg.norm(blend(deposit, stats).prototype - deposit.prototype))
        assert gaps[-1] < 3 * np.linalg.norm(truth - deposit.prototype)
    np.testing.assert_allclose(np.divide(gaps[:-1], gaps[1:]), 100, rtol=0.2)


def test_frozen_wins_where_the_reference_classes_say_so():
    """Samples spread out around prototypes that stay: T r0 is three times r0, and the reference classes know better."""
    world = make_world(0)
    deposit = mpt.deposit(world.stats(), world.rare, staying=world.without_rare().stats())
    means = world.stats().means[world.labels]
    rows = world.labels != world.rare
    stats = mpt.ClassStatistics.from_features(
        (means + 3 * (world.features - means))[rows], world.labels[rows], world.num_classes, watched=[world.rare]
    )
    rec = blend(deposit, stats)
    assert rec.growth == pytest.approx(3)
    np.testing.assert_allclose(rec.prototype, deposit.prototype, atol=1e-9)


def test_samples_count_by_their_number():
    world = make_world(0, per_class=4000)
    alphas = []
    for keep in (0, 1, 10, 100, 3999):
        deposit, stats, _ = departed(world, by=0.5, keep=keep)
        rec = blend(deposit, stats)
        alphas.append(rec.alpha)
        np.testing.assert_allclose(
            rec.prototype, rec.in_span + rec.alpha * rec.measured + (1 - rec.alpha) * rec.predicted
        )
        if keep:
            np.testing.assert_allclose(rec.in_span + rec.measured, stats.means[world.rare])
    assert alphas[0] == 0
    assert alphas == sorted(alphas)
    assert alphas[-1] > 0.99


def test_many_samples_win_even_where_the_references_say_that_nothing_moved():
    world = make_world(0, per_class=3000)
    deposit = mpt.deposit(world.stats(), world.rare)
    shifted = world.features + 1.5 * (world.labels == world.rare)[:, None]
    rec = blend(deposit, world.stats(shifted))
    assert rec.alpha > 0.99
    np.testing.assert_allclose(rec.prototype, deposit.prototype + 1.5, atol=0.05)


def test_errors_are_those_of_each_class_reconstructed_from_the_others():
    rng = np.random.default_rng(0)
    before, now, covariance = rng.standard_normal((4, 7)), rng.standard_normal((4, 7)), spd(rng, 7)
    errors = left_out(before, now, 0.1, 1.3, np.linalg.cholesky(covariance))
    frozen, carried = [], []
    for k in range(4):
        others = [i for i in range(4) if i != k]
        weights = mpt.core.equations.barycentric_weights(before[k], before[others], 0.1)
        made = weights @ now[others] + 1.3 * (before[k] - weights @ before[others])
        frozen.append(now[k] - before[k])
        carried.append(now[k] - made)
    inverse = np.linalg.inv(covariance)
    pairs = ((frozen, frozen), (carried, carried), (frozen, carried))
    expected = [np.mean([a @ inverse @ b for a, b in zip(one, other, strict=True)]) for one, other in pairs]
    np.testing.assert_allclose(errors, expected)


@pytest.mark.parametrize("seed", range(5))
def test_the_share_is_the_best_there_is(seed):
    rng = np.random.default_rng(seed)
    frozen, carried = rng.standard_normal((2, 5, 3)) * [[[1.0]], [[rng.uniform(0.2, 3)]]]
    carried = carried + rng.uniform(-1, 1) * frozen
    errors = [np.mean(np.sum(a * b, axis=1)) for a, b in ((frozen, frozen), (carried, carried), (frozen, carried))]
    found = fade(Missed(*errors))
    grid = np.linspace(0, 1, 2001)
    tried = [np.mean(np.sum((s * frozen + (1 - s) * carried) ** 2, axis=1)) for s in grid]
    assert found.share == pytest.approx(grid[np.argmin(tried)], abs=1e-3)
    assert found.error == pytest.approx(min(tried), rel=1e-4)


def test_the_residual_is_transported_whole():
    world = make_world(3)
    deposit, stats, _ = departed(world, by=0.4)
    before = deposit.covariance + 0.1 * np.trace(deposit.covariance) / 12 * np.eye(12)
    now = stats.covariance() + 0.1 * np.trace(stats.covariance()) / 12 * np.eye(12)
    root = scipy.linalg.sqrtm(before)
    bures = np.linalg.inv(root) @ scipy.linalg.sqrtm(root @ now @ root) @ np.linalg.inv(root)
    carried = (bures @ deposit.residual).real
    rec = blend(deposit, stats)
    assert rec.growth == pytest.approx(np.linalg.norm(carried) / np.linalg.norm(deposit.residual))
    between = deposit.prototype - rec.in_span - carried
    share = (rec.predicted - carried) @ between / (between @ between)
    assert -1e-9 <= share <= 1
    np.testing.assert_allclose(rec.predicted, carried + share * between, atol=1e-8)


def test_it_is_nearer_than_frozen_and_than_mpt_on_average():
    gaps = {"frozen": [], "mpt": [], "blend": []}
    for seed in range(10):
        deposit, stats, truth = departed(make_world(seed), by=0.3, seed=seed)
        made = {"frozen": deposit.prototype, "mpt": mpt.reconstruct(deposit, stats).prototype}
        for name, prototype in {**made, "blend": blend(deposit, stats).prototype}.items():
            gaps[name].append(np.linalg.norm(prototype - truth))
    assert np.mean(gaps["blend"]) < min(np.mean(gaps["frozen"]), np.mean(gaps["mpt"]))


def test_weights_at_the_edges():
    gap = np.ones(3)
    assert weight(gap, 1.0, 0, 5.0) == 0
    assert weight(gap, 0.0, 3, 0.0) == 1
    assert weight(0 * gap, 2.0, 4, 0.5) == pytest.approx(0.5)
    assert weight(0 * gap, 2.0, 4, 0.0) == 0


def test_one_reference_class_is_enough():
    world = make_world(0, num_classes=2, rare=1)
    deposit, stats, _ = departed(world, by=0.2, keep=4)
    rec = blend(deposit, stats)
    assert np.isfinite(rec.prototype).all()
    assert rec.expected_error is None
    assert rec.verdict is None


def test_a_reference_class_that_has_disappeared_is_left_out():
    world = make_world(0)
    deposit = mpt.deposit(world.stats(), world.rare)
    rows = (world.labels != 0) & (world.labels != world.rare)
    stats = mpt.ClassStatistics.from_features(
        world.features[rows], world.labels[rows], world.num_classes, watched=[world.rare]
    )
    rec = blend(deposit, stats)
    assert 0 not in rec.classes
    assert np.linalg.norm(rec.prototype - deposit.prototype) < 0.5 * np.linalg.norm(deposit.residual)


def test_it_needs_a_scatter():
    world = make_world(0)
    deposit = mpt.deposit(world.stats(), world.rare)
    with pytest.raises(mpt.StatisticsError, match="the stats have no scatter"):
        blend(deposit, world.stats(scatter=False))
