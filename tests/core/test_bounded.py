"""Whatever one vehicle reports: how far it moves the sums, and that honest ones are left as they are."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mpt
from mpt.core.bounded import Clip, bounded, clip_of, clipped, counting
from mpt.tracking.plausible import check_statistics

from .fleets import CLASSES, DIM, LIES, claim, direction, make_fleet, off, outlier, report, reports, shift, stretch
from .fleets import stretched as stretch_of
from .fleets import times as repeated

NEAR = 0.8
"""How far the prototypes of four vehicles with 20 samples a class may be moved by one; its honest samples move .3."""
VEHICLES = [4, 8]


def with_a_lie(name, vehicles, seed, **options):
    """The reports of a fleet whose first vehicle lies, and the sum of the others'."""
    fleet = make_fleet(seed, [100] * vehicles)
    honest = reports(fleet[1:], **options)
    return LIES[name](*fleet[0], np.random.default_rng(seed), **options), honest


@pytest.mark.parametrize("sizes", [[100] * 4, [100] * 12, [30, 80, 300, 40, 50, 250, 120, 20, 90, 350]])
def test_honest_vehicles_come_back_as_they_are(sizes):
    clips = []
    for seed in range(40):
        several = reports(make_fleet(seed, sizes), watched=[2])
        made = bounded(several)
        clips += made.clips
        for report_, clip, back in zip(several, made.clips, made.reports, strict=True):
            assert (back is report_) == (clip is None)
    assert sum(clip is not None for clip in clips) <= 1
    assert len(clips) == 40 * len(sizes)


def test_of_very_unequal_honest_vehicles_hardly_any_is_found_unlikely():
    """Only that the largest have very many samples is no more than so many times believed."""
    unlikely, many, all_ = 0, 0, 0
    for seed in range(40):
        sizes = np.exp(np.random.default_rng(seed).uniform(np.log(20), np.log(2000), 12)).astype(int)
        for clip in bounded(reports(make_fleet(seed, sizes))).clips:
            all_ += 1
            unlikely += clip is not None and (bool(clip.times) or clip.spread < 1)
            many += clip is not None and clip.share < 1
    assert unlikely <= 0.005 * all_
    assert many <= 0.15 * all_


@pytest.mark.parametrize("vehicles", VEHICLES)
@pytest.mark.parametrize("name", LIES)
def test_whatever_one_of_four_reports_the_sums_stay_near_the_others(name, vehicles):
    effects, without = [], []
    for seed in range(8):
        lie, honest = with_a_lie(name, vehicles, seed)
        made, good = bounded([lie, *honest]), sum(honest)
        assert made.clips[0] is not None
        assert all(clip is None for clip in made.clips[1:])
        merged = sum(made.reports)
        assert off(merged, good) < NEAR * 4 / vehicles
        low, high = stretch_of(merged, good)
        assert 0.7 < low < high < DIM
        assert 0.6 < np.trace(merged.covariance()) / np.trace(good.covariance()) < 1 + 4 / vehicles
        effects.append(high)
        plain = lie + good
        without.append(max(off(plain, good) / NEAR, stretch_of(plain, good)[1] / DIM))
    assert np.median(effects) < 1.5
    assert np.median(without) > 1


@settings(max_examples=40)
@given(
    seed=st.integers(0, 2**32 - 1),
    size=st.floats(-1.5, 6),
    longer=st.floats(0, 2),
    claimed=st.floats(0, 4),
    classes=st.integers(1, CLASSES),
)
def test_no_shift_spread_and_claim_together_move_the_sums_far(seed, size, longer, claimed, classes):
    """A claim may count three times, so that at most half of the samples of four vehicles are the liar's."""
    rng = np.random.default_rng(seed)
    (features, labels), *others = make_fleet(seed, [100] * 4)
    honest = reports(others)
    steps = 10**size * rng.standard_normal((CLASSES, DIM)) * (np.arange(CLASSES) < classes)[:, None]
    means = report(features, labels).means
    lie = report(10**longer * (features - means[labels]) + means[labels] + steps[labels], labels)
    merged, good = sum(bounded([repeated(lie, int(10**claimed)), *honest]).reports), sum(honest)
    assert off(merged, good) < 2 * NEAR
    low, high = stretch_of(merged, good)
    assert 0.4 < low < high < 4


GROWING = {
    "shift": (shift, 10.0 ** np.arange(-1, 13)),
    "stretch": (stretch, 1 + 10.0 ** np.arange(-1, 9)),
    "outlier": (outlier, 10.0 ** np.arange(1, 18)),
    "direction": (direction, 10.0 ** np.arange(-1, 25, 2)),
    "claim": (lambda by: claim(int(by), 1.0), 10.0 ** np.arange(0, 7)),
}


@pytest.mark.parametrize("name", GROWING)
def test_a_larger_lie_is_not_worth_more(name):
    """From some size on nothing changes: all that is left is that some samples are at the others' mean."""
    lie, sizes = GROWING[name]
    fleet = make_fleet(3, [100] * 6)
    honest = reports(fleet[1:])
    good, effects, merged = sum(honest), [], []
    for size in sizes:
        told = lie(size)(*fleet[0], np.random.default_rng(0))
        merged.append(sum(bounded([told, *honest]).reports))
        effects.append((off(merged[-1], good), *stretch_of(merged[-1], good)))
    effects = np.array(effects)
    assert effects[:, 0].max() < NEAR
    assert effects[-1, 0] <= effects[:, 0].max()
    np.testing.assert_allclose(effects[-2], effects[-1], rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(merged[-2].means, merged[-1].means, atol=1e-6)


@pytest.mark.parametrize("vehicles", VEHICLES)
@pytest.mark.parametrize("name", LIES)
def test_a_clipped_report_is_one_that_samples_could_have_given(name, vehicles):
    for watched in ([], [2]):
        lie, honest = with_a_lie(name, vehicles, 1, watched=watched)
        check_statistics(lie)
        check_statistics(bounded([lie, *honest]).reports[0])


@given(seed=st.integers(0, 2**32 - 1), share=st.floats(0.01, 1), spread=st.floats(0, 1), longest=st.floats(0.1, 100))
def test_whatever_a_clip_says_samples_could_have_given_what_is_left(seed, share, spread, longest):
    rng = np.random.default_rng(seed)
    ((features, labels),) = make_fleet(seed, [40])
    means = {c: 5 * rng.standard_normal(DIM) for c in range(int(rng.integers(CLASSES + 1)))}
    most = {2: int(rng.integers(1, 9))}
    clip = Clip(share, frozenset({1}), spread, longest, means, dict.fromkeys(means, 2.0), most)
    origin = rng.standard_normal(DIM)
    for options in ({"watched": [1, 2]}, {"watched": [1], "scatter": False}, {"scatter": False, "span": features[:3]}):
        before = report(features, labels, origin=origin, **options)
        made = clipped(before, clip)
        check_statistics(made, basis=before.span_basis if "span" in options else None)
        for c, mean in means.items():
            np.testing.assert_allclose(made.means[c], mean, atol=1e-10)
        assert made.counts[1] == before.counts[1]
        assert made.counts[2] <= most[2]


@pytest.mark.parametrize("options", [{}, {"watched": [1]}, {"scatter": False}], ids=str)
def test_samples_that_are_moved_and_drawn_together_have_the_clipped_sums(options):
    """Against samples: each class is moved to its new mean, and every sample half as far from it."""
    ((features, labels),) = make_fleet(0, [60])
    rng = np.random.default_rng(0)
    origin, before = rng.standard_normal(DIM), report(features, labels).means
    means = before.copy()
    means[:3] = rng.standard_normal((3, DIM))
    expected = report((features - before[labels]) / 2 + means[labels], labels, origin=origin, **options)
    clip = Clip(spread=0.25, means={c: means[c] for c in range(3)})
    made = clipped(report(features, labels, origin=origin, **options), clip)
    assert made.counts.tolist() == expected.counts.tolist()
    for name in ("sums", "squares", "scatter"):
        if getattr(expected, name) is not None:
            np.testing.assert_allclose(getattr(made, name), getattr(expected, name), atol=1e-9)


def test_half_of_samples_that_are_there_twice_are_all_of_them():
    ((features, labels),) = make_fleet(0, [60])
    once, twice = report(features, labels), repeated(report(features, labels), 2)
    made = clipped(twice, Clip(share=0.5))
    np.testing.assert_array_equal(made.counts, once.counts)
    for name in ("sums", "squares", "scatter"):
        np.testing.assert_allclose(getattr(made, name), getattr(once, name), atol=1e-9)
    assert counting(np.array([0, 1, 3, 100]), 0.1).tolist() == [0, 1, 1, 10]


def holding(counts, *, watched=(2,)):
    """Vehicles with so many samples each of class 2, and 20 of every other one."""
    rng = np.random.default_rng(0)
    prototypes = 3 * rng.standard_normal((CLASSES, DIM))
    labels = [np.repeat(np.arange(CLASSES), [20, 20, n, 20, 20]) for n in counts]
    return [report(prototypes[y] + rng.standard_normal((len(y), DIM)), y, watched=watched) for y in labels]


def test_who_holds_a_watched_class_keeps_its_count():
    several = holding([800, 0, 3, 2, 0, 1])
    made = bounded(several)
    assert made.clips[0].share < 0.5
    assert made.reports[0].counts[2] == 800
    assert np.delete(made.reports[0].counts, 2).max() < 10
    np.testing.assert_allclose(made.reports[0].means, several[0].means)
    unwatched = bounded(holding([800, 0, 3, 2, 0, 1], watched=()))
    assert unwatched.reports[0].counts[2] < 800


@settings(max_examples=30)
@given(counts=st.lists(st.integers(0, 60), min_size=4, max_size=8))
def test_of_a_departed_class_no_vehicle_has_a_majority_but_its_owner_may(counts):
    several = holding(counts)
    kept = np.array([r.counts[2] for r in bounded(several, departed=[2]).reports])
    holders = sorted(n for n in counts if n)
    assert np.all(kept <= counts)
    if len(holders) > 1:
        assert 2 * kept.max() <= kept.sum()
    if len(holders) > 2:
        assert kept.max() <= 2 * np.ceil(np.median(holders))
    owner = int(np.argmax(counts))
    returned = bounded(several, departed=[2], owners=[(owner, 2)])
    assert returned.reports[owner].counts[2] == counts[owner]
    others = np.arange(len(counts)) != owner
    np.testing.assert_array_equal(np.array([r.counts[2] for r in returned.reports])[others], kept[others])


def test_fewer_samples_of_a_departed_class_have_the_same_mean():
    several = holding([50, 4, 3, 2, 4])
    made = bounded(several, departed=[2])
    assert [r.counts[2] for r in made.reports] == [8, 4, 3, 2, 4]
    np.testing.assert_allclose(made.reports[0].means, several[0].means)
    np.testing.assert_allclose(made.reports[0].scatter, several[0].scatter)
    assert made.consensus.remaining == {2: 8}
    assert all(back is r for back, r in zip(made.reports[1:], several[1:], strict=True))


@pytest.mark.parametrize("name", LIES)
def test_one_more_report_is_bounded_as_it_would_have_been_among_the_others(name):
    for seed in range(4):
        lie, honest = with_a_lie(name, 8, seed)
        among, agreed = bounded([lie, *honest]).reports[0], bounded(honest).consensus
        later = clipped(lie, clip_of(lie, agreed))
        check_statistics(later)
        np.testing.assert_array_equal(later.counts, among.counts)
        np.testing.assert_allclose(later.means, among.means, atol=0.2)
        good = sum(honest)
        assert off(good + later, good) < NEAR / 2
        assert stretch_of(good + later, good)[1] < DIM


def test_one_more_honest_report_is_not_touched():
    for seed in range(40):
        several = reports(make_fleet(seed, [100] * 9), watched=[2])
        agreed = bounded(several[1:]).consensus
        assert clip_of(several[0], agreed) is None


def test_one_more_vehicle_has_no_majority_of_a_departed_class():
    *others, last = holding([4, 3, 5, 0, 0, 100])
    agreed = bounded(others, departed=[2]).consensus
    assert agreed.remaining == {2: 10}
    clip = clip_of(last, agreed, departed=[2])
    assert clip.counts(last.counts)[2] == 10
    assert clip_of(last, agreed) is None
    none = bounded(holding([0, 0, 0, 0]), departed=[2]).consensus
    assert clip_of(last, none, departed=[2]) is None


def test_fewer_than_three_reports_pass_unchanged():
    (first, second) = reports(make_fleet(0, [100, 100]))
    wild = repeated(second, 1000)
    for several in ([], [first], [first, wild]):
        made = bounded(several)
        assert made.consensus is None
        assert made.clips == (None,) * len(several)
        assert all(back is r for back, r in zip(made.reports, several, strict=True))


@pytest.mark.parametrize("name", [name for name in LIES if "direction" not in name])
def test_reports_without_a_scatter_are_bounded_as_well(name):
    for seed in range(4):
        span = report(*make_fleet(seed, [500])[0]).means
        lie, honest = with_a_lie(name, 6, seed, scatter=False, span=span)
        made, good = bounded([lie, *honest]), sum(honest)
        assert made.clips[0] is not None
        assert made.consensus.probes is None
        check_statistics(made.reports[0], basis=honest[0].span_basis)
        near = 0.2 * np.sqrt(np.trace(sum(reports(make_fleet(seed, [100] * 6))).covariance()))
        later = clipped(lie, clip_of(lie, bounded(honest).consensus))
        for merged in (sum(made.reports), good + later):
            assert np.linalg.norm(merged.means - good.means, axis=1).max() < near
            assert merged.squares.sum() / merged.counts.sum() < 1.5 * good.squares.sum() / good.counts.sum()
        assert np.linalg.norm((lie + good).means - good.means, axis=1).max() > 1.5 * near


@pytest.mark.parametrize("holders", [1, 2])
def test_classes_with_one_or_two_holders_are_not_touched(holders):
    fleet = make_fleet(0, [100] * 6)
    lone = [(x[(y != 0) | (v < holders)], y[(y != 0) | (v < holders)]) for v, (x, y) in enumerate(fleet)]
    lone[0] = (lone[0][0] + np.where(lone[0][1] == 0, 50.0, 0.0)[:, None], lone[0][1])
    several = reports(lone)
    assert bounded(several).clips == (None,) * 6
    assert clip_of(several[0], bounded(several[1:]).consensus) is None
    lone[holders:3] = fleet[holders:3]
    assert list(bounded(reports(lone)).clips[0].means) == [0]


def test_vehicles_without_samples_change_nothing():
    several = reports(make_fleet(0, [100, 100, 100, 100, 0, 0]))
    made = bounded(several)
    assert made.clips[:4] == (None,) * 4
    assert not any(report_.counts.any() or report_.scatter.any() for report_ in made.reports[4:])
    assert bounded(several[4:] * 2).consensus.samples == 0


def on_the_wire(stats):
    """As float32 leaves it."""
    return mpt.ClassStatistics.from_bytes(stats.to_bytes("float32"))


@pytest.mark.filterwarnings("ignore:to_bytes")
@pytest.mark.parametrize("by", [1e3, 1e5, 1e8, 1e12])
def test_a_scatter_that_rounding_hides_is_nobodys(by):
    """Of features so far off sums leave a scatter that is larger than everybody's, in float32 soon, and of any sign."""
    (features, labels), *others = make_fleet(1, [100] * 6)
    honest = [on_the_wire(one) for one in reports(others)]
    told = on_the_wire(report(features + by, labels))
    made, good = bounded([told, *honest]), sum(honest)
    assert made.clips[0].spread == 0
    assert off(sum(made.reports), good) < NEAR
    np.testing.assert_allclose(stretch_of(sum(made.reports), good), (100 * 5 - CLASSES) / (100 * 6 - CLASSES))
    later = clip_of(told, bounded(honest).consensus)
    assert later.spread == 0
    assert stretch_of(clipped(told, later) + good, good)[1] < 1
    assert made.clips[1:] == (None,) * 5


@pytest.mark.parametrize("by", [1e4, 1e8, 1e12])
def test_a_class_of_ones_own_lies_no_further_than_a_hundred_times_as_far_as_all_others(by):
    (features, labels), *others = make_fleet(1, [100] * 6)
    fleet = [(features + np.where(labels == 0, by, 0.0)[:, None], labels)]
    fleet += [(x[y != 0], y[y != 0]) for x, y in others]
    several = reports(fleet)
    made, good = bounded(several), sum(several[1:])
    assert list(made.clips[0].means) == [0]
    agreed = made.consensus.means
    rows = agreed.centres[1:] - agreed.centres[1:].mean(axis=0)
    away = np.linalg.solve(agreed.factor, made.reports[0].means[0]) - agreed.centres[1:].mean(axis=0)
    assert np.linalg.norm(away) == pytest.approx(100 * np.linalg.norm(rows, axis=1).max())
    assert made.clips[0].times[0] > 1
    later = clip_of(several[0], bounded(several[1:]).consensus)
    for merged in (sum(made.reports), clipped(several[0], later) + good):
        np.testing.assert_allclose(merged.means[1:], (several[0] + good).means[1:], atol=1e-5)
        low, high = stretch_of(merged, good)
        assert 0.7 < low < high < 1.3
