"""Features in a few bits a number, for records that are to be small."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from mpt.core.validation import Floats
from mpt.runs.errors import RecordError

FINEST, COARSEST = 0.01, 1.0
"""Steps, in deviations."""

_RIDGE = 1e-5
"""Of the correlations, so that features that depend on each other have codes too."""

Codes = NDArray[np.signedinteger[Any]]


@dataclass(frozen=True, eq=False)
class Coding:
    """How features x (n, d) become whole numbers z: x = centre + step scale F z, F F^T being their correlations.

    Rounding z adds about step^2 / 12 of itself to the features' covariance, in every direction alike, so that
    Mahalanobis distances shrink by that share and prototypes stay where they are. Rounding the features themselves
    would add most where they vary least, which is where these distances look.

    Attributes:
        centre: (d,); of a dimension in which nothing varies, its value.
        scale: (d,), deviations; 0 where nothing varies.
        factor: (d, d), F, lower triangular, in float16: z is made from what is kept of it.
        positive: (d,): no value is negative, so that what is decoded below 0 is 0.
        step: in deviations.
    """

    centre: NDArray[np.float32]
    scale: NDArray[np.float32]
    factor: NDArray[np.float16]
    positive: NDArray[np.bool_]
    step: float

    @classmethod
    def of(cls, features: Floats, step: float) -> "Coding":
        """For features (n, d)."""
        if not np.isfinite(features).all():
            raise RecordError("record: a feature is not finite, should be so that it can be kept in a few bits")
        varies = np.ptp(features, axis=0) > 0
        centre = np.where(varies, features.mean(axis=0), features[0]).astype(np.float32)
        scale = np.where(varies, features.std(axis=0), 0.0).astype(np.float32)
        white = (features - centre) / np.where(varies, scale, 1.0)
        correlations = white.T @ white / len(features) + _RIDGE * np.eye(features.shape[1])
        factor = np.linalg.cholesky(correlations).astype(np.float16)
        return cls(centre, scale, factor, features.min(axis=0) >= 0, step)

    def encode(self, features: Floats) -> Codes:
        """(d, n): the codes of features (n, d); a dimension's lie together, which compresses better."""
        white = (features - self.centre) / np.where(self.scale > 0, self.scale, 1.0)
        whole = np.rint(solve_triangular(self.factor.astype(np.float64), white.T, lower=True) / self.step)
        largest = np.abs(whole).max(initial=0)
        return whole.astype(next(kind for kind in (np.int8, np.int16, np.int32) if largest <= np.iinfo(kind).max))

    def decode(self, codes: Codes) -> Floats:
        """(n, d): what is left of the features."""
        white = self.factor.astype(np.float64) @ (self.step * codes.astype(np.float64))
        made: Floats = self.centre + self.scale.astype(np.float64) * white.T
        return np.ascontiguousarray(np.where(self.positive, np.maximum(made, 0.0), made))
