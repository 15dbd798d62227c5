"""Evaluations on Flower: who sets what aside, what is said of a round, and vehicles of an older release."""

import json

import pytest

torch = pytest.importorskip("torch", reason="the extra sim is not installed")
pytest.importorskip("flwr", reason="the extra fleet is not installed")

from flwr.clientapp import ClientApp

from mpt.fleet import FleetError
from mpt.fleet.flower.config import AppConfig, examined
from mpt.fleet.flower.server_app import serve
from mpt.fleet.flower.vehicle_app import answer, vehicle_app, vehicle_of
from mpt.fleet.leave import LeaveFile
from mpt.fleet.node import NodeConfig
from mpt.fleet.status import read_status
from mpt.fleet.store import open_store
from tests.fleet.flower.grids import DirectGrid, identified

SETTINGS = {"dataset": "road?train=12&test=4", "image_size": 28, "num_rounds": 2, "timeout": 1.0}
EVALUATED = {**SETTINGS, "evaluate_every": 2, "validation": 0.25}

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(autouse=True)
def _identity(monkeypatch):
    identified(monkeypatch)


def older_app(**defaults):
    """As the release before has it: it does not know evaluations, and passes over their settings."""
    made = ClientApp()
    made.train()(lambda message, context: answer(message, context, "train", defaults))
    made.query("class_stats")(lambda message, context: answer(message, context, "report", defaults))
    return made


def run(state, app, node=None, **changed):
    parts = {p: {"num-partitions": 2, **(node or {}).get(p, {})} for p in range(2)}
    serve(AppConfig(**{**EVALUATED, "state": str(state), **changed}), DirectGrid(app, 2, parts))
    return [json.loads(line) for line in (state / "rounds.jsonl").read_text().splitlines()]


def test_a_round_that_is_evaluated_says_so_and_a_vehicle_has_its_own_limit(tmp_path):
    first, second = run(tmp_path, vehicle_app(**EVALUATED), node={1: {"validation": 0}})
    assert "recall" not in first
    held = [vehicle_of(AppConfig(**EVALUATED), NodeConfig(partition_id=p, num_partitions=2)) for p in range(2)]
    there = torch.bincount(held[0].validation.labels, minlength=8).tolist()
    assert [one["samples"] for one in second["recall"].values()] == there
    status = read_status(open_store(tmp_path))
    assert (status.evidence_round, status.evidence_vehicles, status.problems) == (2, 2, ())
    assert {c.name: c.recall.right for c in status.classes} == {c: r["right"] for c, r in second["recall"].items()}


def test_a_vehicle_sets_the_same_samples_aside_every_time():
    node = NodeConfig(partition_id=1, num_partitions=2)
    whole, twice = (
        vehicle_of(AppConfig(**SETTINGS), node),
        [vehicle_of.__wrapped__(AppConfig(**EVALUATED), node) for _ in range(2)],
    )
    assert torch.equal(twice[0].validation.images, twice[1].validation.images)
    assert len(whole.validation.labels) == 0
    parts = torch.cat([twice[0].samples.labels, twice[0].validation.labels])
    assert torch.equal(parts.sort().values, whole.samples.labels.sort().values)
    less = vehicle_of(AppConfig(**EVALUATED), NodeConfig(partition_id=1, num_partitions=2, validation=0.1))
    assert 0 < len(less.validation.labels) < len(twice[0].validation.labels)


def test_vehicles_of_an_older_release_fail_in_the_evaluation_alone(tmp_path):
    _, second = run(tmp_path, older_app(**SETTINGS))
    assert (second["updated"], second["answered"]) == (2, 2)
    assert "recall" not in second
    status = read_status(open_store(tmp_path))
    assert {v.state for v in status.vehicles} == {"present"}
    assert status.evidence_round is None
    assert any(problem.startswith("evaluate: vehicle") for problem in status.problems)


def test_whoever_is_to_leave_does_not_say_so_in_an_evaluation(tmp_path):
    """It was asked to between the report and the evaluation: the next round hears it."""
    file = LeaveFile(tmp_path / "leave")
    file.stays()
    app, state = vehicle_app(**EVALUATED), tmp_path / "state"

    def asked_late(message, context):
        evaluation = message.metadata.message_type == "query.evaluation"
        if evaluation and context.node_config["partition-id"] == 1:
            file.ask()
        reply = app(message, context)
        assert not (evaluation and reply.content["mpt.reply"]["leaving"])
        return reply

    run(state, asked_late, node={1: {"leave-file": str(file.path)}})
    assert (file.asked, file.done) == (True, False)
    assert read_status(open_store(state)).evidence_vehicles == 2


def test_settings():
    assert examined({"evaluate-every": 3})[1] == ["validation = 0.0, should be above 0 where evaluate-every is"]
    assert examined({"evaluate-every": 3, "validation": 0.2})[1] == []
    assert examined({"evaluate-every": 3, "validation": 0.7})[1] == [
        "validation = 0.7, should be at least 0 and at most 0.5"
    ]
    for wrong in (True, "a fifth", 1, -0.1):
        with pytest.raises(FleetError, match=r"validation = .*, should be a number from 0 to below 1"):
            NodeConfig.of({"validation": wrong})


def test_a_fleet_may_begin_to_evaluate_when_it_is_resumed(tmp_path):
    run(tmp_path, vehicle_app(**SETTINGS), evaluate_every=0, validation=0.0, num_rounds=1)
    assert run(tmp_path, vehicle_app(**EVALUATED))[-1]["recall"].keys() == {
        c.name for c in read_status(open_store(tmp_path)).classes
    }
