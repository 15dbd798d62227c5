"""SDC and LDC: the departed prototype carried along by how other samples moved between two models.

Vehicles embed their samples twice, under the departure-time model (z) and the current one (h), and report sums. With
the same budget as MPT they use the remaining samples of the departed class; the ":all" rows use every sample.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from mpt.core.validation import Floats
from mpt.methods.method import RoundContext
from mpt.methods.spaces import Log, Space
from mpt.protocol.local import Local
from mpt.protocol.parts import Asked, on_vehicle
from mpt.protocol.request import unit

Budget = Literal["remaining", "all"]


def _pairs(local: Local, budget: Budget, departed: int) -> tuple[Floats, Floats]:
    chosen = np.ones(len(local.labels), dtype=bool) if budget == "all" else local.labels == departed
    return local.earlier()[chosen], local.features[chosen]


def pair_products(earlier: Floats, current: Floats) -> dict[str, Floats]:
    """Of samples under two models, z (n, d) and h (n, d): the lower triangle of sum z z^T, and sum z h^T."""
    return {"gram": (earlier.T @ earlier)[np.tril_indices(earlier.shape[1])], "cross": earlier.T @ current}


def whole(triangle: Floats, dim: int) -> Floats:
    """(d, d): the symmetric matrix of a lower triangle (d (d + 1) / 2,)."""
    rows, columns = np.tril_indices(dim)
    made = np.zeros((dim, dim))
    made[rows, columns] = made[columns, rows] = triangle
    return made


def drift_weights(earlier: Floats, prototype: Floats, sigma: float) -> Floats:
    """w_i = exp(-|z_i - mu|^2 / (2 sigma^2)) between unit vectors, (n,). On the unit sphere nothing underflows."""
    gaps = unit(earlier) - unit(prototype)
    weights: Floats = np.exp(-np.sum(gaps**2, axis=1) / (2 * sigma**2))
    return weights


@dataclass(frozen=True)
class Sdc:
    """Semantic drift compensation (Yu et al., CVPR 2020): mu + sum w_i (h_i - z_i) / sum w_i, direct from departure."""

    needs_departure: ClassVar[bool] = True
    space: ClassVar[Space] = {"sigma": Log(0.05, 3)}

    name: str = "sdc"
    training: str = "held-out"
    budget: Budget = "remaining"
    sigma: float = 0.3

    def depart(self, context: RoundContext) -> Floats:
        """Keep the prototype."""
        prototype: Floats = context.prototype()
        return prototype

    def track(self, state: Floats, context: RoundContext) -> tuple[Floats, Floats]:
        """The prototype plus the weighted mean drift; where nothing was measured, the prototype."""
        told = context.total(self.drift, prototype=state)
        return state, state + told["moved"] / told["weight"] if told["weight"] > 0 else state

    @on_vehicle(earlier=True, moved=("d",), weight=())
    def drift(self, asked: Asked, local: Local) -> dict[str, Floats]:
        """On a vehicle: sum of w_i (h_i - z_i), and of w_i."""
        earlier, current = _pairs(local, self.budget, asked.departed)
        weights = drift_weights(earlier, asked["prototype"], self.sigma)
        return {"moved": weights @ (current - earlier), "weight": np.array(weights.sum())}


@dataclass(frozen=True)
class Ldc:
    """Learnable drift compensation (Gomez-Villa et al., ECCV 2024): a linear map from the old space to the new one.

    The map is the minimiser of its squared error, from sums over vehicles, shrunk towards the identity by `ridge` times
    the mean squared length of a dimension: P = I + (G + lambda I)^-1 (X - G), G = sum z z^T, X = sum z h^T.
    """

    needs_departure: ClassVar[bool] = True
    slow: ClassVar[bool] = True
    space: ClassVar[Space] = {"ridge": Log(1e-4, 10)}

    name: str = "ldc"
    training: str = "held-out"
    budget: Budget = "remaining"
    ridge: float = 0.01

    def depart(self, context: RoundContext) -> Floats:
        """Keep the prototype."""
        prototype: Floats = context.prototype()
        return prototype

    def track(self, state: Floats, context: RoundContext) -> tuple[Floats, Floats]:
        """The prototype under the map."""
        told = context.total(self.products)
        d = len(state)
        gram, cross = whole(told["gram"], d), told["cross"]
        size = float(np.trace(gram)) / d
        if size <= 0:
            return state, state
        correction = np.linalg.solve(gram + self.ridge * size * np.eye(d), cross - gram)
        return state, state + state @ correction

    @on_vehicle(earlier=True, gram=("d*",), cross=("d", "d"))
    def products(self, asked: Asked, local: Local) -> dict[str, Floats]:
        """On a vehicle: sum of z z^T, its lower triangle, and of z h^T."""
        return pair_products(*_pairs(local, self.budget, asked.departed))
