"""The clipped average: against its definition written out, and what each kind of lie comes to.

`weigh` and `usual` here are the equations (G1) and (G7) once more, sample by sample and by interpolation.
"""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="mpt.learning needs torch, which is not installed")

from hypothesis import given
from hypothesis import strategies as st

from mpt.learning import LearningError
from mpt.learning.aggregation import BoundedAverage, Medians, Updates, clipping, find_aggregation, gathering, shortened

from .updates import NORM, RUNNING, averaged, close, fleet, lying, named, same, weights, with_a_holder, without


def taken(updates, medians=None):
    """All of them, counted: what is held until then has no share yet."""
    made = clipping(updates, medians)
    made.state()
    return made


def usual(samples, values):
    """The median by samples, each sample written out; the sqrt(V) / 3 vehicles with most samples are left out."""
    order = np.argsort(samples, kind="stable")
    order = order[: max(len(order) - int(np.ceil(np.sqrt(len(order)) / 3)), 1)]
    every = np.sort(np.repeat(np.asarray(values)[order], np.asarray(samples)[order]))
    return every[(len(every) + 1) // 2 - 1]


def bounded(claim, middle, most):
    """Eq. (G1), how much of a claim counts: straight lines between four corners."""
    if middle == 0:
        return 0.0
    return middle * np.interp(claim / middle, [0, most, 50, 100], [0, most, most, 1])


def weigh(updates, medians=None, most=3.0):
    """The clipped average by its definition, in NumPy: weights, BatchNorm's mean and variance, and shares."""
    start, count = weights(updates.start), np.array(updates.samples)
    ways = np.array([weights(one) - start for one in updates.states])
    lengths = np.linalg.norm(ways, axis=1)
    first = np.concatenate([updates.start[name].numpy() for name in RUNNING])
    running = np.array([np.concatenate([one[name].numpy() for name in RUNNING]) for one in updates.states]) - first
    stirred = np.linalg.norm(running, axis=1)
    moving = np.flatnonzero(lengths > 0)
    columns = (count, lengths, count * lengths, stirred)
    middle = medians or [usual(count[moving], column[moving]) for column in columns]
    counted, shares = np.zeros(len(count)), np.ones(len(count))
    for v, n in enumerate(count):
        long, factor = (4.0, 10.0) if v in updates.holders else (2.5, most)
        counted[v] = bounded(n, middle[0], 3.0)
        pace = lengths[v] / (middle[1] * max(1, counted[v] / middle[0]))
        shares[v] = np.interp(pace, [0, long, 2 * long], [0, long, long / 10]) / pace if pace > 0 else 1.0
        claim = counted[v] * lengths[v] * shares[v]
        shares[v] *= bounded(claim, middle[2], factor) / claim if claim > 0 else 1.0
        most_stirred = 10.0 if v in updates.holders else most
        part = bounded(stirred[v], middle[3], most_stirred) / stirred[v] if stirred[v] > 0 else 1.0
        running[v] *= min(shares[v], part)
    p = counted / counted.sum()
    at = running + first
    mean, var = at[:, :2], at[:, 2:]
    pooled = p @ (var + (mean - p @ mean) ** 2)
    return start + p @ (shares[:, None] * ways), p @ mean, pooled, shares * counted / count


@given(
    vehicles=st.integers(1, 14),
    seed=st.integers(0, 99),
    lies=st.lists(st.tuples(st.integers(0, 13), st.floats(-200, 200), st.integers(1, 10**6)), max_size=3),
    holder=st.integers(0, 13),
    before=st.booleans(),
)
def test_clipped_is_its_definition(vehicles, seed, lies, holder, before):
    updates = fleet(vehicles, seed=seed, holders={holder} if holder < vehicles else ())
    medians = Medians(30.0, 0.2, 6.0, 0.1) if before else None
    for place, by, samples in lies:
        if place < vehicles:
            updates = lying(updates, place, by, samples)
            updates.states[place][RUNNING[0]] += abs(by) / 10
    made = taken(updates, medians)
    w, mean, var, shares = weigh(updates, medians)
    got = made.state()
    np.testing.assert_allclose(weights(got), w, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(got[RUNNING[0]], mean, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(got[RUNNING[1]], var, rtol=1e-7, atol=1e-7)
    assert int(got["n.num_batches_tracked"]) == 2 + vehicles
    np.testing.assert_allclose([made.shares.get(str(v), 1.0) for v in range(vehicles)], shares, rtol=1e-9)


@given(seed=st.integers(0, 30), order=st.permutations(range(9)))
def test_the_order_of_arrival_does_not_matter(seed, order):
    updates = lying(lying(fleet(9, seed=seed), 3, -10.0), 5, 40.0, 5000)
    close(find_aggregation("clipped")(updates.chosen(order)), find_aggregation("clipped")(updates), 1e-12)


@pytest.mark.parametrize("vehicles", [1, 2, 3, 9, 40])
def test_an_honest_round_is_the_average_bit_by_bit(vehicles):
    updates = fleet(vehicles)
    made = taken(updates)
    assert same(made.state(), averaged(updates))
    assert (made.shares, made.doubted) == ({}, False)
    for text in ("average", "clipped"):
        taking = gathering(text, NORM, updates.start)
        for place, (one, samples) in enumerate(zip(updates.states, updates.samples, strict=True)):
            taking.check(one)
            taking.add(str(place), one, samples)
        assert same(taking.state(), averaged(updates))
        if text == "clipped":
            close(dict(enumerate(np.array(taking.medians))), dict(enumerate(np.array(made.medians))))
        else:
            assert taking.medians is None, "where nothing is bounded, nothing is measured"


@pytest.mark.parametrize("text", ["average", "clipped", "median"])
@pytest.mark.parametrize("what", ["nan", "infinite", "negative variance", "another shape", "absurd counter"])
@pytest.mark.parametrize("checked", [False, True])
def test_a_state_that_is_none_is_refused_and_changes_nothing(text, what, checked):
    """Also where another one has been checked just before."""
    updates = fleet(5)
    taking = gathering(text, NORM, updates.start)
    for place, one in enumerate(updates.states):
        taking.add(str(place), one, 10)
    broken = dict(updates.states[0])
    name = {"negative variance": RUNNING[1], "absurd counter": "n.num_batches_tracked"}.get(what, next(iter(broken)))
    value = {"nan": np.nan, "infinite": -np.inf, "negative variance": -1.0, "absurd counter": 2**62}.get(what)
    broken[name] = broken[name][:0] if value is None else broken[name].clone()
    if value is not None:
        broken[name].view(-1)[0] = value
    if checked:
        taking.check(updates.states[1])
    with pytest.raises(LearningError, match=f"state: {name} "):
        taking.check(broken)
    if text != "median":
        with pytest.raises(LearningError, match=f"state: {name} "):
            taking.add("liar", broken, 10)
    rest = gathering(text, NORM, updates.start)
    for place, one in enumerate(updates.states):
        rest.add(str(place), one, 10)
    assert same(taking.state(), rest.state())


def off(updates, made, place):
    """How far a model is from the honest ones' average, in lengths of what they have moved by."""
    honest = weights(averaged(without(updates, place)))
    moved = np.linalg.norm(honest - weights(updates.start))
    return np.linalg.norm(weights(made) - honest) / moved


def test_zero_weights_of_two_billion_samples():
    updates = fleet(9)
    states, samples = list(updates.states), list(updates.samples)
    states[4] = {name: torch.zeros_like(tensor) for name, tensor in states[4].items()}
    samples[4] = 2**31 - 1
    updates = Updates(updates.start, states, samples, NORM)
    assert np.abs(weights(averaged(updates))).max() < 1e-6, "the average is what it says"
    made = taken(updates)
    assert off(updates, made.state(), 4) < 0.2
    assert float(made.state()["n.running_var"].min()) > 0.8
    assert list(made.shares) == ["4"]
    assert made.shares["4"] < 1e-7
    assert made.doubted


def test_a_larger_lie_is_worth_less_and_a_flip_of_the_usual_length_counts():
    """A holder's update points away from the others' as well: direction alone tells nothing."""
    harm = {by: off(lied := lying(fleet(9), 4, by), taken(lied).state(), 4) for by in (-1, -10, -1000)}
    plain = {by: off(lied := lying(fleet(9), 4, by), averaged(lied), 4) for by in (-10, -1000)}
    assert harm[-1] < 0.4
    assert harm[-10] < 0.25
    assert harm[-1000] < 0.25
    assert plain[-10] > 0.9
    assert plain[-1000] > 80
    assert taken(lying(fleet(9), 4, -1)).shares == {}
    ten = taken(lying(fleet(9), 4, 10.0))
    assert list(ten.shares) == ["4"]
    assert ten.doubted
    assert 0.01 < ten.shares["4"] < 0.05
    assert ten.medians.length == pytest.approx(taken(fleet(9)).medians.length, rel=0.3)


def test_the_share_of_a_length_is_continuous_and_never_more_than_the_bound():
    paces = np.linspace(0.01, 20, 4001)
    for most in (2.5, 4.0):
        counts = np.array([pace * shortened(pace, most) for pace in paces])
        np.testing.assert_allclose(counts, np.interp(paces, [0, most, 2 * most], [0, most, most / 10]), rtol=1e-12)
        assert np.abs(np.diff(counts)).max() < 0.01


def test_batchnorm_statistics_are_bounded_apart():
    updates = fleet(9)
    updates.states[4][RUNNING[0]] += 1000.0
    updates.states[4][RUNNING[1]] *= 1000.0
    plain, made = averaged(updates), find_aggregation("clipped")(updates)
    np.testing.assert_allclose(weights(made), weights(plain), rtol=1e-12)
    assert plain[RUNNING[0]].min() > 50
    assert float(made[RUNNING[0]].max()) < 0.3
    assert float(made[RUNNING[1]].max()) < 1.5
    assert taken(updates).shares == {}, "all that it has learned counts"
    lied = lying(fleet(9), 4, 1e6)
    p = np.array(lied.samples) / sum(lied.samples)
    others = sum(p[v] * float(lied.states[v][RUNNING[0]][0]) for v in range(9) if v != 4)
    still = find_aggregation("clipped")(lied)[RUNNING[0]]
    np.testing.assert_allclose(still, others, atol=1e-6, err_msg="what it has learned does not count, nor do these")


def test_medians_come_from_the_round_before_or_from_a_quorum():
    updates = lying(fleet(9), 2, 30.0)
    pairs = list(zip(updates.states, updates.samples, strict=True))
    own = taken(updates).medians
    known = BoundedAverage(NORM, updates.start, own)
    held = BoundedAverage(NORM, updates.start, quorum=4)
    still = dict(updates.start)
    held.add("idle", still, 1)
    for place, (one, samples) in enumerate(pairs):
        known.add(str(place), one, samples)
        assert ("2" in known.shares) == (place >= 2), "counted as it comes"
        held.add(str(place), one, samples)
        assert ("2" in held.shares) == (place >= 3), "held until four have moved"
    close(known.state(), taken(updates).state())
    first = taken(updates.chosen(range(4))).medians
    again = BoundedAverage(NORM, updates.start, first)
    again.add("idle", still, 1)
    for place, (one, samples) in enumerate(pairs):
        again.add(str(place), one, samples)
    close(held.state(), again.state())
    assert held.medians == own != first, "the next round's are of all"


def test_an_idle_round_leaves_the_model_as_it_is():
    start = fleet(9).start
    updates = Updates(start, [dict(start)] * 9, [30] * 9, NORM)
    for medians in (None, taken(fleet(9)).medians):
        made = taken(updates, medians)
        assert same(made.state(), start)
        assert (made.shares, made.doubted, made.medians) == ({}, False, None)


def test_who_sends_the_model_back_does_not_make_that_usual():
    updates = fleet(4)
    many = Updates(updates.start, [*updates.states, *[dict(updates.start)] * 20], [*updates.samples, *[1] * 20], NORM)
    assert taken(many).shares == {}
    assert taken(many).medians == taken(updates).medians


def test_a_frozen_backbone_moves_no_statistics_and_a_liar_cannot():
    """Only `b`, the head, is trained."""
    updates = fleet(9)
    kept = {name: updates.start[name] for name in ("a", *RUNNING)}
    frozen = Updates(updates.start, [{**one, **kept} for one in updates.states], updates.samples, NORM)
    assert same(taken(frozen).state(), averaged(frozen))
    frozen.states[4][RUNNING[1]] = 50 + frozen.states[4][RUNNING[1]]
    made = taken(frozen).state()
    assert torch.equal(made[RUNNING[1]], updates.start[RUNNING[1]])
    np.testing.assert_allclose(weights(made), weights(averaged(frozen)), rtol=1e-12)


def test_a_fleet_whose_steps_grow_tenfold_at_once_goes_on():
    moved, medians, start = [], None, fleet(9).start
    for scale in (0.1, 0.1, 1.0, 1.0):
        honest = fleet(9, scale=scale)
        ways = [weights(one) - weights(honest.start) for one in honest.states]
        updates = Updates(start, [{**start, **named(weights(start) + way)} for way in ways], honest.samples, NORM)
        made = taken(updates, medians)
        whole = np.linalg.norm(weights(averaged(updates)) - weights(start))
        medians, after = made.medians, made.state()
        moved.append(np.linalg.norm(weights(after) - weights(start)) / whole)
        start = after
    assert moved[0] == moved[1] == pytest.approx(1)
    assert 0.01 < moved[2] < 0.1
    assert moved[3] == pytest.approx(1)


def test_a_holder_may_move_further_than_others():
    """3.5 times the usual length: between the bounds, 2.5 for anybody and 4 for who holds most of a class."""
    updates = with_a_holder(far=3.4)
    assert taken(updates).shares == {}
    anybody = Updates(updates.start, updates.states, updates.samples, NORM)
    assert taken(anybody).shares["0"] < 0.6
    assert taken(with_a_holder(far=20.0)).doubted, "a holder is bounded too"


def test_an_update_too_long_for_a_number_is_refused():
    updates = fleet(9)
    wide = {name: t.double() if t.is_floating_point() else t for name, t in updates.start.items()}
    taking = gathering("clipped", NORM, wide)
    for place, one in enumerate(updates.states):
        taking.add(str(place), {n: t.double() if t.is_floating_point() else t for n, t in one.items()}, 10)
    before = {name: tensor.clone() for name, tensor in taking.state().items()}
    far = {name: t + 1e200 if t.is_floating_point() and name not in RUNNING else t for name, t in wide.items()}
    with pytest.raises(LearningError, match="too far from the global model for any number"):
        taking.add("liar", far, 10)
    assert same(taking.state(), before)


def test_complex_numbers_are_refused():
    updates = fleet(3)
    for text in ("average", "clipped"):
        start = {**updates.start, "phase": torch.zeros(2, dtype=torch.complex64)}
        with pytest.raises(LearningError, match=r"state: phase is torch\.complex64, should be of real numbers"):
            gathering(text, NORM, start)
