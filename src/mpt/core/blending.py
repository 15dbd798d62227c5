r"""A departed class's prototype faded between frozen, reconstruction and measurement by their reliability.

Eq. (4) and (6) drop what of the stored residual lies within the reference span, so MPT's prototype jumps in the first
round after a departure, even where nothing has moved. Here the whole residual is transported, and what is made of it
is weighed against the prototype as it was and against the mean of the remaining samples:

    x_f = mu,   x_r = M_t^T w0 + T r0,   x_m = m.

How far x_f and x_r are off is read off the reference classes, which are there every round. How far x_m is off follows
from the number of remaining samples. All lengths are under S~_t^-1, Eq. (3).
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from mpt.core.departure import Deposit
from mpt.core.equations import barycentric_weights, residual, ridge_floor
from mpt.core.health import Gap, disagreement, expected_error, nearest, verdict, whiten, whitening
from mpt.core.reconstruction import Reconstruction, reconstruct
from mpt.core.statistics import ClassStatistics
from mpt.core.transport import transport
from mpt.core.validation import Floats, read_only

_CARRIED = 0.5
"""How long the error of a departed class's reconstruction is against that of a reference class that is left out.

The latter is made from one reference class less, and is of a class that training moves on purpose, so it is longer. A
half was chosen by hand on tuning classes.
"""


class Missed(NamedTuple):
    """Mean squared errors and mean product of the errors of x_f and x_r over the reference classes, whitened."""

    frozen: float
    carried: float
    product: float


class Faded(NamedTuple):
    """x_f and x_r in one: how much of it is frozen, and the squared error to be expected of it, whitened."""

    share: float
    error: float


def blend(deposit: Deposit, stats: ClassStatistics) -> Reconstruction:
    r"""The departed class's prototype now: the combination of x_f, x_r and x_m with the least expected squared error.

        mu_hat = alpha x_m + (1 - alpha) (s x_f + (1 - s) x_r).

    Where nothing has moved since the departure and no sample remains it is mu; with many remaining samples it tends to
    their mean.

    Args:
        deposit: made at departure, with a covariance.
        stats: this round's statistics of the vehicles that are there, with a scatter, watching the departed class.

    Returns:
        A `Reconstruction`. To keep Eq. (4), `predicted` is s x_f + (1 - s) x_r less `in_span`, `measured` is x_m less
        `in_span` (`predicted` where no sample remains), `noise` is sigma^2 per whitened dimension, and `growth` is
        |T r0| / |r0|. `expected_error` takes the errors of reference classes left out as they are.
    """
    rec = reconstruct(deposit, stats)
    kept = np.isin(deposit.classes, rec.classes)
    before, now = deposit.reference[kept], stats.means_of(rec.classes)
    r0 = residual(deposit.prototype, before, rec.weights)
    carried = _transported(r0, deposit, stats)
    length = float(np.linalg.norm(r0))
    growth = float(np.linalg.norm(carried)) / length if length else 1.0

    covariance, d = stats.shared_covariance, stats.dim
    factor = whitening(covariance, deposit.cov_ridge)
    missed = left_out(before, now, deposit.ridge, growth, factor)
    faded = fade(missed, _CARRIED)
    predicted = faded.share * (deposit.prototype - rec.in_span) + (1 - faded.share) * carried

    noise = float(np.trace(whiten(whiten(covariance, factor).T, factor))) / d
    measured = stats.means[deposit.departed] - rec.in_span if rec.samples else predicted
    gap = whiten(measured - predicted, factor)
    alpha = weight(gap, noise, rec.samples, faded.error / d)
    prototype = rec.in_span + alpha * measured + (1 - alpha) * predicted
    prior = _error(missed, faded.share)
    error = expected_error(alpha, noise, rec.samples, prior / d, gap)
    off = Gap(float(np.sum(gap**2)), prior + d * noise / rec.samples, deposit.apart) if rec.samples else None
    judged = len(now) > 1
    return replace(
        rec,
        prototype=read_only(prototype),
        predicted=read_only(predicted),
        measured=read_only(measured),
        alpha=alpha,
        noise=noise,
        growth=growth,
        expected_error=error if judged else None,
        verdict=verdict(error, nearest(prototype, now, factor), *([off] if off else [])) if judged else None,
        contradiction=off.ratio if judged and off is not None else None,
    )


def left_out(before: Floats, now: Floats, ridge: float, growth: float, factor: Floats) -> Missed:
    """How far each reference class is off, frozen and reconstructed from the others without samples of its own.

    Both errors are zero where nothing has moved: the prototypes of both rounds are of the same samples, so no sampling
    noise is taken off. The residual is scaled by `growth`, as in `mpt.core.health.left_out_errors`. A single reference
    class has no others: what it has moved by stands for both errors.

    Args:
        before: M_d (K, d).
        now: M_t (K, d).
        ridge: relative lambda of Eq. (1).
        growth: |T r0| / |r0| of the departed class.
        factor: (d, d), the lower Cholesky factor of S~_t.
    """
    frozen = now - before
    carried = frozen.copy()
    for k in range(len(now) if len(now) > 1 else 0):
        others = np.arange(len(now)) != k
        weights = barycentric_weights(before[k], before[others], ridge)
        r0 = residual(before[k], before[others], weights)
        carried[k] = residual(now[k], now[others], weights) - growth * r0
    frozen, carried = whiten(frozen, factor), whiten(carried, factor)

    def mean(a: Floats, b: Floats) -> float:
        return float(np.mean(np.sum(a * b, axis=1)))

    return Missed(mean(frozen, frozen), mean(carried, carried), mean(frozen, carried))


def fade(missed: Missed, length: float = 1.0) -> Faded:
    r"""s in [0, 1] for which s x_f + (1 - s) x_r has the least expected squared error.

    With the errors e_f and e_r of the two, of which e_r counts `length` times as long,

        s = (E|e_r|^2 - E e_f.e_r) / (E|e_f|^2 + E|e_r|^2 - 2 E e_f.e_r),   cut off at 0 and 1.

    The two are not independent: where both lag behind, the worse one adds nothing and gets no weight. 0 where they do
    not differ.
    """
    scaled = Missed(missed.frozen, length**2 * missed.carried, length * missed.product)
    apart = scaled.frozen + scaled.carried - 2 * scaled.product
    share = float(np.clip((scaled.carried - scaled.product) / apart, 0, 1)) if apart > 0 else 0.0
    return Faded(share, _error(scaled, share))


def _error(missed: Missed, share: float) -> float:
    """E|s e_f + (1 - s) e_r|^2."""
    return share**2 * missed.frozen + (1 - share) ** 2 * missed.carried + 2 * share * (1 - share) * missed.product


def weight(gap: Floats, noise: float, samples: int, prior: float) -> float:
    """alpha = tau^2 / (tau^2 + sigma^2 / N): the mean of N remaining samples against what was predicted.

    tau^2 is `prior`, or the samples' `disagreement`, if that is more. Without remaining samples alpha is 0; with
    samples that carry no noise it is 1.

    Args:
        gap: (d,), what was measured less what was predicted, whitened.
        noise: sigma^2, per sample and whitened dimension.
        samples: N.
        prior: the squared error expected of what was predicted, per whitened dimension.
    """
    if not samples:
        return 0.0
    error = noise / samples
    if error <= 0:
        return 1.0
    signal = max(prior, disagreement(gap, noise, samples))
    return signal / (signal + error)


def _transported(r0: Floats, deposit: Deposit, stats: ClassStatistics) -> Floats:
    """Eq. (6) without Pc: T r0 (d,). A covariance that is zero gives T = I."""
    source, target = deposit.covariance, stats.shared_covariance
    if source is None or not source.any() or not target.any():
        return r0
    ridges = ridge_floor(source, deposit.cov_ridge), ridge_floor(target, deposit.cov_ridge)
    return transport(r0, source, target, ridges=ridges, factor=deposit.covariance_factor)
