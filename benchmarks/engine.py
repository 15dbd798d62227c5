"""The fast engine against the reference loop, on a GPU and at the paper's scale.

    python benchmarks/real_images.py pack FOLDER PACKED     # once: FOLDER/NAME-{train,test}.parquet
    python benchmarks/engine.py PACKED [--only whole grid networks backbones others methods kernels precision profile]

- whole: cifar10, truck, 2%: one training of 100 rounds, every training-free method read out in every round, CCVR and
  LDC in every tenth; against rounds of the reference loop, timed in the same call.
- grid: four fractions by three seeds of it, advanced together.
- networks: a round of cnn3, of cnn3-plain and of cnn3-embedding on cifar10, cnn3 first and last.
- backbones: rounds of ResNet-18 on cars-bodytype at 64 x 64, fast against reference.
- others: ResNet-18, MobileNetV3 and ViT-Tiny on cifar10, by two trainers: the first round, which compiles and captures,
  a later one, its rate beside the card's, and the kernels that take longest in it. `--backbones`, `--trainers` and
  `--most` choose.
- methods: runs with one method each, read out in every round: what it adds to a training whose rounds nobody reads.
- kernels: those of one training step, with the least bytes they must move and the operations they must do, against
  this card's copy rate and bfloat16 matrix rate, measured in the same call.
- precision: one epoch of round 1 by every trainer, its error against float64 relative to how far the model moved, and
  whether a second go gives the same bits.
- profile: the host's functions that take longest.

Every figure is a wall-clock time of this call; the ratios are what to compare.
"""

import argparse
import copy
import cProfile
import csv
import pstats
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from real_images import unpack
from torch.utils.flop_counter import FlopCounterMode

from mpt.data import Dataset
from mpt.federation.cuda_graph_trainer import CudaGraphTrainer
from mpt.federation.engine import Federation, run, run_together
from mpt.federation.jobs import Job, Trainer, train_plain
from mpt.federation.plan import Plan
from mpt.federation.stacked_trainer import StackedTrainer
from mpt.federation.trainers import TritonTrainer
from mpt.learning import Classifier, Samples
from mpt.learning.triton_stack.layout import Layout

TRAINING_FREE = ("mpt", "mpt-lite", "frozen", "remaining-mean", "icarl", "sdc", "oracle", "oracle-train")
SLOW = ("ldc",)
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def timed(what: Callable[[], object]) -> float:
    """Seconds, with the device's work done."""
    start = time.perf_counter()
    what()
    if DEVICE == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def microseconds(what: Callable[[], object]) -> dict[str, list[float]]:
    """By kernel, of each time that the device ran it."""
    spent: dict[str, list[float]] = {}
    if DEVICE == "cuda":
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
            timed(what)
        for event in profiler.events():
            spent.setdefault(event.name, []).append(event.device_time)
    return spent


def plan_for(dataset: Dataset, rounds: int, *, remaining: float = 0.02, seed: int = 0) -> Plan:
    """The paper's scenario on cifar10's trucks: one training, the held-out one, and ccvr's, the continued one."""
    return Plan(
        rare=dataset.class_index("truck"),
        methods=TRAINING_FREE + SLOW,
        remaining=remaining,
        rounds=rounds,
        depart_at=min(15, rounds - 1),
        eval_every=1,
        slow_every=10,
        seed=seed,
    )


def rounds_of(dataset: Dataset, plan: Plan, count: int) -> float:
    """Seconds a round of training alone, over `count` rounds after three."""
    federation = Federation(dataset, plan, torch.device(DEVICE))
    state = federation.start()
    jobs = federation.jobs(state)

    def train() -> None:
        federation.train(federation.model, list(jobs.values()))

    for _ in range(2):
        train()
    timed(train)
    return timed(lambda: [train() for _ in range(count)]) / count


def whole(dataset: Dataset, rounds: int) -> list[list[object]]:
    """One training with everything read out, and with CCVR on its own training beside it."""
    plan = plan_for(dataset, rounds)
    run(dataset, plan_for(dataset, 3), device=DEVICE)
    alone = timed(lambda: run(dataset, plan, device=DEVICE))
    both = timed(lambda: run(dataset, replace(plan, methods=(*plan.methods, "ccvr", "fedavg")), device=DEVICE))
    training = timed(lambda: run(dataset, replace(plan, eval_every=rounds, slow_every=rounds), device=DEVICE))
    fast, slow = rounds_of(dataset, plan, 10), rounds_of(dataset, replace(plan, engine="plain"), 2)
    return [
        [f"whole: {rounds} rounds, training-free methods every round, LDC every 10th", alone, "s"],
        ["whole: the same with the continued training, CCVR every 10th and fedavg", both, "s"],
        [f"whole: {rounds} rounds read out at departure and at the end only", training, "s"],
        ["whole: training of round 1, reference loop", slow, "s"],
        ["whole: training of round 1, fast engine", fast, "s"],
        ["whole: reference / fast", slow / fast, "x"],
    ]


def grid(dataset: Dataset, rounds: int) -> list[list[object]]:
    """Four fractions by three seeds."""
    plans = [
        plan_for(dataset, rounds, remaining=fraction, seed=seed)
        for fraction in (0.01, 0.02, 0.05, 0.1)
        for seed in range(3)
    ]
    unread = [replace(plan, rounds=20, eval_every=20, slow_every=20) for plan in plans]
    return [
        [f"grid: 12 trainings of {rounds} rounds", timed(partial(run_together, dataset, plans, device=DEVICE)), "s"],
        ["grid: 20 rounds of them, hardly read out", timed(partial(run_together, dataset, unread, device=DEVICE)), "s"],
    ]


def networks(dataset: Dataset) -> list[list[object]]:
    """The three-layer networks, all of which train side by side."""
    names = ("cnn3", "cnn3-plain", "cnn3-embedding", "cnn3-embedding(norm=True)", "cnn3")
    base = plan_for(dataset, 2)
    return [
        [f"networks: training of round 1, {n}", rounds_of(dataset, replace(base, backbone=n), 10), "s"] for n in names
    ]


def backbones(folder: Path) -> list[list[object]]:
    """ResNet-18 on real cars."""
    dataset = unpack(folder, "cars-bodytype")
    rows: list[list[object]] = []
    base = Plan(rare=dataset.class_index("van"), methods=("mpt",), backbone="resnet18")
    slow, fast = (rounds_of(dataset, replace(base, engine=engine), 1) for engine in ("plain", "fast"))
    rows += [
        ["resnet18, cars 64 x 64: round 1, reference loop", slow, "s"],
        ["resnet18, cars 64 x 64: round 1, fast engine", fast, "s"],
        ["resnet18: reference / fast", slow / fast, "x"],
    ]
    return rows


def operations(model: Classifier) -> float:
    """Floating-point operations of one image, there and back: three times those of the way there."""
    probe = copy.deepcopy(model).cpu().train()
    images = torch.randn(2, model.in_channels, model.image_size, model.image_size)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        probe(images)
    return 3 * counter.get_total_flops() / 2


def others(dataset: Dataset, names: Sequence[str], most: int, which: Sequence[str]) -> Iterator[list[object]]:
    """Table 3's backbones: how long a round of one training takes, a vehicle a stream and vehicles as one network."""
    bandwidth, rate = ceilings()
    yield [f"others: this card, {bandwidth / 1e12:.1f} TB/s", rate / 1e12, "TFLOP/s"]
    for backbone in names:
        plan = replace(plan_for(dataset, 100), backbone=backbone)
        exact = dict[int, dict[str, torch.Tensor]]()
        for name in which:
            trainer = TRAINERS[name](most)
            what = f"others: {backbone}, {name}"
            federation = Federation(dataset, plan, torch.device(DEVICE), trainer)
            state = federation.start()
            jobs = list(federation.jobs(replace(state, round=plan.depart_at)).values())[:1]
            train = partial(federation.train, federation.model, jobs)
            first, _, later = timed(train), timed(train), timed(train)
            images = plan.epochs * sum(len(v.labels) for v in jobs[0].vehicles.values())
            done = operations(federation.model) * images / later
            yield [f"{what}: the first round, which compiles", first, "s"]
            yield [f"{what}: a later round", later, "s"]
            yield [f"{what}: 5 million images", later * 5e6 / images, "s"]
            yield [f"{what}: of the card's rate", done / rate, ""]
            spent = {kernel: sum(times) / 1e6 for kernel, times in microseconds(train).items()}
            longest = sorted(spent.items(), key=lambda item: -item[1])[:16]
            yield [f"{what}: its kernels, {len(spent)} kinds, side by side", sum(spent.values()), "s"]
            for kernel, seconds in longest:
                yield [f"{what}: {kernel[:56]}", seconds, "s"]
            for batches in (1, 8):
                job = shortened(jobs[0], batches * plan.batch_size)
                if batches not in exact:
                    exact[batches] = in_float64(federation.model, job)
                found = error(federation.train(federation.model, [job])[0], exact[batches], job.start)
                yield [f"{what}: off float64 after {batches} steps", found, "of the movement"]
            torch._dynamo.reset()  # what is compiled for one trainer is of no use to the next


TRAINERS: dict[str, Callable[[int], Trainer]] = {
    "streams": lambda _: CudaGraphTrainer(compiled=True),
    "one-network": lambda most: StackedTrainer(compiled=True, most=most),
}


def shortened(job: Job, most: int) -> Job:
    """With at most so many samples of each vehicle."""
    held = {v: Samples(s.images[:most], s.labels[:most]) for v, s in job.vehicles.items()}
    return replace(job, vehicles=held)


def in_float64(model: Classifier, job: Job) -> dict[str, torch.Tensor]:
    """What the reference loop makes of a job."""
    start = {k: v.double() if v.is_floating_point() else v for k, v in job.start.items()}
    return train_plain(copy.deepcopy(model).double(), [replace(job, start=start)])[0]


def error(
    state: Mapping[str, torch.Tensor], exact: Mapping[str, torch.Tensor], start: Mapping[str, torch.Tensor]
) -> float:
    """How far a model is from the exact one, relative to how far that has moved."""
    real = [name for name, tensor in start.items() if tensor.is_floating_point()]
    apart = torch.cat([(state[k].double() - exact[k]).reshape(-1) for k in real]).norm()
    return float(apart / torch.cat([(exact[k] - start[k].double()).reshape(-1) for k in real]).norm())


def methods(dataset: Dataset, rounds: int) -> list[list[object]]:
    """What a method adds to a round, beside training as the engine does it, and with nothing beside it."""
    rows: list[list[object]] = []
    base = replace(plan_for(dataset, rounds), methods=("frozen",), eval_every=rounds, slow_every=None)
    run(dataset, plan_for(dataset, 3), device=DEVICE)
    unread = timed(lambda: run(dataset, base, device=DEVICE))
    rows.append([f"methods: none, {rounds} rounds", unread, "s"])
    for name in ("frozen", "mpt", "mpt-lite", "mpt-x"):
        plan = replace(base, methods=(name,), eval_every=1)
        rows.append(
            [f"methods: {name}, read out in every round", timed(partial(run, dataset, plan, device=DEVICE)), "s"]
        )
    return rows


def ceilings() -> tuple[float, float]:
    """Bytes a second of a large copy, read and written, and bfloat16 operations a second of a large product."""
    big, square = (
        torch.empty(2**31, dtype=torch.uint8, device=DEVICE),
        torch.randn(8192, 8192, device=DEVICE).bfloat16(),
    )
    copied = min(timed(big.clone) for _ in range(5))
    multiplied = min(timed(lambda: [square @ square for _ in range(10)]) for _ in range(3)) / 10
    return 2 * big.numel() / copied, 2 * 8192**3 / multiplied


def kernels(dataset: Dataset) -> list[list[object]]:
    """Microseconds a step of 10 vehicles x 64 images, by kernel, beside the two floors."""
    federation = Federation(dataset, plan_for(dataset, 3), torch.device(DEVICE))
    jobs = list(federation.jobs(federation.start()).values())
    federation.train(federation.model, jobs)
    spent = microseconds(lambda: federation.train(federation.model, jobs))
    steps = len(spent["descend"])
    bandwidth, rate = ceilings()
    size = dataset.image_shape[0]
    vehicles = len(jobs[0].vehicles)
    rows = [vehicles * 64 * (size >> i) ** 2 for i in range(3)]
    shapes = Layout(3, dataset.num_classes).shapes
    ins = [2 * n * ci for n, (_, ci, _) in zip(rows, shapes, strict=True)]
    outs = [2 * n * co for n, (_, _, co) in zip(rows, shapes, strict=True)]
    work = [2 * n * taps * ci * co for n, (taps, ci, co) in zip(rows, shapes, strict=True)]
    least: dict[str, tuple[float, float]] = {
        "patches": (ins[0], 0),
        "convolve": (sum(ins) + sum(outs) + sum(ins[1:]) + sum(outs[1:]), sum(work) + sum(work[1:])),
        "activate_pool": (sum(outs[:2]) + sum(ins[1:]), 0),
        "activate_mean": (outs[2], 0),
        "activate_back": (3 * sum(outs) + 2 * sum(ins[1:]), 0),
        "weight_gradient": (sum(ins) + sum(outs), sum(work)),
    }
    table: list[list[object]] = []
    for name, times in sorted(spent.items(), key=lambda item: -sum(item[1]))[:12]:
        moved, done = least.get(name, (0.0, 0.0))
        floor = max(moved / bandwidth, done / rate) * 1e6
        table.append([f"kernels: {name[:40]}, floor {floor:.0f}", sum(times) / steps, "us a step"])
    both = f"{bandwidth / 1e12:.1f} TB/s, {rate / 1e12:.0f} TFLOP/s"
    table.append([f"kernels: all; this card: {both}", sum(map(sum, spent.values())) / steps, "us a step"])
    return table


def precision(dataset: Dataset) -> list[list[object]]:
    """How far each trainer is from float64."""
    plan = plan_for(dataset, 3)
    plan = replace(plan, epochs=1)
    federation = Federation(dataset, plan, torch.device(DEVICE))
    jobs = list(federation.jobs(federation.start()).values())
    exact = in_float64(federation.model, jobs[0])
    trainers: dict[str, Trainer] = {"reference loop": train_plain}
    trainers |= {f"stacked {p}": TritonTrainer(p) for p in ("float32", "tf32", "bfloat16")}
    trainers |= {f"captured {p}": CudaGraphTrainer(p) for p in ("float32", "tf32", "bfloat16")}
    rows: list[list[object]] = []
    for name, trainer in trainers.items():
        for tf32 in (False, True) if trainer is train_plain else (True,):
            with torch.backends.cudnn.flags(enabled=True, allow_tf32=tf32):
                once, again = (trainer(federation.model, jobs)[0] for _ in range(2))
            same = "the same bits again" if all(torch.equal(once[k], again[k]) for k in once) else "other bits again"
            label = f"{name} {'tf32' if tf32 else 'float32'}" if trainer is train_plain else name
            rows.append([f"precision: {label}, {same}", error(once, exact, jobs[0].start), "of the movement"])
    return rows


def profile(dataset: Dataset) -> None:
    """The functions that take longest on the host."""
    plan = plan_for(dataset, 26)
    profiler = cProfile.Profile()
    profiler.runcall(run, dataset, plan, device=DEVICE)
    pstats.Stats(profiler).sort_stats("tottime").print_stats(28)
    pstats.Stats(profiler).sort_stats("cumtime").print_stats(40)


def main() -> None:
    """Run what was asked for and print one table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="+", default=["whole", "grid", "backbones"])
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--backbones", nargs="+", default=["resnet18", "mobilenetv3", "vit-tiny"], help="of others")
    parser.add_argument("--most", type=int, default=16, help="vehicles in one network, of others")
    parser.add_argument("--trainers", nargs="+", default=list(TRAINERS), choices=TRAINERS, help="of others")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    cifar = unpack(args.folder, "cifar10")
    rows: list[list[object]] = []
    for what in args.only:
        if what == "profile":
            profile(cifar)
            continue
        parts: dict[str, Callable[[], Iterable[list[object]]]] = {
            "whole": lambda: whole(cifar, args.rounds),
            "grid": lambda: grid(cifar, args.rounds),
            "networks": lambda: networks(cifar),
            "backbones": lambda: backbones(args.folder),
            "others": lambda: others(cifar, args.backbones, args.most, args.trainers),
            "methods": lambda: methods(cifar, args.rounds),
            "kernels": lambda: kernels(cifar),
            "precision": lambda: precision(cifar),
        }
        for row in parts[what]():
            rows.append(row)
            print(f"{row[0]:80s} {row[1]:10.3g} {row[2]}", flush=True)
    if args.out:
        with (args.out / "engine.csv").open("w", newline="") as file:
            csv.writer(file).writerows([["what", "value", "unit"], *rows])
    device = torch.cuda.get_device_name() if DEVICE == "cuda" else "CPU"
    print(f"{device}, torch {torch.__version__}, NumPy {np.__version__}")


if __name__ == "__main__":
    main()
