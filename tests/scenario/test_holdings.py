import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpt.scenario import (
    PlanError,
    absent_pairs,
    by_places,
    choose_holders,
    concentrated,
    parking_lot,
    poisson,
    present_when,
    true_departures,
)


def test_concentrated():
    shares = concentrated(5, 3, {2: 1, 0: 1}, remaining=0.04)
    np.testing.assert_allclose(shares[:, 1], 0.2)
    np.testing.assert_allclose(shares[:, 0], [0.01, 0.96, 0.01, 0.01, 0.01])
    np.testing.assert_allclose(shares[:, 2], shares[:, 0])
    base = np.eye(2)
    np.testing.assert_allclose(concentrated(2, 2, {1: 0}, 0.1, base), [[1, 0.9], [0, 0.1]])
    assert base[0, 1] == 0


@given(st.integers(0, 99), st.integers(1, 5), st.integers(1, 4), st.integers(1, 9), st.floats(0.01, 10))
def test_shares_by_places_add_up_and_follow_the_visits(seed, vehicles, places, classes, concentration):
    rng = np.random.default_rng(seed)
    visits = rng.integers(0, 9, (vehicles, places))
    visits[0, 0] += 1
    shares = by_places(visits, classes, rng, concentration)
    assert shares.shape == (vehicles, classes)
    assert shares.min() >= 0
    np.testing.assert_allclose(shares.sum(axis=0), 1)
    assert not shares[visits.sum(axis=1) == 0].any()


def test_vehicles_at_the_same_places_hold_the_same():
    visits = np.array([[4, 0], [2, 0], [0, 5]])
    shares = by_places(visits, 6, np.random.default_rng(0), concentration=0.1)
    np.testing.assert_allclose(shares[0], 2 * shares[1])
    assert np.ptp(shares[2]) > 0.5


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: concentrated(3, 4, {4: 0}), "class 4 on vehicle 0, should be a class from 0 to 3"),
        (lambda: concentrated(3, 4, {0: 3}), "and a vehicle from 0 to 2"),
        (lambda: concentrated(1, 4, {0: 0}), "one vehicle, should be at least 2"),
        (lambda: concentrated(3, 4, {}, remaining=1.2), "remaining: 1.2, should be 0 to 1"),
        (lambda: concentrated(3, 4, {}, base=np.ones((4, 3))), r"base has shape \(4, 3\), should be \(3, 4\)"),
        (lambda: by_places(np.zeros((2, 2)), 3, np.random.default_rng(0)), "not all of them 0"),
        (lambda: by_places(np.ones((2, 2)), 3, np.random.default_rng(0), 0), "concentration: 0, should be above 0"),
        (lambda: choose_holders(parking_lot(2, 3, {}), 3), "3 classes each on one vehicle, should be at most 2"),
    ],
)
def test_holdings_that_cannot_be(call, sentence):
    with pytest.raises(PlanError, match=sentence):
        call()


def test_holders_are_those_whose_absence_matters():
    presence = parking_lot(6, 20, {1: 19, 2: 10, 3: 8, 4: 9}, {3: 15, 4: 12})
    assert choose_holders(presence, 4) == (2, 3, 1, 4)
    assert choose_holders(presence, 6) == (2, 3, 1, 4, 0, 5)
    assert choose_holders(presence, 0) == ()


def written_out(presence, counts, carry_share):
    """The definition, pair by pair."""
    pairs = np.zeros((presence.rounds, counts.shape[1]), dtype=bool)
    for c in range(counts.shape[1]):
        holder = max(range(len(counts)), key=lambda v: (counts[v, c], -v))
        for number in range(1, presence.rounds + 1):
            been = any(holder in presence.here(r) for r in range(1, number))
            carried = sum(counts[v, c] for v in presence.here(number))
            away = holder not in presence.here(number)
            pairs[number - 1, c] = counts[:, c].sum() and away and been and carried <= carry_share * counts[:, c].sum()
    return pairs


@given(st.integers(0, 200), st.sampled_from([0.0, 0.25, 0.5, 1.0]))
def test_absent_pairs(seed, carry_share):
    rng = np.random.default_rng(seed)
    presence = poisson(5, 15, rng, arrivals=0.7, stay=3.0)
    counts = rng.integers(0, 4, (5, 4)) ** 3
    np.testing.assert_array_equal(
        absent_pairs(presence, counts, carry_share), written_out(presence, counts, carry_share)
    )


def test_a_class_leaves_with_its_holder_and_comes_back():
    presence = parking_lot(4, 10, {0: 4}, {0: 8})
    pairs = absent_pairs(presence, np.array([[97, 5], [1, 5], [1, 5], [1, 5]]))
    assert list(np.flatnonzero(pairs[:, 0]) + 1) == [5, 6, 7]
    assert not pairs[:, 1].any()


def test_true_departures():
    there = np.array([[1, 1, 0, 1], [0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1]], dtype=bool)
    counts = np.array([[1], [2], [3], [0]])
    assert true_departures(present_when(4, there), counts) == [(0, 1, 3), (1, 2, None), (0, 3, None)]


@pytest.mark.parametrize("counts", [np.ones((3, 2)), np.ones((2, 2), int), np.full((3, 2), -1), np.ones(3, int)])
def test_counts_that_are_none(counts):
    with pytest.raises(PlanError, match=r"whole numbers from 0 on of shape \(3, classes\)"):
        true_departures(parking_lot(3, 4, {}), counts)
