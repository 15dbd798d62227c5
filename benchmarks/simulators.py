"""A round on a CPU: ours beside Flower's Ray simulation and Apple's pfl, the same model, data and steps.

    python benchmarks/simulators.py [--rounds 6] [--only flower pfl]      # in .venv-bench, which `make` makes

8 vehicles x 1,000 images of 32 x 32, cnn3, one epoch of batches of 64; then the statistics of the new model: every
vehicle embeds its images and reports counts, sums and the scatter, the server merges. Every simulator has a process of
its own; they take turns round by round, so that what else the machine does befalls all alike. The first round of a
process is apart; ratios are medians over the others, of wall-clock time and of core seconds (all processes of a
simulator together). What vehicles do in Flower is the plain way of torch (`mpt.learning.train` and `embed`, the
steps that anybody would write), in pfl its own loop; in "flower + ours" they do it our way, so that what is left is the
simulator itself. The check is the same number where the same was computed; pfl draws other orders and does not average
BatchNorm's statistics.

- flower: Ray, two workers with one CPU and one of torch's threads each; own loop that asks for replies every 5 ms, data
  and model kept in the workers.
- pfl: one process and torch's two threads, images normalised beforehand. pfl-2: two of its workers (torchrun, gloo)
  with one thread each.
"""

import argparse
import functools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

os.environ |= {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}

import numpy as np
import torch

from mpt.core import ClassStatistics
from mpt.federation.background import few_threads
from mpt.federation.jobs import Job, train_vehicle
from mpt.federation.trainers import fast_trainer
from mpt.learning import Classifier, RunningAverage, Samples, TrainingSettings, build, embed, normalise
from mpt.learning.cpu_inference import CpuEmbedder
from mpt.learning.training import channels_last
from mpt.protocol.request import StatisticsRequest

VEHICLES, IMAGES, SIDE, CLASSES = 8, 1000, 32, 10
SETTINGS = TrainingSettings(epochs=1)
REQUEST = StatisticsRequest(1, CLASSES, watched=(9,))
SIMULATORS = ("ours", "flower", "flower + ours", "pfl", "pfl-2")
Weights = Mapping[str, torch.Tensor]


@functools.cache
def samples(vehicle: int) -> Samples:
    """Random images; the time does not depend on what is on them."""
    rng = np.random.default_rng(vehicle)
    images = rng.integers(0, 256, (IMAGES, 3, SIDE, SIDE), dtype=np.uint8)
    return Samples(torch.from_numpy(images), torch.from_numpy(rng.integers(0, CLASSES, IMAGES)))


def network() -> Classifier:
    """The model that all start from."""
    return build("cnn3", num_classes=CLASSES, in_channels=3, image_size=SIDE, seed=0)


def job(start: Weights, vehicles: Mapping[int, Samples], number: int) -> Job:
    """One round."""
    return Job(dict(start), vehicles, SETTINGS, 0, number)


def tree_seconds() -> float:
    """Core seconds that this simulator has used so far, all its processes together."""
    root = os.getppid() if "RANK" in os.environ else os.getpid()
    parents, used = {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(folder.name)], used[int(folder.name)] = int(fields[1]), sum(map(int, fields[11:15]))

    def mine(process: int) -> bool:
        return process == root or (process in parents and mine(parents[process]))

    return sum(used[process] for process in used if mine(process)) / os.sysconf("SC_CLK_TCK")


class Clock:
    """Seconds of every phase, those since the process was asked for, and a number that shows what was computed."""

    def __init__(self) -> None:
        self.rounds: list[dict[str, float]] = []
        self.first = 0.0

    def phase(self, name: str, work: Callable[[int], object]) -> None:
        """Time one phase, which gets the round's number; training begins a round."""
        if name == "train":
            self.turn()
            self.rounds.append({})
        worked, start = tree_seconds(), time.perf_counter()
        work(len(self.rounds))
        self.rounds[-1][name] = time.perf_counter() - start
        self.rounds[-1][f"{name} cores"] = tree_seconds() - worked
        if not self.first:
            self.first = time.time() - float(os.environ["BENCH_START"])

    def turn(self) -> None:
        """Say how the last round went and wait for the next; before the first round nobody waits."""
        if self.rounds and os.environ.get("RANK", "0") == "0":
            print("ROUND " + json.dumps(self.rounds[-1]), flush=True)
            sys.stdin.readline()
        if self.rounds and "RANK" in os.environ:
            torch.distributed.barrier()

    def report(self, state: Weights, merged: ClassStatistics) -> None:
        """As one line of JSON."""
        check = [float(state["head.weight"].double().norm()), float(np.trace(merged.scatter))]
        print("RESULT " + json.dumps({"first": self.first, "rounds": self.rounds, "check": check}), flush=True)
        sys.stdin.readline()


def ours(rounds: int) -> None:
    """The fast engine's parts."""
    clock, model = Clock(), network()
    data = {v: samples(v) for v in range(VEHICLES)}
    trainer = fast_trainer(model, SETTINGS)
    state: Weights = model.state_dict()
    merged = None

    def train(number: int) -> None:
        nonlocal state
        state = trainer(model, [job(state, data, number)])[0]

    def report(_: int) -> None:
        nonlocal merged
        model.load_state_dict(state)
        embedder = CpuEmbedder(model)
        with few_threads(model.dim):
            rows = embedder.many([s.images for s in data.values()])
            held = zip(rows, data.values(), strict=True)
            answers = (REQUEST.answer(h.double().numpy(), s.labels.numpy()) for h, s in held)
            merged = ClassStatistics.merge(map(REQUEST.read, answers))

    for _ in range(rounds):
        clock.phase("train", train)
        clock.phase("statistics", report)
    clock.report(state, merged)


def flower(rounds: int, fast: bool) -> None:
    """Flower's Ray simulation; its clients are made by `flower_client`."""
    from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
    from flwr.serverapp import ServerApp
    from flwr.simulation import run_simulation
    from simulators import flower_client  # so that workers find what it needs by name

    server, clock, model = ServerApp(), Clock(), network()

    @server.main()
    def main(grid, context) -> None:
        while len(nodes := list(grid.get_node_ids())) < VEHICLES:
            time.sleep(0.005)
        state: Weights = model.state_dict()
        merged = None

        def ask(kind: str, number: int) -> list:
            content = {"model": ArrayRecord(dict(state)), "config": ConfigRecord({"round": number})}
            asked = [Message(RecordDict(content), dst_node_id=node, message_type=kind) for node in nodes]
            waiting, replies = set(grid.push_messages(asked)), []
            while waiting:
                new = list(grid.pull_messages(list(waiting)))
                waiting -= {reply.metadata.reply_to_message_id for reply in new}
                replies += new
                time.sleep(0 if new else 0.005)
            failed = [reply.error for reply in replies if reply.has_error()]
            if failed:
                raise RuntimeError(failed)
            return [reply.content for reply in replies]

        def train(number: int) -> None:
            nonlocal state
            running = RunningAverage(model)
            for reply in ask("train", number):
                running.add(reply["model"].to_torch_state_dict(), IMAGES)
            state = running.state()

        def report(number: int) -> None:
            nonlocal merged
            merged = ClassStatistics.merge(REQUEST.read(r["answer"]["bytes"]) for r in ask("query.statistics", number))

        for _ in range(rounds):
            clock.phase("train", train)
            clock.phase("statistics", report)
        clock.report(state, merged)

    resources = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}, "init_args": {"num_cpus": 2}}
    run_simulation(server, flower_client(fast), VEHICLES, backend_config=resources)


@functools.cache
def client_model(fast: bool) -> Classifier:
    """In one of Flower's workers: the model that is loaded for every message."""
    torch.set_num_threads(1)
    return channels_last(network()) if fast else network()


def flower_client(fast: bool):
    """What a vehicle does; the model and the data stay in the worker."""
    from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
    from flwr.clientapp import ClientApp

    client = ClientApp()

    def read(message, context) -> tuple[Weights, int, int]:
        state = message.content["model"].to_torch_state_dict()
        return state, message.content["config"]["round"], int(context.node_config["partition-id"])

    @client.train()
    def train(message, context):
        state, number, vehicle = read(message, context)
        update = train_vehicle(client_model(fast), job(state, {vehicle: samples(vehicle)}, number), vehicle)
        contiguous = {name: tensor.contiguous() for name, tensor in update.items()}
        return Message(RecordDict({"model": ArrayRecord(contiguous)}), reply_to=message)

    @client.query("statistics")
    def report(message, context):
        state, _, vehicle = read(message, context)
        model, mine = client_model(fast), samples(vehicle)
        model.load_state_dict(state)
        features = CpuEmbedder(model)(mine.images) if fast else embed(model, mine.images)
        answer = REQUEST.answer(features.double().numpy(), mine.labels.numpy())
        return Message(RecordDict({"answer": ConfigRecord({"bytes": answer})}), reply_to=message)

    return client


def pfl(rounds: int) -> None:
    """pfl's FedAvg on its simulated backend, the statistics as an algorithm of their own, asked for in a callback."""
    import asyncio

    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.algorithm.base import FederatedAlgorithm, NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.callback.base import TrainingProcessCallback
    from pfl.common_types import Population
    from pfl.context import CentralContext
    from pfl.data.dataset import Dataset
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.data.sampling import get_user_sampler
    from pfl.hyperparam import NNTrainHyperParams
    from pfl.metrics import Metrics
    from pfl.model.pytorch import PyTorchModel
    from pfl.stats import MappedVectorStatistics

    asyncio.set_event_loop(asyncio.new_event_loop())
    torch.set_num_threads(int(os.environ["BENCH_THREADS"]))
    net, clock = network(), Clock()
    net.loss = lambda inputs, labels: torch.nn.functional.cross_entropy(net.train()(inputs), labels)
    net.metrics = lambda inputs, labels: {}
    optimiser = functools.partial(torch.optim.SGD, momentum=SETTINGS.momentum, weight_decay=SETTINGS.weight_decay)
    model = PyTorchModel(net, optimiser, torch.optim.SGD(net.parameters(), lr=1.0))

    @functools.cache
    def dataset(vehicle: int) -> Dataset:
        mine = samples(vehicle)
        return Dataset(raw_data=[normalise(mine.images), mine.labels], user_id=str(vehicle))

    users = FederatedDataset(dataset, get_user_sampler("minimize_reuse", list(range(VEHICLES))))
    backend = SimulatedBackend(training_data=users, val_data=users)
    how = NNTrainHyperParams(local_num_epochs=1, local_learning_rate=SETTINGS.lr, local_batch_size=64)

    class Report(FederatedAlgorithm):
        def get_next_central_contexts(self, *args):
            raise NotImplementedError

        def process_aggregated_statistics(self, *args):
            raise NotImplementedError

        def simulate_one_user(self, model, user_dataset, central_context):
            net.eval()
            with torch.no_grad():
                features = torch.cat([net.features(inputs) for inputs, _ in user_dataset.iter(64)])
            labels = user_dataset.raw_data[1].numpy()
            made = ClassStatistics.from_features(features.double().numpy(), labels, CLASSES, watched=(9,))
            parts = {"counts": made.counts, "sums": made.sums, "squares": made.squares, "scatter": made.scatter}
            tensors = {name: torch.from_numpy(np.array(part, dtype=np.float64)) for name, part in parts.items()}
            return MappedVectorStatistics(tensors), Metrics()

    class Ask(TrainingProcessCallback):
        def __init__(self) -> None:
            self.begun, self.worked, self.merged = time.perf_counter(), tree_seconds(), {}

        def report(self, _: int) -> None:
            context = CentralContext(0, False, VEHICLES, Population.TRAIN, None, how.static_clone(), None, 0)
            loop = asyncio.get_event_loop()
            self.merged = loop.run_until_complete(
                backend.async_gather_results(model, Report(), central_context=context)
            )[0]

        def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
            took, worked = time.perf_counter() - self.begun, tree_seconds() - self.worked
            clock.rounds.append({"train": took, "train cores": worked})
            clock.first = clock.first or time.time() - float(os.environ["BENCH_START"])
            clock.phase("statistics", self.report)
            if central_iteration < rounds - 1:
                clock.turn()
            self.begun, self.worked = time.perf_counter(), tree_seconds()
            return False, Metrics()

    ask = Ask()
    params = NNAlgorithmParams(rounds, 10**6, VEHICLES, None)
    FederatedAveraging().run(params, backend, model, how, callbacks=[ask], send_metrics_to_platform=False)
    if os.environ.get("RANK", "0") == "0":
        found = {name: part.numpy() for name, part in ask.merged.items()}
        found["counts"] = found["counts"].astype(np.int64)
        clock.report(net.state_dict(), ClassStatistics(**found, watched=(9,)))


class Process:
    """One simulator in a process of its own, which does a round when told to."""

    def __init__(self, name: str, rounds: int, folder: Path) -> None:
        command = [sys.executable, __file__, "--worker", name, "--rounds", str(rounds)]
        if name == "pfl-2":
            command = [str(Path(sys.executable).parent / "torchrun"), "--nproc-per-node", "2", *command[1:]]
        where = {"BENCH_START": str(time.time()), "BENCH_THREADS": "1" if name == "pfl-2" else "2"}
        where |= {"PYTHONPATH": str(Path(__file__).parent), "FLWR_HOME": str(folder)}
        self.name, self.errors = name, folder / f"{name}.txt"
        pipe = subprocess.PIPE
        with self.errors.open("w") as errors:
            self.process = subprocess.Popen(
                command, env=os.environ | where, stdin=pipe, stdout=pipe, stderr=errors, text=True
            )

    def wait(self) -> dict:
        """Until the round is done: its times, and after the last one everything."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(("ROUND ", "RESULT ")):
                found: dict = json.loads(line.partition(" ")[2])
                return found
        raise SystemExit(f"{self.name}: {self.errors.read_text()[-4000:]}")

    def go(self) -> None:
        """Let it do the next round, or end."""
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()


def take_turns(names: list[str], rounds: int) -> dict[str, dict]:
    """All simulators side by side, each idle while another one does a round; the first round of each at its start."""
    with tempfile.TemporaryDirectory() as folder:
        processes, found = [], {}
        for name in names:
            processes.append(Process(name, rounds, Path(folder)))
            show(name, processes[-1].wait())
        for number in range(2, rounds + 1):
            for process in processes:
                process.go()
                seen = process.wait()
                show(process.name, seen if number < rounds else seen["rounds"][-1])
                found[process.name] = seen
        for process in processes:
            process.go()
            process.process.wait(60)
    return found


def show(name: str, seconds: dict[str, float]) -> None:
    """One line a round."""
    print(f"{name:14s}", *(f"{phase} {took:.2f} s" for phase, took in seconds.items()), sep="  ", flush=True)


def work(name: str, rounds: int) -> None:
    """In the process of one simulator."""
    if name == "ours":
        ours(rounds)
    elif name.startswith("flower"):
        flower(rounds, fast=name.endswith("ours"))
    else:
        pfl(rounds)


def table(found: dict[str, dict]) -> None:
    """Medians over the rounds after the first: wall-clock time, core seconds, and each round's ratio to ours."""
    phases = ("train", "statistics", "train cores", "statistics cores")
    print("\n                 train  statistics   core seconds of both   first round   without training   check")
    for name, run in found.items():
        train, report, *cores = (statistics.median(r[phase] for r in run["rounds"][1:]) for phase in phases)
        beside = run["first"] - run["rounds"][0]["train"]
        head, trace = run["check"]
        print(
            f"{name:14s} {train:6.2f} s {report:9.2f} s {cores[0]:12.2f} {cores[1]:6.2f} s {run['first']:13.2f} s "
            f"{beside:16.2f} s   {head:.5f} {trace:.4g}"
        )
    for name, run in found.items():
        pairs = list(zip(run["rounds"][1:], found["ours"]["rounds"][1:], strict=True))
        ratios = {phase: statistics.median(their[phase] / our[phase] for their, our in pairs) for phase in phases}
        print(f"{name} / ours:", ", ".join(f"{phase} {ratio:.2f}x" for phase, ratio in ratios.items()))


def main() -> None:
    """Run all, print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--only", nargs="+", choices=SIMULATORS[1:], default=SIMULATORS[1:])
    parser.add_argument("--worker", choices=SIMULATORS)
    args = parser.parse_args()
    if args.worker:
        work(args.worker, args.rounds)
        return
    table(take_turns(["ours", *args.only], args.rounds))


if __name__ == "__main__":
    main()
