"""Eq. (X12): how far out a prototype lies for MPT-X's map, written out sample by sample, and what the verdict says."""

import numpy as np
import pytest

import mpt
from mpt.core.affine import AffineMap, affine_map, extrapolated, map_ridge
from mpt.core.equations import DEFAULT_COV_RIDGE
from mpt.core.health import whitening

CLASSES, LOST, DIM = 6, 5, 12


def world(out, seed=0, left=0, samples=1200):
    """Features under two models: the lost class is `out` deviations off in a direction that the others do not use."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(CLASSES, size=samples)
    old = 0.8 * rng.normal(size=(CLASSES, DIM))[labels] + rng.normal(size=(samples, DIM))
    old[:, 0] *= 0.1
    old[labels == LOST, 0] += out
    new = np.tanh(old @ rng.normal(size=(DIM, DIM)) / 4) + 0.02 * rng.normal(size=old.shape)
    stays = labels != LOST
    stays[np.flatnonzero(labels == LOST)[:left]] = True
    return old, new, labels, stays


def report(features, labels, who):
    return mpt.ClassStatistics.from_features(features[who], labels[who], num_classes=CLASSES, watched=[LOST])


def reconstructed(old, new, labels, stays):
    deposit = mpt.deposit(report(old, labels, labels >= 0), LOST, staying=report(old, labels, stays))
    weights = mpt.class_weights(deposit, CLASSES)
    cross = mpt.CrossStatistics.from_features(old[stays], new[stays], labels[stays], CLASSES, weights=weights)
    found = mpt.reconstruct(deposit, report(new, labels, stays), variant="cross", cross=cross)
    return deposit, cross, found


def by_hand(old, labels, who, weights, ridge, point):
    """R of a point, and p, from the samples themselves."""
    rows, w = old[who], weights[labels[who]]
    centre = np.sum(w[:, None] * rows, axis=0) / w.sum()
    gram = (w[:, None] * (rows - centre)).T @ (rows - centre)
    inverse = np.linalg.inv(gram + ridge * np.trace(gram) / DIM * np.eye(DIM))
    reach = w.sum() * (point - centre) @ inverse @ (point - centre)
    each = w.sum() * np.einsum("ni,ij,nj->n", rows - centre, inverse, rows - centre)
    return reach, float(np.sum(w * each) / w.sum())


@pytest.mark.parametrize("out", [0.0, 8.0])
def test_reach_is_a_distance_from_the_samples_and_one_of_them_has_p_on_average(out):
    old, new, labels, stays = world(out)
    deposit, cross, found = reconstructed(old, new, labels, stays)
    there = np.arange(LOST)
    ridge = map_ridge(cross.weights[there], cross.counts[there], DIM)
    reach, usual = by_hand(old, labels, stays, cross.weights, ridge, deposit.prototype)
    counted = cross.weights[there] * cross.counts[there]
    fitted = affine_map(cross.earlier_means_of(there), cross.means[there], counted, *cross.within, ridge)
    assert fitted.reach(deposit.prototype) == pytest.approx(reach)
    assert fitted.parameters == pytest.approx(usual)
    assert found.reach == pytest.approx(reach / usual)
    assert (found.reach > 1) == (out > 0)


def test_a_class_left_out_is_as_far_out_as_for_a_map_without_its_mean():
    rng = np.random.default_rng(1)
    means, current, within = rng.normal(size=(5, DIM)), rng.normal(size=(5, DIM)), 40 * np.eye(DIM)
    counted = rng.uniform(20, 60, size=5)
    found = affine_map(means, current, counted, within, np.zeros((DIM, DIM)), 0.01)
    centre = counted @ means / counted.sum()
    away = means - centre
    whole = within + (away * counted[:, None]).T @ away
    whole += 0.01 * np.trace(whole) / DIM * np.eye(DIM)
    for k in range(5):
        without = whole - counted[k] * np.outer(away[k], away[k])
        assert found.reaches[k] == pytest.approx(counted.sum() * away[k] @ np.linalg.solve(without, away[k]))
    squares, share = rng.uniform(size=5), np.full(5, 0.2)
    assert extrapolated(found, squares, share, 0.0) == pytest.approx(float(np.mean(squares)))
    far = extrapolated(found, squares, share, 1e4)
    assert far == pytest.approx(float(np.mean(squares * 10001 / (1 + found.reaches))))


@pytest.mark.parametrize("seed", range(4))
def test_where_the_map_cannot_know_the_verdict_says_so(seed):
    truth = {}
    for out in (0.0, 8.0):
        old, new, labels, stays = world(out, seed)
        found = reconstructed(old, new, labels, stays)[2]
        now = report(new, labels, stays)
        apart = found.prototype - new[labels == LOST].mean(axis=0)
        off = float(np.sqrt(apart @ np.linalg.solve(now.covariance() + 1e-3 * np.eye(DIM), apart)))
        truth[out] = off, found
    off, far = truth[8.0]
    assert truth[0.0][1].verdict == "unconfirmed"
    assert 1.5 * truth[0.0][0] < off < far.expected_error
    assert far.verdict in ("degraded", "lost")


def linear(seed, width):
    """The lost class 8 deviations out in a direction in which the others are `width` wide; a map that is linear."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(CLASSES, size=1200)
    old = 0.8 * rng.normal(size=(CLASSES, DIM))[labels] + rng.normal(size=(1200, DIM))
    old[:, 0] *= width
    old[labels == LOST, 0] += 8
    new, stays = old @ rng.normal(size=(DIM, DIM)), labels != LOST
    found, now = reconstructed(old, new, labels, stays)[2], report(new, labels, stays)
    apart = found.prototype - new[labels == LOST].mean(axis=0)
    covariance = now.covariance()
    floor = DEFAULT_COV_RIDGE * np.trace(covariance) / DIM  # of Eq. (3)
    return found, float(np.sqrt(apart @ np.linalg.solve(covariance + floor * np.eye(DIM), apart)))


@pytest.mark.parametrize("seed", range(4))
def test_where_the_map_explains_nearly_everything_the_verdict_stays_unconfirmed_at_any_reach(seed):
    """Rightly so, as docs/how-to/model-upgrades.md says: a linear map holds further out as well."""
    found, off = linear(seed, 0.3)
    assert (found.reach > 1, found.verdict) == (True, "unconfirmed")
    assert off < found.expected_error < 0.1


@pytest.mark.parametrize("seed", range(4))
def test_a_direction_that_no_other_class_uses_is_a_guess_and_is_called_that(seed):
    found, off = linear(seed, 0.0)
    assert found.verdict == "lost"
    assert off / 2.5 < found.expected_error < 2.5 * off


@pytest.mark.parametrize("out", [0.0, 8.0])
def test_what_no_sample_tells_is_what_the_ridge_leaves_out(out, monkeypatch):
    """Eq. (X13) by its definition: what of the point a ridge regression of z on itself does not give back."""
    old, new, labels, stays = world(out)
    deposit, cross, found = reconstructed(old, new, labels, stays)
    there = np.arange(LOST)
    ridge = map_ridge(cross.weights[there], cross.counts[there], DIM)
    counted = cross.weights[there] * cross.counts[there]
    fitted = affine_map(cross.earlier_means_of(there), cross.means[there], counted, *cross.within, ridge)
    rows, w = old[stays], cross.weights[labels[stays]]
    rows = rows - w @ rows / w.sum()
    gram = (w[:, None] * rows).T @ rows
    back = np.linalg.solve(gram + ridge * np.trace(gram) / DIM * np.eye(DIM), gram)
    away = deposit.prototype - fitted.earlier_centre
    lower = np.linalg.cholesky(np.cov(np.random.default_rng(2).normal(size=(DIM, 50))))
    turned = np.linalg.solve(lower, (fitted.matrix - fitted.towards * np.eye(DIM)).T)
    expected = np.linalg.norm(away - away @ back) * np.sqrt(np.mean(np.sum(turned**2, axis=0)))
    assert fitted.unseen(deposit.prototype, np.asfortranarray(lower)) == pytest.approx(expected)
    if out > 0:  # beyond, it is a part of what is expected
        factor = whitening(report(new, labels, stays).shared_covariance, DEFAULT_COV_RIDGE)
        unseen = fitted.unseen(deposit.prototype, factor)
        assert found.expected_error > unseen > 0
        monkeypatch.setattr(AffineMap, "unseen", lambda *_: 0.0)
        less = reconstructed(old, new, labels, stays)[2].expected_error
        assert less < found.expected_error <= 1.5 * np.hypot(less, unseen)


def test_where_nothing_has_moved_nothing_is_unseen():
    old, _, labels, stays = world(8.0)
    found = reconstructed(old, old, labels, stays)[2]
    assert found.reach > 1
    assert found.expected_error < 1e-6


def test_with_samples_left_nothing_changes(monkeypatch):
    old, new, labels, stays = world(8.0, left=30)
    found = reconstructed(old, new, labels, stays)[2]
    assert found.reach > 1
    monkeypatch.setattr("mpt.core.mapped.OUTSIDE", np.inf)
    assert reconstructed(old, new, labels, stays)[2] == found


def test_the_prototype_is_the_same_with_the_rule_and_without(monkeypatch):
    old, new, labels, stays = world(8.0)
    found = reconstructed(old, new, labels, stays)[2]
    monkeypatch.setattr("mpt.core.mapped.OUTSIDE", np.inf)
    without = reconstructed(old, new, labels, stays)[2]
    assert np.array_equal(found.prototype, without.prototype)
    assert found.expected_error > 3 * without.expected_error
