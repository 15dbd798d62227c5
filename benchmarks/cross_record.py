"""Small federations on a CPU whose features are kept, to compare estimators offline with `benchmarks/cross.py`.

    python benchmarks/cross_record.py FOLDER parquet:/path/cifar10 bird --seeds 2

writes FOLDER/cifar10-bird-SEED.npz: every training and test sample's features in some rounds, before and after the
departure, the labels, and who holds which sample. The training is the one in which the remaining samples are held out.
"""

import argparse
import time
from pathlib import Path

import numpy as np
import torch

from mpt.data import load
from mpt.federation.engine import Federation
from mpt.federation.plan import Plan


def record(dataset: str, rare: str, seed: int, args: argparse.Namespace) -> Path:
    """Train one federation and keep its features."""
    loaded = load(dataset, image_size=args.image_size).limited(args.per_class)
    plan = Plan(
        rare=loaded.class_index(rare),
        methods=("oracle-train",),
        backbone=args.backbone,
        remaining=args.remaining,
        rounds=args.rounds,
        depart_at=args.depart_at,
        eval_every=args.rounds,
        epochs=args.epochs,
        lr=args.lr,
        batch_size=args.batch_size,
        seed=seed,
    )
    federation = Federation(loaded, plan, torch.device("cpu"))
    wanted = {args.depart_at, *range(args.depart_at + 5, args.rounds, args.every), args.rounds}
    holder = np.zeros(len(loaded.train.labels), dtype=np.int64)
    for vehicle, held in federation.partition.indices.items():
        holder[held] = vehicle
    arrays = {
        "labels": loaded.train.labels,
        "test_labels": loaded.test.labels,
        "holder": holder,
        "owner": np.array(federation.partition.owner),
        "rare": np.array(plan.rare),
        "classes": np.array(loaded.classes),
        "rounds": np.array(sorted(wanted)),
    }
    images = federation._on_device(loaded.train)[0], federation.test_images
    state, start = federation.start(), time.monotonic()
    while state.round < args.rounds:
        state, rows = federation.advance(state)
        if state.round in wanted:
            train, test = federation.embed(state.models["held-out"], *images)
            arrays[f"train{state.round}"] = train.float().numpy()
            arrays[f"test{state.round}"] = test.float().numpy()
    name = f"{loaded.name.rsplit('/', 1)[-1]}-{rare}{args.suffix}-{seed}".replace("parquet:", "")
    path = args.folder / f"{name}.npz"
    np.savez(path, **arrays)
    f1 = rows[-1].f1
    print(f"{path}: {time.monotonic() - start:.0f} s, oracle-train's F1 at the end {f1:.3f}", flush=True)
    return path


def main() -> None:
    """See the head of this file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("dataset")
    parser.add_argument("rare", nargs="+")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--image-size", type=int)
    parser.add_argument("--per-class", type=int, default=300)
    parser.add_argument("--remaining", type=float, default=0.02)
    parser.add_argument("--backbone", default="cnn3")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--depart-at", type=int, default=15)
    parser.add_argument("--every", type=int, default=10, help="keep features of every so many rounds")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--suffix", default="", help="of the files' names, to tell settings apart")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    for seed in range(args.first_seed, args.first_seed + args.seeds):
        for rare in args.rare:
            record(args.dataset, rare, seed, args)


if __name__ == "__main__":
    main()
