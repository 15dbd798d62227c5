"""Absence is not departure."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpt.fleet import FleetError
from mpt.tracking.roster import Absent, Decision, Member, Roster, advance

VEHICLES = "abc"
rounds = st.lists(st.tuples(st.sets(st.sampled_from(VEHICLES)), st.sets(st.sampled_from(VEHICLES))), max_size=25)


def run(history, grace):
    roster, steps = Roster(), []
    for number, (answered, leaving) in enumerate(history, 1):
        before = roster
        roster, decisions = advance(roster, number, set(answered), set(leaving), grace=grace)
        steps.append((number, before, roster, answered, leaving, decisions))
    return steps


@given(rounds, st.integers(0, 4))
def test_the_state_is_what_the_history_says(history, grace):
    """A second account of the same rules, from the whole history instead of the last state."""
    for number, _, roster, *_ in run(history, grace):
        past = history[:number]
        for vehicle in VEHICLES:
            came = [i for i, (answered, _) in enumerate(past) if vehicle in answered]
            if not came:
                assert roster.state(vehicle) is None
                continue
            last = came[-1]
            said = any(vehicle in leaving for _, leaving in past[last:])
            missed = number - 1 - last
            expected = "departed" if said or missed > grace else "suspected" if missed else "present"
            assert roster.state(vehicle) == expected
            assert roster.members[vehicle].seen == last + 1


@given(rounds, st.integers(0, 4))
def test_every_change_is_decided_once_and_nothing_else_is(history, grace):
    for number, before, after, answered, _, decisions in run(history, grace):
        for vehicle in VEHICLES:
            mine = [d.what for d in decisions if d.vehicle == vehicle]
            old, new = before.state(vehicle), after.state(vehicle)
            came = {None: ["joined"], "present": [], "suspected": ["returned"], "departed": ["returned"]}[old]
            expected = came if vehicle in answered else []
            if new == "departed" and (vehicle in answered or old != "departed"):
                expected = [*expected, "departed"]
            elif new == "suspected" and old == "present":
                expected = ["suspected"]
            assert mine == expected
            if old != new:
                assert after.members[vehicle].since == number
        assert all(d.round == number and d.why and "\n" not in str(d) for d in decisions)


def test_a_vehicle_through_all_states():
    away = ("", "")
    history = [("a", ""), away, away, ("a", ""), ("a", "a"), away, ("a", ""), away, away, away, away]
    assert [str(d) for *_, decisions in run(history, grace=2) for d in decisions] == [
        "round 1: vehicle a joined: it answered for the first time",
        "round 2: vehicle a suspected: it did not answer",
        "round 4: vehicle a returned: it was suspected since round 2 and answered again",
        "round 5: vehicle a departed: it said that it leaves",
        "round 7: vehicle a returned: it was departed since round 5 and answered again",
        "round 8: vehicle a suspected: it did not answer",
        "round 10: vehicle a departed: it did not answer; 3 rounds in a row missed, more than the grace of 2",
    ]


def test_an_unknown_vehicle_that_leaves_is_nobody():
    roster, decisions = advance(Roster(), 1, (), ["x"], grace=0)
    assert roster == Roster()
    assert decisions == ()


def test_a_reason_that_is_known_is_said():
    roster, _ = advance(Roster(), 1, ["a"], grace=1)
    _, (decision,) = advance(roster, 2, (), grace=1, absent=Absent({"a": "it could not be reached"}))
    assert decision.why == "it could not be reached"


@pytest.mark.parametrize("state", ["late", "refused"])
def test_whoever_is_there_and_does_not_count_has_missed_nothing(state):
    roster, _ = advance(Roster(), 1, ["a", "b"], grace=0)
    for number in range(2, 9):
        roster, said = advance(roster, number, ["b"], grace=0, absent=Absent(**{state: {"a": "why"}}))
        assert roster.members["a"] == Member(state, 2, 1, joined=1, why="why")
        assert [d.what for d in said] == (["late"] if state == "late" and number == 2 else [])
    after, (said,) = advance(roster, 9, ["a", "b"], grace=0)
    assert (after.state("a"), said.what) == ("present", "returned")
    after, (said,) = advance(roster, 9, ["b"], grace=0)
    assert (after.state("a"), said.what) == ("departed", "departed")
    after, (said,) = advance(roster, 9, ["b"], ["a"], grace=0, absent=Absent(**{state: {"a": "why"}}))
    assert (after.state("a"), said.why) == ("departed", "it said that it leaves")


def test_a_stranger_that_is_refused_is_no_member():
    roster, said = advance(Roster(), 1, (), grace=0, absent=Absent(refused={"x": "nonsense"}))
    assert not roster.members
    assert said == ()


def test_the_banned_stay_away_and_the_quarantined_apart():
    members = {"a": Member("banned", 3, 2), "b": Member("quarantined", 3, 2), "c": Member("present", 1, 3)}
    absent = Absent(refused={"a": "it is banned", "b": "it is quarantined"})
    roster, _ = advance(Roster(members), 4, ["c"], ["a"], grace=0, absent=absent)
    assert (roster.state("a"), roster.state("b")) == ("banned", "quarantined")
    roster, _ = advance(roster, 5, ["c"], grace=0, absent=Absent(refused={"a": "it is banned"}))
    assert (roster.state("a"), roster.state("b")) == ("banned", "departed")


def test_those_that_departed_long_ago_are_forgotten_but_the_owners_of_deposits():
    many = {f"v{i:04}": Member("departed", i, i) for i in range(3000)}
    roster, _ = advance(Roster(many), 3000, ["a"], grace=0, kept=["v0007"])
    assert sorted(roster.members) == ["a", "v0007", *(f"v{i:04}" for i in range(2000, 3000))]
    assert roster.forgotten == 1999


def test_absences_that_ended_are_counted_by_their_length():
    roster, _ = advance(Roster(), 1, "ab", grace=9)
    for number, answered in enumerate(("a", "ab", "b", "b", "b", "ab"), 2):
        roster, _ = advance(roster, number, answered, grace=9)
    assert roster.absences == (1, 1)


@pytest.mark.parametrize("vehicle", ["", 3, None, "x" * 2000, "a\ud800"])
def test_an_id_is_a_string(vehicle):
    with pytest.raises(FleetError, match="should be a string"):
        advance(Roster(), 1, [vehicle], grace=1)


def test_no_id_forges_a_line_of_the_log():
    assert str(Decision(1, "joined", "a\nround 2: b", (), "x\r\ny")).isprintable()
