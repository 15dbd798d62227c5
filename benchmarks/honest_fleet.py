"""Whether anybody honest is refused: a fleet that trains and reports as it should, however unevenly its samples lie.

    python benchmarks/honest_fleet.py [--vehicles 50] [--rounds 100] [--methods mpt] [--partitions even vehicle]

The real server and the real vehicles in one process train cnn3 on the handwritten digits, 12 images a vehicle, one
epoch a round. A fifth of the vehicles joins in round 20. Vehicle 0 drives at night: its pixels are divided by 8. The
vehicle that holds most of class 8, which is watched, says goodbye in round 40; mpt-x's cross moments begin there.

    even          every class split evenly
    dirichlet     every class in shares drawn from a symmetric Dirichlet distribution with concentration 0.1: some
                  vehicles have one image, or none
    concentrate   class 8 on one vehicle but for a tenth, all else even; `mpt partitions`
    vehicle       by who recorded an image: a run of images in the dataset's order, in which writers follow each other

"Answers" are reports that the tracker took, "updates" models that were averaged. Refused are both, by the server's
checks of replies and models and by the tracker's gate; what else went wrong is counted beside it. Seconds are one
core's.
"""

import argparse
import time
from collections import Counter
from collections.abc import Collection, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context

import numpy as np
import torch
from numpy.typing import NDArray

from mpt.core.validation import Ints
from mpt.data import Dataset, load
from mpt.federation.partition import Partition, PartitionRequest, make_partition
from mpt.fleet import Decision, Tracker
from mpt.fleet.exchange import Ask, Reply
from mpt.fleet.local import LocalTransport, NodeAnswer
from mpt.fleet.local_data import samples
from mpt.fleet.policy import RoundPolicy
from mpt.fleet.server import Server
from mpt.fleet.vehicle import Vehicle, arrays
from mpt.learning import Classifier, Samples, TrainingSettings, build, numpy_generator

METHODS = ("mpt", "mpt-lite:one-message", "mpt-x")
PARTITIONS = ("even", "dirichlet", "concentrate", "vehicle")
RARE, REMAINING, CONCENTRATION = "8", 0.1, 0.1
IMAGE_SIZE = 28
TRAINING = TrainingSettings(epochs=1, batch_size=16, lr=0.05)
NIGHT, DARKER = 0, 8
WRONG = ("refused", "quarantined", "failed", "late", "rejected", "short", "suspected")
"""Decisions that no honest fleet should see. That a class is lost with the vehicle that leaves is none of them."""


@dataclass(frozen=True)
class Case:
    """One fleet."""

    partition: str
    method: str
    vehicles: int = 50
    rounds: int = 100
    joining: int = 20
    leaving: int = 40
    per_class: int = 60
    seed: int = 0


@dataclass
class Seen:
    """What came of it.

    Attributes:
        answers, updates: that were taken.
        refusals: by reason, as the tracker counts them.
        wrong: decisions that should not be, by kind.
        whys: of the first of these.
        departed: vehicles, in order.
        tracked: classes with a deposit at the end.
        smallest: samples of the vehicle with fewest.
        seconds: of one core, that it took.
    """

    answers: int = 0
    updates: int = 0
    refusals: dict[str, int] = field(default_factory=dict)
    wrong: Counter[str] = field(default_factory=Counter)
    whys: list[str] = field(default_factory=list)
    departed: list[str] = field(default_factory=list)
    tracked: tuple[int, ...] = ()
    smallest: int = 0
    seconds: float = 0.0

    def log(self, decisions: Collection[Decision]) -> None:
        """Take a server's decisions."""
        for decision in decisions:
            if decision.what in WRONG:
                self.wrong[decision.what] += 1
                self.whys += [str(decision)] if len(self.whys) < 5 else []
            self.departed += [decision.vehicle] if decision.what == "departed" else []


def divided(case: Case, dataset: Dataset) -> Partition:
    """Who holds what."""
    labels, rng = dataset.train.labels, numpy_generator(case.seed, "partition")
    rare = dataset.class_index(RARE)
    if case.partition in ("even", "dirichlet"):
        shares = None if case.partition == "even" else np.full(case.vehicles, CONCENTRATION)
        return Partition.of(_spread(labels, case.vehicles, shares, rng), labels, rare)
    recorded = _recorded(len(labels), case.vehicles, rng)
    request = PartitionRequest(labels, rare, case.vehicles, REMAINING, rng, recorded_by=recorded)
    return make_partition(case.partition, request)


def _spread(
    labels: Ints, vehicles: int, concentration: NDArray[np.float64] | None, rng: np.random.Generator
) -> dict[int, Ints]:
    """Every class over all vehicles, evenly or in shares that are drawn."""
    held: dict[int, list[Ints]] = {v: [] for v in range(vehicles)}
    for c in np.unique(labels):
        mine = rng.permutation(np.flatnonzero(labels == c))
        shares = np.full(vehicles, 1 / vehicles) if concentration is None else rng.dirichlet(concentration)
        ends = np.round(np.cumsum(shares)[:-1] * len(mine)).astype(int)
        for v, part in enumerate(np.split(mine, ends)):
            held[v].append(part)
    return {v: np.concatenate(parts) for v, parts in held.items()}


def _recorded(count: int, vehicles: int, rng: np.random.Generator) -> NDArray[np.str_]:
    """(count,) names of vehicles, a run of images each, none shorter than a quarter of an even share."""
    shares = 0.25 / vehicles + 0.75 * rng.dirichlet(np.ones(vehicles))
    runs = np.searchsorted(np.cumsum(shares)[:-1], np.arange(count) / count, side="right")
    return np.array([f"car {run:03d}" for run in runs])


def fleet(case: Case, dataset: Dataset, model: Classifier, parts: Partition) -> LocalTransport:
    """The vehicles by node: some join late, the owner leaves."""
    everything = samples(dataset.train)
    others = [v for v in parts.indices if v not in (parts.owner, NIGHT)]
    late = {str(v) for v in others[-len(parts.indices) // 5 :]}
    owner = str(parts.owner)

    def node(vehicle: Vehicle) -> NodeAnswer:
        def answer(ask: Ask) -> Reply:
            goes = vehicle.name == owner and ask.kind == "report" and ask.round == case.leaving
            return vehicle.answer(ask, leaving=goes)

        return answer

    def away(name: str, asked: int) -> bool:
        return (name in late and asked < case.joining) or (name == owner and asked > case.leaving)

    made = dict[str, NodeAnswer]()
    for number, held in parts.indices.items():
        at = torch.from_numpy(held)
        images = everything.images[at] // DARKER if number == NIGHT else everything.images[at]
        own = Samples(images, everything.labels[at])
        made[str(number)] = node(Vehicle(str(number), model, own, TRAINING, case.seed))
    return LocalTransport(made, away)


def run(case: Case) -> Seen:
    """All rounds of one fleet."""
    torch.set_num_threads(1)
    seen, start = Seen(), time.process_time()
    dataset = load("digits", image_size=IMAGE_SIZE, per_class=case.per_class)
    channels, parts = dataset.image_shape[2], divided(case, dataset)
    model = build("cnn3", num_classes=dataset.num_classes, in_channels=channels, image_size=IMAGE_SIZE, seed=case.seed)
    tracker = Tracker(
        num_classes=dataset.num_classes, dim=model.dim, method=case.method, watch=(dataset.class_index(RARE),)
    )
    transport, policy = fleet(case, dataset, model, parts), RoundPolicy(timeout=1, max_attempts=2)
    server = Server(model, arrays(model.state_dict()), tracker, transport, policy, log=seen.log)
    for finished in server.rounds(case.rounds):
        seen.answers += len(finished.outcome.answered)
        seen.updates += finished.updated
    seen.refusals, seen.tracked = dict(server.tracker.state.refusals), tuple(server.tracker.state.tracked)
    seen.smallest = min(len(held) for held in parts.indices.values())
    seen.seconds = time.process_time() - start
    return seen


def expected(case: Case) -> int:
    """Answers, where nobody fails to give one."""
    late = case.vehicles // 5 + (case.vehicles % 5 > 0)
    return case.vehicles * case.rounds - late * min(case.joining - 1, case.rounds) - max(case.rounds - case.leaving, 0)


def show(case: Case, seen: Seen) -> None:
    """Print a line, and what went wrong."""
    told = ", ".join(f"{n} {what}" for what, n in sorted(seen.wrong.items())) or "nothing"
    print(
        f"{case.partition:11s} {case.method:20s} {seen.smallest:6d} {seen.answers:5,d} of {expected(case):5,d} "
        f"{seen.updates:7,d} {sum(seen.refusals.values()):7d} {seen.wrong['quarantined']:11d} "
        f"{len(seen.departed):8d} {seen.seconds:7.0f}",
        flush=True,
    )
    if seen.wrong or seen.refusals:
        print(f"    wrong: {told}; refused by reason: {seen.refusals}")
        print(*(f"    {why[:94]}" for why in seen.whys), sep="\n", flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--vehicles", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--partitions", nargs="+", default=PARTITIONS, choices=PARTITIONS)
    parser.add_argument("--workers", type=int, default=1, help="fleets side by side")
    args = parser.parse_args(arguments)
    cases = [Case(p, m, args.vehicles, args.rounds) for p in args.partitions for m in args.methods]
    print(f"{args.vehicles} honest vehicles, {args.rounds} rounds; fewest: samples of the vehicle with fewest\n")
    print("partition   method               fewest        answers updates refused quarantined departed seconds")
    with ProcessPoolExecutor(args.workers, get_context("spawn")) as pool:
        found = list[Seen]()
        for case, seen in zip(cases, pool.map(run, cases), strict=True):
            show(case, seen)
            found.append(seen)
    refused, apart = sum(sum(s.refusals.values()) for s in found), sum(s.wrong["quarantined"] for s in found)
    print(f"\nof {sum(s.answers for s in found):,} answers and {sum(s.updates for s in found):,} updates ", end="")
    print(f"{refused} were refused; {apart} vehicles were quarantined")


if __name__ == "__main__":
    main()
