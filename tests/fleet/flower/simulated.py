"""Run by test_simulation.py: a simulation with Ray beside the one-machine engine; prints how far they are apart."""

import json
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from flwr.simulation import run_simulation

from mpt.data import load
from mpt.federation.engine import Federation
from mpt.federation.plan import Plan
from mpt.fleet.flower.server_app import server_app
from mpt.fleet.flower.vehicle_app import vehicle_app
from mpt.methods import Method
from mpt.methods.registry import find_method

ROUNDS, VEHICLES = 3, 8
DATASET = "road?train=40&test=20"
RAY = {"client_resources": {"num_cpus": 1, "num_gpus": 0}, "init_args": {"num_cpus": 2, "include_dashboard": False}}
SETTINGS = {
    "dataset": DATASET,
    "image_size": 28,
    "batch_size": 16,
    "remaining": 0.1,
    "watch": "truck",
    "num_rounds": ROUNDS,
    "events": f"leave {VEHICLES - 1} after 2",
    "vehicle_ids": "partition",
    "min_vehicles": VEHICLES,
}


@dataclass
class Noted:
    """A method, and the prototypes that it gave by round."""

    method: Method
    given: dict[int, Any]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.method, name)

    def track(self, state: Any, context: Any) -> Any:
        state, self.given[context.round] = self.method.track(state, context)
        return state, self.given[context.round]


def main() -> None:
    """Both, with one thread, as Ray's workers have."""
    torch.set_num_threads(1)
    name = sys.argv[2]
    finished, settings = [], SETTINGS | {"state": sys.argv[1], "method": name}
    run_simulation(
        server_app(finished.append, **settings), vehicle_app(**settings), num_supernodes=VEHICLES, backend_config=RAY
    )
    dataset = load(DATASET, image_size=28)
    method = Noted(find_method(name), {})
    plan = Plan(
        rare=dataset.class_index("truck"), methods=("mpt",), vehicles=VEHICLES, remaining=0.1, rounds=ROUNDS,
        depart_at=2, eval_every=1, epochs=1, batch_size=16, gate="on",
    )  # fmt: skip
    federation = Federation(dataset, plan, torch.device("cpu"), methods=[method])
    state, apart = federation.start(), []
    for one in finished:
        state, _ = federation.advance(state)
        seen = federation._seen(state.round, state.models, state.earlier)["held-out"]
        prototypes = np.array(seen.stats.means)
        given = method.given.get(one.round, prototypes[plan.rare])
        if isinstance(given, np.ndarray):
            prototypes[plan.rare] = given
            mine, theirs = one.outcome.prototypes, prototypes
        else:
            (mine, _), (theirs, _) = one.outcome.readout.to_linear(), given.to_linear()
        away = np.linalg.norm(mine - theirs, axis=1) / np.linalg.norm(theirs, axis=1)
        apart.append(float(away.max()))
    decisions = [(d.round, d.what) for one in finished for d in one.outcome.decisions]
    print(json.dumps({"apart": apart, "decisions": decisions, "updated": [one.updated for one in finished]}))


if __name__ == "__main__":
    main()
