"""A vehicle that charges every Monday is not mourned every Tuesday."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpt.fleet import FleetError, Tracker
from mpt.tracking import roll
from mpt.tracking.returns import BINS, MOST_OWN, OWN_PRIOR, PRIOR, Waiting, bin_of, counted, estimate, own_chance
from mpt.tracking.roster import Member, Roster, advance, pooled
from mpt.tracking.settings import TrackerSettings

from .fleets import RARE, paper_fleet, tracker, whats

POOLED = Waiting("pooled", 0.5, 40)
lengths = st.lists(st.integers(1, 300), max_size=40)
some = st.sets(st.sampled_from("abcd"))
rounds = st.lists(st.tuples(some, st.sets(st.sampled_from("abcd"), max_size=1)), max_size=60)


def run(history, grace, waiting, roster=None):
    roster, steps = roster or Roster(), []
    for number, (answered, leaving) in enumerate(history, 1):
        roster, decisions = advance(roster, number, set(answered), set(leaving), grace=grace, waiting=waiting)
        steps.append((roster, decisions))
    return steps


def departures(steps):
    return [(d.round, d.vehicle) for _, decisions in steps for d in decisions if d.what == "departed"]


def test_bins_follow_each_other():
    found = [bin_of(length) for length in range(1, 40000)]
    assert sorted(set(found)) == list(range(BINS))
    assert found == sorted(found)


@given(lengths, lengths, st.sampled_from([2, 4, 6, 8, 40, 62, 64, 128]))
def test_kaplan_and_meier_absence_by_absence(ended, lasting, end):
    """Bin by bin over every single absence; one that lasts counts for the share of a bin that it went through."""
    survival, first = 1.0, 1
    while first < end:
        after = next(length for length in range(first, 300) if bin_of(length) > bin_of(first))
        at_risk = PRIOR + sum(one >= first for one in ended)
        at_risk += sum(min(max(one - first, 0) / (after - first), 1) for one in lasting)
        survival *= 1 - sum(first <= one < after for one in ended) / at_risk
        first = after
    assert estimate(counted((), ended), Counter(lasting)).beyond(end) == pytest.approx(survival)


@given(st.lists(st.integers(1, 30), max_size=40), st.lists(st.integers(1, 30), max_size=40), st.integers(1, 31))
def test_question_by_question_where_bins_do_not_matter(ended, lasting, end):
    """The textbook's estimate, with a risk set for every question; even lengths, so that no bin is cut."""
    ended, lasting, end = [2 * one for one in ended], [2 * one for one in lasting], 2 * end
    survival = 1.0
    for question in range(1, end):
        at_risk = PRIOR + sum(one >= question for one in ended) + sum(one > question for one in lasting)
        survival *= 1 - ended.count(question) / at_risk
    assert estimate(counted((), ended), Counter(lasting)).beyond(end) == pytest.approx(survival)


@given(lengths, lengths, st.integers(1, 200), st.integers(0, 50), st.integers(0, 50))
def test_a_chance_is_a_probability_that_grows_with_the_horizon(ended, lasting, so_far, horizon, more):
    known = estimate(counted((), ended), Counter(lasting))
    some, further = known.chance(so_far, horizon), known.chance(so_far, horizon + more)
    assert -1e-12 <= some <= further + 1e-12
    assert further <= len(ended) / (len(ended) + PRIOR) + 1e-12
    both = known.chance(so_far, horizon) + (1 - some) * known.chance(so_far + horizon, more)
    assert both == pytest.approx(further)


def test_where_nothing_was_seen_nobody_is_expected():
    assert estimate((), {}).chance(4, 1000) == 0
    assert pooled(Roster()).chance(1, 40) == 0


def test_the_forgotten_count_like_the_departed_that_are_remembered():
    members = {f"v{i}": Member("departed", 9, 1, missed=50) for i in range(10)}
    some = pooled(Roster(members, 0, counted((), [6] * 20)))
    more = pooled(Roster(members, 990, counted((), [6] * 20)))
    assert some.chance(4, 36) == pytest.approx(20 / (20 + PRIOR + 10))
    assert more.chance(4, 36) == pytest.approx(20 / (20 + PRIOR + 1000))


@given(rounds, st.integers(0, 4), st.integers(1, 30), st.sampled_from(["pooled", "own"]))
def test_up_to_five_absences_nothing_is_other_than_with_off(history, grace, more, kind):
    """And later nobody is departed within the grace, or awaited for longer than the most."""
    waiting = Waiting(kind, 0.5, grace + more, 20)
    off, on = run(history, grace, Waiting()), run(history, grace, waiting)
    few = [i for i, (roster, _) in enumerate(on) if sum(roster.absences) <= PRIOR] if kind == "pooled" else [0]
    for i in few if history else ():
        assert on[i][0].members == off[i][0].members
        assert on[i][1] == off[i][1]
    for (_, said), (roster, _) in zip(on, on, strict=True):
        assert all(m.missed < waiting.most for m in roster.members.values() if m.state == "suspected")
        for decision in said:
            if decision.what == "departed" and "missed" in decision.why:
                assert roster.members[decision.vehicle].missed > grace


@given(rounds, st.integers(0, 4))
def test_absences_are_as_long_as_the_history_says(history, grace):
    """Departed or not, with a goodbye or without: the length is what was missed between two answers."""
    ended = []
    for vehicle in "abcd":
        came = [i for i, (answered, _) in enumerate(history) if vehicle in answered]
        ended += [b - a - 1 for a, b in pairwise(came) if b - a > 1]
    for waiting in (Waiting(), POOLED):
        steps = run(history, grace, waiting)
        assert not steps or steps[-1][0].absences == counted((), ended)


WEEKS = 30
DAYS = {"a": 0, "b": 2, "c": 4}
WEEKLY = [("xy" + "".join(v for v, day in DAYS.items() if i % 7 == day), "") for i in range(7 * WEEKS)]


def test_who_comes_every_seventh_round_departs_every_week_with_off():
    assert len(departures(run(WEEKLY, 3, Waiting()))) == 3 * WEEKS - 1


@pytest.mark.parametrize("kind", ["pooled", "own"])
def test_and_once_some_weeks_were_seen_never_again(kind):
    found = departures(run(WEEKLY, 3, Waiting(kind, 0.5, 40, 100)))
    assert 3 <= len(found) <= 9
    assert max(number for number, _ in found) <= 4 * 7


def test_why_it_is_waited_for_is_said_once():
    roster = Roster({"a": Member("present", 1, 1)}, 0, counted((), [6] * 18))
    steps = run([("b", "")] * 41, 3, POOLED, roster)
    said = [(d.round, d.what, d.why) for _, decisions in steps for d in decisions if d.vehicle == "a"]
    more = "more than the grace of 3"
    assert said == [
        (1, "suspected", "it did not answer"),
        (4, "suspected", f"it did not answer; 4 rounds in a row missed, {more}, but vehicles come back after such an "
         "absence in 78% of cases"),
        (8, "departed", f"it did not answer; 8 rounds in a row missed, {more}, and vehicles come back after such an "
         "absence in 0% of cases"),
    ]  # fmt: skip


def test_who_is_gone_for_good_is_departed_after_the_most():
    """Where all absences are of 39 rounds, a return is likely up to the last."""
    roster = Roster({"a": Member("present", 1, 1)}, 0, counted((), [39] * 50))
    ((number, _),) = departures(run([("b", "")] * 60, 3, POOLED, roster))
    assert number == 40


def test_whoever_was_not_asked_has_missed_nothing_also_after_its_departure():
    roster = Roster({"a": Member("departed", 3, 2, missed=4), "b": Member("suspected", 3, 2, missed=2)})
    after, _ = advance(roster, 9, (), grace=3, waiting=POOLED, asked=["c"])
    assert after.members == roster.members
    after, _ = advance(roster, 9, (), grace=3, waiting=POOLED, asked=["a", "b"])
    assert [after.members[v].missed for v in "ab"] == [5, 3]


def test_a_vehicles_own_absences_are_kept_only_where_that_was_chosen_and_are_forgotten():
    assert all(not m.own for roster, _ in run(WEEKLY, 3, POOLED) for m in roster.members.values())
    steps = run(WEEKLY, 3, Waiting("own", 0.5, 40, 15))
    for number, (roster, _) in enumerate(steps, 1):
        assert all(number - ended < 15 for m in roster.members.values() for _, ended in m.own)
    assert [length for length, _ in steps[-1][0].members["a"].own] == [6, 6]
    assert len(run(WEEKLY, 3, Waiting("own", 0.5, 40, 10**6))[-1][0].members["a"].own) == MOST_OWN
    later, _ = advance(steps[-1][0], 300, "x", grace=3, waiting=POOLED)
    assert not any(m.own for m in later.members.values())


def test_ones_own_absences_outweigh_the_fleets():
    assert own_chance(0.1, [], 4, 36) == pytest.approx(0.1)
    assert own_chance(0.0, [6, 6, 6, 1, 2], 4, 36) == pytest.approx(3 / (3 + OWN_PRIOR))
    assert own_chance(1.0, [90], 4, 36) == pytest.approx(OWN_PRIOR / (1 + OWN_PRIOR))


def test_members_are_read_with_and_without_their_own_absences():
    members = {"a": Member("present", 4, 4, own=((6, 3), (2, 4))), "b": Member("late", 3, 2, 1, "B", 1, "slow")}
    assert roll.from_bytes(roll.to_bytes(members, {}), 3) == (members, {})
    plain = {v: replace(m, own=()) for v, m in members.items()}
    assert roll.from_bytes(roll.to_bytes(plain, {}), 3)[0] == plain


@pytest.mark.parametrize("kind", ["off", "pooled", "own"])
def test_a_tracker_resumes_in_the_middle_of_an_absence(kind):
    fleet, server = paper_fleet(), tracker(returns=kind, grace=1)
    resumed = tracker(returns=kind, grace=1)
    for number in range(1, 40):
        there = "bcd" + "a" * (number % 4 == 1)
        said = [one.close(fleet.answers(one.request(), there)).decisions for one in (server, resumed)]
        assert said[0] == said[1]
        resumed = Tracker.from_bytes(server.to_bytes())
        assert resumed.to_bytes() == server.to_bytes()
        assert resumed.roster == server.roster
    departed = server.roster.state("a") == "departed"
    assert departed == (kind == "off")
    assert sum(server.roster.absences) == 9


def test_the_class_of_a_vehicle_that_is_waited_for_stays_watched_and_is_not_held_out():
    fleet, server = paper_fleet(), tracker(patience=2, grace=1, most_missed=30)
    for _ in range(3):
        server.close(fleet.answers(server.request()))
    server.state = replace(server.state, roster=replace(server.roster, absences=counted((), [12] * 50)))
    for missed in range(1, 13):
        outcome = server.close(fleet.answers(server.request(), "bcd"))
        assert server.roster.state("a") == "suspected"
        assert RARE in server.state.watch.classes
        assert server.held_out == ()
        assert RARE in outcome.tracked
        assert "released" not in whats(outcome)
        assert whats(outcome, "a") == {1: ["suspected", "deposited"], 2: ["suspected"]}.get(missed, [])
    assert "recovered" in whats(server.close(fleet.answers(server.request())))
    for _ in range(13 + 2):
        server.close(fleet.answers(server.request(), "bcd"))
    assert server.held_out == (RARE,)


def test_the_most_is_above_the_grace():
    assert TrackerSettings(num_classes=3, dim=2, grace=4).most_missed == 50
    with pytest.raises(FleetError, match="most_missed: 4, should be at least 5"):
        TrackerSettings(num_classes=3, dim=2, grace=4, most_missed=4)
    with pytest.raises(FleetError, match="returns: 'mine', should be off, pooled or own"):
        TrackerSettings(num_classes=3, dim=2, returns="mine")


def test_a_fleet_of_which_some_are_asked_is_written_with_its_deposits():
    fleet, server = paper_fleet(), tracker(grace=0)
    for there, asked in (("abcd", None), ("abcd", None), ("ab", "ab"), ("c", "ac")):
        server.close(fleet.answers(server.request(), there), asked=asked)
    assert server.held_out == (RARE,)
    assert Tracker.from_bytes(server.to_bytes()).to_bytes() == server.to_bytes()
