import numpy as np
import pytest

from mpt.federation.metrics import confusion_matrix, score


def test_scores_by_hand():
    labels = np.array([0, 0, 0, 0, 1, 1, 2, 2])
    predicted = np.array([0, 0, 1, 2, 1, 0, 2, 2])
    scores = score(confusion_matrix(predicted, labels, 3), [0])
    assert scores.precision == pytest.approx([2 / 3, 1 / 2, 2 / 3])
    assert scores.recall == pytest.approx([2 / 4, 1 / 2, 1])
    assert scores.f1 == pytest.approx([4 / 7, 1 / 2, 4 / 5])
    assert scores.accuracy == pytest.approx(5 / 8)
    assert scores.balanced_accuracy == pytest.approx((1 / 2 + 1 / 2 + 1) / 3)
    assert scores.others_accuracy == pytest.approx((1 / 2 + 1) / 2)
    assert scores.confusion.tolist() == [[2, 1, 1], [1, 1, 0], [0, 0, 2]]
    assert scores.confusion.dtype == np.int64


def test_a_class_that_is_never_predicted_scores_zero():
    scores = score(confusion_matrix(np.array([1, 1, 1]), np.array([0, 1, 1]), 3), [0])
    assert (scores.f1[0], scores.precision[0], scores.recall[0]) == (0, 0, 0)
    assert scores.balanced_accuracy == 0.5
