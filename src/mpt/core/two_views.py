r"""Two views: what departure-time models still know, read beside the current one, Eq. (D1) to (D6), beyond the paper.

Notation: h is a sample's feature under the current model, z the same sample's under the model of a departure's round,
an *earlier view*, in which the departed class's prototype is exact for ever. S_h and S_z are the pooled within-class
covariances, S_zh the pooled within-class moments of both, all W / (N - K) of the classes that are measured, from sums.
x = [h, z] are the views side by side, the current one first. What is known of earlier views, and Eq. (D2), are in
`mpt.core.views`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike, NDArray

from mpt.core import validation as check
from mpt.core.equations import DEFAULT_COV_RIDGE, regularize, ridge_floor
from mpt.core.errors import StatisticsError
from mpt.core.health import whitened_noise
from mpt.core.linalg import dot
from mpt.core.readout import NearestClassMean
from mpt.core.rounding import positive_part, regular_factor
from mpt.core.validation import Floats, Ints
from mpt.core.value import Value
from mpt.core.views import (
    DEFAULT_JOINT_RIDGE,
    MOST_EARLIER,
    EarlierView,
    joint_covariance,
    joint_ridge,
    kept_views,
    separate_covariances,
    unit_weights,
)

__all__ = [
    "DEFAULT_JOINT_RIDGE",
    "MOST_EARLIER",
    "EarlierView",
    "JoinedViews",
    "Joining",
    "decide",
    "join_views",
    "joint_covariance",
    "joint_ridge",
    "kept_views",
    "own_distance",
    "separate_covariances",
    "unit_weights",
]

_HELD = 0.1
"""Of lambda: an eigenvalue of S_x may be so far below zero. Nearer to -lambda, it would count without a bound."""

Joining = Literal["joint", "sum"]
"""By Eq. (D3) or by Eq. (D4)."""
Layer = tuple[Floats, Floats]
"""weight (C, n) and bias (C,) of a decision: the largest logit decides."""


def own_distance(covariance: Floats, cov_ridge: float = DEFAULT_COV_RIDGE) -> float:
    r"""Eq. (D1): s = tr(S~^-1 S), the mean squared distance of the measured classes' samples to their own prototype.

    The mean of (h - m)^T S~^-1 (h - m) over samples is tr(S~^-1 W) / N, W the scatter about each class's own mean: sums
    tell it, no sample is looked at. N - K stands for N. d where nothing is added to S.
    """
    if not covariance.any():
        return float(len(covariance))
    factor = regular_factor(covariance, cov_ridge, "covariance")
    return len(covariance) * whitened_noise(factor, ridge_floor(covariance, cov_ridge))


@dataclass(frozen=True, eq=False, repr=False)
class JoinedViews(Value):
    """Recognises classes by features under several models: (N, V d), the current one's first, then the earlier ones'.

    A class that some earlier view does not know is the current view's alone to decide, Eq. (D5): a sample that the
    current view gives to such a class is that class's; all others are the nearest of the known classes in all views.
    So those classes get exactly the samples that they would get without earlier views.

    Attributes:
        current: the readout under the current model alone.
        joined: nearest prototype of the known classes among the views side by side, each divided by its unit; rows of
            NaN for the others.
        units: (V,), what each view's features are divided by.
        departed: the classes that the earlier views are asked for.
        scale: s of Eq. (D1) under the current model.
    """

    current: NearestClassMean
    joined: NearestClassMean
    units: Floats
    departed: tuple[int, ...]
    scale: float = field(default=1.0)

    def __post_init__(self) -> None:
        units = check.as_floats(self.units, "units", (None,))
        classes, d = self.current.prototypes.shape
        if units.size < 2 or not np.all(units > 0):
            raise StatisticsError(f"units: {units}, should be two positive numbers or more, one a view")
        if self.joined.prototypes.shape != (classes, units.size * d):
            raise StatisticsError(
                f"joined: prototypes of shape {self.joined.prototypes.shape}, should be {(classes, units.size * d)}"
            )
        departed = tuple(sorted(check.as_classes(self.departed, "departed", classes)))
        if not 0 < self.scale < np.inf:
            raise StatisticsError(f"scale: {self.scale!r}, should be a positive number")
        for name, value in {"units": units, "departed": departed, "scale": float(self.scale)}.items():
            object.__setattr__(self, name, value)

    @property
    def views(self) -> int:
        """V, how many models an image goes through; who applies the readout gives it the features of all of them."""
        return len(self.units)

    @property
    def known(self) -> NDArray[np.bool_]:
        """(C,): the classes that all views know."""
        return ~np.isnan(self.joined.prototypes[:, 0])

    def predict(self, features: ArrayLike) -> Ints:
        """The class of each row of `features` (N, V d), as (N,) int64."""
        return decide(self._layers, self._rows(features))

    def cascade(self, features: ArrayLike, limit: float) -> tuple[Ints, NDArray[np.bool_]]:
        """The same where the earlier views are asked only for samples whose `hesitation` is at most `limit`.

        Returns:
            The class of each row of `features` (N, V d), and whether its earlier views were asked, (N,) each.
        """
        rows = self._rows(features)
        asked = self.asks(rows[:, : self._dim], limit)
        return decide(self._layers, rows, asked), asked

    def asks(self, features: ArrayLike, limit: float) -> NDArray[np.bool_]:
        """(N,): whether the earlier views are asked, given the current one's features (N, d) alone."""
        scores = self._current_scores(features)
        asked: NDArray[np.bool_] = (self._gaps(scores) <= float(limit)) & self.known[np.argmax(scores, axis=1)]
        return asked

    def hesitation(self, features: ArrayLike) -> Floats:
        r"""Eq. (D6): how near the current view (N, d) is to changing its mind about the departed classes. (N,)

            |min_{c departed} D_h(h, c) - min_{c other} D_h(h, c)| / s,

        D_h the squared distance, s of Eq. (D1).
        """
        return self._gaps(self._current_scores(features))

    def layers(self) -> tuple[Layer, Layer]:
        """The two decisions as linear layers, for deployment.

        Returns:
            weight (C, d) and bias (C,) of the current view alone, and weight (C, V d) and bias (C,) of all views, minus
            infinity for a class that some view does not know. The largest logit decides.
        """
        weight, bias = self.joined.to_linear()
        return self.current.to_linear(), (weight / np.repeat(self.units, self._dim), bias)

    def gap_limit(self, limit: float) -> float:
        """What a `limit` of hesitation is between logits of `layers`: scores are half of squared distances."""
        return limit * self.scale / 2

    def __repr__(self) -> str:
        return f"<JoinedViews: {self.views} views, {self.known.sum()}/{len(self.known)} classes known to all>"

    @property
    def _dim(self) -> int:
        return int(self.current.prototypes.shape[1])

    @cached_property
    def _layers(self) -> tuple[Layer, Layer]:
        return self.layers()

    def _rows(self, features: ArrayLike) -> Floats:
        return np.asarray(check.as_features(features, self.views * self._dim), dtype=np.float64)

    def _current_scores(self, features: ArrayLike) -> Floats:
        weight, bias = self._layers[0]
        return dot(np.asarray(check.as_features(features, self._dim), dtype=np.float64), weight.T) + bias

    def _gaps(self, scores: Floats) -> Floats:
        """Of logits (N, C) of the current view; infinite where there are no two sides."""
        sides = np.isin(np.arange(scores.shape[1]), self.departed)
        if sides.all() or not sides.any():
            return np.full(len(scores), np.inf)
        here, there = scores[:, sides].max(axis=1), scores[:, ~sides].max(axis=1)
        with np.errstate(invalid="ignore"):
            gaps = np.abs(here - there)
        made: Floats = np.nan_to_num(2 * gaps / self.scale, nan=np.inf, posinf=np.inf)
        return made


def decide(layers: tuple[Layer, Layer], rows: Floats, asked: NDArray[np.bool_] | None = None) -> Ints:
    """Rule (D5), given the layers of `JoinedViews.layers`: the class of each row (N, V d), as (N,) int64.

    Args:
        layers: of the current view alone, and of all views.
        rows: (N, V d), the current view first.
        asked: (N,), which rows the earlier views are asked for; None: all.
    """
    (weight, bias), (joint, offset) = layers
    predicted: Ints = np.argmax(dot(rows[:, : weight.shape[1]], weight.T) + bias, axis=1).astype(np.int64)
    known = np.isfinite(offset)[predicted]
    known = known if asked is None else known & asked
    predicted[known] = np.argmax(dot(rows[known], joint.T) + offset, axis=1)
    return predicted


def join_views(
    current: NearestClassMean,
    earlier: Sequence[EarlierView],
    covariance: ArrayLike,
    *,
    departed: int | Iterable[int],
    joining: Joining = "joint",
    share: float = 0.5,
    ridge: float = DEFAULT_JOINT_RIDGE,
    outward: bool | Iterable[int] = True,
) -> JoinedViews:
    r"""Eq. (D3), or Eq. (D4): one distance of several views.

    Eq. (D3), `joint`: each view is divided by the square root of its mean variance, so that one ridge says the same in
    all of them,

        D(x, c) = (x - mu_c)^T (U^-1 S_x U^-1 + lambda I)^-1 (x - mu_c),   x, mu_c divided by U,   u_v^2 = tr(S_v) / d.

    What both views have in common counts once, and a view that adds nothing new has no say.

    Eq. (D4), `sum`: without the moments between views, each squared distance divided by its mean over the measured
    classes' own samples, Eq. (D1), and the earlier views' mean by `share` b,

        D(x, c) = (1 - b) D_h(h, c) / s_h + b mean_v D_v(z_v, c) / s_v.

    Args:
        current: the readout under the current model, the departed classes' prototypes where they are tracked to.
        earlier: the earlier views, one or two.
        covariance: (V d, V d), S_x of Eq. (D2). Where it is no covariance, the nearest one is taken.
        departed: the classes that the earlier views are asked for.
        joining: which of the two.
        share: b of Eq. (D4), from 0 to 1.
        ridge: lambda of Eq. (D3), as `joint_ridge` has it, and of S~ in Eq. (D4).
        outward: whether the departed classes are read out further out, by Eq. (X10): under the current model where it
            decides alone, and among the views side by side; further out in one view, they would contradict the other.
            Or which of them are.
    """
    d, views = current.prototypes.shape[1], 1 + len(earlier)
    if not 1 <= len(earlier) <= MOST_EARLIER:
        raise StatisticsError(f"earlier: {len(earlier)} views, should be 1 to {MOST_EARLIER}")
    if any(view.prototypes.shape != current.prototypes.shape for view in earlier):
        shapes = [view.prototypes.shape for view in earlier]
        raise StatisticsError(f"earlier: prototypes of shapes {shapes}, should be {current.prototypes.shape}")
    if joining not in ("joint", "sum"):
        raise StatisticsError(f"joining: {joining!r}, should be 'joint' or 'sum'")
    if not 0 <= check.as_ridge(share, "share") <= 1:
        raise StatisticsError(f"share: {share}, should be from 0 to 1")
    whole = check.as_symmetric(covariance, "covariance", views * d)
    blocks = [whole[v * d : (v + 1) * d, v * d : (v + 1) * d] for v in range(views)]
    units = np.array([np.sqrt(float(np.trace(block)) / d) or 1.0 for block in blocks])
    scaled = whole / np.outer(np.repeat(units, d), np.repeat(units, d))
    added = ridge
    if joining == "sum":
        scaled, added = _apart(blocks, units, share, ridge), 0.0
    elif not _nearly_positive(scaled, ridge):
        scaled = positive_part(scaled, "covariance", np.inf)
    means = np.concatenate([current.prototypes, *(view.prototypes for view in earlier)], axis=1)
    means = np.where(np.isnan(means).any(axis=1)[:, None], np.nan, means / np.repeat(units, d))
    classes = check.as_classes(departed, "departed", len(means))
    joined = NearestClassMean(means, scaled, cov_ridge=added)
    far = (classes if outward else ()) if isinstance(outward, bool) else tuple(outward)
    joined, alone = joined.outwards(far), current.outwards(far)
    return JoinedViews(alone, joined, units, classes, own_distance(blocks[0], current.cov_ridge) or 1.0)


def _nearly_positive(matrix: Floats, ridge: float) -> bool:
    """Whether no eigenvalue is below zero by more than a tenth of what the ridge adds. The mean variance is 1."""
    try:
        scipy.linalg.cholesky(matrix + _HELD * ridge * np.eye(len(matrix)), lower=True, check_finite=False)
    except np.linalg.LinAlgError:
        return False
    return True


def _apart(blocks: Sequence[Floats], units: Floats, share: float, ridge: float) -> Floats:
    """(V d, V d): what Eq. (D4) puts in the place of S_x: S~_v s_v over each view's weight, without what is between."""
    most = 1e6
    weights = [1 - share, *([share / (len(blocks) - 1)] * (len(blocks) - 1))]
    made = []
    for block, unit, weight in zip(blocks, units, weights, strict=True):
        regular = regularize(block, ridge) if block.any() else np.eye(len(block))
        made.append(regular / unit**2 * own_distance(block, ridge) * min(1 / weight if weight else most, most))
    return np.asarray(scipy.linalg.block_diag(*made))
