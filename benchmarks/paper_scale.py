"""`mpt reproduce --scale paper` on a machine that has a GPU but neither pyarrow nor a way to install it.

    python benchmarks/real_images.py pack FOLDER PACKED                 # where pyarrow is
    python benchmarks/paper_scale.py PACKED OUT table2 beyond [--seeds 3] [--seconds 500] [--cells cells.tar.gz]
    python benchmarks/paper_scale.py DATA OUT all --show --cells OUT/cells.tar.gz ...    # back at home

PACKED has cifar10, cars-bodytype and cars-sedansize, as `pack` writes them; with FOLDER/NAME-{train,test}.parquet in
its place they are read from there. They stand in for nuImages and for coarse and fine Car-1000. OUT gets the exhibits
and `cells.tar.gz`: the cells that are finished, written anew every half minute, so that little is lost where the
machine goes away; with `--show` it is not written. `--cells` takes such files of earlier calls, compressed in any way
that tar knows: what they have is not computed again. With `--show` no image is read: what the exhibits need to know of
them is in the cells. DATA is then only the name that the exhibits give the folder.
"""

import argparse
import gzip
import io
import json
import shutil
import tarfile
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path

from real_images import unpack
from rich.console import Console

from mpt.data import save_npz
from mpt.experiments.plans import PAPER, SCALES
from mpt.experiments.reproduce import reproduce
from mpt.experiments.sets import TOLD, ToldSamples

SETS = {
    "nuimages": ("cifar10", "truck,cat,automobile/bird,deer,ship"),
    "car1000-coarse": ("cars-bodytype", "van,pickup/coupe"),
    "car1000-fine": ("cars-sedansize", "subcompact"),
}
KEPT = ("config.toml", "manifest.json", "metrics.csv", "diagnostics.csv", "confusion.csv")


def sources(folder: Path, place: Path) -> list[str]:
    """What `mpt reproduce --data` takes, for packed sets by way of files in `place`."""
    return [f"{name}={source(folder, dataset, place)}:{classes}" for name, (dataset, classes) in SETS.items()]


def told_sources(folder: Path, cells: Path) -> list[str]:
    """The same for `--show`: what cells say of their samples stands for the samples."""
    manifests = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(cells.glob("*/manifest.json"))]
    made = []
    for name, (dataset, classes) in SETS.items():
        mine = [m for m in manifests if m["dataset"] == dataset]
        if len({m["dataset_fingerprint"] for m in mine}) > 1:
            raise SystemExit(f"{cells}: cells of {dataset} were made from different samples, should be from the same")
        if mine:
            spec = f"parquet:{folder / dataset}"
            TOLD[spec] = ToldSamples(dataset, tuple(mine[0]["classes"]), mine[0]["dataset_fingerprint"])
            made.append(f"{name}={spec}:{classes}")
    return made


def source(folder: Path, dataset: str, place: Path) -> str:
    """What `mpt run --dataset` takes, for a packed set by way of a file in `place`."""
    if (folder / f"{dataset}.npz").exists():
        return f"npz:{save_npz(unpack(folder, dataset), place / f'{dataset}.npz')}"
    return f"parquet:{folder / dataset}"


def keep(cells: Path, target: Path) -> None:
    """The finished cells' tables as one file, the same bytes for the same cells."""
    written = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=written, mode="wb", mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w") as archive,
    ):
        for manifest in sorted(cells.glob("*/manifest.json")):
            if '"finished": true' in manifest.read_text(encoding="utf-8"):
                for name in KEPT:
                    archive.add(manifest.parent / name, f"{manifest.parent.name}/{name}", filter=_anonymous)
    partial = target.with_suffix(".partial")
    partial.write_bytes(written.getvalue())
    partial.replace(target)


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Without owner and time."""
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    member.mode = 0o644
    return member


def main() -> None:
    """See the head of this file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("exhibits", nargs="+")
    parser.add_argument("--work", type=Path, default=Path("runs/paper"))
    parser.add_argument("--cells", type=Path, nargs="+", default=[])
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--fractions", type=float, nargs="+", help="of table 3, where not all of them can be run")
    parser.add_argument("--backbones", nargs="+", help="likewise", choices=sorted(PAPER.backbones))
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--jobs", type=int, default=1, help="processes that share the GPU")
    parser.add_argument("--show", action="store_true")
    args = parser.parse_args()
    for name, _ in () if args.show else SETS.values():
        if not any((args.folder / file).exists() for file in (f"{name}.npz", f"{name}-train.parquet")):
            parser.error(f"{args.folder}: no {name}.npz and no {name}-train.parquet, should be one of them")
    fractions, backbones = args.fractions or PAPER.backbone_remaining, args.backbones or PAPER.backbones
    kept = {name: PAPER.backbones[name] for name in PAPER.backbones if name in backbones}
    SCALES["paper"] = replace(PAPER, backbone_remaining=tuple(fractions), backbones=kept)
    cells = args.work / "cells"
    cells.mkdir(parents=True, exist_ok=True)
    args.out.mkdir(parents=True, exist_ok=True)
    for path in args.cells:
        try:
            with tarfile.open(path) as archive:
                archive.extractall(cells, filter="data")
        except (OSError, tarfile.TarError):
            parser.error(f"--cells: {path} is missing or broken, should be a cells.tar.gz of this script")

    def keep_on() -> None:
        while True:
            time.sleep(30)
            keep(cells, args.out / "cells.tar.gz")

    if not args.show:
        threading.Thread(target=keep_on, daemon=True).start()
    try:
        with tempfile.TemporaryDirectory() as place:
            made = reproduce(
                args.exhibits,
                args.work,
                scale="paper",
                data=told_sources(args.folder, cells) if args.show else sources(args.folder, Path(place)),
                seeds=args.seeds,
                jobs=args.jobs,
                compute=not args.show,
                seconds=args.seconds,
                console=Console(width=150),
            )
    finally:
        if not args.show:
            keep(cells, args.out / "cells.tar.gz")
    for path in made.files:
        shutil.copy(path, args.out)
    print(f"{len(made.missing)} cells are missing", *made.missing[:60], sep="\n    ")


if __name__ == "__main__":
    main()
