"""Cross moments of one vehicle that lies: how far they move the map, against the one that the others give."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mpt
from mpt.core.bounded import Clip, bounded
from mpt.core.bounded_cross import bounded_cross, bounded_more
from mpt.tracking.plausible import check_moments, check_statistics

from .fleets import CLASSES, DIM, make_fleet, report, times

WEIGHTS = np.array([1.0, 2.0, 0.0, 0.5, 1.0])
WATCHED = [2]
NEAR = 0.05
"""How far one of six vehicles may move the map, of what it does to the features; its honest samples move .03."""


def twice(seed, sizes=(100,) * 6, noise=0.5):
    """Each vehicle's samples under two models, and their labels: a linear map and noise lie between them."""
    rng = np.random.default_rng(seed)
    turned, step = np.eye(DIM) + 0.5 * rng.standard_normal((DIM, DIM)) / np.sqrt(DIM), rng.standard_normal(DIM)
    fleet = make_fleet(seed, sizes)
    return [(z, z @ turned + step + noise * rng.standard_normal(z.shape), y) for z, y in fleet]


def moments(z, h, y, **options):
    return mpt.CrossStatistics.from_features(z, h, y, CLASSES, weights=WEIGHTS, **options)


def answers(vehicles, **options):
    """Their statistics and cross moments."""
    return [report(h, y, watched=WATCHED, **options) for _, h, y in vehicles], [moments(*one) for one in vehicles]


def gated(statistics, crosses):
    found = bounded(statistics)
    return found, bounded_cross(crosses, found.clips, found.consensus)


def affine(cross):
    """The regression of h on z over samples that are weighted by class, from their moments."""
    counted = cross.weights * cross.counts
    z, h = (cross.weights @ sums / counted.sum() for sums in (cross.earlier, cross.sums))
    matrix = np.linalg.solve(cross.gram - counted.sum() * np.outer(z, z), cross.cross - counted.sum() * np.outer(z, h))
    return matrix, h - z @ matrix, z, h


def off(cross, honest):
    """How far apart two maps take the honest samples, of how far the honest one takes these from their mean."""
    (matrix, step, _, _), (right, start, z, _) = affine(cross), affine(honest)
    size = honest.weights @ honest.counts
    missed, about = matrix - right, honest.gram / size - np.outer(z, z)
    at_the_mean = np.sum((z @ missed + step - start) ** 2)
    return np.sqrt((at_the_mean + np.trace(missed.T @ about @ missed)) / np.trace(right.T @ about @ right))


def noise_in_place(cross, rng, by=1.0):
    """The same sums and gram, and a W_zh that belongs to no map."""
    _, about = cross.within
    noise = rng.standard_normal(about.shape)
    return replace(cross, cross=cross.cross - about + by * np.linalg.norm(about) / np.linalg.norm(noise) * noise)


def shifted(rows, labels, by):
    return rows + np.where(labels == 0, by, 0.0)[:, None]


def with_outlier(rows, labels, at):
    made = rows.copy()
    made[np.flatnonzero(labels == 0)[0]] = at
    return made


FEATURES = {
    "z x 3": lambda z, h, y: (3 * z, h, y),
    "z x 10^6": lambda z, h, y: (1e6 * z, h, y),
    "z of class 0 shifted": lambda z, h, y: (shifted(z, y, 20.0), h, y),
    "a z at 10^8": lambda z, h, y: (with_outlier(z, y, 1e8), h, y),
    "h x 100": lambda z, h, y: (z, 100 * h, y),
    "h of class 0 shifted": lambda z, h, y: (z, shifted(h, y, 20.0), y),
    "an h at 10^8": lambda z, h, y: (z, with_outlier(h, y, 1e8), y),
    "labels swapped": lambda z, h, y: (z, h, np.choose(y, [1, 0, 2, 3, 4])),
    "h of other samples": lambda z, h, y: (z, h[np.random.default_rng(0).permutation(len(h))], y),
}


def test_honest_moments_come_back_as_they_are():
    for seed in range(30):
        for sizes in ([100] * 6, [60, 150, 200, 80, 100, 120, 250]):
            statistics, crosses = answers(twice(seed, sizes))
            found, made = gated(statistics, crosses)
            assert made.clips == (None,) * len(sizes)
            assert all(back is cross for back, cross in zip(made.reports, crosses, strict=True))
            assert found.consensus is not None
            assert made.consensus is not None


@pytest.mark.parametrize("name", FEATURES)
def test_whatever_one_of_six_reports_the_map_stays_near_the_others(name):
    without = []
    for seed in range(8):
        vehicles = twice(seed)
        vehicles[0] = FEATURES[name](*vehicles[0])
        statistics, crosses = answers(vehicles)
        found, made = gated(statistics, crosses)
        assert made.clips[0] is not None or found.clips[0] is not None
        assert made.clips[1:] == (None,) * 5
        assert all(back is cross for back, cross in zip(made.reports[1:], crosses[1:], strict=True))
        honest = sum(crosses[1:])
        assert off(sum(made.reports), honest) < NEAR
        later, _ = bounded_more(crosses[0], found.clips[0], gated(statistics[1:], crosses[1:])[1].consensus)
        assert off(honest + later, honest) < NEAR
        without.append(off(sum(crosses), honest))
    assert np.median(without) > (NEAR if name != "labels swapped" else 0.005)


@pytest.mark.parametrize("by", [1.0, 3.0, 1e6])
def test_false_moments_with_right_sums_are_replaced_by_the_common_map(by):
    """Against the map that the others' moments give, with a ridge that is too small to matter here."""
    for seed in range(8):
        statistics, crosses = answers(twice(seed))
        lie = noise_in_place(crosses[0], np.random.default_rng(seed), by)
        _, made = gated(statistics, [lie, *crosses[1:]])
        assert made.clips[0].residual == 0
        assert (made.clips[0].spread, made.clips[0].times) == (1.0, {})
        assert made.clips[1:] == (None,) * 5
        for name in ("counts", "earlier", "sums"):
            np.testing.assert_allclose(getattr(made.reports[0], name), getattr(lie, name), rtol=1e-12)
        np.testing.assert_allclose(made.reports[0].gram, lie.gram, rtol=1e-9)
        within, within_cross = made.reports[0].within
        common = within @ np.linalg.solve(*sum(crosses[1:]).within)
        assert np.linalg.norm(within_cross - common) < 0.05 * np.linalg.norm(common)
        assert (
            off(sum(made.reports), sum(crosses[1:])) < NEAR < 2 * NEAR < off(lie + sum(crosses[1:]), sum(crosses[1:]))
        )
        later, cut = bounded_more(lie, None, gated(statistics[1:], crosses[1:])[1].consensus)
        assert cut.residual == 0
        assert np.linalg.norm(later.cross - made.reports[0].cross) < 0.05 * np.linalg.norm(crosses[0].within[1])


def test_a_larger_residual_is_not_worth_more():
    statistics, crosses = answers(twice(0))
    _, about = crosses[0].within
    noise = np.random.default_rng(0).standard_normal(about.shape)
    noise *= np.linalg.norm(about) / np.linalg.norm(noise)
    ways, kept = [], []
    for by in (0.001, 0.01, 0.05, 0.1, 0.2, 0.5, 1.0, 1e3, 1e6):
        lie = replace(crosses[0], cross=crosses[0].cross + by * noise)
        _, made = gated(statistics, [lie, *crosses[1:]])
        ways.append(off(sum(made.reports), sum(crosses)))
        kept.append(1.0 if made.clips[0] is None else made.clips[0].residual)
    assert kept[:1] + kept[-2:] == [1.0, 0.0, 0.0]
    assert np.all(np.diff(kept) <= 0)
    assert max(ways) < NEAR
    assert ways[-1] == pytest.approx(ways[-2])


def test_scaled_z_is_clipped_to_what_is_usual():
    for by in (3.0, 1e6):
        vehicles = twice(1)
        vehicles[0] = (by * vehicles[0][0], *vehicles[0][1:])
        statistics, crosses = answers(vehicles)
        _, made = gated(statistics, crosses)
        assert made.clips[0].spread < 1
        sizes = [np.trace(cross.within[0]) for cross in made.reports]
        assert sizes[0] < 1.5 * np.median(sizes[1:])
        agreed = made.reports[0].earlier_means - sum(crosses[1:]).earlier_means
        assert np.abs(agreed).max() < 1e-6
        growing = [spread for spread in made.clips[1:] if spread is not None]
        assert growing == []


@pytest.mark.parametrize("name", ["h of class 0 shifted", "h x 100", "an h at 10^8", "h of other samples"])
def test_clipped_moments_and_statistics_are_of_samples_that_could_have_been(name):
    for seed in range(8):
        vehicles = twice(seed)
        vehicles[0] = FEATURES[name](*vehicles[0])
        statistics, crosses = answers(vehicles)
        check_moments(crosses[0], statistics[0])
        found, made = gated(statistics, crosses)
        assert made.reports[0] is not crosses[0]
        check_statistics(found.reports[0])
        check_moments(made.reports[0], replace(found.reports[0], sums=made.reports[0].sums))


def test_right_sums_and_false_moments_leave_moments_that_could_have_been():
    for seed in range(8):
        statistics, crosses = answers(twice(seed))
        lie = noise_in_place(crosses[0], np.random.default_rng(seed))
        check_moments(lie, statistics[0])
        found, made = gated(statistics, [lie, *crosses[1:]])
        check_moments(made.reports[0], found.reports[0])


@settings(max_examples=30)
@given(seed=st.integers(0, 2**32 - 1), share=st.floats(0.05, 1))
def test_samples_that_count_as_fewer_do_so_in_both(seed, share):
    ((z, h, y),) = twice(seed, (60,))
    clip = Clip(share, whole=frozenset({1}), most={2: 3})
    cross = moments(z, h, y, origin=h.mean(axis=0), earlier_origin=z.mean(axis=0))
    made, cut = bounded_more(cross, clip, None)
    assert cut is None
    np.testing.assert_array_equal(made.counts, clip.counts(cross.counts))
    assert made.counts[1] == cross.counts[1]
    assert made.counts[2] <= 3
    np.testing.assert_allclose(made.means, cross.means)
    np.testing.assert_allclose(made.earlier_means, cross.earlier_means)
    kept = [c for c in range(CLASSES) if c != 2]
    part = made.counts[kept].sum() / cross.counts[kept].sum()
    for mine, whole in zip(made.within, cross.within, strict=True):
        np.testing.assert_allclose(mine, part * whole, atol=1e-9 * np.abs(whole).max())


def test_half_of_samples_that_are_there_twice_are_all_of_them():
    (vehicle,) = twice(0, (60,))
    once = moments(*vehicle)
    made, _ = bounded_more(times(once, 2), Clip(share=0.5), None)
    for name in ("counts", "earlier", "sums", "gram", "cross"):
        np.testing.assert_allclose(getattr(made, name), getattr(once, name), atol=1e-9)


def test_counts_that_are_repeated_count_as_in_the_statistics():
    statistics, crosses = answers(twice(3))
    several = [times(statistics[0], 1000), *statistics[1:]]
    found, made = gated(several, [times(crosses[0], 1000), *crosses[1:]])
    np.testing.assert_array_equal(made.reports[0].counts, found.reports[0].counts)
    assert off(sum(made.reports), sum(crosses)) < NEAR


def test_a_class_whose_mean_was_far_off_on_one_side_counts_as_where_all_agree_on_both():
    for name in ("h of class 0 shifted", "z of class 0 shifted"):
        vehicles = twice(2)
        vehicles[0] = FEATURES[name](*vehicles[0])
        statistics, crosses = answers(vehicles)
        _, made = gated(statistics, crosses)
        h, z = (sum(crosses[1:]), sum(crosses)) if name.startswith("h") else (sum(crosses), sum(crosses[1:]))
        np.testing.assert_allclose(made.reports[0].means[0], h.means[0], atol=1e-9)
        np.testing.assert_allclose(made.reports[0].earlier_means[0], z.earlier_means[0], atol=1e-9)
        np.testing.assert_allclose(made.reports[0].means[1:], crosses[0].means[1:], atol=1e-9)
        np.testing.assert_allclose(made.reports[0].earlier_means[1:], crosses[0].earlier_means[1:], atol=1e-9)


def test_fewer_than_three_have_nothing_to_be_compared_with():
    statistics, crosses = answers(twice(0))
    lie = noise_in_place(crosses[0], np.random.default_rng(0))
    for several in ([], [lie], [lie, crosses[1]]):
        made = bounded_cross(several, [None] * len(several), bounded(statistics).consensus)
        assert made.consensus is None
        assert made.clips == (None,) * len(several)
        assert all(back is cross for back, cross in zip(made.reports, several, strict=True))
    assert bounded_cross([lie, *crosses[1:]], [None] * 6, None).reports[0] is lie
    assert bounded_more(lie, None, None) == (lie, None)


def test_without_a_scatter_the_sums_are_those_of_the_bounded_statistics():
    vehicles = twice(0)
    vehicles[0] = FEATURES["h of class 0 shifted"](*vehicles[0])
    span = report(*twice(0)[1][1:]).means
    statistics, crosses = answers(vehicles, scatter=False, span=span)
    found, made = gated(statistics, crosses)
    assert made.consensus is None
    assert 0 in found.clips[0].means
    np.testing.assert_allclose(made.reports[0].sums, found.reports[0].sums, atol=1e-9)
    np.testing.assert_allclose(made.reports[0].earlier, crosses[0].earlier, rtol=1e-12)


def test_without_weights_there_is_no_common_map():
    vehicles = twice(0)
    statistics, _ = answers(vehicles)
    crosses = [mpt.CrossStatistics.from_features(*one, CLASSES, weights=np.zeros(CLASSES)) for one in vehicles]
    _, made = gated(statistics, crosses)
    assert made.consensus is None
    assert all(back is cross for back, cross in zip(made.reports, crosses, strict=True))


@pytest.mark.parametrize("narrow", [True, False])
@pytest.mark.parametrize(("by", "of"), [(1e4, 1.0), (1e5, 1e2), (1e6, 1e4), (1e8, 1e6)])
def test_moments_about_far_means_that_rounding_could_have_made_hide_nothing(by, of, narrow):
    """What is far off is right to a fraction of where it lies: a W_zz with negative eigenvalues passes for rounding."""
    vehicles = twice(4)
    z, h, y = vehicles[0]
    statistics, crosses = answers(vehicles)
    lie = moments(z + by, h, y)
    gram = lie.gram.copy()
    gram[0, 1] += of * len(z)
    gram[1, 0] += of * len(z)
    lie = replace(lie, gram=gram, narrow=narrow)
    _, made = gated(statistics, [lie, *crosses[1:]])
    assert made.clips[0] is not None
    assert made.clips[1:] == (None,) * 5
    honest = sum(crosses[1:])
    assert off(sum(made.reports), honest) < NEAR
    later, _ = bounded_more(lie, None, gated(statistics[1:], crosses[1:])[1].consensus)
    assert off(honest + later, honest) < NEAR


def test_whatever_moments_are_made_of_there_is_a_result():
    """Where all of them are wrong there is no map in common, and nothing to compare with."""
    statistics, crosses = answers(twice(5))
    apart = np.eye(DIM)[0][:, None] * np.eye(DIM)[1]
    wrong = [replace(one, gram=one.gram + 10 * np.trace(one.gram) * (apart + apart.T)) for one in crosses]
    made = bounded_cross(wrong, [None] * 6, bounded(statistics).consensus)
    assert made.consensus is None
    assert all(back is one for back, one in zip(made.reports, wrong, strict=True))


def test_a_class_of_ones_own_is_bounded_under_the_earlier_model_too():
    vehicles = [(z[y != 3], h[y != 3], y[y != 3]) for z, h, y in twice(6)]
    z, h, y = twice(6)[0]
    vehicles[0] = (shifted(z, np.where(y == 3, 0, 1), 1e8), h, y)
    statistics, crosses = answers(vehicles)
    _, made = gated(statistics, crosses)
    assert list(made.clips[0].means) == [3]
    assert np.abs(made.reports[0].earlier_means[3]).max() < 1e4
    later, cut = bounded_more(crosses[0], None, gated(statistics[1:], crosses[1:])[1].consensus)
    assert list(cut.means) == [3]
    assert np.abs(later.earlier_means[3]).max() < 1e4


@pytest.mark.parametrize("along", [3.0, 5.0, 8.0, 12.0])
def test_no_direction_of_a_covariance_under_the_earlier_model_stands_out(along):
    """Where classes count alike, as for Eq. (D2): features fit the common map, and vary far more in one direction."""
    rng = np.random.default_rng(0)
    direction = rng.standard_normal(DIM) / np.sqrt(DIM)
    vehicles = twice(7, (100,) * 10)
    z, h, y = vehicles[0]
    turned = np.linalg.lstsq(z - z.mean(axis=0), h - h.mean(axis=0), rcond=None)[0]
    way = along * rng.standard_normal(len(z))[:, None] * direction
    vehicles[0] = (z + way, h + way @ turned, y)
    statistics = answers(vehicles)[0]
    crosses = [mpt.CrossStatistics.from_features(*one, CLASSES, weights=1.0 * (WEIGHTS > 0)) for one in vehicles]
    _, made = gated(statistics, crosses)
    honest, whole = sum(crosses[1:]).within[0], sum(made.reports).within[0]
    assert direction @ whole @ direction < 2 * direction @ honest @ direction
    assert made.clips[0].spread < 1
    assert made.clips[1:] == (None,) * 9
    later, cut = bounded_more(crosses[0], None, gated(statistics[1:], crosses[1:])[1].consensus)
    assert cut.spread < 1
    assert direction @ later.within[0] @ direction < direction @ honest @ direction
