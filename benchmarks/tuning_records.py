"""Recorded runs of the tuning classes at the paper's scale, thinned, for `mpt tune` and `mpt replay` without a GPU.

    python benchmarks/tuning_records.py PACKED OUT "embedding, lr .03, step" [--most 12] [--only ship]
    mpt tune OUT/*/ --budget 16 --out tune.csv                          # after unpacking OUT/CLASS.tar

PACKED is a folder as `benchmarks/real_images.py pack` writes it, or one with FOLDER/NAME-{train,test}.parquet. OUT gets
a file CLASS.tar each. Rounds 15, 20, 40, 60, 80 and 100 are recorded; seed 10, as in the grid of regimes.
"""

import argparse
import shutil
import tarfile
import tempfile
from pathlib import Path

from paper_scale import sources

from mpt.experiments.plans import FIRST_SEED, METHODS_OF, PAPER, REGIMES
from mpt.experiments.sets import parse_sources
from mpt.runs.config import make_config
from mpt.runs.simulate import simulate
from mpt.runs.thin import thin

LEFT_OUT = ("stop-at-departure",)
"""Its model never changes: `frozen` of the departure's round has it."""


def recorded(spec: str, rare: str, regime: str, out: Path) -> None:
    """A run of one class with its record."""
    settings = {
        "dataset": spec, "rare": rare, "rounds": PAPER.rounds, "depart_at": PAPER.depart_at, "epochs": PAPER.epochs,
        "batch_size": PAPER.batch_size, "per_class": PAPER.per_class, "eval_every": 20, "first_seed": FIRST_SEED,
        "record": True, "models": False, "methods": tuple(m for m in METHODS_OF["regimes"] if m not in LEFT_OUT),
    }  # fmt: skip
    simulate(make_config({**settings, **REGIMES[regime]}), out=out, say=print)


def main() -> None:
    """See the head of this file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("regime", choices=list(REGIMES))
    parser.add_argument("--most", type=float, default=12.0, help="megabytes of each")
    parser.add_argument("--only", nargs="+", help="classes")
    parser.add_argument("--work", type=Path, default=Path("runs/records"), help="for what is unpacked and recorded")
    parser.add_argument("--rounds", type=int, nargs="+", default=[20, 40, 60, 80], help="kept besides 15 and 100")
    parser.add_argument("--methods", nargs="+", default=(), help="whose rows and trainings are kept; default: all")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    data = args.work / "data"
    data.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=args.work) as place:
        for one in parse_sources(sources(args.folder, data), stand_ins=False).values():
            for rare in one.tuning:
                if args.only and rare not in args.only:
                    continue
                run, small = Path(place) / "run" / rare, Path(place) / "small" / rare
                recorded(one.spec, rare, args.regime, run)
                thinned = thin(run, small, rounds=args.rounds, methods=args.methods, most=int(args.most * 10**6))
                print(f"{rare}: {thinned}"[:300], flush=True)
                with tarfile.open(args.out / f"{rare}.tar", "w") as archive:
                    archive.add(small, rare)
                shutil.rmtree(run)


if __name__ == "__main__":
    main()
