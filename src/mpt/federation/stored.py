"""Features that are there already, as arrays: read from a record, or made up."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from mpt.base.extensions import own_code
from mpt.core.validation import Floats, Ints
from mpt.federation.metrics import confusion_matrix
from mpt.methods import MethodError
from mpt.methods.method import Readout
from mpt.protocol.local import Local


def predictions(readout: Readout, test: Floats, num_classes: int) -> Ints:
    """(N,): what a readout predicts for the test samples (N, d), if that is a class for each."""
    name = f"{type(readout).__name__}.predict"
    with own_code(f"readout: {name}", MethodError):
        predicted = np.asarray(readout.predict(test))
    if predicted.shape != (len(test),) or predicted.dtype.kind not in "iu":
        found = f"{predicted.dtype} of shape {predicted.shape}"
        raise MethodError(f"method: {name} gave {found}, should be integers of shape ({len(test)},)")
    wrong = predicted[(predicted < 0) | (predicted >= num_classes)]
    if len(wrong):
        raise MethodError(f"method: {name} gave class {wrong[0]}, should be from 0 to {num_classes - 1}")
    return predicted.astype(np.int64)


class TestFeatures(Protocol):
    """A model's features of the test samples."""

    @property
    def test(self) -> Floats:
        """(N, d)."""
        ...


def views_of(readout: Readout) -> int:
    """How many models' features a readout takes side by side: one, unless it has `views`."""
    return int(getattr(readout, "views", 1))


def side_by_side(readout: Readout, test: Floats, before: Sequence[TestFeatures]) -> Floats:
    """(N, d), or (N, V d): the test samples as a readout takes them, some under departure-time models too."""
    views, name = views_of(readout), type(readout).__name__
    if views == 1:
        return test
    if views != 1 + len(before):
        raise MethodError(f"readout: {name} takes features of {views} models, should be of the {1 + len(before)} here")
    return np.concatenate([test, *(one.test for one in before)], axis=1)


@dataclass(frozen=True, eq=False)
class Stored:
    """What one model makes of the samples.

    Attributes:
        labels: (n,) of each vehicle's samples, by id.
        features: (n, d) of the same.
        test_labels: (N,).
        test: (N, d).
        test_mean: (d,), of the rare class's test samples.
        rare_mean: (d,), of all the rare class's training samples, departed ones included.
        head: weight (C, d) and bias (C,).
        seconds: that embedding took.
    """

    labels: Mapping[int, Ints]
    features: Mapping[int, Floats]
    test_labels: Ints
    test: Floats
    test_mean: Floats
    rare_mean: Floats
    head: tuple[Floats, Floats]
    seconds: float = 0.0

    def __post_init__(self) -> None:
        for array in (*self.features.values(), self.test, self.test_mean, self.rare_mean, *self.head):
            array.setflags(write=False)

    def local(self, vehicle: int, here: tuple[int, ...], earlier: Callable[[], Floats], before: object) -> Local:
        """A vehicle; what it answers does not depend on who else is there."""
        return Local(self.labels[vehicle], self.features[vehicle], earlier)

    def vehicle(self, vehicle: int) -> Floats:
        """(n, d): of a vehicle's samples."""
        return self.features[vehicle]

    def confusions(self, readouts: Sequence[Readout], before: Sequence[TestFeatures] = ()) -> list[Ints]:
        """(C, C) each: the test samples by label and prediction; `before` for readouts that take several views."""
        classes = len(self.head[1])
        made = (predictions(r, side_by_side(r, self.test, before), classes) for r in readouts)
        return [confusion_matrix(predicted, self.test_labels, classes) for predicted in made]
