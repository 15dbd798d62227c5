"""Every method on a fleet in one process, beside the same method on one machine."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra sim is not installed")

from mpt.federation.engine import Federation
from mpt.federation.plan import Plan
from mpt.fleet import FleetError, Tracker
from mpt.fleet.local import LocalTransport
from mpt.fleet.server import Rules, Server
from mpt.fleet.vehicle import arrays, tensors
from mpt.methods import METHODS, find_method
from mpt.methods.method import Traits
from tests.fleet.served import TRAINING, TRUCK, VEHICLES, everybody, fresh, new_vehicles

ROUNDS = 4
pytestmark = pytest.mark.usefixtures("one_thread", "in_float32")

ALONE = {"oracle", "oracle-train", "oracle-train:outward", "live", "fedavg:live"}
"""They know what no server knows."""
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

    def depart(self, now):
        return self.method.depart(now)

    def track(self, kept, now):
        kept, outcome = self.method.track(kept, now)
        self.given[now.round] = outcome
        return kept, outcome


def served(dataset, method, answers, **given):
    model = fresh(dataset)
    tracker = Tracker(num_classes=dataset.num_classes, dim=model.dim, watch=(TRUCK,), grace=1, method=method)
    given = {"rules": Rules(wait=0.2, tries=2), **given}
    return Server(model, arrays(model.state_dict()), tracker, LocalTransport(answers), **given)


def on_one_machine(dataset, method, rounds):
    """What the engine gives by round, with the global models of a fleet's rounds."""
    plan = Plan(
        rare=TRUCK, methods=(method.name,), vehicles=VEHICLES, remaining=0.1, rounds=ROUNDS, depart_at=2, eval_every=1,
        slow_every=1, settings=TRAINING, engine="plain",
    )  # fmt: skip
    noted = Noted(method)
    federation = Federation(dataset, plan, torch.device("cpu"), methods=[noted])
    state = federation.start()
    for finished in rounds:
        state, _ = federation.finish(state, dict.fromkeys(federation.jobs(state), tensors(finished.model)))
    return noted.given


@pytest.mark.parametrize("name", sorted(METHODS.keys() - ALONE - OTHER))
def test_it_gives_what_it_gives_on_one_machine(dataset, name):
    server = served(dataset, name, everybody(new_vehicles(dataset)))
    rounds = list(server.rounds(ROUNDS))
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
            (weight, bias), (right, offset) = outcome.readout.to_linear(), expected.to_linear()
            assert np.linalg.norm(weight - right) < near * np.linalg.norm(right)
            assert np.allclose(bias, offset, atol=near * (1 + np.abs(offset[np.isfinite(offset)]).max()))
    assert (server.tracker.held_out == (TRUCK,)) == (method.training == "held-out")
    assert Tracker.from_bytes(server.tracker.to_bytes()).to_bytes() == server.tracker.to_bytes()


@pytest.mark.parametrize("name", sorted(ALONE))
def test_what_no_server_knows_is_refused(name):
    with pytest.raises(FleetError, match="no server knows"):
        Tracker(num_classes=3, dim=4, method=name)
