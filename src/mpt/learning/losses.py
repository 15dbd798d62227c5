"""What a vehicle minimises: plain functions of logits (N, C) and labels (N,)."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from mpt.learning.errors import LearningError

Loss = Callable[[Tensor, Tensor], Tensor]
"""From logits (N, C) and labels (N,) to the mean loss, a scalar."""

LEAST_COUNT = 1e-8


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """The mean cross-entropy of the softmax."""
    return functional.cross_entropy(logits, labels)


def fedlc(counts: Tensor | NDArray[np.int64] | Sequence[int], tau: float = 0.5) -> Loss:
    """FedLC's loss for one vehicle: cross-entropy of f_c - tau n_c^(-1/4), over all classes.

    A class the vehicle has not got counts as 1e-8 samples: its logit is lowered by 100 tau, which takes it out of the
    softmax, so that the vehicle no longer pushes that class's row of the head away.

    Args:
        counts: (C,), this vehicle's samples of each class.
        tau: the strength; 0 is plain cross-entropy.

    Reference: Zhang et al., Federated Learning with Label Distribution Skew via Logits Calibration, ICML 2022; the full
    softmax and the 1e-8 as in FL-bench.
    """
    shift = calibration(counts, tau)

    def calibrated(logits: Tensor, labels: Tensor) -> Tensor:
        if logits.shape[1:] != shift.shape:
            raise LearningError(f"counts: {len(shift)} classes, but the logits have shape {tuple(logits.shape)}")
        return functional.cross_entropy(logits - shift.to(logits), labels)

    return calibrated


def calibration(counts: Tensor | NDArray[np.int64] | Sequence[int], tau: float = 0.5) -> Tensor:
    """(C,) float64: what FedLC takes off the logits of a vehicle with so many samples of each class."""
    held = torch.as_tensor(counts)
    if held.ndim != 1 or held.numel() == 0 or held.is_complex():
        raise LearningError(f"counts: shape is {tuple(held.shape)}, should be (C,), one number of samples a class")
    if not bool((held >= 0).all()):
        raise LearningError(f"counts: {held.tolist()}, none should be negative")
    if not 0 <= tau < float("inf"):
        raise LearningError(f"tau: {tau}, should be finite and not negative")
    return tau * held.double().clamp(min=LEAST_COUNT) ** -0.25
