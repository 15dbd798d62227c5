"""mpt:blend on bytes: what it gives on the bench and on a fleet is the core's."""

import numpy as np
import pytest

import mpt
from mpt.core.blending import blend
from mpt.methods import find_method, find_on_fleet
from mpt.tracking import Tracker

from ..tracking.fleets import Fleet as Drifting
from .fleet import CLASSES, RARE, Fleet

METHOD = find_method("mpt:blend")
EVEN = {c: 40 for c in range(CLASSES) if c != RARE}


def expected(fleet):
    """The core's from the samples themselves."""

    def stats(features, rows):
        return mpt.ClassStatistics.from_features(features[rows], fleet.labels[rows], CLASSES, watched=RARE)

    staying = fleet.owner != 3
    deposit = mpt.deposit(stats(fleet.before, slice(None)), RARE, staying=stats(fleet.before, staying))
    return blend(deposit, stats(fleet.after, staying))


@pytest.mark.parametrize("remaining", [0, 6])
def test_it_is_the_cores(remaining):
    fleet = Fleet(drift=0.3, remaining=remaining)
    outcome, now = fleet.run(METHOD)
    rec = expected(fleet)
    np.testing.assert_allclose(outcome, rec.prototype, atol=1e-3)
    assert now.notes["alpha"] == pytest.approx(rec.alpha, abs=1e-3)
    assert now.notes["remaining"] == remaining
    assert now.cost.messages == 1


def test_where_nothing_moved_it_is_frozen():
    fleet = Fleet(remaining=0)
    frozen, _ = fleet.run(find_method("frozen"))
    np.testing.assert_allclose(fleet.run(METHOD)[0], frozen, atol=1e-4)
    assert np.linalg.norm(fleet.run(find_method("mpt"))[0] - frozen) > 0.05


def test_a_fleet_runs_it_on_merged_statistics_alone():
    found = find_on_fleet("mpt:blend", ridge=0.2)
    assert found.speaks is None
    assert found.sums.name == "mpt:blend"
    assert found.asks == find_on_fleet("mpt").asks
    assert found.sums.ridge == 0.2


def test_a_tracker_runs_it_round_by_round():
    """Announced leaving: the first rounds without the vehicle move the prototype no further than training moved it."""
    fleet = Drifting({"a": {RARE: 60, **EVEN}, "b": EVEN, "c": {**EVEN, RARE: 2}}, num_classes=CLASSES)
    tracker = Tracker(num_classes=CLASSES, dim=fleet.dim, method="mpt:blend", watch=(RARE,))
    for number in range(1, 6):
        here = ("a", "b", "c") if number <= 3 else ("b", "c")
        outcome = tracker.close(fleet.answers(tracker.question(), here), ["a"] if number == 3 else [])
    assert outcome.problems == ()
    made = outcome.reconstructions[RARE]
    assert made.samples == 2
    assert 0 < made.alpha < 0.5
    rows, labels = fleet.features("a", 5)
    truth = rows[labels == RARE].mean(axis=0)
    before = fleet.features("a", 3)[0][labels == RARE].mean(axis=0)
    assert np.linalg.norm(made.prototype - truth) < np.linalg.norm(before - truth)
