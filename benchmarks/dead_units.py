"""Deposits in every round of a real training, dead units and all.

    python benchmarks/dead_units.py FOLDER [--dataset cifar10] [--rounds 8] [--per-class 1000] [--lr 0.01]

FOLDER has the real images, as `real_images.py pack` writes them or as FOLDER/NAME-{train,test}.parquet. Each backbone
is trained by a federation (`mpt run --record`, seed 0); then, for every round, every class in turn is taken for one
whose vehicle leaves: its deposit is made from that round's reports and reconstructed from the next round's, by each
variant, through the fleet's own messages (float32, cross moments as float16, the origin a round old). Printed by round:
features that are the same for all samples, features whose variance is below zero in the merged reports, as rounding
leaves it, and how many deposits and reconstructions of one a class each variant has made. `flat` is an embedding CNN
without BatchNorm: three convolutions, pooled to 4 x 4, a linear layer of 128 and ReLU.
"""

import argparse
import itertools
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from real_images import unpack
from torch import Tensor, nn

import mpt
from mpt.core.affine import halves_suffice
from mpt.core.validation import Floats, Ints
from mpt.data import save_npz
from mpt.protocol.cross_request import CrossRequest
from mpt.protocol.request import StatisticsRequest
from mpt.runs.config import make_config
from mpt.runs.record import Record
from mpt.runs.simulate import simulate

VARIANTS = ("mpt", "lite", "cross")
Rows = Mapping[int, Floats]
"""(n, d) by vehicle."""


class Flat(nn.Module):
    """An embedding CNN without BatchNorm; d = 128."""

    dim = 128

    def __init__(self, in_channels: int, image_size: int) -> None:
        super().__init__()
        widths = (in_channels, 32, 64, 128)
        layers: list[nn.Module] = []
        for i, (a, b) in enumerate(itertools.pairwise(widths)):
            layers += [nn.Conv2d(a, b, 3, padding=1), nn.ReLU(), *([nn.MaxPool2d(2)] if i < 2 else [])]
        size = image_size // 4
        pool = nn.AvgPool2d(max(size // 4, 1))
        self.layers = nn.Sequential(*layers, pool, nn.Flatten(), nn.LazyLinear(self.dim), nn.ReLU())

    def forward(self, images: Tensor) -> Tensor:
        """(N, C, H, W) -> (N, 128)."""
        features: Tensor = self.layers(images)
        return features


def flat(in_channels: int, image_size: int) -> nn.Module:
    """The backbone `benchmarks/dead_units.py:flat`."""
    made = Flat(in_channels, image_size)
    made(torch.zeros(1, in_channels, image_size, image_size))
    return made


def train(folder: Path, dataset: str, backbone: str, rounds: int, chosen: dict[str, float], out: Path) -> Path:
    """A recorded run with these settings of `mpt run`; its folder."""
    if (folder / f"{dataset}.npz").exists():
        spec = f"npz:{save_npz(unpack(folder, dataset), out / f'{dataset}.npz')}"
    else:
        spec = f"parquet:{folder / dataset}"
    config = make_config(
        {
            "dataset": spec,
            "rare": 0,
            "methods": ("frozen",),
            "backbone": "dead_units.py:flat" if backbone == "flat" else backbone,
            "rounds": rounds + 1,
            "depart_at": rounds,
            "eval_every": 1,
            "record": True,
            **chosen,
        }
    )
    simulate(config, out=out / backbone, say=lambda _: None)
    return out / backbone


def merged(request: StatisticsRequest, rows: Rows, labels: Mapping[int, Ints]) -> mpt.ClassStatistics:
    """What the server has of these vehicles' answers."""
    return mpt.ClassStatistics.merge(request.read(request.answer(rows[v], labels[v])) for v in rows)


def tried(
    variant: str, departed: int, before: Rows, now: Rows, labels: Mapping[int, Ints], origins: tuple[Floats, Floats]
) -> tuple[bool, bool]:
    """Whether a class whose largest holder leaves is deposited, and then reconstructed."""
    classes = 1 + max(int(mine.max()) for mine in labels.values())
    holder = max(labels, key=lambda v: int(np.sum(labels[v] == departed)))
    stay = [v for v in before if v != holder]
    lite = variant == "lite"

    def request(number: int, rows: Rows) -> StatisticsRequest:
        plain = StatisticsRequest(number, classes, watched=(departed,), origin=origins[number - 1])
        if not lite:
            return plain
        means = merged(plain, {v: rows[v] for v in stay}, labels).means
        span = means[[c for c in range(classes) if c != departed and np.isfinite(means[c, 0])]]
        return StatisticsRequest(
            number, classes, watched=(departed,), scatter=False, span=span, origin=origins[number - 1]
        )

    try:
        first = request(1, before)
        everybody, staying = (merged(first, {v: before[v] for v in who}, labels) for who in (before, stay))
        deposit = mpt.deposit(everybody, departed, staying=staying)
    except mpt.StatisticsError as error:
        print(f"    {variant}, class {departed}: no deposit: {error}")
        return False, False
    try:
        later = merged(request(2, now), {v: now[v] for v in stay}, labels)
        cross = None
        if variant == "cross":
            weights = mpt.class_weights(deposit, classes)
            halves = halves_suffice(weights, later.counts, later.dim)
            ask = CrossRequest(2, 1, weights, origins[0], origins[1], halves=halves)
            answers = (ask.answer(before[v], now[v], labels[v]) for v in stay)
            cross = mpt.CrossStatistics.merge(ask.read(answer, {}) for answer in answers)
        made = mpt.reconstruct(deposit, later, variant=variant, cross=cross)
    except mpt.StatisticsError as error:
        print(f"    {variant}, class {departed}: no reconstruction: {error}")
        return True, False
    return True, bool(np.isfinite(made.prototype).all())


def negative(rows: Rows, labels: Mapping[int, Ints], classes: int, origin: Floats) -> int:
    """Features whose pooled within-class variance, of the merged reports as they came, is below zero."""
    stats = merged(StatisticsRequest(1, classes, origin=origin), rows, labels)
    assert stats.scatter is not None
    seen = stats.counts > 0
    means = np.sum(stats.sums[seen] ** 2 / stats.counts[seen][:, None], axis=0)
    return int(np.sum(stats.scatter.diagonal() < means))


def look(run: Path, backbone: str, rounds: int) -> int:
    """Print a backbone's rounds; how many deposits or reconstructions were not made."""
    record, missing = Record.of(run), 0
    samples = record.samples(0)
    labels = samples.labels
    classes = 1 + max(int(mine.max()) for mine in labels.values())
    kept = [next(iter(record.round(0, number, samples).values())).features for number in range(1, rounds + 1)]
    means = [np.concatenate(list(rows.values())).mean(axis=0) for rows in kept]
    for i in range(rounds - 1):
        before, now = kept[i], kept[i + 1]
        origins = (means[max(i - 1, 0)], means[i])
        constant = int(np.sum(np.ptp(np.concatenate(list(before.values())), axis=0) == 0))
        below = negative(before, labels, classes, origins[0])
        done = Counter[str]()
        for variant in VARIANTS:
            for c in range(classes):
                deposited, made = tried(variant, c, before, now, labels, origins)
                done[f"{variant} deposited"] += deposited
                done[variant] += made
                missing += 2 - deposited - made
        cells = "  ".join(f"{done[f'{v} deposited']:3}/{classes} {done[v]:3}/{classes}" for v in VARIANTS)
        print(f"{backbone:10} {i + 1:5} {len(means[0]):5} {constant:9} {below:9}   {cells}", flush=True)
    return missing


def main() -> None:
    """See the head of this file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--dataset", default="cifar10")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--per-class", type=int, default=1000)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--backbones", nargs="+", default=["cnn3", "flat", "resnet18"])
    args = parser.parse_args()
    print("                              of d features   deposits and reconstructions made, of one a class")
    print(
        f"{'backbone':10} {'round':>5} {'d':>5} {'constant':>9} {'below 0':>9}   "
        + "".join(f"{v:16}" for v in VARIANTS)
    )
    missing, chosen = 0, {"epochs": args.epochs, "per_class": args.per_class, "lr": args.lr}
    for backbone in args.backbones:
        with tempfile.TemporaryDirectory() as place:
            run = train(args.folder, args.dataset, backbone, args.rounds, chosen, Path(place))
            missing += look(run, backbone, args.rounds)
    print(f"{missing} deposits or reconstructions are missing")
    sys.exit(1 if missing else 0)


if __name__ == "__main__":
    main()
