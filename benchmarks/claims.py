"""The paper's claims, judged by the runs on real images that docs/results.md is made of.

    python benchmarks/claims.py docs/results/report.csv

cifar10 truck stands for nuImages, cars-bodytype van for coarse-grained Car-1000; three-layer CNN, 2% and 10% remaining.
Prints Markdown; claims that need other cells are not run.
"""

import csv
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path

from mpt.experiments.cells import Store
from mpt.experiments.claims import judged
from mpt.experiments.plans import PAPER, Lab, Wanted
from mpt.experiments.results import Outcome, Results
from mpt.experiments.sets import Source
from mpt.tables import Tables

SOURCES = {
    "nuimages": Source("nuimages", "cifar10", "truck"),
    "car1000-coarse": Source("car1000-coarse", "cars-bodytype", "van"),
}
NUMBERS = ("rare_f1", "rare_precision", "rare_recall", "balanced_accuracy", "others_accuracy", "prototype_distance")


@dataclass(frozen=True)
class Recorded(Results):
    """Results that were recorded elsewhere, by set and remaining fraction."""

    recorded: dict[tuple[str, float], Outcome] = field(default_factory=dict)

    def of(self, wanted: Wanted) -> Outcome | None:
        """The recorded outcome of a main cell with the three-layer CNN."""
        if wanted.backbone != "cnn3" or wanted.study != "main":
            return None
        return self.recorded.get((wanted.set, wanted.remaining))

    def name(self, wanted: Wanted) -> str:
        """With the set that stands for the paper's."""
        return f"{SOURCES[wanted.set].short} {100 * wanted.remaining:g}% {wanted.backbone}"


def read(path: Path) -> dict[tuple[str, float], Outcome]:
    """The outcomes of a table that benchmarks/real_images.py wrote."""
    sets = {source.spec: name for name, source in SOURCES.items()}
    found: dict[tuple[str, float], list[dict]] = {}
    with path.open(newline="", encoding="utf-8") as file:
        for line in csv.DictReader(file):
            record = {"seed": int(line["seed"]), "round": int(line["round"]), "method": line["method"]}
            record |= {name: float(line[name]) if line[name] else None for name in NUMBERS}
            found.setdefault((sets[line["dataset"]], float(line["remaining"])), []).append(record)
    return {key: Outcome(Tables(metrics=tuple(records)), 15, 100) for key, records in found.items()}


def main() -> None:
    """See the head of this file."""
    recorded = read(Path(sys.argv[1]))
    table = judged(Recorded(Lab(PAPER, {}, 3), Store(Path("none")), recorded=recorded))
    labels = "; ".join(source.label for source in SOURCES.values())
    print(replace(table, notes=(f"Data: {labels}. {sys.argv[1]}, three seeds.",)).markdown())


if __name__ == "__main__":
    main()
