"""A server and its vehicles in one process, for tests: four of them, of which the last holds the trucks."""

import pytest

pytest.importorskip("torch", reason="the extra sim is not installed")

from mpt.fleet import Tracker
from mpt.fleet.exchange import Failure
from mpt.fleet.local import LocalTransport
from mpt.fleet.local_data import shared
from mpt.fleet.policy import RoundPolicy
from mpt.fleet.server import Server
from mpt.fleet.vehicle import Vehicle, arrays
from mpt.learning import TrainingSettings, build

TRUCK, VEHICLES, OWNER = 2, 4, 3
AS_TRAINED = {"epochs": 1, "batch_size": 16}
"""The same for a `Plan`."""
TRAINING = TrainingSettings(**AS_TRAINED)


def fresh(dataset):
    return build("cnn3", num_classes=dataset.num_classes, in_channels=3, image_size=28, seed=0)


def server(dataset, answers, method="mpt", **given):
    model = fresh(dataset)
    tracker = Tracker(num_classes=dataset.num_classes, dim=model.dim, watch=(TRUCK,), grace=1, method=method)
    transport = answers if isinstance(answers, LocalTransport) else LocalTransport(answers)
    given = {"policy": RoundPolicy(timeout=0.2, max_attempts=2), **given}
    return Server(model, arrays(model.state_dict()), tracker, transport, **given)


def answering(vehicle, *, leaves_after=None):
    """What answers for a vehicle that may leave after a round."""

    def answer(ask):
        if leaves_after is not None and ask.round > leaves_after:
            return Failure("it has left")
        return vehicle.answer(ask, leaving=ask.kind == "report" and ask.round == leaves_after)

    return answer


def everybody(vehicles, **changed):
    """All vehicles by node, some of them with other answers; the owner leaves after round 2."""
    made = {f"node {v.name}": answering(v, leaves_after=2 if v.name == str(OWNER) else None) for v in vehicles}
    return made | {f"node {name[1:]}": answer for name, answer in changed.items()}


def new_vehicles(dataset):
    model = fresh(dataset)
    held = [shared(dataset, v, VEHICLES, rare="truck", remaining=0.1, seed=0) for v in range(VEHICLES)]
    return [Vehicle(str(v), model, samples, TRAINING) for v, samples in enumerate(held)]
