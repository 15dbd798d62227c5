"""What one hostile vehicle does to the departed class, with the gate and without it; and what the gate costs nobody.

    python benchmarks/hostile.py attacks DATASET RARE OUT.csv --vehicles 8 --remaining 0.15 [--seeds 0 1 2 3 4]
    python benchmarks/hostile.py search DATASET RARE OUT.csv ...        # an attacker that knows the bounds: 200 draws
    python benchmarks/hostile.py honest DATASET RARE OUT.csv ...        # nobody lies: the gate on and off
    python benchmarks/hostile.py rules DATASET RARE OUT.csv ...         # nobody lies: how updates become one model
    python benchmarks/hostile.py table OUT.csv ... [--short]            # of any of these
    python benchmarks/hostile.py bound                                  # the radius of Eq. (G3), with ten classes

DATASET is as of `mpt run`. Vehicle 0 lies, from the first round on. It has remaining samples of the rare class
("holder"), or none ("bystander"). Attacks on reports do not change training: they are read out of the honest one. F1
and accuracy are means over the rounds that are read out after the departure; a difference is to the lower of the honest
run and the run without vehicle 0, of the same seed, with half of its 95% interval over seeds (Student's t).
"""

import argparse
import csv
import itertools
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hostile_tables import METHODS, show

from mpt.core.health import VERDICTS
from mpt.core.influence import SLACK, beyond_median
from mpt.data import Dataset, load
from mpt.federation.attacks import find_attacks
from mpt.federation.engine import Federation
from mpt.federation.features import Embedding, Features
from mpt.federation.hostile import Hostile
from mpt.federation.lockstep import rounds_together
from mpt.federation.measurement import Anchors, Measurement
from mpt.federation.plan import Plan
from mpt.federation.scoring import evaluate
from mpt.federation.view import views
from mpt.learning import Samples

SPREAD, LEAST = (Path(__file__).with_name(name) for name in ("spread.py", "min_samples.py"))
REPORTS = ("shift", "shift(by=2)", "scale", "outlier", "scatter", "counts", "swap", "cross", "cross(by=5)")
"""Lies in reports by vehicle 0."""
UPDATES = ("wrong-labels", "flip", "flip(by=10)", "boost", "zero", "little")
"""Lies in training by vehicle 0."""
SHOWN = ("parting@owner", "parting(by=20)@owner", "edge@0", "shift@0+1", "shift(by=2)@0+1", "edge@0+1", "scatter@0+1")
SHOWN_TRAINED = ("flip(by=10)@0+1", "flip(by=2.4)@0", "little@0+1")
"""Lies that no gate can bound: of the departing vehicle, within the bounds, and of two together."""
MIN_SAMPLES = (2, 5)
RULES = ("average", "clipped", "median", "trimmed-mean", "krum", "krum(keep=5)", "bulyan")
PARTITIONS: dict[str, dict[str, Any]] = {
    "even": {"partition": f"{SPREAD}:even"},
    "concentrated": {},
    "dirichlet": {"dirichlet": 0.1},
    "by-vehicle": {"partition": f"{SPREAD}:in_order"},
    "late joiners": {},
    "shifted images": {},
}
COLUMNS = (
    *("what", "dataset", "rare", "remaining", "place", "gate", "seed", "attack", "method"),
    *("round", "f1", "accuracy", "verdict", "clipped", "refused", "seconds"),
)


@dataclass(frozen=True)
class Cell:
    """What is trained together."""

    what: str
    dataset: str
    rare: str
    remaining: float
    place: str
    gate: str
    seed: int
    options: tuple[tuple[str, Any], ...]
    draws: int
    device: str
    only: tuple[str, ...] = ()

    def chosen(self, texts: Sequence[str]) -> list[str]:
        """Those of some attacks that were asked for; none: all."""
        return [text for text in texts if not self.only or text in self.only]


@cache
def dataset_of(name: str, per_class: int, image_size: int | None) -> Dataset:
    """Read once a process."""
    return load(name, image_size=image_size, per_class=per_class, say=lambda _: None)


def plan_of(cell: Cell, **more: Any) -> Plan:
    """The settings of one training."""
    options = dict(cell.options)
    loaded = dataset_of(cell.dataset, options.pop("per_class"), options.pop("image_size"))
    chosen = {"methods": METHODS, "remaining": cell.remaining, "gate": cell.gate, "seed": cell.seed, **options, **more}
    return Plan(rare=loaded.class_index(cell.rare), **chosen)


def federation_of(cell: Cell, plan: Plan) -> Federation:
    """Before its first round."""
    options = dict(cell.options)
    loaded = dataset_of(cell.dataset, options["per_class"], options["image_size"])
    return Federation(loaded, plan, torch.device(cell.device))


def attacked(cell: Cell) -> list[list[Any]]:
    """Every attack, the honest run and the one without the vehicle."""
    here, rows = f"{SPREAD}:{cell.place}", list[list[Any]]()
    trained = {"honest": plan_of(cell, partition=here)}
    trained["without"] = plan_of(cell, partition=f"{SPREAD}:without_{cell.place}")
    if cell.place == "holder":
        trained["without two"] = plan_of(cell, partition=f"{SPREAD}:without_two")
    texts = [f"{name}@0" for name in UPDATES] + (list(SHOWN_TRAINED) if cell.place == "holder" else [])
    trained |= {text: plan_of(cell, partition=here, attack=(text,)) for text in cell.chosen(texts)}
    reported = cell.chosen([f"{name}@0" for name in REPORTS] + (list(SHOWN) if cell.place == "holder" else []))
    everybody = "+".join(map(str, range(dict(cell.options)["vehicles"])))
    least = {f"{LEAST}:LeaveOut(least={n})@{everybody}": f"min-samples {n}" for n in MIN_SAMPLES if not cell.only}
    for number, name, measured in played(cell, trained, [*reported, *least]):
        rows += [line(cell, least.get(name, name), row) for row in measured if number > row_plan(trained).depart_at]
    return rows


def row_plan(trained: Mapping[str, Plan]) -> Plan:
    """Any of them."""
    return next(iter(trained.values()))


def played(
    cell: Cell, trained: Mapping[str, Plan], reported: Sequence[str]
) -> Iterator[tuple[int, str, list[Measurement]]]:
    """All trainings side by side, round by round; lies in reports are read out of the first."""
    federations = [federation_of(cell, plan) for plan in trained.values()]
    first, kept = federations[0], {text: (dict[str, Any](), Anchors()) for text in reported}
    liars = {text: liar(first, text) for text in reported}
    before: dict[str, Embedding] = {}
    for states, new in rounds_together(federations, [f.start() for f in federations]):
        number = states[0].round
        for name, rows in zip(trained, new, strict=True):
            yield number, name, rows
        if not reported or not first.plan.evaluates(number):
            continue
        current: dict[str, Embedding] = {t: Features(first, model) for t, model in states[0].models.items()}
        before = current if number == first.plan.depart_at else before
        for text, hostile in liars.items():
            seen = views(hostile.presence, number, current, before, hostile)
            measured, states_kept, anchors = evaluate(first.plan, number, first.methods, seen, *kept[text])
            kept[text] = states_kept, anchors
            yield number, text, measured


def liar(federation: Federation, text: str) -> Hostile:
    """Vehicles that lie in the reports of an honest training."""
    presence = federation.presence
    attacks = find_attacks((text,), federation.labels, presence.owner, federation.plan.rare)
    return Hostile(attacks, presence, federation.dataset.num_classes)


def searched(cell: Cell) -> list[list[Any]]:
    """Draws within the bounds, each read out of the honest training."""
    reported = [f"edge(draw={draw})@0" for draw in range(cell.draws)]
    trained = {"honest": plan_of(cell, partition=f"{SPREAD}:{cell.place}")}
    found = [one for one in played(cell, trained, [*reported, "edge@0"]) if one[0] > row_plan(trained).depart_at]
    return [line(cell, name, row) for _, name, rows in found for row in rows]


def honest(cell: Cell) -> list[list[Any]]:
    """Nobody lies; `place` says how samples lie, or what is odd about a vehicle."""
    more = dict(PARTITIONS[cell.place])
    if cell.place == "late joiners":
        departs = dict(cell.options)["depart_at"]
        more["events"] = f"join 1 at {max(departs // 2, 2)}, join 2 at {departs + 2}"
    plan = plan_of(cell, **more)
    federation = federation_of(cell, plan)
    if cell.place == "shifted images":
        mine = federation.vehicles[0]
        federation.vehicles[0] = Samples(mine.images // 4, mine.labels)
    rows = list[list[Any]]()
    for _, (new,) in rounds_together([federation], [federation.start()]):
        rows += [line(cell, "honest", row) for row in new if row.round > plan.depart_at]
    return rows


def ruled(cell: Cell) -> list[list[Any]]:
    """Nobody lies; updates become one model by each rule. The round of the departure is read out too."""
    methods = ("fedavg", *METHODS)
    trained = {rule: plan_of(cell, methods=methods, gate="off", aggregation=rule) for rule in RULES}
    found = [one for one in played(cell, trained, []) if one[0] >= row_plan(trained).depart_at]
    return [line(cell, name, row) for _, name, rows in found for row in rows]


def line(cell: Cell, attack: str, row: Measurement) -> list[Any]:
    """Of the CSV."""
    notes = row.notes
    verdict = VERDICTS[int(notes["verdict"])] if "verdict" in notes else ""
    name = Path(cell.dataset.partition(":")[2] or cell.dataset).name
    return [
        *(cell.what, name, cell.rare, f"{cell.remaining:g}", cell.place, cell.gate, cell.seed, attack, row.method),
        *(row.round, f"{row.f1:.4f}", f"{row.scores.accuracy:.4f}", verdict),
        *(int(notes.get("clipped", 0)), int(notes.get("refused", 0)), f"{row.cost.server_seconds:.6f}"),
    ]


HOW = {"attacks": attacked, "search": searched, "honest": honest, "rules": ruled}


def ran(cell: Cell) -> tuple[Cell, list[list[Any]], float]:
    """One cell, in a process of its own."""
    start = time.perf_counter()
    torch.set_num_threads(1)
    return cell, HOW[cell.what](cell), time.perf_counter() - start


def run(args: argparse.Namespace) -> None:
    """All cells, several at a time."""
    usual = {"honest": list(PARTITIONS), "rules": ["concentrated"]}
    places = args.places or usual.get(args.command, ["holder", "bystander"])
    gates = args.gates or (["on", "off"] if args.command == "honest" else ["on"])
    names = ("vehicles", "rounds", "depart_at", "eval_every", "epochs", "per_class", "image_size")
    options = tuple((name, getattr(args, name)) for name in names)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    cells = [
        Cell(
            *(args.command, args.dataset, args.rare, remaining, place, gate, seed, options, args.draws, device),
            tuple(args.only),
        )
        for seed, remaining, place, gate in itertools.product(args.seeds, args.remaining, places, gates)
    ]
    with args.out.open("a", newline="") as file, ProcessPoolExecutor(args.jobs, get_context("spawn")) as pool:
        writer = csv.writer(file)
        if not file.tell():
            writer.writerow(COLUMNS)
        for cell, rows, seconds in pool.map(ran, cells):
            writer.writerows(rows)
            file.flush()
            print(f"{cell.rare} {cell.remaining:g} {cell.place} {cell.gate} {cell.seed}: {seconds:.0f} s", flush=True)


def bound(_: argparse.Namespace) -> None:
    """How far a vehicle's mean may lie from the others', whitened, and how far it then moves the class's mean."""
    print("| its samples | the others' | radius between classes | moves the mean by | radius elsewhere, d = 128 |")
    print("|---|---|---|---|---|")
    for n, o in ((100, 900), (10, 90), (2, 16), (10, 80), (1, 2)):
        radii = [np.sqrt(SLACK * beyond_median(k) * k * (1 / n + 1 / o)) for k in (9, 119)]
        print(f"| {n} | {o} | {radii[0]:.2f} | {radii[0] * n / (n + o):.2f} | {radii[1]:.2f} |")


def main() -> None:
    """See the head of this file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    for name in HOW:
        one = commands.add_parser(name)
        one.add_argument("dataset")
        one.add_argument("rare")
        one.add_argument("out", type=Path)
        one.add_argument("--vehicles", type=int)
        one.add_argument("--remaining", type=float, nargs="+", default=[0.02])
        one.add_argument("--places", nargs="+")
        one.add_argument("--gates", nargs="+", choices=["on", "off"])
        one.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
        one.add_argument("--rounds", type=int, default=100)
        one.add_argument("--depart-at", type=int, default=15)
        one.add_argument("--eval-every", type=int, default=10)
        one.add_argument("--epochs", type=int, default=5)
        one.add_argument("--per-class", type=int, default=1000)
        one.add_argument("--image-size", type=int)
        one.add_argument("--draws", type=int, default=200)
        one.add_argument("--only", nargs="+", default=[], help="attacks, as in the table")
        one.add_argument("--jobs", type=int, default=1)
    showing = commands.add_parser("table")
    showing.add_argument("out", type=Path, nargs="+")
    showing.add_argument("--short", action="store_true", help="attacks: a line each")
    commands.add_parser("bound")
    args = parser.parse_args()
    if args.command == "table":
        show(args.out, short=args.short)
    else:
        {"bound": bound}.get(args.command, run)(args)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    main()
