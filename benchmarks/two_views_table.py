"""The tables of `two_views.py table`: F1 by cell, what mpt-duo is ahead of, and what the cascade leaves of it."""

import csv
from collections import defaultdict
from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np
from real_images import interval

PASSES = (1.05, 1.1, 1.2, 1.3, 1.5, 1.75)
KEY = 5
"""So many of the columns name a cell."""


def lines_in(path: Path) -> list[list[str]]:
    """The lines of a file of results, without its head."""
    with path.open(newline="") as file:
        return list(csv.reader(file))[1:]


Figures = dict[tuple[str, ...], dict[str, np.ndarray]]
"""By cell and method: (seeds, 3), F1, balanced accuracy and the others' accuracy, means over rounds after it."""


def figures(lines: Sequence[Sequence[str]]) -> Figures:
    """Means over the evaluated rounds after the departure."""
    found: dict[tuple[str, ...], dict[str, dict[str, list[list[float]]]]] = {}
    there = set[tuple[str, ...]]()
    for one in lines:
        if (row := tuple(one[: KEY + 3])) in there:
            raise SystemExit(f"{' '.join(row)}: stands twice, files of other settings should be shown one by one")
        there.add(row)
        seeds = found.setdefault(tuple(one[:KEY]), {}).setdefault(one[7], defaultdict(list))
        seeds[one[5]].append([float(value) for value in one[9:12]])
    return {
        cell: {m: np.array([np.mean(seeds[s], axis=0) for s in sorted(seeds)]) for m, seeds in methods.items()}
        for cell, methods in found.items()
    }


SHOWN = (
    "mpt-x",
    "mpt-x:small-ridge",
    "oracle-train",
    "mpt-duo",
    "mpt-duo@1.3",
    "oracle-train:duo",
    "stop-at-departure",
    "live",
    "live:duo",
)


def print_cells(cells: Figures) -> None:
    """F1, then balanced accuracy, a line a cell."""
    for which, title in enumerate(("F1 of the departed class", "balanced accuracy", "accuracy on the others")):
        print(f"\n| {title} | " + " | ".join(SHOWN) + " |\n" + "|---" * (len(SHOWN) + 1) + "|")
        for cell, methods in cells.items():
            entries = [f"{methods[m][:, which].mean():.3f}" if m in methods else "" for m in SHOWN]
            print(f"| {_named(cell)} | " + " | ".join(entries) + " |")
    print(flush=True)


def _named(cell: tuple[str, ...]) -> str:
    dataset, rare, backbone, remaining, depart_at = cell
    return f"{dataset} {rare}, {backbone}, {float(remaining):.0%}, after {depart_at}"


def gained(cells: Figures, method: str, below: str, above: str) -> float:
    """Sum over cells of (method - below) / sum of (above - below), in F1."""
    means = [{m: float(v[:, 0].mean()) for m, v in methods.items()} for methods in cells.values()]
    top, bottom = (sum(m[one] - m[below] for m in means) for one in (method, above))
    return top / bottom if bottom > 0 else float("nan")


def bootstrapped(cells: Figures, method: str, below: str, above: str, draws: int = 2000) -> tuple[float, float, float]:
    """The 95% interval of `gained`: cells are drawn with repetition, and in each its seeds.

    The third number is the share of draws in which `above` is not above: there is no ratio then, they are left out.
    """
    rng, names, found = np.random.default_rng(0), list(cells), []
    for _ in range(draws):
        drawn: Figures = {}
        for i, at in enumerate(rng.integers(len(names), size=len(names))):
            methods = cells[names[at]]
            seeds = rng.integers(len(methods[method]), size=len(methods[method]))
            drawn[(str(i),)] = {m: methods[m][seeds] for m in (method, below, above)}
        found.append(gained(drawn, method, below, above))
    without = float(np.mean(np.isnan(found)))
    low, high = np.nanpercentile(found, [2.5, 97.5]) if without < 1 else (np.nan, np.nan)
    return float(low), float(high), without


OTHERS = (
    "mpt-x",
    "mpt-x:small-ridge",
    "oracle-train",
    "stop-at-departure",
    "oracle-train:duo",
    "live",
    "live:duo",
)


def ahead(gaps: dict[tuple[str, ...], np.ndarray]) -> str:
    """The entries of a line: means over cells, in how many cells it is above and surely below, and the worst one.

    Surely below: the upper end of the 95% interval over the cell's seeds is below zero; never with one seed.
    """
    means = [np.array([gap[:, which].mean() for gap in gaps.values()]) for which in range(3)]
    texts = [f"{values.mean():+.3f} ± {interval(values):.3f}" for values in means]
    for which in range(2):
        below = sum(bool(gap[:, which].mean() + interval(gap[:, which]) < 0) for gap in gaps.values())
        texts.append(f"{int((means[which] > 0).sum())}, {below} of {len(gaps)}")
    worst = min(gaps, key=lambda cell: float(gaps[cell][:, 0].mean()))
    texts.append(f"{gaps[worst][:, 0].mean():+.3f} ± {interval(gaps[worst][:, 0]):.3f} ({_named(worst)})")
    return " | ".join(texts)


def table(paths: Sequence[Path], only: Collection[tuple[str, ...]] = ()) -> None:
    """What the docs show, of all cells of these files, or of those that begin with these columns."""
    cells = figures([one for path in paths for one in lines_in(path)])
    if missing := set(only) - {cell[: KEY - 1] for cell in cells}:
        raise SystemExit(f"{' '.join(min(missing))}: not in these files, should be one of their cells")
    cells = {cell: methods for cell, methods in cells.items() if not only or cell[: KEY - 1] in only}
    print_cells(cells)
    lived = {cell: methods for cell, methods in cells.items() if "live" in methods}
    for method in ("mpt-duo", "mpt-duo@1.3", "oracle-train:duo") if lived else ():
        low, high, without = bootstrapped(lived, method, "oracle-train", "live")
        share = gained(lived, method, "oracle-train", "live")
        said = "" if not without else f"; {without:.0%} of the draws have no ratio: live is not above oracle-train"
        print(
            f"sum({method} - oracle-train) / sum(live - oracle-train): {share:.2f}, 95% {low:.2f} to {high:.2f}{said}"
        )
    counts = ("above, surely below in F1", "likewise in balanced accuracy", "worst F1")
    print("\n| " + " | ".join(("mpt-duo less", "F1", "balanced accuracy", "accuracy on the others", *counts)) + " |")
    print("|---" * 7 + "|")
    for other in OTHERS:
        gaps = {cell: methods["mpt-duo"] - methods[other] for cell, methods in cells.items() if other in methods}
        if gaps:
            print(f"| {other} | {ahead(gaps)} |")
    print("\n| passes an image | F1 | share of mpt-duo's gain over mpt-x |\n|---|---|---|")
    for passes in ("mpt-x", *(f"mpt-duo@{p:g}" for p in PASSES), "mpt-duo"):
        f1 = np.mean([methods[passes][:, 0].mean() for methods in cells.values()])
        said = {"mpt-x": "1", "mpt-duo": "2"}.get(passes, passes.partition("@")[2])
        print(f"| {said} | {f1:.3f} | {gained(cells, passes, 'mpt-x', 'mpt-duo'):.2f} |")
