"""Every method on a fleet in one process, beside the same method on one machine."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra sim is not installed")

from mpt.core.two_views import JoinedViews
from mpt.federation.engine import Federation
from mpt.federation.plan import Plan
from mpt.fleet import FleetError, Tracker
from mpt.fleet.export import deployable
from mpt.fleet.local_data import samples
from mpt.fleet.status import read_status
from mpt.fleet.store import FileStore
from mpt.fleet.vehicle import load, tensors
from mpt.learning import embed
from mpt.methods import METHODS, find_method
from mpt.methods.method import Traits
from mpt.tracking.prototypes import readout_of
from tests.fleet.served import AS_TRAINED, TRUCK, VEHICLES, everybody, fresh, new_vehicles, server

ROUNDS = 4
pytestmark = pytest.mark.usefixtures("one_thread", "in_float32")

ALONE = {"oracle", "oracle-train", "oracle-train:duo", "oracle-train:outward", "live", "live:duo", "fedavg:live"}
"""They know what no server knows."""
STOPS = {"stop-at-departure"}
"""Their training ends; a fleet's does not."""
OTHER = {"mpt-lite:one-message"}
"""On a fleet last round's span, on one machine that of the round last read out: the departure's differ."""

NEAR = {"mpt-lite": 1e-2, "ccvr": 5e-2}
"""MPT-lite's span at the departure is everybody's, where one machine knows who stays; CCVR draws from covariances of a
few samples, whose null space is rounding's."""


@dataclass
class Noted:
    """A method of `mpt run`, and what it gave by round."""

    method: Any
    given: dict = field(default_factory=dict)

    def __getattr__(self, name):
        return getattr(self.method, name)

    def depart(self, context):
        return self.method.depart(context)

    def track(self, state, context):
        state, outcome = self.method.track(state, context)
        self.given[context.round] = outcome
        return state, outcome


def on_one_machine(dataset, method, rounds):
    """What the engine gives by round, with the global models of a fleet's rounds."""
    plan = Plan(
        rare=TRUCK, methods=(method.name,), vehicles=VEHICLES, remaining=0.1, rounds=ROUNDS, depart_at=2, eval_every=1,
        slow_every=1, **AS_TRAINED, engine="plain",
    )  # fmt: skip
    noted = Noted(method)
    federation = Federation(dataset, plan, torch.device("cpu"), methods=[noted])
    state = federation.start()
    for finished in rounds:
        jobs = federation.jobs(state)
        state, _ = federation.finish(state, federation.made(jobs, [tensors(finished.model)] * len(jobs)))
    return noted.given


def layers(readout):
    """Those of a readout of one view, or of several."""
    return readout.layers() if isinstance(readout, JoinedViews) else [readout.to_linear()]


@pytest.mark.parametrize("name", sorted(set(METHODS) - ALONE - STOPS - OTHER))
def test_it_gives_what_it_gives_on_one_machine(dataset, name):
    running = server(dataset, everybody(new_vehicles(dataset)), name)
    rounds = list(running.rounds(ROUNDS))
    method, near = find_method(name), NEAR.get(name, 1e-4)
    given = on_one_machine(dataset, method, rounds)
    assert sorted(given) == ([3, 4] if Traits.of(method).needs_departure else [1, 2, 3, 4])
    for finished in rounds:
        outcome = finished.outcome
        assert not [p for p in outcome.problems if not p.endswith("it has left")]
        expected = given.get(finished.round)
        if isinstance(expected, np.ndarray) and finished.round > 2:
            assert outcome.tracked == (TRUCK,)
            gap = np.linalg.norm(outcome.prototypes[TRUCK] - expected)
            assert gap < near * np.linalg.norm(expected)
        elif expected is not None and not isinstance(expected, np.ndarray):
            for (weight, bias), (right, offset) in zip(layers(outcome.readout), layers(expected), strict=True):
                assert np.linalg.norm(weight - right) < near * np.linalg.norm(right)
                assert np.allclose(bias, offset, atol=near * (1 + np.abs(offset[np.isfinite(offset)]).max()))
    assert (running.tracker.held_out == (TRUCK,)) == (method.training == "held-out")
    assert Tracker.from_bytes(running.tracker.to_bytes()).to_bytes() == running.tracker.to_bytes()


@pytest.mark.parametrize("name", sorted(ALONE))
def test_what_no_server_knows_is_refused(name):
    with pytest.raises(FleetError, match="no server knows"):
        Tracker(num_classes=3, dim=4, method=name)


@pytest.mark.parametrize("name", [*sorted(STOPS), "mpt(training='stopped')"])
def test_a_training_that_stops_is_refused(name):
    with pytest.raises(FleetError, match="stops at the departure; a fleet trains on"):
        Tracker(num_classes=3, dim=4, method=name)


@pytest.mark.parametrize("name", ["icarl", "ccvr"])
def test_a_readout_is_stored_shown_and_exported(dataset, name, tmp_path):
    model, store = fresh(dataset), FileStore(tmp_path)
    built = {"in_channels": model.in_channels, "image_size_used": model.image_size}
    key = {"backbone": "cnn3", "class_names": list(dataset.classes), **built}
    running = server(dataset, everybody(new_vehicles(dataset)), name, store=store, key=key)
    last = list(running.rounds(3))[-1]
    found = deployable(store)
    images = samples(dataset.test).images
    load(model, last.model)
    features = embed(model, images).double().numpy()
    with torch.no_grad():
        classes = found.deployed()(images).argmax(dim=1).numpy()
    assert np.mean(classes == last.outcome.readout.predict(features)) > 0.98
    assert found.metadata.tracked == ("truck",)
    status = read_status(store)
    (tracked,) = [c.tracked for c in status.classes if c.tracked is not None]
    assert tracked.state == "departed"
    again = server(dataset, everybody(new_vehicles(dataset)), name, store=store, key=key)
    assert again.resume() == 3
    np.testing.assert_array_equal(readout_of(again.tracker.state).weight, last.outcome.readout.weight)


def test_vehicles_train_as_the_method_says(dataset):
    """FedLC's loss, on a fleet and on one machine; it is another than without."""
    plan = Plan(
        rare=TRUCK, methods=("fedlc",), vehicles=VEHICLES, remaining=0.1, rounds=4, depart_at=2, eval_every=4,
        **AS_TRAINED, engine="plain",
    )  # fmt: skip
    federation = Federation(dataset, plan, torch.device("cpu"))
    state = federation.start()
    running = server(dataset, everybody(new_vehicles(dataset)), "fedlc")
    other = next(iter(server(dataset, everybody(new_vehicles(dataset)), "fedavg").rounds(1))).model
    for finished in running.rounds(3):
        state, _ = federation.advance(state)
        model = state.models["fedlc"].tensors
        assert max(np.abs(finished.model[k] - model[k].numpy()).max() for k in model) < 1e-4
        if finished.round == 1:
            assert np.abs(finished.model["head.weight"] - model["head.weight"].numpy()).max() < 1e-6
            assert np.abs(finished.model["head.weight"] - other["head.weight"]).max() > 1e-4
    assert running.tracker.held_out == ()


def test_a_method_that_raises_does_not_stop_the_fleet(dataset, tmp_path):
    path = tmp_path / "bad.py"
    path.write_text(
        "class Bad:\n"
        "    name, training, needs_departure = 'bad', 'held-out', True\n"
        "    def depart(self, context):\n        return context.prototype()\n"
        "    def track(self, state, context):\n        raise ValueError('no idea')\n"
        "class Unstorable(Bad):\n"
        "    def depart(self, context):\n        return open\n"
        "class Asks(Bad):\n"
        "    def track(self, state, context):\n        return state, context.total(print)\n"
    )
    for name, said in {"Bad": "ValueError: no idea", "Asks": "print: it is not declared to run on vehicles"}.items():
        last = list(server(dataset, everybody(new_vehicles(dataset)), f"{path}:{name}").rounds(3))[-1]
        assert any(said in problem and "as by mpt" in problem for problem in last.outcome.problems)
        assert last.outcome.tracked == (TRUCK,)
        assert np.isfinite(last.outcome.prototypes[TRUCK]).all()
    rounds = list(server(dataset, everybody(new_vehicles(dataset)), f"{path}:Unstorable").rounds(3))
    (decision,) = [d for finished in rounds for d in finished.outcome.decisions if d.what == "fallback"]
    assert "which cannot be stored" in decision.why
    assert rounds[-1].outcome.tracked == (TRUCK,)
