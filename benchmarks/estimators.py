"""A recorded round, and every estimator of a departed prototype that `benchmarks/cross.py` compares on it."""

from collections.abc import Callable
from functools import cached_property
from pathlib import Path

import numpy as np

import mpt
from mpt.core.affine import (
    _ELSEWHERE,
    DEFAULT_MAP_RIDGE,
    DEFAULT_WIDTH,
    affine_map,
    effective_samples,
    map_ridge,
    nearness,
    residual_noise,
)
from mpt.core.equations import regularize, reliability, ridge_floor
from mpt.core.health import left_out_errors, nearest, whiten, whitening
from mpt.core.readout import DEFAULT_OUTWARD
from mpt.core.validation import Floats, Ints

RIDGES = (0.002, 0.006, 0.02, 0.06, 0.2, 0.6)


class Cell:
    """One recorded round, with N remaining samples of the departed class."""

    def __init__(self, path: Path, number: int, samples: int, draw: int) -> None:
        kept = np.load(path)
        self.cell, _, seed = path.stem.rpartition("-")
        self.seed, self.round, self.samples, self.draw = int(seed), number, samples, draw
        self.labels: Ints = kept["labels"]
        self.rare, self.num_classes = int(kept["rare"]), len(kept["classes"])
        self.z = kept[f"train{kept['rounds'][0]}"].astype(np.float64)
        self.h = kept[f"train{number}"].astype(np.float64)
        self.test, self.test_labels = kept[f"test{number}"].astype(np.float64), kept["test_labels"]
        staying = (kept["holder"] != kept["owner"]) & (self.labels != self.rare)
        self.references = np.flatnonzero(staying)
        self.all_rare = np.flatnonzero(self.labels == self.rare)
        drawn = np.random.default_rng((draw, samples)).choice(self.all_rare, samples, replace=False)
        self.rows = np.concatenate([self.references, np.sort(drawn)])
        self.deposit = mpt.deposit(
            self._stats(self.z, np.concatenate([self.references, self.all_rare])),
            self.rare,
            staying=self._stats(self.z, self.rows),
        )
        self.now = self._stats(self.h, self.rows)
        self.truth: Floats = self.h[self.all_rare].mean(axis=0)
        self.start: Floats = self.deposit.prototype
        self.factor = whitening(self.now.covariance(), self.deposit.cov_ridge)

    def _stats(self, features: Floats, rows: Ints) -> mpt.ClassStatistics:
        return mpt.ClassStatistics.from_features(
            features[rows], self.labels[rows], self.num_classes, watched=[self.rare]
        )

    def keep(self, per_class: int | None) -> None:
        """Fit maps to so many samples a reference class only."""
        if per_class is not None:
            rng, labels = np.random.default_rng(0), self.labels[self.references]
            some = [rng.permutation(self.references[labels == c])[:per_class] for c in self.deposit.classes]
            self.rows = np.concatenate([*(np.sort(mine) for mine in some), self.rows[len(self.references) :]])

    def cross(self, width: float | None = DEFAULT_WIDTH) -> mpt.CrossStatistics:
        """The cross moments with nearness of that width; None: all reference classes alike."""
        weights = np.zeros(self.num_classes)
        factor = self.deposit.covariance_factor
        near = nearness(self.start, self.deposit.reference, factor, width) if width is not None else 1.0
        weights[self.deposit.classes] = near
        return mpt.CrossStatistics.from_features(
            self.z[self.rows], self.h[self.rows], self.labels[self.rows], self.num_classes, weights=weights,
            origin=self.now.overall_mean, earlier_origin=self.z[self.rows].mean(axis=0),
        )  # fmt: skip

    @cached_property
    def tracked(self) -> mpt.Reconstruction:
        """MPT-X with its defaults."""
        return mpt.reconstruct(self.deposit, self.now, variant="cross", cross=self.cross())

    @cached_property
    def plain(self) -> mpt.Reconstruction:
        """MPT with its defaults."""
        return mpt.reconstruct(self.deposit, self.now)

    def distance(self, prototype: Floats) -> float:
        """Mahalanobis, to oracle-train's."""
        return float(np.linalg.norm(whiten(prototype - self.truth, self.factor)))

    def margin(self, prototype: Floats) -> float:
        """The distance to the nearest other prototype."""
        return nearest(prototype, self.now.means[self.deposit.classes], self.factor)

    def scores(self, prototype: Floats, power: float = 0.0) -> tuple[float, float]:
        """F1 of the departed class, and the mean recall of the others; read out further out by a power, Eq. (X10)."""
        prototypes = self.now.means
        prototypes[self.rare] = prototype
        readout = mpt.NearestClassMean(prototypes, self.now.covariance()).outwards(self.rare, power)
        return self.judge(readout.predict(self.test))

    def judge(self, predicted: Ints) -> tuple[float, float]:
        """The same for predictions."""
        rare, said = self.test_labels == self.rare, predicted == self.rare
        recalls = [np.mean(predicted[self.test_labels == c] == c) for c in range(self.num_classes) if c != self.rare]
        return 2 * float(np.sum(rare & said)) / max(1, int(rare.sum() + said.sum())), float(np.mean(recalls))


def mapped(
    cell: Cell,
    width: float | None = DEFAULT_WIDTH,
    ridge: float = DEFAULT_MAP_RIDGE,
    *,
    towards: float | None = None,
    between: float = 1.0,
) -> Floats:
    """The departing prototype under a map with other settings, without remaining samples.

    `ridge` is c of Eq. (X2), `towards` its rho; `between` is how much more the classes' means count than the samples
    about them.
    """
    cross = cell.cross(width)
    classes = np.flatnonzero(cross.weights)
    counted = (cross.weights * cross.counts)[classes]
    earlier, means = cross.earlier_means[classes], cross.means[classes]
    within, within_cross = cross.within
    relative = map_ridge(cross.weights[classes], cross.counts[classes], len(cell.start), ridge)
    found = affine_map(earlier, means, counted, within / between, within_cross / between, relative, towards)
    moved: Floats = found(cell.start)
    return moved


def by_posterior(cell: Cell, sharpness: float = 0.4) -> Floats:
    """The map with samples weighted one by one: by the departed class's posterior at departure, tempered."""
    factor, rows = cell.deposit.covariance_factor, cell.references
    z, h, centres = cell.z[rows], cell.h[rows], np.vstack([cell.start, cell.deposit.reference])
    far = np.stack([np.sum(whiten(z - centre, factor) ** 2, axis=1) for centre in centres])
    odds = np.exp(-sharpness / 2 * (far - far.min(axis=0)))
    weights = odds[0] / odds.sum(axis=0)
    roots = np.sqrt(weights)[:, None]
    before, now = weights @ z / weights.sum(), weights @ h / weights.sum()
    scatter = ((z - before) * roots).T @ ((z - before) * roots), ((z - before) * roots).T @ ((h - now) * roots)
    relative = DEFAULT_MAP_RIDGE * len(before) * float(np.sum(weights**2)) / float(np.sum(weights)) ** 2
    moved: Floats = affine_map(before[None], now[None], np.ones(1), *scatter, relative)(cell.start)
    return moved


def assumed(cell: Cell) -> tuple[float, float, float]:
    """What Eq. (X5) and (X6) assume of the departed class, measured: its samples' variance about the map over that of
    the classes that the map was fitted to, and the prediction's squared error over that of classes left out; and p / n.
    """
    cross = cell.cross()
    classes = np.flatnonzero(cross.weights)
    counted, share = (cross.weights * cross.counts)[classes], cross.weights[classes] / cross.weights[classes].sum()
    ridge = map_ridge(cross.weights[classes], cross.counts[classes], len(cell.start))
    found = affine_map(cross.earlier_means[classes], cross.means[classes], counted, *cross.within, ridge)
    now = cell.now.covariance()
    floor = ridge_floor(now, cell.deposit.cov_ridge)
    stated = residual_noise(found, cell.deposit.covariance, cell.factor, floor, np.inf)
    left = cell.h[cell.all_rare] - found(cell.z[cell.all_rare])
    scattered = float(np.mean(whiten(left - left.mean(axis=0), cell.factor) ** 2))
    elsewhere = float(share @ np.mean(whiten(found.errors, cell.factor) ** 2, axis=1))
    wrong = float(np.mean(whiten(found(cell.start) - cell.truth, cell.factor) ** 2))
    fitted = effective_samples(cross.weights[classes], cross.counts[classes])
    return _ELSEWHERE * scattered / stated, wrong / elsewhere, found.parameters / fitted


def ldc_all(cell: Cell) -> Floats:
    """As `mpt.methods.drift.Ldc` with the budget "all"."""
    z, h = cell.z[cell.rows], cell.h[cell.rows]
    gram = z.T @ z
    ridge = 0.01 * np.trace(gram) / len(gram) * np.eye(len(gram))
    return cell.start + cell.start @ np.linalg.solve(gram + ridge, z.T @ h - gram)


def remaining_mean(cell: Cell) -> Floats:
    """The plain mean; the frozen prototype where there are no samples."""
    mean: Floats = cell.now.means[cell.rare]
    return mean if cell.samples else cell.start


def by_best_ridge(cell: Cell) -> Floats:
    """The map whose ridge has the smallest error on reference classes left out, near ones counting more."""
    cross = cell.cross()
    classes = np.flatnonzero(cross.weights)
    counted, share = (cross.weights * cross.counts)[classes], cross.weights[classes]
    earlier, means = cross.earlier_means[classes], cross.means[classes]

    def error(ridge: float) -> float:
        relative = map_ridge(cross.weights[classes], cross.counts[classes], len(cell.start), ridge)
        errors = affine_map(earlier, means, counted, *cross.within, relative).errors
        return float(share @ np.sum(whiten(errors, cell.factor) ** 2, axis=1))

    return mapped(cell, ridge=min(RIDGES, key=error))


def mpt_by_best_ridge(cell: Cell) -> Floats:
    """MPT whose lambda has the smallest error on reference classes left out."""
    deposit, now = cell.deposit, cell.now.means[cell.deposit.classes]

    def error(ridge: float) -> float:
        inside, beyond = left_out_errors(deposit.reference, now, ridge, cell.plain.growth)
        return float(np.sum(whiten(inside + beyond, cell.factor) ** 2))

    return mpt_with(cell, min((0.03, 0.1, 0.2, 0.3, 0.5, 1.0), key=error))


def mpt_with(cell: Cell, ridge: float) -> Floats:
    """MPT with another lambda."""
    before = cell._stats(cell.z, np.concatenate([cell.references, cell.all_rare]))
    deposit = mpt.deposit(before, cell.rare, staying=cell._stats(cell.z, cell.rows), ridge=ridge)
    prototype: Floats = mpt.reconstruct(deposit, cell.now).prototype
    return prototype


def by_equation_7(cell: Cell) -> Floats:
    """MPT-X with alpha by Eq. (7) as it stands, in whitened coordinates."""
    rec = cell.tracked
    measured, predicted = whiten(rec.measured, cell.factor), whiten(rec.predicted, cell.factor)
    alpha = reliability(measured, predicted, rec.noise, cell.samples)
    return rec.in_span + alpha * rec.measured + (1 - alpha) * rec.predicted


def pooled(cell: Cell) -> Floats:
    """MPT-X and MPT, each by the inverse of its squared expected error."""
    one, other = cell.tracked, cell.plain
    a, b = one.expected_error or 1.0, other.expected_error or 1.0
    share = b**2 / (a**2 + b**2)
    return share * one.prototype + (1 - share) * other.prototype


def plain_mean(cell: Cell) -> Floats:
    """The prediction and the remaining samples' mean as it is, alpha as in Eq. (X6) with the mean's own noise."""
    rec, d = cell.tracked, len(cell.start)
    predicted = rec.in_span + rec.predicted
    if not cell.samples:
        return predicted
    prior = (rec_prior(cell) / d) / 2
    return predicted + prior / (prior + 1 / cell.samples) * (remaining_mean(cell) - predicted)


def rec_prior(cell: Cell) -> float:
    """The squared error expected of the prediction."""
    none = mpt.reconstruct(cell.deposit, cell.now, variant="cross", cross=without_rare(cell))
    return float(none.expected_error or 0.0) ** 2


def without_rare(cell: Cell) -> mpt.CrossStatistics:
    """The cross moments without the remaining samples."""
    bare = Cell.__new__(Cell)
    bare.__dict__.update({k: v for k, v in cell.__dict__.items() if k not in ("tracked", "plain")})
    bare.rows = cell.references
    return bare.cross()


def own_covariance(cell: Cell) -> tuple[float, float]:
    """MPT-X's prototype, and for the departed class its own covariance carried along by the map, half and half."""
    cross = cell.cross()
    classes = np.flatnonzero(cross.weights)
    counted = (cross.weights * cross.counts)[classes]
    ridge = map_ridge(cross.weights[classes], cross.counts[classes], len(cell.start))
    found = affine_map(cross.earlier_means[classes], cross.means[classes], counted, *cross.within, ridge)
    mine = cell.z[cell.all_rare] - cell.z[cell.all_rare].mean(axis=0)
    carried = found.matrix.T @ (mine.T @ mine / len(mine)) @ found.matrix
    shared = cell.now.covariance()
    own = regularize((carried + shared) / 2, 0.1)
    prototypes = np.delete(cell.now.means, cell.rare, axis=0)
    others = np.delete(np.arange(cell.num_classes), cell.rare)
    base = regularize(shared, 0.1)

    def scores(rows: Floats, covariance: Floats) -> Floats:
        factor = np.linalg.cholesky(covariance)
        size: Floats = np.sum(whiten(rows, factor) ** 2, axis=1) + 2 * np.log(factor.diagonal()).sum()
        return size

    table = np.stack([scores(cell.test - p, base) for p in prototypes], axis=1)
    rare = scores(cell.test - cell.tracked.prototype, own)
    return cell.judge(np.where(rare < table.min(axis=1), cell.rare, others[table.argmin(axis=1)]))


def oas(cell: Cell, prototype: Floats) -> tuple[float, float]:
    """A prototype read out under the covariance shrunk by oracle approximating shrinkage (Chen et al., 2010)."""
    s, n = cell.now.covariance(), len(cell.references)
    d, mean, square = len(s), np.trace(s) / len(s), np.sum(s**2)
    rho = min(1.0, ((1 - 2 / d) * square + (d * mean) ** 2) / ((n + 1 - 2 / d) * (square - d * mean**2)))
    prototypes = cell.now.means
    prototypes[cell.rare] = prototype
    shrunk = (1 - rho) * s + rho * mean * np.eye(d)
    return cell.judge(mpt.NearestClassMean(prototypes, shrunk, cov_ridge=0.0).predict(cell.test))


def by_direction(cell: Cell, prototype: Floats) -> tuple[float, float]:
    """A prototype read out by the angle, in whitened space, seen from the mean of the reference prototypes."""
    prototypes, middle = cell.now.means, cell.now.means[cell.deposit.classes].mean(axis=0)
    prototypes[cell.rare] = prototype
    ways = whiten(prototypes - middle, cell.factor)
    ways /= np.linalg.norm(ways, axis=1, keepdims=True)
    return cell.judge(np.argmax(whiten(cell.test - middle, cell.factor) @ ways.T, axis=1))


def tukey(cell: Cell, *, oracle: bool = False) -> tuple[float, float]:
    """MPT-X, or oracle-train, on the square roots of all features, which are not negative."""
    changed = Cell.__new__(Cell)
    changed.__dict__.update({k: v for k, v in cell.__dict__.items() if k not in ("tracked", "plain")})
    for name in ("z", "h", "test"):
        setattr(changed, name, np.sqrt(np.maximum(getattr(cell, name), 0.0)))
    before = changed._stats(changed.z, np.concatenate([cell.references, cell.all_rare]))
    changed.deposit = mpt.deposit(before, cell.rare, staying=changed._stats(changed.z, cell.rows))
    changed.start, changed.now = changed.deposit.prototype, changed._stats(changed.h, cell.rows)
    return changed.scores(changed.h[cell.all_rare].mean(axis=0) if oracle else changed.tracked.prototype)


def outwards(what: Callable[[Cell], Floats], power: float) -> "Estimate":
    """A prototype read out further out."""
    return lambda cell: cell.scores(what(cell), power)


Estimate = Callable[[Cell], Floats | tuple[float, float]]
OUTWARDS = ("mpt-x",)
"""Read out by Eq. (X10)."""

POWERS = (0.2, 0.3, 0.5, 0.7, 1.0)
COMPARED: dict[str, Estimate] = {
    "oracle-train": lambda cell: cell.truth,
    "mpt-x": lambda cell: cell.tracked.prototype,
    "mpt-x in place": lambda cell: cell.tracked.prototype,
    "mpt": lambda cell: cell.plain.prototype,
    "ldc:all": ldc_all,
    "remaining-mean": remaining_mean,
    "frozen": lambda cell: cell.start,
}
TRIED: dict[str, Estimate] = {
    **COMPARED,
    "mpt-x without calibration": lambda cell: cell.tracked.in_span + cell.tracked.predicted,
    "corrected mean alone": lambda cell: cell.tracked.in_span + cell.tracked.measured,
    "plain mean calibrated": plain_mean,
    "alpha by Eq. (7)": by_equation_7,
    "all classes alike": lambda cell: mapped(cell, None),
    "towards zero": lambda cell: mapped(cell, towards=0.0),
    "towards the identity": lambda cell: mapped(cell, towards=1.0),
    "samples weighted by posterior": by_posterior,
    "class means count tenfold": lambda cell: mapped(cell, between=10.0),
    "ridge by classes left out": by_best_ridge,
    "mpt, lambda by classes left out": mpt_by_best_ridge,
    "mpt, lambda 0.2": lambda cell: mpt_with(cell, 0.2),
    "pooled with mpt by inverse error": pooled,
    "own covariance in the readout": own_covariance,
    "OAS in the readout": lambda cell: oas(cell, cell.tracked.prototype),
    "oracle-train, OAS in the readout": lambda cell: oas(cell, cell.truth),
    "read out by direction": lambda cell: by_direction(cell, cell.tracked.prototype),
    "mpt, read out by direction": lambda cell: by_direction(cell, cell.plain.prototype),
    "oracle-train, read out by direction": lambda cell: by_direction(cell, cell.truth),
    **{f"mpt-x outwards, gamma {p:g}": outwards(lambda cell: cell.tracked.prototype, p) for p in POWERS},
    "oracle-train outwards": outwards(lambda cell: cell.truth, DEFAULT_OUTWARD),
    "mpt outwards": outwards(lambda cell: cell.plain.prototype, DEFAULT_OUTWARD),
    "Tukey transform": tukey,
    "oracle-train, Tukey transform": lambda cell: tukey(cell, oracle=True),
}
