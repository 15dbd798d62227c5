"""F1 against drift: when a frozen prototype will do. From folders that `mpt run --out` wrote.

    python benchmarks/drift.py DIR [DIR ...]

A line an interval of `rare_drift`: how many evaluated rounds after the departure lie in it, and each method's F1 as a
fraction of oracle-train's, all folders and seeds together.
"""

import argparse
import csv
from collections import defaultdict
from pathlib import Path

import numpy as np

EDGES = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, np.inf)


def rounds(folder: Path) -> dict[tuple[str, int], float]:
    """The drift by seed and round."""
    with (folder / "diagnostics.csv").open() as file:
        lines = [line for line in csv.DictReader(file) if not line["method"] and line["rare_drift"]]
    return {(line["seed"], int(line["round"])): float(line["rare_drift"]) for line in lines}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", type=Path, nargs="+")
    found: dict[int, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for folder in parser.parse_args().folders:
        drift = rounds(folder)
        departed = min(number for _, number in drift)
        with (folder / "metrics.csv").open() as file:
            for line in csv.DictReader(file):
                where = line["seed"], int(line["round"])
                if where[1] > departed and where in drift and line["accuracy"]:  # the line of the class that departs
                    place = int(np.searchsorted(EDGES, drift[where], side="right")) - 1
                    found[place][line["method"]].append(float(line["f1"]))
    methods = [name for name in next(iter(found.values())) if name != "oracle-train"]
    print("| drift | rounds | oracle-train's F1 | " + " | ".join(methods) + " |")
    print("|---" * (len(methods) + 3) + "|")
    for place, scores in sorted(found.items()):
        best = float(np.mean(scores["oracle-train"]))
        shares = " | ".join(f"{np.mean(scores[name]) / best:.3f}" for name in methods)
        high = "" if np.isinf(EDGES[place + 1]) else f" to {EDGES[place + 1]:g}"
        print(f"| {EDGES[place]:g}{high} | {len(scores['oracle-train'])} | {best:.3f} | {shares} |")


if __name__ == "__main__":
    main()
