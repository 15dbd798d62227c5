import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mpt
from mpt.core.cross import StaticPart

from .test_merging import merge_somehow
from .worlds import make_world

WORLD = make_world()
WEIGHTS = np.array([1.0, 2.0, 0.0, 0.5, 1.0, 3.0])
ORIGINS = {"origin": WORLD.features.mean(axis=0) + 1, "earlier_origin": WORLD.features.mean(axis=0)}


def moved(world=WORLD, seed=1):
    rng = np.random.default_rng(seed)
    d = world.features.shape[1]
    return world.features @ rng.standard_normal((d, d)) / np.sqrt(d) + rng.standard_normal(d)


def cross(rows=slice(None), after=None, **options):
    after = moved() if after is None else after
    options = {"weights": WEIGHTS, **options}
    return mpt.CrossStatistics.from_features(WORLD.features[rows], after[rows], WORLD.labels[rows], 6, **options)


def test_the_sums_are_those_of_the_definition_sample_by_sample():
    stats, after = cross(**ORIGINS), moved()
    gram, products = np.zeros((12, 12)), np.zeros((12, 12))
    sums, earlier, counts = np.zeros((6, 12)), np.zeros((6, 12)), np.zeros(6, int)
    for z, h, c in zip(
        WORLD.features - ORIGINS["earlier_origin"], after - ORIGINS["origin"], WORLD.labels, strict=True
    ):
        gram += WEIGHTS[c] * np.outer(z, z)
        products += WEIGHTS[c] * np.outer(z, h)
        sums[c] += h
        earlier[c] += z
        counts[c] += 1
    np.testing.assert_array_equal(stats.counts, counts)
    for got, expected in ((stats.gram, gram), (stats.cross, products), (stats.sums, sums), (stats.earlier, earlier)):
        np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-11 * np.abs(expected).max())
    for c in range(6):
        mine = WORLD.labels == c
        np.testing.assert_allclose(stats.means[c], after[mine].mean(axis=0))
        np.testing.assert_allclose(stats.earlier_means[c], WORLD.features[mine].mean(axis=0))


def test_within_is_about_each_class_own_means():
    after = moved()
    gram, products = np.zeros((12, 12)), np.zeros((12, 12))
    for c in range(6):
        z, h = WORLD.features[WORLD.labels == c], after[WORLD.labels == c]
        gram += WEIGHTS[c] * (z - z.mean(axis=0)).T @ (z - z.mean(axis=0))
        products += WEIGHTS[c] * (z - z.mean(axis=0)).T @ (h - h.mean(axis=0))
    for origins in ({}, ORIGINS):
        within, within_cross = cross(**origins).within
        np.testing.assert_allclose(within, gram, atol=1e-10 * np.abs(gram).max())
        np.testing.assert_allclose(within_cross, products, atol=1e-10 * np.abs(products).max())


@given(seed=st.integers(0, 2**32 - 1), vehicles=st.integers(1, 8), pick=st.randoms(use_true_random=False))
def test_any_order_and_grouping_gives_the_same_sums(seed, vehicles, pick: random.Random):
    owner = np.random.default_rng(seed).integers(0, vehicles, len(WORLD.labels))
    reports = [cross(owner == v, **ORIGINS) for v in range(vehicles)]
    whole = cross(**ORIGINS)
    for merged in (merge_somehow(reports, pick), sum(reports), mpt.CrossStatistics.merge(reports)):
        np.testing.assert_array_equal(merged.counts, whole.counts)
        for name in ("earlier", "sums", "gram", "cross"):
            expected = getattr(whole, name)
            np.testing.assert_allclose(getattr(merged, name), expected, atol=1e-12 * np.abs(expected).max())


def test_what_was_made_differently_does_not_merge():
    for options, word in (({"weights": np.ones(6)}, "weights"), ({"origin": np.ones(12)}, "origin")):
        with pytest.raises(mpt.StatisticsError, match=f"merge: the {word} differ"):
            _ = cross() + cross(**options)
    with pytest.raises(mpt.StatisticsError, match="merge: no reports"):
        mpt.CrossStatistics.merge([])


def test_bytes_are_lossless_or_half_as_many():
    stats = cross(**ORIGINS)
    assert mpt.CrossStatistics.from_bytes(stats.to_bytes()) == stats
    narrow = mpt.CrossStatistics.from_bytes(stats.to_bytes("float32"))
    np.testing.assert_allclose(narrow.gram, stats.gram, rtol=1e-7)
    np.testing.assert_allclose(narrow.cross, stats.cross, rtol=1e-7)
    np.testing.assert_array_equal(narrow.origin, stats.origin)
    c, d = 6, 12
    reals = 2 * c * d + d * d + d * (d + 1) // 2
    assert len(stats.to_bytes("float32", frame=False)) == 20 + 8 + 8 + 8 * c + 8 + 4 * reals
    assert stats.nbytes == 20 + 8 + 8 + 8 * c + 8 * (c + 2 * d) + 8 * reals


def test_the_static_part_travels_once():
    first, later = cross(**ORIGINS), cross(after=moved(seed=7), **ORIGINS)
    assert first.static_digest == later.static_digest
    message = later.to_bytes("float32", known={first.static_digest})
    assert len(message) == len(later.to_bytes("float32")) - 4 * (6 * 12 + 12 * 13 // 2)
    with pytest.raises(mpt.StatisticsError, match="not among the known ones"):
        mpt.CrossStatistics.from_bytes(message)
    received = mpt.CrossStatistics.from_bytes(message, known={first.static_digest: first.static})
    np.testing.assert_array_equal(received.gram, first.gram)
    np.testing.assert_allclose(received.cross, later.cross, rtol=1e-7)
    assert received.static_digest == first.static_digest
    fewer = cross(slice(0, -1), **ORIGINS)
    assert fewer.to_bytes(known={first.static_digest}) == fewer.to_bytes()
    other = {first.static_digest: StaticPart(fewer.counts, fewer.earlier, fewer.gram)}
    with pytest.raises(mpt.StatisticsError, match="not among the known ones"):
        mpt.CrossStatistics.from_bytes(message, known=other)


def test_cross_moments_travel_with_three_digits():
    stats = cross(**ORIGINS)
    message = stats.to_bytes("float32", halves=True)
    assert len(message) == len(stats.to_bytes("float32")) - 2 * 12 * 12 + 8
    received = mpt.CrossStatistics.from_bytes(message)
    np.testing.assert_allclose(received.cross, stats.cross, rtol=6e-4, atol=1e-7 * np.abs(stats.cross).max())
    np.testing.assert_allclose(received.gram, stats.gram, rtol=1e-7)
    empty = mpt.CrossStatistics.from_features(np.zeros((0, 3)), np.zeros((0, 3)), [], 2)
    assert mpt.CrossStatistics.from_bytes(empty.to_bytes(halves=True)) == empty


def test_weights_and_origins_need_not_travel():
    stats = cross(**ORIGINS)
    message = stats.to_bytes(frame=False)
    assert mpt.CrossStatistics.from_bytes(message, weights=WEIGHTS, **ORIGINS) == stats
    for changed in ({"weights": WEIGHTS + 1}, {"origin": ORIGINS["origin"] + 1}, {"earlier_origin": np.zeros(12)}):
        with pytest.raises(mpt.StatisticsError, match="other weights or origins"):
            mpt.CrossStatistics.from_bytes(message, **{"weights": WEIGHTS, **ORIGINS, **changed})


def test_damaged_and_foreign_bytes_are_refused():
    message = cross().to_bytes()
    for bad in (message[:-1], message[:50] + b"\x01" + message[51:], WORLD.stats().to_bytes(), b""):
        with pytest.raises(mpt.StatisticsError, match="CrossStatistics bytes"):
            mpt.CrossStatistics.from_bytes(bad)


@pytest.mark.parametrize(("halves", "offset"), [(True, 10), (False, 1000)])
def test_far_from_zero_the_wire_wants_origins_and_says_so(halves, offset):
    far = make_world(offset=offset)
    after = moved(far)
    labels, origins = (far.labels, 6), {"origin": after.mean(axis=0), "earlier_origin": far.features.mean(axis=0)}
    bare = mpt.CrossStatistics.from_features(far.features, after, *labels)
    with pytest.warns(UserWarning, match="origin and earlier_origin near the features"):
        bare.to_bytes("float32", halves=halves)
    bare.to_bytes()
    mpt.CrossStatistics.from_features(far.features, after, *labels, **origins).to_bytes("float32", halves=halves)
