"""The tracker against the core called by hand, and through the life of a fleet."""

import numpy as np
import pytest

import mpt
from mpt.fleet import FleetError, Tracker, TrackerSettings
from tests.tracking.fleets import RARE, C, D, Fleet, paper_fleet, tracker, whats


def play(fleet, server, rounds, vehicles=None):
    return [server.close(fleet.answers(server.request(), vehicles)) for _ in range(rounds)]


def merged(request, answers, vehicles=None):
    return mpt.ClassStatistics.merge(
        request.read(answers[v]) for v in sorted(answers if vehicles is None else vehicles)
    )


def test_before_any_departure_the_prototypes_are_the_means():
    fleet, server = paper_fleet(), tracker()
    request = server.request()
    answers = fleet.answers(request)
    outcome = server.close(answers)
    stats = merged(request, answers)
    np.testing.assert_allclose(outcome.prototypes, stats.means, rtol=1e-12)
    np.testing.assert_allclose(outcome.covariance, stats.covariance(), rtol=1e-10)
    assert outcome.readout.prototypes.shape == (C, D)
    assert (request.round, request.watched, request.origin) == (1, (), None)
    assert server.request().watched == (RARE,)
    np.testing.assert_allclose(server.request().origin, stats.overall_mean, rtol=1e-12)
    assert not outcome.reconstructions
    assert not outcome.problems
    assert whats(outcome) == ["joined"] * 4 + ["watched"]


@pytest.mark.parametrize("variant", ["mpt", "lite"])
@pytest.mark.parametrize("announced", [True, False])
def test_reconstructions_are_the_cores(variant, announced):
    """Deposit and reconstruction by hand, from the same answers."""
    fleet, server = paper_fleet(), tracker(variant=variant, grace=1)
    play(fleet, server, 2)
    request = server.request()
    answers = fleet.answers(request)
    outcome = server.close(answers, leaving=["a"] if announced else [])
    before, staying = merged(request, answers), merged(request, answers, "bcd")
    np.testing.assert_allclose(outcome.prototypes, before.means, rtol=1e-10)
    deposit = mpt.deposit(before, RARE, staying=staying)
    held_out = [server.request().held_out]
    for _ in range(4):
        request = server.request()
        assert (request.scatter, request.span is None) == ((True, True) if variant == "mpt" else (False, False))
        answers = fleet.answers(request, "bcd")
        outcome = server.close(answers)
        stats = merged(request, answers)
        expected = mpt.reconstruct(deposit, stats, variant=variant)
        made = outcome.reconstructions[RARE]
        np.testing.assert_allclose(made.prototype, expected.prototype, rtol=1e-10, atol=1e-10)
        assert abs(made.alpha - expected.alpha) < 1e-10
        assert made.samples == 6
        np.testing.assert_array_equal(outcome.prototypes[RARE], made.prototype)
        np.testing.assert_allclose(np.delete(outcome.prototypes, RARE, 0), np.delete(stats.means, RARE, 0), rtol=1e-10)
        held_out.append(server.request().held_out)
    assert held_out == ([(RARE,)] * 5 if announced else [(), (), (RARE,), (RARE,), (RARE,)])


def test_a_vehicle_that_vanishes_is_suspected_deposited_departed_and_returns():
    fleet, server = paper_fleet(), tracker(grace=2)
    play(fleet, server, 3)
    log = [whats(o, "a") for o in play(fleet, server, 5, "bcd")]
    assert log == [["suspected", "deposited"], [], ["departed", "held-out"], [], []]
    (outcome,) = play(fleet, server, 1)
    assert whats(outcome) == ["returned", "recovered"]
    request = server.request()
    assert request.held_out == ()
    assert request.watched == (RARE,)
    assert not outcome.reconstructions
    np.testing.assert_allclose(outcome.prototypes[RARE], outcome.statistics.means[RARE])
    assert server.state.tracked == {}
    again = [whats(o) for o in play(fleet, server, 2, "bcd")]
    assert again == [["suspected", "deposited", "verdict"], []]


def test_one_that_is_suspected_and_says_that_it_leaves_is_departed_at_once():
    fleet, server = paper_fleet(), tracker(grace=9)
    play(fleet, server, 2)
    play(fleet, server, 1, "bcd")
    assert server.request().held_out == ()
    outcome = server.close(fleet.answers(server.request(), "bcd"), leaving=["a"])
    assert whats(outcome) == ["departed", "held-out"]
    assert server.request().held_out == (RARE,)


def test_one_that_returns_only_to_leave_is_deposited_from_its_last_answer():
    fleet, server = paper_fleet(), tracker(grace=9)
    play(fleet, server, 2)
    play(fleet, server, 2, "bcd")
    assert server.state.tracked[RARE].round == 2
    outcome = server.close(fleet.answers(server.request()), leaving=["a"])
    assert whats(outcome) == ["returned", "departed", "deposited", "held-out"]
    assert server.state.tracked[RARE].round == 5
    assert not outcome.reconstructions


def test_a_class_that_was_never_watched_is_lost_and_the_round_goes_on():
    fleet, server = paper_fleet(), tracker()
    play(fleet, server, 1)
    (outcome,) = play(fleet, server, 1, "bcd")
    assert whats(outcome, "a") == ["suspected", "lost"]
    (lost,) = [d for d in outcome.decisions if d.what == "lost"]
    assert lost.classes == (RARE,)
    assert "not watched" in lost.why
    assert "6 samples remain" in lost.why
    assert np.isfinite(outcome.prototypes).all()
    (outcome,) = play(fleet, server, 1)
    assert "returned" in whats(outcome)


def test_a_class_can_be_watched_from_the_first_round_on():
    fleet, server = paper_fleet(), tracker(watch=(RARE,))
    play(fleet, server, 1)
    (outcome,) = play(fleet, server, 1, "bcd")
    assert whats(outcome, "a") == ["suspected", "deposited"]


def test_lite_cannot_deposit_without_a_span():
    fleet, server = paper_fleet(), tracker(watch=(RARE,), variant="lite")
    play(fleet, server, 1)
    (outcome,) = play(fleet, server, 1, "bcd")
    assert whats(outcome, "a") == ["suspected", "lost"]
    assert "span" in next(d.why for d in outcome.decisions if d.what == "lost")


def two_classes_on_one():
    even = {0: 20, 1: 20, 2: 20}
    return Fleet(dict.fromkeys("bcd", even) | {"a": {**even, 3: 50, 4: 50, 5: 5}, "e": {**even, 5: 60}}, num_classes=C)


def test_two_classes_on_one_vehicle_and_departures_at_different_times():
    fleet, server = two_classes_on_one(), tracker(most_watched=3, grace=0)
    play(fleet, server, 2)
    request = server.request()
    assert request.watched == (3, 4, 5)
    answers = fleet.answers(request)
    server.close(answers)
    first = mpt.deposit(merged(request, answers), (3, 4), staying=merged(request, answers, "bcd"))
    request = server.request()
    answers = fleet.answers(request, "bcde")
    outcome = server.close(answers, leaving=["e"])
    assert sorted(outcome.reconstructions) == [3, 4]
    second = mpt.deposit(merged(request, answers), 5, staying=merged(request, answers, "bcd"))
    request = server.request()
    assert request.held_out == (3, 4, 5)
    answers = fleet.answers(request, "bcd")
    outcome = server.close(answers)
    for deposit in (*first, second):
        made = outcome.reconstructions[deposit.departed].prototype
        np.testing.assert_allclose(made, mpt.reconstruct(deposit, merged(request, answers)).prototype, rtol=1e-10)


def test_two_holders_that_vanish_together_own_the_deposit_together():
    even = {c: 20 for c in range(C) if c != RARE}
    fleet = Fleet(dict.fromkeys("cd", even) | {v: {**even, RARE: 50} for v in "ab"})
    server = tracker(grace=3)
    play(fleet, server, 2)
    (outcome,) = play(fleet, server, 1, "cd")
    assert server.state.tracked[RARE].owners == ("a", "b")
    assert RARE in outcome.reconstructions
    server.close(fleet.answers(server.request(), "cd"), leaving=["a"])
    assert server.request().held_out == ()
    (outcome,) = play(fleet, server, 1, "bcd")
    assert whats(outcome) == ["returned", "recovered"]
    np.testing.assert_allclose(outcome.prototypes[RARE], outcome.statistics.means[RARE])


def test_a_class_that_the_staying_vehicles_carry_is_measured_and_trained_on():
    even = dict.fromkeys(range(C), 20)
    fleet = Fleet(dict.fromkeys("bcd", even) | {"a": {**even, RARE: 90}})
    server = tracker(grace=1)
    play(fleet, server, 2)
    (outcome,) = play(fleet, server, 1, "bcd")
    assert whats(outcome) == ["suspected", "deposited"]
    assert not outcome.reconstructions
    (outcome,) = play(fleet, server, 1, "bcd")
    assert whats(outcome) == ["departed", "recovered"]
    assert server.request().held_out == ()
    server.close(fleet.answers(server.request()))
    outcome = server.close(fleet.answers(server.request()), leaving=["a"])
    assert whats(outcome) == ["departed", "carried"]


def test_an_owner_that_returns_without_the_class_leaves_it_departed():
    fleet, server = paper_fleet(), tracker(grace=0)
    play(fleet, server, 2)
    play(fleet, server, 1, "bcd")
    fleet.add("a", {0: 20, RARE: 1})
    (outcome,) = play(fleet, server, 1)
    assert whats(outcome) == ["returned"]
    assert RARE in outcome.reconstructions
    assert server.request().held_out == (RARE,)
    (outcome,) = play(fleet, server, 1, "bcd")
    assert server.request().held_out == (RARE,)


def test_a_new_vehicle_can_bring_a_departed_class_back():
    fleet, server = paper_fleet(), tracker(grace=0)
    play(fleet, server, 2)
    play(fleet, server, 2, "bcd")
    fleet.add("new", {0: 20, RARE: 80})
    (outcome,) = play(fleet, server, 1, ["b", "c", "d", "new"])
    assert whats(outcome) == ["joined", "recovered"]
    (outcome,) = play(fleet, server, 1, "bcd")
    assert whats(outcome) == ["departed", "deposited", "held-out", "verdict"]


def test_a_reference_class_that_disappears_is_dropped():
    even = {c: 20 for c in range(C) if c not in (RARE, 5)}
    fleet = Fleet(
        {v: {**even, RARE: 2} for v in "bc"} | {v: {**even, 5: 20} for v in "def"} | {"a": {**even, RARE: 90}}
    )
    server = tracker(grace=0)
    play(fleet, server, 2)
    (outcome,) = play(fleet, server, 1, "bcdef")
    assert 5 in outcome.reconstructions[RARE].classes
    (outcome,) = play(fleet, server, 1, "bc")
    assert 5 not in outcome.reconstructions[RARE].classes
    assert np.isnan(outcome.prototypes[5]).all()
    assert "lost" in whats(outcome)
    (outcome,) = play(fleet, server, 1, "bcde")
    assert 5 in outcome.reconstructions[RARE].classes


def test_nobody_answers():
    fleet, server = paper_fleet(), tracker(grace=1)
    assert server.close({}).readout is None
    play(fleet, server, 2)
    outcome = server.close({})
    assert outcome.statistics is None
    assert outcome.problems == ("nobody answered: the prototypes are those of round 3",)
    assert outcome.readout is not None
    assert whats(outcome).count("suspected") == 4
    server.close({})
    assert server.state.roster.having("departed") == ("a", "b", "c", "d")
    (after,) = play(fleet, server, 1)
    assert np.isfinite(after.prototypes).all()


def test_a_class_that_is_missing_for_a_round_keeps_its_prototype():
    even = {c: 20 for c in range(C) if c != 5}
    fleet = Fleet(dict.fromkeys("bc", even) | {v: {**even, 5: 20} for v in "def"})
    server = tracker(grace=1)
    (before,) = play(fleet, server, 2)[1:]
    (outcome,) = play(fleet, server, 1, "bc")
    np.testing.assert_array_equal(outcome.prototypes[5], before.prototypes[5])
    assert "class 5 has no samples in this round, its prototype is that of round 2" in outcome.problems


def test_so_many_classes_are_watched_that_references_remain():
    fleet = Fleet({str(c): {c: 30} for c in range(C)})
    server = tracker()
    (outcome,) = play(fleet, server, 1)
    assert server.request().watched == (0, 1, 2)
    assert [d.classes for d in outcome.decisions if d.what == "crowded"] == [(3,), (4,), (5,)]
    (outcome,) = play(fleet, server, 1)
    assert whats(outcome) == []


def test_a_class_is_released_after_some_calm_rounds_only():
    fleet, server = paper_fleet(), tracker(patience=3)
    play(fleet, server, 2)
    for v in "bcd":
        fleet.add(v, {**fleet.holdings[v], RARE: 100})
    outcomes = play(fleet, server, 4)
    assert [whats(o) for o in outcomes] == [[], [], [], ["released"]]  # what is claimed at once counts one round later
    assert server.request().watched == ()


def test_only_the_reports_of_holders_are_kept():
    even = {c: 3 for c in range(C) if c != RARE}
    fleet = Fleet({f"{i:03}": {**even, RARE: 1} for i in range(60)} | {"a": {**even, RARE: 200}})
    server = tracker()
    play(fleet, server, 3)
    assert list(server.state.snapshot.holders) == ["a"]
    fleet.add("a", {**even, RARE: 1})
    play(fleet, server, 1)
    assert not server.state.snapshot.holders


@pytest.mark.parametrize("variant", ["mpt", "lite"])
@pytest.mark.parametrize("when", range(8))
def test_a_restored_tracker_goes_on_as_if_nothing_had_happened(when, variant):
    def story(number, server):
        nonlocal fleet
        there = "abcd" if number not in (3, 5, 6) else "bcd" if number == 3 else "cd"
        answers = fleet.answers(server.request(), there)
        return server.close(answers, leaving=["b"] if number == 4 else [])

    fleet, server = paper_fleet(), tracker(grace=1, variant=variant)
    other = tracker(grace=1, variant=variant)
    for number in range(8):
        if number == when:
            other = Tracker.from_bytes(other.to_bytes())
        a, b = story(number, server), story(number, other)
        assert a.decisions == b.decisions
        assert a.problems == b.problems
        np.testing.assert_array_equal(a.prototypes, b.prototypes)
        assert a.readout == b.readout
        assert dict(a.reconstructions) == dict(b.reconstructions)
        assert server.request() == other.request()
        assert server.to_bytes() == other.to_bytes()


def test_bytes_that_are_not_a_trackers_are_refused():
    data = tracker().to_bytes()
    for wrong in (b"", b"nonsense" * 9, data[:-3], data[:40] + b"x" + data[41:]):
        with pytest.raises(FleetError):
            Tracker.from_bytes(wrong)


def test_a_wrong_call_changes_nothing():
    fleet, server = paper_fleet(), tracker()
    play(fleet, server, 2)
    state = server.state
    with pytest.raises(FleetError, match="round: 2, but round 2 is closed"):
        server.close(fleet.answers(server.request()), round=2)
    with pytest.raises(FleetError, match="vehicle: 3"):
        server.close({3: b""})
    with pytest.raises(FleetError, match="vehicle: 4"):
        server.close({}, leaving=[4])
    with pytest.raises(FleetError, match="should be several vehicles"):
        server.close({}, leaving="dora")
    assert server.state is state
    assert server.close(fleet.answers(server.request(7)), round=7).round == 7


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"num_classes": 1}, "num_classes"),
        ({"watch_share": 2.0}, "watch_share"),
        ({"release_share": 0.9}, "release_share"),
        ({"method": "best"}, "method"),
        ({"most_references": 0}, "most_references"),
        ({"grace": -1}, "grace"),
        ({"watch": tuple(range(C))}, "watch"),
        ({"watch": (C,)}, "watch"),
        ({"most_watched": C}, "most_watched"),
    ],
)
def test_wrong_settings_are_named(wrong, words):
    with pytest.raises(FleetError, match=words):
        TrackerSettings(**{"num_classes": C, "dim": D, **wrong})
