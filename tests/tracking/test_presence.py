"""Vehicles that come and go: what is defined where a departure finds the server unprepared.

Every test is a line of the table in docs/reference/numerics.md, "Vehicles that come and go".
"""

import numpy as np
import pytest

import mpt
from mpt.fleet import Tracker

from .fleets import RARE, C, D, Fleet, paper_fleet, tracker, whats

OTHER = 4


def play(fleet, server, *rounds):
    """The outcomes of rounds: who answers, or who answers and who says goodbye."""
    outcomes = []
    for one in rounds:
        there, leaving = one if isinstance(one, tuple) else (one, "")
        outcomes.append(server.close(fleet.cross_answers(server.question(), there), [*leaving]))
    return outcomes


def of(outcome, c):
    """What was decided about a class, and for whose sake."""
    return [(d.what, d.vehicle) for d in outcome.decisions if d.classes == (c,)]


def statistics(fleet, vehicles, round, watched=(RARE,)):
    """From the features themselves."""
    rows, labels = zip(*(fleet.features(v, round) for v in vehicles), strict=True)
    return mpt.ClassStatistics.from_features(
        np.concatenate(rows), np.concatenate(labels), fleet.num_classes, watched=watched
    )


def two_holders():
    even = dict.fromkeys((c for c in range(C) if c not in (RARE, OTHER)), 20)
    return Fleet({v: {**even, RARE: 2, OTHER: 2} for v in "bcd"} | {"a": {**even, RARE: 90}, "e": {**even, OTHER: 90}})


def test_a_departure_in_round_1_loses_the_class_unless_it_was_watched_beforehand():
    fleet, server = paper_fleet(), tracker()
    first, second = play(fleet, server, ("abcd", "a"), "bcd")
    assert of(first, RARE) == [("lost", "a")]
    (lost,) = [d for d in first.decisions if d.what == "lost"]
    assert "not watched when the vehicle answered last, in round 1; 6 samples remain" in lost.why
    means = statistics(fleet, "bcd", 2).means
    np.testing.assert_allclose(second.prototypes, means, rtol=1e-5, atol=1e-5)
    assert server.held_out == ()

    server = tracker(watch=(RARE,))
    first, second = play(fleet, server, ("abcd", "a"), "bcd")
    assert of(first, RARE) == [("deposited", "a"), ("held-out", "a")]
    assert sorted(second.reconstructions) == [RARE]


@pytest.mark.parametrize("announced", [True, False])
def test_two_holders_that_depart_in_one_round_are_deposited_relative_to_the_other_classes(announced):
    """Neither class is a reference of the other, and who stays is known to both."""
    fleet, server = two_holders(), tracker(grace=0)
    play(fleet, server, "abcde", "abcde")
    last = 3 if announced else 2
    (gone,) = play(fleet, server, ("abcde", "ae") if announced else "bcd")
    assert [what for what, _ in of(gone, RARE) + of(gone, OTHER) if what == "deposited"] == ["deposited"] * 2
    assert server.held_out == (RARE, OTHER)
    before, staying = (statistics(fleet, who, last, (RARE, OTHER)) for who in ("abcde", "bcd"))
    (now,) = play(fleet, server, "bcd")
    for deposit in mpt.deposit(before, (RARE, OTHER), staying=staying):
        expected = mpt.reconstruct(deposit, statistics(fleet, "bcd", now.round, (RARE, OTHER))).prototype
        np.testing.assert_allclose(now.prototypes[deposit.departed], expected, rtol=1e-4, atol=1e-4)
        assert not {RARE, OTHER} & set(server.state.tracked[deposit.departed].deposit.classes)


def test_everybody_but_one_leaves():
    """Its samples are the whole fleet's: they measure all classes but those with a deposit."""
    fleet, server = paper_fleet(), tracker(grace=0)
    *_, alone = play(fleet, server, "abcd", "abcd", "b", "b")
    assert server.roster.having("departed") == ("a", "c", "d")
    assert sorted(alone.reconstructions) == [RARE]
    means = statistics(fleet, "b", alone.round).means
    np.testing.assert_allclose(np.delete(alone.prototypes, RARE, 0), np.delete(means, RARE, 0), rtol=1e-5, atol=1e-5)
    (back,) = play(fleet, server, "abcd")
    assert of(back, RARE)[-1] == ("recovered", "a")


def test_the_holder_is_the_one_that_stays():
    """All that it leaves with is lost: a deposit is made on vehicles that stay."""
    fleet, server = paper_fleet(), tracker(grace=0)
    *_, alone = play(fleet, server, "abcd", "abcd", "a", "a", "a")
    assert server.state.tracked == {}
    assert alone.problems == ()
    np.testing.assert_allclose(alone.prototypes, statistics(fleet, "a", alone.round).means, rtol=1e-5, atol=1e-5)
    (gone,) = play(fleet, server, ("a", "a"))
    assert of(gone, RARE) == [("lost", "a")]
    assert "nobody stays" in next(d.why for d in gone.decisions if d.what == "lost" and RARE in d.classes)


def test_one_that_leaves_with_its_answer_is_measured_once_more():
    fleet, server = paper_fleet(), tracker()
    play(fleet, server, "abcd", "abcd")
    (last,) = play(fleet, server, ("abcd", "a"))
    assert of(last, RARE)[:3] == [("departed", "a"), ("deposited", "a"), ("held-out", "a")]
    assert server.state.tracked[RARE].round == 3
    assert not last.reconstructions
    np.testing.assert_allclose(last.prototypes, statistics(fleet, "abcd", 3).means, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("later", [False, True])
def test_one_that_leaves_after_a_refused_answer_is_deposited_from_the_last_right_one(later):
    """In the same round or in the next; the refused answer counts for nothing."""
    fleet, server = paper_fleet(), tracker()
    play(fleet, server, "abcd", "abcd")
    answers = {**fleet.answers(server.request()), "a": b"no answer"}
    last = server.close(answers, [] if later else ["a"])
    if later:
        assert server.roster.state("a") == "refused"
        assert server.state.tracked == {}
        (last,) = play(fleet, server, ("bcd", "a"))
    assert ("deposited", "a") in of(last, RARE)
    assert server.state.tracked[RARE].round == 2
    assert server.held_out == (RARE,)
    assert sorted(last.reconstructions) == [RARE]


def test_a_class_that_departs_for_the_second_time_has_a_new_deposit():
    fleet, server = paper_fleet(), tracker(grace=0)
    play(fleet, server, "abcd", "abcd", "bcd")
    first = server.state.tracked[RARE]
    play(fleet, server, "bcd", "abcd")
    assert server.state.tracked == {}
    (again,) = play(fleet, server, "bcd")
    second = server.state.tracked[RARE]
    assert ((first.round, first.since), (second.round, second.since)) == ((2, 3), (5, 6))
    expected = mpt.deposit(statistics(fleet, "abcd", 5), RARE, staying=statistics(fleet, "bcd", 5))
    made = mpt.reconstruct(expected, statistics(fleet, "bcd", 6)).prototype
    np.testing.assert_allclose(again.prototypes[RARE], made, rtol=1e-4, atol=1e-4)


def test_a_round_with_nobody_changes_nothing_but_who_is_there():
    fleet, server = paper_fleet(), tracker(grace=1)
    for number in (1, 2):
        (nobody,) = play(fleet, server, "")
        assert (nobody.round, nobody.readout, nobody.statistics, nobody.decisions) == (number, None, None, ())
        assert nobody.problems == ("nobody answered: there are no prototypes yet",)
        assert np.isnan(nobody.prototypes).all()
    *_, before = play(fleet, server, "abcd", "abcd")
    for _ in range(3):
        (nobody,) = play(fleet, server, "")
        np.testing.assert_array_equal(nobody.prototypes, before.prototypes)
        assert nobody.readout == before.readout
        assert nobody.problems == ("nobody answered: the prototypes are those of round 4",)
        server = Tracker.from_bytes(server.to_bytes())
    assert server.roster.having("departed") == ("a", "b", "c", "d")
    assert server.held_out == (RARE,)
    assert server.state.tracked[RARE].round == 4
    (some,) = play(fleet, server, "bcd")
    assert sorted(some.reconstructions) == [RARE]
    (everybody,) = play(fleet, server, "abcd")
    np.testing.assert_allclose(everybody.prototypes, statistics(fleet, "abcd", 9).means, rtol=1e-5, atol=1e-5)


def test_a_round_that_asks_nobody_is_missed_by_nobody():
    fleet, server = paper_fleet(), tracker(grace=0)
    *_, before = play(fleet, server, "abcd", "abcd")
    for _ in range(3):
        outcome = server.close({}, asked=())
        np.testing.assert_array_equal(outcome.prototypes, before.prototypes)
        assert outcome.decisions == ()
    assert server.roster.having("present") == ("a", "b", "c", "d")


def test_more_departures_than_reference_models():
    """With one model, the second class shares the first's where it is known under it, and is tracked as by MPT else."""
    even = dict.fromkeys((c for c in range(C) if c not in (RARE, OTHER, 5)), 20)
    fleet = Fleet(
        {v: {**even, RARE: 2, OTHER: 2, 5: 2} for v in "bcd"}
        | {v: {**even, c: 100} for v, c in (("a", RARE), ("e", OTHER), ("f", 5))}
    )
    server = tracker(variant="cross", watch=(RARE, OTHER, 5), grace=0, most_references=1)
    play(fleet, server, "abcdef", "abcdef", "bcdef")
    server.close(fleet.cross_answers(server.question(), "bcdef", lacking="f"))
    (second,) = play(fleet, server, "bcdf")
    assert "which another class has already" in next(d.why for d in second.decisions if d.what == "referenced")
    server.close(fleet.cross_answers(server.question(), "bcdf", lacking="f"))
    (third,) = play(fleet, server, "bcd")
    assert of(third, 5)[:3] == [("departed", "f"), ("deposited", "f"), ("unreferenced", "f")]
    models = {c: one.reference and one.reference.round for c, one in server.state.tracked.items()}
    assert models == {RARE: 2, OTHER: 2, 5: None}
    (now,) = play(fleet, server, "bcd")
    assert sorted(now.reconstructions) == [RARE, OTHER, 5]
    assert {c for c in now.reconstructions if c in server.question().cross} == {RARE, OTHER}
    plain = mpt.reconstruct(server.state.tracked[5].deposit, now.statistics)
    np.testing.assert_allclose(now.prototypes[5], plain.prototype, rtol=1e-10)
    mapped = mpt.reconstruct(server.state.tracked[RARE].deposit, now.statistics)
    assert not np.allclose(now.prototypes[RARE], mapped.prototype, rtol=1e-3)


def test_more_concentrated_classes_than_are_watched():
    """It is said at once, and again when the vehicle vanishes; the class is gone until somebody brings it."""
    fleet, server = Fleet({str(c): {c: 30} for c in range(C)}), tracker(grace=1)
    first, _ = play(fleet, server, "012345", "012345")
    assert [d.classes for d in first.decisions if d.what == "crowded"] == [(3,), (4,), (5,)]
    assert server.state.watch.crowded == (3, 4, 5)
    (suspected,) = play(fleet, server, "01234")
    assert of(suspected, 5) == [("suspected", "5"), ("lost", "5")]
    assert np.isfinite(suspected.prototypes[5]).all()
    (departed,) = play(fleet, server, "01234")
    assert np.isnan(departed.prototypes[5]).all()
    assert 5 not in server.held_out
    (back,) = play(fleet, server, "012345")
    assert np.isfinite(back.prototypes[5]).all()


def test_one_reference_class():
    """Its weight is 1, so the class moves as it does but for the residual; there is no verdict."""
    fleet = Fleet({"a": {0: 30, 1: 1}, "b": {1: 30, 0: 1}, "c": {1: 5, 0: 2}}, num_classes=2, dim=D)
    server = Tracker(num_classes=2, dim=D, grace=0)
    *_, gone = play(fleet, server, "abc", "abc", "bc")
    made = gone.reconstructions[0]
    assert server.state.tracked[0].deposit.classes == (1,)
    np.testing.assert_allclose(made.in_span, statistics(fleet, "bc", 3, (0,)).means[1], rtol=1e-5, atol=1e-5)
    assert (made.verdict, made.expected_error) == (None, None)


def test_no_reference_class_at_the_deposit():
    """The one that is not watched is on the vehicle that leaves: there is nothing to deposit against."""
    fleet = Fleet({"a": {0: 30, 1: 30}, "b": {0: 2}, "c": {0: 2}}, num_classes=2, dim=D)
    server = Tracker(num_classes=2, dim=D, grace=0, watch=(0,))
    *_, gone = play(fleet, server, "abc", "abc", "bc")
    assert of(gone, 0) == [("lost", "a")]
    why = next(d.why for d in gone.decisions if d.what == "lost" and d.classes == (0,))
    assert "round 2: staying: observes no class but watched ones, there is no reference class" in why
    np.testing.assert_allclose(gone.prototypes[0], statistics(fleet, "bc", 3, (0,)).means[0], rtol=1e-5, atol=1e-5)
    assert np.isnan(gone.prototypes[1]).all()


def test_no_reference_class_after_the_deposit():
    """What remains measures the class; where nothing does, the last prototype stays."""
    even = {0: 20, 1: 20}
    fleet = Fleet({"a": {**even, RARE: 60, 3: 60}, "b": even, "c": even, "d": {RARE: 2}, "e": {RARE: 2}}, num_classes=4)
    server = Tracker(num_classes=4, dim=D, grace=0, watch=(RARE, 3), most_watched=2)
    *_, before = play(fleet, server, "abcde", "abcde", "bcde")
    assert sorted(before.reconstructions) == [RARE, 3]
    (now,) = play(fleet, server, "de")
    assert not now.reconstructions
    assert sum("cannot be reconstructed" in problem for problem in now.problems) == 2
    np.testing.assert_allclose(now.prototypes[RARE], statistics(fleet, "de", 4).means[RARE], rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(now.prototypes[3], before.prototypes[3])
    assert "class 3 has no samples in this round, its prototype is that of round 3" in now.problems
    assert server.held_out == (RARE, 3)
    (again,) = play(fleet, server, "bcde")
    assert sorted(again.reconstructions) == [RARE, 3]
    assert whats(again)[:2] == ["returned", "returned"]


def test_a_goodbye_of_one_that_was_not_asked():
    fleet, server = paper_fleet(), tracker()
    play(fleet, server, "abcd", "abcd")
    for _ in range(2):
        outcome = server.close(fleet.answers(server.request(), "bcd"), asked=[*"bcd"])
        assert (server.state.tracked, outcome.decisions) == ({}, ())
    last = server.close(fleet.answers(server.request(), "bcd"), ["a"], asked=[*"bcd"])
    assert of(last, RARE)[:3] == [("departed", "a"), ("deposited", "a"), ("held-out", "a")]
    assert server.state.tracked[RARE].round == 2
