"""Remaining samples of vehicles that did not answer."""

from pathlib import Path

import numpy as np
import pytest

import mpt
from mpt.fleet import FleetError, Tracker, TrackerSettings
from tests.tracking.fleets import RARE, C, D, Fleet, paper_fleet, tracker, whats

BEFORE = Path(__file__).parent / "data" / "before_methods.tracker"


def play(fleet, server, *rounds):
    return [server.close(fleet.answers(server.request(), there)) for there in rounds]


def merged(request, answers):
    return mpt.ClassStatistics.merge(request.read(answer) for answer in answers.values())


@pytest.mark.parametrize("variant", ["mpt", "lite"])
def test_they_count_until_the_vehicle_answers_again_or_has_departed(variant):
    fleet, server = paper_fleet(), tracker(variant=variant, grace=2)
    play(fleet, server, "abcd", "abcd", "abcd", "bcd", "bcd")
    samples = []
    for there in ("cd", "cd", "bcd", "d", "d", "d"):
        (outcome,) = play(fleet, server, there)
        samples.append(outcome.reconstructions[RARE].samples)
    assert samples == [6, 6, 6, 6, 6, 2]
    assert sorted(server.state.stale_offsets) == ["d"]


def test_what_is_remembered_is_said():
    fleet, server = paper_fleet(), tracker(grace=3)
    outcomes = play(fleet, server, "abcd", "abcd", "bcd", "cd", "d", "bcd")
    said = "class 2: {} of 6 remaining samples are remembered from {}".format
    assert [o.problems for o in outcomes[2:]] == [(), (said(2, "round 3"),), (said(4, "rounds 3 to 4"),), ()]


def scattered():
    """Ten vehicles with one remaining sample each and nothing else, and three with all other classes."""
    even = {c: 30 for c in range(C) if c != RARE}
    few = {f"few {i}": {RARE: 1} for i in range(10)}
    return Fleet({**few, "x": even, "y": even, "z": even, "owner": {**even, RARE: 100}}), [*few, "x", "y", "z"]


@pytest.mark.parametrize("variant", ["mpt", "lite"])
def test_where_nothing_moves_silence_changes_nothing(variant):
    fleet, stay = scattered()
    fleet.features = lambda v, round: fleet.samples[v]
    server = tracker(variant=variant)
    play(fleet, server, fleet.samples, fleet.samples, fleet.samples, stay)
    (before,) = play(fleet, server, stay)
    forgetting = tracker(variant=variant, remember=False)
    play(fleet, forgetting, fleet.samples, fleet.samples, fleet.samples, stay)
    for there in (stay[3:], stay[7:], stay[7:]):
        (outcome,) = play(fleet, server, there)
        (other,) = play(fleet, forgetting, there)
        then, now, forgotten = (o.reconstructions[RARE].measured for o in (before, outcome, other))
        np.testing.assert_allclose(now, then, atol=1e-5)
        assert np.linalg.norm(forgotten - then) > 0.1


@pytest.mark.parametrize("variant", ["mpt", "lite"])
def test_what_is_measured_stays_nearer_to_that_of_an_undisturbed_fleet(variant):
    """Though everything drifts, and what is remembered with it, by the forecast alone."""
    rng, (fleet, stay) = np.random.default_rng(0), scattered()
    fleet.turn *= 5
    servers = {
        name: tracker(variant=variant, remember=name != "forgetting") for name in ("calm", "fails", "forgetting")
    }
    measured = {name: [] for name in servers}
    for number in range(1, 21):
        answering = [v for v in stay if v in "xyz" or rng.random() > 0.3]
        for name, server in servers.items():
            there = fleet.samples if number < 5 else stay if name == "calm" else answering
            outcome = server.close(fleet.answers(server.request(), there), leaving=["owner"] if number == 4 else [])
            measured[name] += [made.measured for made in outcome.reconstructions.values()]
    apart = {name: np.linalg.norm(np.subtract(m, measured["calm"]), axis=1).mean() for name, m in measured.items()}
    assert len(measured["fails"]) == 16
    assert apart["fails"] < 0.5 * apart["forgetting"]


def test_a_late_vehicle_counts_as_it_was_and_a_refused_one_does_not():
    fleet, server = paper_fleet(), tracker()
    play(fleet, server, "abcd", "abcd", "bcd")
    outcome = server.close(fleet.answers(server.request(), "cd"), late={"b": "not waited for"})
    assert outcome.reconstructions[RARE].samples == 6
    outcome = server.close({**fleet.answers(server.request(), "cd"), "b": b"nonsense"})
    assert outcome.reconstructions[RARE].samples == 4


@pytest.mark.parametrize("variant", ["mpt", "lite"])
def test_it_can_be_switched_off(variant):
    fleet, server = paper_fleet(), tracker(variant=variant, remember=False)
    play(fleet, server, "abcd", "abcd", "abcd", "bcd")
    request = server.request()
    answers = fleet.answers(request, "cd")
    outcome = server.close(answers)
    expected = mpt.reconstruct(server.state.tracked[RARE].deposit, merged(request, answers), variant=variant)
    np.testing.assert_allclose(outcome.prototypes[RARE], expected.prototype, rtol=1e-10)
    assert outcome.reconstructions[RARE].samples == 4
    assert not outcome.problems
    assert not server.state.stale_offsets
    with pytest.raises(FleetError, match="remember: 1, should be true or false"):
        TrackerSettings(num_classes=C, dim=D, remember=1)


def test_only_answers_since_the_deposit_was_made_are_remembered():
    """Before that the class is like any other: no vehicle's samples are kept apart, and there is no forecast."""
    fleet, server = paper_fleet(), tracker()
    play(fleet, server, "abcd", "abcd", "abcd")
    assert not any(server.state.stale_offsets.values())
    (outcome,) = play(fleet, server, "cd")
    assert outcome.reconstructions[RARE].samples == 4
    (outcome,) = play(fleet, server, "bd")
    assert outcome.reconstructions[RARE].samples == 6


def test_in_the_round_of_an_announced_leave_all_who_stay_are_remembered():
    fleet, server = paper_fleet(), tracker()
    play(fleet, server, "abcd", "abcd")
    server.close(fleet.answers(server.request()), leaving=["a"])
    assert sorted(server.state.stale_offsets) == ["b", "c", "d"]
    (outcome,) = play(fleet, server, "cd")
    assert outcome.reconstructions[RARE].samples == 6


def test_a_new_deposit_begins_anew():
    """The class came back with "e" and left with it; what "b" had in between belongs to the deposit before."""
    fleet, server = paper_fleet(), tracker(grace=5)
    fleet.add("e", {0: 20, RARE: 80})
    play(fleet, server, "abcd", "abcd", "bcd", "cd")
    outcomes = play(fleet, server, "acde", "cde", "cd")
    assert "deposited" in whats(outcomes[-1])
    assert outcomes[-1].reconstructions[RARE].samples == 4
    assert not server.state.stale_offsets["b"]


def test_nobody_answers_and_nothing_is_forgotten():
    fleet, server = paper_fleet(), tracker(grace=3)
    play(fleet, server, "abcd", "abcd", "bcd", "")
    (outcome,) = play(fleet, server, "cd")
    assert outcome.reconstructions[RARE].samples == 6
    assert "2 of 6 remaining samples are remembered from round 3" in outcome.problems[0]


def test_a_state_of_an_earlier_release_is_refused_in_a_sentence():
    with pytest.raises(FleetError, match=r"^Tracker bytes: of an earlier release, which wrote them in another way"):
        Tracker.from_bytes(BEFORE.read_bytes())


def test_a_state_of_the_release_before_vehicles_had_lines_of_their_own_is_resumed():
    """Its vehicles were in one JSON document; the fleet goes on from there as if nothing had happened."""
    fleet, resumed = paper_fleet(), Tracker.from_bytes(BEFORE.with_name("before_rolls.tracker").read_bytes())
    anew = tracker(grace=1)
    play(fleet, anew, "abcd", "abcd", "bcd", "bcd", "bcd")
    assert resumed.held_out == anew.held_out == (RARE,)
    assert {v: m.state for v, m in resumed.roster.members.items()} == {
        v: m.state for v, m in anew.roster.members.items()
    }
    (old,), (new,) = play(fleet, resumed, "bcd"), play(fleet, anew, "bcd")
    np.testing.assert_allclose(old.prototypes, new.prototypes, rtol=1e-9)
