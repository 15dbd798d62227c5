"""Four ideas beside MPT-duo, tried on tuning classes: a pull, soft labels, samples set aside, other covariances.

    python benchmarks/tried_views.py run results/tried-views.csv small --data FOLDER            # on a CPU; one core
    python benchmarks/tried_views.py run OUT.csv digits:8 --seeds 1 --rounds 9 --depart-at 3 --eval-every 3 --epochs 1
    python benchmarks/tried_views.py table results/tried-views.csv
    python benchmarks/tried_views.py replay results/record-ship           # `tukey`, `oas` and gamma, without training

A cell is SET:CLASS[:BACKBONE[:PER_CLASS]], or `small`: those of docs/explanation/two-views.md. FOLDER has
NAME-{train,test}.parquet. All rows of a cell and a seed come from one run: until the departure there is one model (and
one for `aside`), after it one for each training. RESULTS is written anew after every cell and seed; trainings of a cell
that are there are not run again (`--trainings` chooses some), and after `--seconds` no further cell is begun.

- `pull B`: after the departure the server's average becomes (1 - B) w + B w_departure, BatchNorm's statistics included.
- `soft A`: vehicles minimise cross-entropy + A (cross-entropy with what the readout of the departure says of the image,
  softmax over all classes of -D / 2, D the squared distance), the departed class among them.
- `aside S`: a share S of every vehicle's samples is never trained on. What their class sums say sets Eq. (X10)'s gamma.
- `tukey`: features are x^.5 wherever statistics are made and read. `oas`: OAS's shrinkage for the ridge of Eq. (3).
"""

import argparse
import csv
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from real_images import interval
from tried_rules import TRAININGS, TriedFederation, methods

from mpt.data import Dataset, load
from mpt.federation.lockstep import rounds
from mpt.federation.measurement import Measurement
from mpt.federation.plan import Plan
from mpt.federation.stored import Stored
from mpt.federation.view import ServerView, views
from mpt.runs.record import Record
from mpt.runs.replay import read_finished, read_rounds, scored_rounds

SMALL = (
    *("cifar10:bird:cnn3:300", "cifar10:deer:cnn3:300", "cifar10:ship:cnn3:300"),
    *("cars-bodytype:coupe:cnn3-embedding:600", "cifar10:deer:cnn3-embedding:300"),
)
COLUMNS = (
    *("dataset", "rare", "backbone", "per_class", "seed", "round", "training", "method"),
    *("rare_f1", "balanced_accuracy", "others_accuracy", "told"),
)
KEY = 5
"""So many of the columns name a cell and a seed."""


class Cell(NamedTuple):
    """What is run."""

    dataset: str
    rare: str
    backbone: str = "cnn3"
    per_class: str = ""

    def load(self, folder: Path | None) -> Dataset:
        """Its images, of cars at the size of the others."""
        size = {"image_size": 32} if self.dataset.startswith("cars") else {}
        few = {"per_class": int(self.per_class)} if self.per_class else {}
        return load(self.dataset if folder is None else f"parquet:{folder / self.dataset}", **few, **size)


def run_cell(
    dataset: Dataset, cell: Cell, seed: int, trainings: Sequence[str], args: argparse.Namespace
) -> Iterator[list[str]]:
    """All lines of some trainings of one cell and seed."""
    rows = methods(trainings)
    plan = Plan(
        rare=dataset.class_index(cell.rare),
        backbone=cell.backbone,
        rounds=args.rounds,
        depart_at=args.depart_at,
        eval_every=args.eval_every,
        epochs=args.epochs,
        seed=seed,
    )
    federation = TriedFederation(dataset, plan, torch.device("cpu"), methods=[m for _, _, m in rows.values()])
    for _, new in rounds(federation, federation.start()):
        yield from lines_of(cell, plan, rows, new)


def lines_of(cell: Cell, plan: Plan, rows: Mapping[str, Any], new: Iterable[Measurement]) -> Iterator[list[str]]:
    """Of one round, if it is after the departure."""
    for row in (one for one in new if one.round > plan.depart_at):
        scores, (training, name, _) = row.scores, rows[row.method]
        figures = (float(scores.f1[plan.rare]), scores.balanced_accuracy, scores.others_accuracy)
        told = f"{row.notes['told']:.4f}" if "told" in row.notes else ""
        yield [*cell, str(plan.seed), str(row.round), training, name, *(f"{value:.4f}" for value in figures), told]


def run_cells(args: argparse.Namespace) -> None:
    """Run what is not there yet."""
    until = time.monotonic() + args.seconds
    lines = lines_in(args.results) if args.results.exists() else []
    texts = [one for text in args.cells for one in (SMALL if text == "small" else (text,))]
    for seed in range(args.first_seed, args.first_seed + args.seeds):
        for cell in (Cell(*text.split(":")) for text in texts):
            done = {one[6] for one in lines if one[:KEY] == [*cell, str(seed)]}
            left = [name for name in args.trainings or TRAININGS if name not in done]
            if not left or time.monotonic() > until:
                continue
            start = time.monotonic()
            lines += run_cell(cell.load(args.data), cell, seed, left, args)
            args.results.parent.mkdir(parents=True, exist_ok=True)
            with args.results.open("w", newline="") as file:
                csv.writer(file, lineterminator="\n").writerows([COLUMNS, *lines])
            print(f"{' '.join(cell)}, seed {seed}: {time.monotonic() - start:.0f} s", flush=True)
    table(lines)


def rooted(one: Any) -> Stored:
    """Features of a record as `TukeyFeatures` has them; means over samples that are not in it are left as roots."""
    features = {v: np.sign(rows) * np.sqrt(np.abs(rows)) for v, rows in one.features.items()}
    test, means = (
        np.sign(rows) * np.sqrt(np.abs(rows)) for rows in (one.test, np.array([one.test_mean, one.rare_mean]))
    )
    return Stored(one.labels, features, one.test_labels, test, *means, one.head)


def replay_run(folder: Path) -> list[list[str]]:
    """The lines of a recorded run that need no training of their own."""
    config, manifest, _ = read_finished(folder)
    tukey, lines = TRAININGS["tukey"], list[list[str]]()
    rows = {n: r for n, r in methods(("held-out", "tukey")).items() if r[1] != "stop-at-departure"}
    rows = {n: r for n, r in rows.items() if r[:2] != ("tukey", "oracle-train")}
    cell = Cell(manifest["dataset"], manifest["classes"][manifest["rare"]], config.backbone, str(config.per_class))
    for seed in config.seed_numbers:
        plan, before = Plan.of(config, manifest["rare"], seed), dict[str, Any]()
        seen = list[tuple[int, dict[str, ServerView]]]()
        for one in read_rounds(Record.of(folder), plan):
            current = {"held-out": one.current["held-out"], tukey: rooted(one.current["held-out"])}
            before = current if one.number == plan.depart_at else before
            seen.append((one.number, views(one.presence, one.number, current, before, one.hostile)))
        for new in scored_rounds(plan, [m for _, _, m in rows.values()], seen, folder):
            lines += lines_of(cell, plan, rows, new)
    return lines


def lines_in(path: Path) -> list[list[str]]:
    """Without the head."""
    with path.open(newline="") as file:
        return list(csv.reader(file))[1:]


def table(lines: Iterable[Sequence[str]]) -> None:
    """Means over cells and seeds, and what each row gains, ± half of the 95% interval; then each cell.

    Over the same row of `held-out`; in `held-out`, and where it has no such row, over mpt-x of the same training.
    """
    found: dict[tuple[str, str], dict[tuple[str, ...], list[list[float]]]] = defaultdict(lambda: defaultdict(list))
    for one in lines:
        found[one[6], one[7]][tuple(one[:KEY])].append([float(value or "nan") for value in one[8:]])
    figures = {row: {run: np.mean(v, axis=0) for run, v in runs.items()} for row, runs in found.items()}
    heads = ("training", "row", "runs", "F1", "gain", "balanced accuracy", "gain", "others", "gain", "told")
    print("| " + " | ".join(heads) + " |\n" + "|---" * len(heads) + "|")
    for (training, row), runs in figures.items():
        means = np.mean(list(runs.values()), axis=0)
        plain = ("held-out", row) if training != "held-out" and ("held-out", row) in figures else (training, "mpt-x")
        entries = [text for i in range(3) for text in (f"{means[i]:.3f}", _gain(runs, figures[plain], i))]
        told = f"{means[3]:.3f}" if np.isfinite(means[3]) else ""
        print(f"| {training} | {row} | {len(runs)} | " + " | ".join((*entries, told)) + " |")
    cells = sorted({run for runs in figures.values() for run in runs})
    print("\n| F1, balanced accuracy | " + " | ".join(" ".join(cell) for cell in cells) + " |")
    print("|---" * (len(cells) + 1) + "|")
    for (training, row), runs in figures.items():
        shown = [f"{runs[cell][0]:.3f}, {runs[cell][1]:.3f}" if cell in runs else "" for cell in cells]
        print(f"| {training}: {row} | " + " | ".join(shown) + " |")


def _gain(runs: Mapping[Any, Any], base: Mapping[Any, Any], which: int) -> str:
    gaps = np.array([runs[run][which] - base[run][which] for run in runs if run in base])
    return f"{gaps.mean():+.3f} ± {interval(gaps):.3f}" if len(gaps) and gaps.any() else ""


def main() -> None:
    """See the head of this file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="what", required=True)
    run = commands.add_parser("run")
    run.add_argument("results", type=Path)
    run.add_argument("cells", nargs="+", help="SET:CLASS[:BACKBONE[:PER_CLASS]], or small")
    run.add_argument("--data", type=Path, help="folder of Parquet files")
    for name, default in {
        "seeds": 1,
        "first-seed": 10,
        "rounds": 40,
        "depart-at": 10,
        "eval-every": 10,
        "epochs": 2,
    }.items():
        run.add_argument(f"--{name}", type=int, default=default)
    run.add_argument("--trainings", nargs="+", choices=tuple(TRAININGS), help="default: all")
    run.add_argument("--seconds", type=float, default=1e9)
    commands.add_parser("table").add_argument("results", type=Path)
    commands.add_parser("replay").add_argument("run", type=Path)
    args = parser.parse_args()
    if args.what == "run":
        run_cells(args)
    else:
        table(lines_in(args.results) if args.what == "table" else replay_run(args.run))


if __name__ == "__main__":
    main()
