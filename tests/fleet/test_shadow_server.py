"""Shadow mode on the packaged server: it trains what a server trains that tracks nothing, until a class is approved."""

import pytest

pytest.importorskip("torch", reason="the extra sim is not installed")

from mpt.fleet import Tracker
from mpt.fleet.exchange import fingerprint
from mpt.fleet.operate import approve
from mpt.fleet.server import differing
from mpt.fleet.store import FileStore
from tests.fleet.served import TRUCK, everybody, new_vehicles, server

pytestmark = pytest.mark.usefixtures("one_thread")


def tracker(dataset, **settings):
    return Tracker(num_classes=dataset.num_classes, dim=128, grace=1, **settings)


def test_it_trains_the_same_bits_until_a_class_is_approved(dataset, tmp_path):
    """The trucks' owner leaves after round 2; they are approved after round 3, read in round 4, held out of round 5."""
    untracked = server(dataset, everybody(new_vehicles(dataset)))
    untracked.tracker = tracker(dataset, most_watched=0)
    plain = [fingerprint(finished.model) for finished in untracked.rounds(5)]
    assert untracked.tracker.state.tracked == {}

    store, decisions, models = FileStore(tmp_path), [], []
    shadowed = server(dataset, everybody(new_vehicles(dataset)), store=store, log=decisions.extend)
    shadowed.tracker = tracker(dataset, shadow=True, watch=(TRUCK,))
    for finished in shadowed.rounds(5):
        models.append(fingerprint(finished.model))
        if finished.round == 2:
            assert finished.outcome.decisions[-1].what == "shadowed"
        if finished.round == 3:
            approve(store, [str(TRUCK)])
    assert [models[i] == plain[i] for i in range(5)] == [True, True, True, True, False]
    of_trucks = [(d.round, d.what) for d in decisions if d.classes == (TRUCK,)]
    assert [one for one in of_trucks if one[0] > 2 and one[1] != "verdict"] == [(4, "approved"), (4, "held-out")]

    again = server(dataset, everybody(new_vehicles(dataset)), store=store)
    assert again.resume() == 5
    assert again.tracker.held_out == again.tracker.state.approved == (TRUCK,)


def test_a_state_from_before_there_was_shadow_mode_is_not_in_it():
    said = "store: it holds a fleet with shadow False, not True: give another state folder, or the same settings"
    assert differing({}, {"shadow": True}) == said
    assert differing({}, {"shadow": False}) == differing({"shadow": True}, {"shadow": True}) == ""
