import math

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="mpt.learning needs torch, which is not installed")

from mpt.learning import FedLC, LearningError, cross_entropy


def test_cross_entropy_by_hand():
    logits = torch.tensor([[0.0, math.log(3.0)], [0.0, 0.0]], dtype=torch.float64)
    expected = (-math.log(3 / 4) - math.log(1 / 2)) / 2
    assert float(cross_entropy(logits, torch.tensor([1, 0]))) == pytest.approx(expected, abs=1e-12)


def test_fedlc_by_hand():
    """n = (16, 1, 81), tau = 2: the logits are lowered by 1, 2 and 2/3."""
    logits = torch.tensor([[1.0, 0.5, -0.2], [0.3, 2.0, 0.1]], dtype=torch.float64)
    value = FedLC(tau=2.0)(logits, torch.tensor([0, 2]), [16, 1, 81])
    first = [math.exp(x) for x in (1.0 - 1, 0.5 - 2, -0.2 - 2 / 3)]
    second = [math.exp(x) for x in (0.3 - 1, 2.0 - 2, 0.1 - 2 / 3)]
    expected = -(math.log(first[0] / sum(first)) + math.log(second[2] / sum(second))) / 2
    assert float(value) == pytest.approx(expected, abs=1e-12)


def test_an_absent_class_is_masked_and_everything_is_finite():
    logits = torch.randn(6, 4, generator=torch.Generator().manual_seed(0), requires_grad=True)
    labels = torch.tensor([0, 1, 3, 3, 1, 0])
    value = FedLC()(logits, labels, [10, 20, 0, 30])
    (gradient,) = torch.autograd.grad(value, logits)
    value, logits = value.detach(), logits.detach()
    assert bool(gradient.isfinite().all())
    assert float(gradient[:, 2].abs().max()) < 1e-15
    without = FedLC()(logits[:, [0, 1, 3]], torch.tensor([0, 1, 2, 2, 1, 0]), [10, 20, 30])
    assert float(value) == pytest.approx(float(without), abs=1e-6)
    assert float(gradient[:, [0, 1, 3]].abs().max()) > 0.01


def test_a_label_of_an_absent_class_is_still_finite():
    value = FedLC()(torch.zeros(1, 2), torch.tensor([1]), [10, 0])
    assert float(value) == pytest.approx(50 - 0.5 * 10**-0.25, abs=1e-4)


def test_equal_counts_and_tau_zero_are_plain_cross_entropy():
    logits, labels = torch.randn(5, 3, dtype=torch.float64), torch.tensor([0, 1, 2, 0, 1])
    for loss, counts in (
        (FedLC(), [7, 7, 7]),
        (FedLC(tau=0.0), [1, 50, 0]),
        (FedLC(), np.array([7, 7, 7])),
        (FedLC(), torch.tensor([7] * 3)),
        (cross_entropy, [1, 50, 0]),
    ):
        assert float(loss(logits, labels, counts)) == pytest.approx(float(cross_entropy(logits, labels)), abs=1e-12)


def fedlc_of(counts):
    """The loss of one sample, on a vehicle with so many of each class."""
    return FedLC()(torch.zeros(1, 2), torch.tensor([0]), counts)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: fedlc_of([[1, 2]]), r"counts: shape is \(1, 2\), should be \(C,\)"),
        (lambda: fedlc_of([]), r"counts: shape is \(0,\)"),
        (lambda: fedlc_of([1, -2]), r"counts: \[1, -2\], none should be negative"),
        (lambda: fedlc_of([1.0, math.nan]), "none should be negative"),
        (lambda: FedLC(tau=-1), "tau: -1, should be finite and not negative"),
        (lambda: FedLC(tau=math.nan), "tau: nan"),
        (
            lambda: FedLC()(torch.zeros(1, 3), torch.tensor([0]), [1, 2]),
            r"counts: 2 classes, but the logits .*\(1, 3\)",
        ),
    ],
)
def test_wrong_input_is_refused(make, message):
    with pytest.raises(LearningError, match=message):
        make()
