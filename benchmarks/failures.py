"""What failing vehicles cost: a fleet of 100 of which 20% fail at random in every round, beside the same undisturbed.

python benchmarks/failures.py                  # 100 vehicles, 20 rounds, 5 seeds: about ten minutes on two cores
python benchmarks/failures.py --vehicles 20 --rounds 8 --seeds 1
"""

import argparse
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from statistics import mean
from typing import get_args

import numpy as np
import torch

from mpt.data import Dataset, load
from mpt.federation.partition import concentrate
from mpt.federation.trainings import Samples
from mpt.fleet import Settings as TrackerSettings
from mpt.fleet import Tracker
from mpt.fleet.exchange import Ask
from mpt.fleet.holdings import samples
from mpt.fleet.judge import judge
from mpt.fleet.local import Answers, LocalTransport, answering
from mpt.fleet.server import Rules, Server
from mpt.fleet.settings import Variant
from mpt.fleet.vehicle import Vehicle, arrays
from mpt.learning import Settings, build, numpy_generator

SETTINGS = Settings(epochs=2, batch_size=8, lr=0.02)


def fleet(
    dataset: Dataset, rare: int, vehicles: int, leaves_after: int, failing: float, seed: int, kinds: Sequence[str]
) -> dict[str, Answers]:
    """Vehicles by node; the last one holds the rare class and leaves. In its last round it does not fail."""
    rng = numpy_generator(seed, "partition")
    parts = concentrate(dataset.train.labels, rare, vehicles=vehicles, remaining=0.05, rng=rng)
    everything = samples(dataset.train)
    _, size, channels = dataset.image_shape
    shape = {"num_classes": dataset.num_classes, "in_channels": channels, "image_size": size}
    model = build("cnn3", **shape, seed=seed)
    made: dict[str, Answers] = {}
    for number, held in parts.holdings.items():
        at = torch.from_numpy(held)
        vehicle = Vehicle(str(number), model, Samples(everything.images[at], everything.labels[at]), SETTINGS, seed)
        last = leaves_after if number == parts.owner else None

        def fails(ask: Ask, name: str = vehicle.name, last: int | None = last) -> bool:
            drawn = numpy_generator(seed, "failure", ask.round, name).random()
            return bool(drawn < failing) and ask.kind in kinds and ask.round != last

        made[vehicle.name] = answering(vehicle, fails=fails, leaves_after=last)
    return made


def run(
    rare: str, variant: Variant, vehicles: int, rounds: int, kinds: Sequence[str], failing: float, seed: int
) -> tuple[float, int]:
    """Mean F1 of the rare class over the rounds after the departure, and how many updates there were."""
    torch.set_num_threads(1)
    dataset = load("digits", image_size=28)
    number, leaves_after = dataset.class_index(rare), rounds // 2
    _, size, channels = dataset.image_shape
    model = build("cnn3", num_classes=dataset.num_classes, in_channels=channels, image_size=size, seed=seed)
    settings = TrackerSettings(num_classes=dataset.num_classes, dim=model.dim, variant=variant, watch=(number,))
    tracker = Tracker(settings)
    transport = LocalTransport(fleet(dataset, number, vehicles, leaves_after, failing, seed, kinds))
    server = Server(model, arrays(model.state_dict()), tracker, transport, Rules(quorum=0.3))
    scores, updates = [], 0
    for finished in server.rounds(rounds):
        updates += finished.updated
        if finished.round > leaves_after:
            found = judge(model, finished.model, finished.outcome.readout, dataset.test, dataset.classes)
            scores.append(found["f1"][rare])
    return mean(scores), updates


def on_flower(rare: str, variant: Variant, vehicles: int, rounds: int, failing: float, seed: int) -> None:
    """The same failing fleet in Flower's simulation on Ray; there the owner may fail in its last round."""
    from flwr.simulation import run_simulation

    from mpt.fleet.flower.server_app import server_app
    from mpt.fleet.flower.vehicle_app import vehicle_app

    settings = {
        "dataset": "digits", "image_size": 28, "rare": rare, "remaining": 0.05, "watch": rare, "quorum": 0.3,
        "epochs": SETTINGS.epochs, "batch_size": SETTINGS.batch_size, "lr": SETTINGS.lr, "seed": seed, "fail": failing,
        "num_rounds": rounds, "events": f"leave {vehicles - 1} after {rounds // 2}", "vehicle_ids": "partition",
        "variant": variant,
    }  # fmt: skip
    workers = {"client_resources": {"num_cpus": 1}, "init_args": {"num_cpus": 2, "include_dashboard": False}}
    run_simulation(server_app(**settings), vehicle_app(**settings), num_supernodes=vehicles, backend_config=workers)


def main() -> None:
    """Print both, and the difference, seed by seed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--vehicles", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--failing", type=float, default=0.2)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--fail-in", nargs="+", default=["train", "report"], choices=["train", "report"])
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--rare", default="8")
    parser.add_argument("--variant", default="mpt", choices=get_args(Variant))
    parser.add_argument("--flower", action="store_true", help="one failing run in Flower's simulation instead")
    given = parser.parse_args()
    if given.flower:
        on_flower(given.rare, given.variant, given.vehicles, given.rounds, given.failing, given.first_seed)
        return
    print(f"{given.vehicles} vehicles, {given.rounds} rounds, F1 of {given.rare} after round {given.rounds // 2}")
    print(f"{'seed':>4} {'undisturbed':>12} {f'{given.failing:.0%} failing':>12} {'difference':>11} {'updates':>14}")
    both, seeds = [], range(given.first_seed, given.first_seed + given.seeds)
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        fixed = given.rare, given.variant, given.vehicles, given.rounds, given.fail_in
        jobs = [[pool.submit(run, *fixed, f, seed) for f in (0.0, given.failing)] for seed in seeds]
        for seed, (calm, rough) in zip(seeds, jobs, strict=True):
            (before, all_updates), (after, updates) = calm.result(), rough.result()
            both.append((before, after))
            counts = f"{updates} of {all_updates}"
            print(f"{seed:>4} {before:>12.3f} {after:>12.3f} {after - before:>+11.3f} {counts:>14}", flush=True)
    before, after = np.mean(both, axis=0)
    print(f"mean {before:>12.3f} {after:>12.3f} {after - before:>+11.3f}")
    if len(both) > 1:
        spread = np.std(both, axis=0, ddof=1)
        apart = np.std(np.subtract(*np.transpose(both)), ddof=1) / np.sqrt(len(both))
        print(f"deviation over seeds {spread[0]:.3f} and {spread[1]:.3f}; standard error of the difference {apart:.3f}")


if __name__ == "__main__":
    main()
