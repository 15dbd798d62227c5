"""Fleets in which anything may happen in any round."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mpt.fleet import Tracker
from tests.fleet.fleets import RARE, C, D, Fleet, paper_fleet, tracker

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
        waiting = any(roster.state(v) == "suspected" for v in one.owners)
        assert (c in state.held_out) != waiting
        assert all(roster.state(v) != "present" for v in one.owners)
    assert set(outcome.reconstructions) <= set(state.tracked)
    assert set(state.counts) == set(roster.having("present", "suspected"))
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


@pytest.mark.parametrize("variant", ["mpt", "lite"])
@settings(max_examples=40)
@given(st.lists(happening, min_size=1, max_size=12), st.integers(0, 2), st.integers(0, 11))
def test_nothing_that_vehicles_do_breaks_the_tracker(variant, story, grace, stop):
    fleet, server = paper_fleet(), tracker(grace=grace, variant=variant)
    other = server
    for number, events in enumerate(story):
        if number == stop:
            other = Tracker.from_bytes(server.to_bytes())
        outcome = play_round(fleet, server, events)
        check(server, outcome)
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
    server = Tracker(num_classes=C, dim=D, grace=2)
    tracked_for = 0
    for number in range(30):
        draws = rng.random(200)
        kinds = np.select([draws < 0.15, draws < 0.18, draws < 0.19, draws < 0.2], range(4), 4)
        names = np.array(["silent", "nonsense", "leaves", "left", "answers"])
        events = dict(zip(sorted(fleet.samples), names[kinds], strict=True))
        outcome = play_round(fleet, server, events)
        check(server, outcome)
        assert np.isfinite(outcome.prototypes).all()
        tracked_for += len(outcome.reconstructions)
        if number == 15:
            server = Tracker.from_bytes(server.to_bytes())
    assert tracked_for > 2
    features, labels = map(np.concatenate, zip(*(fleet.features(v, 30) for v in fleet.samples), strict=True))
    predicted = outcome.readout.predict(features)
    for c in set(range(C)) - outcome.reconstructions.keys():
        assert np.mean(predicted[labels == c] == c) > 0.8


def test_a_class_is_still_recognised_long_after_its_vehicle_has_left():
    fleet, server = paper_fleet(), tracker(grace=2)
    frozen = None
    for number in range(1, 15):
        outcome = server.close(fleet.answers(server.request(), "abcd" if number < 4 else "bcd"))
        frozen = outcome.prototypes[RARE] if number == 3 else frozen
    features, labels = fleet.features("a", 14)
    assert np.mean(outcome.readout.predict(features[labels == RARE]) == RARE) > 0.8
    truth = features[labels == RARE].mean(axis=0)
    assert np.linalg.norm(outcome.prototypes[RARE] - truth) < 0.7 * np.linalg.norm(frozen - truth)
