"""Fleets in which anything may happen in any round; without the gate, which has tests of its own."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mpt
from mpt.fleet import Tracker
from tests.tracking.fleets import METHOD, RARE, C, D, Fleet, paper_fleet, tracker

kinds = st.sampled_from(["answers", "silent", "leaves", "left", "nonsense"])
happening = st.fixed_dictionaries(dict.fromkeys("abcd", kinds))


def play_round(fleet, server, events):
    answers = fleet.answers(server.request(), [v for v, e in events.items() if e in ("answers", "leaves")])
    answers |= {v: b"nonsense" for v, e in events.items() if e == "nonsense"}
    return server.close(answers, leaving=[v for v, e in events.items() if e in ("leaves", "left")])


def check(server, outcome):
    """What holds after any round."""
    state = server.state
    roster = state.roster
    assert set(state.held_out) <= set(state.tracked) <= set(state.watch.since)
    for c, one in state.tracked.items():
        waiting = any(roster.state(v) in ("suspected", "refused") for v in one.owners)
        assert (c in state.held_out) != waiting
        assert all(roster.state(v) != "present" for v in one.owners)
    assert set(outcome.reconstructions) <= set(state.tracked)
    assert set(state.counts) == set(roster.having("present", "suspected", "refused"))
    if state.snapshot is not None:
        assert len(state.snapshot.holders) <= 2 * len(state.snapshot.everybody.watched)
        if outcome.answered:
            total = sum(state.counts.get(v, 0) for v in outcome.answered)
            present = set(outcome.answered) <= set(state.counts)
            assert not present or np.array_equal(outcome.statistics.counts, total)
    rows = np.isfinite(outcome.prototypes)
    assert np.array_equal(rows.all(axis=1), rows.any(axis=1))
    assert np.array_equal(rows.all(axis=1), state.made >= 0)
    if outcome.statistics is not None:
        assert rows[outcome.statistics.counts > 0].all()
    assert all("\n" not in str(d) for d in outcome.decisions)


def by_hand(history, roster, one, release):
    """A deposit from all that every vehicle has reported, of which the tracker keeps next to nothing."""
    watched, stats = history[one.round]
    before = mpt.ClassStatistics.merge(stats.values())
    holders = {
        v for v, s in stats.items() for c in watched if s.counts[c] and s.counts[c] >= release * before.counts[c]
    }
    staying = [s for v, s in stats.items() if v not in holders or roster.state(v) == "present"]
    return mpt.deposit(before, one.departed, staying=mpt.ClassStatistics.merge(staying))


def forecast(deposit, stats, variant):
    made = mpt.reconstruct(deposit, stats, variant=variant)
    return made.in_span + made.predicted


def with_silent_ones(history, roster, one, request, variant):
    """This round's reports, and the samples that suspected vehicles had, all at their mean, moved by the forecast."""
    c, merge = one.departed, mpt.ClassStatistics.merge
    reports = [*history[request.round][1].values()]
    there = forecast(one.deposit, merge(reports), variant)
    for v in roster.having("suspected"):
        last = max(r for r, (_, stats) in history.items() if v in stats)
        if last >= one.since and history[last][1][v].counts[c]:
            before = merge(history[last][1].values())
            mine = history[last][1][v]
            moved = mine.means[c] + there - forecast(one.deposit, before, variant)
            samples = [moved] * int(mine.counts[c])
            reports.append(
                mpt.ClassStatistics.from_features(
                    samples,
                    [c] * len(samples),
                    request.num_classes,
                    watched=request.watched,
                    span=request.span,
                    origin=request.origin,
                    scatter=request.scatter,
                )
            )
    return merge(reports)


def check_reconstructions(server, outcome, history, request):
    """Each is the core's, from all that was reported."""
    variant = {method: variant for variant, method in METHOD.items()}[server.settings.method]
    for c, made in outcome.reconstructions.items():
        one = server.state.tracked[c]
        stats = with_silent_ones(history, server.state.roster, one, request, variant)
        expected = mpt.reconstruct(one.deposit, stats, variant=variant)
        np.testing.assert_allclose(made.prototype, expected.prototype, rtol=1e-10, atol=1e-10)
        assert (made.samples, made.alpha) == (expected.samples, pytest.approx(expected.alpha, abs=1e-10))


def two_on_one():
    """Two classes hang on "a", another one on "b"."""
    even = {0: 12, 1: 12, 2: 12}
    return Fleet({v: {**even, 3: 1} for v in "cd"} | {"a": {**even, 3: 40, 4: 40}, "b": {0: 5, 5: 30, 4: 15}})


@pytest.mark.parametrize("variant", ["mpt", "lite"])
@pytest.mark.parametrize("make", [paper_fleet, two_on_one])
@settings(max_examples=40)
@given(st.lists(happening, min_size=1, max_size=12), st.integers(0, 2), st.integers(0, 11))
def test_nothing_that_vehicles_do_breaks_the_tracker(make, variant, story, grace, stop):
    """And every deposit is the core's from all reports, every reconstruction the core's from these and the samples of
    suspected vehicles, moved; and a restored tracker does the same."""
    fleet, server, history = make(), tracker(grace=grace, variant=variant, gate=False), {}
    other = server
    for number, events in enumerate(story):
        if number == stop:
            other = Tracker.from_bytes(server.to_bytes())
        request = server.request()
        outcome = play_round(fleet, server, events)
        check(server, outcome)
        answers = fleet.answers(request, outcome.answered)
        history[request.round] = request.watched, {v: request.read(a) for v, a in answers.items()}
        for one in server.state.tracked.values():
            if one.since == request.round:
                expected = by_hand(history, server.state.roster, one, server.settings.release)
                for name in ("prototype", "weights", "residual", "reference", "covariance"):
                    mine, theirs = getattr(one.deposit, name), getattr(expected, name)
                    assert (mine is None) == (theirs is None)
                    if mine is not None:
                        np.testing.assert_allclose(mine, theirs, rtol=1e-10, atol=1e-10)
        check_reconstructions(server, outcome, history, request)
        if other is not server:
            again = play_round(fleet, other, events)
            assert again.decisions == outcome.decisions
            np.testing.assert_array_equal(again.prototypes, outcome.prototypes)
            assert other.to_bytes() == server.to_bytes()


def crowd(rng, vehicles, classes):
    """Two classes on one vehicle each but for a few samples, the others anywhere."""
    holdings = {f"{i:03}": {c: int(rng.integers(0, 6)) for c in range(2, classes)} for i in range(vehicles)}
    for c in (0, 1):
        holdings[f"{c:03}"][c] = 100
        for i in rng.choice(np.arange(2, vehicles), 4, replace=False):
            holdings[f"{i:03}"][c] = 1
    return Fleet(holdings, num_classes=classes, dim=D)


@pytest.mark.parametrize("seed", range(2))
def test_two_hundred_vehicles_of_which_a_fifth_fails_in_every_round(seed):
    rng = np.random.default_rng(seed)
    fleet = crowd(rng, 200, C)
    server = Tracker(num_classes=C, dim=D, grace=2, gate=False)
    history, tracked_for, remembered = {}, 0, 0
    for number in range(30):
        draws = rng.random(200)
        kinds = np.select([draws < 0.15, draws < 0.18, draws < 0.19, draws < 0.2], range(4), 4)
        names = np.array(["silent", "nonsense", "leaves", "left", "answers"])
        events = dict(zip(sorted(fleet.samples), names[kinds], strict=True))
        events |= {"000": "left"} if number > 15 else {}
        request = server.request()
        outcome = play_round(fleet, server, events)
        check(server, outcome)
        assert np.isfinite(outcome.prototypes).all()
        answers = fleet.answers(request, outcome.answered)
        history[request.round] = request.watched, {v: request.read(a) for v, a in answers.items()}
        check_reconstructions(server, outcome, history, request)
        tracked_for += len(outcome.reconstructions)
        remembered += sum(m.samples - outcome.statistics.counts[c] for c, m in outcome.reconstructions.items())
        if number == 15:
            server = Tracker.from_bytes(server.to_bytes())
    assert tracked_for >= 14
    assert remembered > 0
    features, labels = map(np.concatenate, zip(*(fleet.features(v, 30) for v in fleet.samples), strict=True))
    predicted = outcome.readout.predict(features)
    for c in set(range(C)) - outcome.reconstructions.keys():
        assert np.mean(predicted[labels == c] == c) > 0.8


def test_a_class_is_still_recognised_long_after_its_vehicle_has_left_and_would_not_be_where_it_was():
    recognised, frozen = [], []
    for seed in range(8):
        fleet, server = paper_fleet(seed=seed), tracker(grace=2)
        for number in range(1, 25):
            outcome = server.close(fleet.answers(server.request(), "abcd" if number < 4 else "bcd"))
            if number == 3:
                last_seen = outcome.prototypes[RARE]
        features, labels = fleet.features("a", 24)
        prototypes = outcome.prototypes.copy()
        prototypes[RARE] = last_seen
        left_there = mpt.NearestClassMean(prototypes, outcome.covariance, cov_ridge=server.settings.cov_ridge)
        for readout, shares in ((outcome.readout, recognised), (left_there, frozen)):
            shares.append(np.mean(readout.predict(features[labels == RARE]) == RARE))
    assert min(recognised) > 0.9
    assert np.mean(frozen) < 0.3
