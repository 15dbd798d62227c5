"""Cross-moment tracking: the departed prototype under a map that vehicles measured, Eq. (X2) to (X9)."""

from typing import NamedTuple

import numpy as np

from mpt.core.affine import (
    affine_map,
    corrected_mean,
    effective_samples,
    extrapolated,
    map_ridge,
    nearness,
    residual_noise,
    trust,
)
from mpt.core.cross import CrossStatistics
from mpt.core.departure import Deposit
from mpt.core.equations import ridge_floor
from mpt.core.errors import StatisticsError
from mpt.core.health import (
    OUTSIDE,
    TYPICAL,
    Gap,
    Health,
    expected_error,
    nearest,
    standing,
    verdict,
    whiten,
    whitened_noise,
    whitening,
)
from mpt.core.statistics import ClassStatistics
from mpt.core.validation import Floats, Ints, as_int, read_only

_UNTRAINED = 0.12
"""Of the distance to the nearest other prototype: so far, and no further than what else is expected, a class moves by
itself that nobody trains on any more. From the first rounds after a departure, on tuning classes."""


class Mapped(NamedTuple):
    """A departed class's prototype as cross-moment tracking finds it.

    Attributes:
        predicted: (d,), the departing prototype under the map.
        measured: (d,), the remaining samples' corrected mean, Eq. (X4); the prediction where there are none.
        alpha: of Eq. (X6).
        noise: sigma^2 of Eq. (X5).
        samples: N.
        health: expected error and verdict; None where there are not two reference classes to judge by.
    """

    predicted: Floats
    measured: Floats
    alpha: float
    noise: float
    samples: int
    health: Health | None


def class_weights(deposit: Deposit, num_classes: int) -> Floats:
    """(C,): Eq. (X1), how much each class is to count in `CrossStatistics`; zero for all but the reference classes.

    Fixed at departure: the server sends them to the vehicles, and sums made with others do not merge.

    Args:
        deposit: made from statistics with a scatter.
        num_classes: C.
    """
    if not isinstance(deposit, Deposit):
        raise StatisticsError(f"deposit: {type(deposit).__name__}, should be a Deposit")
    highest = max(deposit.departed, int(deposit.classes.max()))
    weights = np.zeros(as_int(num_classes, "num_classes", least=highest + 1))
    if deposit.covariance is None or deposit.covariance.any():
        weights[deposit.classes] = nearness(deposit.prototype, deposit.reference, deposit.covariance_factor)
    else:
        weights[deposit.classes] = 1.0
    return read_only(weights)


def mapped(deposit: Deposit, stats: ClassStatistics, cross: CrossStatistics, prototypes: Floats) -> Mapped:
    """Carry the departing prototype over; `prototypes` (K, d) are the current ones of the reference classes."""
    classes = _usable(deposit, stats, cross)
    covariance = stats.shared_covariance
    d, factor = stats.dim, whitening(covariance, deposit.cov_ridge)
    within, within_cross = cross.within
    counted = cross.weights[classes] * cross.counts[classes]
    earlier_means, means = cross.earlier_means, cross.means
    ridge = map_ridge(cross.weights[classes], cross.counts[classes], d, halves=cross.halves)
    found = affine_map(cross.earlier_means_of(classes), means[classes], counted, within, within_cross, ridge)
    start = deposit.prototype if deposit.anchor is None else deposit.anchor
    predicted = found(start)

    share = cross.weights[classes] / cross.weights[classes].sum()
    squares = np.sum(whiten(found.errors, factor) ** 2, axis=1)
    prior = float(np.sum(share * squares)) / d
    samples = int(cross.counts[deposit.departed])
    at_departure = deposit.covariance if deposit.anchor is None else None
    earlier = within / float(counted.sum()) if at_departure is None else at_departure
    floor = ridge_floor(covariance, deposit.cov_ridge)
    fitted = effective_samples(cross.weights[classes], cross.counts[classes])
    noise = residual_noise(found, earlier, factor, floor, fitted) if covariance.any() else 0.0
    measured = predicted
    if samples:
        measured = corrected_mean(found, start, earlier_means[deposit.departed], means[deposit.departed])
    gap = whiten(measured - predicted, factor)
    alpha = trust(gap, noise, samples, prior)
    margin = nearest(predicted + alpha * (measured - predicted), prototypes, factor)
    reach = found.reach(start) / found.parameters if found.parameters > 0 else 0.0
    blind = not samples and reach > OUTSIDE
    usual = extrapolated(found, squares, share, found.reach(start)) / d if blind else prior
    error = expected_error(alpha, noise, samples, usual, gap)
    error = float(np.hypot(error, found.unseen(start, factor))) if blind else error
    error = float(np.hypot(error, min(_UNTRAINED * margin, error)))
    gaps = tuple[Gap, ...]()
    if samples:
        moved = Gap(float(np.sum(gap**2)), d * (prior + noise / samples), deposit.apart)
        off, spread = means[deposit.departed] - predicted, whitened_noise(factor, floor)
        gaps = moved, standing(off, predicted, prototypes, factor, spread / samples, d * prior, deposit.apart)
    health = None
    if len(classes) > 1:
        contradiction = max((one.ratio for one in gaps), default=None)
        typical = error if blind else TYPICAL * error
        health = Health(error, verdict(typical, margin, *gaps), contradiction, reach)
    return Mapped(predicted, measured, alpha, noise, samples, health)


def _usable(deposit: Deposit, stats: ClassStatistics, cross: CrossStatistics) -> Ints:
    """The classes whose samples give the map."""
    if (cross.num_classes, cross.dim) != (stats.num_classes, stats.dim):
        mine, theirs = f"({cross.num_classes}, {cross.dim})", f"({stats.num_classes}, {stats.dim})"
        raise StatisticsError(f"cross: (classes, dimension) are {mine}, but those of the statistics are {theirs}")
    if cross.weights[deposit.departed] > 0:
        raise StatisticsError(
            f"cross: departed class {deposit.departed} has a weight, should have none; "
            "use mpt.class_weights(deposit, num_classes)"
        )
    classes = np.flatnonzero((cross.weights > 0) & (cross.counts > 0))
    if not len(classes):
        raise StatisticsError("cross: no class with a weight has samples, there is nothing to fit the map to")
    return classes
