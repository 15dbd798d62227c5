"""Absence is not departure."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpt.fleet import Decision, FleetError, Roster
from mpt.tracking.roster import advance

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
    _, (decision,) = advance(roster, 2, (), grace=1, absent={"a": "its answer was refused"})
    assert decision.why == "its answer was refused"


@pytest.mark.parametrize("vehicle", ["", 3, None, "x" * 2000, "a\ud800"])
def test_an_id_is_a_string(vehicle):
    with pytest.raises(FleetError, match="should be a string"):
        advance(Roster(), 1, [vehicle], grace=1)


def test_no_id_forges_a_line_of_the_log():
    assert str(Decision(1, "joined", "a\nround 2: b", (), "x\r\ny")).isprintable()
