import random
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mpt

from .worlds import make_world


def close(a, b):
    """Counts exactly, the rest to 1e-12 of the largest entry."""
    np.testing.assert_array_equal(a.counts, b.counts)
    for name in ("sums", "squares", "scatter"):
        x, y = getattr(a, name), getattr(b, name)
        np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-12 * np.abs(y).max())


def merge_somehow(reports, pick):
    """Merge two reports, put the result back, and so on: an arbitrary order and grouping."""
    reports = list(reports)
    while len(reports) > 1:
        a = reports.pop(pick.randrange(len(reports)))
        b = reports.pop(pick.randrange(len(reports)))
        reports.append(a + b)
    return reports[0]


@given(
    seed=st.integers(0, 2**32 - 1),
    vehicles=st.integers(1, 12),
    scale=st.sampled_from([1e-6, 1.0, 1e5]),
    offset=st.sampled_from([0.0, 1e3]),
    pick=st.randoms(use_true_random=False),
)
def test_any_order_and_grouping_gives_the_same_statistics(seed, vehicles, scale, offset, pick: random.Random):
    rng = np.random.default_rng(seed)
    features = scale * (rng.standard_normal((80, 5)) + offset)
    labels = rng.integers(0, 4, 80)
    owner = rng.integers(0, vehicles, 80)
    options = {"watched": [1], "span": rng.standard_normal((2, 5)), "origin": scale * rng.standard_normal(5)}
    reports = [
        mpt.ClassStatistics.from_features(features[owner == v], labels[owner == v], 4, **options)
        for v in range(vehicles)
    ]
    merged = merge_somehow(reports, pick)
    close(merged, merge_somehow(reports, pick))
    close(merged, sum(reports))
    assert mpt.ClassStatistics.merge(iter(reports)) == sum(reports)
    close(merged, mpt.ClassStatistics.from_features(features, labels, 4, **options))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"watched": [3]}, r"watched are \(2,\) and \(3,\)"),
        ({"scatter": False}, "only one of the two has a scatter"),
        ({"origin": np.ones(12)}, "origins differ"),
        ({"span": np.ones((1, 12))}, "spans differ"),
    ],
)
def test_statistics_about_different_things_refuse_to_merge(change, message):
    world = make_world()
    a, b = world.stats(), world.stats(**change)
    before = a.to_bytes(), b.to_bytes()
    for pair in ((a, b), (b, a)):
        with pytest.raises(mpt.StatisticsError, match="merge: "):
            sum(pair)
    with pytest.raises(mpt.StatisticsError, match=message):
        a + b
    assert (a.to_bytes(), b.to_bytes()) == before


def test_other_shapes_and_types_refuse_to_merge():
    a = make_world().stats()
    with pytest.raises(mpt.StatisticsError, match=r"\(6, 12\) and \(6, 11\)"):
        a + make_world(d=11).stats()
    with pytest.raises(mpt.StatisticsError, match=r"\(6, 12\) and \(7, 12\)"):
        a + make_world(num_classes=7).stats()
    for other in (1, "0", None, 0.5):
        with pytest.raises(TypeError):
            a + other


def test_sums_that_overflow_are_refused():
    huge = mpt.ClassStatistics.from_features([[1e154]], [0], 1)
    with pytest.raises(mpt.StatisticsError, match="squares: inf"):
        sum([huge] * 4)


@pytest.mark.slow
def test_ten_thousand_vehicles_merge_as_they_arrive_in_constant_memory():
    d, num_classes, vehicles = 128, 10, 10_000
    rng = np.random.default_rng(0)
    messages = []
    for _ in range(50):
        features, labels = rng.standard_normal((20, d)), rng.integers(0, num_classes, 20)
        report = mpt.ClassStatistics.from_features(features, labels, num_classes, watched=[9])
        messages.append(report.to_bytes("float32"))

    def merge(start, stop, total):
        for v in range(start, stop):
            total = total + mpt.ClassStatistics.from_bytes(messages[v % len(messages)])
        return total

    tracemalloc.start()
    try:
        merged = merge(0, 100, 0)
        peak_first = tracemalloc.get_traced_memory()[1]
        tracemalloc.reset_peak()
        merged = merge(100, vehicles, merged)
        peak_rest = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert merged.counts.sum() == 20 * vehicles
    # at most one more object than before: the total of the first hundred, which the caller holds
    assert peak_rest - peak_first < 1.1 * 8 * d * (d + num_classes + 2)
    assert peak_rest < 2e6
    few = merge(0, 50, 0)
    np.testing.assert_allclose(merged.scatter, few.scatter * (vehicles // 50), rtol=1e-11, atol=1e-8)
