"""The departed class's prototype in the current feature space: Eq. (4), from a deposit and this round's statistics."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple, overload

import numpy as np

from mpt.core.cross import CrossStatistics
from mpt.core.departure import Deposit, out_of_span_spread, require_watched
from mpt.core.equations import (
    assemble,
    barycentric_weights,
    measured_residual,
    outside,
    outside_trace,
    reliability,
    residual,
    ridge_floor,
    span_basis,
)
from mpt.core.errors import StatisticsError
from mpt.core.health import (
    DISPUTED,
    TYPICAL,
    Gap,
    Health,
    Verdict,
    expected_error,
    left_out_errors,
    nearest,
    standing,
    verdict,
    whiten,
    whitened_noise,
    whitening,
)
from mpt.core.influence import HOLDERS, redescending
from mpt.core.linalg import ROUNDING, dot
from mpt.core.mapped import mapped
from mpt.core.statistics import ClassStatistics
from mpt.core.transport import transport
from mpt.core.validation import Floats, Ints, read_only
from mpt.core.value import Value

OFF, OFF_LITE = (3.4, 0.6), (1.6, 2.1)
"""How far a departed class is off at most, of what reference classes left out are: within their span, and outside."""


@dataclass(frozen=True, eq=False)
class Reconstruction(Value):
    """A departed class's prototype now, and the parts it was put together from.

    Attributes:
        departed: the class.
        prototype: (d,), mu_hat of Eq. (4).
        in_span: (d,), M_t^T w0, the drift shared with the reference classes.
        predicted: (d,), r_pred of Eq. (6), the stored residual in the current geometry, outside the reference span.
        measured: (d,), r_ho of Eq. (5), from the remaining samples; zeros where there are none (in "cross":
            `predicted`).
        alpha: of Eq. (7), the weight of `measured` against `predicted`.
        noise: sigma^2, the variance per sample and dimension of the measured residual.
        samples: N, the number of remaining samples.
        growth: |predicted| over the length that the stored residual has outside the reference span.
        classes: (K,), the reference classes used: those of the deposit that are still observed and not watched.
        weights: (K,), their weights; solved again where reference classes have disappeared.
        expected_error: a Mahalanobis distance within which the true prototype is to be expected, Eq. (X8); in MPT-lite,
            which has no covariance, in units of the spread outside the reference span. None with one reference class.
        verdict: "good", "degraded" or, in "cross", "lost", Eq. (X9): that error against the nearest other prototype;
            "unconfirmed" where it would be good and no sample confirms it, "disputed" where they contradict the
            forecast, Eq. (X11). None in MPT-lite, and with one reference class.
        contradiction: how many times what is expected the remaining samples are off the forecast, squared; None where
            there are none, or one reference class.
        reach: in "cross", how far out the departing prototype lies for the map, squared, over what the samples that it
            is fitted to do on average, Eq. (X12): beyond 1 the map extrapolates, and where no sample remains what it
            gets wrong on classes left out counts the more, if it gets anything wrong there. None in the others, and
            with one reference class.

    In the variant "cross" the map predicts, and the remaining samples measure, the whole prototype. To keep Eq. (4),
    `predicted` and `measured` are what they have beyond `in_span`: predicted is map(mu) - in_span, measured the
    corrected mean of Eq. (X4) - in_span, `alpha` is that of Eq. (X6), `noise` that of Eq. (X5), in whitened units, and
    `growth` compares |predicted| with the whole stored residual.
    """

    departed: int
    prototype: Floats
    in_span: Floats
    predicted: Floats
    measured: Floats
    alpha: float
    noise: float
    samples: int
    growth: float
    classes: Ints
    weights: Floats
    expected_error: float | None = None
    verdict: Verdict | None = None
    contradiction: float | None = None
    reach: float | None = None

    def __repr__(self) -> str:
        health: list[str] = [] if self.verdict is None else [self.verdict]
        health += [] if self.expected_error is None else [f"expected error {self.expected_error:.3g}"]
        health += [] if self.reach is None else [f"reach {self.reach:.3g}"]
        return (
            f"<Reconstruction: class {self.departed}, {''.join(f'{one}, ' for one in health)}"
            f"alpha={self.alpha:.3f} from {self.samples} remaining samples, "
            f"growth={self.growth:.3f}, {len(self.classes)} reference classes>"
        )


class _Prediction(NamedTuple):
    residual: Floats
    noise: float


class _Round(NamedTuple):
    """What a variant predicts from."""

    deposit: Deposit
    stats: ClassStatistics
    classes: Ints
    basis: Floats
    residual: Floats


def _transported(now: _Round) -> _Prediction:
    """MPT, Eq. (6): r_pred = Pc T r0; sigma^2 = tr(Pc S_t) / d. A covariance that is zero gives T = I."""
    at_departure = now.deposit.covariance
    if at_departure is None or now.stats.scatter is None:
        what = "deposit has no covariance" if at_departure is None else "stats have no scatter"
        raise StatisticsError(
            f"variant 'mpt': the {what}; make the statistics with scatter=True, or use variant='lite'"
        )
    covariance, r0 = now.stats.shared_covariance, now.residual
    if at_departure.any() and covariance.any():
        ridge = now.deposit.cov_ridge
        ridges = ridge_floor(at_departure, ridge), ridge_floor(covariance, ridge)
        r0 = transport(r0, at_departure, covariance, ridges=ridges, factor=now.deposit.covariance_factor)
    return _Prediction(outside(r0, now.basis), outside_trace(covariance, now.basis) / len(r0))


def _scaled(now: _Round) -> _Prediction:
    """MPT-lite: r_pred = g Pc r0, g^2 = q_t / q_d the growth of the out-of-span spread; sigma^2 = q_t / d.

    Where the deposit has a covariance, q_d is taken from it, outside the span of those references that are still there.
    """
    spread, spread_outside = out_of_span_spread(now.stats, now.classes, now.basis)
    if spread_outside != now.deposit.spread_outside:
        which = "deposit" if spread_outside else "stats"
        raise StatisticsError(
            f"variant 'lite': the squares of the {which} are those of whole features, not of the part outside a span; "
            "make all statistics with span=the latest reference prototypes"
        )
    before = _spread_before(now)
    growth = float(np.sqrt(spread / before)) if spread > 0 and before > 0 else 1.0
    return _Prediction(growth * outside(now.residual, now.basis), spread / len(now.residual))


def _spread_before(now: _Round) -> float:
    """q_d over the references that are still there, per sample where q_t is (the squares') and per degree of freedom
    where q_t is (the scatter's)."""
    deposit, kept = now.deposit, np.isin(now.deposit.classes, now.classes)
    free = 1 - len(now.classes) / int(now.stats.counts[now.classes].sum())
    if deposit.covariance is None:
        return deposit.spread / (free if now.stats.scatter is not None and free > 0 else 1.0)
    if kept.all() and now.stats.scatter is not None:
        return deposit.spread
    spread = outside_trace(deposit.covariance, span_basis(deposit.reference[kept]))
    if spread <= ROUNDING * len(deposit.prototype) * float(np.trace(deposit.covariance)):
        return 0.0
    return spread * (free if now.stats.scatter is None else 1.0)


_PREDICTIONS: dict[str, Callable[[_Round], _Prediction]] = {"mpt": _transported, "lite": _scaled}
VARIANTS = (*_PREDICTIONS, "cross")
"""How the departed class is carried into the current feature space."""


@overload
def reconstruct(
    deposit: Deposit, stats: ClassStatistics, *, variant: str = "mpt", cross: CrossStatistics | None = None
) -> Reconstruction: ...
@overload
def reconstruct(
    deposit: Iterable[Deposit], stats: ClassStatistics, *, variant: str = "mpt", cross: CrossStatistics | None = None
) -> tuple[Reconstruction, ...]: ...
def reconstruct(
    deposit: Deposit | Iterable[Deposit],
    stats: ClassStatistics,
    *,
    variant: str = "mpt",
    cross: CrossStatistics | None = None,
) -> Reconstruction | tuple[Reconstruction, ...]:
    """The departed class's prototype under the current model, Eq. (4).

    A reference class that has disappeared (no samples, or watched by now) is dropped and the weights are solved again
    from the deposit; a class that has appeared since is no reference.

    Args:
        deposit: made at departure; several are reconstructed one by one.
        stats: this round's statistics of the vehicles that are there, watching the departed class. Its own samples in
            them are the remaining samples.
        variant: "mpt" transports the residual with the covariance, "lite" (MPT-lite) scales it by one number, "cross"
            (MPT-X) takes the prototype through the map that `cross` gives.
        cross: for variant "cross": this round's cross moments of the same vehicles, with the weights of
            `class_weights(deposit, num_classes)`. Its samples of the departed class are the remaining samples. Earlier
            features of another model, or in another order, are not noticed, and the verdict may still say good.

    Returns:
        A `Reconstruction`, or for several deposits a tuple of them in the given order.

    Raises:
        StatisticsError: where `stats` do not watch the departed class, do not fit the deposit, lack what the variant
            needs, or observe no reference class.
    """
    if not isinstance(variant, str) or variant not in VARIANTS:
        known = ", ".join(map(repr, VARIANTS))
        raise StatisticsError(f"variant: {variant!r}, should be one of {known}; MPT-X is 'cross', MPT-lite is 'lite'")
    if not isinstance(stats, ClassStatistics):
        raise StatisticsError(f"stats: {type(stats).__name__}, should be ClassStatistics")
    if (variant == "cross") != isinstance(cross, CrossStatistics):
        raise StatisticsError(
            f"cross: {type(cross).__name__} with variant {variant!r}, should be "
            f"{'CrossStatistics' if variant == 'cross' else 'left out, or the variant cross'}"
        )
    several = list(deposit) if isinstance(deposit, Iterable) else [deposit]
    for one in several:
        if not isinstance(one, Deposit):
            raise StatisticsError(f"deposit: {type(one).__name__}, should be a Deposit or several")
    made = tuple(_reconstruct(one, stats, variant, cross) for one in several)
    return made if isinstance(deposit, Iterable) else made[0]


def _reconstruct(
    deposit: Deposit, stats: ClassStatistics, variant: str, cross: CrossStatistics | None
) -> Reconstruction:
    _check_fits(deposit, stats)
    require_watched(deposit.departed, stats, "stats")
    observed = np.isin(deposit.classes, stats.reference_classes)
    if not observed.any():
        raise StatisticsError(
            f"stats: none of the reference classes {deposit.classes.tolist()} of departed class {deposit.departed} "
            "has samples and is not watched"
        )
    classes, weights, r0 = deposit.classes, deposit.weights, deposit.residual
    if not observed.all():
        classes, reference = classes[observed], deposit.reference[observed]
        weights = barycentric_weights(deposit.prototype, reference, deposit.ridge)
        r0 = residual(deposit.prototype, reference, weights)

    prototypes, remaining = stats.means_of(classes), stats.means[deposit.departed]
    in_span = dot(weights, prototypes)
    if cross is not None:
        whole = mapped(deposit, stats, cross, prototypes)
        predicted, measured = whole.predicted - in_span, whole.measured - in_span
        alpha, noise, samples = whole.alpha, whole.noise, whole.samples
        health: Health | None = whole.health
        stored = float(np.linalg.norm(r0))
    else:
        basis = span_basis(prototypes)
        predicted, noise = _PREDICTIONS[variant](_Round(deposit, stats, classes, basis, r0))
        samples = int(stats.counts[deposit.departed])
        measured = measured_residual(remaining, basis) if samples else np.zeros_like(r0)
        alpha = reliability(measured, predicted, noise, samples)
        stored = float(np.linalg.norm(outside(r0, basis)))
    growth = float(np.linalg.norm(predicted)) / stored if stored else 1.0
    prototype = assemble(in_span, measured, predicted, alpha)
    if cross is None:
        known = {"alpha": alpha, "noise": noise, "growth": growth}
        parts = in_span, measured, predicted
        health = _health(deposit, stats, classes, prototype, parts, variant=variant, samples=samples, **known)
    return Reconstruction(
        departed=deposit.departed,
        prototype=read_only(prototype),
        in_span=read_only(in_span),
        predicted=read_only(predicted),
        measured=read_only(measured),
        alpha=alpha,
        noise=noise,
        samples=samples,
        growth=growth,
        classes=read_only(classes),
        weights=read_only(weights),
        expected_error=None if health is None else health.expected_error,
        verdict=None if health is None else health.verdict,
        contradiction=None if health is None else health.contradiction,
        reach=None if health is None else health.reach,
    )


def witnessed(made: Reconstruction, witnesses: int) -> Reconstruction:
    """The reconstruction, with samples that contradict the forecast bounded where few vehicles vouch for them.

    Eq. (7) and (X6) trust samples the more the further they lie from the forecast. Where three vehicles or more have
    such samples, each was bounded by the others, and they are believed. Of one or two the breakdown point is 0: their
    samples count up to where they begin to contradict, from 1.5 times that distance on not at all, Eq. (G4).

    Args:
        made: a reconstruction.
        witnesses: how many vehicles have remaining samples.
    """
    if witnesses >= HOLDERS or made.contradiction is None or made.contradiction <= DISPUTED:
        return made
    kept = float(redescending(np.sqrt(made.contradiction / DISPUTED)))
    alpha = kept * made.alpha
    prototype = assemble(made.in_span, made.measured, made.predicted, alpha)
    return replace(made, prototype=read_only(prototype), alpha=alpha)


def _health(
    deposit: Deposit,
    stats: ClassStatistics,
    classes: Ints,
    prototype: Floats,
    parts: tuple[Floats, Floats, Floats],
    *,
    variant: str,
    alpha: float,
    noise: float,
    samples: int,
    growth: float,
) -> Health | None:
    """What is to be expected of MPT's reconstruction, `parts` of which are in-span, measured and predicted.

    From the reference classes left out: a departed class is off within the reference span by up to 3.4 times what they
    are, and outside of it by up to .6 times, in MPT-lite 1.6 and 2.1 (`docs/explanation/mpt-x.md`). However large the
    error, F1 was seldom lost, so that is no verdict; MPT-lite's, which knows no covariance, has none.
    """
    if len(classes) < 2:
        return None
    now, (in_span, measured, predicted) = stats.means_of(classes), parts
    missed = left_out_errors(deposit.reference[np.isin(deposit.classes, classes)], now, deposit.ridge, growth)
    times = OFF if variant == "mpt" else OFF_LITE
    if stats.scatter is not None:
        covariance = stats.shared_covariance
        factor, known = whitening(covariance, deposit.cov_ridge), bool(covariance.any())
        spread = whitened_noise(factor, ridge_floor(covariance, deposit.cov_ridge)) if known else 0.0
    else:
        factor = np.eye(len(prototype)) * (np.sqrt(noise) if noise > 0 else 1.0)
        spread = float(noise > 0)
    within, beyond = (
        t**2 * float(np.mean(whiten(errors, factor) ** 2)) for t, errors in zip(times, missed, strict=True)
    )
    error = expected_error(alpha, spread, samples, beyond, whiten(measured - predicted, factor), within)
    gaps = tuple[Gap, ...]()
    if samples:
        forecast, usual = in_span + predicted, len(in_span) * TYPICAL**2 * (within + beyond)
        off, alone = stats.means[deposit.departed] - forecast, spread / samples
        moved = Gap(float(np.sum(whiten(off, factor) ** 2)), usual + len(off) * alone, deposit.apart)
        gaps = moved, standing(off, forecast, now, factor, alone, usual, deposit.apart)
    if variant != "mpt":
        return Health(error, None)
    judged = verdict(TYPICAL * error, nearest(prototype, now, factor), *gaps, lost=np.inf)
    return Health(error, judged, max((one.ratio for one in gaps), default=None))


def _check_fits(deposit: Deposit, stats: ClassStatistics) -> None:
    if stats.dim != len(deposit.prototype):
        raise StatisticsError(f"stats: dimension {stats.dim}, but the deposit has {len(deposit.prototype)}")
    highest = max(deposit.departed, int(deposit.classes.max()))
    if highest >= stats.num_classes:
        raise StatisticsError(f"stats: {stats.num_classes} classes, but the deposit knows class {highest}")
