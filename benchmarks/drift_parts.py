"""The step of the first round after a departure, taken apart: the lost vehicle's weight, BatchNorm, training.

    python benchmarks/drift_parts.py DATA OUT.csv --cells cifar10:bird,deer,ship cars-bodytype:coupe \
        [--seeds 3] [--first-seed 10] [--set [NAME] backbone=cnn3 lr=0.01 ...] [--set ...] [--seconds 500]

DATA has the real images, as DATA/NAME-{train,test}.parquet or as `real_images.py pack` writes them. Each `--set` is a
regime: settings of `mpt run`, with a name before them or without. A table a regime, set and class, and one a regime
over all its classes: the mean over seeds of the way that prototypes go in a round, Mahalanobis under that round's
covariance of the vehicles that stay, of the reference classes and of the class itself (oracle-train's prototype).
`/live` is the ratio to the round in which nobody leaves, `apart` how far prototypes are from where that round has them.
F1 is that of the frozen prototype and of oracle-train's, mahalanobis. The line `before` is the mean of up to five
rounds before, its F1 that at the departure. The lines between change one thing each: the vehicle's weight in the
average of parameters, its weight in that of BatchNorm's running statistics, the others' training without the remaining
samples (`mpt.experiments.decomposition`). OUT.csv has a line a seed; what it has already is not computed again, and
after `--seconds` no further cell is begun.
"""

import argparse
import csv
import json
import tempfile
import textwrap
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from paper_scale import source

from mpt.base.errors import MptError
from mpt.data import load
from mpt.experiments.decomposition import VARIANTS, Decomposition, decompose
from mpt.federation.plan import Plan
from mpt.runs.config import ConfigError, RunConfig, make_config
from mpt.runs.simulate import choose_device

WHAT = ("regime", "dataset", "class", "seed", "variant")
FIGURES = (
    *("step_references", "step_rare", "relative_references", "relative_rare"),
    *("apart_references", "apart_rare", "frozen_f1", "oracle_f1"),
)
COLUMNS = (*WHAT, *FIGURES, "batchnorm_layers", "gap")
FIXED = {"dataset", "rare", "seeds", "methods", "eval_every", "slow_every", "readout", "record", "models"}


class Regime(NamedTuple):
    """Settings of `mpt run` under a name."""

    name: str
    settings: dict[str, Any]

    @classmethod
    def of(cls, words: Sequence[str]) -> "Regime":
        """From `[NAME] field=value ...`; values are JSON, or texts."""
        named = bool(words) and "=" not in words[0]
        settings = {}
        for word in words[named:]:
            field, equals, text = word.partition("=")
            if not equals or field in FIXED:
                raise ConfigError(f"set: {word!r}, should be FIELD=VALUE with a field that this script does not set")
            try:
                settings[field] = json.loads(text)
            except json.JSONDecodeError:
                settings[field] = text
        return cls(words[0] if named else " ".join(words) or "defaults", settings)

    def config(self, dataset: str, rare: str) -> RunConfig:
        """Of the run whose round after the departure is looked at."""
        return make_config({**self.settings, "dataset": dataset, "rare": rare})


def lines_of(what: Sequence[str], one: Decomposition) -> Iterator[list[str]]:
    """The lines of one seed: before, and each variant."""
    live = one.after["live"].step
    for name, outcome in {"before": one.before, **one.after}.items():
        step, apart = outcome.step, outcome.apart
        pairs = ((step.references, live.references), (step.rare, live.rare))
        figures = [mine for mine, _ in pairs] + [mine / whole if whole else np.nan for mine, whole in pairs]
        figures += [np.nan, np.nan] if apart is None else [apart.references, apart.rare]
        told = [f"{value:.6f}" if np.isfinite(value) else "" for value in (*figures, outcome.frozen, outcome.oracle)]
        yield [*what, str(one.seed), name, *told, str(one.layers), f"{one.gap:.3g}"]


def table(lines: Sequence[Sequence[str]]) -> str:
    """Means over the seeds, a line a variant; of several classes over these too."""
    rows = [dict(zip(COLUMNS, line, strict=True)) for line in lines]
    seeds = sorted({int(row["seed"]) for row in rows})
    first = rows[0]
    classes = dict.fromkeys((row["dataset"], row["class"]) for row in rows)
    rare = first["class"] if len(classes) == 1 else "departing class"
    where = ", ".join(" ".join(one) for one in classes)
    head = f"{where}, {first['regime']}, seeds {', '.join(map(str, seeds))}"
    made = [
        textwrap.fill(head, 79),
        f"{'':20}{'reference classes':^21} {rare[:21]:^21} {'F1':^15}",
        f"{'':20}{'step':>7}{'/live':>7}{'apart':>7} {'step':>7}{'/live':>7}{'apart':>7} {'frozen':>7}{'oracle':>8}",
    ]

    def mean(variant: str, column: str) -> float:
        values = [float(row[column]) for row in rows if row["variant"] == variant and row[column]]
        return float(np.mean(values)) if values else np.nan

    for variant in ("before", *VARIANTS):
        if variant == "batchnorm" and first["batchnorm_layers"] == "0":
            made.append(f"{variant:20}{'none':>7}")
            continue
        cells = ""
        for which in ("references", "rare"):
            step = mean(variant, f"step_{which}")
            figures = (step, step / mean("live", f"step_{which}"), mean(variant, f"apart_{which}"))
            cells += "".join(f"{value:7.2f}" if np.isfinite(value) else f"{'':7}" for value in figures) + " "
        f1 = f"{mean(variant, 'frozen_f1'):7.3f}{mean(variant, 'oracle_f1'):8.3f}"
        made.append(f"{variant:20}{cells}{f1}")
    return "\n".join(line.rstrip() for line in made)


def read(path: Path) -> list[list[str]]:
    """The lines of an earlier call; none where there is no such file."""
    header, *lines = csv.reader(path.read_text(encoding="utf-8").splitlines()) if path.exists() else [list(COLUMNS)]
    if tuple(header) != COLUMNS:
        raise ConfigError(f"{path}: its columns are {','.join(header)[:60]}, should be a file of this script, or none")
    return lines


def run(args: argparse.Namespace, regimes: Sequence[Regime], cells: Sequence[tuple[str, str]]) -> None:
    """Compute the cells that are not there yet, one after the other, and print them."""
    until = time.monotonic() + args.seconds
    lines = read(args.out)
    seeds = range(args.first_seed, args.first_seed + args.seeds)
    with tempfile.TemporaryDirectory() as place:
        for regime in regimes:
            for name, rare in cells:
                what = [regime.name, name, rare]
                done = {line[3] for line in lines if line[:3] == what}
                missing = [seed for seed in seeds if str(seed) not in done]
                if missing and time.monotonic() < until:
                    start = time.monotonic()
                    config = regime.config(source(args.data, name, Path(place)), rare)
                    dataset = load(config.dataset, image_size=config.image_size, per_class=config.per_class)
                    plans = [Plan.of(config, dataset.class_index(rare), seed) for seed in missing]
                    for one in decompose(dataset, plans, device=choose_device(config.device)):
                        lines += lines_of(what, one)
                    with args.out.open("w", newline="") as file:
                        csv.writer(file, lineterminator="\n").writerows([COLUMNS, *lines])
                    print(f"{time.monotonic() - start:.0f} s")
                mine = [line for line in lines if line[:3] == what and int(line[3]) in seeds]
                print(table(mine) if mine else f"{' '.join(what)}: not computed", end="\n\n", flush=True)
            mine = [line for line in lines if line[0] == regime.name and int(line[3]) in seeds]
            if len({tuple(line[1:3]) for line in mine}) > 1:
                print(table(mine), end="\n\n", flush=True)


def main() -> None:
    """See the head of this file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--cells", nargs="+", required=True, metavar="SET:CLASS,...")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=10)
    parser.add_argument("--set", nargs="+", action="append", default=[], metavar="[NAME] FIELD=VALUE", dest="sets")
    parser.add_argument("--seconds", type=float, default=1e9)
    args = parser.parse_args()
    cells = [(name, rare) for cell in args.cells for name, _, some in [cell.partition(":")] for rare in some.split(",")]
    for name, rare in cells:
        if not rare or not any((args.data / file).exists() for file in (f"{name}.npz", f"{name}-train.parquet")):
            parser.error(f"--cells: {name}:{rare}, should be a set that is in {args.data}, and a class of it")
    if args.seeds < 1 or args.first_seed < 0 or not args.out.parent.is_dir():
        parser.error("should be at least one seed, from 0 on, and a file in a folder that is there")
    try:
        regimes = [Regime.of(words) for words in args.sets or [[]]]
        for regime in regimes:
            regime.config("road", "truck")
        run(args, regimes, cells)
    except MptError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
