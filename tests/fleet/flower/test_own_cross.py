"""The method "mpt-x" in a user's own Flower app: the server keeps and sends models, vehicles keep features."""

import numpy as np
import pytest

pytest.importorskip("flwr", reason="the extra fleet is not installed")

from flwr.app import ArrayRecord, RecordDict

from mpt.fleet import FleetError, Tracker, open_store
from mpt.fleet.flower.records import FEATURES, REFERENCE
from mpt.fleet.flower.tracking import Tracking, ask_statistics
from mpt.fleet.reference_models import ReferenceModels
from tests.fleet.flower.grids import identified
from tests.fleet.flower.test_tracking import NAMES, App, model
from tests.tracking.fleets import RARE, paper_fleet, tracker

GONE, ROUNDS = 3, 7
"""Vehicle a is there up to round 3; its class is referred to from round 4 on, cross moments come from round 5 on."""


@pytest.fixture(autouse=True)
def _identity(monkeypatch):
    identified(monkeypatch)


def cross(**settings):
    return tracker("cross", grace=1, watch=(RARE,), **settings)


def alone(rounds, lacking=None):
    """The same story without Flower; `lacking` by round are the vehicles that do not have the reference model."""
    fleet, server = paper_fleet(), cross()
    for number in range(1, rounds + 1):
        there = NAMES if number <= GONE else NAMES[1:]
        answers = fleet.cross_answers(server.question(), there, (lacking or {}).get(number, ()))
        outcome = server.close({str(10 + NAMES.index(v)): answer for v, answer in answers.items()})
    return server, outcome


def played(tracking, grid, rounds, before=lambda number: None):
    for number in rounds:
        before(number)
        if number > GONE:
            grid.offline.add(10)
        tracking(1, model(number))
    return tracking.outcome


def with_models(grid):
    """By round, the nodes that got models with the question, and of which rounds."""
    sent = {}
    for message in grid.sent:
        names = [n.removeprefix(REFERENCE) for n in message.content.array_records if n.startswith(REFERENCE)]
        if names:
            number = message.content["mpt.ask"]["round"]
            sent.setdefault(number, {})[message.metadata.dst_node_id] = sorted(map(int, names))
    return sent


def test_it_is_what_the_tracker_alone_makes():
    grid, logged = App().grid(), []
    tracking = Tracking(grid, cross(), log=logged.extend)
    found = played(tracking, grid, range(1, ROUNDS + 1))
    server, expected = alone(ROUNDS)
    assert np.array_equal(found.prototypes, expected.prototypes)
    assert found.reconstructions[RARE].verdict == expected.reconstructions[RARE].verdict
    assert "referenced" in [d.what for d in logged]
    assert tuple(tracking.models.kept) == tracking.tracker.models_needed == server.models_needed == (GONE, ROUNDS)
    assert not any("cross" in problem for problem in found.problems)
    assert with_models(grid) == {}
    kept = grid.contexts[11].state[FEATURES]
    assert isinstance(kept, ArrayRecord)
    assert len(kept) == 3


def test_a_vehicle_that_lacks_the_model_gets_it_with_the_next_question():
    grid = App().grid()

    def forget(number):
        if number == 5:
            grid.contexts[11].state = RecordDict()

    tracking = Tracking(grid, cross())
    found = played(tracking, grid, range(1, 6), forget)
    expected = alone(5, {5: "b"})[1]
    assert np.array_equal(found.prototypes, expected.prototypes)
    assert not np.array_equal(found.prototypes[RARE], alone(5)[1].prototypes[RARE])
    assert tracking.tracker.lacking == {"11": (GONE,)}
    assert np.array_equal(played(tracking, grid, [6]).prototypes, alone(6)[1].prototypes)
    assert with_models(grid) == {6: {11: [GONE]}}
    assert tracking.tracker.lacking == {}


@pytest.mark.parametrize("place", ["state", "sqlite:fleet.db"])
@pytest.mark.parametrize("last", [3, 5])
def test_one_that_resumes_from_its_store_makes_the_same(place, last, tmp_path, monkeypatch):
    """Vehicles have lost what they kept, as in a new run of Flower: everybody gets the models once more."""
    monkeypatch.chdir(tmp_path)
    grid = App().grid()
    played(Tracking(grid, cross(), store=open_store(place)), grid, range(1, last + 1))
    grid, store = App().grid(), open_store(place)
    again = Tracking(grid, Tracker.from_bytes(store.latest().payload["tracker"]), store=store)
    found = played(again, grid, range(last + 1, ROUNDS + 1))
    assert np.array_equal(found.prototypes, alone(ROUNDS)[1].prototypes)
    assert with_models(grid) == {last + 1: dict.fromkeys((11, 12, 13), sorted({GONE, last}))}


@pytest.mark.parametrize("change", ["labels", "keys"])
def test_of_other_samples_nothing_is_recalled(change):
    """Samples that are replaced are known by their labels or, where these are the same, by keys that embed gives."""
    user = App()
    grid, right, version = user.grid(), user.embed, {11: 0}

    def embed(arrays, context):
        features, labels = right(arrays, context)
        other = version.get(context.node_id, 0)
        if change == "labels" and other:
            return features[::-1], labels[::-1]
        return features + other, labels, [f"{other}/{i}.png" for i in range(len(labels))]

    user.embed = embed
    tracking = Tracking(grid, cross())
    played(tracking, grid, range(1, 6), lambda number: version.update({11: int(number >= 5)}))
    assert tracking.tracker.lacking == {"11": (GONE,)}
    whole = played(tracking, grid, [6])
    assert whole.reconstructions[RARE].verdict is not None
    assert with_models(grid) == {6: {11: [GONE]}}
    assert (tracking.tracker.lacking, whole.problems) == ({}, ())


def test_samples_in_another_order_under_a_reference_model_are_an_error():
    user = App()
    grid, right, rng = user.grid(), user.embed, np.random.default_rng(0)

    def embed(arrays, context):
        features, labels = right(arrays, context)
        order = rng.permutation(len(labels)) if context.node_id == 11 else slice(None)
        return features[order], labels[order]

    user.embed = embed
    tracking = Tracking(grid, cross())
    assert played(tracking, grid, range(1, 6)).problems == ()
    (problem,) = played(tracking, grid, [6]).problems
    assert "embed: other samples under a reference model, should be the same in the same order" in problem


@pytest.mark.parametrize("given", [0, (1,), ([[1.0]], [0], [None]), ([[1.0]], [0], ["a", "b"])])
def test_what_embed_must_give(given):
    user = App()
    user.embed = lambda *_: given
    *problems, _ = ask_statistics(user.grid(), tracker(), model(1)).problems
    assert len(problems) == 4
    assert all("embed: " in problem and "should " in problem for problem in problems)


def test_in_a_loop_of_ones_own_models_are_handed_on():
    grid, server, models = App().grid(), cross(), ReferenceModels()
    for number in range(1, ROUNDS + 1):
        if number > GONE:
            grid.offline.add(10)
        outcome = ask_statistics(grid, server, model(number), models=models)
    assert np.array_equal(outcome.prototypes, alone(ROUNDS)[1].prototypes)
    with pytest.raises(
        FleetError, match=r"models: none, should be a ReferenceModels\(\), the same in all rounds, for 'mpt-x'"
    ):
        ask_statistics(grid, server, model(8))


def test_by_another_method_nothing_is_kept(tmp_path):
    grid, store = App().grid(), open_store(tmp_path)
    tracking = Tracking(grid, tracker(grace=1, watch=(RARE,)), store=store)
    played(tracking, grid, range(1, 6))
    assert tracking.models.kept == {}
    assert sorted(store.latest().payload) == ["tracker"]
    assert FEATURES not in grid.contexts[11].state
