"""Real images at paper scale: the two ridges on the tuning classes, then every method on the reported ones.

    python benchmarks/real_images.py pack FOLDER OUT     # FOLDER/NAME-{train,test}.parquet to OUT/NAME.npz
    python benchmarks/real_images.py tune OUT RESULTS [--seconds 550]
    python benchmarks/real_images.py report OUT RESULTS --ridge 0.2 --cov-ridge 0.1 [--seconds 550]

`pack` keeps the JPEG bytes, so that a machine with a GPU needs neither pyarrow nor much room. One file a cell, written
as soon as the cell is done; after `--seconds` no further round is begun, and what is there is written.
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

try:
    import pyarrow.parquet as pq
except ImportError:
    pq = None

from mpt.core import Deposit, NearestClassMean
from mpt.data import Dataset, Split
from mpt.federation.engine import Federation
from mpt.federation.evaluation import Row
from mpt.federation.plan import Plan
from mpt.methods import Method, Now, find_method
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
    "fedavg",
    "ccvr",
]


@dataclass(frozen=True)
class Tried:
    """MPT with its own two ridges, read out with its own covariance ridge."""

    needs_departure: ClassVar[bool] = True
    inner: Mpt
    name: str
    training: str = "held-out"

    def depart(self, now: Now) -> Deposit:
        """As MPT."""
        return self.inner.depart(now)

    def track(self, kept: Deposit, now: Now) -> tuple[Deposit, NearestClassMean]:
        """As MPT, with a readout of its own."""
        kept, prototype = self.inner.track(kept, now)
        stats = now.report(now.request())
        prototypes = stats.means
        prototypes[now.departed] = prototype
        return kept, NearestClassMean(prototypes, stats.covariance(), cov_ridge=self.inner.cov_ridge)


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
    dataset: Dataset, rare: str, remaining: float, methods: list[Method], *, until: float, rounds: int
) -> list[Row]:
    """All rows of one cell, seed 0, or those made before `until`."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    plan = Plan(
        rare=dataset.class_index(rare),
        methods=(),
        remaining=remaining,
        rounds=rounds,
        depart_at=min(15, rounds - 1),
        eval_every=10,
    )
    federation, rows = Federation(dataset, plan, device, methods=methods), list[Row]()
    state = federation.start()
    while state.round < rounds:
        state, new = federation.advance(state)
        rows += new
        if state.round % 25 == 0:
            print(f"  {dataset.name} {rare} {remaining:.0%} round {state.round}", flush=True)
        if time.monotonic() > until:
            print("  out of time")
            break
    return rows


def save(path: Path, rows: list[Row]) -> None:
    """One line a method and round."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        scored = ["rare_f1", "precision", "recall", "accuracy", "balanced"]
        writer.writerow(["seed", "round", "method", "readout", *scored, "prototype_distance", "bytes_up", "bytes_down"])
        for r in rows:
            s = r.scores
            scores = (s.rare_f1, s.rare_precision, s.rare_recall, s.accuracy, s.balanced_accuracy)
            distance = "" if r.prototype_distance is None else f"{r.prototype_distance:.4f}"
            cells = [f"{value:.4f}" for value in scores]
            writer.writerow(
                [r.seed, r.round, r.method, r.readout, *cells, distance, r.cost.bytes_up, r.cost.bytes_down]
            )


def main() -> None:
    """Run the cells one after the other and print a short table for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["pack", "tune", "report"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--ridge", type=float, default=0.2)
    parser.add_argument("--cov-ridge", type=float, default=0.1)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=1e9)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    if args.what == "pack":
        pack(args.folder, args.out)
        return
    until = time.monotonic() + args.seconds
    methods: list[Any] = [find_method(name, ridge=args.ridge, cov_ridge=args.cov_ridge) for name in ROWS]
    if args.what == "tune":
        grid = [(ridge, cov_ridge) for ridge in RIDGES for cov_ridge in COV_RIDGES]
        methods = [Tried(Mpt(ridge=r, cov_ridge=c), f"mpt ridge={r} cov_ridge={c}") for r, c in grid]
        methods += [find_method(name) for name in ("oracle-train", "remaining-mean", "frozen")]
    for name, rare, remaining in TUNING if args.what == "tune" else REPORTED:
        if time.monotonic() > until:
            break
        dataset = unpack(args.folder, name)
        rows = run_cell(dataset, rare, remaining, methods, until=until, rounds=args.rounds)
        save(args.out / f"{args.what}-{name}-{rare}-{remaining * 100:.0f}.csv", rows)
        after: dict[str, list[float]] = {}
        for row in rows:
            if row.round > 15:
                after.setdefault(row.method, []).append(row.scores.rare_f1)
        for method, f1 in sorted(after.items(), key=lambda item: -np.mean(item[1])):
            print(f"    {method:34s} mean {np.mean(f1):.3f}  last {f1[-1]:.3f}", flush=True)


if __name__ == "__main__":
    main()
