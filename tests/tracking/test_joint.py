"""The method "mpt-duo" in a fleet: earlier views, joint moments, and the readout of both; and what happens without."""

from dataclasses import replace

import numpy as np
import pytest

import mpt
from mpt.core.two_views import EarlierView, JoinedViews, join_views, joint_covariance, unit_weights
from mpt.fleet import Tracker
from mpt.protocol.question import JOINT, Question, packed, parts
from mpt.tracking.prototypes import readout_of
from tests.tracking.fleets import RARE, C, tracker, whats
from tests.tracking.lies import ALL, STAYING, World, fleet_of

OTHER = 4


def play(fleet, server, *rounds, leaving=(), **options):
    return [server.close(fleet.cross_answers(server.question(), there, **options), leaving) for there in rounds]


def begun(variant="duo", made=World, **options):
    """Three rounds of eight vehicles, after which "a" leaves with a word."""
    fleet, server = fleet_of(made), tracker(variant=variant, watch=(RARE,), **options)
    play(fleet, server, ALL, ALL)
    play(fleet, server, ALL, leaving=["a"])
    return fleet, server


def two_departures(**options):
    """ "a" holds most of one class and leaves in round 3, "e" of another and leaves in round 6."""
    even = dict.fromkeys((c for c in range(C) if c not in (RARE, OTHER)), 30)
    holdings = {v: {**even, RARE: 4, OTHER: 4} for v in "bcdfgh"}
    fleet = World({**holdings, "a": {**even, RARE: 100}, "e": {**even, OTHER: 100}})
    server = tracker(variant="duo", watch=(RARE, OTHER), **options)
    play(fleet, server, "abcdefgh", "abcdefgh")
    play(fleet, server, "abcdefgh", leaving=["a"])
    play(fleet, server, "bcdefgh", "bcdefgh")
    return fleet, server, play(fleet, server, "bcdefgh", leaving=["e"])[0]


def rows_of(fleet, vehicles, round):
    rows, labels = zip(*(fleet.features(v, round) for v in vehicles), strict=True)
    return np.concatenate(rows), np.concatenate(labels)


def near(found, expected, by=1e-4):
    assert isinstance(found, JoinedViews)
    for (weight, bias), (right, offset) in zip(found.layers(), expected.layers(), strict=True):
        np.testing.assert_allclose(weight, right, atol=by * np.abs(right).max())
        np.testing.assert_allclose(bias, offset, atol=by * np.abs(offset).max())
    assert (found.departed, found.scale) == (expected.departed, pytest.approx(expected.scale, rel=by))


def by_hand(fleet, outcome, there, views, watched, between=()):
    """The readout from all features themselves, in float64, with the prototypes that the fleet has found."""
    stats = mpt.ClassStatistics.from_features(*rows_of(fleet, there, outcome.round), C, watched=watched)
    weights = unit_weights(C, watched)

    def moments(vehicles, earlier, now):
        (z, labels), (h, _) = rows_of(fleet, vehicles, earlier), rows_of(fleet, vehicles, now)
        return mpt.CrossStatistics.from_features(z, h, labels, C, weights=weights)

    crosses = [moments(there, view.round, outcome.round) for view in views]
    known = {(0, 1): moments(between, views[0].round, views[1].round)} if between else None
    current = mpt.NearestClassMean(outcome.prototypes, stats.covariance())
    gone = [c for view in views for c in view.departed]
    return join_views(current, views, joint_covariance(stats, crosses, known), departed=gone)


@pytest.mark.usefixtures("in_float32")
def test_after_an_announced_leave_it_is_the_cores_readout():
    fleet, server = begun()
    plain_fleet, plain = begun("cross")
    before = mpt.ClassStatistics.from_features(*rows_of(fleet, ALL, 3), C, watched=[RARE])
    view = EarlierView.of(before, RARE, 3)
    (kept,) = server.state.views.kept
    assert (kept.round, kept.departed) == (3, (RARE,))
    np.testing.assert_allclose(kept.prototypes, view.prototypes, atol=1e-5)
    for _ in range(3):
        (outcome,), (other,) = play(fleet, server, STAYING), play(plain_fleet, plain, STAYING)
        assert outcome.problems == ()
        assert (outcome.references, outcome.tracked) == ((3,), (RARE,))
        np.testing.assert_array_equal(outcome.prototypes, other.prototypes)
        near(outcome.readout, by_hand(fleet, outcome, STAYING, [view], [RARE]))
        np.testing.assert_allclose(outcome.readout.current.prototypes, other.readout.prototypes)


@pytest.mark.usefixtures("in_float32")
def test_one_that_vanished_is_read_under_the_model_of_its_last_answer():
    fleet, server = fleet_of(World), tracker(variant="duo", watch=(RARE,), grace=0, returns="off")
    play(fleet, server, ALL, ALL, ALL)
    first, second = play(fleet, server, STAYING, STAYING)
    assert (first.references, second.references) == ((), (3,))
    assert first.problems == second.problems == ()
    before = mpt.ClassStatistics.from_features(*rows_of(fleet, ALL, 3), C, watched=[RARE])
    near(second.readout, by_hand(fleet, second, STAYING, [EarlierView.of(before, RARE, 3)], [RARE]))


@pytest.mark.usefixtures("in_float32")
def test_two_departures_are_two_views_and_what_is_between_them_was_reported_already():
    fleet, server, sixth = two_departures()
    first, second = server.state.views.kept
    assert [(view.round, view.departed) for view in (first, second)] == [(3, (RARE,)), (6, (OTHER,))]
    np.testing.assert_array_equal(second.prototypes[RARE], sixth.reconstructions[RARE].prototype)
    there = "bcdfgh"
    for _ in range(2):
        (outcome,) = play(fleet, server, there)
        assert outcome.references == (3, 6)
        assert outcome.problems == ()
        assert (outcome.readout.views, outcome.readout.departed) == (3, (RARE, OTHER))
        near(outcome.readout, by_hand(fleet, outcome, there, [first, second], [RARE, OTHER], "bcdefgh"))
    rows, labels = (np.concatenate([rows_of(fleet, ALL, r)[0] for r in (8, 3, 6)], axis=1), rows_of(fleet, ALL, 8)[1])
    assert np.mean(outcome.readout.predict(rows) == labels) > 0.9


def test_a_view_goes_with_the_return_of_its_vehicle():
    fleet, server, _ = two_departures()
    play(fleet, server, "bcdfgh")
    (back,) = play(fleet, server, "abcdfgh")
    assert "recovered" in whats(back)
    assert [view.round for view in server.state.views.kept] == [6]
    assert (back.references, back.readout.departed) == ((6,), (OTHER,))
    (all_back,) = play(fleet, server, "abcdefgh")
    assert not server.state.views
    assert isinstance(all_back.readout, mpt.NearestClassMean)
    assert not [key for key in server.question().cross if key >= JOINT]


def test_a_resumed_server_goes_on_as_if_nothing_had_happened():
    fleet, server, _ = two_departures()
    for there in ("bcdfgh", "bcdfgh", "", "abcdfgh", "bcdfgh"):
        again = Tracker.from_bytes(server.to_bytes())
        assert again.to_bytes() == server.to_bytes()
        (outcome,), (other,) = play(fleet, server, there), play(fleet, again, there)
        assert outcome.references == other.references
        assert outcome.readout == other.readout == readout_of(Tracker.from_bytes(again.to_bytes()).state)


def test_without_enough_joint_moments_the_current_model_decides_alone():
    fleet, server = begun()
    (lacking,) = play(fleet, server, STAYING, lacking=STAYING[:4])
    said = [p for p in lacking.problems if "is not read in this round: joint moments of 300 of 700 samples" in p]
    assert len(said) == 1
    assert isinstance(lacking.readout, mpt.NearestClassMean)
    assert lacking.references == ()
    assert set(server.lacking) == set(STAYING[:4])
    (again,) = play(fleet, server, STAYING)
    assert again.references == (3,)


def test_one_that_joins_late_is_told_which_model_it_lacks():
    fleet, server = begun()
    play(fleet, server, STAYING)
    fleet.add("z", {c: 20 for c in range(C) if c != RARE})
    (first,) = play(fleet, server, STAYING + "z", lacking="z")
    assert dict(server.lacking) == {"z": (3,)}
    assert first.references == (3,)
    (second,) = play(fleet, server, STAYING + "z")
    assert not server.lacking
    assert sum(server.state.views.moments[3].counts) == sum(second.statistics.counts)


def lied(question, answer, factor):
    """An answer whose joint moments alone are wrong: features under the earlier model belong to others."""
    reported, moments, _ = parts(answer)
    changed = dict(moments)
    for key, part in moments.items():
        if key >= JOINT:
            honest = question.cross[key].read(part, {})
            n = np.maximum(honest.counts, 1)
            means = (honest.earlier * np.sqrt(honest.weights / n)[:, None]).T @ (
                honest.sums * np.sqrt(honest.weights / n)[:, None]
            )
            changed[key] = question.cross[key].send(replace(honest, cross=means + factor * (honest.cross - means)))
    assert changed != moments
    return packed(reported, changed)


def covariance(server, stats):
    return joint_covariance(stats, [server.state.views.moments[3]])


@pytest.mark.usefixtures("in_float32")
def test_joint_moments_that_turn_the_other_way_are_clipped():
    moved = {}
    for gate in (True, False):
        fleet, server = begun(gate=gate)
        _, honest = begun(gate=gate)
        question = server.question()
        answers = fleet.cross_answers(question, STAYING)
        outcome = server.close(answers | {"b": lied(question, answers["b"], -1.0)})
        (right,) = play(fleet, honest, STAYING)
        moved[gate] = np.linalg.norm(covariance(server, outcome.statistics) - covariance(honest, right.statistics))
        assert ("b" in server.state.clipped) is gate
        assert [d.why for d in outcome.decisions if d.what == "clipped"] == ["its joint moments are far off"] * gate
    assert moved[True] < 0.25 * moved[False]


def test_joint_moments_that_no_samples_give_are_refused():
    fleet, server = begun()
    question = server.question()
    answers = fleet.cross_answers(question, STAYING)
    outcome = server.close(answers | {"b": lied(question, answers["b"], 30.0)})
    assert "b" not in outcome.answered
    assert any("larger than features of these lengths can give" in problem for problem in outcome.problems)


def about_far_means(question, answer, by):
    """Cross and joint moments about means so far off that rounding could have made a W_zz with negative eigenvalues."""
    reported, moments, _ = parts(answer)
    changed = {}
    for key, part in moments.items():
        honest = question.cross[key].read(part, {})
        n, seen = honest.counts, (honest.counts > 0) & (honest.weights > 0)
        root = np.sqrt(honest.weights[seen] / n[seen])[:, None]
        about, cross = honest.within
        gram, earlier = about.copy(), honest.earlier + by * n[:, None]
        gram[0, 1] += 1e-4 * by**1.5 * n.sum()
        gram[1, 0] = gram[0, 1]
        z = root * earlier[seen]
        lie = replace(honest, earlier=earlier, gram=gram + z.T @ z, cross=cross + z.T @ (root * honest.sums[seen]))
        changed[key] = lie.to_bytes("float32", frame=False)
    return packed(reported, changed)


@pytest.mark.parametrize("variant", ["cross", "duo"])
@pytest.mark.parametrize("by", [1e4, 1e5])
def test_moments_about_far_means_stop_no_round(variant, by):
    """One of seven: it is clipped, and the round ends nearly as if it had told the truth."""
    fleet, server = begun(variant)
    _, honest = begun(variant)
    question = server.question()
    answers = fleet.cross_answers(question, STAYING)
    outcome = server.close(answers | {"b": about_far_means(question, answers["b"], by)})
    (right,) = play(fleet, honest, STAYING)
    assert ("b" in outcome.answered, "b" in server.state.clipped, outcome.problems) == (True, True, ())
    assert np.abs(outcome.prototypes - right.prototypes).max() < 0.2
    assert outcome.reconstructions[RARE].reach is not None, "it is reconstructed from cross moments"


def test_vehicles_of_an_earlier_release_answer_it_and_mpt_x_asks_as_before():
    """A joint request is one more request for cross moments, in a message of the first version."""
    _, server = begun()
    _, plain = begun("cross")
    question, other = server.question(), plain.question()
    assert sorted(question.cross) == [RARE, JOINT + 3]
    alone = Question(question.statistics, {RARE: question.cross[RARE]})
    assert alone.to_bytes() == other.to_bytes()
    assert question.to_bytes()[4] == other.to_bytes()[4] == 1
    assert Question.from_bytes(question.to_bytes()) == question


def test_a_third_departure_shares_a_model_and_the_view_speaks_about_its_class_too():
    even = dict.fromkeys((c for c in range(C) if c not in (RARE, OTHER, 5)), 30)
    few = {RARE: 4, OTHER: 4, 5: 4}
    holdings = {v: {**even, **few} for v in "bcdgh"}
    fleet = World({**holdings, "a": {**even, RARE: 100}, "e": {**even, OTHER: 100}, "f": {**even, 5: 100}})
    server = tracker(variant="duo", watch=(RARE, OTHER, 5))
    play(fleet, server, "abcdefgh", "abcdefgh")
    for there, gone in (("abcdefgh", "a"), ("bcdefgh", ""), ("bcdefgh", "e"), ("bcdfgh", ""), ("bcdfgh", "f")):
        play(fleet, server, there, leaving=list(gone))
    assert [(view.round, view.departed) for view in server.state.views.kept] == [(3, (RARE,)), (5, (OTHER, 5))]
    rows, labels = rows_of(fleet, "bcdfgh", 5)
    exact = rows[labels == 5].mean(axis=0)
    np.testing.assert_allclose(server.state.views.kept[1].prototypes[5], exact, atol=1e-4)
    (outcome,) = play(fleet, server, "bcdgh")
    assert (outcome.references, outcome.readout.departed) == ((3, 5), (RARE, OTHER, 5))


def test_more_reference_models_than_views_leave_the_two_latest():
    even = dict.fromkeys((c for c in range(C) if c not in (RARE, OTHER, 5)), 30)
    few = {RARE: 4, OTHER: 4, 5: 4}
    holdings = {v: {**even, **few} for v in "bcdgh"}
    fleet = World({**holdings, "a": {**even, RARE: 100}, "e": {**even, OTHER: 100}, "f": {**even, 5: 100}})
    server = tracker(variant="duo", watch=(RARE, OTHER, 5), most_references=3)
    play(fleet, server, "abcdefgh", "abcdefgh")
    for there, gone in (("abcdefgh", "a"), ("bcdefgh", ""), ("bcdefgh", "e"), ("bcdfgh", ""), ("bcdfgh", "f")):
        play(fleet, server, there, leaving=list(gone))
    first, second = server.state.views.kept
    assert (first.round, second.round, sorted(server.state.views.between)) == (5, 7, [(5, 7)])
    assert server.models_needed == (3, 5, 7)
    (outcome,) = play(fleet, server, "bcdgh")
    assert (outcome.references, outcome.readout.departed) == ((5, 7), (RARE, OTHER, 5))
    assert outcome.readout.known[RARE], "the later views know where it was tracked to"
