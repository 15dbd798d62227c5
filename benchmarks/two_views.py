"""Two views: mpt-duo beside mpt-x, the references with the same readout, and a cascade that asks the old model seldom.

    python benchmarks/two_views.py run RESULTS.csv digits:8 --rounds 30 --depart-at 5 --epochs 1       # on a CPU
    python benchmarks/real_images.py pack FOLDER PACKED                                 # where pyarrow is
    python benchmarks/two_views.py run RESULTS.csv tuning --packed PACKED --seeds 3 --seconds 500     # on a GPU
    python benchmarks/two_views.py run RESULTS.csv untouched beyond embedding --packed PACKED --seeds 3 [--depart-at 50]
    python benchmarks/two_views.py replay RESULTS.csv RUN ...                # of `mpt run --record`, without training
    python benchmarks/two_views.py table RESULTS.csv [MORE.csv ...] [--cells untouched ...]
    python benchmarks/two_views.py cost [BACKBONE ...]
    python benchmarks/two_views.py fleet                                     # joint moments on a fleet

A cell is SET:CLASS[:BACKBONE[:REMAINING]], cnn3 and 0.02 where they are left out, or one of the groups below. All seeds
of a cell are trained together. RESULTS is written anew after every cell; cells that are there are not run again, and
after `--seconds` no further one is begun. FOLDER/NAME-{train,test}.parquet serves in the place of PACKED/NAME.npz.

`mpt-duo@1.3` is the cascade with 1.3 forward passes an image on average: the departure-time model is asked for the
test images whose hesitation, Eq. (D6), is smallest. Where that line is drawn follows from the images alone, not from
their labels; on a vehicle it follows from a count.
"""

import argparse
import csv
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from real_images import unpack
from two_views_table import KEY, PASSES, figures, lines_in, print_cells, table

from mpt.core import NearestClassMean
from mpt.core.two_views import DEFAULT_JOINT_RIDGE, JoinedViews
from mpt.data import Dataset, load
from mpt.federation.engine import Federation
from mpt.federation.lockstep import rounds_together
from mpt.federation.measurement import Measurement
from mpt.federation.metrics import Scores, confusion_matrix, score
from mpt.federation.plan import Plan
from mpt.federation.view import ServerView
from mpt.learning import build
from mpt.methods import Method, RoundContext, find_method
from mpt.methods.mpt_duo import DuoState, MptDuo
from mpt.methods.mpt_x import MptX, MptXState
from mpt.runs.record import Record
from mpt.runs.replay import read_finished, read_rounds, scored_rounds
from mpt.tracking.tracker import Tracker

GROUPS = {
    "tuning": (
        *("cifar10:bird", "cifar10:deer", "cifar10:ship", "cars-bodytype:coupe"),
        *("cifar10:ship:cnn3-embedding", "cars-bodytype:coupe:cnn3-embedding"),
    ),
    "untouched": (
        *("cifar10:airplane", "cifar10:dog", "cifar10:frog", "cifar10:horse"),
        *("cars-bodytype:pickup", "cars-bodytype:suv", "cars-sedansize:subcompact"),
    ),
    "beyond": ("cifar10:truck", "cifar10:cat", "cifar10:automobile", "cars-bodytype:van"),
    "embedding": (
        *("cifar10:truck:cnn3-embedding", "cifar10:automobile:cnn3-embedding", "cars-bodytype:van:cnn3-embedding"),
        *("cifar10:airplane:cnn3-embedding", "cars-bodytype:pickup:cnn3-embedding"),
    ),
}
"""`tuning`: the classes for choosing settings. `untouched`: classes on which no readout of two views had been tried
when this was written; MPT-X has been seen on pickup and subcompact. `beyond` and `embedding`: plain sums and joint
readouts had been tried on truck, cat and van, and on automobile with the embedding CNN."""

BESIDE = ("mpt-x", "oracle-train", "oracle-train:duo", "live", "live:duo", "stop-at-departure")
COLUMNS = (
    *("dataset", "rare", "backbone", "remaining", "depart_at", "seed", "round", "method", "passes"),
    *("rare_f1", "balanced_accuracy", "others_accuracy", "bytes_up"),
)


class Cell(NamedTuple):
    """What is run: a class of a set under a backbone."""

    dataset: str
    rare: str
    backbone: str = "cnn3"
    remaining: float = 0.02

    @classmethod
    def of(cls, text: str) -> "Cell":
        """From SET:CLASS[:BACKBONE[:REMAINING]]."""
        parts = text.split(":")
        try:
            dataset, rare, *rest = parts
            return cls(dataset, rare, *rest[:1], *map(float, rest[1:]))
        except (TypeError, ValueError):
            raise SystemExit(f"cell: {text!r}, should be SET:CLASS[:BACKBONE[:REMAINING]], or a group") from None

    @property
    def columns(self) -> tuple[str, ...]:
        """As the results name it."""
        return (*self[:3], f"{self.remaining:g}")


def named_cells(texts: Sequence[str]) -> list[Cell]:
    """Cells and groups of them, in their order."""
    return [Cell.of(one) for text in texts for one in GROUPS.get(text, (text,))]


@dataclass(frozen=True)
class Watched(MptDuo):
    """MPT-duo whose readouts are kept, by round, so that the cascade can be read off them."""

    kept: dict[int, JoinedViews] = field(default_factory=dict)

    def track(self, state: DuoState | None, context: RoundContext) -> tuple[DuoState | None, Any]:
        """As MPT-duo's."""
        state, readout = super().track(state, context)
        if isinstance(readout, JoinedViews):
            self.kept[context.round] = readout
        return state, readout


@dataclass(frozen=True)
class SmallRidge(MptX):
    """MPT-X under the current model alone, read out with MPT-duo's smaller ridge: what of the gain is the ridge's."""

    name: str = "mpt-x:small-ridge"

    def track(self, state: MptXState, context: RoundContext) -> tuple[MptXState, Any]:
        """As MPT-X's, with a readout of its own."""
        state, prototype = super().track(state, context)
        stats = context.report(context.request())
        means = stats.means
        means[context.departed] = prototype
        readout = NearestClassMean(means, stats.covariance(), cov_ridge=DEFAULT_JOINT_RIDGE)
        return state, readout.outwards(context.departed)


@dataclass(eq=False)
class Seen:
    """What the server sees of the held-out training, by round, until it has been looked at."""

    views: dict[int, ServerView] = field(default_factory=dict)

    def __call__(self, number: int, seen: Any) -> None:
        """In an evaluated round."""
        self.views[number] = seen["held-out"]


def cascade(readout: JoinedViews, view: ServerView, labels: Any, rare: int) -> list[tuple[float, Scores]]:
    """F1 against passes: for each of `PASSES`, what an image takes on average, and the scores."""
    assert view.before is not None
    both = np.concatenate([view.features.test, view.before.test], axis=1)
    hesitation = np.sort(readout.hesitation(view.features.test))
    found = []
    for passes in PASSES:
        limit = hesitation[min(int((passes - 1) * len(hesitation)), len(hesitation) - 1)]
        predicted, asked = readout.cascade(both, float(limit))
        made = confusion_matrix(predicted, labels, len(view.features.head[1]))
        found.append((1 + float(asked.mean()), score(made, (rare,))))
    return found


def run_cell(dataset: Dataset, cell: Cell, args: argparse.Namespace) -> list[list[str]]:
    """All lines of one cell, its seeds trained together."""
    rare = dataset.class_index(cell.rare)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    federations, duos, seen = list[Federation](), list[Watched](), list[Seen]()
    for seed in range(args.first_seed, args.first_seed + args.seeds):
        plan = Plan(
            rare=rare,
            methods=("mpt-duo", *BESIDE),
            backbone=cell.backbone,
            remaining=cell.remaining,
            rounds=args.rounds,
            depart_at=args.depart_at,
            eval_every=args.eval_every,
            epochs=args.epochs,
            seed=seed,
        )
        duos.append(Watched())
        seen.append(Seen())
        methods: list[Method] = [duos[-1], SmallRidge(), *map(find_method, BESIDE)]
        federations.append(Federation(dataset, plan, device, methods=methods, record=seen[-1]))
    lines = list[list[str]]()
    for states, new in rounds_together(federations, [f.start() for f in federations]):
        number = states[0].round
        for federation, duo, views, rows in zip(federations, duos, seen, new, strict=True):
            view, readout = views.views.pop(number, None), duo.kept.pop(number, None)
            lines += lines_of(cell, federation.plan, rows, view, readout, dataset.test.labels)
    return lines


def lines_of(
    cell: Cell,
    plan: Plan,
    rows: Sequence[Measurement],
    view: ServerView | None,
    readout: JoinedViews | None,
    labels: Any,
) -> list[list[str]]:
    """Of one round after the departure: a line a row, and one for each of `PASSES`."""
    lines = [line(cell, plan.depart_at, row) for row in rows if row.round > plan.depart_at]
    if view is None or readout is None:
        return lines
    for wanted, (passes, scores) in zip(PASSES, cascade(readout, view, labels, plan.rare), strict=True):
        about = (plan.seed, view.number, f"mpt-duo@{wanted:g}", passes)
        lines.append(_line(cell, plan.depart_at, about, scores, plan.rare, 0))
    return lines


def replay_runs(args: argparse.Namespace) -> None:
    """The same from recorded runs; rows whose training a run does not have are missing."""
    lines = list[list[str]]()
    for folder in args.runs:
        config, manifest, _ = read_finished(folder)
        cell = Cell(manifest["dataset"], manifest["classes"][manifest["rare"]], config.backbone, config.remaining)
        for seed in config.seed_numbers:
            plan, record = Plan.of(config, manifest["rare"], seed), Record.of(folder)
            there = record.round(seed, plan.depart_at, record.samples(seed))
            duo, views = Watched(), dict[int, ServerView]()
            methods: list[Any] = [duo, SmallRidge(), *(m for m in map(find_method, BESIDE) if m.training in there)]

            def seen(rounds: Any, views: dict[int, ServerView] = views) -> Any:
                for one in rounds:
                    found = one.seen()
                    views[one.number] = found["held-out"]
                    yield one.number, found

            labels = record.samples(seed).test_labels
            for rows in scored_rounds(plan, methods, seen(read_rounds(record, plan)), folder):
                number = rows[0].round
                lines += lines_of(cell, plan, rows, views.pop(number), duo.kept.pop(number, None), labels)
    with args.results[0].open("w", newline="") as file:
        csv.writer(file).writerows([COLUMNS, *lines])
    print_cells(figures(lines))


def line(cell: Cell, depart_at: int, row: Measurement) -> list[str]:
    """The cells of one line."""
    twice = row.method.endswith("duo")
    about = (row.seed, row.round, row.method, 2.0 if twice else 1.0)
    return _line(cell, depart_at, about, row.scores, row.departing, row.cost.bytes_up + row.readout_cost.bytes_up)


def _line(
    cell: Cell, depart_at: int, about: tuple[int, int, str, float], scores: Scores, rare: int, size: int
) -> list[str]:
    seed, number, method, passes = about
    figures = (float(scores.f1[rare]), scores.balanced_accuracy, scores.others_accuracy)
    named = (*cell.columns, depart_at, seed, number, method)
    return [*map(str, named), f"{passes:.3f}", *(f"{value:.4f}" for value in figures), str(size)]


def samples(name: str, packed: Path | None, image_size: int | None = None) -> Dataset:
    """A set by its name: packed, or as Parquet files, or one that the package knows. Packed ones keep their size."""
    if packed is not None and (packed / f"{name}.npz").exists():
        return unpack(packed, name)
    if packed is not None and (packed / f"{name}-train.parquet").exists():
        return load(f"parquet:{packed / name}", per_class=1000, image_size=image_size)
    return load(name, per_class=1000, image_size=image_size)


def run_cells(args: argparse.Namespace) -> None:
    """Run the cells that are not there yet and print what each gave."""
    until, path = time.monotonic() + args.seconds, args.results[0]
    lines = lines_in(path) if path.exists() else []
    done = {tuple(one[:KEY]) for one in lines}
    for cell in named_cells(args.cells):
        if (*cell.columns, str(args.depart_at)) in done or time.monotonic() > until:
            continue
        start = time.monotonic()
        dataset = samples(cell.dataset, args.packed, args.image_size)
        new = run_cell(dataset.limited(args.per_class) if args.per_class else dataset, cell, args)
        lines += new
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", newline="") as file:
            csv.writer(file).writerows([COLUMNS, *lines])
        print(
            f"{':'.join(cell.columns)}, departure after {args.depart_at}: {time.monotonic() - start:.0f} s", flush=True
        )
        print_cells(figures(new))


def cost(backbones: Sequence[str], classes: int = 10, size: int = 32) -> None:
    """Bytes at a departure and of a round, and the seconds of one image and of 64 through one model and two."""
    print("| backbone | d | model MB | prototypes kB | once a vehicle kB | a round kB | 1 image ms | 64 images ms |")
    print("|---" * 8 + "|")
    for name in backbones or ("cnn3", "resnet18", "mobilenetv3"):
        model = build(name, num_classes=classes, in_channels=3, image_size=size, seed=0).eval()
        weights = sum(t.numel() * t.element_size() for t in model.state_dict().values())
        d = model.dim
        static = 4 * (d * (d + 1) // 2 + classes * d)
        round_bytes = 2 * d * d + 4 * classes * d
        times = [f"{1e3 * seconds(model, n, size):.2f}, {1e3 * seconds(model, n, size, 2):.2f}" for n in (1, 64)]
        sizes = (weights / 1e6, 8 * classes * d / 1e3, static / 1e3, round_bytes / 1e3)
        print(f"| {name} | {d} | " + " | ".join(f"{one:.1f}" for one in sizes) + f" | {times[0]} | {times[1]} |")


def fleet(classes: int = 8, samples: int = 1000) -> None:
    """What joint moments add on a fleet to mpt-x, a vehicle and round: bytes of question and answer, time to answer."""
    print("| d | down | up | ms to answer, mpt-x | mpt-duo |\n" + "|---" * 5 + "|")
    for d in (128, 1280):
        (x_down, x_up, x), (down, up, took) = (_vehicle_round(m, d, classes, samples) for m in ("mpt-x", "mpt-duo"))
        print(f"| {d} | {down - x_down:,} | {up - x_up:,} | {1e3 * x:.1f} | {1e3 * took:.1f} |")


def _vehicle_round(method: str, d: int, classes: int, samples: int) -> tuple[int, int, float]:
    """Of a vehicle in the round after a departure: the sizes of question and answer, and the seconds to answer.

    It has all classes but the departed one. Features lie there under both models: forward passes do not count.
    """
    tracker = Tracker(num_classes=classes, dim=d, watch=(0,), method=method)
    rows = np.random.default_rng(0).random((samples, d))
    every, rest = np.arange(samples) % classes, 1 + np.arange(samples) % (classes - 1)
    question = tracker.question()
    first = {v: question.answer(rows, every if v == "a" else rest) for v in "abc"}
    tracker.close(first, ["a"])
    question, took = tracker.question(), []
    for _ in range(5):
        start = time.perf_counter()
        answer = question.answer(rows, rest, {1: rows})
        took.append(time.perf_counter() - start)
    return len(question.to_bytes()), len(answer), float(np.median(took))


def seconds(model: Any, images: int, size: int, models: int = 1) -> float:
    """The median time of a forward pass of so many images through one model or several."""
    batch, took = torch.zeros(images, 3, size, size), []
    with torch.no_grad():
        for _ in range(15):
            start = time.perf_counter()
            for _ in range(models):
                model.backbone(batch)
            took.append(time.perf_counter() - start)
    return float(np.median(took[3:]))


def main() -> None:
    """See the head of this file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="what", required=True)
    run = commands.add_parser("run")
    run.add_argument("results", type=Path, nargs=1)
    run.add_argument("cells", nargs="+", help=f"SET:CLASS[:BACKBONE[:REMAINING]], or {', '.join(GROUPS)}")
    run.add_argument("--packed", type=Path, help="folder of packed sets, or of Parquet files")
    run.add_argument("--seeds", type=int, default=1)
    run.add_argument("--first-seed", type=int, default=0)
    run.add_argument("--rounds", type=int, default=100)
    run.add_argument("--depart-at", type=int, default=15)
    run.add_argument("--eval-every", type=int, default=10)
    run.add_argument("--epochs", type=int, default=5)
    run.add_argument("--per-class", type=int)
    run.add_argument("--image-size", type=int, help="enlarge or shrink images that are not packed")
    run.add_argument("--seconds", type=float, default=1e9)
    again = commands.add_parser("replay")
    again.add_argument("results", type=Path, nargs=1)
    again.add_argument("runs", type=Path, nargs="+")
    shown = commands.add_parser("table")
    shown.add_argument("results", type=Path, nargs="+")
    shown.add_argument("--cells", nargs="+", default=(), help="these alone, as of run; all where it is left out")
    costs = commands.add_parser("cost")
    costs.add_argument("backbones", nargs="*")
    commands.add_parser("fleet")
    args = parser.parse_args()
    if args.what == "run":
        run_cells(args)
    elif args.what == "replay":
        replay_runs(args)
    elif args.what == "table":
        table(args.results, [cell.columns for cell in named_cells(args.cells)])
    elif args.what == "fleet":
        fleet()
    else:
        cost(args.backbones)


if __name__ == "__main__":
    main()
