"""For `benchmarks/hostile.py`: the tables of what it has written."""

import csv
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from scipy import stats

METHODS = ("mpt", "mpt-x")
BASES = ("honest", "without", "without two")
FALLEN = 0.1
"""Of F1: where it fell by more than that, no verdict should be good."""
Lines = list[dict[str, str]]


def show(paths: Sequence[Path], *, short: bool) -> None:
    """What there is in the files."""
    lines: Lines = [line for path in paths for line in csv.DictReader(path.read_text().splitlines())]
    attacks = short_table if short else attacks_table
    shows = {"attacks": attacks, "search": search_table, "honest": honest_table, "rules": rules_table}
    for what, table in shows.items():
        mine = [line for line in lines if line["what"] == what]
        if mine:
            table(mine)


def by_seed(lines: Lines, column: str) -> dict[str, float]:
    """Means over rounds, by seed."""
    found = defaultdict(list)
    for one in lines:
        found[one["seed"]].append(float(one[column]))
    return {seed: float(np.mean(values)) for seed, values in found.items()}


def half_interval(values: Sequence[float]) -> float:
    """Half of the 95% interval of their mean, Student's t."""
    return float(stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values)))


def spread(values: Sequence[float]) -> str:
    """Mean and half of the 95% interval."""
    if len(values) < 2:
        return f"{np.mean(values):+.3f}"
    return f"{np.mean(values):+.3f} ± {half_interval(values):.3f}"


def attacks_table(lines: Lines) -> None:
    """Paired differences to the lower of honest and without."""
    cells = dict.fromkeys((one["dataset"], one["rare"], one["remaining"], one["place"], one["gate"]) for one in lines)
    for cell in cells:
        mine = [o for o in lines if (o["dataset"], o["rare"], o["remaining"], o["place"], o["gate"]) == cell]
        dataset, rare, remaining, place, gate = cell
        print(f"\n{dataset} {rare}, {float(remaining):.0%} remain, vehicle 0 is a {place}, gate {gate}\n")
        print("| attack | method | F1 | less the lower | accuracy | less the lower | good, F1 .1 lower |")
        print("|---|---|---|---|---|---|---|")
        for attack in dict.fromkeys(o["attack"] for o in mine):
            for method in ("mpt", "mpt-x"):
                print(row_of(mine, attack, method))


def short_table(lines: Lines) -> None:
    """The same, a line an attack: differences in F1 and in accuracy, MPT / MPT-X, and the largest half interval."""
    cells = dict.fromkeys((one["dataset"], one["remaining"], one["place"]) for one in lines)
    told = [f"{dataset} {float(remaining):.0%}, {place}" for dataset, remaining, place in cells]
    print("\n| attack | " + " | ".join(f"F1: {one} | accuracy" for one in told) + " |")
    print("|---|" + "---|---|" * len(cells))
    for attack in dict.fromkeys(o["attack"] for o in lines if o["attack"] not in BASES):
        found = [attack]
        for cell in cells:
            mine = [o for o in lines if (o["dataset"], o["remaining"], o["place"]) == cell]
            for column in ("f1", "accuracy"):
                both = [gaps(mine, attack, method, column) for method in METHODS]
                means = " / ".join(f"{np.mean(one):+.3f}" for one in both if one)
                wide = max((half_interval(one) for one in both if len(one) > 1), default=0.0)
                found.append(f"{means} ± {wide:.3f}" if wide else means)
        print("| " + " | ".join(found) + " |")


def of_attack(lines: Lines, attack: str, method: str) -> Lines:
    """Those of one attack and method."""
    return [o for o in lines if o["attack"] == attack and o["method"] == method]


def gaps(lines: Lines, attack: str, method: str, column: str) -> list[float]:
    """By seed: an attack's mean over rounds, less the lower of the honest run and the one without who lies."""
    values = by_seed(of_attack(lines, attack, method), column)
    known = [by_seed(of_attack(lines, name, method), column) for name in bases_of(attack)]
    return [values[s] - min(one[s] for one in known) for s in values]


def bases_of(attack: str) -> tuple[str, str]:
    """What an attack is compared with."""
    return "honest", "without two" if attack.endswith("@0+1") else "without"


def row_of(lines: Lines, attack: str, method: str) -> str:
    """One attack and method."""

    cells = [f"{np.mean(list(by_seed(of_attack(lines, attack, method), 'f1').values())):.3f}", "", "", "", ""]
    cells[2] = f"{np.mean(list(by_seed(of_attack(lines, attack, method), 'accuracy').values())):.3f}"
    if attack not in BASES:
        cells[1], cells[3] = (spread(gaps(lines, attack, method, column)) for column in ("f1", "accuracy"))
        lower = {(o["seed"], o["round"]): 1.0 for o in of_attack(lines, attack, method)}
        for name in bases_of(attack):
            for o in of_attack(lines, name, method):
                lower[o["seed"], o["round"]] = min(lower[o["seed"], o["round"]], float(o["f1"]))
        fell = [o for o in of_attack(lines, attack, method) if float(o["f1"]) < lower[o["seed"], o["round"]] - FALLEN]
        cells[4] = f"{sum(o['verdict'] == 'good' for o in fell)} of {len(fell)}"
    return f"| {attack} | {method} | " + " | ".join(cells) + " |"


def search_table(lines: Lines) -> None:
    """The worst draw in every round."""
    print("\n| cell | method | honest F1 | towards the nearest class | worst of the draws, by round | lowest |")
    print("|---|---|---|---|---|---|")
    cells = dict.fromkeys((o["dataset"], o["rare"], o["remaining"], o["place"], o["method"]) for o in lines)
    for cell in cells:
        mine = [o for o in lines if (o["dataset"], o["rare"], o["remaining"], o["place"], o["method"]) == cell]
        draws = {o["attack"] for o in mine if "draw" in o["attack"]}
        worst: defaultdict[tuple[str, str], float] = defaultdict(lambda: 1.0)
        for o in mine:
            if "draw" in o["attack"]:
                key = o["seed"], o["round"]
                worst[key] = min(worst[key], float(o["f1"]))
        means = [np.mean([float(o["f1"]) for o in mine if o["attack"] == name]) for name in ("honest", "edge@0")]
        name = f"{cell[0]} {cell[1]} {float(cell[2]):.0%}, {cell[3]}"
        found = f"{np.mean(list(worst.values())):.3f} of {len(draws)}"
        print(f"| {name} | {cell[4]} | {means[0]:.3f} | {means[1]:.3f} | {found} | {min(worst.values()):.3f} |")


def honest_table(lines: Lines) -> None:
    """Gate on less off, by how samples lie."""
    print("\n| samples | method | F1 without the gate | gate less none | accuracy | clipped a round |")
    print("|---|---|---|---|---|---|")
    for place, method in dict.fromkeys((o["place"], o["method"]) for o in lines):
        mine = [o for o in lines if (o["place"], o["method"]) == (place, method)]
        on, off = ([o for o in mine if o["gate"] == gate] for gate in ("on", "off"))
        cells = [f"{np.mean([float(o['f1']) for o in off]):.3f}"]
        for column in ("f1", "accuracy"):
            one, other = by_seed(on, column), by_seed(off, column)
            cells.append(spread([one[s] - other[s] for s in one]))
        cells.append(f"{np.mean([float(o['clipped']) for o in on]):.2f}")
        print(f"| {place} | {method} | " + " | ".join(cells) + " |")


def rules_table(lines: Lines) -> None:
    """By rule: F1 of the rare class in the round of the departure and after it, and accuracy after it."""
    print(
        "\n| updates become one model by | softmax head, departure | mpt | mpt-x | mpt, after it | mpt-x | accuracy |"
    )
    print("|---|---|---|---|---|---|---|")
    first = min(int(o["round"]) for o in lines)

    def of(rule: str, method: str, column: str, then: bool) -> str:
        mine = [o for o in lines if (o["attack"], o["method"]) == (rule, method) and (int(o["round"]) == first) == then]
        return f"{np.mean(list(by_seed(mine, column).values())):.3f}"

    for rule in dict.fromkeys(o["attack"] for o in lines):
        cells = [of(rule, method, "f1", True) for method in ("fedavg", *METHODS)]
        cells += [of(rule, method, "f1", False) for method in METHODS] + [of(rule, "mpt-x", "accuracy", False)]
        print(f"| {rule} | " + " | ".join(cells) + " |")
