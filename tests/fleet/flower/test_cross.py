"""The method "mpt-x" over Flower's messages: vehicles keep features in their context, and nowhere else."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra sim is not installed")
pytest.importorskip("flwr", reason="the extra fleet is not installed")

from flwr.app import ArrayRecord, RecordDict

from mpt.data import load
from mpt.fleet import Tracker
from mpt.fleet.exchange import Ask
from mpt.fleet.flower.config import AppConfig
from mpt.fleet.flower.records import FEATURES, ask_content, read_ask
from mpt.fleet.flower.server_app import prepare, server_of
from mpt.fleet.flower.vehicle_app import vehicle_app
from mpt.fleet.local import LocalTransport
from mpt.fleet.local_data import shared
from mpt.fleet.server import Server
from mpt.fleet.vehicle import Vehicle, arrays
from tests.fleet.flower.grids import DirectGrid, identified
from tests.fleet.served import answering

VEHICLES, TRUCK, ROUNDS = 4, 2, 4
SETTINGS = {
    "dataset": "road?train=40&test=20",
    "image_size": 28,
    "batch_size": 16,
    "remaining": 0.1,
    "watch": "truck",
    "events": f"leave {VEHICLES - 1} after 1",
    "vehicle_ids": "partition",
    "method": "mpt-x",
}


@pytest.fixture(autouse=True)
def _quiet(monkeypatch):
    identified(monkeypatch)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def over_flower(forget=()):
    """The server's rounds over the vehicles' app; before a round in `forget` vehicle 1 loses its context's state."""
    grid = DirectGrid(vehicle_app(**SETTINGS), VEHICLES, {p: {"num-partitions": VEHICLES} for p in range(VEHICLES)})
    config = AppConfig(**SETTINGS)
    server = server_of(config, prepare(config), grid)
    for number in range(1, ROUNDS + 1):
        if number in forget:
            grid.contexts[11].state = RecordDict()
        yield from server.rounds(number)
    kept = grid.contexts[10].state[FEATURES]
    assert isinstance(kept, ArrayRecord)
    assert len(kept) == 3
    sent = [sorted(m.content.array_records) for m in grid.sent if m.metadata.dst_node_id == 11]
    assert sum(len(records) > 1 for records in sent) == len(forget)


def in_one_process():
    dataset = load(SETTINGS["dataset"], image_size=28)
    config = AppConfig(**SETTINGS)
    model = prepare(config).model
    vehicles = {}
    for v in range(VEHICLES):
        held = shared(dataset, v, VEHICLES, rare="truck", remaining=0.1, seed=0)
        vehicle = Vehicle(str(v), prepare(config).model, held, config.training)
        vehicles[str(v)] = answering(vehicle, leaves_after=1 if v == VEHICLES - 1 else None)
    tracker = Tracker(num_classes=8, dim=model.dim, watch=(TRUCK,), method="mpt-x")
    return Server(model, arrays(model.state_dict()), tracker, LocalTransport(vehicles)).rounds(ROUNDS)


def test_it_is_the_same_fleet():
    for found, expected in zip(over_flower(), in_one_process(), strict=True):
        np.testing.assert_array_equal(found.outcome.prototypes, expected.outcome.prototypes)
    assert found.outcome.reconstructions[TRUCK].verdict is not None


def test_a_vehicle_that_was_restarted_gets_the_model_again():
    rounds, undisturbed = list(over_flower(forget=[3])), list(in_one_process())
    samples = [f.outcome.reconstructions[TRUCK].samples for f in rounds[1:]]
    assert samples[0] == samples[2] > samples[1]
    np.testing.assert_array_equal(rounds[3].outcome.prototypes, undisturbed[3].outcome.prototypes)


def test_a_question_with_reference_models_comes_back():
    model = {"weight": np.arange(6, dtype=np.float32).reshape(2, 3), "seen": np.array(7)}
    earlier = {name: array + 1 for name, array in model.items()}
    ask = Ask(
        "report", 9, model, request=b"request", keep=True, references={4: "ab", 2: "cd"}, models={4: earlier},
        wanting=frozenset({"node 1"}),
    )  # fmt: skip
    back = read_ask(ask_content(ask.to("node 1")), "report")
    assert (back.keep, back.references, back.models.keys()) == (True, {4: "ab", 2: "cd"}, {4})
    assert all(np.array_equal(back.models[4][k], v) for k, v in earlier.items())
    other = read_ask(ask_content(ask.to("node 2")), "report")
    assert (other.keep, other.references, other.models) == (True, {4: "ab", 2: "cd"}, {})


def test_both_models_are_read_and_evaluated_over_flower():
    """The method "mpt-duo": features of validation samples are kept in the context as well."""
    chosen = {**SETTINGS, "method": "mpt-duo", "evaluate_every": 1, "validation": 0.4, "seed": 0}
    grid = DirectGrid(vehicle_app(**chosen), VEHICLES, {p: {"num-partitions": VEHICLES} for p in range(VEHICLES)})
    config = AppConfig(**chosen)
    rounds = list(server_of(config, prepare(config), grid).rounds(ROUNDS))
    assert [f.outcome.references for f in rounds] == [(), (1,), (1,), (1,)]
    assert [(f.evidence.vehicles, f.evidence.alone) for f in rounds[1:]] == [(VEHICLES - 1, 0)] * 3
    reports = [m for m in grid.sent if read_ask(m.content, "report").aside]
    assert reports
    assert len(grid.contexts[10].state[FEATURES]) == 3
