"""Which earlier views "mpt-duo" has in a fleet when departures come late or are forgotten, and how they are read."""

import numpy as np
import pytest

import mpt
from mpt.core.two_views import EarlierView, JoinedViews, join_views, joint_covariance, joint_ridge, unit_weights
from mpt.fleet import Tracker
from mpt.protocol.question import JOINT
from mpt.tracking.operator import Order
from mpt.tracking.prototypes import read_out
from tests.tracking.fleets import RARE, C, D, tracker
from tests.tracking.lies import ALL, STAYING, World
from tests.tracking.test_joint import OTHER, begun, near, play, rows_of, two_departures

THIRD = 5
KNOWN = pytest.mark.usefixtures("in_float32")


def joint_keys(server):
    return sorted(key - JOINT for key in server.question().cross if key >= JOINT)


def one_late(fleet, server, there, late, leaving=()):
    return server.close(fleet.cross_answers(server.question(), there), leaving, late=dict.fromkeys(late, "slow"))


def test_the_view_of_a_holder_that_was_late_is_of_its_last_trusted_round():
    """A class whose only vehicle was late too is in that round's snapshot all the same."""
    holdings = {v: {c: 20 for c in range(C) if c not in (RARE, THIRD)} for v in ALL}
    for v in STAYING:
        holdings[v][RARE] = 3
    holdings["a"][RARE], holdings["h"][THIRD] = 100, 60
    fleet, server = World(holdings), tracker(variant="duo", watch=(RARE,), grace=1, most_watched=1)
    play(fleet, server, ALL, ALL, ALL)
    for _ in range(2):
        one_late(fleet, server, "bcdefg", "ah")
    one_late(fleet, server, "bcdefg", "h", leaving=["a"])
    (view,) = server.state.views.kept
    rows, labels = rows_of(fleet, ALL, 3)
    assert (view.round, view.departed, view.known.all()) == (3, (RARE,), True)
    np.testing.assert_allclose(view.prototypes, [rows[labels == c].mean(axis=0) for c in range(C)], atol=1e-4)
    (outcome,) = play(fleet, server, STAYING)
    assert (outcome.references, outcome.readout.known.all()) == ((3,), True)


def a_late_second(variant):
    """ "a" leaves in round 3 with one class; "e" is late from round 6 on and leaves in round 8 with another."""
    even = dict.fromkeys((c for c in range(C) if c not in (RARE, OTHER)), 30)
    holdings = {v: {**even, RARE: 4, OTHER: 4} for v in "bcdfgh"}
    fleet = World({**holdings, "a": {**even, RARE: 100}, "e": {**even, OTHER: 100}})
    server = Tracker(num_classes=C, dim=D, method=variant, watch=(RARE, OTHER), grace=1)
    play(fleet, server, "abcdefgh", "abcdefgh")
    play(fleet, server, "abcdefgh", leaving=["a"])
    play(fleet, server, "bcdefgh", "bcdefgh")
    for _ in range(2):
        one_late(fleet, server, "bcdfgh", "e")
    return fleet, server, one_late(fleet, server, "bcdfgh", "", leaving=["e"])


def test_without_moments_between_them_the_view_that_knows_more_departed_classes_is_read():
    fleet, server, eighth = a_late_second("mpt-duo")
    first, second = server.state.views.kept
    assert [(v.round, v.departed) for v in (first, second)] == [(3, (RARE,)), (5, (OTHER,))]
    assert first.known.all()
    assert not second.known[RARE], "the snapshot of round 5 does not tell where a class was tracked to"
    said = (
        "the models of rounds 3 and 5 are not read together: there are no joint moments between them; that of round 3"
    )
    assert [problem for problem in eighth.problems if problem.startswith(said)]
    assert joint_keys(server) == [3], "nothing is asked that nobody would read"
    for outcome in play(fleet, server, "bcdfgh", "bcdfgh"):
        assert (outcome.references, outcome.readout.departed, outcome.problems) == ((3,), (RARE, OTHER), ())
        assert outcome.readout.known.all()
    (back,) = play(fleet, server, "abcdfgh")
    assert [view.round for view in server.state.views.kept] == [5]
    assert back.problems == ()
    (after,) = play(fleet, server, "abcdfgh")
    assert (after.references, after.readout.departed) == ((5,), (OTHER,))


def test_a_class_that_departed_after_a_holder_was_trusted_last_was_measured_in_that_round():
    """ "a" is late from round 4 on, "e" leaves with a class in round 5, and "a" in round 6: its view is of round 3."""
    even = dict.fromkeys((c for c in range(C) if c not in (RARE, OTHER)), 30)
    holdings = {v: {**even, RARE: 4, OTHER: 4} for v in "bcdfgh"}
    fleet = World({**holdings, "a": {**even, RARE: 100}, "e": {**even, OTHER: 100}})
    server = Tracker(num_classes=C, dim=D, method="mpt-duo(joining='sum')", watch=(RARE, OTHER), grace=1)
    play(fleet, server, "abcdefgh", "abcdefgh", "abcdefgh")
    one_late(fleet, server, "bcdefgh", "a")
    one_late(fleet, server, "bcdefgh", "a", leaving=["e"])
    one_late(fleet, server, "bcdfgh", "", leaving=["a"])
    first, second = server.state.views.kept
    assert [(v.round, v.departed) for v in (first, second)] == [(3, (RARE,)), (5, (OTHER,))]
    rows, labels = rows_of(fleet, "abcdefgh", 3)
    np.testing.assert_allclose(first.prototypes[OTHER], rows[labels == OTHER].mean(axis=0), atol=1e-4)
    (outcome,) = play(fleet, server, "bcdfgh")
    assert (outcome.references, outcome.readout.known.all()) == ((3, 5), True)


def test_a_sum_of_distances_needs_no_moments_between_two_views():
    fleet, server, eighth = a_late_second("mpt-duo(joining='sum')")
    assert not [problem for problem in eighth.problems if "not read together" in problem]
    (outcome,) = play(fleet, server, "bcdfgh")
    assert (outcome.references, outcome.readout.views, outcome.problems) == ((3, 5), 3, ())


def test_a_view_that_has_gone_for_later_ones_does_not_come_back():
    even = dict.fromkeys((c for c in range(C) if c not in (RARE, OTHER, THIRD)), 30)
    few = {RARE: 4, OTHER: 4, THIRD: 4}
    holdings = {v: {**even, **few} for v in "bcdgh"}
    fleet = World({**holdings, "a": {**even, RARE: 100}, "e": {**even, OTHER: 100}, "f": {**even, THIRD: 100}})
    server = tracker(variant="duo", watch=(RARE, OTHER, THIRD), most_references=3)
    play(fleet, server, "abcdefgh", "abcdefgh")
    for there, gone in (("abcdefgh", "a"), ("bcdefgh", ""), ("bcdefgh", "e"), ("bcdfgh", ""), ("bcdfgh", "f")):
        play(fleet, server, there, leaving=list(gone))
    assert [view.round for view in server.state.views.kept] == [5, 7]
    play(fleet, server, "bcdgh", "bcdegh")
    assert [view.round for view in server.state.views.kept] == [7]
    (outcome,) = play(fleet, server, "bcdefgh")
    assert server.state.tracked.keys() == {RARE}
    assert not server.state.views
    assert isinstance(outcome.readout, mpt.NearestClassMean)
    assert not joint_keys(server)


@pytest.mark.parametrize("what", ["forget", "drop"])
def test_what_a_view_knew_of_a_class_goes_with_its_deposit(what):
    """Two classes depart in one round, so that the view stays for the other one."""
    even = dict.fromkeys((c for c in range(C) if c not in (RARE, OTHER)), 30)
    holdings = {v: {**even, RARE: 4, OTHER: 4} for v in "bcdfgh"}
    fleet = World({**holdings, "a": {**even, RARE: 100}, "e": {**even, OTHER: 100}})
    server = tracker(variant="duo", watch=(RARE, OTHER))
    play(fleet, server, "abcdefgh", "abcdefgh")
    play(fleet, server, "abcdefgh", leaving=["a", "e"])
    play(fleet, server, "bcdfgh")
    prototype = server.state.tracked[RARE].deposit.prototype
    server.obey([Order(1, what, "a" if what == "forget" else RARE)])
    (view,) = server.state.views.kept
    assert (view.departed, view.known[RARE], server.state.views.departed) == ((OTHER,), False, (OTHER,))
    assert prototype.tobytes() not in server.state.views.to_bytes()
    for outcome in play(fleet, server, "bcdfgh", "bcdfgh"):
        assert (outcome.references, outcome.readout.departed) == ((3,), (OTHER,))
        assert np.flatnonzero(~outcome.readout.known).tolist() == [RARE]
    server.obey([Order(2, "drop", OTHER)])
    assert not server.state.views
    assert isinstance(play(fleet, server, "bcdfgh")[0].readout, mpt.NearestClassMean)


def test_a_model_for_deployment_has_the_later_of_two_views():
    fleet, server, _ = two_departures()
    play(fleet, server, "bcdfgh")
    problems = []
    both, rounds = read_out(server.state, problems)
    one, alone = read_out(server.state, problems, most=1)
    assert (both.views, rounds, one.views, alone, problems) == (3, (3, 6), 2, (6,), [])


@KNOWN
def test_with_few_samples_the_ridge_grows_as_in_the_core():
    few = dict.fromkeys((c for c in range(C) if c != RARE), 4)
    fleet = World({**{v: {**few, RARE: 3} for v in "bcdefgh"}, "a": {**few, RARE: 100}})
    server = tracker(variant="duo", watch=(RARE,), watch_share=0.6)
    play(fleet, server, ALL, ALL)
    play(fleet, server, ALL, leaving=["a"])
    (outcome,) = play(fleet, server, STAYING)
    (z, labels), (h, _) = rows_of(fleet, STAYING, 3), rows_of(fleet, STAYING, 4)
    cross = mpt.CrossStatistics.from_features(z, h, labels, C, weights=unit_weights(C, [RARE]))
    stats = mpt.ClassStatistics.from_features(h, labels, C, watched=[RARE])
    current = mpt.NearestClassMean(outcome.prototypes, stats.covariance())
    (view,), whole, grown = server.state.views.kept, joint_covariance(stats, [cross]), joint_ridge([cross])
    assert grown == pytest.approx(0.1 * 2 * D / (7 * 5 * 4 - 5))
    near(outcome.readout, join_views(current, [view], whole, departed=RARE, ridge=grown))
    with pytest.raises(AssertionError):
        near(outcome.readout, join_views(current, [view], whole, departed=RARE))


class InTheMiddle(World):
    """The rare class lies between the others, where Eq. (X10) moves it."""

    def __post_init__(self):
        super().__post_init__()
        self.centres[RARE] = self.centres.mean(axis=0)
        for vehicle, held in self.holdings.items():
            self.add(vehicle, held)


@KNOWN
@pytest.mark.parametrize("shadow", [False, True])
def test_only_classes_that_are_held_out_are_read_further_out(shadow):
    """In shadow mode a departed class goes on being trained on; Eq. (X10) is for those that are not."""
    fleet, server = begun(made=InTheMiddle, shadow=shadow)
    assert server.state.held_out == (() if shadow else (RARE,))
    (outcome,) = play(fleet, server, STAYING)
    (z, labels), (h, _) = rows_of(fleet, STAYING, 3), rows_of(fleet, STAYING, 4)
    cross = mpt.CrossStatistics.from_features(z, h, labels, C, weights=unit_weights(C, [RARE]))
    stats = mpt.ClassStatistics.from_features(h, labels, C, watched=[RARE])
    prototypes = outcome.prototypes.copy()
    current = mpt.NearestClassMean(prototypes, stats.covariance())
    view = EarlierView(3, (RARE,), server.state.views.kept[0].prototypes)
    made = [
        join_views(current, [view], joint_covariance(stats, [cross]), departed=RARE, outward=outward)
        for outward in (not shadow, shadow)
    ]
    assert isinstance(outcome.readout, JoinedViews)
    near(outcome.readout, made[0])
    with pytest.raises(AssertionError):
        near(outcome.readout, made[1])


def test_a_state_is_the_same_bytes_whether_or_not_it_was_resumed_before_a_holder_was_late():
    """The class that departed later has the lower number: models are asked about in another order than theirs."""
    even = dict.fromkeys((c for c in range(C) if c not in (RARE, OTHER, THIRD)), 30)
    few = {RARE: 4, OTHER: 4, THIRD: 4}
    holdings = {v: {**even, **few} for v in "bcdgh"}
    fleet = World({**holdings, "a": {**even, RARE: 100}, "e": {**even, OTHER: 100}, "f": {**even, THIRD: 100}})
    server = tracker(variant="duo", watch=(RARE, OTHER, THIRD))
    play(fleet, server, "abcdefgh", "abcdefgh")
    for there, gone in (("abcdefgh", "e"), ("abcdfgh", "a"), ("bcdfgh", "")):
        play(fleet, server, there, leaving=list(gone))
    again = Tracker.from_bytes(server.to_bytes())
    for one in (server, again):
        one_late(fleet, one, "bcdgh", "f")
        assert "f" in one.state.trusted
    assert again.to_bytes() == server.to_bytes()


def test_a_snapshot_that_several_holders_are_in_is_written_once():
    """Whoever became late first, whether the server was resumed in between, and who was banned since."""
    holdings = {v: {c: 20 for c in range(C) if c not in (RARE, OTHER, THIRD)} for v in "abcdefgh"}
    for v, c in zip("aef", (RARE, OTHER, THIRD), strict=True):
        holdings[v][c] = 60
    fleet, server = World(holdings), tracker(variant="duo", watch=(RARE, OTHER, THIRD), grace=5)
    play(fleet, server, ALL, ALL)
    one_late(fleet, server, "", "ef")
    again = Tracker.from_bytes(server.to_bytes())
    for one in (server, again):
        one_late(fleet, one, "", "aef")
        one.obey([Order(1, "ban", "f")])
    assert {v: snapshot.round for v, snapshot in again.state.trusted.items()} == {"a": 2, "e": 2}
    assert again.to_bytes() == server.to_bytes()
    resumed = Tracker.from_bytes(again.to_bytes()).state.trusted
    assert resumed["a"] is resumed["e"]
