"""Merging the statistics of many vehicles as they arrive: time a vehicle, memory, and bytes on the wire.

python benchmarks/merging.py [--vehicles 10000] [--dim 128] [--classes 10]
"""

import argparse
import itertools
import time
import tracemalloc
from collections.abc import Iterable

import numpy as np

import mpt


def reports(count: int, dim: int, classes: int, span: np.ndarray | None) -> list[bytes]:
    """What `count` vehicles with 100 samples each send; with a `span`, MPT-lite's statistics."""
    rng = np.random.default_rng(0)
    made = []
    for _ in range(count):
        features, labels = rng.standard_normal((100, dim)), rng.integers(0, classes, 100)
        stats = mpt.ClassStatistics.from_features(
            features, labels, classes, watched=classes - 1, span=span, scatter=span is None
        )
        made.append(stats.to_bytes("float32", frame=False))
    return made


def merge(messages: Iterable[bytes], span: np.ndarray | None) -> None:
    """As a server does it: decode, add, forget."""
    sum(mpt.ClassStatistics.from_bytes(message, span=span) for message in messages)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in (("vehicles", 10_000), ("dim", 128), ("classes", 10)):
        parser.add_argument(f"--{name}", type=int, default=default)
    args = parser.parse_args()
    print(f"Merging the statistics of {args.vehicles:,} vehicles, d = {args.dim}, {args.classes} classes, float32\n")
    print("          bytes a vehicle   all vehicles   ms a vehicle   peak memory: 100 vehicles   all vehicles")
    spans = {"mpt": None, "mpt-lite": np.random.default_rng(1).standard_normal((args.classes - 1, args.dim))}
    for variant, span in spans.items():
        distinct = reports(100, args.dim, args.classes, span)
        start = time.perf_counter()
        merge(itertools.islice(itertools.cycle(distinct), args.vehicles), span)
        taken = time.perf_counter() - start
        peaks = []
        for count in (100, args.vehicles):
            tracemalloc.start()
            merge(itertools.islice(itertools.cycle(distinct), count), span)
            peaks.append(tracemalloc.get_traced_memory()[1] / 1e6)
            tracemalloc.stop()
        print(
            f"{variant:8s} {len(distinct[0]):16,d} {taken:12.1f} s {1e3 * taken / args.vehicles:14.2f} "
            f"{peaks[0]:23.2f} MB {peaks[1]:11.2f} MB",
            flush=True,
        )


if __name__ == "__main__":
    main()
