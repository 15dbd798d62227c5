"""Cross-moment tracking: the map against scikit-learn's and against fits without a class, and what comes of it."""

import dataclasses

import numpy as np
import pytest

import mpt
from mpt.core.affine import DEFAULT_WIDTH, affine_map, corrected_mean, map_ridge, nearness, residual_noise, trust
from mpt.core.equations import regularize, ridge_floor
from mpt.core.health import Gap, disagreement, expected_error, left_out_errors, verdict, whiten

from .worlds import make_world

linear_model = pytest.importorskip("sklearn.linear_model")

WORLD = make_world(num_classes=7, d=9, per_class=40)
RARE = WORLD.rare
REFERENCE = np.setdiff1d(np.arange(7), RARE)
WEIGHTS = np.array([1.0, 2.0, 0.0, 0.5, 1.0, 3.0, 0.25])


def bent(features, seed=3, strength=0.4):
    """A drift that no affine map reproduces."""
    rng = np.random.default_rng(seed)
    d = features.shape[1]
    linear = features @ (np.eye(d) + 0.5 * rng.standard_normal((d, d)) / np.sqrt(d)) + rng.standard_normal(d)
    return linear + strength * np.tanh(features @ rng.standard_normal((d, d)) / 2)


def cross_of(world, after, weights=WEIGHTS, rows=slice(None)):
    return mpt.CrossStatistics.from_features(
        world.features[rows], after[rows], world.labels[rows], world.num_classes, weights=weights,
        origin=after.mean(axis=0), earlier_origin=world.features.mean(axis=0),
    )  # fmt: skip


def fitted(cross, ridge):
    classes = np.flatnonzero((cross.weights > 0) & (cross.counts > 0))
    counted = cross.weights[classes] * cross.counts[classes]
    return affine_map(cross.earlier_means[classes], cross.means[classes], counted, *cross.within, ridge)


def by_scikit(z, h, weights, ridge):
    """Rho, a regression with one coefficient for all, and a ridge regression of what it leaves, on weighted samples."""
    centred = z - np.average(z, axis=0, weights=weights)
    size = np.sum(weights[:, None] * centred**2)
    rho = np.sum(weights[:, None] * centred * (h - np.average(h, axis=0, weights=weights))) / size
    model = linear_model.Ridge(alpha=ridge * size / z.shape[1], solver="cholesky")
    return rho, model.fit(z, h - rho * z, sample_weight=weights)


@pytest.mark.parametrize("ridge", [0.0, 0.003, 0.3])
def test_the_map_is_scikit_learns_weighted_ridge_regression(ridge):
    after = bent(WORLD.features)
    found = fitted(cross_of(WORLD, after), ridge)
    rows = WORLD.labels != RARE
    rho, model = by_scikit(WORLD.features[rows], after[rows], WEIGHTS[WORLD.labels[rows]], ridge)
    np.testing.assert_allclose(found.matrix, rho * np.eye(9) + model.coef_.T, atol=1e-9)
    np.testing.assert_allclose(found(WORLD.features), rho * WORLD.features + model.predict(WORLD.features), atol=1e-8)


def test_a_map_that_turns_features_round_is_not_shrunk_towards_more_than_nothing():
    turned = -WORLD.features
    whole = fitted(cross_of(WORLD, turned), 1e6).matrix
    np.testing.assert_allclose(whole, np.zeros((9, 9)), atol=1e-5)
    np.testing.assert_allclose(fitted(cross_of(WORLD, turned), 0.0)(WORLD.features), turned, atol=1e-8)


def test_where_nothing_moves_the_map_is_the_identity():
    found = fitted(cross_of(WORLD, WORLD.features), 0.5)
    np.testing.assert_allclose(found(WORLD.features), WORLD.features, atol=1e-10)
    rec = tracked(WORLD.features, 0)
    np.testing.assert_allclose(rec.prototype, WORLD.features[WORLD.labels == RARE].mean(axis=0), atol=1e-10)
    assert rec.expected_error < 1e-8
    assert rec.verdict == "unconfirmed"
    assert tracked(WORLD.features, 5).verdict == "good"


def test_the_ridge_grows_with_the_dimension_and_falls_with_the_samples():
    assert map_ridge(np.ones(4), np.full(4, 10), 40, 0.02) == pytest.approx(0.02)
    assert map_ridge(np.array([3.0, 0.0]), np.array([50, 10]), 100, 0.02) == pytest.approx(0.04)


def test_a_class_left_out_is_known_without_fitting_again():
    """Against a fit in which the class's samples stay only as deviations from their own mean."""
    after, ridge = bent(WORLD.features), 0.05
    cross = cross_of(WORLD, after)
    found = fitted(cross, ridge)
    within, within_cross = cross.within
    counted = (cross.weights * cross.counts)[REFERENCE]
    earlier, means = cross.earlier_means[REFERENCE], cross.means[REFERENCE]
    centre = counted @ earlier / counted.sum()
    size = np.trace(within + (counted[:, None] * (earlier - centre)).T @ (earlier - centre)) / 9
    gone = np.trace(
        within_cross + (counted[:, None] * (earlier - centre)).T @ (means - counted @ means / counted.sum())
    )
    rho = gone / 9 / size
    for k in range(len(REFERENCE)):
        others = np.arange(len(REFERENCE)) != k
        w, m, n = counted[others], earlier[others], means[others]
        m0, n0 = w @ m / w.sum(), w @ n / w.sum()
        gram = within + (w[:, None] * (m - m0)).T @ (m - m0) + ridge * size * np.eye(9)
        moved = within_cross - rho * within + (w[:, None] * (m - m0)).T @ ((n - n0) - rho * (m - m0))
        matrix = rho * np.eye(9) + np.linalg.solve(gram, moved)
        expected = means[k] - n0 - (earlier[k] - m0) @ matrix
        np.testing.assert_allclose(found.errors[k], expected, atol=1e-8)


def test_leaving_a_class_out_comes_close_to_fitting_without_its_samples():
    after, ridge = bent(WORLD.features), 0.003
    weights = np.where(np.arange(7) == RARE, 0.0, 1.0)
    errors = fitted(cross_of(WORLD, after, weights), ridge).errors
    exact = []
    for c in REFERENCE:
        rows = (WORLD.labels != RARE) & (WORLD.labels != c)
        rho, model = by_scikit(WORLD.features[rows], after[rows], np.ones(rows.sum()), ridge)
        mine = WORLD.labels == c
        start = WORLD.features[mine].mean(axis=0)
        exact.append(after[mine].mean(axis=0) - rho * start - model.predict(start[None])[0])
    assert np.linalg.norm(errors) == pytest.approx(np.linalg.norm(exact), rel=0.3)
    assert np.linalg.norm(errors - exact) < 0.5 * np.linalg.norm(exact)


def test_nearness_is_the_kernel_written_out():
    stats = WORLD.stats()
    deposit = mpt.deposit(stats, RARE)
    inverse = np.linalg.inv(regularize(stats.covariance(), deposit.cov_ridge))
    gaps = deposit.reference - deposit.prototype
    squares = np.array([gap @ inverse @ gap for gap in gaps])
    expected = np.exp(-squares / (2 * DEFAULT_WIDTH * np.median(squares)))
    weights = mpt.class_weights(deposit, 7)
    np.testing.assert_allclose(weights[REFERENCE], expected / expected.mean(), rtol=1e-9)
    assert weights[RARE] == 0
    np.testing.assert_array_equal(nearness(np.zeros(2), np.zeros((3, 2)), np.eye(2)), np.ones(3))


def test_the_noise_is_the_variance_of_the_maps_residuals_or_somewhat_more():
    after = bent(WORLD.features)
    weights = np.where(np.arange(7) == RARE, 0.0, 1.0)
    now = WORLD.stats(after)
    found = fitted(cross_of(WORLD, after, weights), 0.003)
    left = after - found(WORLD.features)
    scatter = np.zeros((9, 9))
    for c in REFERENCE:
        mine = left[WORLD.labels == c]
        scatter += (mine - mine.mean(axis=0)).T @ (mine - mine.mean(axis=0))
    regular = regularize(now.covariance(), 0.1)
    expected = np.trace(np.linalg.inv(regular) @ scatter) / (240 - 6) / 9
    factor, before = np.linalg.cholesky(regular), WORLD.stats().covariance()
    noise = residual_noise(found, before, factor, ridge_floor(now.covariance(), 0.1), 240.0)
    assert expected < noise / 1.6 < 2 * expected
    whole = np.linalg.inv(regular) @ (now.covariance() - found.matrix.T @ before @ found.matrix)
    assert noise == pytest.approx(1.6 * np.trace(whole) / 9)
    nothing = found._replace(matrix=np.zeros((9, 9)))
    most = np.trace(np.linalg.inv(regular) @ now.covariance()) / 9
    assert residual_noise(nothing, before, factor, ridge_floor(now.covariance(), 0.1), 240.0) == pytest.approx(most)


def test_with_few_samples_the_noise_counts_what_the_map_follows():
    after = bent(WORLD.features)
    cross = cross_of(WORLD, after, np.where(np.arange(7) == RARE, 0.0, 1.0))
    now, before = WORLD.stats(after).covariance(), WORLD.stats().covariance()
    factor, floor = np.linalg.cholesky(regularize(now, 0.1)), ridge_floor(now, 0.1)
    found = fitted(cross, 0.003)
    centred = WORLD.features[WORLD.labels != RARE]
    centred = centred - centred.mean(axis=0)
    gram = centred.T @ centred
    ridge = 0.003 * np.trace(gram) / 9
    p = np.trace(gram @ np.linalg.inv(gram + ridge * np.eye(9)))
    assert found.parameters == pytest.approx(p)
    noises = [residual_noise(found, before, factor, floor, n) for n in (np.inf, 240.0, 4 * p, 2 * p, p, p / 2)]
    assert noises[0] == noises[1]
    whole = np.trace(np.linalg.inv(regularize(now, 0.1)) @ now) / 9
    assert noises[2] == pytest.approx(min(noises[0] / 1.6 * 16 / 9, whole))
    assert noises[3] == pytest.approx(min(noises[0] / 1.6 * 4, whole))
    assert noises[4] == noises[5] == pytest.approx(whole)


def tracked(after, remaining, *, cross=None, weights=None, world=WORLD):
    """The reconstruction of class 2 from `remaining` of its samples."""
    before = world.stats()
    kept = world.without_rare(remaining)
    rare = np.flatnonzero(world.labels == world.rare)
    rows = np.setdiff1d(np.arange(len(world.labels)), rare[remaining:])
    deposit = mpt.deposit(before, world.rare, staying=kept.stats())
    weights = mpt.class_weights(deposit, world.num_classes) if weights is None else weights
    cross = cross_of(world, after, weights, rows) if cross is None else cross
    return mpt.reconstruct(deposit, kept.stats(after[rows]), variant="cross", cross=cross)


@pytest.mark.parametrize("remaining", [0, 1, 40])
def test_an_affine_drift_is_followed(remaining):
    after = bent(WORLD.features, strength=0.0)
    rec = tracked(after, remaining)
    truth = after[WORLD.labels == RARE].mean(axis=0)
    assert np.linalg.norm(rec.prototype - truth) < 0.03 * np.linalg.norm(truth - after.mean(axis=0))
    assert rec.samples == remaining


@pytest.mark.parametrize("remaining", [0, 3])
def test_the_true_prototype_is_mostly_within_the_expected_error(remaining):
    within = []
    for seed in range(20):
        after = bent(WORLD.features, seed=seed, strength=1.0)
        rec, covariance = tracked(after, remaining), WORLD.stats(after).covariance()
        truth = after[WORLD.labels == RARE].mean(axis=0)
        readout = mpt.NearestClassMean(truth[None], covariance)
        within.append(readout.distances(rec.prototype[None])[0, 0] < rec.expected_error)
    assert np.mean(within) >= 0.75


def test_the_parts_add_up_as_in_equation_4():
    rec = tracked(bent(WORLD.features), 5)
    whole = rec.in_span + rec.alpha * rec.measured + (1 - rec.alpha) * rec.predicted
    np.testing.assert_allclose(rec.prototype, whole, atol=1e-12)
    assert 0 < rec.alpha < 1
    assert rec.expected_error > 0


def test_without_samples_it_is_the_prediction_and_with_all_their_mean():
    after = bent(WORLD.features)
    none = tracked(after, 0)
    assert none.alpha == 0
    np.testing.assert_allclose(none.prototype, none.in_span + none.predicted)
    whole = tracked(after, 40)
    truth = after[WORLD.labels == RARE].mean(axis=0)
    np.testing.assert_allclose(whole.in_span + whole.measured, truth, atol=1e-9)
    assert np.linalg.norm(whole.prototype - truth) < np.linalg.norm(none.prototype - truth)


def test_a_class_that_moves_on_its_own_is_followed_by_its_samples():
    after = bent(WORLD.features)
    alone = after.copy()
    alone[WORLD.labels == RARE] += 5.0
    truth = alone[WORLD.labels == RARE].mean(axis=0)
    few, none = tracked(alone, 2), tracked(alone, 0)
    assert few.alpha >= tracked(after, 2).alpha
    assert np.linalg.norm(few.prototype - truth) < 0.2 * np.linalg.norm(none.prototype - truth)


def test_features_of_one_value_a_class_are_followed_exactly():
    flat = WORLD.stats().means[WORLD.labels]
    after = bent(flat)
    world = dataclasses.replace(WORLD, features=flat)
    np.testing.assert_allclose(tracked(after, 3, world=world).prototype, after[WORLD.labels == RARE][0], atol=1e-8)
    assert np.isfinite(tracked(after, 0, world=world).prototype).all()


def test_trust_by_hand():
    assert trust(np.ones(4), 1.0, 0, 0.3) == 0.0
    assert trust(np.ones(4), 0.0, 2, 0.3) == 1.0
    assert trust(np.zeros(4), 1.0, 2, 1.0) == pytest.approx(0.25)
    assert disagreement(np.full(8, 3.0), 1.0, 4) == pytest.approx(9 - (1 + 10 / 2) / 4)
    assert trust(np.full(8, 3.0), 1.0, 4, 0.1) == pytest.approx(7.5 / 7.75)
    assert trust(np.zeros(4), 1.0, 2, 0.0) == 0.0


def test_the_corrected_mean_has_less_noise_than_the_mean():
    after = bent(WORLD.features, strength=0.2)
    rare = np.flatnonzero(WORLD.labels == RARE)
    found = fitted(cross_of(WORLD, after), 0.003)
    start, truth = WORLD.features[rare].mean(axis=0), after[rare].mean(axis=0)
    corrected, plain = [], []
    for first in range(0, 40, 4):
        some = rare[first : first + 4]
        z, h = WORLD.features[some].mean(axis=0), after[some].mean(axis=0)
        corrected.append(np.sum((corrected_mean(found, start, z, h) - truth) ** 2))
        plain.append(np.sum((h - truth) ** 2))
    assert np.mean(corrected) < 0.3 * np.mean(plain)


def test_departures_at_different_times_share_a_reference_model():
    """The second class's prototype is taken through the map from where it was under the first departure's model."""
    later, last = bent(WORLD.features, strength=0.0), bent(WORLD.features, seed=5, strength=0.0)
    watched = [RARE, 5]
    weights = np.where(np.isin(np.arange(7), watched), 0.0, 1.0)
    before = WORLD.stats(later, watched=watched)
    shared = mpt.deposit(before, 5, cross=cross_of(WORLD, later, weights))
    np.testing.assert_allclose(shared.anchor, WORLD.features[WORLD.labels == 5].mean(axis=0))
    assert mpt.Deposit.from_bytes(shared.to_bytes()) == shared
    staying = ~np.isin(WORLD.labels, watched)
    cross = mpt.CrossStatistics.from_features(
        WORLD.features[staying], last[staying], WORLD.labels[staying], 7, weights=weights
    )
    now = mpt.ClassStatistics.from_features(last[staying], WORLD.labels[staying], 7, watched=watched)
    rec = mpt.reconstruct(shared, now, variant="cross", cross=cross)
    truth = last[WORLD.labels == 5].mean(axis=0)
    assert np.linalg.norm(rec.prototype - truth) < 0.05 * np.linalg.norm(truth - last.mean(axis=0))
    own = dataclasses.replace(shared, anchor=None)
    astray = mpt.reconstruct(own, now, variant="cross", cross=cross).prototype
    assert np.linalg.norm(astray - truth) > 5 * np.linalg.norm(rec.prototype - truth)


def test_a_deposit_without_an_anchor_has_the_bytes_it_always_had():
    deposit = mpt.deposit(WORLD.stats(), RARE)
    assert deposit.anchor is None
    k, d = 6, 9
    assert deposit.nbytes == 20 + 12 + 24 + 8 * k + 8 * (k + 2 * d + k * d + d * (d + 1) // 2)


def test_wrong_cross_statistics_are_refused():
    after = bent(WORLD.features)
    deposit, now = mpt.deposit(WORLD.stats(), RARE), WORLD.stats(after)
    cases = [
        ({"variant": "cross"}, "cross: NoneType with variant 'cross', should be CrossStatistics"),
        ({"variant": "mpt", "cross": cross_of(WORLD, after)}, "should be left out"),
        ({"variant": "cross", "cross": cross_of(WORLD, after, np.ones(7))}, "departed class 2 has a weight"),
        ({"variant": "cross", "cross": cross_of(WORLD, after, np.zeros(7))}, "nothing to fit the map to"),
    ]
    for options, message in cases:
        with pytest.raises(mpt.StatisticsError, match=message):
            mpt.reconstruct(deposit, now, **options)
    with pytest.raises(mpt.StatisticsError, match="cross: 40 samples of departed class 2, should be the 5 of before"):
        mpt.deposit(WORLD.without_rare(5).stats(), RARE, cross=cross_of(WORLD, after))
    with pytest.raises(mpt.StatisticsError, match="num_classes: 6, should be at least 7"):
        mpt.class_weights(deposit, 6)


def test_health_by_hand():
    assert expected_error(0.0, 1.0, 0, 0.25, np.zeros(16)) == 2.0
    assert expected_error(1.0, 4.0, 4, 0.25, np.zeros(9)) == 3.0
    assert expected_error(0.0, 1.0, 4, 0.25, np.full(4, 3.0)) == pytest.approx(2 * np.sqrt(7.5))
    assert expected_error(1.0, 4.0, 4, 0.25, np.zeros(9), 3.0) == 6.0
    assert expected_error(0.0, 1.0, 0, 0.25, np.zeros(16), 0.75) == 4.0
    sure = Gap(0.5, 1.0)
    assert [verdict(e, 4.0, sure) for e in (1.7, 3.0, 3.5)] == ["good", "degraded", "lost"]
    assert verdict(3.5, 4.0, sure, lost=np.inf) == "degraded"
    assert verdict(0.0, 0.0, sure) == "lost"
    factor = np.linalg.cholesky(np.array([[4.0, 0.0], [0.0, 9.0]]))
    np.testing.assert_allclose(whiten(np.array([2.0, 3.0]), factor), [1, 1])


def test_what_would_be_good_needs_samples_that_confirm_it():
    """No sample, samples further off than expected, or so few that a lie of .45 of the margin does not show."""
    assert verdict(1.0, 4.0) == "unconfirmed"
    assert verdict(1.0, 4.0, Gap(1.1, 1.0)) == "unconfirmed"
    assert verdict(1.0, 4.0, Gap(0.5, (0.64 * 4) ** 2)) == "good"
    assert verdict(1.0, 4.0, Gap(0.5, 1.05 * (0.64 * 4) ** 2)) == "unconfirmed"
    assert verdict(1.0, 4.0, Gap(0.5, 1.0), Gap(0.5, 1.0, passes=0.25)) == "good"
    assert verdict(1.0, 4.0, Gap(0.5, 1.0), Gap(0.5, 1.1, passes=0.25)) == "unconfirmed"
    assert verdict(1.0, 4.0, Gap(0.5, 1.0), Gap(2.6, 1.0)) == "disputed"
    assert verdict(3.0, 4.0) == "degraded"
    for error in (1.0, 3.0, 3.9):
        assert verdict(error, 4.0, Gap(2.6, 1.0)) == "disputed"


def test_reference_classes_left_out_are_reconstructed_as_departed_ones():
    """Against a deposit and a reconstruction of each class by itself; with growth 1 that is MPT-lite's, unscaled."""
    before, now = WORLD.stats().means[REFERENCE], WORLD.stats(bent(WORLD.features)).means[REFERENCE]
    within, beyond = left_out_errors(before, now, 0.1, 1.0)
    for k in range(len(REFERENCE)):
        others = np.delete(np.arange(len(REFERENCE)), k)
        tiny = np.concatenate([before, before]), np.tile(np.arange(len(REFERENCE)), 2)
        deposit = mpt.deposit(mpt.ClassStatistics.from_features(*tiny, len(REFERENCE), watched=[k]), k, ridge=0.1)
        in_span = deposit.weights @ now[others]
        basis = np.linalg.qr(now[others].T)[0]
        stored = deposit.residual - basis @ (basis.T @ deposit.residual)
        np.testing.assert_allclose((within + beyond)[k], now[k] - in_span - stored, atol=1e-8)
        np.testing.assert_allclose(basis.T @ beyond[k], 0, atol=1e-8)
        np.testing.assert_allclose(basis @ (basis.T @ within[k]), within[k], atol=1e-8)


def test_without_samples_mpt_expects_what_it_gets_wrong_on_reference_classes():
    now = WORLD.without_rare().stats(bent(WORLD.without_rare().features))
    rec = mpt.reconstruct(mpt.deposit(WORLD.stats(), RARE), now)
    within, beyond = left_out_errors(WORLD.stats().means[REFERENCE], now.means[REFERENCE], 0.1, rec.growth)
    inverse = np.linalg.inv(regularize(now.covariance(), 0.1))
    squared = [times**2 * np.mean([e @ inverse @ e for e in part]) for times, part in ((3.4, within), (0.6, beyond))]
    assert rec.expected_error == pytest.approx(np.sqrt(sum(squared)))
    assert rec.verdict in ("unconfirmed", "degraded")
    lite = mpt.reconstruct(mpt.deposit(WORLD.stats(), RARE), now, variant="lite")
    assert lite.expected_error > 0
    assert lite.verdict is None


def test_however_many_samples_what_mpt_misses_within_the_span_stays():
    now = WORLD.stats(bent(WORLD.features))
    within, _ = left_out_errors(WORLD.stats().means[REFERENCE], now.means[REFERENCE], 0.1, 1.0)
    many = dataclasses.replace(
        now, counts=now.counts * 10**6, sums=now.sums * 10**6, squares=now.squares * 10**6, scatter=now.scatter * 10**6
    )
    inverse = np.linalg.inv(regularize(many.covariance(), 0.1))
    rec = mpt.reconstruct(mpt.deposit(WORLD.stats(), RARE), many)
    assert rec.alpha > 0.99
    assert rec.expected_error == pytest.approx(3.4 * np.sqrt(np.mean([e @ inverse @ e for e in within])), rel=0.01)


@pytest.mark.parametrize("variant", ["mpt", "lite"])
def test_where_there_is_no_noise_health_does_not_depend_on_the_unit(variant):
    def health(unit):
        features = np.eye(5, 7)[np.repeat(np.arange(5), 4)] * unit
        before = mpt.ClassStatistics.from_features(features, np.repeat(np.arange(5), 4), 5, watched=[0])
        now = mpt.ClassStatistics.from_features(features[::-1].cumsum(1), np.repeat(np.arange(5), 4), 5, watched=[0])
        rec = mpt.reconstruct(mpt.deposit(before, 0), now, variant=variant)
        return rec.verdict, rec.expected_error / unit

    (verdict_, error), (other, scaled) = health(1.0), health(1000.0)
    assert verdict_ == other
    assert scaled == pytest.approx(error)


def test_one_reference_class_says_nothing_about_the_error():
    two = WORLD.labels < 2
    stats = mpt.ClassStatistics.from_features(WORLD.features[two], WORLD.labels[two], 2, watched=[0])
    deposit = mpt.deposit(stats, 0)
    cross = mpt.CrossStatistics.from_features(
        WORLD.features[two], WORLD.features[two], WORLD.labels[two], 2, weights=mpt.class_weights(deposit, 2)
    )
    rec = mpt.reconstruct(deposit, stats, variant="cross", cross=cross)
    assert (rec.expected_error, rec.verdict) == (None, None)
