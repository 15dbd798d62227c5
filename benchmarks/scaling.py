"""How the work of statistics and reconstruction grows with vehicles, classes and d, and what memory the server needs.

    python benchmarks/scaling.py [--quick]

No network: features are drawn, 100 to 2,000 a vehicle, with classes that spread and drift. Vehicles make their
statistics of them and send them as float32; the server reads and merges them as they arrive, keeps none, and
reconstructs. Milliseconds are one core's (one thread, medians of three), so that what else the machine does matters
little. Memory is the peak of what Python and NumPy allocate on the server while it merges all
vehicles and reconstructs; beside it the size of one d x d matrix in float64.
"""

import argparse
import itertools
import statistics
import time
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import mpt
from mpt.federation.background import few_threads
from mpt.protocol.request import StatisticsRequest

DISTINCT = 10
"""Vehicles whose features are drawn; more vehicles send the same again."""


@dataclass(frozen=True)
class Size:
    """Of one line."""

    vehicles: int = 10
    classes: int = 10
    dim: int = 128

    @property
    def samples(self) -> int:
        """Of a vehicle: two of each class, at least 100."""
        return max(100, 2 * self.classes)


def timed(call: Callable[[], Any], repeats: int = 3) -> tuple[float, Any]:
    """Median milliseconds of one core and the last result."""
    taken = []
    for _ in range(repeats):
        start = time.process_time()
        result = call()
        taken.append(1e3 * (time.process_time() - start))
    return statistics.median(taken), result


class World:
    """Features (n, d) and labels (n,) of some vehicles, at departure and after a drift."""

    def __init__(self, size: Size) -> None:
        rng = np.random.default_rng(0)
        c, d = size.classes, size.dim
        means = 2 * rng.standard_normal((c, d)) / np.sqrt(d)
        spread = rng.standard_normal((d, d)) / np.sqrt(d * np.arange(1, d + 1)[:, None])
        drift = np.eye(d) + 0.5 * rng.standard_normal((d, d)) / np.sqrt(d)
        self.labels = [np.arange(size.samples) % c for _ in range(DISTINCT)]
        self.before = [means[y] + rng.standard_normal((len(y), d)) @ spread for y in self.labels]
        self.now = [h @ drift for h in self.before]


def merge(request: StatisticsRequest, answers: Iterator[bytes]) -> mpt.ClassStatistics:
    """As the server does it."""
    return mpt.ClassStatistics.merge(map(request.read, answers))


def line(size: Size, variant: str) -> None:
    """Print one."""
    world, departed = World(size), size.classes - 1
    request = StatisticsRequest(1, size.classes, watched=(departed,), scatter=variant == "mpt")

    def ask(features: list[np.ndarray], question: StatisticsRequest) -> list[bytes]:
        return [question.answer(h, y) for h, y in zip(features, world.labels, strict=True)]

    def merged(question: StatisticsRequest, answers: list[bytes]) -> mpt.ClassStatistics:
        return merge(question, itertools.islice(itertools.cycle(answers), size.vehicles))

    def spanned(features: list[np.ndarray]) -> StatisticsRequest:
        if variant == "mpt":
            return request
        means = merged(request, ask(features, request))
        return replace(request, span=means.means[means.reference_classes])

    first, second = spanned(world.before), spanned(world.now)
    kept = mpt.deposit(merged(first, ask(world.before, first)), departed)
    vehicle, answers = timed(lambda: ask(world.now, second))
    server, stats = timed(lambda: merged(second, answers), 1 if size.vehicles > 100 else 3)
    track, _ = timed(lambda: mpt.reconstruct(kept, replace(stats), variant=variant))
    tracemalloc.start()
    mpt.reconstruct(kept, merged(second, answers), variant=variant)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    print(
        f"{variant:8s} {size.vehicles:8d} {size.classes:8d} {size.dim:6d} {vehicle / DISTINCT:6.2f} "
        f"{len(answers[0]) / 1e3:10.1f} {server / size.vehicles:14.3f} {server:11.1f} {track:9.1f} ms "
        f"{peak / 1e6:8.2f} {8 * size.dim**2 / 1e6:9.2f}",
        flush=True,
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="without the largest sizes together")
    args = parser.parse_args()
    sizes = [Size(vehicles=v) for v in (10, 100, 1000)]
    sizes += [Size(classes=c) for c in (100, 1000)]
    sizes += [Size(dim=d) for d in (512, 1280)]
    corners = [] if args.quick else [Size(vehicles=1000, dim=1280), Size(classes=1000, dim=1280)]
    print("                                    vehicle:            server:")
    print(
        "         vehicles  classes      d     ms    kB sent  ms a vehicle   ms of all  reconstruct  peak MB d x d MB"
    )
    for variant, size in itertools.product(("mpt", "lite"), sizes + corners):
        with few_threads(0):
            line(size, variant)


if __name__ == "__main__":
    main()
