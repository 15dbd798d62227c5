"""Cross-moment tracking offline: every estimator on the features that `benchmarks/cross_record.py` kept.

    python benchmarks/cross.py tune FOLDER RESULTS.csv        # kernel width, ridge, and what the ridge shrinks towards
    python benchmarks/cross.py tried FOLDER RESULTS.csv       # what else might give more
    python benchmarks/cross.py compare FOLDER RESULTS.csv     # the methods with their defaults, by remaining samples
    python benchmarks/cross.py assumed FOLDER                 # what Eq. (X5) and (X6) assume of the departed class
    python benchmarks/cross.py table RESULTS.csv              # mean over cells; F1 as a fraction of oracle-train's
    python benchmarks/cross.py health RESULTS.csv             # how often the truth was within the stated error

A federation after its departure does not train on the remaining samples, so one training serves every number of them:
N of the class's samples are drawn anew, three times. RESULTS has a line a cell, seed, round, N, draw and estimator.
"""

import argparse
import csv
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from estimators import COMPARED, OUTWARDS, TRIED, Cell, Estimate, assumed, mapped

from mpt.core.readout import DEFAULT_OUTWARD

COLUMNS = (
    *("cell", "seed", "round", "remaining", "samples", "draw", "estimator"),
    *("f1", "best_f1", "distance", "margin", "others", "best_others", "expected", "verdict"),
)
WIDTHS, MAP_RIDGES = (None, 0.1, 0.15, 0.25), (0.006, 0.02, 0.06)
REMAINING = (0.0, 0.01, 0.02, 0.05, 0.1)
SHARES = (0.0, 0.15, 0.3, 0.45, 0.6, 0.85, 1.0)
"""Of the margin: intervals for F1 by distance."""


def tuned() -> dict[str, Estimate]:
    """A grid over width, ridge and what the map is shrunk towards."""

    def one(width: float | None, ridge: float, towards: float | None) -> Estimate:
        return lambda cell: mapped(cell, width, ridge, towards=towards)

    shrunk = {"rho": None, "zero": 0.0, "identity": 1.0}
    grid = {f"{w or 'alike'} {r:g} {n}": one(w, r, t) for w in WIDTHS for r in MAP_RIDGES for n, t in shrunk.items()}
    return {"oracle-train": COMPARED["oracle-train"], **grid}


def lines(args: argparse.Namespace) -> Iterator[list[str]]:
    """A line for every cell and estimator."""
    what = {"tune": tuned(), "tried": TRIED, "compare": COMPARED}[args.what]
    for path in sorted(args.folder.glob("*.npz")):
        kept = np.load(path)
        total = int(np.sum(kept["labels"] == kept["rare"]))
        for number in kept["rounds"][1:].tolist():
            for fraction in (0.0,) if args.what == "tune" else (0.02,) if args.what == "tried" else REMAINING:
                samples = round(fraction * total)
                for draw in range(args.draws if samples else 1):
                    cell = Cell(path, number, samples, draw)
                    cell.keep(args.per_class)
                    best, best_others = cell.scores(cell.truth)
                    for name, estimate in what.items():
                        made = estimate(cell)
                        place = isinstance(made, np.ndarray)
                        power = DEFAULT_OUTWARD if name in OUTWARDS else 0.0
                        f1, others = cell.scores(made, power) if place else made
                        far = (
                            [f"{value:.4f}" for value in (cell.distance(made), cell.margin(made))]
                            if place
                            else ["", ""]
                        )
                        rec = {"mpt-x": cell.tracked, "mpt": cell.plain}.get(name) if args.what != "tune" else None
                        stated = [f"{rec.expected_error:.4f}", rec.verdict] if rec is not None else ["", ""]
                        key = [cell.cell, str(cell.seed), str(number), f"{fraction:g}", str(samples), str(draw), name]
                        scores = [f"{f1:.4f}", f"{best:.4f}", *far, f"{others:.4f}", f"{best_others:.4f}"]
                        yield [*key, *scores, *map(str, stated)]
        print(f"{path.stem} done", flush=True)


Entries = dict[tuple[float, str], dict[str, list[tuple[float, ...]]]]
"""By what remains and estimator, by cell: the numbers of each line."""


def table(path: Path) -> None:
    """F1 as a fraction of oracle-train's by what remains, the worst cell's, the distance; means over cells."""
    found: Entries = defaultdict(lambda: defaultdict(list))
    for line in csv.DictReader(path.open()):
        entry = tuple(float(line[c] or "nan") for c in ("f1", "best_f1", "distance", "others", "best_others"))
        found[float(line["remaining"]), line["estimator"]][f"{line['cell']}-{line['seed']}"].append(entry)
    print(
        "| remaining | estimator | F1 / oracle-train's | worst cell | distance | others' recall less oracle-train's |"
    )
    print("|---|---|---|---|---|---|")
    for (remaining, name), cells in sorted(found.items(), key=lambda item: (item[0][0], -_fraction(item[1]))):
        means = [np.mean(entries, axis=0) for entries in cells.values()]
        worst = min(m[0] / m[1] for m in means)
        far, others = np.mean([m[2] for m in means]), np.mean([m[3] - m[4] for m in means])
        print(f"| {remaining:.0%} | {name} | {_fraction(cells):.3f} | {worst:.3f} | {far:.2f} | {others:+.3f} |")
    for other in ("mpt", "ldc:all", "mpt-x in place"):
        gaps = _gaps(found, "mpt-x", other)
        if gaps:
            above, (least, where) = sum(gap > 0 for gap, _ in gaps), min(gaps)
            most = max(gaps)[0]
            print(f"mpt-x less {other}: above 0 in {above} of {len(gaps)}, {least:+.3f} ({where}) to {most:+.3f}")


def _gaps(found: Entries, one: str, other: str) -> list[tuple[float, str]]:
    """By cell and what remains: how far one estimator's fraction of oracle-train's F1 is above another's."""
    gaps = []
    for (remaining, name), cells in found.items():
        for cell, entries in cells.items() if name == one else ():
            if cell in found.get((remaining, other), {}):
                mine, theirs = np.mean(entries, axis=0), np.mean(found[remaining, other][cell], axis=0)
                gaps.append((float(mine[0] / mine[1] - theirs[0] / theirs[1]), f"{cell}, {remaining:.0%}"))
    return gaps


def _fraction(cells: dict[str, list[tuple[float, ...]]]) -> float:
    means = [np.mean(entries, axis=0) for entries in cells.values()]
    return float(np.mean([m[0] / m[1] for m in means]))


def health(path: Path) -> None:
    """How often the true distance was within the stated error, their ratio, F1 by verdict and by true distance."""
    by_samples, by_verdict, by_share = defaultdict(list), defaultdict(list), defaultdict(list)
    for line in csv.DictReader(path.open()):
        if line["distance"] and line["estimator"] != "oracle-train":
            share = float(line["distance"]) / float(line["margin"])
            place = int(np.searchsorted(SHARES, share, side="right")) - 1
            by_share[SHARES[place]].append(float(line["f1"]) / max(float(line["best_f1"]), 1e-9))
        if line["expected"]:
            ratio = float(line["distance"]) / float(line["expected"])
            by_samples[line["estimator"], float(line["remaining"])].append(ratio)
            by_verdict[line["estimator"], line["verdict"]].append(float(line["f1"]) / max(float(line["best_f1"]), 1e-9))
    print(
        "| estimator | remaining | lines | within | true / stated: 10% | median | 90% |\n|---|---|---|---|---|---|---|"
    )
    for (name, remaining), ratios in sorted(by_samples.items()):
        low, middle, high = np.quantile(ratios, [0.1, 0.5, 0.9])
        within = np.mean(np.array(ratios) <= 1)
        print(f"| {name} | {remaining:.0%} | {len(ratios)} | {within:.0%} | {low:.2f} | {middle:.2f} | {high:.2f} |")
    print("\n| estimator | verdict | lines | F1 / oracle-train's |\n|---|---|---|---|")
    for (name, verdict), fractions in sorted(by_verdict.items()):
        print(f"| {name} | {verdict} | {len(fractions)} | {np.mean(fractions):.3f} |")
    print("\n| true distance / margin, from | lines | F1 / oracle-train's: 10% | mean | 90% |\n|---|---|---|---|---|")
    for share, fractions in sorted(by_share.items()):
        low, high = np.quantile(fractions, [0.1, 0.9])
        print(f"| {share:g} | {len(fractions)} | {low:.3f} | {np.mean(fractions):.3f} | {high:.3f} |")


def assumptions(folder: Path, per_class: int | None) -> None:
    """By cell and round, and over all of them."""
    print("| cell | round | noise: departed / fitted | (1 - p / n)^-2 | squared error: departed / left out |")
    print("|---|---|---|---|---|")
    found = []
    for path in sorted(folder.glob("*.npz")):
        for number in np.load(path)["rounds"][1:].tolist():
            cell = Cell(path, number, 0, 0)
            cell.keep(per_class)
            noise, wrong, fitted = assumed(cell)
            found.append((noise, max(1 - fitted, 0.01) ** -2, wrong))
            print(f"| {path.stem} | {number} | " + " | ".join(f"{value:.2f}" for value in found[-1]) + " |")
    low, middle, high = np.quantile(found, [0.1, 0.5, 0.9], axis=0)
    for name, row in (("10%", low), ("median", middle), ("90%", high)):
        print(f"| all | {name} | " + " | ".join(f"{value:.2f}" for value in row) + " |")


def main() -> None:
    """See the head of this file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["tune", "tried", "compare", "assumed", "table", "health"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path, nargs="?")
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--per-class", type=int, help="fit maps to so many samples a reference class")
    args = parser.parse_args()
    if args.what == "assumed":
        assumptions(args.folder, args.per_class)
        return
    shown = {"table": table, "health": health}.get(args.what)
    if shown is not None:
        shown(args.folder)
        return
    with args.out.open("w", newline="") as file:
        csv.writer(file).writerow(COLUMNS)
        csv.writer(file).writerows(lines(args))


if __name__ == "__main__":
    main()
