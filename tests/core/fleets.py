"""Made-up fleets: vehicles with samples of the same classes, some that lie, and how far a sum is off."""

from dataclasses import replace

import numpy as np

import mpt

CLASSES, DIM = 5, 12


def make_fleet(seed, sizes, *, num_classes=CLASSES, d=DIM):
    """Features and labels of each vehicle; all draw from the same Gaussians, a class in turn."""
    rng = np.random.default_rng(seed)
    shape = rng.standard_normal((d, d)) * np.sqrt(1 / np.arange(1, d + 1))
    prototypes = 3 * rng.standard_normal((num_classes, d))
    fleet = []
    for n in sizes:
        labels = rng.permutation(np.arange(n) % num_classes)
        fleet.append((prototypes[labels] + rng.standard_normal((n, d)) @ shape.T, labels))
    return fleet


def report(features, labels, **options):
    return mpt.ClassStatistics.from_features(features, labels, CLASSES, **options)


def reports(fleet, **options):
    return [report(*samples, **options) for samples in fleet]


def times(stats, by):
    """A report in which every sample counts `by` times."""
    names = [
        name for name in ("counts", "sums", "squares", "scatter", "earlier", "gram", "cross") if hasattr(stats, name)
    ]
    return replace(stats, **{name: by * getattr(stats, name) for name in names if getattr(stats, name) is not None})


def regular(stats):
    """S~ of Eq. (3), written out."""
    covariance = stats.covariance()
    return covariance + 0.1 * np.trace(covariance) / len(covariance) * np.eye(len(covariance))


def off(stats, honest):
    """The largest Mahalanobis distance between two prototypes of one class."""
    gaps = stats.means - honest.means
    return np.sqrt(np.einsum("cd,cd->c", gaps, np.linalg.solve(regular(honest), gaps.T).T)).max()


def stretched(stats, honest):
    """The smallest and the largest ratio of the two regularized variances, over all directions."""
    values = np.linalg.eigvals(np.linalg.solve(regular(honest), regular(stats))).real
    return values.min(), values.max()


def _shift(features, labels, rng, by):
    moved = features.copy()
    moved[labels == 0] += by * rng.standard_normal(features.shape[1])
    return moved


def shift(by):
    return lambda features, labels, rng, **options: report(_shift(features, labels, rng, by), labels, **options)


def stretch(by):
    return lambda features, labels, rng, **options: report(by * features, labels, **options)


def outlier(at):
    def lie(features, labels, rng, **options):
        moved = features.copy()
        moved[np.flatnonzero(labels == 0)[0]] = at
        return report(moved, labels, **options)

    return lie


def direction(size):
    """One direction of variance `size` times the samples, in a scatter whose squares fit it."""

    def lie(features, labels, rng, **options):
        stats, along = report(features, labels, **options), rng.standard_normal(DIM)
        added = size * len(labels) * np.outer(along, along) / DIM
        squares = stats.squares.copy()
        squares[0] += np.trace(added)
        return replace(stats, squares=squares, scatter=None if stats.scatter is None else stats.scatter + added)

    return lie


def claim(by, shifted):
    def lie(features, labels, rng, **options):
        return times(report(_shift(features, labels, rng, shifted), labels, **options), by)

    return lie


def swap(features, labels, rng, **options):
    return report(features, np.choose(labels, [1, 0, 2, 3, 4]), **options)


LIES = {
    "class 0 shifted by 20": shift(20.0),
    "class 0 shifted by 1000": shift(1e3),
    "features x 100": stretch(100.0),
    "features x 10^8": stretch(1e8),
    "a sample at 1000": outlier(1e3),
    "a sample at 10^17": outlier(1e17),
    "a direction of 10^6": direction(1e6),
    "a direction of 10^20": direction(1e20),
    "counts x 1000": claim(1000, 2.0),
    "counts x 100000": claim(100_000, 2.0),
    "labels swapped": swap,
}
