"""How far out a departed class should be read out, Eq. (X10): MPT-X at the paper's scale on tuning classes.

    python benchmarks/real_images.py pack FOLDER PACKED                 # where pyarrow is
    python benchmarks/outward.py PACKED RESULTS.csv [SET:CLASS:BACKBONE ...]       # six minutes on an H200
    python benchmarks/outward.py table RESULTS.csv

MPT-X's prototype p is moved to m + k (p - m), m the mean of the reference prototypes, with k by three rules: a fixed
factor; (R / r)^gamma, which is Eq. (X10) with other powers; the same of how R / r has grown since the departure. 2% of
the class remain, one seed. RESULTS has a line a cell and rule: means over the evaluated rounds after the departure.
"""

import argparse
import csv
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from real_images import unpack

from mpt import RunConfig, simulate
from mpt.core.health import whiten, whitening
from mpt.core.validation import Floats
from mpt.data import save_npz
from mpt.methods import RoundContext
from mpt.methods.mpt_x import MptX, MptXState

CELLS = (
    *("cifar10:ship:resnet18", "cars-bodytype:coupe:resnet18", "cifar10:ship:cnn3", "cifar10:deer:cnn3"),
    *("cifar10:bird:cnn3", "cars-bodytype:coupe:cnn3", "cars-bodytype:convertible:cnn3"),
    *("cars-sedansize:compact:cnn3", "cars-sedansize:large:cnn3"),
)
RULES = {
    "factor": (1.1, 1.2, 1.35, 1.5, 1.75, 2.0, 2.5),
    "growth": (0.2, 0.3, 0.4, 0.5, 0.7, 1.0),
    "power": (0.2, 0.3, 0.5, 0.7, 1.0),
}
BESIDE = ("mpt-x:in-place", "mpt", "ldc:all", "remaining-mean", "oracle-train")
COLUMNS = ("rare_f1", "rare_precision", "rare_recall", "others_accuracy")
FOUND: dict[tuple[int, bytes], tuple[Floats, ...]] = {}
"""What a round has found serves all rules."""


@dataclass(frozen=True)
class Moved(MptX):
    """MPT-X whose prototype is moved outwards by a rule."""

    rule: str = "factor"
    size: float = 1.0
    outward: bool = False

    def track(self, state: MptXState, context: RoundContext) -> tuple[MptXState, Floats]:
        """As MPT-X's, then outwards."""
        key = context.round, state.deposit.prototype.tobytes()
        if key not in FOUND:
            FOUND[key] = self._found(state, context)
        prototype, middle, there, at_departure = FOUND[key]
        of = {"factor": np.e, "growth": there / at_departure, "power": there}[self.rule]
        by = self.size if self.rule == "factor" else max(1.0, float(of)) ** self.size
        return state, middle + by * (prototype - middle)

    def _found(self, state: MptXState, context: RoundContext) -> tuple[Floats, ...]:
        _, prototype = super().track(state, context)
        deposit, stats = state.deposit, context.report(context.request())
        means = stats.means[deposit.classes]
        factor = whitening(stats.covariance(), deposit.cov_ridge)
        there = _ratio(prototype, means, factor)
        at_departure = _ratio(deposit.prototype, deposit.reference, deposit.covariance_factor)
        return prototype, means.mean(axis=0), np.array(there), np.array(at_departure)


def _ratio(prototype: Floats, reference: Floats, factor: Floats) -> float:
    """R / r."""
    middle = reference.mean(axis=0)
    squares = np.sum(whiten(reference - middle, factor) ** 2, axis=1)
    return float(np.sqrt(squares.mean()) / np.linalg.norm(whiten(prototype - middle, factor)))


def run(packed: Path, cell: str, place: Path, **settings: Any) -> list[list[str]]:
    """The lines of a cell."""
    dataset, rare, backbone = cell.split(":")
    file = place / f"{dataset}.npz"
    if not file.exists():
        save_npz(unpack(packed, dataset), file)
    tried = {f"{rule} {size:g}": (rule, size) for rule, sizes in RULES.items() for size in sizes}
    specs = [f"{__file__}:Moved(name={n!r}, rule={rule!r}, size={size!r})" for n, (rule, size) in tried.items()]
    scale = {
        "rounds": 100,
        "depart_at": 15,
        "per_class": 1000,
        "epochs": 5,
        "eval_every": 5 if backbone == "cnn3" else 10,
    }
    scale |= settings
    config = RunConfig(
        dataset=f"npz:{file}", rare=rare, backbone=backbone, remaining=0.02, methods=(*BESIDE, *specs), **scale
    )
    rows = [r for r in simulate(config).figures.metrics if r["round"] > config.depart_at]
    lines = []
    for name in (*BESIDE, *tried):
        mine = [[r[c.removeprefix("rare_")] for c in COLUMNS] for r in rows if r["method"] == name]
        lines.append([dataset, rare, backbone, name, *(f"{v:.4f}" for v in np.mean(mine, axis=0))])
    return lines


def table(path: Path) -> None:
    """F1 by rule and cell, and the mean over cells of its ratio to MPT-X's where it is."""
    f1: dict[str, dict[str, float]] = defaultdict(dict)
    for line in csv.DictReader(path.open()):
        f1[line["method"]][f"{line['dataset']} {line['rare']} {line['backbone']}"] = float(line["rare_f1"])
    base = f1["mpt-x:in-place"]
    cnn3 = [c for c in base if c.endswith("cnn3")]
    print("| | " + " | ".join(base) + " | mean ratio | with cnn3 | worst |")
    print("|" + "---|" * (len(base) + 4))
    for name, mine in f1.items():
        ratios = [np.mean([mine[c] / base[c] for c in cells]) for cells in (base, cnn3)]
        shown = [*(f"{mine[c]:.3f}" for c in base), *(f"{r:.3f}" for r in ratios)]
        print(f"| {name} | " + " | ".join(shown) + f" | {min(mine[c] / base[c] for c in base):.3f} |")


def main() -> None:
    """See the head of this file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("packed")
    parser.add_argument("results", type=Path)
    parser.add_argument("cells", nargs="*", default=CELLS)
    parser.add_argument("--rounds", type=int, help="fewer, to try it")
    args = parser.parse_args()
    if args.packed == "table":
        table(args.results)
        return
    fewer = {"rounds": args.rounds, "depart_at": 2, "per_class": 40, "eval_every": 1} if args.rounds else {}
    lines = [["dataset", "rare", "backbone", "method", *COLUMNS]]
    with tempfile.TemporaryDirectory() as place:
        for cell in args.cells:
            lines += run(Path(args.packed), cell, Path(place), **fewer)
            with args.results.open("w", newline="") as file:
                csv.writer(file).writerows(lines)
            print(f"{cell} done", flush=True)
    table(args.results)


if __name__ == "__main__":
    main()
