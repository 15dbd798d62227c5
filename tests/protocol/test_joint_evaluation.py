"""A readout of two views that vehicles evaluate: what it decides, on whom the current view decides alone, and bytes."""

import numpy as np
import pytest

from mpt.core import StatisticsError
from mpt.protocol.evaluation import EvaluationRequest, Evidence, JointLayer

RNG = np.random.default_rng(0)
C, D = 3, 4
H, Z, LABELS = RNG.standard_normal((40, D)), RNG.standard_normal((40, D)), np.arange(40) % C
CURRENT = RNG.standard_normal((C, D)), np.zeros(C)
JOINT = JointLayer((2,), RNG.standard_normal((C, 2 * D)), np.array([0.0, 0.5, -np.inf]))
REQUEST = EvaluationRequest(5, *CURRENT, JOINT)


def counted(predicted):
    counts = np.zeros((C, C), dtype=int)
    np.add.at(counts, (LABELS, predicted), 1)
    return counts


def test_a_sample_of_a_class_that_both_views_know_is_both_views_to_decide():
    alone = np.argmax(H @ CURRENT[0].T, axis=1)
    both = np.argmax(np.concatenate([H, Z], axis=1) @ JOINT.weight.T + JOINT.bias, axis=1)
    expected = np.where(alone == 2, 2, both)
    assert 0 < np.mean(expected != alone) < 1
    found = REQUEST.read(REQUEST.answer(H, LABELS, {2: Z}))
    np.testing.assert_array_equal(found.counts, counted(expected))
    assert (found.vehicles, found.alone) == (1, 0)


@pytest.mark.parametrize("earlier", [{}, {3: Z}])
def test_without_the_earlier_features_the_current_view_decides_alone_and_says_so(earlier):
    found = REQUEST.read(REQUEST.answer(H, LABELS, earlier))
    np.testing.assert_array_equal(found.counts, counted(np.argmax(H @ CURRENT[0].T, axis=1)))
    assert found.alone == 1
    both = found.merge(REQUEST.read(REQUEST.answer(H, LABELS, {2: Z})))
    assert (both.vehicles, both.alone) == (2, 1)
    assert Evidence.from_bytes(both.to_bytes(), C) == both


def test_a_request_of_one_view_has_no_answer_of_the_current_view_alone():
    plain = EvaluationRequest(5, *CURRENT)
    assert plain.read(plain.answer(H, LABELS)).alone == 0
    with pytest.raises(StatisticsError, match="of the current view alone, but there is no other one"):
        plain.read(REQUEST.answer(H, LABELS))


def test_bytes_come_back_and_those_of_one_view_are_as_they_were():
    assert EvaluationRequest.from_bytes(REQUEST.to_bytes()) == REQUEST
    plain = EvaluationRequest(5, *CURRENT)
    assert len(plain.to_bytes()) == 20 + 12 + 8 * (C * D + C)
    assert len(REQUEST.to_bytes()) - len(plain.to_bytes()) == 4 + 8 + 8 * (2 * C * D + C)
    assert len(plain.count(H, LABELS).to_bytes()) % 8 == len(Evidence(1, np.eye(C, dtype=int)).to_bytes()) % 8


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda: JointLayer((), JOINT.weight, JOINT.bias), "should have columns of 1 views"),
        (lambda: JointLayer((1, 2), JOINT.weight, JOINT.bias), "should have columns of 3 views"),
        (lambda: JointLayer((1,), JOINT.weight, np.full(C, -np.inf)), "bias: should be finite"),
        (lambda: EvaluationRequest(5, np.ones((C, D + 1)), np.zeros(C), JOINT), "joint weight: shape"),
        (lambda: Evidence(1, np.eye(C, dtype=int), 1, 2), "alone: 2"),
    ],
)
def test_what_does_not_fit_is_refused(made, said):
    with pytest.raises(StatisticsError, match=said):
        made()
