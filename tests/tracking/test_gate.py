"""The gate as a stream: answers come in any order, the first are held, and each then moves the sum by little."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import mpt
from mpt.core.bounded import Clip, bounded
from mpt.core.bounded_cross import CrossClip
from mpt.tracking import gate as gates
from mpt.tracking.gate import Gate, quorum_of, told
from mpt.tracking.history import Expected, History, held_back
from tests.tracking.fleets import RARE, C, Fleet
from tests.tracking.lies import EVEN, World, moved

NAMES = [f"v{i:02}" for i in range(12)]
FAR = 100.0


@pytest.fixture(autouse=True)
def few_are_held(monkeypatch):
    """Eight answers are a quorum here, and twelve vehicles answer."""
    monkeypatch.setattr(gates, "MOST_QUORUM", 8)


@pytest.fixture(scope="module")
def fleet():
    return World({v: {**EVEN, RARE: 3} for v in NAMES})


def report(fleet, vehicle, round=1, *, shift=0.0, classes=None, watched=(RARE,), scatter=True):
    """A vehicle's statistics; some of its classes may lie off."""
    rows, labels = moved(*fleet.features(vehicle, round), shift, classes)
    return mpt.ClassStatistics.from_features(rows, labels, C, watched=watched, scatter=scatter)


def reports(fleet, **liar):
    """Everybody's, by vehicle; the first one lies."""
    return {v: report(fleet, v, **(liar if v == NAMES[0] else {})) for v in NAMES}


def passed(gate, told, order=NAMES):
    """All answers as they have gone through, by vehicle."""
    found = [one for v in order for one in gate.take(v, told[v])] + gate.flush()
    assert sorted(one.vehicle for one in found) == sorted(order)
    return {one.vehicle: one.statistics for one in found}


def total(statistics):
    return mpt.ClassStatistics.merge(list(statistics.values()))


def test_the_first_are_held_until_there_is_a_quorum_and_then_each_goes_through_as_it_comes(fleet):
    gate, given_now, told_all = Gate(), [], reports(fleet)
    for v in NAMES:
        given_now.append([one.vehicle for one in gate.take(v, told_all[v])])
    assert given_now == [[]] * 7 + [NAMES[:8]] + [[v] for v in NAMES[8:]]
    assert gate.flush() == []


def test_without_a_quorum_they_go_through_when_no_more_will_come(fleet):
    gate, told_all = Gate(), reports(fleet)
    assert [gate.take(v, told_all[v]) for v in NAMES[:5]] == [[]] * 5
    assert [one.vehicle for one in gate.flush()] == NAMES[:5]
    assert [one.vehicle for one in gate.take(NAMES[5], told_all[NAMES[5]])] == [NAMES[5]]


def test_nothing_comes_of_nothing():
    gate = Gate()
    assert gate.flush() == []
    assert gate.consensus is None


@pytest.mark.parametrize(
    ("dim", "scatter", "held"), [(8, True, 64), (512, True, 62), (1024, True, 15), (2048, True, 8), (2048, False, 64)]
)
def test_how_many_are_held_is_by_their_bytes_within_limits(dim, scatter, held, monkeypatch):
    monkeypatch.setattr(gates, "MOST_QUORUM", 64)
    shape = np.broadcast_to(0.0, (dim, dim)) if scatter else None
    assert quorum_of(SimpleNamespace(sums=np.zeros((10, dim)), scatter=shape)) == held
    size = 8 * (10 * dim + (dim * dim if scatter else 0))
    assert held in (8, 64) or held * size <= 2**27 < (held + 1) * size


@pytest.mark.parametrize("seed", range(4))
def test_honest_answers_go_through_as_they_are(fleet, seed):
    order = list(np.random.default_rng(seed).permutation(NAMES))
    gate, told_all = Gate(), reports(fleet)
    found = passed(gate, told_all, order)
    assert all(found[v] is told_all[v] for v in NAMES)
    assert (gate.clips, gate.cross_clips) == ({}, {})


@pytest.mark.parametrize("vehicles", [1, 2])
def test_one_or_two_are_compared_with_nobody(fleet, vehicles):
    gate, told_all = Gate(), reports(fleet, shift=FAR)
    found = passed(gate, told_all, NAMES[:vehicles])
    assert all(found[v] is told_all[v] for v in NAMES[:vehicles])
    assert gate.consensus is None


def test_who_is_first_within_the_quorum_does_not_matter(fleet):
    """The liar is anywhere among those that are held; what they add up to differs by rounding."""
    told_all, found = reports(fleet, shift=FAR), []
    for order in (NAMES[:8], NAMES[7::-1], [*NAMES[1:5], NAMES[0], *NAMES[5:8]]):
        gate = Gate()
        found.append(total(passed(gate, told_all, order)))
        assert list(gate.clips) == [NAMES[0]]
    for one in found[1:]:
        assert_array_equal(one.counts, found[0].counts)
        assert_allclose(one.sums, found[0].sums, rtol=1e-9, atol=1e-9)
        assert_allclose(one.scatter, found[0].scatter, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("place", [0, 7, 8, 11], ids=["first", "last of the quorum", "next", "last"])
@pytest.mark.parametrize("shift", [FAR, 1e6])
def test_a_lie_moves_the_sum_by_little_whenever_it_comes(fleet, place, shift):
    """However long it is: no mean is further off than if the vehicle had not answered."""
    order = NAMES[1:]
    order.insert(place, NAMES[0])
    gate, told_all = Gate(), reports(fleet, shift=shift)
    found = passed(gate, told_all, order)
    honest, without = total(reports(fleet)).means, total({v: told_all[v] for v in NAMES[1:]}).means
    off = np.linalg.norm(total(found).means - honest, axis=1)
    plain = np.linalg.norm(total(told_all).means - honest, axis=1)
    assert np.all(off <= 1.5 * np.linalg.norm(without - honest, axis=1))
    assert plain.min() > 5
    assert sorted(gate.clips[NAMES[0]].times) == list(range(C))
    assert set(gate.clips) == {NAMES[0]}
    assert all(found[v] is told_all[v] for v in NAMES[1:])


def test_after_the_quorum_a_class_of_three_holders_is_compared_with_these(fleet):
    """Of the rare class only those know that are held first; the liar comes later and has it, too."""
    told_all = reports(fleet, shift=FAR, classes=(RARE,))
    gate = Gate()
    found = passed(gate, told_all, [*NAMES[1:], NAMES[0]])
    assert list(gate.clips[NAMES[0]].times) == [RARE]
    far = np.linalg.norm(found[NAMES[0]].means[RARE] - fleet_mean(told_all))
    assert far < 3


def fleet_mean(told_all):
    return total({v: told_all[v] for v in NAMES[1:]}).means[RARE]


def written_out(counts, vehicle):
    """Eq. (G1) for a departed class: no majority, and at most twice what the median holder has, of three or more."""
    others = sum(counts) - counts[vehicle]
    most = others if others else counts[vehicle]
    holding = sorted(n for n in counts if n)
    if len(holding) >= 3:
        half = len(holding) // 2
        middle = holding[half] if len(holding) % 2 else (holding[half - 1] + holding[half]) / 2
        most = min(most, 2 * int(np.ceil(middle)))
    return min(counts[vehicle], most)


@pytest.mark.parametrize("counts", [[90, 3, 3, 2, 0, 0], [90, 3, 0, 0, 0, 0], [7, 3, 3, 3, 3, 3], [90, 0, 0, 0, 0, 0]])
def test_of_a_departed_class_nobody_has_a_majority(counts):
    vehicles = NAMES[: len(counts)]
    fleet = Fleet({v: {**EVEN, RARE: n} for v, n in zip(vehicles, counts, strict=True)})
    told_all = {v: report(fleet, v) for v in vehicles}
    found = passed(Gate(departed=(RARE,)), told_all, vehicles)
    kept = [int(found[v].counts[RARE]) for v in vehicles]
    assert kept == [written_out(counts, place) for place in range(len(counts))]
    assert_allclose(found[vehicles[0]].means[RARE], told_all[vehicles[0]].means[RARE], rtol=1e-9)
    assert_array_equal(found[vehicles[0]].counts[list(EVEN)], [20] * (C - 1))


def test_after_the_quorum_likewise():
    fleet = Fleet({v: {**EVEN, RARE: 90 if v == NAMES[9] else 3} for v in NAMES})
    told_all = {v: report(fleet, v) for v in NAMES}
    found = passed(Gate(departed=(RARE,)), told_all)
    assert int(found[NAMES[9]].counts[RARE]) == 6
    assert total({v: found[v] for v in NAMES if v != NAMES[9]}).counts[RARE] == 11 * 3


@pytest.mark.parametrize("place", [0, 9], ids=["in the quorum", "after it"])
def test_who_is_exempt_may_have_a_majority(place):
    """It brings the class back; it is asked for with its samples, and the others are not exempt."""
    back, asked = NAMES[place], set()
    fleet = Fleet({v: {**EVEN, RARE: 90 if v in (back, NAMES[5]) else 3} for v in NAMES})

    def exempt(vehicle, c, samples):
        asked.add((vehicle, c, samples))
        return vehicle == back

    found = passed(Gate(departed=(RARE,), exempt=exempt), {v: report(fleet, v) for v in NAMES})
    assert found[back].counts[RARE] == 90
    assert found[NAMES[5]].counts[RARE] == 6
    assert asked == {(v, RARE, 90 if v in (back, NAMES[5]) else 3) for v in NAMES}


@pytest.mark.parametrize("times", [20, 200])
def test_of_very_many_samples_as_many_count_as_usual_but_all_of_watched_classes(times):
    """Somebody may hold nearly all of a watched class. That alone is no reason to name a vehicle."""
    holdings = {v: {**EVEN, RARE: 3} for v in NAMES} | {NAMES[0]: {c: times * n for c, n in EVEN.items()} | {RARE: 900}}
    fleet, gate = Fleet(holdings), Gate()
    found = passed(gate, {v: report(fleet, v) for v in NAMES})[NAMES[0]].counts
    assert found[RARE] == 900
    assert found[list(EVEN)].sum() <= 3 * 103
    assert told(gate.clips[NAMES[0]], {}, str) == ""


def test_what_is_said_of_a_clip():
    far = Clip(means={0: np.zeros(2), 3: np.zeros(2)}, times={3: 2.26, 0: 17.04})
    assert told(far, {}, "class {}".format) == (
        "its mean of class 0 (17.0 times the bound), class 3 (2.3 times the bound) is far off"
    )
    assert told(Clip(spread=0.0123), {}, str) == "1.2% of its scatter counts"
    assert told(Clip(share=0.1, most={2: 3}), {}, str) == ""
    assert told(None, {}, str) == ""
    cut = {2: CrossClip(1.0, {}, 0.4), 1: CrossClip(0.5, {}, 1.0), 0: CrossClip(1.0, {}, 1.0)}
    said = "its cross moments for b are far off; its cross moments for c are far off"
    assert told(None, cut, "abc".__getitem__) == said
    assert told(Clip(spread=0.5), {1: CrossClip(1.0, {3: 2.0}, 1.0)}, str) == (
        "50.0% of its scatter counts; its cross moments for 1 are far off"
    )


@pytest.mark.parametrize("whitened", [False, True])
def test_a_mean_is_held_back_at_the_radius(whitened):
    rng = np.random.default_rng(1)
    covariance = np.cov(rng.standard_normal((8, 50)) * np.arange(1, 9)[:, None]) if whitened else np.eye(8)
    factor = np.linalg.cholesky(covariance) if whitened else None
    expected = Expected(rng.standard_normal(8), 0.7)

    def length(x):
        return np.sqrt(x @ np.linalg.solve(covariance, x))

    away = rng.standard_normal(8)
    near = expected.mean + 0.69 / length(away) * away
    assert held_back(expected, near, factor) is None
    mean, times = held_back(expected, expected.mean + 7 / length(away) * away, factor)
    assert length(mean - expected.mean) == pytest.approx(0.7)
    assert times == pytest.approx(10)
    assert_allclose((mean - expected.mean) / np.linalg.norm(mean - expected.mean), away / np.linalg.norm(away))


def test_where_nothing_moves_a_mean_counts_where_it_was():
    mean, times = held_back(Expected(np.zeros(3), 0.0), np.ones(3), None)
    assert_array_equal(mean, np.zeros(3))
    assert times > 1e100
    assert held_back(Expected(np.ones(3), 0.0), np.ones(3), None) is None


def two_rounds(made=Fleet, few=0, vehicles=NAMES[:5], **options):
    """One vehicle holds the rare class: the round before, as it is kept, and this round's reports."""
    fleet = made({v: {**EVEN, RARE: 60 if v == NAMES[0] else few} for v in vehicles})
    before = {v: report(fleet, v, 1, **options) for v in vehicles}
    return fleet, History(total(before), {NAMES[0]: before[NAMES[0]]})


def test_a_holders_mean_is_expected_where_it_was_moved_as_the_others_have():
    """Written out, without a covariance: the mean drift, and twice the largest distance from it, K / (K - 1) times."""
    fleet, history = two_rounds(scatter=False)
    now = {v: report(fleet, v, 2, scatter=False) for v in NAMES[:5]}
    found = history.expected(NAMES[0], now[NAMES[0]], bounded(list(now.values())).consensus)
    steps = np.array([total(now).means[c] - history.last.means[c] for c in EVEN])
    apart = np.linalg.norm(steps - steps.mean(axis=0), axis=1).max()
    assert list(found) == [RARE]
    rare = history.holders[NAMES[0]].means[RARE]
    assert_allclose(found[RARE].mean, rare + steps.mean(axis=0), rtol=1e-9)
    assert found[RARE].radius == pytest.approx(2 * apart * len(EVEN) / (len(EVEN) - 1))


def test_with_other_samples_than_before_it_may_lie_off_by_chance_too():
    fleet, history = two_rounds()
    now = {v: report(fleet, v, 2) for v in NAMES[:5]}
    agreed = bounded(list(now.values())).consensus
    same = history.expected(NAMES[0], now[NAMES[0]], agreed)[RARE].radius
    fleet.add(NAMES[0], {**EVEN, RARE: 61})
    changed = history.expected(NAMES[0], report(fleet, NAMES[0], 2), agreed)[RARE].radius
    assert changed > same > 0


def test_nothing_is_expected_where_nothing_is_known():
    fleet, history = two_rounds()
    now = [report(fleet, v, 2) for v in NAMES[:5]]
    agreed = bounded(now).consensus
    assert history.expected(NAMES[0], now[0], agreed)
    assert history.expected(NAMES[1], now[1], agreed) == {}, "it held nothing"
    assert History().expected(NAMES[0], now[0], agreed) == {}
    assert History(history.last).expected(NAMES[0], now[0], agreed) == {}
    three, _ = two_rounds(few=2)
    assert history.expected(NAMES[0], now[0], bounded([report(three, v, 2) for v in NAMES[:5]]).consensus) == {}
    poor = report(Fleet({NAMES[0]: {0: 20, RARE: 60}}), NAMES[0], 2)
    agreed = bounded([poor, poor, now[1]]).consensus
    assert history.expected(NAMES[0], poor, agreed) == {}, "one class that three have tells of no drift"


@pytest.mark.parametrize("shift", [5.0, FAR])
@pytest.mark.parametrize("late", [False, True], ids=["in the quorum", "after it"])
def test_a_class_of_one_holder_does_not_jump(shift, late):
    """It counts as far from where it was as any other class has strayed, twice; without a history it counts as told."""
    vehicles = NAMES if late else NAMES[:5]
    order = [*vehicles[1:], vehicles[0]] if late else vehicles
    fleet, history = two_rounds(vehicles=vehicles)
    told_all = {v: report(fleet, v, 2, shift=shift if v == NAMES[0] else 0.0, classes=(RARE,)) for v in vehicles}
    plain = passed(Gate(), told_all, order)[NAMES[0]]
    assert plain is told_all[NAMES[0]]
    gate = Gate(history=history.expected)
    found = passed(gate, told_all, order)[NAMES[0]]
    honest = report(fleet, NAMES[0], 2).means[RARE]
    assert np.linalg.norm(found.means[RARE] - honest) < 0.2 * np.linalg.norm(plain.means[RARE] - honest)
    assert gate.clips[NAMES[0]].times[RARE] > 5
    others = list(EVEN)
    assert_allclose(found.means[others], plain.means[others], rtol=1e-9)
    assert_array_equal(found.counts, plain.counts)


def test_its_honest_mean_counts_as_it_is():
    fleet, history = two_rounds()
    told_all = {v: report(fleet, v, 2) for v in NAMES[:5]}
    gate = Gate(history=history.expected)
    assert passed(gate, told_all, NAMES[:5])[NAMES[0]] is told_all[NAMES[0]]
    assert gate.clips == {}


def crossing(fleet, vehicle, lying):
    """A vehicle's statistics, and its cross moments between rounds 1 and 2; a lie pairs the wrong samples."""
    (z, labels), (h, _) = fleet.features(vehicle, 1), fleet.features(vehicle, 2)
    weights = np.array([float(c != RARE) for c in range(C)])
    moments = mpt.CrossStatistics.from_features(z, h, labels, C, weights=weights)
    if lying:
        wrong = mpt.CrossStatistics.from_features(
            z, np.random.default_rng(3).permutation(h), labels, C, weights=weights
        )
        moments = replace(moments, cross=moments.cross + FAR * (wrong.cross - moments.cross))
    return mpt.ClassStatistics.from_features(h, labels, C, watched=(RARE,)), {RARE: moments}


@pytest.mark.parametrize("place", [0, 11], ids=["in the quorum", "after it"])
def test_cross_moments_of_no_map_are_replaced_by_the_common_map(fleet, place):
    order = NAMES[1:]
    order.insert(place, NAMES[0])
    gate, found = Gate(), []
    for v in order:
        found += gate.take(v, *crossing(fleet, v, v == NAMES[0]))
    found += gate.flush()
    assert list(gate.cross_clips) == [NAMES[0]]
    assert gate.clips == {}
    assert gate.cross_clips[NAMES[0]][RARE].residual < 0.1
    honest = {v: crossing(fleet, v, False)[1][RARE] for v in NAMES}
    counted = {one.vehicle: one.cross[RARE] for one in found}
    off = np.linalg.norm(counted[NAMES[0]].cross - honest[NAMES[0]].cross)
    told_off = np.linalg.norm(crossing(fleet, NAMES[0], True)[1][RARE].cross - honest[NAMES[0]].cross)
    assert off < 0.01 * told_off
    assert_allclose(counted[NAMES[0]].sums, honest[NAMES[0]].sums, rtol=1e-9, atol=1e-9)
    for v in NAMES[1:]:
        assert_array_equal(counted[v].cross, honest[v].cross)
