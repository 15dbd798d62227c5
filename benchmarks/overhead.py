"""What MPT, MPT-lite and MPT-X add to a round of FedAvg, on this machine's CPU.

    python benchmarks/overhead.py [--backbones cnn3 mobilenetv3] [--images 1000] [--repeats 3]

The paper's scenario on `road`: 8 vehicles, one of which has left, about 1,000 images each, 5 local epochs. FedAvg is
local training and averaging. A method adds the forward pass in which vehicles re-embed their images with the new model,
the statistics that they make of the features and send, and the server's work: reading, merging, reconstructing. All of
it is done by one machine, vehicles included. One epoch is trained and counted five times; what a method adds is
measured in the same round, interleaved, median of the repeats. "Without re-embedding" is for vehicles that have the
features anyway, from an evaluation say. MPT-X's vehicles keep the features that they made with the model of the
departure, in the first round after it; what they need not send again is sent here in every round.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from mpt.data import Dataset, load
from mpt.federation.background import few_threads
from mpt.federation.engine import Federation
from mpt.federation.plan import Plan
from mpt.federation.rounds import Exchange
from mpt.federation.state import FederationState
from mpt.federation.view import ServerView
from mpt.methods import Cost, Method

METHODS = ("mpt", "mpt-lite", "mpt-x")
EPOCHS = 5
LIMITS = (10, 2)
"""Percent with and without re-embedding, for cnn3."""
CPU = torch.device("cpu")


class Took(NamedTuple):
    """Wall-clock seconds, and those of all cores together, which suffer less from what else the machine does."""

    wall: float
    cores: float


def timed(what: Callable[..., Any], *arguments: Any) -> tuple[Took, Any]:
    """What it took, and the result."""
    start = time.perf_counter(), time.process_time()
    result = what(*arguments)
    return Took(time.perf_counter() - start[0], time.process_time() - start[1]), result


def departed(dataset: Dataset, backbone: str) -> tuple[Federation, FederationState]:
    """A federation whose vehicle has left after round 1."""
    plan = Plan(
        rare=dataset.class_index("truck"),
        methods=METHODS,
        backbone=backbone,
        rounds=100,
        depart_at=1,
        eval_every=1,
        epochs=1,
    )
    federation = Federation(dataset, plan, CPU)
    return federation, federation.advance(federation.start())[0]


def look(federation: Federation, state: FederationState, seen: ServerView, method: Method) -> tuple[Took, Cost]:
    """What a method takes of a round whose features are there, vehicles' and server's."""
    seen.exchange = Exchange(seen.exchange.locals, seen.exchange.leaving)
    cost = Cost()
    context = seen.context(seen.exchange.channel(cost))
    with few_threads(federation.model.dim):
        return timed(method.track, state.method_states[method.name], context)[0], cost


def measure(dataset: Dataset, backbone: str, repeats: int) -> None:
    """Print the lines of one backbone."""
    federation, state = departed(dataset, backbone)
    took: dict[str, list[Took]] = {name: [] for name in ("train", "embed", *METHODS)}
    costs: dict[str, Cost] = {}
    jobs = federation.jobs(state)
    for _ in range(repeats):
        train, trained = timed(federation.train, federation.model, list(jobs.values()))
        models = federation.trained(state, federation.made(jobs, trained)).models
        seen = federation._seen(state.round + 1, models, state.earlier)["held-out"]
        took["train"].append(Took(EPOCHS * train.wall, EPOCHS * train.cores))
        took["embed"].append(timed(seen.features.embed_vehicles, seen.here)[0])
        for method in federation.methods:
            mine, costs[method.name] = look(federation, state, seen, method)
            took[method.name].append(mine)
    print(f"\n{backbone}, d = {federation.model.dim}, limits for cnn3: {LIMITS[0]}% and {LIMITS[1]}%")
    for kind in Took._fields:
        middle = {name: statistics.median(getattr(one, kind) for one in all_of_it) for name, all_of_it in took.items()}
        print(f"  {kind}: {EPOCHS} epochs {middle['train']:.1f} s, re-embedding {middle['embed']:.2f} s")
        for name in METHODS:
            shares = [100 * part / middle["train"] for part in (middle["embed"] + middle[name], middle[name])]
            print(
                f"    {name:9s} statistics and reconstruction {1e3 * middle[name]:7.1f} ms; over FedAvg: "
                f"{shares[0]:.2f}% with re-embedding, {shares[1]:.2f}% without; up {costs[name].bytes_up / 1e6:.2f} MB",
                flush=True,
            )


def main() -> None:
    """Print all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backbones", nargs="+", default=["cnn3", "mobilenetv3"])
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    dataset = load(f"road?train={args.images}&test=10", image_size=32, seed=0)
    print(f"{dataset}, torch {torch.__version__}, {torch.get_num_threads()} threads")
    for backbone in args.backbones:
        measure(dataset, backbone, args.repeats)


if __name__ == "__main__":
    main()
