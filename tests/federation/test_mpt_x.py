"""MPT-X in whole federations: vehicles that come and go after the departure, and a run that is resumed."""

import pickle
from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra sim is not installed")

from mpt.core import NearestClassMean
from mpt.data import load
from mpt.federation.engine import Federation, run
from mpt.federation.lockstep import rounds

from .test_engine import PLAN, plain, without_seconds

PLAN_X = replace(PLAN, methods=("mpt-x", "mpt", "frozen"), rounds=6)


@pytest.fixture(scope="module")
def dataset():
    return load("road?train=40&test=20", image_size=28)


@pytest.fixture(scope="module")
def whole(dataset):
    return run(dataset, PLAN_X)


def costs(rows):
    return {row.round: row.cost.bytes_up for row in rows if row.method == "mpt-x"}


def test_what_does_not_change_is_sent_once(whole):
    sent = costs(whole)
    assert sent[3] > sent[4] == sent[5] == sent[6]


def test_vehicles_that_leave_return_or_join_after_the_departure_are_counted(dataset, whole):
    rows = run(dataset, replace(PLAN_X, events="leave 0 after 3, join 0 at 5"))
    sent, usual = costs(rows), costs(whole)
    assert sent[4] < usual[4]
    assert sent[5] > sent[6] == usual[6]
    distances = {r.method: r.prototype_distance for r in rows if r.round == 6}
    assert np.isfinite(list(distances.values())).all()
    assert distances["mpt-x"] < distances["frozen"]


def test_a_run_that_is_resumed_from_what_was_kept_gives_the_same_rows(dataset, whole):
    federation = Federation(dataset, PLAN_X, torch.device("cpu"))
    middle = next(state for state, _ in rounds(federation, federation.start()) if state.round == 4)
    resumed = replace(middle, method_states=pickle.loads(pickle.dumps(middle.method_states)))
    again = Federation(dataset, PLAN_X, torch.device("cpu"))
    new = [row for _, some in rounds(again, resumed) for row in some]
    assert list(map(without_seconds, new)) == [without_seconds(row) for row in whole if row.round > 4]


def test_only_a_class_that_is_gone_is_read_out_further_out(dataset, whole, monkeypatch):
    plan = replace(
        PLAN_X, methods=("mpt-x", "mpt-x:in-place", "oracle-train:outward"), readout=("mahalanobis", "cosine")
    )
    calls, outwards = [], NearestClassMean.outwards

    def noted(self, departed):
        calls.append(departed)
        return outwards(self, departed)

    monkeypatch.setattr(NearestClassMean, "outwards", noted)
    rows = run(dataset, plan)
    after = [row for row in rows if row.round > plan.depart_at]
    assert calls == [plan.rare] * len({row.round for row in after}) * 2
    one, other = ([row for row in rows if row.method == name] for name in ("mpt-x", "mpt-x:in-place"))
    assert [(r.prototype_distance, r.span_errors) for r in one] == [
        (r.prototype_distance, r.span_errors) for r in other
    ]
    cosine = [[plain(r.scores) for r in rows if r.readout == "cosine"] for rows in (one, other)]
    assert cosine[0] == cosine[1]
    before = [[plain(r.scores) for r in rows if r.round <= plan.depart_at] for rows in (one, other)]
    assert before[0] == before[1]
    mine = [plain(r.scores) for r in one if r.readout == "mahalanobis"]
    assert mine == [plain(r.scores) for r in whole if r.method == "mpt-x"]


def test_what_is_scored_is_the_readout_that_was_moved(dataset, monkeypatch):
    monkeypatch.setattr(NearestClassMean, "outwards", lambda self, c: self.with_prototypes(self.prototypes + 1e6))
    plan = replace(PLAN_X, methods=("mpt-x", "mpt-x:in-place"))
    after = [row for row in run(dataset, plan) if row.round > plan.depart_at]
    moved, in_place = ([plain(r.scores) for r in after if r.method == name] for name in plan.methods)
    assert all(one != other for one, other in zip(moved, in_place, strict=True))
