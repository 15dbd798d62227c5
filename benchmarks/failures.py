"""What failing vehicles cost: a fleet of 100 of which 20% fail at random in every round, beside the same undisturbed.

python benchmarks/failures.py                      # digits, 100 vehicles, 20 rounds, 5 seeds
python benchmarks/failures.py --remaining 0.05     # a third of the remaining samples
python benchmarks/failures.py --dataset road
python benchmarks/failures.py --vehicles 8 --rounds 4 --seeds 1

A vehicle that fails neither trains nor reports in that round. Besides both together, the last table has each alone, and
the same answers in a tracker that does not remember the remaining samples of suspected vehicles.
"""

import argparse
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context

import numpy as np
import torch

from mpt.data import Dataset, load
from mpt.federation.metrics import confusion_matrix, score
from mpt.federation.partition import PartitionRequest, concentrate
from mpt.fleet import Tracker, TrackerSettings
from mpt.fleet.exchange import Ask, Failure, Reply
from mpt.fleet.local import LocalTransport, NodeAnswer
from mpt.fleet.local_data import samples
from mpt.fleet.policy import RoundPolicy
from mpt.fleet.server import Server
from mpt.fleet.vehicle import Vehicle, arrays
from mpt.fleet.vehicle import load as load_into
from mpt.learning import Classifier, Samples, TrainingSettings, build, embed, numpy_generator

IMAGE_SIZE = 28
UNDISTURBED, FAILING = ("calm", "all"), ("rough", "remembered")
TRAININGS = {"calm": "training undisturbed", "rough": "failing in training"}
REPORTS = {"all": "all report", "remembered": "failing to report", "forgotten": "and forgotten"}


@dataclass(frozen=True)
class Setup:
    """A dataset, the classes that become rare in turn, the share of one that remains, and local training."""

    spec: str
    rare: tuple[str, ...]
    remaining: float
    training: TrainingSettings


SETUPS = {
    "digits": Setup("digits", ("8",), 0.15, TrainingSettings(epochs=2, batch_size=8, lr=0.02)),
    "road": Setup("road?train=400&test=100", ("truck",), 0.05, TrainingSettings(epochs=1, batch_size=8, lr=0.05)),
}


@dataclass(frozen=True)
class Case:
    """One fleet: who is in it, how long, and how many fail in a round."""

    setup: Setup
    rare: str
    vehicles: int
    rounds: int
    failing: float
    seed: int

    @property
    def leaves_after(self) -> int:
        """The round after which the vehicle that holds the rare class leaves."""
        return self.rounds // 2

    def fails(self, vehicle: str, round: int, last: int | None) -> bool:
        """Whether a vehicle fails; in its last round, in which it says that it leaves, it does not."""
        return bool(numpy_generator(self.seed, "failure", round, vehicle).random() < self.failing) and round != last


def fleet(
    case: Case, dataset: Dataset, model: Classifier, training: str, replies: dict[str, Reply]
) -> dict[str, NodeAnswer]:
    """Vehicles by node; the last one holds the rare class and leaves. Every report goes to `replies` as well."""
    rng, rare = numpy_generator(case.seed, "partition"), dataset.class_index(case.rare)
    parts = concentrate(PartitionRequest(dataset.train.labels, rare, case.vehicles, case.setup.remaining, rng))
    everything = samples(dataset.train)

    def node(vehicle: Vehicle, last: int | None) -> NodeAnswer:
        def answer(ask: Ask) -> Reply | Failure:
            if last is not None and ask.round > last:
                return Failure("it has left")
            failed = training == "rough" and case.fails(vehicle.name, ask.round, last)
            if ask.kind == "train":
                return Failure("it failed") if failed else vehicle.answer(ask)
            replies[vehicle.name] = vehicle.answer(ask, leaving=ask.round == last)
            return Failure("it failed") if failed else replies[vehicle.name]

        return answer

    made: dict[str, NodeAnswer] = {}
    for number, held in parts.indices.items():
        at = torch.from_numpy(held)
        own = Samples(everything.images[at], everything.labels[at])
        vehicle = Vehicle(str(number), model, own, case.setup.training, case.seed)
        made[vehicle.name] = node(vehicle, case.leaves_after if number == parts.owner else None)
    return made


def run(case: Case, training: str) -> tuple[dict[str, float], int]:
    """Mean F1 of the rare class over the rounds after the departure, by who reports; how many updates there were.

    The server's own tracker sees what comes in. Those that the F1 is of see, of the same answers, all or those of the
    vehicles that do not fail; they ask about the server's origin, so that one answer fits all.
    """
    torch.set_num_threads(1)
    dataset = load(case.setup.spec, image_size=IMAGE_SIZE)
    rare, channels = dataset.class_index(case.rare), dataset.image_shape[2]
    model = build("cnn3", num_classes=dataset.num_classes, in_channels=channels, image_size=IMAGE_SIZE, seed=case.seed)
    settings = TrackerSettings(num_classes=dataset.num_classes, dim=model.dim, watch=(rare,))
    trackers = {name: Tracker(replace(settings, remember=name != "forgotten")) for name in REPORTS}
    replies: dict[str, Reply] = {}
    transport = LocalTransport(fleet(case, dataset, model, training, replies))
    server = Server(model, arrays(model.state_dict()), Tracker(settings), transport, RoundPolicy(quorum=0.3))
    test, scores, updates = samples(dataset.test), {name: list[float]() for name in REPORTS}, 0
    origin = server.tracker.state.origin
    for finished in server.rounds(case.rounds):
        updates += finished.updated
        leaving = [v for v, reply in replies.items() if reply.leaving]
        kept = [v for v in replies if not case.fails(v, finished.round, finished.round if v in leaving else None)]
        load_into(model, finished.model)
        features = embed(model, test.images).double().numpy() if finished.round > case.leaves_after else None
        for name, tracker in trackers.items():
            tracker.state = replace(tracker.state, origin=origin)
            answers = {v: replies[v].answer or b"" for v in (replies if name == "all" else kept)}
            outcome = tracker.close(answers, leaving, round=finished.round)
            if features is not None and outcome.readout is not None:
                found = outcome.readout.predict(features)
                confusion = confusion_matrix(found, dataset.test.labels, dataset.num_classes)
                scores[name].append(float(score(confusion).f1[rare]))
        origin = server.tracker.state.origin
        replies.clear()
    return {name: float(np.mean(f1)) for name, f1 in scores.items()}, updates


def on_flower(case: Case) -> None:
    """The same failing fleet in Flower's simulation on Ray; there the owner may fail in its last round."""
    from flwr.simulation import run_simulation

    from mpt.fleet.flower.server_app import server_app
    from mpt.fleet.flower.vehicle_app import vehicle_app

    training = case.setup.training
    settings = {
        "dataset": case.setup.spec, "image_size": IMAGE_SIZE, "rare": case.rare, "remaining": case.setup.remaining,
        "watch": case.rare, "quorum": 0.3, "epochs": training.epochs, "batch_size": training.batch_size,
        "lr": training.lr, "seed": case.seed, "fail": case.failing, "num_rounds": case.rounds,
        "events": f"leave {case.vehicles - 1} after {case.leaves_after}", "vehicle_ids": "partition",
    }  # fmt: skip
    workers = {"client_resources": {"num_cpus": 1}, "init_args": {"num_cpus": 2, "include_dashboard": False}}
    run_simulation(
        server_app(**settings), vehicle_app(**settings), num_supernodes=case.vehicles, backend_config=workers
    )


def print_means(found: list[Mapping[tuple[str, str], float]]) -> None:
    """F1 by training and reports, and the paired difference from the undisturbed runs with its standard error."""
    print(f"{'mean F1':<22}" + "".join(f"{name:>26}" for name in REPORTS.values()))
    for training, title in TRAININGS.items():
        cells = []
        for reports in REPORTS:
            apart = np.array([one[training, reports] - one[UNDISTURBED] for one in found])
            f1 = np.mean([one[training, reports] for one in found])
            error = np.std(apart, ddof=1) / np.sqrt(len(apart)) if len(apart) > 1 else np.nan
            cells.append(f"{f1:.3f} ({apart.mean():+.3f} +- {error:.3f})")
        print(f"{title:<22}" + "".join(f"{cell:>26}" for cell in cells))


def main() -> None:
    """Print both, and the difference, by class and seed; then the means."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dataset", default="digits", choices=SETUPS)
    parser.add_argument("--rare", nargs="+", help="the classes that become rare, in turn")
    parser.add_argument("--remaining", type=float, help="the share of its samples that the others hold")
    parser.add_argument("--vehicles", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--failing", type=float, default=0.2)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--flower", action="store_true", help="one failing run in Flower's simulation instead")
    given = parser.parse_args()
    setup, seeds = SETUPS[given.dataset], range(given.first_seed, given.first_seed + given.seeds)
    setup = replace(setup, remaining=given.remaining or setup.remaining)
    fixed = given.vehicles, given.rounds, given.failing
    cases = [Case(setup, rare, *fixed, seed) for rare in given.rare or setup.rare for seed in seeds]
    if given.flower:
        on_flower(cases[0])
        return
    what = f"{setup.spec}, {given.vehicles} vehicles, {given.rounds} rounds, {setup.remaining:.0%} remaining"
    print(f"{what}, F1 after round {given.rounds // 2}")
    print(
        f"{'rare':>12} {'seed':>4} {'undisturbed':>12} {f'{given.failing:.0%} failing':>12} {'difference':>11} updates"
    )
    found = []
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        jobs = [{training: pool.submit(run, case, training) for training in TRAININGS} for case in cases]
        for case, job in zip(cases, jobs, strict=True):
            both = {training: one.result() for training, one in job.items()}
            found.append({(t, reports): f1 for t, (scores, _) in both.items() for reports, f1 in scores.items()})
            before, after = found[-1][UNDISTURBED], found[-1][FAILING]
            counts = f"{both['rough'][1]} of {both['calm'][1]}"
            line = f"{case.rare:>12} {case.seed:>4} {before:>12.3f} {after:>12.3f} {after - before:>+11.3f} {counts}"
            print(line, flush=True)
    spread = np.std([[one[UNDISTURBED], one[FAILING]] for one in found], axis=0, ddof=min(1, len(found) - 1))
    print(f"deviation over these {spread[0]:.3f} and {spread[1]:.3f}")
    print_means(found)


if __name__ == "__main__":
    main()
