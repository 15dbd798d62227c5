import dataclasses

import numpy as np
import ot
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mpt
from mpt.core.equations import barycentric_weights, reliability, span_basis

from .worlds import make_world, spd


def projector(rows):
    """Pc, from the pseudo-inverse."""
    return np.eye(rows.shape[1]) - np.linalg.pinv(rows) @ rows


def drifted(world, seed=9, strength=0.3):
    """The features under a later model: a linear map near the identity and a shift."""
    rng = np.random.default_rng(seed)
    d = world.features.shape[1]
    return world.features @ (np.eye(d) + strength * rng.standard_normal((d, d)) / np.sqrt(d)) + rng.standard_normal(d)


def test_mpt_is_the_papers_rule():
    """Eq. (1) to (7) written out once more, with POT's map and dense projectors."""
    world = make_world()
    deposit = mpt.deposit(world.stats(), 2, ridge=0.2, cov_ridge=0.15)
    left = world.without_rare(keep=7)
    features = drifted(left)
    now = left.stats(features)
    rec = mpt.reconstruct(deposit, now)

    references = [0, 1, 3, 4, 5]
    off_span = projector(now.means[references])
    d = 12

    def regular(s):
        return s + 0.15 * np.trace(s) / d * np.eye(d)

    zero = np.zeros(d)
    mapping = ot.gaussian.bures_wasserstein_mapping(zero, zero, regular(deposit.covariance), regular(now.covariance()))[
        0
    ]
    in_span = deposit.weights @ now.means[references]
    predicted = off_span @ (mapping @ deposit.residual)
    measured = off_span @ features[left.labels == 2].mean(axis=0)
    noise = np.trace(off_span @ now.covariance()) / d
    gap = np.sum((measured - predicted) ** 2) / d
    tau = max(gap - noise / 7, 1e-9 * noise / 7)
    alpha = tau / (tau + noise / 7)

    np.testing.assert_allclose(rec.in_span, in_span, rtol=1e-10)
    np.testing.assert_allclose(rec.predicted, predicted, atol=1e-10)
    np.testing.assert_allclose(rec.measured, measured, atol=1e-10)
    assert rec.noise == pytest.approx(noise, rel=1e-10)
    assert rec.alpha == pytest.approx(alpha, rel=1e-8)
    assert 0 < rec.alpha < 1
    np.testing.assert_allclose(rec.prototype, in_span + alpha * measured + (1 - alpha) * predicted, atol=1e-9)
    assert rec.samples == 7
    assert rec.growth == pytest.approx(np.linalg.norm(predicted) / np.linalg.norm(off_span @ deposit.residual))


@pytest.mark.parametrize("with_scatter", [False, True])
def test_lite_scales_the_residual_by_the_growth_outside_the_span(with_scatter):
    world = make_world()
    references = [0, 1, 3, 4, 5]
    span_before = world.stats().means[references]
    origin = np.full(12, 0.5)
    deposit = mpt.deposit(world.stats(span=span_before, origin=origin, scatter=with_scatter), 2)
    left = world.without_rare(keep=5)
    features = drifted(left)
    span_now = left.stats(features).means[references] + 0.01
    now = left.stats(features, span=span_now, origin=origin - 0.2, scatter=with_scatter)
    rec = mpt.reconstruct(deposit, now, variant="lite")

    def spread(features, labels, span):
        total = sum(
            np.sum(((features[labels == c] - features[labels == c].mean(axis=0)) @ projector(span)) ** 2)
            for c in references
        )
        n = np.isin(labels, references).sum()
        return total / (n - 5) if with_scatter else total / n

    if with_scatter:
        span_now = now.means[references]
    q_before = spread(world.features, world.labels, span_before)
    q_now = spread(features, left.labels, span_now)
    off_span = projector(now.means[references])
    np.testing.assert_allclose(rec.predicted, np.sqrt(q_now / q_before) * off_span @ deposit.residual, atol=1e-10)
    assert rec.growth == pytest.approx(np.sqrt(q_now / q_before))
    assert rec.noise == pytest.approx(q_now / 12)


@given(seed=st.integers(0, 2**32 - 1), size=st.floats(-1e3, 1e3), keep=st.integers(0, 5))
def test_a_common_translation_moves_the_in_span_part_by_exactly_that(seed, size, keep):
    world = make_world(seed, per_class=15)
    shift = size * np.random.default_rng(seed).standard_normal(12)
    left = world.without_rare(keep)
    deposit = mpt.deposit(world.stats(), 2)
    moved_before = mpt.deposit(world.stats(world.features + shift), 2)
    np.testing.assert_allclose(moved_before.weights, deposit.weights, atol=1e-9)
    np.testing.assert_allclose(moved_before.residual, deposit.residual, atol=1e-9)
    here = mpt.reconstruct(deposit, left.stats())
    there = mpt.reconstruct(deposit, left.stats(left.features + shift))
    np.testing.assert_allclose(there.in_span - here.in_span, shift, atol=1e-9 * max(1, abs(size)))
    np.testing.assert_array_equal(there.weights, here.weights)


@given(seed=st.integers(0, 2**32 - 1), condition=st.floats(1, 100))
def test_a_symmetric_positive_definite_map_is_followed_exactly(seed, condition):
    world = make_world(seed, per_class=25)
    mapping = spd(np.random.default_rng(seed), 12, condition)
    deposit = mpt.deposit(world.stats(), 2, ridge=0, cov_ridge=0)
    now = world.without_rare().stats(world.without_rare().features @ mapping)
    rec = mpt.reconstruct(deposit, now)
    scale = np.linalg.norm(mapping @ deposit.prototype)
    np.testing.assert_allclose(rec.in_span, mapping @ (deposit.weights @ deposit.reference), atol=1e-8 * scale)
    transported = mapping @ deposit.residual
    np.testing.assert_allclose(rec.predicted, projector(now.means[deposit.classes]) @ transported, atol=1e-8 * scale)


def test_without_drift_only_the_part_inside_the_linear_span_is_lost():
    world = make_world()
    deposit = mpt.deposit(world.stats(), 2)
    for variant in ("mpt", "lite"):
        rec = mpt.reconstruct(deposit, world.without_rare().stats(), variant=variant)
        assert rec.alpha == 0
        lost = deposit.prototype - rec.prototype
        inside = deposit.residual - projector(deposit.reference) @ deposit.residual
        np.testing.assert_allclose(lost, inside, atol=1e-9)
        assert rec.growth == pytest.approx(1)


@pytest.mark.parametrize("variant", ["mpt", "lite"])
def test_remaining_samples_none_one_and_many(variant):
    world = make_world(per_class=400)
    deposit = mpt.deposit(world.stats(), 2)

    def rec(keep):
        left = world.without_rare(keep)
        return mpt.reconstruct(deposit, left.stats(drifted(left)), variant=variant)

    none, one, many = rec(0), rec(1), rec(400)
    assert (none.alpha, none.samples) == (0, 0)
    assert none.measured.tolist() == [0] * 12
    np.testing.assert_array_equal(none.prototype, none.in_span + none.predicted)
    assert one.samples == 1
    assert one.noise > 0
    disagreement = np.sum((one.measured - one.predicted) ** 2) / 12
    assert one.alpha == pytest.approx(max(1 - one.noise / disagreement, 0), abs=1e-8)
    assert many.alpha > 0.9
    assert many.noise == pytest.approx(none.noise)


def test_reliability_is_eq_7_at_its_edges():
    r = np.array([3.0, 4.0])
    assert reliability(r, r, 2.0, 10) == pytest.approx(1e-9, rel=1e-3)
    assert reliability(r, 0 * r, 2.0, 10) == pytest.approx((12.5 - 0.2) / 12.5)
    assert reliability(r, 0 * r, 0.0, 10) == 1
    assert reliability(r, r, 0.0, 1) == 1
    assert reliability(r, 0 * r, 2.0, 0) == 0


def test_a_reference_class_that_disappears_is_dropped_and_the_weights_are_solved_again():
    world = make_world()
    deposit = mpt.deposit(world.stats(), 2)
    left = world.without_rare(keep=4)
    here = left.labels != 4
    now = mpt.ClassStatistics.from_features(left.features[here], left.labels[here], 6, watched=[2])
    rec = mpt.reconstruct(deposit, now)
    rows = [0, 1, 2, 4]
    expected = barycentric_weights(deposit.prototype, deposit.reference[rows], deposit.ridge)
    assert rec.classes.tolist() == [0, 1, 3, 5]
    np.testing.assert_array_equal(rec.weights, expected)
    np.testing.assert_allclose(rec.in_span, expected @ now.means[[0, 1, 3, 5]])
    fewer = dataclasses.replace(
        deposit,
        classes=deposit.classes[rows],
        reference=deposit.reference[rows],
        weights=expected,
        residual=deposit.prototype - expected @ deposit.reference[rows],
    )
    np.testing.assert_allclose(rec.prototype, mpt.reconstruct(fewer, now).prototype, rtol=1e-12)
    assert deposit == mpt.deposit(world.stats(), 2)


def test_lites_growth_does_not_jump_when_a_reference_class_disappears():
    """The spread at departure is taken outside the references that are left, and per sample where it is so now."""
    world = make_world(num_classes=8, d=20, per_class=30)
    deposit = mpt.deposit(world.stats(), 2)
    left = world.without_rare()
    here = left.labels != 4
    for options in ({}, {"scatter": False, "span": deposit.reference[[0, 1, 2, 4, 5, 6]]}):
        now = mpt.ClassStatistics.from_features(left.features[here], left.labels[here], 8, watched=[2], **options)
        assert mpt.reconstruct(deposit, now, variant="lite").growth == pytest.approx(1, abs=0.03)
    small = make_world(num_classes=8, d=20, per_class=4)
    full = mpt.deposit(small.stats(), 2)
    without_scatter = small.without_rare().stats(scatter=False, span=full.reference)
    assert mpt.reconstruct(full, without_scatter, variant="lite").growth == pytest.approx(1)
    bare = mpt.deposit(small.stats(scatter=False, span=full.reference), 2)
    assert mpt.reconstruct(bare, small.without_rare().stats(), variant="lite").growth == pytest.approx(1)


def test_a_reference_class_that_is_watched_later_is_dropped_too():
    world = make_world()
    deposit = mpt.deposit(world.stats(), 2)
    rec = mpt.reconstruct(deposit, world.without_rare().stats(watched=[2, 5]))
    assert rec.classes.tolist() == [0, 1, 3, 4]


def test_a_class_that_appears_later_is_no_reference():
    world = make_world()
    known = world.labels != 5
    before = mpt.ClassStatistics.from_features(world.features[known], world.labels[known], 6, watched=[2])
    deposit = mpt.deposit(before, 2)
    rec = mpt.reconstruct(deposit, world.without_rare().stats())
    assert rec.classes.tolist() == [0, 1, 3, 4]
    np.testing.assert_allclose(rec.in_span, deposit.weights @ world.stats().means[[0, 1, 3, 4]])
    wider = mpt.ClassStatistics.from_features(world.features, world.labels, 9, watched=[2])
    np.testing.assert_allclose(mpt.reconstruct(deposit, wider).in_span, rec.in_span)


def test_several_deposits_are_reconstructed_one_by_one():
    world = make_world()
    watched = [1, 2]
    deposits = mpt.deposit(world.stats(watched=watched), [2, 1])
    now = world.stats(drifted(world), watched=watched)
    both = mpt.reconstruct(deposits, now)
    assert [r.departed for r in both] == [2, 1]
    for deposit, rec in zip(deposits, both, strict=True):
        np.testing.assert_array_equal(rec.prototype, mpt.reconstruct(deposit, now).prototype)
        assert rec.classes.tolist() == [0, 3, 4, 5]


LATER = {
    "usual": lambda world: world.features,
    "zero covariance": lambda world: world.prototypes[world.labels],
    "all equal": lambda world: np.full_like(world.features, 3.0),
    "all zero": lambda world: np.zeros_like(world.features),
    "tiny": lambda world: world.features * 1e-8,
    "huge": lambda world: world.features * 1e8,
}


@pytest.mark.parametrize("variant", ["mpt", "lite"])
@pytest.mark.parametrize("keep", [0, 1, 10])
@pytest.mark.parametrize("now", LATER)
@pytest.mark.parametrize("before", LATER)
def test_degenerate_features_give_a_finite_prototype(variant, keep, before, now):
    world = make_world()
    deposit = mpt.deposit(world.stats(LATER[before](world)), 2)
    left = world.without_rare(keep)
    rec = mpt.reconstruct(deposit, left.stats(LATER[now](left)), variant=variant)
    assert np.isfinite(rec.prototype).all()
    assert 0 <= rec.alpha <= 1
    assert np.isfinite([rec.noise, rec.growth]).all()


@pytest.mark.parametrize("d", [12, 250])
@pytest.mark.parametrize("scale", [1e-70, 1e-30, 1e30, 1e70])
def test_the_scale_of_the_features_does_not_matter(d, scale):
    world = make_world(d=d)
    left = world.without_rare(keep=5)
    usual = mpt.reconstruct(mpt.deposit(world.stats(), 2), left.stats(drifted(left)))
    scaled = mpt.reconstruct(mpt.deposit(world.stats(scale * world.features), 2), left.stats(scale * drifted(left)))
    np.testing.assert_allclose(scaled.prototype / scale, usual.prototype, rtol=1e-6)
    assert scaled.alpha == pytest.approx(usual.alpha, rel=1e-6)


@pytest.mark.parametrize("d", [64, 300])
@pytest.mark.parametrize("cov_ridge", [1e-4, 1e-6])
def test_few_samples_and_a_small_ridge_still_transport(d, cov_ridge):
    """A covariance of rank 25 and nothing that drifts: T is the identity."""
    world = make_world(d=d, per_class=6)
    deposit = mpt.deposit(world.stats(), 2, cov_ridge=cov_ridge)
    rec = mpt.reconstruct(deposit, world.without_rare().stats())
    expected = projector(deposit.reference) @ deposit.residual
    assert np.linalg.norm(rec.predicted - expected) < 1e-6 * np.linalg.norm(expected)


@pytest.mark.parametrize("variant", ["mpt", "lite"])
@pytest.mark.parametrize(("before", "now"), [("zero covariance", "usual"), ("usual", "zero covariance")])
def test_a_zero_covariance_leaves_the_residual_as_it_was(variant, before, now):
    world = make_world()
    deposit = mpt.deposit(world.stats(LATER[before](world)), 2)
    left = world.without_rare()
    stats = left.stats(LATER[now](left))
    rec = mpt.reconstruct(deposit, stats, variant=variant)
    np.testing.assert_allclose(rec.predicted, projector(stats.means[rec.classes]) @ deposit.residual, atol=1e-9)


@pytest.mark.parametrize("variant", ["mpt", "lite"])
def test_references_that_span_the_space_leave_no_residual(variant):
    world = make_world(num_classes=9, d=4)
    deposit = mpt.deposit(world.stats(), 2)
    left = world.without_rare(keep=5)
    rec = mpt.reconstruct(deposit, left.stats(drifted(left)), variant=variant)
    assert rec.predicted.tolist() == rec.measured.tolist() == [0] * 4
    np.testing.assert_array_equal(rec.prototype, rec.in_span)


def test_what_is_printed_says_what_is_known_of_its_health():
    world = make_world()
    deposit, left = mpt.deposit(world.stats(), 2), world.without_rare()
    now = drifted(left)
    cross = mpt.CrossStatistics.from_features(
        left.features, now, left.labels, 6, weights=mpt.class_weights(deposit, world.num_classes)
    )
    made = mpt.reconstruct(deposit, left.stats(now), variant="cross", cross=cross)
    said = f"class 2, {made.verdict}, expected error {made.expected_error:.3g}, reach {made.reach:.3g}, alpha=0.000"
    assert said in repr(made)
    made = mpt.reconstruct(deposit, left.stats(now))
    assert f"class 2, {made.verdict}, expected error {made.expected_error:.3g}, alpha=0.000" in repr(made)
    made = mpt.reconstruct(deposit, left.stats(now), variant="lite")
    assert f"class 2, expected error {made.expected_error:.3g}, alpha=0.000" in repr(made)
    alone = dataclasses.replace(made, expected_error=None)
    assert f"class 2, alpha=0.000 from 0 remaining samples, growth={made.growth:.3f}, 5 ref" in repr(alone)


def test_one_reference_class():
    world = make_world(num_classes=2, rare=0)
    deposit = mpt.deposit(world.stats(), 0)
    left = world.without_rare(keep=3)
    now = left.stats(drifted(left))
    for variant in ("mpt", "lite"):
        np.testing.assert_allclose(mpt.reconstruct(deposit, now, variant=variant).in_span, now.means[1])


def test_the_wire_in_float32_changes_the_prototype_little():
    world = make_world(offset=20.0)
    origin = world.stats().overall_mean
    left = world.without_rare(keep=6)
    exact = mpt.reconstruct(mpt.deposit(world.stats(), 2), left.stats(drifted(left)))

    def through_float32(thing):
        return type(thing).from_bytes(thing.to_bytes("float32"))

    deposit = through_float32(mpt.deposit(through_float32(world.stats(origin=origin)), 2))
    rounded = mpt.reconstruct(deposit, through_float32(left.stats(drifted(left), origin=origin)))
    np.testing.assert_allclose(rounded.prototype, exact.prototype, rtol=1e-4)


def test_the_span_has_the_numerical_rank():
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((3, 8))
    assert span_basis(rows).shape == (8, 3)
    assert span_basis(np.vstack([rows, 2 * rows, rows.sum(axis=0)])).shape == (8, 3)
    assert span_basis(np.zeros((2, 8))).shape == (8, 0)
    assert span_basis(rng.standard_normal((20, 8))).shape == (8, 8)
