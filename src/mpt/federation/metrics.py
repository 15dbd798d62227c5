"""How well the rare class, and all the others, are recognised."""

from dataclasses import dataclass

import numpy as np

from mpt.core.validation import Ints


@dataclass(frozen=True, eq=False)
class Scores:
    """Recognition on the test samples.

    Attributes:
        rare_f1: harmonic mean of the rare class's precision and recall; 0 where it is never predicted rightly.
        rare_precision: 0 where the class is never predicted.
        rare_recall: of its test samples.
        accuracy: of all test samples.
        balanced_accuracy: mean recall over the classes.
        others_accuracy: mean recall over all classes but the rare one.
        confusion: (C, C) int64, test samples by label and prediction.
    """

    rare_f1: float
    rare_precision: float
    rare_recall: float
    accuracy: float
    balanced_accuracy: float
    others_accuracy: float
    confusion: Ints


def confusion_matrix(predicted: Ints, labels: Ints, num_classes: int) -> Ints:
    """(C, C): how many samples of each label (N,) were predicted (N,) as each class."""
    counted: Ints = np.bincount(labels * num_classes + predicted, minlength=num_classes**2)
    return counted.reshape(num_classes, num_classes)


def score(confusion: Ints, rare: int) -> Scores:
    """`Scores` of a confusion matrix (C, C), labels by predictions."""
    hits, called, present = confusion[rare, rare], confusion[:, rare].sum(), confusion[rare].sum()
    totals = confusion.sum(axis=1)
    tested = totals > 0
    recalls = confusion.diagonal()[tested] / totals[tested]
    others = recalls[np.flatnonzero(tested) != rare]
    return Scores(
        rare_f1=float(2 * hits / (called + present)) if called + present else 0.0,
        rare_precision=float(hits / called) if called else 0.0,
        rare_recall=float(hits / present) if present else 0.0,
        accuracy=float(confusion.trace() / max(totals.sum(), 1)),
        balanced_accuracy=float(recalls.mean()),
        others_accuracy=float(others.mean()) if len(others) else 0.0,
        confusion=confusion,
    )
