"""Real images at paper scale: the two ridges on the tuning classes, then every method on the reported ones.

    python benchmarks/real_images.py pack FOLDER PACKED     # FOLDER/NAME-{train,test}.parquet to PACKED/NAME.npz
    python benchmarks/real_images.py tune PACKED RESULTS
    python benchmarks/real_images.py report PACKED RESULTS
    python benchmarks/real_images.py tables RESULTS         # the tables of docs/explanation/results.md

`pack` keeps the JPEG bytes, so that a machine with a GPU needs neither pyarrow nor much room. All seeds of a cell are
trained together. RESULTS/tune.csv and report.csv are written anew after every cell; cells that are there are not run
again, and after `--seconds` no further one is begun.
"""

import argparse
import csv
import io
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from PIL import Image
from scipy import stats

try:
    import pyarrow.parquet as pq
except ImportError:
    pq = None

from mpt.core import Deposit, NearestClassMean
from mpt.data import Dataset, Split
from mpt.federation.engine import run_together
from mpt.federation.measurement import Measurement
from mpt.federation.plan import Plan
from mpt.methods import Method, RoundContext, find_method
from mpt.methods.mpt import Mpt

TUNING = [
    ("cars-bodytype", "coupe", 0.02),
    ("cifar10", "bird", 0.02),
    ("cifar10", "deer", 0.02),
    ("cifar10", "ship", 0.02),
]
REPORTED = [
    ("cars-bodytype", "van", 0.1),
    ("cars-bodytype", "van", 0.02),
    ("cifar10", "truck", 0.02),
    ("cifar10", "truck", 0.1),
]
COLUMNS = [
    *("dataset", "rare", "remaining", "seed", "round", "method", "readout"),
    *("rare_f1", "rare_precision", "rare_recall", "balanced_accuracy", "others_accuracy"),
    *("prototype_distance", "bytes_up", "bytes_down"),
]
RIDGES, COV_RIDGES = (0.03, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0), (0.01, 0.03, 0.1, 0.3, 1.0)
ROWS = [
    "mpt",
    "mpt-lite",
    "mpt:in-span",
    "mpt:stored-residual",
    "mpt:predicted",
    "mpt:measured",
    "frozen",
    "remaining-mean",
    "icarl",
    "sdc",
    "ldc",
    "sdc:all",
    "ldc:all",
    "oracle",
    "oracle-train",
    "live",
    "fedavg",
    "fedlc",
    "ccvr",
]


@dataclass(frozen=True)
class Tried:
    """MPT with its own two ridges, read out with its own covariance ridge."""

    needs_departure: ClassVar[bool] = True
    inner: Mpt
    name: str
    training: str = "held-out"

    def depart(self, context: RoundContext) -> Deposit:
        """As MPT."""
        return self.inner.depart(context)

    def track(self, state: Deposit, context: RoundContext) -> tuple[Deposit, NearestClassMean]:
        """As MPT, with a readout of its own."""
        state, prototype = self.inner.track(state, context)
        stats = context.report(context.request())
        prototypes = stats.means
        prototypes[context.departed] = prototype
        return state, NearestClassMean(prototypes, stats.covariance(), cov_ridge=self.inner.cov_ridge)


def pack(folder: Path, out: Path) -> None:
    """The encoded images, labels and class names of every set in `folder`."""
    for train in sorted(folder.glob("*-train.parquet")):
        name, packed = train.name.removesuffix("-train.parquet"), {}
        for split in ("train", "test"):
            table = pq.read_table(folder / f"{name}-{split}.parquet")
            label = next(c for c in table.column_names if c not in ("image", "model"))
            images = [row["bytes"] for row in table.column("image").to_pylist()]
            features = json.loads(table.schema.metadata[b"huggingface"])["info"]["features"]
            packed["classes"] = np.array(features[label]["names"])
            packed[f"{split}_bytes"] = np.frombuffer(b"".join(images), np.uint8)
            packed[f"{split}_ends"] = np.cumsum([len(image) for image in images])
            packed[f"{split}_labels"] = np.array(table.column(label).to_pylist())
        np.savez(out / f"{name}.npz", **packed)


def unpack(folder: Path, name: str) -> Dataset:
    """The dataset that `pack` wrote, decoded, at most 1,000 training samples a class."""
    packed = np.load(folder / f"{name}.npz")

    def split(which: str) -> Split:
        ends, data = packed[f"{which}_ends"], packed[f"{which}_bytes"].tobytes()
        parts = [data[a:b] for a, b in zip([0, *ends[:-1]], ends, strict=True)]
        return Split(
            np.stack([np.asarray(Image.open(io.BytesIO(p)).convert("RGB")) for p in parts]), packed[f"{which}_labels"]
        )

    return Dataset(name, tuple(packed["classes"].tolist()), split("train"), split("test")).limited(1000)


def run_cell(
    dataset: Dataset, rare: str, remaining: float, methods: list[Method], *, seeds: int, rounds: int
) -> list[Measurement]:
    """All rows of one cell."""
    plans = [
        Plan(
            rare=dataset.class_index(rare),
            methods=tuple(method.name for method in methods),
            remaining=remaining,
            rounds=rounds,
            depart_at=min(15, rounds - 1),
            eval_every=10,
            seed=seed,
        )
        for seed in range(seeds)
    ]
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return [row for rows in run_together(dataset, plans, device=device, methods=methods) for row in rows]


def record(name: str, rare: str, remaining: float, row: Measurement) -> list[str]:
    """The cells of one line."""
    scores, distance = row.scores, row.prototype_distance
    mine = (scores.f1, scores.precision, scores.recall)
    figures = (*(values[row.departing] for values in mine), scores.balanced_accuracy)
    return [
        *(name, rare, f"{remaining:g}", str(row.seed), str(row.round), row.method, row.readout),
        *(f"{value:.4f}" for value in (*figures, scores.others_accuracy)),
        "" if distance is None else f"{distance:.4f}",
        *(str(row.cost.bytes_up), str(row.cost.bytes_down)),
    ]


def run_cells(args: argparse.Namespace) -> None:
    """Run the cells that are not there yet, one after the other, and print a short table for each."""
    until, path = time.monotonic() + args.seconds, args.out / f"{args.what}.csv"
    lines = list(csv.reader(path.open()))[1:] if path.exists() else []
    done = {tuple(line[:3]) for line in lines}
    for name, rare, remaining in CELLS[args.what]:
        if (name, rare, f"{remaining:g}") in done or time.monotonic() > until:
            continue
        start = time.monotonic()
        rows = run_cell(
            unpack(args.folder, name), rare, remaining, METHODS[args.what](), seeds=args.seeds, rounds=args.rounds
        )
        lines += [record(name, rare, remaining, row) for row in rows]
        with path.open("w", newline="") as file:
            csv.writer(file).writerows([COLUMNS, *lines])
        print(f"{name} {rare} {remaining:.0%}: {time.monotonic() - start:.0f} s", flush=True)
        after: dict[str, list[float]] = {}
        for row in rows:
            if row.round > 15:
                after.setdefault(row.method, []).append(row.f1)
        for method, f1 in sorted(after.items(), key=lambda item: -np.mean(item[1]))[:24]:
            print(f"    {method:34s} {np.mean(f1):.3f}", flush=True)


def tuned() -> list[Any]:
    """MPT with every pair of ridges, and what to compare it with."""
    tried = [Tried(Mpt(ridge=r, cov_ridge=c), f"{r:g} {c:g}") for r in RIDGES for c in COV_RIDGES]
    return tried + [find_method(name) for name in ("oracle-train", "remaining-mean", "frozen")]


CELLS = {"tune": TUNING, "report": REPORTED}
METHODS = {"tune": tuned, "report": lambda: [find_method(name) for name in ROWS]}


def means(path: Path) -> dict[tuple[str, ...], dict[str, dict[str, tuple[float, float, float]]]]:
    """By cell, method and seed: F1's mean after the departure, at the last round, and the others' accuracy there."""
    found: dict[tuple[str, ...], dict[str, dict[str, list[tuple[int, float, float]]]]] = {}
    with path.open() as file:
        for line in csv.DictReader(file):
            if int(line["round"]) > 15:
                seeds = found.setdefault(tuple(line[c] for c in COLUMNS[:3]), {}).setdefault(line["method"], {})
                entry = int(line["round"]), float(line["rare_f1"]), float(line["others_accuracy"])
                seeds.setdefault(line["seed"], []).append(entry)
    return {
        cell: {
            method: {
                seed: (float(np.mean([f1 for _, f1, _ in entries])), max(entries)[1], max(entries)[2])
                for seed, entries in seeds.items()
            }
            for method, seeds in methods.items()
        }
        for cell, methods in found.items()
    }


def tuning_table(path: Path) -> None:
    """Mean F1 as a fraction of oracle-train's over cells and seeds, and the worst cell's."""
    cells = means(path)

    def fractions(name: str) -> list[float]:
        return [
            float(np.mean([m[name][s][0] for s in m[name]]) / np.mean([m["oracle-train"][s][0] for s in m[name]]))
            for m in cells.values()
        ]

    print("| ridge \\ cov_ridge | " + " | ".join(f"{c:g}" for c in COV_RIDGES) + " |")
    print("|---" * (len(COV_RIDGES) + 1) + "|")
    for ridge in RIDGES:
        row = [fractions(f"{ridge:g} {c:g}") for c in COV_RIDGES]
        print(f"| {ridge:g} | " + " | ".join(f"{np.mean(f):.3f} ({min(f):.2f})" for f in row) + " |")
    print(f"\nremaining-mean: {np.mean(fractions('remaining-mean')):.3f} ({min(fractions('remaining-mean')):.2f})")


def interval(gaps: np.ndarray) -> float:
    """Half of the 95% interval of the mean, Student's t; NaN for one seed."""
    if len(gaps) < 2:
        return float("nan")
    return float(stats.t.ppf(0.975, len(gaps) - 1) * gaps.std(ddof=1) / np.sqrt(len(gaps)))


def reported_table(path: Path) -> None:
    """F1 after the departure / at the last round, and mpt's paired differences with their 95% intervals."""
    cells = means(path)
    names = [f"{name} {rare} {float(remaining):.0%}" for name, rare, remaining in cells]
    print("| | " + " | ".join(names) + " |\n" + "|---" * (len(names) + 1) + "|")
    for method in ROWS:
        entries = []
        for methods in cells.values():
            seeds = np.array(list(methods[method].values()))
            sd = seeds[:, 0].std(ddof=1) if len(seeds) > 1 else 0.0
            entries.append(f"{seeds[:, 0].mean():.3f} ± {sd:.3f} / {seeds[:, 1].mean():.3f}")
        print(f"| {method} | " + " | ".join(entries) + " |")
    print("\n| mpt less | " + " | ".join(names) + " |\n" + "|---" * (len(names) + 1) + "|")
    for method in ROWS:
        if method == "mpt":
            continue
        entries = []
        for methods in cells.values():
            gaps = np.array([methods["mpt"][s][0] - methods[method][s][0] for s in methods["mpt"]])
            entries.append(f"{gaps.mean():+.3f} ± {interval(gaps):.3f}")
        print(f"| {method} | " + " | ".join(entries) + " |")


def main() -> None:
    """See the head of this file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["pack", "tune", "report", "tables"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path, nargs="?")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=1e9)
    args = parser.parse_args()
    if args.what == "tables":
        tuning_table(args.folder / "tune.csv")
        print()
        reported_table(args.folder / "report.csv")
        return
    args.out.mkdir(parents=True, exist_ok=True)
    if args.what == "pack":
        pack(args.folder, args.out)
    else:
        run_cells(args)


if __name__ == "__main__":
    main()
