"""The bounds one by one: against NumPy, SciPy's optimisers and distributions, and definitions written out."""

import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from scipy import optimize, stats

from mpt.core.influence import (
    HOLDERS,
    MOST_SPREAD,
    OWN_OFFSET,
    RARE,
    SLACK,
    beyond_median,
    bounds,
    capped_remaining,
    chance,
    direction_share,
    geometric_median,
    middle,
    no_majority,
    redescending,
    spread_share,
)

from .worlds import spd

counts_of_vehicles = st.lists(st.integers(0, 500), min_size=1, max_size=12).map(np.array)
seeds = st.integers(0, 2**32 - 1)
known_or_not = arrays(np.float64, array_shapes(min_dims=1, max_dims=3), elements=st.just(np.nan) | st.floats(-1e6, 1e6))


@pytest.mark.filterwarnings("ignore:All-NaN slice encountered:RuntimeWarning")
@given(values=known_or_not)
def test_the_middle_is_numpys_median_of_what_is_not_nan(values):
    np.testing.assert_allclose(middle(values), np.nanmedian(values, axis=0), rtol=1e-12)


@pytest.mark.parametrize("k", [1, 2, 5, 30, 512])
def test_how_far_is_rare_is_that_of_scipys_distribution(k):
    assert beyond_median(k) == pytest.approx(stats.chi2.isf(RARE, k) / stats.chi2.median(k))
    assert beyond_median(0) == beyond_median(1)


@given(counts=counts_of_vehicles)
def test_nobody_has_more_than_all_others_have_together(counts):
    kept = no_majority(counts)
    for v, n in enumerate(counts):
        others = sum(counts) - n
        assert kept[v] == (min(n, others) if others else n)
        assert 2 * kept[v] <= kept.sum() or others == 0


@given(counts=counts_of_vehicles)
def test_of_a_departed_class_nobody_has_a_majority_nor_more_than_twice_the_median_holder(counts):
    kept, holding = capped_remaining(counts), sorted(n for n in counts if n)
    assert np.all(kept <= counts)
    assert np.array_equal(kept > 0, counts > 0)
    if len(holding) == 1:
        assert kept.max() == holding[0]
    elif holding:
        assert 2 * kept.max() <= kept.sum()
    if len(holding) >= HOLDERS:
        assert kept.max() <= 2 * np.ceil(statistics.median(holding))


def test_remaining_samples_by_hand():
    assert capped_remaining(np.array([100, 3, 0, 3, 2])).tolist() == [6, 3, 0, 3, 2]
    assert capped_remaining(np.array([100, 3])).tolist() == [3, 3]
    assert capped_remaining(np.array([0, 100])).tolist() == [0, 100]
    assert capped_remaining(np.array([4, 5, 6])).tolist() == [4, 5, 6]
    assert capped_remaining(np.zeros(3, dtype=int)).tolist() == [0, 0, 0]


def test_the_spread_that_counts_goes_through_its_corners():
    reported = np.linspace(0, 60, 400)
    counting = reported * spread_share(reported, 5.0)
    expected = np.interp(reported, [0, MOST_SPREAD * 5, 15, 60], [0, MOST_SPREAD * 5, 5, 5])
    np.testing.assert_allclose(counting, expected, atol=1e-12)
    assert spread_share(np.array([np.nan, 1e300]), 5.0).tolist() == pytest.approx([1.0, 5e-300])
    assert spread_share(np.array([1.0, 7.0]), 0.0).tolist() == [1.0, 1.0]


@given(seed=seeds, d=st.integers(1, 8), n=st.integers(1, 200), o=st.integers(1, 2000), size=st.floats(-1, 12))
def test_a_direction_counts_up_to_twice_what_chance_gives_it_in_units_of_the_others(seed, d, n, o, size):
    """Against the eigenvalues of O^-1 C, O the others' covariance, which are known here; P is both together."""
    rng = np.random.default_rng(seed)
    others, along = spd(rng, d), rng.standard_normal(d)
    mine = spd(rng, d) + 10**size * np.outer(along, along)
    pooled = (n * mine + o * others) / (n + o)
    largest = np.linalg.eigvals(np.linalg.solve(others, mine)).real.max()
    most = 2 * (1 + np.sqrt(d / n)) ** 2 / max(1 - np.sqrt(d / o), 0.5) ** 2
    found = direction_share(n * mine, n, o, np.linalg.cholesky(pooled))
    rounding = 1e-13 * largest * n / (n + o)
    assert found == pytest.approx(min(most / largest, 1.0), rel=1e-6 + 100 * rounding, abs=1e-12)


def test_samples_of_the_same_covariance_have_no_direction_that_stands_out():
    d, n, o = 20, 40, 400
    for seed in range(50):
        rng = np.random.default_rng(seed)
        mine, others = rng.standard_normal((n, d)), rng.standard_normal((o, d))
        pooled = np.linalg.cholesky((mine.T @ mine + others.T @ others) / (n + o))
        assert direction_share(mine.T @ mine, n, o, pooled) == 1.0


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("larger", [0.5, 1.0, 1.0 + 1e-12, 2.0])
def test_without_others_there_is_nothing_to_stand_out_from(larger):
    assert direction_share(30 * larger * np.eye(4), 30.0, 0.0, np.eye(4)) == 1.0


@pytest.mark.parametrize("seed", [716, 2003, 2334, 2400, 2711])
def test_equal_eigenvalues_are_no_error(seed):
    """Where few others have a scatter many are the same, and LAPACK does not find the largest alone of some such."""
    turned, _ = np.linalg.qr(np.random.default_rng(seed).standard_normal((8, 8)))
    scatter = (turned * np.array([0.68, 0.75, *[1.2233] * 6])) @ turned.T
    assert 0 <= direction_share(9 * scatter, 9.0, 2.0, np.eye(8)) <= 1


def test_chance_is_the_variance_of_the_difference_of_two_means():
    rng = np.random.default_rng(0)
    drawn = rng.standard_normal((20000, 5)).mean(axis=1) - rng.standard_normal((20000, 8)).mean(axis=1)
    assert chance(np.array(5), np.array(8)) == pytest.approx(drawn.var(), rel=0.05)
    assert chance(np.array([4, 0]), np.array([4, 4])).tolist() == [0.5, np.inf]


@given(seed=seeds, vehicles=st.integers(1, 6), classes=st.integers(1, 7), k=st.integers(1, 40))
def test_the_bounds_are_those_of_equation_g3_vehicle_by_vehicle(seed, vehicles, classes, k):
    rng = np.random.default_rng(seed)
    usual = rng.uniform(0.1, 2.0, (vehicles, classes))
    squares = usual * 10 ** rng.uniform(-2, 3, (vehicles, classes))
    known = rng.random((vehicles, classes)) < 0.7
    found = bounds(squares, usual, known, k)
    rare = stats.chi2.isf(1e-4, k) / stats.chi2.median(k)
    for v in range(vehicles):
        beyond = [max(squares[v, c] - usual[v, c], 0.0) for c in range(classes) if known[v, c]]
        own = statistics.median(beyond) if len(beyond) >= 3 else 0.0
        for c in range(classes):
            alone = 1.5 * rare * usual[v, c]
            assert found[v, c] == pytest.approx(alone + min(1.5 * own, 3 * alone))


@pytest.mark.parametrize("k", [2, 20])
def test_gaussian_deviations_are_rarely_beyond_their_bound(k):
    """u is the median, so that without the slack it is one of 10,000."""
    drawn = stats.chi2.rvs(k, size=(1000, 2), random_state=0)
    usual = np.full_like(drawn, stats.chi2.median(k))
    most = bounds(drawn, usual, np.ones(drawn.shape, dtype=bool), k)
    assert stats.chi2.sf(most[0, 0] / SLACK, k) == pytest.approx(1e-4)
    assert np.all(drawn < most)


def test_a_vehicle_that_is_off_in_all_its_classes_has_at_most_twice_the_radius():
    usual, known = np.ones((3, 4)), np.ones((3, 4), dtype=bool)
    squares = np.array([[1.0] * 4, [10.0] * 4, [1e9] * 4])
    most = bounds(squares, usual, known, 6)[:, 0]
    assert most[0] < most[1] < most[2]
    assert most[2] == pytest.approx(OWN_OFFSET * most[0])
    known[:, 2:] = False
    np.testing.assert_allclose(bounds(squares, usual, known, 6)[:, 0], most[0])


def test_what_counts_of_a_deviation_goes_through_its_corners():
    long = np.linspace(0, 4, 500)
    expected = np.interp(long, [0, 1, 1.5, 4], [0, 1, 0, 0])
    np.testing.assert_allclose(long * redescending(long), expected, atol=1e-12)
    assert redescending(np.array([1.5, 1e300, np.inf])).tolist() == [0, 0, 0]


@given(seed=seeds, holders=st.integers(3, 9), d=st.integers(2, 5))
def test_the_geometric_median_has_nearly_the_least_sum_of_distances(seed, holders, d):
    rng = np.random.default_rng(seed)
    points, counts = rng.standard_normal((holders, d)), rng.integers(1, 100, holders)
    weights = [min(n, statistics.median(counts.tolist())) for n in counts]

    def distances(point):
        return sum(w * np.linalg.norm(row - point) for w, row in zip(weights, points, strict=True))

    smooth = optimize.minimize(distances, points.mean(axis=0), method="Nelder-Mead").fun
    least = min(smooth, *map(distances, points))
    assert distances(geometric_median(points, counts)) <= 1.05 * least


@given(seed=seeds, agree=st.integers(3, 6), far=st.floats(0, 12))
def test_where_more_than_half_agree_that_is_the_geometric_median(seed, agree, far):
    rng = np.random.default_rng(seed)
    liars = agree - 1
    where = rng.standard_normal(4)
    points = np.concatenate([np.tile(where, (agree, 1)), where + 10**far * rng.standard_normal((liars, 4))])
    counts = np.array([50] * agree + [10**7] * liars)
    order = rng.permutation(len(points))
    np.testing.assert_allclose(geometric_median(points[order], counts[order]), where, atol=1e-6)


def test_no_claim_of_many_samples_moves_the_geometric_median():
    rng = np.random.default_rng(0)
    points = np.concatenate([rng.standard_normal((6, 3)), np.full((1, 3), 1e6)])
    found = [geometric_median(points, np.array([20] * 6 + [n])) for n in (20, 10**7)]
    np.testing.assert_array_equal(*found)
    assert np.linalg.norm(found[0]) < 1.5
