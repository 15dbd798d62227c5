"""DPCR (ICML 2025, arXiv 2503.05423): a departed class's Gram and sum under a linear map, and a ridge classifier.

Its paper chains the map task by task. Here it goes direct from the departure-time model to the current one.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from mpt.core.validation import Floats
from mpt.core.value import Value
from mpt.methods.drift import pair_products, whole
from mpt.methods.method import RoundContext
from mpt.methods.simple import Linear
from mpt.methods.spaces import Log, Space
from mpt.methods.trainings import MethodError
from mpt.protocol.local import Local
from mpt.protocol.parts import Asked, on_vehicle


@dataclass(frozen=True, eq=False)
class ClassMoments(Value):
    """What is kept of the departed class: sums over all its samples under the departure-time model.

    Attributes:
        round: of the departure.
        count: n, its samples.
        total: (d,), s = sum z.
        gram: (d, d), M = sum z z^T, uncentred.
    """

    round: int
    count: float
    total: Floats
    gram: Floats


def ridged(gram: Floats, ridge: float) -> Floats:
    """G + ridge (tr G / d) I, (d, d): the ridge is relative to the mean squared length of a dimension."""
    made: Floats = gram + ridge * float(np.trace(gram)) / len(gram) * np.eye(len(gram))
    return made


def shift_map(gram: Floats, cross: Floats, ridge: float) -> Floats:
    """P = (G + lambda I)^-1 X, (d, d): ridge regression from old features to new ones, uncentred and unweighted."""
    if not np.trace(gram) > 0:
        return np.eye(len(gram))
    made: Floats = np.linalg.solve(ridged(gram, ridge), cross).astype(np.float64)
    return made


def row_space(gram: Floats, tolerance: float) -> Floats:
    """U U^T, (d, d): the projector onto the row space of the samples that a Gram matrix is of.

    Directions whose singular value is at most `tolerance` times the trace count as none. Its code has S > 0, where
    rounding leaves hardly any singular value at exactly zero but those of features that are zero in every sample: with
    `tolerance` 0 it is these that are left out. With more than d samples in general position it is the identity.
    """
    if not tolerance:
        return np.diag((gram.diagonal() > 0).astype(np.float64))
    values, vectors = np.linalg.eigh(gram)
    kept = vectors[:, np.abs(values) > tolerance * float(np.trace(gram))]
    made: Floats = kept @ kept.T
    return made


def ridge_classifier(gram: Floats, totals: Floats, gamma: float) -> Linear:
    """(sum_c M_c + gamma I)^-1 [s_1 ... s_C], its columns of length 1, without a bias.

    Args:
        gram: (d, d), sum of the classes' Gram matrices.
        totals: (C, d), sums of the classes' features; zero where nothing is known, and never predicted.
        gamma: relative, as in `ridged`.
    """
    known = totals.any(axis=1)
    weight = np.zeros_like(totals)
    if known.any():
        columns = np.linalg.solve(ridged(gram, gamma), totals[known].T)
        weight[known] = (columns / np.linalg.norm(columns, axis=0)).T
    return Linear(weight, np.where(known, 0.0, -np.inf))


@dataclass(frozen=True)
class Dpcr:
    """The departed class's moments under W = P U U^T: P from all samples on vehicles, U from the class's Gram matrix.

    The classifier is made of W^T M W and W^T s for the departed class, and of what is measured now for the others; the
    remaining samples are in M and s already and are not counted twice. Without `classifier` the outcome is the
    prototype W^T s / n. Both ridges are relative: those of its code are absolute, 1e-9 for the map, which leaves it
    ill-conditioned, and 200 for the classifier, which depends on the scale and the number of features.

    On a fleet with several departed classes the classifier carries the first of them; it takes the others as measured.
    """

    slow: ClassVar[bool] = True
    space: ClassVar[Space] = {"ridge": Log(1e-5, 1), "gamma": Log(1e-5, 1)}

    name: str = "dpcr"
    training: str = "held-out"
    classifier: bool = True
    ridge: float = 1e-3
    gamma: float = 1e-3
    tolerance: float = 0.0

    def __post_init__(self) -> None:
        for name in ("ridge", "gamma"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or not 0 < value < np.inf:
                raise MethodError(f"{name}: {value!r}, should be a number above 0")
        if not isinstance(self.tolerance, int | float) or not 0 <= self.tolerance < 1:
            raise MethodError(f"tolerance: {self.tolerance!r}, should be a number from 0 to below 1")

    @property
    def needs_departure(self) -> bool:
        """Whether the row shows the measured prototype as long as the class is there; a classifier is there already."""
        return not self.classifier

    def depart(self, context: RoundContext) -> ClassMoments:
        """Keep the class's moments."""
        told = context.total(self.departing)
        gram = whole(told["gram"], len(told["total"]))
        return ClassMoments(context.round, float(told["count"]), told["total"], gram)

    def track(self, state: ClassMoments | None, context: RoundContext) -> tuple[ClassMoments | None, Floats | Linear]:
        """The classifier, or the prototype; until the departure nothing is under a map."""
        if state is None or state.round == context.round:
            return state, self._classifier(context)
        told = context.total(self.products)
        shift = shift_map(whole(told["gram"], len(state.total)), told["cross"], self.ridge)
        shift = shift @ row_space(state.gram, self.tolerance)
        if not self.classifier:
            return state, state.total @ shift / state.count
        return state, self._classifier(context, (shift.T @ state.gram @ shift, state.total @ shift))

    def _classifier(self, context: RoundContext, carried: tuple[Floats, Floats] | None = None) -> Linear:
        """From what is measured, with a Gram matrix (d, d) and sum (d,) of the departed class in place of its own."""
        told = context.total(self.measured, carried=np.array(float(carried is not None)))
        totals = told["totals"].copy()
        gram = whole(told["gram"], totals.shape[1])
        if carried is not None:
            gram, totals[context.departed] = gram + carried[0], carried[1]
        return ridge_classifier(gram, totals, self.gamma)

    @on_vehicle(gram=("d*",), total=("d",), count=())
    def departing(self, asked: Asked, local: Local) -> dict[str, Floats]:
        """On a vehicle: the class's count, sum and Gram matrix, its lower triangle."""
        z = local.features[local.labels == asked.departed]
        return {"gram": _triangle(z), "total": z.sum(axis=0), "count": np.array(float(len(z)))}

    @on_vehicle(earlier=True, gram=("d*",), cross=("d", "d"))
    def products(self, asked: Asked, local: Local) -> dict[str, Floats]:
        """On a vehicle: over all samples, the lower triangle of sum z z^T, and sum z h^T."""
        return pair_products(local.earlier(), local.features)

    @on_vehicle(gram=("d*",), totals=("C", "d"))
    def measured(self, asked: Asked, local: Local) -> dict[str, Floats]:
        """On a vehicle: the classes' sums (C, d) and one Gram matrix of all; without the class that is carried."""
        chosen = local.labels != asked.departed if asked["carried"] else np.ones(len(local.labels), dtype=bool)
        h, labels = local.features[chosen], local.labels[chosen]
        totals = np.zeros((asked.num_classes, h.shape[1]))
        for c in np.unique(labels):
            totals[c] = h[labels == c].sum(axis=0)
        return {"gram": _triangle(h), "totals": totals}


def _triangle(features: Floats) -> Floats:
    """The lower triangle of sum h h^T."""
    made: Floats = (features.T @ features)[np.tril_indices(features.shape[1])]
    return made
