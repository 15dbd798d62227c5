"""How far a reconstruction can be trusted, said without labels: an expected error and a verdict.

Reference classes are there every round, so what a rule gets wrong when it reconstructs one of them from the others is
known. Beside it stands how far the remaining samples disagree with the forecast, which is made without them: each is
somebody else's word, and they judge one another.
"""

from typing import Literal, NamedTuple, get_args

import numpy as np
import scipy.linalg

from mpt.core.equations import barycentric_weights, outside, residual, span_basis
from mpt.core.linalg import dot, triangular
from mpt.core.rounding import regular_factor
from mpt.core.validation import Floats

Verdict = Literal["good", "degraded", "lost", "unconfirmed", "disputed"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)

SURE = 10.0
"""By how much a disagreement must exceed chance to count: 1 + SURE / sqrt(N) times its mean."""

_DEGRADED, _LOST = 0.45, 0.85
"""Of the distance to the nearest other prototype; `docs/explanation/mpt-x.md` has the F1 at these."""

TYPICAL = 0.5
"""Of the expected error: how far departed classes mostly were, by which the verdict goes."""

_PASSES = 0.25
"""Of the distance to the nearest other prototype: a deposit that is off by more costs F1: samples have to show it."""
_CHANCE = 3.0
"""Times the shared variance: between classes a class may vary more than all do on average, and few samples tell."""

OUTSIDE = 1.0
"""Of what the samples that a map is fitted to reach on average, Eq. (X12): a prototype beyond that lies outside of
them, and where none of its samples remains, nothing says where it goes."""

DISPUTED = 2.5
"""Times what both expect: from here on |remaining samples - forecast|^2 is a contradiction, Eq. (X11)."""


class Gap(NamedTuple):
    """|m - p|^2, whitened: how far the remaining samples are from the forecast; and what is expected of that.

    `apart` is whether the forecast is of other samples than these; else they say nothing of it. `passes` is how large a
    lie may pass unseen, of the distance to the nearest other prototype, where samples are to confirm a forecast.
    """

    square: float
    expected: float
    apart: bool = True
    passes: float = 0.64

    @property
    def ratio(self) -> float:
        """One over the other; honest fleets are seldom above 2.5."""
        return self.square / self.expected if self.expected > 0 else 0.0


class Health(NamedTuple):
    """What is to be expected of a reconstruction: `expected_error`, Eq. (X8), and `verdict`, Eq. (X9) and (X11).

    `verdict` is None in MPT-lite, whose error says too little of F1. `contradiction` is the `ratio` of its `Gap`; None
    where no sample remains. `reach` is how far out the prototype lies for MPT-X's map, squared, Eq. (X12), over what
    the samples that it is fitted to do on average; beyond 1 the map extrapolates. None in MPT and MPT-lite.
    """

    expected_error: float
    verdict: Verdict | None
    contradiction: float | None = None
    reach: float | None = None


def whiten(rows: Floats, factor: Floats) -> Floats:
    """L^-1 x for a vector x (d,) or each row of (N, d), S~ = L L^T: Euclidean lengths there are Mahalanobis here."""
    if rows.ndim == 1:
        return triangular(factor, rows[:, None])[:, 0]
    return triangular(factor, rows.T).T


def whitening(covariance: Floats, cov_ridge: float) -> Floats:
    """The lower Cholesky factor of S~, Eq. (3); of the identity where the covariance is zero. (d, d)"""
    if not covariance.any():
        return np.eye(len(covariance))
    return regular_factor(covariance, cov_ridge, "covariance")


def disagreement(gap: Floats, noise: float, samples: int) -> float:
    """What of |gap|^2 / d, per whitened dimension, several times chance does not explain; at least 0.

    Samples are no Gaussians: the fewer they are, the further their mean strays beyond what its variance says.
    """
    chance = (1 + SURE / np.sqrt(samples)) * noise / samples
    return max(float(np.sum(gap**2) / len(gap) - chance), 0.0)


def expected_error(
    alpha: float, noise: float, samples: int, prior: float, gap: Floats, unmeasured: float = 0.0
) -> float:
    r"""Eq. (X8): a Mahalanobis distance within which the class's true prototype is to be expected.

        sqrt(d (u + alpha^2 sigma^2 / N + (1 - alpha)^2 max(prior, what the samples say))),

    the noise of what was measured and the error of what was predicted, each by its weight. The latter is what
    predictions of reference classes miss that are left out, or the remaining samples' `disagreement`, if that is more.
    MPT takes remaining samples outside the reference span only: what it misses within stays, however many there are.

    Args:
        alpha: of Eq. (7) or (X6).
        noise: sigma^2, per sample and whitened dimension.
        samples: N, the number of remaining samples.
        prior: the squared error expected of a prediction, from reference classes left out, per whitened dimension.
        gap: (d,), what was measured less what was predicted, whitened.
        unmeasured: u, like `prior`, of the part that samples do not correct.
    """
    if not samples:
        return float(np.sqrt(len(gap) * (unmeasured + prior)))
    predicted = max(prior, disagreement(gap, noise, samples))
    return float(np.sqrt(len(gap) * (unmeasured + alpha**2 * noise / samples + (1 - alpha) ** 2 * predicted)))


def verdict(error: float, margin: float, *gaps: Gap, lost: float = _LOST) -> Verdict:
    r"""Eq. (X9) and (X11), from an error, the distance to the nearest other prototype, and the remaining samples.

    By the error "good" up to .45 of that distance, "lost" beyond `lost` of it, or at 0, "degraded" between. "disputed"
    where the samples contradict the forecast: one of them is wrong, and which cannot be told. What would be good is
    "unconfirmed" where they do not confirm it: there are none (no gap), they lie further off than expected, they are so
    few that a lie of some part of the distance would not show, or the forecast is of these very samples.
    """
    if any(gap.ratio > DISPUTED for gap in gaps):
        return "disputed"
    if margin <= 0 or error > lost * margin:
        return "lost"
    if error > _DEGRADED * margin:
        return "degraded"
    confirmed = all(gap.apart and gap.ratio <= 1 and gap.expected <= (gap.passes * margin) ** 2 for gap in gaps)
    return "good" if gaps and confirmed else "unconfirmed"


def between_classes(off: Floats, forecast: Floats, others: Floats, factor: Floats) -> tuple[float, int]:
    """|x|^2 of a deviation (d,) from a forecast (d,), whitened, in the directions to the `others` (K, d); and how many.

    A forecast that is wrong is wrong in these, where classes are told apart; in all others few samples tell nothing.
    """
    basis = span_basis(whiten(others - forecast, factor))
    along = dot(basis.T, whiten(off, factor))
    return float(np.sum(along**2)), basis.shape[1]


def standing(
    off: Floats, forecast: Floats, others: Floats, factor: Floats, noise: float, prior: float, apart: bool
) -> Gap:
    """Where remaining samples stand, of Eq. (X11): their mean less the forecast, in the directions between classes.

    How samples have moved judges today's reports, not the prototype that the departed vehicle left. Where they stand
    does.

    Args:
        off: (d,), that difference.
        forecast: (d,), made without them.
        others: (K, d), the other prototypes.
        factor: (d, d), which whitens.
        noise: of their mean, per whitened dimension: a sample's variance over their number.
        prior: the squared error that is expected of the forecast, whitened.
        apart: whether it is of other samples than these.
    """
    square, k = between_classes(off, forecast, others, factor)
    return Gap(square, _CHANCE * k * noise + prior, apart, _PASSES)


def whitened_noise(factor: Floats, floor: float) -> float:
    """tr(S~^-1 S) / d of S~ = S + floor I = L L^T: the variance of a sample per whitened dimension."""
    inverse = scipy.linalg.lapack.dtrtri(factor, lower=1)[0]
    return max(1 - floor * float(np.sum(inverse**2)) / len(factor), 0.0)


def nearest(prototype: Floats, others: Floats, factor: Floats) -> float:
    """The Mahalanobis distance of a prototype (d,) to the nearest of `others` (K, d)."""
    return float(np.sqrt(np.sum(whiten(others - prototype, factor) ** 2, axis=1)).min())


def left_out_errors(before: Floats, now: Floats, ridge: float, growth: float) -> tuple[Floats, Floats]:
    """What MPT gets wrong on each reference class, reconstructed from the others without remaining samples.

    (K, d) twice: within the others' span, and outside of it.

    The residual is scaled by `growth`, what the transport does to the departed class's: a transport for every reference
    class would cost as many times as much.

    Args:
        before: M_d (K, d).
        now: M_t (K, d).
        ridge: relative lambda of Eq. (1).
        growth: |predicted| over the length of the stored residual outside the reference span.
    """
    within, beyond = np.zeros_like(now), np.zeros_like(now)
    for k in range(len(now) if len(now) > 1 else 0):
        others = np.arange(len(now)) != k
        weights = barycentric_weights(before[k], before[others], ridge)
        basis = span_basis(now[others])
        missed = now[k] - dot(weights, now[others])
        beyond[k] = outside(missed, basis)
        within[k] = missed - beyond[k]
        beyond[k] -= growth * outside(residual(before[k], before[others], weights), basis)
    return within, beyond
