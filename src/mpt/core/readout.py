"""Recognising classes by their prototypes: the nearest-class-mean readout under a Mahalanobis distance."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike, NDArray

from mpt.core import validation as check
from mpt.core.equations import DEFAULT_COV_RIDGE
from mpt.core.errors import StatisticsError
from mpt.core.linalg import ROUNDING, dot
from mpt.core.rounding import regular_factor
from mpt.core.validation import Floats, Ints
from mpt.core.value import Value

DEFAULT_OUTWARD = 0.4
"""gamma of Eq. (X10)."""


@dataclass(frozen=True, eq=False, repr=False)
class NearestClassMean(Value):
    """Assigns each feature to the class whose prototype is nearest under S~^-1, S~ = S + lambda_Sigma (tr S / d) I.

    A class without a prototype (a row of NaN) is never predicted.

    Attributes:
        prototypes: (C, d), one row a class.
        covariance: (d, d), S as `ClassStatistics.covariance()` gives it, not regularized. None, or all zero: Euclidean.
        cov_ridge: lambda_Sigma of Eq. (3).

    Example:
        >>> readout = NearestClassMean([[0.0, 0.0], [1.0, 1.0], [np.nan, np.nan]])
        >>> readout.predict([[0.2, 0.1], [0.9, 2.0]])
        array([0, 1])
    """

    prototypes: Floats
    covariance: Floats | None = None
    cov_ridge: float = field(default=DEFAULT_COV_RIDGE, kw_only=True)

    def __post_init__(self) -> None:
        prototypes = _as_prototypes(self.prototypes, None)
        d = prototypes.shape[1]
        covariance = None if self.covariance is None else check.as_symmetric(self.covariance, "covariance", d)
        object.__setattr__(self, "prototypes", prototypes)
        object.__setattr__(self, "covariance", covariance)
        object.__setattr__(self, "cov_ridge", check.as_ridge(self.cov_ridge, "cov_ridge"))
        _ = self._factor  # a covariance that cannot be factored is refused here, not in the first predict

    def with_prototypes(self, prototypes: ArrayLike) -> NearestClassMean:
        """The same distance over other prototypes (C, d); the covariance is not factored again."""
        made = object.__new__(type(self))
        shared = {"covariance": self.covariance, "cov_ridge": self.cov_ridge, "_factor": self._factor}
        vars(made).update(shared, prototypes=_as_prototypes(prototypes, self._dim))
        return made

    def outwards(self, departed: int | Iterable[int], power: float = DEFAULT_OUTWARD) -> NearestClassMean:
        r"""Eq. (X10): the same, with prototypes of classes that nobody trains any more further out.

            mu_c -> m + max(1, (R / r)^gamma) (mu_c - m),   r = |mu_c - m|,   R^2 = mean_k |mu_k - m|^2,

        k the other classes, m the mean of their prototypes, lengths under S~^-1. Training drives the prototypes of the
        classes that it has apart, further than test samples of them follow. A departed class is only carried along,
        stays nearer to the middle, and takes test samples of all the others, even where its prototype is exact.
        Cross-moment tracking finds where the class is; here it is put between there and where a trained class would be.

        Args:
            departed: the classes, of which some may have no prototype. Nothing changes without two others.
            power: gamma, from 0 (nothing changes) to 1 (as far out as the others).
        """
        gamma = check.as_ridge(power, "power")
        if gamma > 1:
            raise StatisticsError(f"power: {gamma}, should be from 0 to 1")
        classes = check.as_classes(departed, "departed", len(self.prototypes))
        moved = self._present & np.isin(np.arange(len(self.prototypes)), classes)
        others = self._present & ~moved
        if others.sum() < 2 or not moved.any():
            return self
        prototypes = self.prototypes.copy()
        middle = prototypes[others].mean(axis=0)
        squares = np.zeros(len(prototypes))
        squares[self._present] = np.sum(self._whiten(prototypes[self._present] - middle + self._centre) ** 2, axis=1)
        typical = float(squares[others].mean())
        rounding = ROUNDING * np.abs(prototypes[self._present]).max()
        near = moved & (np.abs(prototypes - middle).max(axis=1) > rounding) & (squares < typical)
        prototypes[near] = middle + (typical / squares[near, None]) ** (gamma / 2) * (prototypes[near] - middle)
        return self.with_prototypes(prototypes)

    def predict(self, features: ArrayLike) -> Ints:
        """The class of each row of `features` (N, d), as (N,) int64; ties go to the lower class."""
        rows = check.as_features(features, self._dim)
        predicted = np.empty(len(rows), dtype=np.int64)
        weight, bias = self._centred_linear
        for block, h in check.feature_blocks(rows):
            predicted[block] = np.argmax(dot(h - self._centre, weight.T) + bias, axis=1)
        return predicted

    def distances(self, features: ArrayLike) -> Floats:
        """The Mahalanobis distance, not squared, of each row of `features` (N, d) to each prototype: (N, C).

        Infinite to a class without a prototype.
        """
        rows = check.as_features(features, self._dim)
        distances = np.full((len(rows), len(self.prototypes)), np.inf)
        anchors = self._whiten(self.prototypes)
        for block, h in check.feature_blocks(rows):
            whitened = self._whiten(h)
            for c in np.flatnonzero(self._present):
                distances[block, c] = np.sqrt(np.sum((whitened - anchors[c]) ** 2, axis=1))
        return distances

    def to_linear(self) -> tuple[Floats, Floats]:
        """The same decision as a linear layer, for deployment: argmax of `features @ weight.T + bias`.

        weight_c = S~^-1 (mu_c - m), m the mean prototype: subtracting the same vector from all rows changes no decision
        and keeps the numbers small. A class without a prototype has weight zero and bias minus infinity.

        Returns:
            weight (C, d) and bias (C,).
        """
        weight, bias = self._centred_linear
        return weight.copy(), bias - dot(weight, self._centre)

    def __repr__(self) -> str:
        metric = "Euclidean" if self._factor is None else f"Mahalanobis, cov_ridge={self.cov_ridge}"
        return f"<NearestClassMean: {self._present.sum()}/{len(self._present)} classes, d={self._dim}, {metric}>"

    @property
    def _dim(self) -> int:
        return int(self.prototypes.shape[1])

    @cached_property
    def _present(self) -> NDArray[np.bool_]:
        return ~np.isnan(self.prototypes[:, 0])

    @cached_property
    def _centre(self) -> Floats:
        centre: Floats = self.prototypes[self._present].mean(axis=0)
        return centre

    @cached_property
    def _factor(self) -> Floats | None:
        """The Cholesky factor L of S~; None: Euclidean."""
        if self.covariance is None or not self.covariance.any():
            return None
        return regular_factor(self.covariance, self.cov_ridge, "covariance")

    def _whiten(self, rows: Floats) -> Floats:
        """L^-1 (x - m) for each row x: (N, d). Euclidean distances there are Mahalanobis distances here."""
        centred = rows - self._centre
        if self._factor is None:
            return centred
        return scipy.linalg.solve_triangular(self._factor, centred.T, lower=True, check_finite=False).T

    @cached_property
    def _centred_linear(self) -> tuple[Floats, Floats]:
        anchors = self._whiten(self.prototypes[self._present])
        weight, bias = np.zeros(self.prototypes.shape), np.full(len(self.prototypes), -np.inf)
        bias[self._present] = -np.einsum("cd,cd->c", anchors, anchors) / 2
        if self._factor is None:
            weight[self._present] = anchors
        else:
            solved = scipy.linalg.solve_triangular(self._factor, anchors.T, lower=True, trans="T", check_finite=False)
            weight[self._present] = solved.T
        return weight, bias


def _as_prototypes(value: ArrayLike, d: int | None) -> Floats:
    """`value` as read-only float64 prototypes (C, d), of which some, not all, may be missing."""
    given = check.as_array(value, "prototypes")
    check.check_shape(given, "prototypes", (None, d))
    prototypes = np.array(given, dtype=np.float64)
    missing = np.asarray(np.isnan(prototypes).all(axis=1))
    if missing.all():
        raise StatisticsError("prototypes: no class has one, at least one row should be finite")
    check.check_finite(np.where(missing[:, None], 0.0, prototypes), "prototypes")
    return check.read_only(prototypes)
