"""Evidence without test data: vehicles count how a readout recognises samples that they have set aside for that.

The server sends the readout as a linear layer, a vehicle answers with a confusion matrix, and what all have counted is
each class's recall with an interval, the departed classes' too: of these the remaining samples tell.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from mpt.core import StatisticsError
from mpt.core import validation as check
from mpt.core.linalg import dot
from mpt.core.two_views import decide
from mpt.core.validation import Floats, Ints
from mpt.core.value import Value
from mpt.core.wire import Reader, Writer

_REQUEST, _EVIDENCE = b"V", b"E"
_ALONE, _JOINT = 1, 1
_Z = NormalDist().inv_cdf(0.975)
_MOST_SAMPLES = 10**8
"""Of one vehicle, in one cell."""
FEW = 2
"""Samples of a class that a vehicle may have set aside whatever it reported of it, for rounding."""
_MOST_SUMMED = 2**53
_NOTHING: Mapping[int, ArrayLike] = {}
_ENVELOPE = 64
"""Bytes of an answer beside its cells, and some more."""


class Recall(NamedTuple):
    """How many of a class's samples were recognised: `right` of `samples`, and Wilson's 95% interval of the share."""

    right: int
    samples: int
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class Evidence(Value):
    """How samples were recognised by one readout.

    Attributes:
        round: of the readout.
        counts: (C, C), samples by label and prediction.
        vehicles: how many have counted.
        alone: of these, those at which the current view decided alone, as they have no features of the earlier ones.
    """

    round: int
    counts: Ints
    vehicles: int = 1
    alone: int = 0

    def __post_init__(self) -> None:
        counts = np.array(check.as_array(self.counts, "counts", kinds="iu"), dtype=np.int64)
        check.check_shape(counts, "counts", (None, len(counts) if counts.ndim else None))
        if not counts.size:
            raise StatisticsError("counts: empty, should have one row a class")
        if counts.min() < 0 or counts.max() > _MOST_SUMMED:
            raise StatisticsError(f"counts: from {counts.min()} to {counts.max()}, should be from 0 to {_MOST_SUMMED}")
        object.__setattr__(self, "round", check.as_int(self.round, "round", least=0))
        object.__setattr__(self, "counts", check.read_only(counts))
        object.__setattr__(self, "vehicles", check.as_int(self.vehicles, "vehicles", least=0, most=2**32 - 1))
        object.__setattr__(self, "alone", check.as_int(self.alone, "alone", least=0, most=self.vehicles))

    @property
    def num_classes(self) -> int:
        """C."""
        return len(self.counts)

    @property
    def samples(self) -> Ints:
        """(C,), how many of each class were looked at."""
        total: Ints = self.counts.sum(axis=1)
        return total

    def recall(self, c: int) -> Recall:
        """Of one class; without a sample from 0 to 1."""
        right, samples = int(self.counts[c, c]), int(self.counts[c].sum())
        return Recall(right, samples, *wilson(right, samples))

    def recalls(self) -> tuple[Recall, ...]:
        """Of every class."""
        return tuple(self.recall(c) for c in range(self.num_classes))

    def merge(self, other: Evidence) -> Evidence:
        """What both have counted of one readout."""
        if (other.round, other.num_classes) != (self.round, self.num_classes):
            raise StatisticsError(
                f"merge: evidence of round {other.round} with {other.num_classes} classes, should be of round "
                f"{self.round} with {self.num_classes}"
            )
        vehicles, alone = self.vehicles + other.vehicles, self.alone + other.alone
        return Evidence(self.round, self.counts + other.counts, vehicles, alone)

    def to_bytes(self) -> bytes:
        """As bytes for `from_bytes`: cells without samples do not travel."""
        cells = self.counts.ravel()
        places = np.flatnonzero(cells)
        writer = Writer(_EVIDENCE, _ALONE * bool(self.alone), "float64")
        writer.numbers("4I", self.round, self.num_classes, self.vehicles, len(places))
        writer.integers(places)
        writer.integers(cells[places])
        if self.alone:
            writer.numbers("I", self.alone)
        return writer.finish()

    @classmethod
    def from_bytes(cls, data: bytes | bytearray | memoryview, num_classes: int) -> Evidence:
        """What `to_bytes` was called on; of another number of classes it is refused before anything is made of it."""
        reader = Reader(data, _EVIDENCE, _ALONE)
        number, found, vehicles, filled = reader.numbers("4I")
        if found != num_classes:
            raise StatisticsError(f"Evidence bytes: {found} classes, asked for {num_classes}")
        places, cells = reader.integers(filled), reader.integers(filled)
        (alone,) = reader.numbers("I") if reader.flags & _ALONE else (0,)
        reader.finish()
        counts = np.zeros(num_classes**2, dtype=np.int64)
        if filled and (places[0] < 0 or places[-1] >= len(counts) or np.any(places[1:] <= places[:-1])):
            raise StatisticsError(f"Evidence bytes: cells should be from 0 to {len(counts) - 1}, in order, each once")
        if filled and cells.min() < 1:
            raise StatisticsError(f"Evidence bytes: a cell of {cells.min()} samples, which should not be sent")
        counts[places] = cells
        return cls(number, counts.reshape(num_classes, num_classes), vehicles, alone)


@dataclass(frozen=True, eq=False)
class JointLayer(Value):
    """The decision of several views side by side, x = [h, z, ...], as `JoinedViews.layers` gives it.

    Attributes:
        references: the rounds whose global models z come from, in order.
        weight: (C, V d).
        bias: (C,), minus infinity for a class that some view does not know: the current view alone decides on it.
    """

    references: tuple[int, ...]
    weight: Floats
    bias: Floats

    def __post_init__(self) -> None:
        weight, bias = _as_layer(self.weight, self.bias)
        if not self.references or weight.shape[1] % (1 + len(self.references)):
            views = 1 + len(self.references)
            raise StatisticsError(f"weight: shape is {weight.shape}, should have columns of {views} views")
        references = tuple(check.as_int(number, "references", least=0) for number in self.references)
        for name, value in {"references": references, "weight": weight, "bias": bias}.items():
            object.__setattr__(self, name, value)


@dataclass(frozen=True, eq=False)
class EvaluationRequest(Value):
    """A readout to be counted with: the class of a feature h is argmax of weight h + bias.

    With a joint layer a sample of a class that all views know is the joint layer's to decide, Eq. (D5), on a vehicle
    that has its features under all models; on others the current view decides alone.

    Attributes:
        round: whose global model features come from.
        weight: (C, d).
        bias: (C,), minus infinity for a class without a prototype, which is never predicted.
        joint: of a readout of several views; None: of this one.
    """

    round: int
    weight: Floats
    bias: Floats
    joint: JointLayer | None = None

    def __post_init__(self) -> None:
        weight, bias = _as_layer(self.weight, self.bias)
        if self.joint is not None:
            shape = (len(weight), (1 + len(self.joint.references)) * weight.shape[1])
            check.check_shape(self.joint.weight, "joint weight", shape)
        object.__setattr__(self, "round", check.as_int(self.round, "round", least=0))
        object.__setattr__(self, "weight", weight)
        object.__setattr__(self, "bias", bias)

    @property
    def num_classes(self) -> int:
        """C."""
        return len(self.bias)

    @property
    def largest_answer(self) -> int:
        """Bytes; a longer answer is not looked at."""
        return _ENVELOPE + 16 * self.num_classes**2

    def count(
        self,
        features: ArrayLike,
        labels: ArrayLike,
        earlier: Mapping[int, ArrayLike] = _NOTHING,
        *,
        min_samples: int = 1,
    ) -> Evidence:
        """How the readout recognises samples.

        Args:
            features: (N, d), of samples that were not trained on, under the round's global model.
            labels: (N,).
            earlier: (N, d) by round, the same samples under the joint layer's models, where the vehicle has them.
            min_samples: classes with fewer of these samples are left out, as from statistics.
        """
        rows, classes = check.as_features(features, self.weight.shape[1]), self.num_classes
        given = check.as_labels(labels, len(rows), classes)
        least = check.as_int(min_samples, "min_samples", least=1)
        joint, alone = self.joint, self.joint is not None and not earlier.keys() >= set(self.joint.references)
        if joint is not None and not alone:
            rows = np.concatenate([rows, *(np.asarray(earlier[number]) for number in joint.references)], axis=1)
        predicted, current = np.empty(len(rows), dtype=np.int64), (self.weight, self.bias)
        for block, features_there in check.feature_blocks(rows):
            if joint is None or alone:
                predicted[block] = np.argmax(dot(features_there, self.weight.T) + self.bias, axis=1)
            else:
                predicted[block] = decide((current, (joint.weight, joint.bias)), features_there)
        counts = np.bincount(given * classes + predicted, minlength=classes**2).reshape(classes, classes)
        counts[counts.sum(axis=1) < least] = 0
        return Evidence(self.round, counts, alone=int(alone))

    def answer(
        self,
        features: ArrayLike,
        labels: ArrayLike,
        earlier: Mapping[int, ArrayLike] = _NOTHING,
        *,
        min_samples: int = 1,
    ) -> bytes:
        """On a vehicle: what `count` gives, as bytes."""
        return self.count(features, labels, earlier, min_samples=min_samples).to_bytes()

    def read(self, answer: bytes) -> Evidence:
        """On the server: what a vehicle has counted; refuses what is too long, of another round, or impossible."""
        if not isinstance(answer, bytes | bytearray | memoryview):
            raise StatisticsError(f"answer: {type(answer).__name__}, should be bytes")
        if (size := memoryview(answer).nbytes) > self.largest_answer:
            raise StatisticsError(f"answer: {size} bytes, should be at most {self.largest_answer}")
        found = Evidence.from_bytes(answer, self.num_classes)
        if found.round != self.round:
            raise StatisticsError(f"answer: made for round {found.round}, this is round {self.round}")
        if found.alone and self.joint is None:
            raise StatisticsError("answer: of the current view alone, but there is no other one in this round")
        if found.vehicles != 1:
            raise StatisticsError(f"answer: of {found.vehicles} vehicles, should be of one")
        if found.counts.max() > _MOST_SAMPLES:
            raise StatisticsError(f"answer: {found.counts.max()} samples, should be at most {_MOST_SAMPLES}")
        return found

    def to_bytes(self) -> bytes:
        """The request as bytes for `from_bytes`."""
        joint = self.joint
        writer = Writer(_REQUEST, _JOINT * (joint is not None), "float64")
        writer.numbers("3I", self.round, *self.weight.shape)
        writer.exact(self.weight)
        writer.exact(self.bias)
        if joint is not None:
            writer.numbers("I", len(joint.references))
            writer.integers(np.array(joint.references, dtype=np.int64))
            writer.exact(joint.weight)
            writer.exact(joint.bias)
        return writer.finish()

    @classmethod
    def from_bytes(cls, data: bytes | bytearray | memoryview) -> EvaluationRequest:
        """What `to_bytes` was called on."""
        reader, joint = Reader(data, _REQUEST, _JOINT), None
        number, classes, d = reader.numbers("3I")
        weight, bias = reader.exact(classes, d), reader.exact(classes)
        if reader.flags & _JOINT:
            (views,) = reader.numbers("I")
            references = tuple(reader.integers(views).tolist())
            joint = JointLayer(references, reader.exact(classes, (1 + views) * d), reader.exact(classes))
        reader.finish()
        return cls(number, weight, bias, joint)


def _as_layer(weight: ArrayLike, bias: ArrayLike) -> tuple[Floats, Floats]:
    """A linear layer, (C, d) and (C,), of which some class can be predicted."""
    checked = check.as_floats(weight, "weight", (None, None))
    if not checked.size:
        raise StatisticsError(f"weight: shape is {checked.shape}, should have one row a class")
    offsets = np.array(check.as_array(bias, "bias"), dtype=np.float64)
    check.check_shape(offsets, "bias", (len(checked),))
    if not np.isfinite(offsets).any() or np.isnan(offsets).any() or np.isposinf(offsets).any():
        raise StatisticsError("bias: should be finite for one class or more, minus infinity for the others")
    return checked, check.read_only(offsets)


def wilson(right: int, samples: int) -> tuple[float, float]:
    """Wilson's 95% interval of a share of which `right` of `samples` were seen.

    Example:
        >>> low, high = wilson(3, 7)
        >>> f"{low:.3f} to {high:.3f}"
        '0.158 to 0.750'
    """
    if not samples:
        return 0.0, 1.0
    share, square = right / samples, _Z**2 / samples
    middle = (share + square / 2) / (1 + square)
    half = _Z * math.sqrt(share * (1 - share) / samples + square / (4 * samples)) / (1 + square)
    return (0.0 if right == 0 else middle - half), (1.0 if right == samples else middle + half)


def validation_split(labels: ArrayLike, share: float, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Which samples to train on and to report, and which to set aside, class by class.

    Of n samples of a class share * n are set aside, rounded down or up by chance, so that of a class that many hold a
    few samples of, as of a departed one, `share` of them are, too. A smaller share sets aside some of the same.

    Args:
        labels: (N,).
        share: from 0 to below 1.
        rng: drawn from in the order of the classes.

    Returns:
        The indices of both, in order.
    """
    given = check.as_array(labels, "labels", kinds="iu")
    check.check_shape(given, "labels", (None,))
    if check.as_ridge(share, "share") >= 1:
        raise StatisticsError(f"share: {share}, should be from 0 to below 1")
    aside = np.zeros(len(given), dtype=bool)
    for label in np.unique(given):
        mine, rest = rng.permutation(np.flatnonzero(given == label)), rng.random()
        aside[mine[: int(share * len(mine) + rest)]] = True
    return np.flatnonzero(~aside), np.flatnonzero(aside)
