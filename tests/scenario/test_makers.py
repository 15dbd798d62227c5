import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpt.scenario import PlanError, leaves_of, parking_lot, poisson, with_failures, with_goodbyes, workplace

SEEDS = st.integers(0, 1000)


def test_the_parking_lot():
    presence = parking_lot(3, 10, {0: 4, 2: 6}, {2: 9})
    assert [presence.stays(v) for v in range(3)] == [[(1, 4)], [(1, 10)], [(1, 6), (9, 10)]]
    assert presence.vehicles == ("v1", "v2", "v3")
    assert parking_lot(["x", "y"], 2, {}).vehicles == ("x", "y")


@pytest.mark.parametrize(
    ("leaves", "returns", "sentence"),
    [
        ({3: 4}, {}, "leaves: there is no vehicle 3, should be 0 to 2"),
        ({0: 10}, {}, "leaves: vehicle 0 after round 10, should be 1 to 9"),
        ({}, {1: 4}, "returns: vehicle 1, should be one that leaves"),
        ({1: 4}, {1: 5}, "returns: vehicle 1 in round 5, should be 6 to 10"),
    ],
)
def test_a_parking_lot_that_cannot_be(leaves, returns, sentence):
    with pytest.raises(PlanError, match=sentence):
        parking_lot(3, 10, leaves, returns)


@given(SEEDS, st.integers(1, 9), st.floats(0.01, 5), st.floats(1, 20), st.sampled_from(["exponential", "lognormal"]))
def test_poisson_has_somebody_in_round_one_and_is_the_same_again(seed, vehicles, arrivals, stay, stays):
    def make():
        return poisson(vehicles, 15, np.random.default_rng(seed), arrivals=arrivals, stay=stay, stays=stays)

    presence = make()
    assert presence.here(1)
    assert presence.there.shape == (15, vehicles)
    np.testing.assert_array_equal(make().there, presence.there)


def whole_stays(presence):
    """Lengths of the stays that begin and end inside."""
    stays = [stay for v in range(len(presence.vehicles)) for stay in presence.stays(v)]
    return [last - first + 1 for first, last in stays if first > 1 and last < presence.rounds]


@pytest.mark.parametrize("stays", ["exponential", "lognormal"])
def test_poisson_has_the_arrivals_and_stays_that_were_asked_for(stays):
    presence = poisson(200, 2000, np.random.default_rng(3), arrivals=2.0, stay=6.0, stays=stays)
    assert np.mean(whole_stays(presence)) == pytest.approx(6, rel=0.06)
    comes = np.diff(presence.there.astype(int), axis=0) == 1
    assert comes.sum() / presence.rounds == pytest.approx(2, rel=0.06)
    assert presence.there[:20].sum(axis=1).mean() == pytest.approx(12, abs=5)  # from the start, by Little's law


def test_poisson_with_a_rhythm_has_no_arrivals_at_night_and_most_in_the_morning():
    presence = poisson(300, 24 * 60, np.random.default_rng(1), arrivals=1.0, stay=5.0, rhythm=24)
    comes = (np.diff(presence.there.astype(int), axis=0) == 1).sum(axis=1)
    by_hour = np.append(0, comes).reshape(60, 24).sum(axis=0)
    assert by_hour[:5].sum() == by_hour[22:].sum() == 0
    assert 6 <= by_hour.argmax() <= 9
    assert comes.sum() / presence.rounds == pytest.approx(1, rel=0.1)


@given(SEEDS, st.integers(0, 5))
def test_poisson_with_at_least_so_many(seed, least):
    presence = poisson(5, 30, np.random.default_rng(seed), arrivals=0.2, stay=3.0, rhythm=10, least=least)
    assert presence.there.sum(axis=1).min() >= least


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"arrivals": 0}, "arrivals: 0, should be above 0"),
        ({"stay": 0.5}, "stay: 0.5, should be at least 1"),
        ({"stays": "normal"}, "stays: 'normal', should be exponential or lognormal"),
        ({"spread": -1}, "spread: -1"),
        ({"rhythm": 1}, "rhythm: 1"),
        ({"least": 5}, "least: 5, should be 0 to 4"),
        ({"rounds": 0}, "rounds: 0, should be a whole number of at least 1"),
        ({"vehicles": 0}, "vehicles: 0, should be at least 1"),
    ],
)
def test_a_poisson_process_that_cannot_be(changes, sentence):
    settings = {"vehicles": 4, "rounds": 9, "rng": np.random.default_rng(0), "arrivals": 1.0, "stay": 2.0, **changes}
    with pytest.raises(PlanError, match=sentence):
        poisson(**settings)


@given(SEEDS, st.floats(0, 1))
def test_goodbyes_and_failures_are_the_share_that_was_asked_for(seed, share):
    rng = np.random.default_rng(seed)
    presence = poisson(6, 30, rng, arrivals=1.0, stay=4.0)
    told = with_goodbyes(presence, share, rng)
    assert told.goodbye.sum() == round(share * leaves_of(presence).sum())
    failing = with_failures(told, share, rng)
    assert failing.silent.sum() == round(share * presence.there.sum())
    np.testing.assert_array_equal(failing.goodbye, told.goodbye)


@pytest.mark.parametrize(("make", "name"), [(with_goodbyes, "announced"), (with_failures, "failing")])
def test_shares_that_are_none(make, name):
    with pytest.raises(PlanError, match=f"{name}: 1.5, should be 0 to 1"):
        make(parking_lot(2, 3, {}), 1.5, np.random.default_rng(0))


@given(SEEDS, st.integers(1, 14), st.integers(1, 70), st.floats(0, 1), st.integers(0, 3))
def test_a_workplace(seed, vehicles, days, stops, least):
    least = min(least, vehicles)
    presence = workplace(vehicles, days, np.random.default_rng(seed), stops=stops, places=5, least=least)
    assert presence.there.shape == (days, vehicles)
    assert presence.there.any(axis=0).all()
    np.testing.assert_array_equal(presence.visits.sum(axis=1), presence.there.sum(axis=0))
    stay = vehicles - round(stops * vehicles)
    assert presence.there.sum(axis=1).min() >= min(least, stay)


def test_a_workplace_has_the_figures_that_its_docstring_says():
    tables = [workplace(60, 60, np.random.default_rng(seed)).there for seed in range(20)]
    shares = np.concatenate([t.mean(axis=0)[t.sum(axis=0) >= 5] for t in tables])
    assert (shares >= 0.25).mean() == pytest.approx(0.61, abs=0.01)
    assert shares[shares >= 0.25].mean() == pytest.approx(0.48, abs=0.01)
    assert shares[shares < 0.25].mean() == pytest.approx(0.16, abs=0.01)
    fridays = sum(t[4::5].sum() for t in tables) / sum(t.sum() for t in tables) * 5
    assert fridays == pytest.approx(0.78, abs=0.01)


def test_a_workplace_where_some_stop_for_good():
    presence = workplace(20, 80, np.random.default_rng(5), regulars=1.0, stops=0.5, holidays=0.0)
    assert (~presence.there[60:].any(axis=0)).sum() == 10
    assert presence.labels[4:6] == ("week 1 Fri", "week 2 Mon")


@pytest.mark.parametrize(
    ("changes", "sentence"), [({"stops": 2}, "stops: 2"), ({"places": 0}, "places: 0"), ({"least": 9}, "least: 9")]
)
def test_a_workplace_that_cannot_be(changes, sentence):
    with pytest.raises(PlanError, match=sentence):
        workplace(4, 9, np.random.default_rng(0), **changes)
