"""What a vehicle reports for cross-moment tracking: sums over samples that it embeds twice."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from mpt.core import validation as check
from mpt.core.affine import map_ridge
from mpt.core.errors import StatisticsError
from mpt.core.linalg import dot, gram
from mpt.core.rounding import rounding_level, steady, without_rounding
from mpt.core.sums import ClassSums
from mpt.core.validation import Floats, Ints, same
from mpt.core.wire import Reader, WireType, Writer, fits_float32

_KIND = b"X"
_EARLIER_ORIGIN, _ORIGIN, _FRAMELESS, _STATIC, _HALVES, _NARROW, _HALVED = 1, 2, 4, 8, 16, 32, 64

DIGEST_SIZE = 8
"""Of what stands for a static part, or for weights and origins, that the receiver has."""


_LEAST_HALF = 2.0**-14
"""The smallest float16 with all of its digits."""


class StaticPart(NamedTuple):
    """What of `CrossStatistics` changes only when the samples do: counts (C,), earlier (C, d), gram (d, d)."""

    counts: Ints
    earlier: Floats
    gram: Floats


@dataclass(frozen=True, eq=False, repr=False)
class CrossStatistics(ClassSums):
    """Class-level sums over a set of samples under two models. They add up: `a + b`, `sum(reports)`.

    C classes, feature dimension d; z is a feature under the reference model, the global model in the round of a
    departure, less `earlier_origin`; h is the same sample's under the current one, less `origin`. The arrays are
    read-only.

    Attributes:
        counts: (C,) int64, samples of each class.
        earlier: (C, d), sum of z.
        sums: (C, d), sum of h.
        gram: (d, d), sum of a z z^T, a the weight of the sample's class.
        cross: (d, d), sum of a z h^T.
        weights: (C,), a: how much each class counts in the two matrices; zero for those that are departed or watched.
        earlier_origin: (d,), a vector near the features of the reference model; zero by default.
        origin: (d,), a vector near the current features; zero by default.
        narrow: whether some of the numbers have travelled as float32, so that more of `within` is only rounding.
        halves: whether `cross` has travelled as float16, so that the map needs a larger ridge.

    `earlier`, `gram` and what they are about change only when the samples do: they are the *static* part, which need
    not travel again (`to_bytes`).

    Example:
        >>> z, h = np.array([[0.0, 1.0], [2.0, 1.0]]), np.array([[1.0, 1.0], [5.0, 1.0]])
        >>> stats = CrossStatistics.from_features(z, h, [0, 0], num_classes=2)
        >>> (stats + stats).cross
        array([[20.,  4.],
               [12.,  4.]])
    """

    counts: Ints
    earlier: Floats
    sums: Floats
    gram: Floats
    cross: Floats
    weights: Floats
    earlier_origin: Floats = field(default_factory=lambda: np.zeros(()))
    origin: Floats = field(default_factory=lambda: np.zeros(()))
    narrow: bool = False
    halves: bool = False

    def __post_init__(self) -> None:
        counts = check.as_counts(self.counts, "counts")
        num_classes = len(counts)
        sums = check.as_floats(self.sums, "sums", (num_classes, None))
        d = sums.shape[1]
        if d == 0:
            raise StatisticsError("sums: the feature dimension is 0, should be at least 1")
        earlier = check.as_floats(self.earlier, "earlier", (num_classes, d))
        unfounded = (counts == 0) & (sums.any(axis=1) | earlier.any(axis=1))
        if unfounded.any():
            raise StatisticsError(f"sums, earlier: not zero for class {np.argmax(unfounded)}, which has no samples")
        weights = as_weights(self.weights, num_classes)
        products = check.as_symmetric(self.gram, "gram", d)
        cross = check.as_floats(self.cross, "cross", (d, d))
        if products.diagonal().min() < 0:
            raise StatisticsError(f"gram: {products.diagonal().min()} on the diagonal, should not be negative")
        if (products.any() or cross.any()) and not counts[weights > 0].any():
            raise StatisticsError("gram, cross: not zero, though no class with a weight has samples")
        checked = {
            "counts": counts,
            "earlier": earlier,
            "sums": sums,
            "gram": products,
            "cross": cross,
            "weights": weights,
            "earlier_origin": _as_origin(self.earlier_origin, "earlier_origin", d),
            "origin": _as_origin(self.origin, "origin", d),
            "narrow": bool(self.narrow),
            "halves": bool(self.halves),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    @classmethod
    def from_features(
        cls,
        earlier: ArrayLike,
        features: ArrayLike,
        labels: ArrayLike,
        num_classes: int,
        *,
        weights: ArrayLike | None = None,
        origin: ArrayLike | None = None,
        earlier_origin: ArrayLike | None = None,
    ) -> CrossStatistics:
        """The statistics of some samples; everything is summed in float64, whatever dtype comes in.

        Args:
            earlier: (N, d) real numbers, the samples under the reference model; N may be 0.
            features: (N, d), the same samples under the current model, in the same order.
            labels: (N,) integers from 0 to `num_classes` - 1.
            num_classes: C, the same on all vehicles.
            weights: (C,), how much each class counts in `gram` and `cross`, not negative; default: all alike.
            origin: (d,), subtract this from every current feature first.
            earlier_origin: (d,), subtract this from every earlier feature first.
        """
        num_classes = check.as_int(num_classes, "num_classes", least=1)
        current = check.as_features(features)
        n, d = current.shape
        before = check.as_array(earlier, "earlier")
        check.check_shape(before, "earlier", (n, d))
        classes = check.as_labels(labels, n, num_classes)
        a = as_weights(np.ones(num_classes) if weights is None else weights, num_classes)
        centre = np.zeros(d) if origin is None else check.as_floats(origin, "origin", (d,))
        earlier_centre = (
            np.zeros(d) if earlier_origin is None else check.as_floats(earlier_origin, "earlier_origin", (d,))
        )
        sums, before_sums = np.zeros((num_classes, d)), np.zeros((num_classes, d))
        products, cross = np.zeros((d, d)), np.zeros((d, d))
        roots = np.sqrt(a)[classes][:, None]
        with np.errstate(over="ignore", invalid="ignore"):
            blocks = zip(check.feature_blocks(before, "earlier"), check.feature_blocks(current), strict=True)
            for (block, old), (_, new) in blocks:
                z, h, c = old - earlier_centre, new - centre, classes[block]
                order = np.argsort(c, kind="stable")
                present, starts = np.unique(c[order], return_index=True)
                before_sums[present] += np.add.reduceat(z[order], starts, axis=0)
                sums[present] += np.add.reduceat(h[order], starts, axis=0)
                counted = a[c] > 0
                z, h = (z * roots[block])[counted], (h * roots[block])[counted]
                products += gram(z)
                cross += dot(z.T, h)
        if not (np.isfinite(products).all() and np.isfinite(cross).all()):
            raise StatisticsError("features: too large, their products overflow float64; scale them down")
        counts = np.bincount(classes, minlength=num_classes)
        return cls(counts, before_sums, sums, products, cross, a, earlier_centre, centre)

    @property
    def earlier_means(self) -> Floats:
        """(C, d): the same samples' means under the reference model, `earlier_origin` added back."""
        with np.errstate(invalid="ignore"):
            return self.earlier / self.counts[:, None] + self.earlier_origin

    def earlier_means_of(self, classes: Ints) -> Floats:
        """(K, d): those of K classes with samples; what differs between them by rounding alone is the same."""
        level = rounding_level(int(self.counts.sum()), self.narrow)
        return steady(self.earlier_means[classes], self.earlier_origin, level)

    @cached_property
    def within(self) -> tuple[Floats, Floats]:
        """(d, d) twice: `gram` and `cross` about each class's own means, sum of a (z - m_z)(z - m_z)^T and likewise.

        Features and directions of z that are only rounding have none: `mpt.core.rounding`.
        """
        seen = (self.counts > 0) & (self.weights > 0)
        a, n = self.weights[seen], self.counts[seen]
        scale = np.sqrt(a / n)[:, None]
        z, h = scale * self.earlier[seen], scale * self.sums[seen]
        within, within_cross = self.gram - gram(z), self.cross - dot(z.T, h)
        if seen.any():
            means = self.earlier_means_of(np.flatnonzero(seen))
            apart = means - dot(a * n / np.sum(a * n), means)
            between = float(np.sum((a * n)[:, None] * apart**2))
            level, ridge = rounding_level(int(n.sum()), self.narrow), map_ridge(a, n, self.dim, halves=self.halves)
            without_rounding(within, self.gram.diagonal(), level, ridge=ridge, between=between, beside=within_cross)
        return check.read_only(within), check.read_only(within_cross)

    def __add__(self, other: object) -> CrossStatistics:
        if not isinstance(other, CrossStatistics):
            return self if isinstance(other, int) and other == 0 else NotImplemented
        return CrossStatistics.merge((self, other))

    __radd__ = __add__

    @classmethod
    def merge(cls, reports: Iterable[CrossStatistics]) -> CrossStatistics:
        """The sum of the reports as they arrive, at least one: `sum(reports)` for those who check types."""
        arriving = iter(reports)
        first = next(arriving, None)
        if first is None:
            raise StatisticsError("merge: no reports, should be at least one")
        check.check_report(first, CrossStatistics)
        names = ("counts", "earlier", "sums", "gram", "cross")
        total = {name: getattr(first, name).copy() for name in names}
        narrow, halves = first.narrow, first.halves
        with np.errstate(over="ignore"):
            for report in arriving:
                first._check_mergeable(report)
                narrow, halves = narrow or report.narrow, halves or report.halves
                for name in names:
                    total[name] += getattr(report, name)
        frame = {name: getattr(first, name) for name in ("weights", "earlier_origin", "origin")}
        return cls(**total, **frame, narrow=narrow, halves=halves)

    def _check_mergeable(self, other: CrossStatistics) -> None:
        check.check_report(other, CrossStatistics)
        if (self.num_classes, self.dim) != (other.num_classes, other.dim):
            mine, theirs = f"({self.num_classes}, {self.dim})", f"({other.num_classes}, {other.dim})"
            raise StatisticsError(f"merge: (classes, dimension) are {mine} and {theirs}, should be the same")
        for name in ("weights", "earlier_origin", "origin"):
            if not same(getattr(self, name), getattr(other, name)):
                raise StatisticsError(f"merge: the {name} differ, both should be made with the same")

    def __repr__(self) -> str:
        return (
            f"<CrossStatistics: {self.counts.sum()} samples of {np.count_nonzero(self.counts)}/{self.num_classes} "
            f"classes, d={self.dim}, {np.count_nonzero(self.weights)} with a weight>"
        )

    @cached_property
    def static_digest(self) -> bytes:
        """8 bytes that stand for the static part: counts, `earlier`, `gram`, and what they were made with."""
        return _digest(*self.static, self.weights, self.earlier_origin)

    @property
    def static(self) -> StaticPart:
        """What a receiver keeps under `static_digest`."""
        return StaticPart(self.counts, self.earlier, self.gram)

    def to_bytes(
        self, dtype: WireType = "float64", *, frame: bool = True, known: Collection[bytes] = (), halves: bool = False
    ) -> bytes:
        """The statistics as bytes for `from_bytes`: no pickle, the gram packed, classes without samples left out.

        Args:
            dtype: of the sums on the wire, "float64" or "float32"; for the latter give origins near the features.
            frame: whether to include `weights` and the origins. A vehicle that answers a server which sent them need
                not echo them: 8 bytes stand for them, and the server gives them to `from_bytes`.
            known: digests of static parts that the receiver has; where this one's is among them it is left out.
            halves: whether `cross` may travel as float16, with three digits, which is enough for the map if the origins
                are near the features. It does not where most features would be lost beside one that is far larger.
        """
        halves = halves and _fits_halves(self.cross)
        self._warn_of_cancellation(0.1 if halves else 1e-4 if dtype == "float32" else 0.0)
        present = self.counts > 0
        static = self.static_digest not in known
        flags = (
            _FRAMELESS * (not frame)
            | _STATIC * static
            | _HALVES * halves
            | _NARROW * self.narrow
            | _HALVED * self.halves
        )
        for flag, origin in ((_EARLIER_ORIGIN, self.earlier_origin), (_ORIGIN, self.origin)):
            flags |= flag * (frame and bool(origin.any()))
        writer = Writer(_KIND, flags, dtype)
        writer.numbers("2I", self.num_classes, self.dim)
        writer.raw(self.static_digest)
        writer.integers(self.counts)
        if frame:
            writer.exact(self.weights)
            for origin in (self.earlier_origin, self.origin):
                if origin.any():
                    writer.exact(origin)
        else:
            writer.raw(_digest(self.weights, self.earlier_origin, self.origin))
        writer.reals(self.sums[present], "sums")
        (writer.halves if halves else writer.reals)(self.cross, "cross")
        if static:
            writer.reals(self.earlier[present], "earlier")
            writer.symmetric(self.gram, "gram")
        return writer.finish()

    @property
    def wire_type(self) -> WireType:
        """The dtype for `to_bytes`: float64 where numbers are too large or too small for float32."""
        numbers = (self.sums, self.earlier, self.gram.diagonal(), self.cross)
        return "float32" if all(map(fits_float32, numbers)) else "float64"

    def _warn_of_cancellation(self, least: float) -> None:
        """Where, without origins, so little of the gram is within classes that the map would drown in the means."""
        if self.origin.any() or self.earlier_origin.any():
            return
        within, whole = float(np.trace(self.within[0])), float(np.trace(self.gram))
        if rounding_level(int(self.counts.sum())) * whole < within < least * whole:
            warnings.warn(
                f"to_bytes: only {within / whole:.0e} of the gram is within classes, so the map loses digits on the "
                "wire; make the statistics with origin and earlier_origin near the features",
                stacklevel=3,
            )

    @classmethod
    def from_bytes(
        cls,
        data: bytes | bytearray | memoryview,
        *,
        weights: ArrayLike | None = None,
        earlier_origin: ArrayLike | None = None,
        origin: ArrayLike | None = None,
        known: Mapping[bytes, StaticPart] | None = None,
        shape: tuple[int, int] | None = None,
    ) -> CrossStatistics:
        """What `to_bytes` was called on; truncated, altered or foreign bytes raise `StatisticsError`.

        Args:
            data: the bytes.
            weights: what the server sent, bit for bit; needed where the bytes leave it out (`frame=False`).
            earlier_origin: likewise.
            origin: likewise.
            known: by digest, the static parts that the bytes may leave out.
            shape: (C, d) that the bytes should be of, where that is known: others are refused before anything is made
                of them.
        """
        reader = Reader(data, _KIND, _EARLIER_ORIGIN | _ORIGIN | _FRAMELESS | _STATIC | _HALVES | _NARROW | _HALVED)
        num_classes, d = reader.numbers("2I")
        check.check_sizes("CrossStatistics", (num_classes, d), shape)
        sums, earlier = reader.expanded(num_classes, d), reader.expanded(num_classes, d)
        digest = reader.raw(DIGEST_SIZE)
        counts = reader.integers(num_classes)
        given = (
            np.ones(num_classes) if weights is None else as_weights(weights, num_classes),
            np.zeros(d) if earlier_origin is None else check.as_floats(earlier_origin, "earlier_origin", (d,)),
            np.zeros(d) if origin is None else check.as_floats(origin, "origin", (d,)),
        )
        if reader.flags & _FRAMELESS:
            if reader.raw(DIGEST_SIZE) != _digest(*given):
                raise StatisticsError("CrossStatistics bytes: made with other weights or origins than given")
            a, before, now = given
        else:
            a = reader.exact(num_classes)
            before = reader.exact(d) if reader.flags & _EARLIER_ORIGIN else np.zeros(d)
            now = reader.exact(d) if reader.flags & _ORIGIN else np.zeros(d)
        present = counts != 0
        sums[present] = reader.reals(int(present.sum()), d)
        cross = (reader.halves if reader.flags & _HALVES else reader.reals)(d, d)
        if reader.flags & _STATIC:
            earlier[present] = reader.reals(int(present.sum()), d)
            products = reader.symmetric(d)
        else:
            one = (known or {}).get(digest)
            if one is None or one.earlier.shape != earlier.shape or not np.array_equal(one.counts, counts):
                raise StatisticsError("CrossStatistics bytes: leave out a static part that is not among the known ones")
            counts, earlier, products = one
        reader.finish()
        narrow = reader.narrow or bool(reader.flags & _NARROW)
        halves = bool(reader.flags & _HALVED or (reader.flags & _HALVES and cross.any()))
        made = cls(counts, earlier, sums, products, cross, a, before, now, narrow, halves)
        made.__dict__["static_digest"] = digest
        return made

    @property
    def nbytes(self) -> int:
        """The size of `to_bytes()`."""
        return len(self.to_bytes())


def as_weights(value: ArrayLike, num_classes: int) -> Floats:
    """`value` as (C,) class weights, none negative."""
    weights = check.as_floats(value, "weights", (num_classes,))
    if weights.min() < 0:
        raise StatisticsError(f"weights: {weights.min()} at class {np.argmin(weights)}, should not be negative")
    return weights


def _fits_halves(cross: Floats) -> bool:
    """Whether at least half of the features that are there keep their digits as float16 fractions of the largest."""
    sizes = np.abs(cross)
    there = [largest[largest > 0] for largest in (sizes.max(axis=0), sizes.max(axis=1))]
    return all(np.median(largest) >= _LEAST_HALF * largest.max() for largest in there if len(largest))


def _as_origin(value: ArrayLike, name: str, d: int) -> Floats:
    origin = check.as_array(value, name)
    return check.as_floats(np.zeros(d) if origin.shape == () and not origin else origin, name, (d,))


def _digest(*arrays: Floats | Ints) -> bytes:
    """What stands for arrays that the receiver has; all of their bits count."""
    state = hashlib.blake2b(digest_size=DIGEST_SIZE)
    for array in arrays:
        state.update((array + 0).astype("<i8" if array.dtype.kind == "i" else "<f8").tobytes())
    return state.digest()
