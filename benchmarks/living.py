"""Several classes at once on real images, while vehicles come and go: Poisson, and the sessions of a real site.

    python benchmarks/living.py run DATA OUT [--scenarios poisson sessions] [--seeds 0 1 2] [--jobs 6] [--sessions CSV]
                                     [--server most_references=1 most_references=4 most_watched=2]
    python benchmarks/living.py show CELLS ... [--only METHOD ...]

DATA has cifar10, as Parquet files or as `real_images.py pack` writes it; CSV has the sessions. OUT gets a folder a
cell, as `mpt run --scenario --out` writes it. `show` prints the tables of finished cells, which are folders or tar
archives of them. The scenarios are `benchmarks/scenarios/*.toml`. CIFAR-10's tuning classes, bird, deer and ship, are
not among the concentrated ones.
"""

import argparse
import csv
import itertools
import statistics
import tarfile
import tempfile
import time
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from paper_scale import source

HERE = Path(__file__).with_name("scenarios")
METHODS = (
    *("mpt", "mpt-lite", "mpt-x", "mpt:blend", "frozen", "remaining-mean", "icarl", "ccvr", "oracle-train", "live"),
)
HEAD = "method           F1 over pairs   with a deposit   first 5 rounds   other classes   kB a round"
FIRST = 5
"""Rounds after a vehicle vanished."""


@dataclass(frozen=True)
class Cell:
    """One training of everything."""

    scenario: str
    seed: int
    dataset: str
    toml: Path
    out: Path
    methods: tuple[str, ...]
    eval_every: int
    per_class: int
    epochs: int
    server: tuple[str, int | str] | None


def ran(cell: Cell) -> str:
    """Play it; a line about it."""
    from mpt.runs.scenario import ScenarioConfig, play  # noqa: PLC0415 - torch, in a process of its own

    start = time.perf_counter()
    config = ScenarioConfig(
        scenario=str(cell.toml),
        dataset=cell.dataset,
        methods=cell.methods,
        eval_every=cell.eval_every,
        per_class=cell.per_class,
        epochs=cell.epochs,
        first_seed=cell.seed,
        **dict([cell.server] if cell.server else []),
    )
    run = play(config, out=cell.out, say=lambda _: None)
    f1 = {line["method"]: line["f1"] for line in run.tables["summary"]}
    told = ", ".join(f"{name} {value:.3f}" for name, value in f1.items() if value != "")
    return f"{cell.out.name}: {time.perf_counter() - start:.0f} s; {told}"


def run(args: argparse.Namespace) -> None:
    """All cells, several at a time."""
    args.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        dataset, cells = source(args.data, "cifar10", Path(place)), []
        for name in args.scenarios:
            text = (HERE / f"{name}.toml").read_text(encoding="utf-8")
            if args.sessions is not None:
                text = text.replace("../../../shared/data/charging-sessions.csv", str(args.sessions.resolve()))
            if args.rounds is not None:
                text = text.replace("rounds = 200", f"rounds = {args.rounds}")
            toml = Path(place) / f"{name}.toml"
            toml.write_text(text, encoding="utf-8")
            for seed, said in itertools.product(args.seeds, args.server or [""]):
                key, _, value = said.partition("=")
                out = args.out / "-".join(filter(None, (name, said, str(seed))))
                cells.append(
                    Cell(name, seed, dataset, toml, out, tuple(args.methods), args.eval_every, args.per_class,
                         args.epochs, (key, int(value) if value.isdecimal() else value) if said else None)
                )  # fmt: skip
        with ProcessPoolExecutor(args.jobs, get_context("spawn")) as pool:
            for done in as_completed([pool.submit(ran, cell) for cell in cells]):
                print(done.result(), flush=True)


def read(folder: Path, table: str) -> list[dict[str, str]]:
    """The lines of a cell's table."""
    with (folder / f"{table}.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def first_rounds(folder: Path) -> dict[str, list[float]]:
    """By method, F1 in the first rounds of every absence: of a class, while its holder is away."""
    absent = {(line["class"], int(line["round"])) for line in read(folder, "classes") if line["absent"] == "1"}
    fresh = {(c, r) for c, r in absent if any((c, r - k) not in absent for k in range(1, FIRST + 1))}
    found = defaultdict(list)
    for line in read(folder, "metrics"):
        if (line["class"], int(line["round"])) in fresh:
            found[line["method"]].append(float(line["f1"]))
    return found


def by_answers(folders: list[Path]) -> dict[str, dict[str, list[float]]]:
    """F1 of absent classes with a deposit by method, apart by how many vehicles answered in the round."""
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for folder in folders:
        answered = {line["round"]: int(line["answered"]) for line in read(folder, "rounds")}
        for line in read(folder, "metrics"):
            if line["absent"] == line["deposit"] == "1":
                lot = min(answered[line["round"]] // 4, 3)
                found[f"{4 * lot} to {4 * lot + 3}" if lot < 3 else "12 or more"][line["method"]].append(
                    float(line["f1"])
                )
    return found


def show(args: argparse.Namespace) -> None:
    """Means over seeds, a table a scenario."""
    with tempfile.TemporaryDirectory() as place:
        folders = list[Path]()
        for one in args.cells:
            if one.is_dir():
                folders.append(one)
            else:
                with tarfile.open(one) as archive:
                    archive.extractall(place, filter="data")
        found = [path.parent for folder in [*folders, Path(place)] for path in folder.rglob("summary.csv")]
        by_scenario = defaultdict(list)
        for folder in sorted(found):
            by_scenario[folder.name.rpartition("-")[0]].append(folder)
        if args.only:
            print(f"{'scenario':26s} {HEAD}")
        for scenario, cells in by_scenario.items():
            for method in args.only or ():
                print(f"{scenario:26s} {method:15s} {figures(method, cells)}")
            if not args.only:
                table(scenario, cells)


def table(scenario: str, cells: list[Path]) -> None:
    """Print one."""
    lines = [{line["method"]: line for line in read(folder, "summary")} for folder in cells]
    seeds = ", ".join(folder.name.rpartition("-")[2] for folder in cells)
    pairs = sum(int(next(iter(one.values()))["pairs"]) for one in lines)
    here = statistics.mean(int(line["here"]) for folder in cells for line in read(folder, "rounds"))
    absent = f"{pairs} pairs (class, round) in which the class is absent"
    print(f"\n{scenario}: seeds {seeds}, {absent}, {here:.1f} vehicles there\n")
    print(HEAD)
    for method in lines[0]:
        print(f"{method:15s} {figures(method, cells)}")
    print("\nvehicles that answered   pairs     mpt   mpt:blend   mpt-x   oracle-train   mpt-x / oracle-train")
    for lot, mine in sorted(by_answers(cells).items(), key=lambda item: int(item[0].split()[0])):
        f1 = {name: statistics.mean(values) for name, values in mine.items()}
        some = "".join(f"{f1.get(name, float('nan')):{width}.3f}" for name, width in
                       (("mpt", 8), ("mpt:blend", 12), ("mpt-x", 8), ("oracle-train", 15)))  # fmt: skip
        print(f"{lot:22s} {len(mine['mpt']):7d} {some} {f1['mpt-x'] / f1['oracle-train']:22.3f}")


def figures(method: str, cells: list[Path]) -> str:
    """A method's line, means over cells."""
    mine = [line for folder in cells for line in read(folder, "summary") if line["method"] == method]
    early = [first_rounds(folder) for folder in cells]
    first = [statistics.mean(one[method]) for one in early if one.get(method)]
    spread = statistics.stdev(float(one["f1"]) for one in mine) if len(mine) > 1 else 0.0
    sent = [float(one["bytes_up"]) for one in mine if one["bytes_up"]]
    return (
        f"{_mean(mine, 'f1'):>8s} ± {spread:.3f} {_mean(mine, 'f1_with_deposit'):>16s} "
        f"{statistics.mean(first) if first else float('nan'):16.3f} {_mean(mine, 'others_f1'):>15s} "
        f"{statistics.mean(sent) / 1000 if sent else 0:12.0f}"
    )


def _mean(lines: list[dict[str, str]], column: str) -> str:
    known = [float(line[column]) for line in lines if line[column]]
    return f"{statistics.mean(known):.3f}" if known else ""


def main() -> None:
    """See the head of this file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    running, showing = commands.add_parser("run"), commands.add_parser("show")
    running.add_argument("data", type=Path)
    running.add_argument("out", type=Path)
    running.add_argument("--scenarios", nargs="+", default=["poisson", "sessions"])
    running.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    running.add_argument("--methods", nargs="+", default=METHODS)
    running.add_argument("--jobs", type=int, default=1)
    running.add_argument("--sessions", type=Path)
    running.add_argument("--rounds", type=int)
    running.add_argument("--eval-every", type=int, default=1)
    running.add_argument("--per-class", type=int, default=1000)
    running.add_argument("--epochs", type=int, default=5)
    running.add_argument("--server", nargs="+", help="settings of the server, one at a time: grace=10")
    showing.add_argument("cells", type=Path, nargs="+")
    showing.add_argument("--only", nargs="+", help="methods, in one table")
    args = parser.parse_args()
    (run if args.command == "run" else show)(args)


if __name__ == "__main__":
    main()
