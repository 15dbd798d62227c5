"""What a vehicle reports about its features: sums per class."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from mpt.core import validation as check
from mpt.core.equations import DEFAULT_COV_RIDGE, outside, span_basis
from mpt.core.errors import StatisticsError
from mpt.core.linalg import gram
from mpt.core.rounding import projection_rounding, rounding_level, steady, without_rounding
from mpt.core.sums import ClassSums
from mpt.core.validation import Floats, Ints, same
from mpt.core.wire import Reader, WireType, Writer, fits_float32

_KIND = b"S"
_SCATTER, _SPAN, _ORIGIN, _DIGEST, _NARROW = 1, 2, 4, 8, 16
_DIGEST_SIZE = 8
_LEAST_WITHIN = 1e-4
"""Of the scatter: where less is within classes, float32 loses much of the covariance."""


@dataclass(frozen=True, eq=False, repr=False)
class ClassStatistics(ClassSums):
    """Class-level sums over a set of samples, about `origin`. They add up: `a + b`, `sum(reports)`.

    C classes, feature dimension d; h is a feature less `origin`. The arrays are read-only.

    Attributes:
        counts: (C,) int64, samples of each class.
        sums: (C, d), sum of h.
        squares: (C,), sum of |h|^2; where a `span` is given, of the part of h outside the span of its rows.
        scatter: (d, d), sum of h h^T over the samples of all classes that are not watched; None in MPT-lite.
        watched: classes left out of the scatter: departed, or so concentrated that a departure would lose them.
        span: (k, d) or None, the reference prototypes that the server sent for MPT-lite, `origin` not subtracted.
        origin: (d,), a vector near the features that the server broadcasts; zero by default. It keeps the numbers
            small, so that little cancels in the covariance and float32 suffices on the wire.
        narrow: whether some of the numbers have travelled as float32, so that more of a covariance is only rounding.

    Example:
        >>> stats = ClassStatistics.from_features([[0.0, 1.0], [2.0, 1.0]], [0, 0], num_classes=2)
        >>> (stats + stats).counts
        array([4, 0])
        >>> stats.means
        array([[ 1.,  1.],
               [nan, nan]])
    """

    counts: Ints
    sums: Floats
    squares: Floats
    scatter: Floats | None = None
    watched: tuple[int, ...] = ()
    span: Floats | None = None
    origin: Floats = field(default_factory=lambda: np.zeros(()))
    narrow: bool = False

    def __post_init__(self) -> None:
        counts = check.as_counts(self.counts, "counts")
        num_classes = len(counts)
        sums = check.as_floats(self.sums, "sums", (num_classes, None))
        d = sums.shape[1]
        if d == 0:
            raise StatisticsError("sums: the feature dimension is 0, should be at least 1")
        squares = check.as_floats(self.squares, "squares", (num_classes,))
        if squares.min() < 0:
            c = int(np.argmin(squares))
            raise StatisticsError(f"squares: {squares[c]} at class {c}, should not be negative")
        unfounded = (counts == 0) & (sums.any(axis=1) | (squares > 0))
        if unfounded.any():
            raise StatisticsError(f"sums, squares: not zero for class {np.argmax(unfounded)}, which has no samples")
        watched = tuple(sorted(check.as_classes(self.watched, "watched", num_classes)))
        scatter = None if self.scatter is None else check.as_symmetric(self.scatter, "scatter", d)
        if scatter is not None and scatter.diagonal().min() < 0:
            raise StatisticsError(f"scatter: {scatter.diagonal().min()} on the diagonal, should not be negative")
        if scatter is not None and scatter.any() and not np.delete(counts, watched).any():
            raise StatisticsError("scatter: not zero, though only watched classes have samples")
        origin = check.as_array(self.origin, "origin")
        checked = {
            "counts": counts,
            "sums": sums,
            "squares": squares,
            "scatter": scatter,
            "watched": watched,
            "span": None if self.span is None else check.as_floats(self.span, "span", (None, d)),
            "origin": check.as_floats(np.zeros(d) if origin.shape == () and not origin else origin, "origin", (d,)),
            "narrow": bool(self.narrow),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    @classmethod
    def from_features(
        cls,
        features: ArrayLike,
        labels: ArrayLike,
        num_classes: int,
        *,
        watched: int | Iterable[int] = (),
        span: ArrayLike | None = None,
        origin: ArrayLike | None = None,
        scatter: bool = True,
    ) -> ClassStatistics:
        """The statistics of some samples; everything is summed in float64, whatever dtype comes in.

        Args:
            features: (N, d) real numbers; N may be 0.
            labels: (N,) integers from 0 to `num_classes` - 1.
            num_classes: C, the same on all vehicles.
            watched: classes to leave out of the scatter.
            span: (k, d), measure `squares` outside the span of these rows.
            origin: (d,), subtract this from every feature first.
            scatter: whether to sum h h^T; MPT-lite does without.
        """
        num_classes = check.as_int(num_classes, "num_classes", least=1)
        rows = check.as_features(features)
        n, d = rows.shape
        classes = check.as_labels(labels, n, num_classes)
        watched_classes = check.as_classes(watched, "watched", num_classes)
        centre = np.zeros(d) if origin is None else check.as_floats(origin, "origin", (d,))
        span_rows = None if span is None else check.as_floats(span, "span", (None, d))
        basis = np.zeros((d, 0)) if span_rows is None else span_basis(span_rows)

        sums, squares, whole = np.zeros((num_classes, d)), np.zeros(num_classes), np.zeros(num_classes)
        products = np.zeros((d, d)) if scatter else None
        with np.errstate(over="ignore", invalid="ignore"):
            for block, values in check.feature_blocks(rows):
                h, c = values - centre, classes[block]
                order = np.argsort(c, kind="stable")
                present, starts = np.unique(c[order], return_index=True)
                sums[present] += np.add.reduceat(h[order], starts, axis=0)
                whole += np.bincount(c, np.einsum("nd,nd->n", h, h), num_classes)
                if basis.size:
                    far = outside(h, basis)
                    squares += np.bincount(c, np.einsum("nd,nd->n", far, far), num_classes)
                if products is not None:
                    kept = h[~np.isin(c, watched_classes)] if watched_classes else h
                    products += gram(kept)
        if not np.isfinite(whole).all():
            raise StatisticsError("features: too large, their squares overflow float64; scale them down")
        squares = projection_rounding(squares, whole) if basis.size else whole
        return cls(
            np.bincount(classes, minlength=num_classes), sums, squares, products, watched_classes, span_rows, centre
        )

    @property
    def overall_mean(self) -> Floats:
        """(d,): the mean of all samples, a good `origin` for the next round; `origin` itself where there are none."""
        total: Floats = self.sums.sum(axis=0)
        return total / max(int(self.counts.sum()), 1) + self.origin

    @property
    def reference_classes(self) -> Ints:
        """The classes that have samples and are not watched; `means` of these make a `span` for the next round."""
        observed = self.counts > 0
        observed[list(self.watched)] = False
        return np.flatnonzero(observed)

    def means_of(self, classes: Ints) -> Floats:
        """(K, d): the means of K classes with samples; what differs between them by rounding alone is the same."""
        return steady(self.means[classes], self.origin, rounding_level(int(self.counts.sum()), self.narrow))

    def covariance(self) -> Floats:
        """(d, d): the pooled within-class covariance W / (N - K) of the classes that are not watched.

        W sums the scatter around each class's own mean, over N samples of K classes. Features and directions in which
        it is only rounding have none: `mpt.core.rounding`. Computed once; read-only.
        """
        return self._covariance

    @cached_property
    def _covariance(self) -> Floats:
        if self.scatter is None:
            raise StatisticsError("scatter: None, a covariance needs statistics made with scatter=True")
        pooled, samples = self.reference_classes, self._pooled_samples
        if samples <= len(pooled):
            raise StatisticsError(
                f"counts: {samples} samples of {len(pooled)} classes that are not watched, "
                "a covariance needs more samples than classes"
            )
        scaled = self.sums[pooled] / np.sqrt(self.counts[pooled])[:, None]
        within = gram(scaled)
        np.subtract(self.scatter, within, out=within)
        if np.trace(within) < -1e-3 * np.trace(self.scatter):
            raise StatisticsError("scatter: less than what the sums account for, they are not of the same samples")
        level = rounding_level(samples, self.narrow)
        without_rounding(within, self.scatter.diagonal(), level, ridge=DEFAULT_COV_RIDGE)
        within /= samples - len(pooled)
        return check.read_only(within)

    @property
    def _pooled_samples(self) -> int:
        return int(self.counts[self.reference_classes].sum())

    @property
    def shared_covariance(self) -> Floats:
        """`covariance()`, or zero where there are no more samples than classes: nothing is known of it then. (d, d)"""
        if self.scatter is not None and self._pooled_samples <= len(self.reference_classes):
            return check.read_only(np.zeros((self.dim, self.dim)))
        return self.covariance()

    @cached_property
    def span_basis(self) -> Floats:
        """(d, r): an orthonormal basis of the span that `squares` are measured outside of; r = 0 without a span."""
        return np.zeros((self.dim, 0)) if self.span is None else check.read_only(span_basis(self.span))

    def __add__(self, other: object) -> ClassStatistics:
        if not isinstance(other, ClassStatistics):
            return self if isinstance(other, int) and other == 0 else NotImplemented
        self._check_mergeable(other)
        with np.errstate(over="ignore"):
            return ClassStatistics(
                self.counts + other.counts,
                self.sums + other.sums,
                self.squares + other.squares,
                None if self.scatter is None or other.scatter is None else self.scatter + other.scatter,
                self.watched,
                self.span,
                self.origin,
                self.narrow or other.narrow,
            )

    __radd__ = __add__

    @classmethod
    def merge(cls, reports: Iterable[ClassStatistics]) -> ClassStatistics:
        """The sum of the reports as they arrive, at least one: `sum(reports)` for those who check types."""
        arriving = iter(reports)
        first = next(arriving, None)
        if first is None:
            raise StatisticsError("merge: no reports, should be at least one")
        check.check_report(first, ClassStatistics)
        counts, sums, squares = first.counts.copy(), first.sums.copy(), first.squares.copy()
        scatter = None if first.scatter is None else first.scatter.copy()
        narrow = first.narrow
        with np.errstate(over="ignore"):
            for report in arriving:
                first._check_mergeable(report)
                narrow = narrow or report.narrow
                counts += report.counts
                sums += report.sums
                squares += report.squares
                if scatter is not None and report.scatter is not None:
                    scatter += report.scatter
        return cls(counts, sums, squares, scatter, first.watched, first.span, first.origin, narrow)

    def _check_mergeable(self, other: ClassStatistics) -> None:
        check.check_report(other, ClassStatistics)
        if (self.num_classes, self.dim) != (other.num_classes, other.dim):
            mine, theirs = f"({self.num_classes}, {self.dim})", f"({other.num_classes}, {other.dim})"
            raise StatisticsError(f"merge: (classes, dimension) are {mine} and {theirs}, should be the same")
        if self.watched != other.watched:
            raise StatisticsError(f"merge: watched are {self.watched} and {other.watched}, should be the same")
        if (self.scatter is None) != (other.scatter is None):
            raise StatisticsError("merge: only one of the two has a scatter, both or neither should")
        if not same(self.origin, other.origin):
            raise StatisticsError("merge: the origins differ, both should be made about the same one")
        if not same(self.span, other.span):
            raise StatisticsError("merge: the spans differ, both should be measured outside the same one")

    def __repr__(self) -> str:
        scatter = "no scatter" if self.scatter is None else "scatter"
        return (
            f"<ClassStatistics: {self.counts.sum()} samples of {np.count_nonzero(self.counts)}/{self.num_classes} "
            f"classes, d={self.dim}, watched={self.watched}, {scatter}>"
        )

    def to_bytes(self, dtype: WireType = "float64", *, frame: bool = True) -> bytes:
        """The statistics as bytes for `from_bytes`: no pickle, the scatter packed, classes without samples left out.

        Args:
            dtype: of the sums on the wire, "float64" or "float32". float32 halves the message; give an `origin` near
                the features then. Where the covariance would be lost to rounding, a warning tells.
            frame: whether to include `span` and `origin`. A vehicle that answers a server which sent them, or sent
                none, need not echo them: 16 bytes stand for them, and the server gives them to `from_bytes`.
        """
        present = self.counts > 0
        span = self.span if frame else None
        origin = self.origin if frame and self.origin.any() else None
        flags = (
            _SCATTER * (self.scatter is not None)
            | _SPAN * (span is not None)
            | _ORIGIN * (origin is not None)
            | _DIGEST * (not frame)
            | _NARROW * self.narrow
        )
        writer = Writer(_KIND, flags, dtype)
        if writer.narrow:
            self._warn_of_cancellation()
        writer.numbers("4I", self.num_classes, self.dim, len(self.watched), 0 if span is None else len(span))
        writer.integers(self.counts)
        writer.integers(np.array(self.watched, dtype=np.int64))
        if not frame:
            writer.raw(_digest(self.span) + _digest(self.origin))
        if span is not None:
            writer.exact(span)
        if origin is not None:
            writer.exact(origin)
        writer.reals(self.sums[present], "sums")
        writer.reals(self._squares_beyond_rounding[present], "squares")
        if self.scatter is not None:
            writer.symmetric(self.scatter, "scatter")
        return writer.finish()

    @classmethod
    def from_bytes(
        cls,
        data: bytes | bytearray | memoryview,
        *,
        span: ArrayLike | None = None,
        origin: ArrayLike | None = None,
        shape: tuple[int, int] | None = None,
    ) -> ClassStatistics:
        """What `to_bytes` was called on; truncated, altered or foreign bytes raise `StatisticsError`.

        Args:
            data: the bytes.
            span: what the server sent as span, bit for bit; needed where the bytes leave it out (`frame=False`).
            origin: what the server sent as origin, likewise.
            shape: (C, d) that the bytes should be of, where that is known: others are refused before anything is made
                of them.
        """
        reader = Reader(data, _KIND, _SCATTER | _SPAN | _ORIGIN | _DIGEST | _NARROW)
        num_classes, d, num_watched, num_span = reader.numbers("4I")
        check.check_sizes("ClassStatistics", (num_classes, d), shape)
        sums, squares = reader.expanded(num_classes, d), np.zeros(num_classes)
        counts = reader.integers(num_classes)
        watched = tuple(reader.integers(num_watched).tolist())
        span_rows = None if span is None else check.as_floats(span, "span", (None, d))
        centre = np.zeros(d) if origin is None else check.as_floats(origin, "origin", (d,))
        if reader.flags & _DIGEST:
            agree = [reader.raw(_DIGEST_SIZE) == _digest(span_rows), reader.raw(_DIGEST_SIZE) == _digest(centre)]
        else:
            sent_span = reader.exact(num_span, d) if reader.flags & _SPAN else None
            sent_origin = reader.exact(d) if reader.flags & _ORIGIN else np.zeros(d)
            agree = [span is None or same(span_rows, sent_span), origin is None or same(centre, sent_origin)]
            span_rows, centre = sent_span, sent_origin
        if not all(agree):
            name, given = ("origin", origin) if agree[0] else ("span", span)
            none = "; none was given" if given is None else ""
            raise StatisticsError(f"ClassStatistics bytes: made with another {name} than given to from_bytes{none}")
        present = counts != 0
        sums[present] = reader.reals(int(present.sum()), d)
        squares[present] = reader.reals(int(present.sum()))
        scatter = reader.symmetric(d) if reader.flags & _SCATTER else None
        reader.finish()
        narrow = reader.narrow or bool(reader.flags & _NARROW)
        return cls(counts, sums, squares, scatter, watched, span_rows, centre, narrow)

    @property
    def _squares_beyond_rounding(self) -> Floats:
        """`squares`, zero where features lie in the span and no more than rounding is outside of it. (C,)"""
        if self.span is None:
            return self.squares
        level = rounding_level(int(self.counts.sum())) * np.sum(self.sums**2, axis=1) / np.maximum(self.counts, 1)
        return np.where(self.squares <= level, 0.0, self.squares)

    @property
    def wire_type(self) -> WireType:
        """The dtype for `to_bytes` that keeps the covariance: float64 where nearly all of the scatter is the means', or
        where numbers are too large or too small for float32."""
        numbers = [self.sums, self._squares_beyond_rounding]
        numbers += [] if self.scatter is None else [self.scatter.diagonal()]
        fits = all(map(fits_float32, numbers))
        return "float32" if fits and self._within_share >= _LEAST_WITHIN else "float64"

    @property
    def _within_share(self) -> float:
        """How much of the scatter is within classes, of the features that vary there; 1 where that cannot be told."""
        if self.scatter is None:
            return 1.0
        pooled, whole = self.reference_classes, self.scatter.diagonal()
        counts, samples = self.counts[pooled], int(self.counts[pooled].sum())
        within = whole - np.sum(self.sums[pooled] ** 2 / counts[:, None], axis=0)
        varied = within > rounding_level(samples, self.narrow) * whole
        return float(within[varied].sum() / whole[varied].sum()) if samples > len(pooled) and varied.any() else 1.0

    def _warn_of_cancellation(self) -> None:
        if self._within_share < _LEAST_WITHIN:
            warnings.warn(
                f"to_bytes: only {self._within_share:.0e} of the scatter is within classes, so float32 loses much of "
                "the covariance; make the statistics with an origin near the features, such as the last overall_mean",
                stacklevel=3,
            )

    @property
    def nbytes(self) -> int:
        """The size of `to_bytes()`."""
        return len(self.to_bytes())


def _digest(array: Floats | None) -> bytes:
    """What stands for a span or an origin where the receiver has it; all of its bits count."""
    data = b"none" if array is None else (array + 0.0).astype("<f8").tobytes()
    return hashlib.blake2b(data, digest_size=_DIGEST_SIZE).digest()
