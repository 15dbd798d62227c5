import numpy as np
import pytest

import mpt
from mpt.core import validation

from .worlds import make_world


def by_hand(features, labels, num_classes, watched, origin, span):
    """The definitions of DESIGN section 2, sample by sample."""
    d = features.shape[1]
    off_span = np.eye(d) if span is None else np.eye(d) - np.linalg.pinv(span) @ span
    counts, sums = np.zeros(num_classes, dtype=int), np.zeros((num_classes, d))
    squares, scatter = np.zeros(num_classes), np.zeros((d, d))
    for feature, c in zip(features, labels, strict=True):
        h = feature - origin
        counts[c] += 1
        sums[c] += h
        squares[c] += np.sum((off_span @ h) ** 2)
        if c not in watched:
            scatter += np.outer(h, h)
    return counts, sums, squares, scatter


@pytest.mark.parametrize("with_span", [False, True])
def test_sums_are_what_the_definitions_say(with_span):
    world = make_world(d=7)
    rng = np.random.default_rng(1)
    span = rng.standard_normal((3, 7)) if with_span else None
    origin = rng.standard_normal(7)
    stats = world.stats(watched=[2, 4], span=span, origin=origin)
    counts, sums, squares, scatter = by_hand(world.features, world.labels, 6, {2, 4}, origin, span)
    assert stats.counts.dtype == np.int64
    np.testing.assert_array_equal(stats.counts, counts)
    np.testing.assert_allclose(stats.sums, sums, rtol=1e-12, atol=1e-11)
    np.testing.assert_allclose(stats.squares, squares, rtol=1e-12)
    np.testing.assert_allclose(stats.scatter, scatter, rtol=1e-12, atol=1e-11)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int32, np.uint8])
def test_sums_are_float64_whatever_comes_in(dtype):
    rng = np.random.default_rng(0)
    features = rng.integers(0, 200, (5000, 4)).astype(dtype)
    labels = rng.integers(0, 2, 5000).astype(np.uint8)
    stats = mpt.ClassStatistics.from_features(features, labels, 2)
    exact = mpt.ClassStatistics.from_features(features.astype(np.float64), labels, 2)
    assert stats == exact
    assert stats.sums[0].tolist() == features[labels == 0].astype(object).sum(axis=0).tolist()


def test_many_samples_are_read_in_blocks(monkeypatch):
    world = make_world(d=5)
    whole = world.stats(span=np.ones((1, 5)))
    monkeypatch.setattr(validation, "_BLOCK_ELEMENTS", 35)
    blocks = world.stats(span=np.ones((1, 5)))
    np.testing.assert_array_equal(blocks.counts, whole.counts)
    for name in ("sums", "squares", "scatter"):
        np.testing.assert_allclose(getattr(blocks, name), getattr(whole, name), rtol=1e-12, atol=1e-10)


def test_means_have_the_origin_added_back_and_nan_where_there_is_no_sample():
    world = make_world(offset=50.0)
    stats = mpt.ClassStatistics.from_features(world.features, world.labels, 8, origin=np.full(12, 49.0))
    for c in range(6):
        np.testing.assert_allclose(stats.means[c], world.features[world.labels == c].mean(axis=0), rtol=1e-13)
    assert np.isnan(stats.means[6:]).all()
    np.testing.assert_allclose(stats.overall_mean, world.features.mean(axis=0), rtol=1e-13)
    np.testing.assert_array_equal(stats.reference_classes, np.arange(6))


def pooled_covariance(features, labels, classes):
    parts = [features[labels == c] for c in classes]
    within = sum((len(p) - 1) * np.cov(p.T) for p in parts if len(p) > 1)
    return within / (sum(len(p) for p in parts) - len(parts))


def test_covariance_is_pooled_within_the_unwatched_classes():
    world = make_world()
    expected = pooled_covariance(world.features, world.labels, [0, 1, 3, 5])
    np.testing.assert_allclose(world.stats(watched=(4, 2)).covariance(), expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("vehicles", [1, 25])
def test_covariance_survives_a_mean_a_thousand_times_the_spread(dtype, vehicles):
    rng = np.random.default_rng(3)
    labels = rng.integers(0, 3, 2000)
    features = (1000 + 10 * labels[:, None] + rng.standard_normal((2000, 16))).astype(dtype)
    parts = zip(np.array_split(features, vehicles), np.array_split(labels, vehicles), strict=True)
    stats = sum(mpt.ClassStatistics.from_features(f, y, 3) for f, y in parts)
    expected = pooled_covariance(features.astype(np.float64), labels, range(3))
    assert np.linalg.norm(stats.covariance() - expected) < 1e-6 * np.linalg.norm(expected)


def test_with_an_origin_near_the_features_float32_suffices_on_the_wire():
    rng = np.random.default_rng(4)
    labels = rng.integers(0, 3, 2000)
    features = 1000 + labels[:, None] + rng.standard_normal((2000, 16))
    expected = pooled_covariance(features, labels, range(3))

    def error(origin):
        stats = mpt.ClassStatistics.from_features(features, labels, 3, origin=origin)
        received = mpt.ClassStatistics.from_bytes(stats.to_bytes("float32"))
        np.testing.assert_allclose(received.means, stats.means, rtol=1e-6)
        return np.linalg.norm(received.covariance() - expected) / np.linalg.norm(expected)

    assert error(np.full(16, 1000.4)) < 1e-6
    with pytest.warns(UserWarning, match="make the statistics with an origin near the features"):
        assert error(None) > 1e-3


def test_covariance_needs_more_samples_than_classes_and_a_scatter():
    world = make_world(per_class=1)
    with pytest.raises(mpt.StatisticsError, match="5 samples of 5 classes"):
        world.stats().covariance()
    with pytest.raises(mpt.StatisticsError, match="scatter=True"):
        make_world().stats(scatter=False).covariance()


def test_a_vehicle_without_samples_reports_zeros():
    empty = mpt.ClassStatistics.from_features(np.zeros((0, 4)), [], 3)
    assert empty.counts.tolist() == [0, 0, 0]
    assert np.isnan(empty.means).all()
    world = make_world(num_classes=3, d=4, rare=1)
    assert empty + world.stats(watched=()) == world.stats(watched=())


def test_statistics_are_values():
    world = make_world()
    stats = world.stats()
    assert stats == world.stats()
    assert stats != world.stats(watched=())
    assert stats != world.stats(scatter=False)
    assert stats != "statistics"
    assert "360 samples of 6/6 classes, d=12, watched=(2,), scatter" in repr(stats)
    with pytest.raises(ValueError, match="read-only"):
        stats.sums[0, 0] = 1
    with pytest.raises(ValueError, match="read-only"):
        stats.covariance()[0, 0] = 1
    with pytest.raises(AttributeError):
        stats.counts = stats.counts
    with pytest.raises(TypeError):
        hash(stats)


def test_the_constructor_copies_what_it_is_given():
    counts, sums, squares = np.array([2, 0]), np.array([[1.0, 2.0], [0.0, 0.0]]), np.array([5.0, 0.0])
    stats = mpt.ClassStatistics(counts, sums, squares)
    sums[0] = 99
    assert stats.sums[0].tolist() == [1.0, 2.0]
    assert sums.flags.writeable


def test_watched_may_be_one_class_or_any_collection():
    world = make_world()
    for watched in (2, [2], (2, 2), {2}, np.array([2]), np.int64(2), np.array(2)):
        assert world.stats(watched=watched).watched == (2,)
    assert world.stats(watched=[4, 0]).watched == (0, 4)
