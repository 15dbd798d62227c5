"""The method "mpt-x" in a fleet: reference models, cross moments, and what happens without them."""

import dataclasses

import numpy as np
import pytest

import mpt
from mpt.fleet import FleetError, Tracker
from mpt.protocol.question import Question
from mpt.tracking.prototypes import readout_of
from tests.tracking.fleets import RARE, C, Fleet, paper_fleet, tracker, whats

OTHER = 4


def play(fleet, server, *rounds, **options):
    return [server.close(fleet.cross_answers(server.question(), there, **options)) for there in rounds]


def two_departures(**options):
    """ "a" holds most of one class, "e" of another; "f" has most of a third."""
    even = dict.fromkeys((c for c in range(C) if c not in (RARE, OTHER, 5)), 20)
    few = {RARE: 2, OTHER: 2, 5: 2}
    holdings = {v: {**even, **few} for v in "bcd"}
    holdings |= {"a": {**even, RARE: 100}, "e": {**even, OTHER: 100}, "f": {**even, 5: 100}}
    return Fleet(holdings), tracker(variant="cross", watch=(RARE, OTHER, 5), grace=1, **options)


def by_hand(fleet, c, there, *, before, then, now, reference=None):
    """The class's reconstruction from all features themselves, in float64; `before` were there in round `then`."""

    def joined(vehicles, number):
        rows, labels = zip(*(fleet.features(v, number) for v in vehicles), strict=True)
        return np.concatenate(rows), np.concatenate(labels)

    def statistics(vehicles, number, watched):
        return mpt.ClassStatistics.from_features(*joined(vehicles, number), C, watched=watched)

    watched = sorted(now["watched"])
    anchor = None
    if reference is not None:
        rows, labels = joined(before, reference)
        anchor = rows[labels == c].mean(axis=0)
    kept = mpt.deposit(statistics(before, then, watched), c, staying=statistics(now["staying"], then, watched))
    kept = dataclasses.replace(kept, anchor=anchor)
    z, labels = joined(there, then if reference is None else reference)
    h, _ = joined(there, now["round"])
    cross = mpt.CrossStatistics.from_features(z, h, labels, C, weights=mpt.class_weights(kept, C))
    return mpt.reconstruct(kept, statistics(there, now["round"], watched), variant="cross", cross=cross)


def close_to(found, expected):
    scale = np.linalg.norm(expected.prototype)
    assert np.linalg.norm(found.prototype - expected.prototype) < 1e-5 * scale
    assert found.alpha == pytest.approx(expected.alpha, abs=1e-3)
    assert found.expected_error == pytest.approx(expected.expected_error, rel=1e-3)
    assert (found.verdict, found.samples) == (expected.verdict, expected.samples)


@pytest.mark.usefixtures("in_float32")
def test_after_an_announced_leave_it_is_the_cores_reconstruction():
    fleet, server = paper_fleet(), tracker(variant="cross", watch=(RARE,))
    play(fleet, server, "abcd", "abcd")
    last = server.close(fleet.cross_answers(server.question()), leaving=["a"])
    assert "referenced" in whats(last, "a")
    assert not last.reconstructions
    for number in (4, 5, 6):
        (outcome,) = play(fleet, server, "bcd")
        now = {"round": number, "watched": [RARE], "staying": "bcd"}
        close_to(outcome.reconstructions[RARE], by_hand(fleet, RARE, "bcd", before="abcd", then=3, now=now))
        assert outcome.problems == ()
        assert server.models_needed == (3, number)


@pytest.mark.usefixtures("in_float32")
def test_one_that_vanished_is_tracked_from_the_model_of_its_last_answer():
    fleet, server = paper_fleet(), tracker(variant="cross", watch=(RARE,), grace=1)
    play(fleet, server, "abcd", "abcd", "abcd")
    (first,) = play(fleet, server, "bcd")
    assert server.question().references == (3,)
    plain = mpt.reconstruct(server.state.tracked[RARE].deposit, first.statistics)
    assert first.reconstructions[RARE] == plain
    assert not first.problems
    for number in (5, 6):
        (outcome,) = play(fleet, server, "bcd")
        now = {"round": number, "watched": [RARE], "staying": "bcd"}
        close_to(outcome.reconstructions[RARE], by_hand(fleet, RARE, "bcd", before="abcd", then=3, now=now))


@pytest.mark.parametrize("variant", ["cross", "mpt"])
def test_the_readout_has_a_departed_class_further_out(variant):
    fleet, server = paper_fleet(), tracker(variant=variant, watch=(RARE,))
    *_, there = play(fleet, server, "abcd", "abcd")
    assert moved(server, there) is False
    server.close(fleet.cross_answers(server.question()), leaving=["a"])
    for vehicles in ("bcd", "bcd", ""):
        (outcome,) = play(fleet, server, vehicles)
        assert moved(server, outcome) is (variant == "cross")
        if vehicles:
            np.testing.assert_array_equal(outcome.prototypes[RARE], outcome.reconstructions[RARE].prototype)


def moved(server, outcome):
    """Whether the readout, which a state that comes back gives too, has the class further out than it is."""
    plain = mpt.NearestClassMean(outcome.prototypes, outcome.covariance)
    outward = plain.outwards(RARE)
    assert outward != plain
    assert outcome.readout in (plain, outward)
    assert readout_of(Tracker.from_bytes(server.to_bytes()).state) == outcome.readout
    return outcome.readout == outward


def test_a_class_that_is_still_trained_or_reconstructed_as_in_mpt_is_read_out_where_it_is():
    fleet, server = paper_fleet(), tracker(variant="cross", watch=(RARE,), grace=2)
    play(fleet, server, "abcd", "abcd", "abcd")
    for suspected in play(fleet, server, "bcd", "bcd"):
        assert suspected.reconstructions
    assert moved(server, suspected) is False
    (gone,) = play(fleet, server, "bcd")
    assert server.state.held_out == (RARE,)
    assert moved(server, gone) is True
    (lacking,) = play(fleet, server, "bcd", lacking=["b", "c"])
    assert "as by mpt" in lacking.problems[0]
    assert moved(server, lacking) is False
    (back,) = play(fleet, server, "abcd")
    assert moved(server, back) is False


def test_the_map_is_better_than_the_transport_where_everything_turns():
    """The fleet's drift is an affine map, which the cross moments measure; the truth is known here."""
    found = {}
    for variant in ("mpt", "cross"):
        fleet, server = paper_fleet(), tracker(variant=variant, watch=(RARE,))
        play(fleet, server, "abcd", "abcd")
        server.close(fleet.cross_answers(server.question()), leaving=["a"])
        outcome = play(fleet, server, *["bcd"] * 20)[-1]
        rows, labels = zip(*(fleet.features(v, outcome.round) for v in "abcd"), strict=True)
        truth = np.concatenate(rows)[np.concatenate(labels) == RARE].mean(axis=0)
        found[variant] = np.linalg.norm(outcome.prototypes[RARE] - truth)
    assert found["cross"] < 0.5 * found["mpt"]


@pytest.mark.usefixtures("in_float32")
def test_whoever_lacks_the_model_is_named_and_fits_in_once_it_has_it():
    fleet, server = paper_fleet(), tracker(variant="cross", watch=(RARE,), grace=1)
    play(fleet, server, "abcd", "abcd", "bcd")
    assert server.lacking == {}
    fleet.add("j", {0: 20, 1: 20, RARE: 1})
    (outcome,) = play(fleet, server, "bcdj", lacking="j")
    assert server.lacking == {"j": (2,)}
    now = {"round": 4, "watched": [RARE], "staying": "bcd"}
    without = by_hand(fleet, RARE, "bcd", before="abcd", then=2, now=now)
    assert outcome.reconstructions[RARE].samples == 6
    assert outcome.reconstructions[RARE].expected_error == pytest.approx(without.expected_error, rel=0.05)
    assert outcome.problems == ()
    (outcome,) = play(fleet, server, "bcdj")
    assert server.lacking == {}
    now = {"round": 5, "watched": [RARE], "staying": "bcd"}
    close_to(outcome.reconstructions[RARE], by_hand(fleet, RARE, "bcdj", before="abcd", then=2, now=now))


def test_one_that_lacks_it_and_is_missing_still_lacks_it():
    fleet, server = paper_fleet(), tracker(variant="cross", watch=(RARE,), grace=1)
    play(fleet, server, "abcd", "abcd", "bcd")
    play(fleet, server, "bcd", lacking="b")
    play(fleet, server, "cd")
    assert server.lacking == {"b": (2,)}
    play(fleet, server, "cd")
    assert server.lacking == {}, "it has departed"


@pytest.mark.parametrize(("lacking", "enough"), [("bcd", False), ("bc", False), ("b", True)])
def test_with_too_few_cross_moments_it_is_as_in_mpt_for_that_round(lacking, enough):
    fleet, server = paper_fleet(), tracker(variant="cross", watch=(RARE,))
    play(fleet, server, "abcd", "abcd", "bcd")
    (outcome,) = play(fleet, server, "bcd", lacking=lacking)
    made = outcome.reconstructions[RARE]
    as_in_mpt = mpt.reconstruct(server.state.tracked[RARE].deposit, outcome.statistics)
    assert (made != as_in_mpt) == enough
    if not enough:
        (problem,) = outcome.problems
        there = 100 * (3 - len(lacking))
        assert f"class {RARE} is reconstructed as by mpt in this round: cross: moments of {there}" in problem
    (outcome,) = play(fleet, server, "bcd")
    assert outcome.reconstructions[RARE].verdict is not None
    assert outcome.problems == ()


def test_the_owner_returns_and_its_reference_model_is_no_longer_needed():
    fleet, server = paper_fleet(), tracker(variant="cross", watch=(RARE,), grace=1)
    play(fleet, server, "abcd", "abcd", "bcd", "bcd")
    assert server.models_needed == (2, 4)
    (outcome,) = play(fleet, server, "abcd", lacking="a")
    assert "recovered" in whats(outcome)
    assert server.models_needed == (5,)
    assert server.question().cross == {}
    play(fleet, server, "bcd")
    assert server.models_needed == (5, 6)


@pytest.mark.usefixtures("in_float32")
def test_up_to_the_bound_departures_have_models_of_their_own():
    fleet, server = two_departures()
    play(fleet, server, "abcdef", "abcdef", "bcdef", "bcdef", "bcdf", "bcdf")
    assert server.question().references == (2, 4)
    (outcome,) = play(fleet, server, "bcdf")
    now = {"round": 7, "watched": [RARE, OTHER, 5], "staying": "bcdf"}
    close_to(outcome.reconstructions[OTHER], by_hand(fleet, OTHER, "bcdf", before="bcdef", then=4, now=now))


@pytest.mark.usefixtures("in_float32")
def test_at_the_bound_a_departure_shares_a_model_under_which_it_is_known():
    fleet, server = two_departures(most_references=1)
    play(fleet, server, "abcdef", "abcdef", "bcdef", "bcdef")
    (outcome,) = play(fleet, server, "bcdf")
    assert "which another class has already" in next(d.why for d in outcome.decisions if d.what == "referenced")
    assert server.question().references == (2,)
    assert sorted(server.question().cross) == [RARE, OTHER]
    (outcome,) = play(fleet, server, "bcdf")
    now = {"round": 6, "watched": [RARE, OTHER, 5], "staying": "bcdf"}
    shared = by_hand(fleet, OTHER, "bcdf", before="bcdef", then=4, now=now, reference=2)
    close_to(outcome.reconstructions[OTHER], shared)
    assert server.models_needed == (2, 6)


@pytest.mark.usefixtures("in_float32")
def test_an_announced_leave_shares_it_too():
    fleet, server = two_departures(most_references=1)
    play(fleet, server, "abcdef", "abcdef", "bcdef")
    outcome = server.close(fleet.cross_answers(server.question(), "bcdef"), leaving=["e"])
    assert "referenced" in whats(outcome, "e")
    (outcome,) = play(fleet, server, "bcdf")
    now = {"round": 5, "watched": [RARE, OTHER, 5], "staying": "bcdf"}
    shared = by_hand(fleet, OTHER, "bcdf", before="bcdef", then=4, now=now, reference=2)
    close_to(outcome.reconstructions[OTHER], shared)


def test_at_the_bound_one_that_is_known_under_no_model_is_tracked_as_in_mpt():
    """ "e" never had the reference model: of its class hardly anything is in the cross moments."""
    fleet, server = two_departures(most_references=1)
    play(fleet, server, "abcdef", "abcdef")
    play(fleet, server, "bcdef", "bcdef", lacking="e")
    (outcome,) = play(fleet, server, "bcdf")
    (said,) = [d for d in outcome.decisions if d.what == "unreferenced"]
    assert (said.vehicle, said.classes) == ("e", (OTHER,))
    assert "1 reference models are kept already, under none of which" in said.why
    (outcome,) = play(fleet, server, "bcdf")
    assert outcome.reconstructions[RARE].verdict is not None
    deposit = server.state.tracked[OTHER].deposit
    assert outcome.reconstructions[OTHER] == mpt.reconstruct(deposit, outcome.statistics)
    assert outcome.problems == ()


def test_two_that_vanish_together_have_one_model():
    fleet, server = two_departures(most_references=1)
    play(fleet, server, "abcdef", "abcdef", "bcdf")
    assert server.question().references == (2,)
    assert sorted(server.question().cross) == [RARE, OTHER]
    assert all(t.deposit.anchor is None for t in server.state.tracked.values())


@pytest.mark.parametrize("cut", range(2, 8))
def test_a_state_goes_on_to_the_same_outcomes(cut):
    rounds = ["abcdef", "abcdef", "bcdef", "bcdef", "bcdf", "bcdf", "bcd", "bcd", "bcdf"]
    lacking = {6: "b", 7: "c"}
    fleet, server = two_departures(most_references=1)
    for number, there in enumerate(rounds, 1):
        whole = play(fleet, server, there, lacking=lacking.get(number, ""))[0]
        if number == cut:
            again = Tracker.from_bytes(server.to_bytes())
            assert again.to_bytes() == server.to_bytes()
        if number > cut:
            (resumed,) = play(fleet, again, there, lacking=lacking.get(number, ""))
            assert np.array_equal(resumed.prototypes, whole.prototypes, equal_nan=True)
            assert (resumed.decisions, resumed.problems) == (whole.decisions, whole.problems)
            assert (again.lacking, again.models_needed) == (server.lacking, server.models_needed)
            assert again.to_bytes() == server.to_bytes()


def test_remaining_samples_of_suspected_vehicles_are_not_remembered():
    fleet, server = paper_fleet(), tracker(variant="cross", watch=(RARE,), grace=5)
    play(fleet, server, "abcd", "abcd", "bcd", "bcd")
    (outcome,) = play(fleet, server, "cd")
    assert outcome.reconstructions[RARE].samples == 4
    assert server.state.stale_offsets == {}


def test_question_and_answer_without_cross_moments_are_those_of_the_request():
    fleet, server = paper_fleet(), tracker(watch=(RARE,))
    question, request = server.question(), server.request()
    assert question.to_bytes() == request.to_bytes()
    assert Question.from_bytes(request.to_bytes()) == question
    assert question.answer(*fleet.features("a", 1)) == request.answer(*fleet.features("a", 1))


def test_a_question_comes_back():
    fleet, server = two_departures(most_references=2)
    play(fleet, server, "abcdef", "abcdef", "bcdef", "bcdf")
    question = server.question()
    assert len(question.cross) == 2
    assert Question.from_bytes(question.to_bytes()) == question
    with pytest.raises(mpt.StatisticsError, match="truncated"):
        Question.from_bytes(question.to_bytes()[:-1])
    with pytest.raises(mpt.StatisticsError, match="checksum"):
        Question.from_bytes(question.to_bytes()[:-5] + b"12345")


def test_a_change_of_the_verdict_is_a_decision():
    """What the map gets wrong on the reference classes grows with a drift that is none."""
    fleet, server = paper_fleet(), tracker(variant="cross", watch=(RARE,))
    play(fleet, server, "abcd", "abcd", "bcd", "bcd")
    (calm,) = play(fleet, server, "bcd")
    assert calm.reconstructions[RARE].verdict in ("good", "unconfirmed")
    assert "verdict" not in whats(calm)
    rng = np.random.default_rng(0)
    shuffled = fleet.centres[rng.permutation(C)] * rng.uniform(-3, 3, (C, 1))
    question, answers = server.question(), {}
    for v in "bcd":
        (rows, labels), earlier = fleet.features(v, question.round), fleet.features(v, question.references[0])[0]
        keep = np.array([i for i, c in enumerate(labels) if c != RARE])
        rows, labels, earlier = (rows + shuffled[labels])[keep], labels[keep], earlier[keep]
        answers[v] = question.answer(rows, labels, {question.references[0]: earlier})
    outcome = server.close(answers)
    verdict = outcome.reconstructions[RARE].verdict
    assert verdict not in ("good", "unconfirmed")
    (said,) = [d for d in outcome.decisions if d.what == "verdict"]
    assert said.classes == (RARE,)
    assert said.why.startswith(f"{verdict}, an error of ")


def test_a_damaged_state_is_refused():
    fleet, server = paper_fleet(), tracker(variant="cross", watch=(RARE,))
    play(fleet, server, "abcd", "abcd", "bcd", "bcd")
    data = server.to_bytes()
    with pytest.raises(FleetError, match="truncated"):
        Tracker.from_bytes(data[:-20])
