"""Methods with questions of their own, on made-up fleets without torch: in disorder, several classes, with liars."""

import numpy as np
import pytest

from mpt.fleet import Tracker
from mpt.methods import find_part
from mpt.protocol.further import Further
from tests.tracking.fleets import RARE, C, D, Fleet, paper_fleet, whats

OTHER = 4
METHODS = ["frozen", "sdc", "ldc:all", "icarl", "mpt-lite", "mpt:trained", "remaining-mean"]


def answers(fleet, question, vehicles, *, lacking=(), **changed):
    """What vehicles answer to a first or a further question."""
    made = {}
    for v in vehicles:
        earlier = {} if v in lacking else {r: fleet.features(v, r)[0] for r in question.references}
        made[v] = question.answer(*fleet.features(v, question.round), earlier, find=find_part)
    return made | {v: answer for v, answer in changed.items() if v in made}


def close(fleet, tracker, vehicles, leaving=(), *, gone_after=None, lacking=()):
    """A round; `gone_after[n]` are those that do not answer question n any more."""
    asked = [1]

    def ask(more):
        asked[0] += 1
        there = [v for v in more.vehicles if v not in (gone_after or {}).get(asked[0], ())]
        return answers(fleet, more.further, there, lacking=lacking)

    first = answers(fleet, tracker.question(), vehicles, lacking=lacking)
    return tracker.close(first, leaving, ask=ask, head=(np.ones((C, D)), np.zeros(C)))


def two_owners():
    """ "a" holds the rare class, "e" another one; the rest is even."""
    even = dict.fromkeys((c for c in range(C) if c not in (RARE, OTHER)), 20)
    holdings = {v: {**even, RARE: 2, OTHER: 2} for v in "bcd"}
    return Fleet(holdings | {"a": {**even, RARE: 100, OTHER: 2}, "e": {**even, OTHER: 90, RARE: 2}})


def made(method, **options):
    return Tracker(num_classes=C, dim=D, method=method, watch=(RARE, OTHER), **{"grace": 1, **options})


@pytest.mark.parametrize("method", METHODS)
def test_two_classes_that_depart_in_different_ways(method):
    """One says that it leaves, one vanishes; after every round the state goes through bytes."""
    fleet, tracker = two_owners(), made(method)
    for number in range(1, 9):
        here = "bcd" + ("a" if number <= 2 else "") + ("e" if number <= 4 else "")
        outcome = close(fleet, tracker, here, ["a"] if number == 2 else [])
        again = Tracker.from_bytes(tracker.to_bytes())
        assert again.to_bytes() == tracker.to_bytes()
        tracker = again
        assert not [p for p in outcome.problems if "as by mpt" in p], outcome.problems
        assert outcome.answered == tuple(sorted(here))
        assert np.isfinite(outcome.prototypes).all()
        if number > 5:
            assert outcome.tracked == (RARE, OTHER)
            assert tracker.held_out == (() if method == "mpt:trained" else (RARE, OTHER))
    assert sorted(tracker.state.tracked) == [RARE, OTHER]


@pytest.mark.parametrize("method", ["ldc:all", "mpt-lite", "icarl"])
def test_any_disorder_is_survived(method):
    fleet, tracker, rng = two_owners(), made(method), np.random.default_rng(3)
    for _ in range(30):
        here = [v for v in "abcde" if rng.random() < 0.8]
        tunnel = {2: [v for v in here if rng.random() < 0.2], 3: [v for v in here if rng.random() < 0.2]}
        leaving = [v for v in here if rng.random() < 0.05]
        lacking = [v for v in here if rng.random() < 0.2]
        outcome = close(fleet, tracker, here, leaving, gone_after=tunnel, lacking=lacking)
        tracker = Tracker.from_bytes(tracker.to_bytes())
        assert set(outcome.answered) <= set(here)
        assert set(outcome.tracked) <= set(tracker.state.tracked)
        for c in outcome.tracked:
            assert np.isfinite(outcome.prototypes[c]).all() or tracker.state.linear is not None


def test_a_departure_after_the_second_question_is_none_of_the_others():
    """Everybody but one vanishes between the two questions of MPT-lite."""
    fleet, tracker = paper_fleet(), made("mpt-lite")
    for _ in range(2):
        close(fleet, tracker, "abcd")
    close(fleet, tracker, "abcd", ["a"])
    outcome = close(fleet, tracker, "bcd", gone_after={2: "cd"})
    assert outcome.answered == ("b",)
    assert whats(outcome, "c") == whats(outcome, "d") == ["suspected"]
    outcome = close(fleet, tracker, "bcd", gone_after={2: "bcd"})
    assert outcome.answered == ()
    assert any("nobody answered" in problem for problem in outcome.problems)


def test_wrong_further_answers_harm_only_their_vehicle():
    fleet, tracker = paper_fleet(), made("ldc:all", grace=99)
    for _ in range(2):
        close(fleet, tracker, "abcd")
    close(fleet, tracker, "abcd", ["a"])
    question = tracker.question()
    good = answers(fleet, question, "bcd")
    other = answers(Fleet(fleet.holdings, seed=7), question, "b")["b"]
    plain = tracker.request().answer(*fleet.features("b", question.round))
    lacking = answers(fleet, question, "b", lacking="b")["b"]
    short = good["b"][:-9]
    for wrong, said in ((plain, "less than was asked for"), (short, "truncated"), (good["b"] * 40, "at most")):
        outcome = Tracker.from_bytes(tracker.to_bytes()).close({**good, "b": wrong}, ask=lambda more: {})
        assert outcome.answered == ("c", "d")
        assert any(said in problem and "vehicle b" in problem for problem in outcome.problems), outcome.problems
    for fine in (other, lacking):
        outcome = Tracker.from_bytes(tracker.to_bytes()).close({**good, "b": fine}, ask=lambda more: {})
        assert outcome.answered == ("b", "c", "d")
        assert np.isfinite(outcome.prototypes[RARE]).all()


def test_with_most_samples_missing_it_is_reconstructed_as_by_mpt():
    fleet, tracker = paper_fleet(), made("ldc:all")
    for _ in range(2):
        close(fleet, tracker, "abcd")
    close(fleet, tracker, "abcd", ["a"])
    outcome = close(fleet, tracker, "bcd", lacking="bc")
    assert any("do not have the departure-time model" in problem for problem in outcome.problems)
    assert outcome.tracked == (RARE,)
    assert dict(tracker.lacking) == {"b": (3,), "c": (3,)}
    assert tracker.models_needed == (3, 4)
    outcome = close(fleet, tracker, "bcd")
    assert not outcome.problems
    assert not tracker.lacking


def test_more_departures_than_reference_models_are_tracked_as_by_mpt():
    fleet, tracker = two_owners(), made("sdc", most_references=1)
    for number in range(1, 5):
        outcome = close(fleet, tracker, "bcde" if number > 2 else "abcde", {2: ["a"], 4: ["e"]}.get(number, []))
    assert [d.classes for d in outcome.decisions if d.what == "unreferenced"] == [(OTHER,)]
    assert tracker.state.tracked[OTHER].kept is None
    assert tracker.state.tracked[RARE].kept is not None
    outcome = close(fleet, tracker, "bcd")
    assert outcome.tracked == (RARE, OTHER)
    assert set(outcome.reconstructions) == {OTHER}


def test_a_further_question_is_asked_in_bytes():
    fleet, tracker = paper_fleet(), made("mpt-lite")
    first = tracker.begin()
    for v, answer in answers(fleet, first, "abcd").items():
        tracker.receive(v, answer)
    more = tracker.take()
    assert Further.from_bytes(more.to_bytes()) == more.further
    assert more.vehicles == tuple("abcd")
    assert max(len(a) for a in answers(fleet, more.further, "abcd").values()) <= more.largest_answer
