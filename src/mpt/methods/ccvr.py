"""CCVR (Luo et al., NeurIPS 2021): retrain the head on virtual features drawn from each class's Gaussian."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from mpt.core.validation import Floats, Ints
from mpt.methods.method import RoundContext
from mpt.methods.simple import Linear
from mpt.methods.spaces import Log, OneOf, Space
from mpt.methods.trainings import MethodError
from mpt.protocol.local import Local
from mpt.protocol.parts import Asked, on_vehicle


def class_moments(features: Floats, labels: Ints, num_classes: int, origin: Floats) -> tuple[Floats, Floats, Floats]:
    """Counts (C,), sums (C, d) and second moments (C, d, d) about `origin`."""
    d = features.shape[1]
    counts, sums, seconds = np.zeros(num_classes), np.zeros((num_classes, d)), np.zeros((num_classes, d, d))
    for c in np.unique(labels):
        h = features[labels == c] - origin
        counts[c], sums[c], seconds[c] = len(h), h.sum(axis=0), h.T @ h
    return counts, sums, seconds


def gaussians(counts: Floats, sums: Floats, seconds: Floats, origin: Floats) -> dict[int, tuple[Floats, Floats]]:
    """Mean and unbiased covariance (Q - N m m^T) / (N - 1) of each class with at least two samples."""
    made = {}
    for c in np.flatnonzero(counts >= 2):
        mean = sums[c] / counts[c]
        made[int(c)] = (mean + origin, (seconds[c] - counts[c] * np.outer(mean, mean)) / (counts[c] - 1))
    return made


def pooled(classes: Mapping[int, tuple[Floats, Floats]], counts: Floats) -> Floats:
    """(d, d): the pooled within-class covariance, sum (N_c - 1) S_c / sum (N_c - 1)."""
    shares = np.array([counts[c] - 1 for c in classes])
    made: Floats = np.tensordot(shares / shares.sum(), np.stack([s for _, s in classes.values()]), axes=1)
    return made


def shrunk(
    classes: Mapping[int, tuple[Floats, Floats]], counts: Floats, shrink: float
) -> dict[int, tuple[Floats, Floats]]:
    """Each class's covariance moved towards the pooled one: (1 - w) S_c + w S with w = shrink / (shrink + N_c)."""
    common = pooled(classes, counts)
    shares = {c: shrink / (shrink + counts[c]) for c in classes}
    return {c: (mean, (1 - shares[c]) * own + shares[c] * common) for c, (mean, own) in classes.items()}


def draw(mean: Floats, covariance: Floats, count: int, rng: np.random.Generator) -> Floats:
    """(count, d) samples of a Gaussian whose covariance may be singular: negative eigenvalues are rounding."""
    values, vectors = np.linalg.eigh(covariance)
    drawn: Floats = mean + rng.standard_normal((count, len(mean))) * np.sqrt(values.clip(min=0)) @ vectors.T
    return drawn


def calibrate(head: Linear, features: Floats, labels: Ints, rng: np.random.Generator, ccvr: "Ccvr") -> Linear:
    """The head after SGD with momentum on the cross-entropy over `features`, from where it stands."""
    weight, bias = head.weight.astype(np.float64), head.bias.astype(np.float64)
    velocity_weight, velocity_bias = np.zeros_like(weight), np.zeros_like(bias)
    for _ in range(ccvr.epochs):
        for batch in np.array_split(rng.permutation(len(labels)), max(1, len(labels) // ccvr.batch_size)):
            x, y = features[batch], labels[batch]
            scores = x @ weight.T + bias
            share = np.exp(scores - scores.max(axis=1, keepdims=True))
            share /= share.sum(axis=1, keepdims=True)
            share[np.arange(len(y)), y] -= 1
            share /= len(y)
            velocity_weight = ccvr.momentum * velocity_weight + share.T @ x + ccvr.weight_decay * weight
            velocity_bias = ccvr.momentum * velocity_bias + share.sum(axis=0) + ccvr.weight_decay * bias
            weight, bias = weight - ccvr.lr * velocity_weight, bias - ccvr.lr * velocity_bias
    return Linear(weight, bias)


@dataclass(frozen=True)
class Ccvr:
    """Classifier calibration with virtual representations, from the statistics of the samples that are there.

    Attributes:
        virtual: features drawn of each class.
        epochs, batch_size, lr, momentum, weight_decay: of the calibration.
        shrink: in samples, how far the covariance of a class with few is moved towards the pooled one (`shrunk`).
        rectify: negative virtual features are 0, as features behind a ReLU are.
        standardise: the head is calibrated on features divided by their pooled standard deviation within classes; what
            comes of it is a head for the features as they are.
        fresh: the calibration begins with a head of zeros, not with the trained one.
    """

    slow: ClassVar[bool] = True
    trains: ClassVar[bool] = True
    needs_head: ClassVar[bool] = True
    space: ClassVar[Space] = {
        "lr": Log(1e-4, 0.1),
        "epochs": OneOf((2, 5, 10, 20)),
        "weight_decay": Log(1e-6, 1e-2),
        "shrink": OneOf((0, 100, 1000, 10000)),
        "rectify": OneOf((False, True)),
        "training": OneOf(("continued", "held-out")),
    }

    name: str = "ccvr"
    training: str = "continued"
    virtual: int = 2000
    epochs: int = 10
    batch_size: int = 64
    lr: float = 0.01
    momentum: float = 0.9
    weight_decay: float = 1e-5
    shrink: float = 0.0
    rectify: bool = False
    standardise: bool = False
    fresh: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.shrink, int | float) or not 0 <= self.shrink < np.inf:
            raise MethodError(f"shrink: {self.shrink!r}, should be a number of samples, at least 0")

    def depart(self, context: RoundContext) -> None:
        """Nothing is kept."""

    def track(self, state: None, context: RoundContext) -> tuple[None, Linear]:
        """The head calibrated on as many virtual features of each class."""
        stats = context.report(context.request(scatter=False))
        origin = stats.overall_mean.astype(np.float32).astype(np.float64)
        told = context.total(self.moments, origin=origin)
        d = len(origin)
        seconds = np.zeros((context.num_classes, d, d))
        rows, columns = np.tril_indices(d)
        seconds[:, rows, columns] = seconds[:, columns, rows] = told["seconds"]
        counts = stats.counts.astype(np.float64)
        classes = gaussians(counts, told["sums"], seconds, origin)
        drawn_from = shrunk(classes, counts, self.shrink) if self.shrink else classes
        features = np.concatenate([draw(*drawn_from[c], self.virtual, context.rng) for c in classes])
        if self.rectify:
            features = features.clip(min=0)
        labels = np.repeat(np.array(list(classes), dtype=np.int64), self.virtual)
        head = Linear(*(np.zeros_like(array) for array in context.head)) if self.fresh else Linear(*context.head)
        if not self.standardise:
            return None, calibrate(head, features, labels, context.rng, self)
        scale = np.sqrt(pooled(classes, counts).diagonal().clip(min=0))
        scale = np.where(scale > 0, scale, 1.0)
        made = calibrate(Linear(head.weight * scale, head.bias), features / scale, labels, context.rng, self)
        return None, Linear(made.weight / scale, made.bias)

    @on_vehicle(counts=("C",), sums=("C", "d"), seconds=("C", "d*"))
    def moments(self, asked: Asked, local: Local) -> dict[str, Floats]:
        """On a vehicle: each class's count, sum and second moments about the origin."""
        counts, sums, seconds = class_moments(local.features, local.labels, asked.num_classes, asked["origin"])
        rows, columns = np.tril_indices(local.features.shape[1])
        return {"counts": counts, "sums": sums, "seconds": seconds[:, rows, columns]}
