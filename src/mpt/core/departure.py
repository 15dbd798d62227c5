"""What the server keeps of a class when the vehicle that held it leaves: one `Deposit` a departed class."""

import warnings
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import overload

import numpy as np

from mpt.core import validation as check
from mpt.core.cross import CrossStatistics
from mpt.core.equations import (
    DEFAULT_COV_RIDGE,
    DEFAULT_RIDGE,
    barycentric_weights,
    outside,
    outside_trace,
    residual,
    ridge_floor,
    span_basis,
)
from mpt.core.errors import StatisticsError
from mpt.core.health import Gap, whiten, whitened_noise
from mpt.core.rounding import regular_factor, rounding_level, span_tilt
from mpt.core.statistics import ClassStatistics
from mpt.core.validation import Floats, Ints
from mpt.core.value import Value
from mpt.core.wire import Reader, WireType, Writer

_TOO_NEAR = 0.5
"""Times what chance explains of samples that are a share of those the prototype is of, squared."""
_KIND = b"D"
_COVARIANCE, _OUTSIDE, _ANCHOR, _SHARED = 1, 2, 4, 8


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Deposit(Value):
    """A departed class as it stood at departure, relative to its K reference classes.

    The reference classes are those that staying vehicles observe and that are neither departed nor watched. Nothing in
    here belongs to a single sample, and nothing changes later: one deposit serves all rounds after the departure.

    Attributes:
        departed: the class.
        classes: (K,) int64, the reference classes.
        weights: (K,), w0 of Eq. (1).
        residual: (d,), r0 of Eq. (2).
        prototype: (d,), mu, the departing class's prototype.
        reference: (K, d), M_d, the reference classes' prototypes.
        covariance: (d, d), S_d, the pooled within-class covariance; None in MPT-lite.
        ridge: relative lambda of Eq. (1), kept for solving again when a reference class disappears.
        cov_ridge: lambda_Sigma of Eq. (3).
        spread: mean squared length of the centred features outside the reference span, for MPT-lite's growth.
        spread_outside: False where `spread` had to be taken from whole features, for want of a span and a scatter.
        anchor: (d,), the departing class's mean under the reference model of cross-moment tracking, where that is an
            earlier model than the departure's; None: `prototype` is it.
        apart: whether the prototype is of other samples than those that stay, where some have left; else these cannot
            confirm it.
    """

    departed: int
    classes: Ints
    weights: Floats
    residual: Floats
    prototype: Floats
    reference: Floats
    covariance: Floats | None
    ridge: float
    cov_ridge: float
    spread: float
    spread_outside: bool = True
    anchor: Floats | None = None
    apart: bool = True

    def __post_init__(self) -> None:
        classes = check.as_counts(self.classes, "classes")
        departed = check.as_int(self.departed, "departed", least=0)
        check.as_int(classes.max(), "classes", least=0)
        if departed in classes or len(np.unique(classes)) < len(classes):
            raise StatisticsError(f"classes: {classes.tolist()}, should differ from each other and from {departed}")
        prototype = check.as_floats(self.prototype, "prototype", (None,))
        k, d = len(classes), len(prototype)
        weights = check.as_floats(self.weights, "weights", (k,))
        if abs(weights.sum() - 1) > 1e-4 * max(1.0, float(np.abs(weights).max())):
            raise StatisticsError(f"weights: their sum is {weights.sum()}, should be 1")
        covariance = None if self.covariance is None else check.as_symmetric(self.covariance, "covariance", d)
        if covariance is not None and covariance.diagonal().min(initial=0) < 0:
            raise StatisticsError(f"covariance: {covariance.diagonal().min()} on the diagonal, should not be negative")
        checked = {
            "departed": departed,
            "classes": classes,
            "weights": weights,
            "residual": check.as_floats(self.residual, "residual", (d,)),
            "prototype": prototype,
            "reference": check.as_floats(self.reference, "reference", (k, d)),
            "covariance": covariance,
            "ridge": check.as_ridge(self.ridge, "ridge"),
            "cov_ridge": check.as_ridge(self.cov_ridge, "cov_ridge"),
            "spread": check.as_ridge(self.spread, "spread"),
            "spread_outside": bool(self.spread_outside),
            "anchor": None if self.anchor is None else check.as_floats(self.anchor, "anchor", (d,)),
            "apart": bool(self.apart),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    @cached_property
    def covariance_factor(self) -> Floats:
        """(d, d): the Cholesky factor of S~_d, Eq. (3); made in the first round that needs it."""
        if self.covariance is None:
            raise StatisticsError(
                "deposit: has no covariance, made from statistics without a scatter; use variant='lite'"
            )
        return check.read_only(regular_factor(self.covariance, self.cov_ridge, "deposit covariance"))

    def __repr__(self) -> str:
        covariance = "no covariance" if self.covariance is None else "covariance"
        return (
            f"<Deposit: class {self.departed} from {len(self.classes)} reference classes, d={len(self.prototype)}, "
            f"|residual|/|prototype|={_ratio(self.residual, self.prototype):.3f}, {covariance}>"
        )

    def to_bytes(self, dtype: WireType = "float64") -> bytes:
        """The deposit as bytes for `from_bytes`: no pickle, the covariance packed; lossless as float64."""
        flags = _COVARIANCE * (self.covariance is not None) | _OUTSIDE * self.spread_outside
        flags |= _ANCHOR * (self.anchor is not None) | _SHARED * (not self.apart)
        writer = Writer(_KIND, flags, dtype)
        writer.numbers("3I", self.departed, len(self.classes), len(self.prototype))
        writer.numbers("3d", self.ridge, self.cov_ridge, self.spread)
        writer.integers(self.classes)
        for name in ("weights", "residual", "prototype", "reference"):
            writer.reals(getattr(self, name), name)
        if self.covariance is not None:
            writer.symmetric(self.covariance, "covariance")
        if self.anchor is not None:
            writer.reals(self.anchor, "anchor")
        return writer.finish()

    @classmethod
    def from_bytes(cls, data: bytes | bytearray | memoryview) -> "Deposit":
        """What `to_bytes` was called on; truncated, altered or foreign bytes raise `StatisticsError`."""
        reader = Reader(data, _KIND, _COVARIANCE | _OUTSIDE | _ANCHOR | _SHARED)
        departed, k, d = reader.numbers("3I")
        ridge, cov_ridge, spread = reader.numbers("3d")
        made = cls(
            departed=departed,
            ridge=ridge,
            cov_ridge=cov_ridge,
            spread=spread,
            spread_outside=bool(reader.flags & _OUTSIDE),
            classes=reader.integers(k),
            weights=reader.reals(k),
            residual=reader.reals(d),
            prototype=reader.reals(d),
            reference=reader.reals(k, d),
            covariance=reader.symmetric(d) if reader.flags & _COVARIANCE else None,
            anchor=reader.reals(d) if reader.flags & _ANCHOR else None,
            apart=not reader.flags & _SHARED,
        )
        reader.finish()
        return made

    @property
    def nbytes(self) -> int:
        """The size of `to_bytes()`."""
        return len(self.to_bytes())


@overload
def deposit(
    before: ClassStatistics,
    departed: int,
    *,
    staying: ClassStatistics | None = None,
    cross: CrossStatistics | None = None,
    ridge: float = DEFAULT_RIDGE,
    cov_ridge: float = DEFAULT_COV_RIDGE,
) -> Deposit: ...
@overload
def deposit(
    before: ClassStatistics,
    departed: Iterable[int],
    *,
    staying: ClassStatistics | None = None,
    cross: CrossStatistics | None = None,
    ridge: float = DEFAULT_RIDGE,
    cov_ridge: float = DEFAULT_COV_RIDGE,
) -> tuple[Deposit, ...]: ...
def deposit(
    before: ClassStatistics,
    departed: int | Iterable[int],
    *,
    staying: ClassStatistics | None = None,
    cross: CrossStatistics | None = None,
    ridge: float = DEFAULT_RIDGE,
    cov_ridge: float = DEFAULT_COV_RIDGE,
) -> Deposit | tuple[Deposit, ...]:
    """Decompose departing prototypes into reference prototypes and residuals: Eq. (1) and (2).

    Args:
        before: statistics of all vehicles in the last round with the departing one; they give mu.
        departed: the departing class, or several; all of them must be watched.
        staying: statistics of the vehicles that stay, in that same round; they give M_d and S_d, which are then made
            from the same samples as M_t and S_t later. Default: `before`.
        cross: of all vehicles in that same round, where cross-moment tracking has a reference model from an earlier
            departure that this one is to share; it gives the departing classes' `anchor`.
        ridge: lambda of Eq. (1), relative to the mean squared length of the centred reference prototypes.
        cov_ridge: lambda_Sigma of Eq. (3).

    Returns:
        A `Deposit`, or for several classes a tuple of them in the given order.

    Raises:
        StatisticsError: where a departed class is not watched or has no samples, or no reference class is left.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> labels = np.repeat([0, 1, 2, 3], 50)
        >>> features = rng.standard_normal((4, 8))[labels] + rng.standard_normal((200, 8))
        >>> before = ClassStatistics.from_features(features, labels, num_classes=4, watched=[2])
        >>> deposit(before, 2).classes
        array([0, 1, 3])
    """
    staying = before if staying is None else staying
    _require_alike(before, staying)
    ridge, cov_ridge = check.as_ridge(ridge, "ridge"), check.as_ridge(cov_ridge, "cov_ridge")
    leaving = check.as_classes(departed, "departed", before.num_classes)
    for c in leaving:
        _require_departing(c, before, staying)
        _require_measured(c, before, cross)
    classes = np.setdiff1d(staying.reference_classes, before.watched)
    if not len(classes):
        raise StatisticsError("staying: observes no class but watched ones, there is no reference class")
    reference = staying.means_of(classes)
    spread, spread_outside = out_of_span_spread(staying, classes, span_basis(reference))
    if not spread_outside:
        warnings.warn(
            "deposit: the statistics have neither a scatter nor a span, so MPT-lite takes the spread from whole "
            "features, will trust the remaining samples too little, and cannot use statistics with a span later; "
            "make them with span=the reference prototypes",
            stacklevel=2,
        )
    covariance = None if staying.scatter is None else staying.shared_covariance
    means = before.means

    def one(c: int) -> Deposit:
        weights = barycentric_weights(means[c], reference, ridge)
        made = Deposit(
            departed=c,
            classes=classes,
            weights=weights,
            residual=residual(means[c], reference, weights),
            prototype=means[c],
            reference=reference,
            covariance=covariance,
            ridge=ridge,
            cov_ridge=cov_ridge,
            spread=spread,
            spread_outside=spread_outside,
            anchor=None if cross is None else cross.earlier_means[c],
        )
        return replace(made, apart=False) if _too_near(made, before, staying) else made

    deposits = tuple(one(c) for c in leaving)
    return deposits if check.is_several(departed) else deposits[0]


def _require_alike(before: ClassStatistics, staying: ClassStatistics) -> None:
    """Refuse what are no statistics of the same classes and features."""
    for name, stats in (("before", before), ("staying", staying)):
        if not isinstance(stats, ClassStatistics):
            empty = " (the sum of no reports?)" if isinstance(stats, int) and stats == 0 else ""
            raise StatisticsError(f"{name}: {type(stats).__name__}{empty}, should be ClassStatistics")
    if (before.num_classes, before.dim) != (staying.num_classes, staying.dim):
        raise StatisticsError(
            f"staying: {staying.num_classes} classes and dimension {staying.dim}, "
            f"but before has {before.num_classes} and {before.dim}"
        )


def _require_departing(c: int, before: ClassStatistics, staying: ClassStatistics) -> None:
    """Refuse a class that has no prototype to keep, or that the statistics were not made for."""
    if before.counts[c] == 0:
        raise StatisticsError(f"before: class {c} has no samples at departure, there is no prototype to keep")
    require_watched(c, before, "before")
    require_watched(c, staying, "staying")
    if staying.counts[c] > before.counts[c]:
        raise StatisticsError(
            f"staying: {staying.counts[c]} samples of departed class {c}, more than before's {before.counts[c]}"
        )


def _require_measured(departed: int, before: ClassStatistics, cross: CrossStatistics | None) -> None:
    """Refuse cross statistics that are not those of the samples of `before`."""
    if cross is None:
        return
    if not isinstance(cross, CrossStatistics) or cross.sums.shape != before.sums.shape:
        what = f"shape {cross.sums.shape}" if isinstance(cross, CrossStatistics) else type(cross).__name__
        raise StatisticsError(f"cross: {what}, should be CrossStatistics of shape {before.sums.shape}")
    if cross.counts[departed] != before.counts[departed]:
        raise StatisticsError(
            f"cross: {cross.counts[departed]} samples of departed class {departed}, "
            f"should be the {before.counts[departed]} of before"
        )


def require_watched(departed: int, stats: ClassStatistics, name: str) -> None:
    """Refuse statistics in whose scatter the departed class may be mixed."""
    if departed not in stats.watched:
        raise StatisticsError(
            f"{name}: does not watch departed class {departed} (watched: {stats.watched}); "
            f"make the statistics with watched=[{departed}, ...]"
        )


def _too_near(stored: Deposit, before: ClassStatistics, staying: ClassStatistics) -> bool:
    """Whether some samples have left, and those that stay lie where chance would not put them, were it of others."""
    share = int(staying.counts[stored.departed]) / int(before.counts[stored.departed])
    try:
        gap = against_samples(stored, staying) if share < 1 else None
    except StatisticsError:
        return False
    return gap is not None and gap.ratio < _TOO_NEAR * (1 - share)


def against_samples(stored: Deposit, staying: ClassStatistics) -> Gap | None:
    """How far a deposit is off the samples that stay, in the round that it is of, and what chance explains, whitened.

    They are part of what it was made from, so the less of it they are the more they tell. None where there are none,
    or no covariance.
    """
    samples = int(staying.counts[stored.departed])
    if not samples or stored.covariance is None or not stored.covariance.any():
        return None
    factor, d = stored.covariance_factor, len(stored.prototype)
    off = whiten(staying.means[stored.departed] - stored.prototype, factor)
    noise = whitened_noise(factor, ridge_floor(stored.covariance, stored.cov_ridge))
    return Gap(float(np.sum(off**2)), d * noise / samples)


def out_of_span_spread(stats: ClassStatistics, classes: Ints, basis: Floats) -> tuple[float, bool]:
    """Mean squared length of the centred features outside the reference span, and whether it could be measured so.

    From the scatter where there is one: tr(Pc S), Pc off the span of `basis`. Else, in MPT-lite, from the squares that
    vehicles report outside the span the server sent, centred on the server:

        q = sum over reference classes of (squares - n |Pc_span (mean - origin)|^2) / samples.

    Zero where that is only rounding, of the squares, of the means that they are centred by, or of the span.

    Args:
        stats: statistics of one round.
        classes: (K,), the reference classes, all with samples.
        basis: (d, r), of the span of their current prototypes.
    """
    n = stats.counts[classes]
    samples = int(n.sum())
    level = rounding_level(samples, stats.narrow)
    if stats.scatter is not None:
        covariance = stats.shared_covariance
        moments = stats.scatter.diagonal()[covariance.diagonal() > 0]
        spread = outside_trace(covariance, basis)
        return spread if spread > level * float(moments.sum()) / samples else 0.0, True
    squares, lengths = stats.squares[classes], np.sum(stats.sums[classes] ** 2, axis=1) / n
    far = outside(stats.sums[classes] / n[:, None], stats.span_basis)
    centred = float(np.sum(squares - n * np.sum(far**2, axis=1)))
    off = float(np.sum(level * squares + level**2 * lengths + 2 * level * np.sqrt(squares * lengths)))
    if stats.span is not None and len(stats.span):
        off += span_tilt(stats.span, stats.origin, level) ** 2 * float(np.sum(lengths))
    return (centred if centred > off else 0.0) / samples, stats.span is not None and len(stats.span) > 0


def _ratio(a: Floats, b: Floats) -> float:
    size = float(np.linalg.norm(b))
    return float(np.linalg.norm(a)) / size if size else float("nan")
