"""Where means agree: against deviations and bounds computed from the samples, one vehicle and class at a time."""

import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from mpt.core.agreement import agree, compare

from .fleets import CLASSES, DIM, make_fleet, regular, report, reports

SIZES = [60, 80, 100, 60, 70]


def arrays(several):
    return np.array([r.counts for r in several]), np.array([r.sums for r in several])


def whitening_of(several):
    return np.linalg.cholesky(regular(sum(several)))


def moved(samples, by, classes=(0,)):
    features, labels = samples
    return features + np.where(np.isin(labels, classes)[:, None], by, 0.0), labels


def written_out(fleet, factor, free=DIM):
    """(2, V, C): |x| / r of Eq. (G3), from the samples: no vehicle far off, all classes on all vehicles."""
    inverse = np.linalg.inv(factor)
    white = [(features @ inverse.T, labels) for features, labels in fleet]
    rows, classes = np.concatenate([x for x, _ in white]), np.concatenate([y for _, y in white])
    owner = np.repeat(np.arange(len(fleet)), [len(y) for _, y in fleet])
    centres = np.array([rows[classes == c].mean(axis=0) for c in range(CLASSES)])
    between = np.linalg.qr((centres - centres.mean(axis=0)).T[:, : CLASSES - 1])[0]
    projections = between @ between.T, np.eye(DIM) - between @ between.T
    medians = [
        np.median([white[v][0][white[v][1] == c].mean(axis=0) for v in range(len(fleet))], axis=0)
        for c in range(CLASSES)
    ]
    robust = np.linalg.qr((np.array(medians) - np.mean(medians, axis=0)).T[:, : CLASSES - 1])[0]
    robusts = robust @ robust.T, np.eye(DIM) - robust @ robust.T
    found = np.zeros((2, len(fleet), CLASSES))
    for part, k in enumerate((CLASSES - 1, DIM - CLASSES + 1)):
        squares, about, noise = {}, {}, {}
        for v in range(len(fleet)):
            for c in range(CLASSES):
                mine, others = rows[(owner == v) & (classes == c)], rows[(owner != v) & (classes == c)]
                squares[v, c] = np.sum((projections[part] @ (mine.mean(axis=0) - others.mean(axis=0))) ** 2)
                about[v, c] = np.sum((robusts[part] @ (mine.mean(axis=0) - medians[c])) ** 2)
                noise[v, c] = 1 / len(mine) + 1 / len(others)
        s = min(statistics.median(x[at] / noise[at] / k for at in x) for x in (squares, about))
        tail = min(k, free)
        rare = 1.5 * stats.chi2.isf(1e-4, tail) / stats.chi2.median(tail)
        for v in range(len(fleet)):
            own = statistics.median(max(squares[v, c] - s * k * noise[v, c], 0.0) for c in range(CLASSES))
            for c in range(CLASSES):
                most = rare * s * k * noise[v, c]
                found[part, v, c] = np.sqrt(squares[v, c] / (most + min(1.5 * own, 3 * most)))
    return found


@pytest.mark.parametrize("seed", range(4))
def test_deviations_and_bounds_are_those_of_the_samples(seed):
    fleet = make_fleet(seed, SIZES)
    several = reports(fleet)
    factor = whitening_of(several)
    found = agree(*arrays(several), factor)
    np.testing.assert_allclose(found.times, written_out(fleet, factor), rtol=1e-6)
    assert not found.far.any()
    for c in range(CLASSES):
        np.testing.assert_allclose(found.agreement.centre(c), sum(several).means[c], atol=1e-10)


def test_without_a_covariance_deviations_are_taken_as_they_are():
    fleet = make_fleet(1, SIZES)
    found = agree(*arrays(reports(fleet)), None)
    np.testing.assert_allclose(found.times, written_out(fleet, np.eye(DIM), free=4), rtol=1e-6)
    np.testing.assert_allclose(found.agreement.centre(2), sum(reports(fleet)).means[2], atol=1e-10)


@given(seed=st.integers(0, 2**32 - 1))
def test_the_order_of_vehicles_does_not_matter(seed):
    rng = np.random.default_rng(seed)
    fleet = make_fleet(seed % 5, SIZES)
    fleet[1] = moved(fleet[1], 5.0)
    several = reports(fleet)
    order = rng.permutation(len(several))
    factor = whitening_of(several[2:])
    first, again = (agree(*arrays(some), factor) for some in (several, [several[v] for v in order]))
    np.testing.assert_allclose(again.times, first.times[:, order], rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(again.agreement.centres, first.agreement.centres, atol=1e-8)


@pytest.mark.parametrize("by", [3.0, 1e3, 1e9])
def test_where_one_is_far_off_the_centre_is_the_mean_of_the_others(by):
    fleet = make_fleet(2, SIZES)
    honest = reports(fleet[:2] + fleet[3:])
    several = reports([*fleet[:2], moved(fleet[2], by), *fleet[3:]])
    factor = whitening_of(honest)
    found = agree(*arrays(several), factor)
    assert np.argwhere(found.far).tolist() == [[2, 0]]
    np.testing.assert_allclose(found.agreement.centre(0), sum(honest).means[0], atol=1e-9)
    np.testing.assert_allclose(found.counting(2, 0), sum(honest).means[0], atol=1e-9)


def test_what_counts_of_a_mean_falls_back_to_the_centre_as_it_moves_away():
    fleet = make_fleet(2, [200] * 6)
    honest = reports(fleet[1:])
    factor, centre = whitening_of(honest), sum(honest).means[0]
    along = np.random.default_rng(3).standard_normal(DIM)
    ways, ratios = [], []
    for by in np.linspace(0.2, 4.0, 40):
        found = agree(*arrays([report(*moved(fleet[0], by * along)), *honest]), factor)
        counted = found.counting(0, 0) if found.far[0, 0] else report(*moved(fleet[0], by * along)).means[0]
        ways.append(np.linalg.norm(np.linalg.solve(factor, counted - centre)))
        ratios.append(found.times[:, 0, 0])
    ratios, ways = np.array(ratios), np.array(ways)
    both = ratios.min(axis=1) >= 1.5
    assert both[-1]
    np.testing.assert_allclose(ways[both], 0.0, atol=1e-9)
    edge = int(np.argmax(ratios.max(axis=1) > 1))
    assert 0 < edge < len(ways) - 1
    assert ways.max() < 1.6 * ways[edge - 1]
    partly = (ratios.max(axis=1) > 1) & ~both
    assert partly.any()


@pytest.mark.parametrize("holders", [1, 2])
def test_classes_with_one_or_two_holders_are_not_touched(holders):
    fleet = make_fleet(0, [100] * 6)
    lone = [(x[(y != 0) | (v < holders)], y[(y != 0) | (v < holders)]) for v, (x, y) in enumerate(fleet)]
    lone[0] = moved(lone[0], 1e6)
    found = agree(*arrays(reports(lone)), whitening_of(reports(fleet)))
    assert np.isnan(found.agreement.centres[0]).all()
    assert not found.far.any()
    assert not found.times[:, :, 0].any()
    later = compare(*arrays(reports(lone[:1])), found.agreement)
    assert not later.far.any()
    lone[holders:3] = fleet[holders:3]
    third = agree(*arrays(reports(lone)), whitening_of(reports(fleet)))
    assert np.argwhere(third.far).tolist() == [[0, 0]]


def test_directions_between_classes_are_judged_apart_from_all_others():
    fleet = make_fleet(4, [200] * 6)
    several = reports(fleet)
    factor = whitening_of(several)
    means = sum(several).means
    along = means[1] - means[0]
    inverse = np.linalg.inv(factor)
    gaps = (means - means.mean(axis=0)) @ inverse.T
    beyond = factor @ np.linalg.svd(gaps)[2][CLASSES]
    for part, direction in ((0, along), (1, beyond)):
        step = 2.0 * direction / np.linalg.norm(inverse @ direction)
        found = agree(*arrays([report(*moved(fleet[0], step)), *several[1:]]), factor)
        assert found.times[part, 0, 0] > 1.5
        assert found.times[1 - part, 0, 0] < 1
        np.testing.assert_allclose(found.agreement.basis.T @ found.agreement.basis, np.eye(CLASSES - 1), atol=1e-12)


def test_a_vehicle_that_is_off_in_all_of_its_classes_alike_has_a_larger_bound():
    fleet = make_fleet(5, [200] * 8)
    several = reports(fleet)
    factor = whitening_of(several)
    step = 1.5 * factor @ np.random.default_rng(0).standard_normal(DIM) / np.sqrt(DIM)
    one = agree(*arrays([report(*moved(fleet[0], step)), *several[1:]]), factor)
    camera = agree(*arrays([report(*moved(fleet[0], step, range(CLASSES))), *several[1:]]), factor)
    assert one.times[:, 0, 0].max() > 1
    assert camera.times[:, 0].max() < 0.8 * one.times[:, 0, 0].max()


def test_who_claims_many_samples_is_held_to_it():
    fleet = make_fleet(6, [100] * 6)
    counts, sums = arrays(reports(fleet))
    factor = whitening_of(reports(fleet))
    claimed = counts.copy()
    claimed[0] *= 100
    plain, held = agree(counts, sums, factor), agree(counts, sums, factor, claimed)
    expected = np.sqrt((1 / counts[0] + 1 / counts[1:].sum(axis=0)) / (1 / claimed[0] + 1 / counts[1:].sum(axis=0)))
    few = held.times[:, 0] / plain.times[:, 0]
    assert np.all(few > 1.2)
    assert np.all(few < expected * 1.3)


def test_one_more_vehicle_is_compared_with_the_centres_written_out():
    fleet = make_fleet(7, [100] * 6)
    several = reports(fleet[1:])
    factor = whitening_of(several)
    agreed = agree(*arrays(several), factor).agreement
    x, y = moved(fleet[0], 1.0)
    found = compare(*arrays([report(x, y)]), agreed)
    for c in range(CLASSES):
        away = np.linalg.solve(factor, x[y == c].mean(axis=0) - sum(several).means[c])
        np.testing.assert_allclose(found.away[0, c], away, atol=1e-10)
    inside = found.away[0] @ agreed.basis @ agreed.basis.T
    noise = 1 / 20 + 1 / 100
    for part, rows, k in ((0, inside, CLASSES - 1), (1, found.away[0] - inside, DIM - CLASSES + 1)):
        squares, s = np.sum(rows**2, axis=1), agreed.scales[part]
        own = np.median(np.maximum(squares - s * k * noise, 0.0))
        most = 1.5 * stats.chi2.isf(1e-4, k) / stats.chi2.median(k) * s * k * noise
        np.testing.assert_allclose(found.times[part, 0], np.sqrt(squares / (most + min(1.5 * own, 3 * most))))


def test_means_that_are_all_the_same_are_far_from_nothing():
    counts, sums = np.full((4, 3), 10), np.tile(10 * np.eye(3, 6), (4, 1, 1))
    found = agree(counts, sums, None)
    assert not found.far.any()
    np.testing.assert_allclose(found.agreement.centres, np.eye(3, 6))
