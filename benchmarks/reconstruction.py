"""One reconstruction beside POT's Bures-Wasserstein map applied to the same vector, in one run.

    python benchmarks/reconstruction.py [--dims 128 512 1280] [--repeats 7]

`mpt.reconstruct` is timed whole: covariance from the statistics, span, transport, calibration. "First" also pays for
the Cholesky factor of the departure-time covariance, which the deposit keeps for the rounds after. POT forms its d x d
map from the two regularized covariances, which it is given, and multiplies the residual with it. Both get all cores.
"""

import argparse
import dataclasses
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import ot

import mpt
from mpt.core import transport
from mpt.core.equations import DEFAULT_COV_RIDGE, outside, regularize, span_basis

CLASSES, SAMPLES, DEPARTED = 10, 1000, 9
TARGETS = {128: 2, 512: 10, 1280: 20}


def covariance(rng: np.random.Generator, spectrum: np.ndarray) -> np.ndarray:
    """A covariance with these eigenvalues in a random basis."""
    basis = np.linalg.qr(rng.standard_normal((len(spectrum), len(spectrum))))[0]
    return (basis * spectrum) @ basis.T


def statistics(means: np.ndarray, within: np.ndarray) -> mpt.ClassStatistics:
    """Statistics of `SAMPLES` samples a class whose pooled covariance is `within`."""
    staying = means[np.arange(CLASSES) != DEPARTED]
    scatter = len(staying) * (SAMPLES - 1) * within + SAMPLES * staying.T @ staying
    squares = SAMPLES * (np.trace(within) + np.sum(means**2, axis=1))
    return mpt.ClassStatistics(
        np.full(CLASSES, SAMPLES), SAMPLES * means, squares, (scatter + scatter.T) / 2, (DEPARTED,)
    )


def seconds(call: Callable[[Any], object], make: Callable[[], Any], repeats: int) -> float:
    """Median time of `call(make())` without `make`; a pause first lets the other BLAS's threads go to sleep."""
    time.sleep(0.3)
    taken = []
    for _ in range(repeats):
        made = make()
        start = time.perf_counter()
        call(made)
        taken.append(time.perf_counter() - start)
    return float(np.median(taken))


def compare(d: int, name: str, spectrum: np.ndarray, *, cov_ridge: float, target: int | None, repeats: int) -> None:
    """Print one line: the times, their ratio, the relative error against POT, and which way the transport took."""
    rng = np.random.default_rng(d)
    drift = np.eye(d) + 0.5 * rng.standard_normal((d, d)) / np.sqrt(d)
    means = 2 * rng.standard_normal((CLASSES, d)) / np.sqrt(d)
    then = covariance(rng, spectrum)
    now = covariance(rng, spectrum) if name.endswith("new basis") else drift @ then @ drift.T
    deposit = mpt.deposit(statistics(means, then), DEPARTED, cov_ridge=cov_ridge)
    stats = statistics(means @ drift.T, now)

    steps: list[str] = []
    exact = transport.direct
    transport.direct = lambda *args, **options: (steps.append("eigh"), exact(*args, **options))[1]
    first = seconds(lambda s: mpt.reconstruct(deposit, s), lambda: dataclasses.replace(stats), 1)
    ours = seconds(lambda s: mpt.reconstruct(deposit, s), lambda: dataclasses.replace(stats), repeats)
    predicted = mpt.reconstruct(deposit, stats).predicted
    transport.direct = exact

    covariances = regularize(deposit.covariance, cov_ridge), regularize(stats.covariance(), cov_ridge)
    zero = np.zeros(d)

    def pot(_: object = None) -> np.ndarray:
        return deposit.residual @ ot.gaussian.bures_wasserstein_mapping(zero, zero, *covariances)[0]

    theirs = seconds(pot, lambda: None, repeats)
    expected = outside(pot(), span_basis(stats.means[deposit.classes]))
    ratio = theirs / ours
    wanted = "-" if target is None else f"{target}x" if ratio >= target else f"{target}x MISSED"
    error = np.linalg.norm(predicted - expected) / np.linalg.norm(expected)
    print(
        f"{d:5d}  {name:24s} {cov_ridge:9g}  {'eigh' if steps else 'Krylov':7s} {1e3 * first:8.1f} {1e3 * ours:8.1f} "
        f"{1e3 * theirs:9.1f} {ratio:7.1f}x {wanted:>7s}  {error:.0e}",
        flush=True,
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--dims", type=int, nargs="+", choices=TARGETS, default=list(TARGETS))
    args = parser.parse_args()
    repeats = args.repeats
    print("One reconstruction beside POT's map applied to the same residual: median milliseconds and their ratio\n")
    print("    d  spectrum                 cov_ridge  way        first    later       POT    ratio  target  rel. error")
    for d in args.dims:
        for name in ("1/i, drifted", "1/i, new basis"):
            compare(d, name, 1 / np.arange(1, d + 1), cov_ridge=DEFAULT_COV_RIDGE, target=TARGETS[d], repeats=repeats)
    print(
        "\nWhere the spectrum is worse, the Krylov way gives up after d / 3 steps and an eigendecomposition follows:\n"
    )
    for d in args.dims:
        spectrum = np.exp(-10 * np.arange(d) / d)
        compare(d, "exp(-10 i / d), drifted", spectrum, cov_ridge=1e-3, target=None, repeats=repeats)


if __name__ == "__main__":
    main()
