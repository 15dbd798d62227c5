"""How well each class is recognised."""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from mpt.core.validation import Floats, Ints


@dataclass(frozen=True, eq=False)
class Scores:
    """Recognition on the test samples.

    Attributes:
        f1: (C,), harmonic mean of a class's precision and recall; 0 where it is never predicted rightly.
        precision: (C,), 0 where the class is never predicted.
        recall: (C,), of its test samples; 0 where it has none.
        accuracy: of all test samples.
        balanced_accuracy: mean recall over the classes that have test samples.
        others_accuracy: the same without the departing ones.
        confusion: (C, C) int64, test samples by label and prediction.
    """

    f1: Floats
    precision: Floats
    recall: Floats
    accuracy: float
    balanced_accuracy: float
    others_accuracy: float
    confusion: Ints

    @property
    def tested(self) -> list[int]:
        """The classes that have test samples."""
        return [int(c) for c in np.flatnonzero(self.confusion.sum(axis=1))]


def confusion_matrix(predicted: Ints, labels: Ints, num_classes: int) -> Ints:
    """(C, C): how many samples of each label (N,) were predicted (N,) as each class."""
    counted: Ints = np.bincount(labels * num_classes + predicted, minlength=num_classes**2)
    return counted.reshape(num_classes, num_classes)


def score(confusion: Ints, departing: Collection[int] = ()) -> Scores:
    """`Scores` of a confusion matrix (C, C), labels by predictions."""
    hits, called, present = confusion.diagonal(), confusion.sum(axis=0), confusion.sum(axis=1)
    tested = present > 0
    recalls = hits[tested] / present[tested]
    others = recalls[~np.isin(np.flatnonzero(tested), list(departing))]
    return Scores(
        f1=2 * hits / np.maximum(called + present, 1),
        precision=hits / np.maximum(called, 1),
        recall=hits / np.maximum(present, 1),
        accuracy=float(hits.sum() / max(present.sum(), 1)),
        balanced_accuracy=float(recalls.mean()),
        others_accuracy=float(others.mean()) if len(others) else 0.0,
        confusion=confusion,
    )
