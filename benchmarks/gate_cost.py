"""What the gate costs the server: its own seconds of a round with nobody hostile, with the gate and without it.

    OMP_NUM_THREADS=1 python benchmarks/gate_cost.py [--vehicles 10 50] [--methods mpt mpt-x] [--backbones cnn3]

The real server and real vehicles in one process, on the handwritten digits. The server's time is all of a round but
what vehicles take to answer: Flower's records are read, updates checked and averaged, answers checked, gated and
merged, prototypes, readout and checkpoint made. Two servers take turns, one with the gate and clipped updates, one
without both; the vehicle that holds most of a class has left before the first round that is timed. Seconds are one
core's, medians over the rounds; the share is the median of the rounds' ratios, less one.
"""

import argparse
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from mpt.data import load
from mpt.federation.partition import PartitionRequest, make_partition
from mpt.fleet import Tracker
from mpt.fleet.exchange import Ask, Failure, Reply
from mpt.fleet.flower.records import read_reply, reply_content
from mpt.fleet.local import LocalTransport, NodeAnswer
from mpt.fleet.local_data import samples
from mpt.fleet.policy import RoundPolicy
from mpt.fleet.server import Server
from mpt.fleet.store import FileStore
from mpt.fleet.vehicle import Vehicle, arrays
from mpt.learning import Samples, TrainingSettings, build, numpy_generator

RARE, LEAVES, IMAGES = "8", 3, 28
TRAINING = TrainingSettings(epochs=1, batch_size=16, lr=0.01)


@dataclass(frozen=True)
class Case:
    """One fleet."""

    backbone: str
    method: str
    vehicles: int
    rounds: int
    samples: int


@dataclass
class Clock:
    """Seconds that vehicles took so far."""

    seconds: float = 0.0


def fleet(case: Case, clock: Clock, gate: bool, folder: Path) -> Server:
    """A server and its vehicles, before the first round."""
    dataset = load("digits", image_size=IMAGES, say=lambda _: None)
    rare = dataset.class_index(RARE)
    request = PartitionRequest(dataset.train.labels, rare, case.vehicles, 0.1, numpy_generator(0, "partition"))
    parts, everything = make_partition("concentrate", request), samples(dataset.train)
    model = build(case.backbone, num_classes=10, in_channels=dataset.image_shape[2], image_size=IMAGES, seed=0)
    like = arrays(model.state_dict())

    def node(vehicle: Vehicle, leaves: bool) -> NodeAnswer:
        def answer(ask: Ask) -> Reply | Failure | None:
            start = time.process_time()
            goes = leaves and ask.kind == "report" and ask.round == LEAVES
            sent = reply_content(vehicle.answer(ask, leaving=goes))
            clock.seconds += time.process_time() - start
            return read_reply(sent, like, ask.largest_answer)

        return answer

    made = dict[str, NodeAnswer]()
    for number, held in parts.indices.items():
        at = torch.from_numpy(held[: case.samples] if number != parts.owner else held)
        own = Samples(everything.images[at], everything.labels[at])
        made[str(number)] = node(Vehicle(str(number), model, own, TRAINING, 0), number == parts.owner)
    transport = LocalTransport(made, lambda name, asked: name == str(parts.owner) and asked > LEAVES)
    tracker = Tracker(num_classes=10, dim=model.dim, method=case.method, watch=(rare,), gate=gate)
    policy = RoundPolicy(timeout=1, aggregation="clipped" if gate else "average")
    return Server(model, like, tracker, transport, policy, store=FileStore(folder))


def seconds(case: Case, gate: bool, folder: Path) -> Iterator[float]:
    """Of one server, round by round."""
    clock = Clock()
    rounds = fleet(case, clock, gate, folder).rounds(case.rounds)
    while True:
        start, before = time.process_time(), clock.seconds
        finished = next(rounds, None)
        if finished is None:
            return
        yield time.process_time() - start - (clock.seconds - before)


def run(case: Case) -> None:
    """Both servers by turns, and a line of the table."""
    with tempfile.TemporaryDirectory() as folder:
        servers = seconds(case, True, Path(folder) / "on"), seconds(case, False, Path(folder) / "off")
        pairs = np.array(list(zip(*servers, strict=True)))[LEAVES + 1 :]
    on, off = np.median(pairs, axis=0) * 1e3
    share = np.median(pairs[:, 0] / pairs[:, 1]) - 1
    print(
        f"| {case.backbone} | {case.method} | {case.vehicles} | {off:.0f} ms | {on:.0f} ms | {share:+.1%} |", flush=True
    )


def main() -> None:
    """See the head of this file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--vehicles", type=int, nargs="+", default=[10, 50])
    parser.add_argument("--methods", nargs="+", default=["mpt", "mpt-x"])
    parser.add_argument("--backbones", nargs="+", default=["cnn3"])
    parser.add_argument("--rounds", type=int, default=14)
    parser.add_argument("--samples", type=int, default=100, help="of a vehicle, at most")
    args = parser.parse_args()
    torch.set_num_threads(1)
    print("| backbone | method | vehicles | without the gate | with it | more |\n|---|---|---|---|---|---|")
    for backbone in args.backbones:
        for vehicles in args.vehicles:
            for method in args.methods:
                run(Case(backbone, method, vehicles, args.rounds, args.samples))


if __name__ == "__main__":
    main()
