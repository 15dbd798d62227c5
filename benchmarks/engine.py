"""The fast engine against the reference loop, on a GPU and at the paper's scale.

    python benchmarks/real_images.py pack FOLDER PACKED     # once: FOLDER/NAME-{train,test}.parquet
    python benchmarks/engine.py PACKED [--only whole grid backbones precision profile] [--rounds 100] [--out OUT]

- whole: cifar10, truck, 2%: one training of 100 rounds, every training-free method read out in every round, CCVR and
  LDC in every tenth; against rounds of the reference loop, timed in the same call.
- grid: four fractions by three seeds of it, advanced together.
- backbones: rounds of ResNet-18 on cars-bodytype at 64 x 64, fast against reference.
- profile: where the time of a round goes.

Every figure is a wall-clock time of this call; the ratios are what to compare.
"""

import argparse
import cProfile
import csv
import pstats
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from real_images import unpack

from mpt.data import Dataset
from mpt.federation.engine import Federation, run, run_together
from mpt.federation.plan import Plan

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
    """Seconds a round of training alone, over `count` rounds after a first one."""
    federation = Federation(dataset, plan, torch.device(DEVICE))
    state = federation.start()
    jobs = federation.jobs(state)

    def train() -> None:
        federation.train(federation.model, list(jobs.values()))

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
    return [[f"grid: 12 trainings of {rounds} rounds", timed(lambda: run_together(dataset, plans, device=DEVICE)), "s"]]


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


def profile(dataset: Dataset) -> None:
    """The functions that take longest, on the host, and the kernels, on the device."""
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
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    cifar = unpack(args.folder, "cifar10")
    rows: list[list[object]] = []
    for what in args.only:
        if what == "profile":
            profile(cifar)
            continue
        new = (
            backbones(args.folder) if what == "backbones" else {"whole": whole, "grid": grid}[what](cifar, args.rounds)
        )
        rows += new
        for label, value, unit in new:
            print(f"{label:80s} {value:10.3f} {unit}", flush=True)
    if args.out:
        with (args.out / "engine.csv").open("w", newline="") as file:
            csv.writer(file).writerows([["what", "value", "unit"], *rows])
    device = torch.cuda.get_device_name() if DEVICE == "cuda" else "CPU"
    print(f"{device}, torch {torch.__version__}, NumPy {np.__version__}")


if __name__ == "__main__":
    main()
