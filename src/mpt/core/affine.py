r"""Cross-moment tracking's equations, beyond the paper, one function each, on plain float64 arrays.

Notation as in `mpt.core.equations`; z is a feature under the reference model, h the same sample's under the current
one. m_k (K, d) are the reference classes' means of z, n_k (K, d) those of h, w_k (K,) how much each class counts: its
samples times its weight. W = sum of a (z - m)(z - m)^T and V = sum of a (z - m)(h - n)^T are taken about each sample's
own class means.
"""

from typing import NamedTuple

import numpy as np
import scipy.linalg

from mpt.core.health import disagreement, whiten
from mpt.core.linalg import dot
from mpt.core.rounding import regular_factor
from mpt.core.validation import Floats, Ints

DEFAULT_WIDTH = 0.15
"""s^2 of Eq. (X1), relative to the median squared distance."""

DEFAULT_MAP_RIDGE = 0.02
"""c of Eq. (X2): the ridge for as many samples as dimensions."""

_LEAST_RIDGE = 2.0**-12
"""Of Eq. (X2) where cross moments are float16, which are right to this: a smaller one would amplify their rounding."""

_LEAST_NOISE = 0.02
"""Of the whole variance, Eq. (X5)."""

_ELSEWHERE = 1.6
"""How much further samples of a class that the map was not fitted to scatter about it, at least, Eq. (X5)."""

_CARRIED = 1 / 6
"""What the map gets wrong on the departed class, of what it gets wrong on reference classes left out, Eq. (X6)."""


def nearness(prototype: Floats, reference: Floats, factor: Floats, width: float = DEFAULT_WIDTH) -> Floats:
    r"""Eq. (X1): a_k, how much each reference class counts, near ones more; their mean is one. (K,)

        a_k ~ exp(-D_k^2 / 2 s^2),   D_k^2 = (m_k - mu)^T S~_d^-1 (m_k - mu),   s^2 = `width` x median_k D_k^2.

    Args:
        prototype: mu (d,).
        reference: M_d (K, d).
        factor: (d, d), the lower Cholesky factor of S~_d.
        width: relative s^2, positive.
    """
    squares = np.sum(whiten(reference - prototype, factor) ** 2, axis=1)
    middle = float(np.median(squares))
    if middle <= 0:
        return np.ones(len(reference))
    weights = np.exp((squares.min() - squares) / (2 * width * middle))
    return np.asarray(weights / weights.mean())


class AffineMap(NamedTuple):
    """h = centre + (z - earlier_centre) matrix, and how far it is from classes that it was not fitted to.

    Attributes:
        earlier_centre: (d,), z's weighted mean.
        centre: (d,), h's.
        matrix: A (d, d) of Eq. (X2).
        errors: (K, d), of Eq. (X3): each reference class's mean of h less what the map would say without that class.
        parameters: p = tr(G (G + lambda I)^-1), how many of its d coefficients an output has the samples to fit.
        factor: (d, d), the lower Cholesky factor of (G + lambda I) / sum(w); of zeros where nothing was fitted.
        reaches: (K,), of Eq. (X12): how far out each class's mean lies for the map without that class, about the
            same centre.
        ridge: lambda / sum(w).
        towards: rho of Eq. (X2).
    """

    earlier_centre: Floats
    centre: Floats
    matrix: Floats
    errors: Floats
    parameters: float
    factor: Floats
    reaches: Floats
    ridge: float
    towards: float

    def __call__(self, rows: Floats) -> Floats:
        """The map applied to a vector (d,) or to rows (N, d) of the reference model's space."""
        return self.centre + dot(rows - self.earlier_centre, self.matrix)

    def reach(self, point: Floats) -> float:
        r"""Eq. (X12): R = (z - m)^T ((G + lambda I) / sum(w))^-1 (z - m), how far out a point (d,) lies.

        A squared Mahalanobis distance from all samples that the map was fitted to; of these it is p on average.
        """
        if not self.factor.any():
            return 0.0
        return float(np.sum(whiten(point - self.earlier_centre, self.factor) ** 2))

    def unseen(self, point: Floats, factor: Floats) -> float:
        r"""Eq. (X13): what no sample tells of where a point (d,) goes, whitened by L (d, d) of h.

            u = |lambda (G + lambda I)^-1 (z - m)| |(A - rho I) L^-T|_F / sqrt(d).

        The ridge leaves the first factor's part of z - m out, as no sample goes there: it is carried by rho alone. It
        may be as wrong as rho is of any direction on average.
        """
        if not self.factor.any():
            return 0.0
        away = point - self.earlier_centre
        left_out = self.ridge * scipy.linalg.cho_solve((self.factor, True), away, check_finite=False)
        turned = whiten(self.matrix - self.towards * np.eye(len(away)), factor)
        return float(np.linalg.norm(left_out) * np.linalg.norm(turned) / np.sqrt(len(away)))


def effective_samples(weights: Floats, counts: Floats | Ints) -> float:
    """n = (sum a n_k)^2 / sum a^2 n_k, as many samples as the weights leave."""
    counted = weights * counts
    return float(np.sum(counted) ** 2 / np.sum(weights * counted))


def map_ridge(
    weights: Floats, counts: Floats | Ints, d: int, ridge: float = DEFAULT_MAP_RIDGE, *, halves: bool = False
) -> float:
    """The relative ridge of Eq. (X2): c d / n; where cross moments travelled as float16, at least what that leaves."""
    return max(ridge * d / effective_samples(weights, counts), _LEAST_RIDGE if halves else 0.0)


def halves_suffice(weights: Floats, counts: Floats | Ints, d: int) -> bool:
    """Whether the ridge for so many samples hides what float16 leaves of cross moments: c d / n at least 2^-12."""
    return not np.any(weights * counts) or map_ridge(weights, counts, d) >= _LEAST_RIDGE


def affine_map(
    earlier: Floats,
    current: Floats,
    counted: Floats,
    within: Floats,
    within_cross: Floats,
    ridge: float,
    towards: float | None = None,
) -> AffineMap:
    r"""Eq. (X2) and (X3): the ridge regression of h on z over the samples of the reference classes, from their sums.

        G = W + sum_k w_k (m_k - m)(m_k - m)^T,   X = V + sum_k w_k (m_k - m)(n_k - n)^T,
        A = rho I + (G + lambda I)^-1 (X - rho G),   rho = tr(X) / tr(G),   lambda = `ridge` x tr(G) / d,

    m and n the weighted means of z and h: where nothing has moved, the map is the identity, and with few samples it
    stays near a multiple of it, the smaller the less of z is left in h. Without class k's mean, but with the scatter
    within it, the regression's error at that class is known without solving again, as in any linear regression:

        e_k = (n_k - map(m_k)) / (1 - H_k),   H_k = w_k / sum(w) + w_k (m_k - m)^T (G + lambda I)^-1 (m_k - m).

    Args:
        earlier: m_k (K, d).
        current: n_k (K, d).
        counted: w_k (K,), positive.
        within: W (d, d).
        within_cross: V (d, d).
        ridge: relative ridge, not negative.
        towards: rho; None: as above, at least 0.
    """
    share = counted / counted.sum()
    centre, dh = _centred(current, share)
    earlier_centre, dz = _centred(earlier, share)
    weighted = dz * counted[:, None]
    whole = within + dot(weighted.T, dz)
    whole = (whole + whole.T) / 2
    size = float(np.trace(whole)) / len(whole)
    if size <= 0:
        return AffineMap(
            earlier_centre, centre, np.eye(len(whole)), dh - dz, 0.0, np.zeros_like(whole), np.zeros(len(dz)), 0.0, 1.0
        )
    moved = within_cross + dot(weighted.T, dh)
    rho = max(float(np.trace(moved)) / float(np.trace(whole)), 0.0) if towards is None else towards
    moved -= rho * whole
    factor = regular_factor(whole, ridge, "gram", "more samples, earlier_origin ")
    matrix = scipy.linalg.cho_solve((factor, True), moved, check_finite=False)
    matrix.flat[:: len(whole) + 1] += rho
    solved = scipy.linalg.cho_solve((factor, True), dz.T, check_finite=False)
    squares, total = np.sum(dz * solved.T, axis=1), float(counted.sum())
    leverage = share + counted * squares
    reaches = total * squares / np.maximum(1 - counted * squares, 1e-6)
    errors = (dh - dot(dz, matrix)) / np.maximum(1 - leverage, 1e-6)[:, None]
    inverse = scipy.linalg.lapack.dtrtri(factor, lower=1)[0]
    parameters = len(whole) - ridge * size * float(np.sum(inverse**2))
    scaled = factor / np.sqrt(total)
    return AffineMap(earlier_centre, centre, matrix, errors, parameters, scaled, reaches, ridge * size / total, rho)


def _centred(means: Floats, share: Floats) -> tuple[Floats, Floats]:
    """The weighted mean (d,) of K means, and how far each is from it (K, d): zero exactly where all are the same."""
    apart = means - means[0]
    centre = dot(share, apart)
    return means[0] + centre, apart - centre


def extrapolated(mapped: AffineMap, squares: Floats, share: Floats, reach: float) -> float:
    r"""Eq. (X12): what the map is to get wrong so far out, from what it gets wrong on reference classes left out.

        sum_k s_k |e_k|^2 max(1, (1 + R) / (1 + R_k)),

    as the variance of a regression's prediction grows with the square of the distance from what it was fitted to.
    Reference classes that lie as far out when they are left out say what to expect as they are.

    Args:
        mapped: the map, with R_k.
        squares: |e_k|^2 (K,), whitened.
        share: s_k (K,), how much each counts; they sum up to one.
        reach: R of the departed prototype.
    """
    return float(np.sum(share * squares * np.maximum(1.0, (1 + reach) / (1 + mapped.reaches))))


def corrected_mean(mapped: AffineMap, prototype: Floats, earlier_mean: Floats, mean: Floats) -> Floats:
    """Eq. (X4): the remaining samples' mean, corrected for how they differ from their class: n + (mu - m) A. (d,)

    m and n are their means of z and h. What the class's samples have in common with these is measured, the rest is
    carried over by the map; the noise that is left is that of the map's residual, smaller than that of n.
    """
    return np.asarray(mean + dot(prototype - earlier_mean, mapped.matrix))


def residual_noise(mapped: AffineMap, earlier: Floats, factor: Floats, floor: float, samples: float) -> float:
    r"""Eq. (X5): sigma^2, the variance per sample and whitened dimension of h - map(z) within a class.

        sigma^2 = f tr(S~_t^-1 (S_t - A^T S_z A)) / d,   f = max(1.6, (1 - p / n)^-2),

    what of the variance of h that of map(z) does not account for, at least a fiftieth of all of it and at most all.
    f is for a class that the map was not fitted to, whose samples scatter further about it: on tuning classes 0.9 to
    1.8 times as far where p is a seventh of n, and the further the fewer samples the map has to follow; the second term
    is generalized cross-validation's (`docs/explanation/mpt-x.md`). Where the map leaves nothing unexplained,
    prediction and measurement agree, and the floor changes nothing.

    Args:
        mapped: the map.
        earlier: S_z (d, d), of z within the same classes as S_t.
        factor: L (d, d), the lower Cholesky factor of S~_t = S_t + floor I.
        floor: as `ridge_floor` gives it.
        samples: n, those that the map was fitted to, as `effective_samples` counts them.
    """
    d = len(factor)
    inverse = scipy.linalg.lapack.dtrtri(factor, lower=1)[0]
    total = 1 - floor * float(np.sum(inverse**2)) / d
    carried = whiten(mapped.matrix, factor)
    explained = float(np.sum(carried * dot(earlier, carried))) / d
    unexplained = max(total - explained, _LEAST_NOISE * total)
    free = 1 - mapped.parameters / samples
    return min(max(_ELSEWHERE, free**-2) * unexplained, total) if free > 0 else total


def trust(gap: Floats, noise: float, samples: int, prior: float) -> float:
    r"""Eq. (X6): alpha, how far the corrected mean is trusted against the map's prediction.

        D = |gap|^2 / d,   tau^2 = max(prior / 6, D - (1 + 10 / sqrt(N)) sigma^2 / N),
        alpha = tau^2 / (tau^2 + sigma^2 / N).

    As Eq. (7), in whitened coordinates, with two differences. What the map gets wrong on a reference class that it was
    not fitted to says what it gets wrong here, but less, a sixth: reference classes are trained and move apart by
    themselves, the departed one is only carried along, and no class is missing from the fit. And samples are no
    Gaussians: D counts only beyond several times what chance explains on average, the more the fewer they are.

    Args:
        gap: (d,), the corrected mean less the prediction, whitened.
        noise: sigma^2 of Eq. (X5).
        samples: N, the number of remaining samples.
        prior: the map's mean squared error per whitened dimension on reference classes, Eq. (X3).
    """
    if samples == 0:
        return 0.0
    if noise <= 0:
        return 1.0
    signal = max(_CARRIED * prior, disagreement(gap, noise, samples))
    return signal / (signal + noise / samples)
