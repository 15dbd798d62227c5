"""What a vehicle minimises: functions of logits (N, C), labels (N,) and the vehicle's samples of each class (C,).

A loss of one's own is such a function, `mine.py:focal(gamma=2)`; a new one that is built in is a line in `LOSSES`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from mpt.base.extensions import Builtin, Extensions
from mpt.learning.settings import LearningError

Loss = Callable[[Tensor, Tensor, Tensor], Tensor]
"""From logits (N, C), labels (N,) and counts (C,), how many samples of each class the vehicle trains on, to the mean
loss, a scalar."""

Counts = Tensor | NDArray[np.int64] | Sequence[int]
LEAST_COUNT = 1e-8


def cross_entropy(logits: Tensor, labels: Tensor, counts: Counts = ()) -> Tensor:
    """The mean cross-entropy of the softmax."""
    return functional.cross_entropy(logits, labels)


@dataclass(frozen=True)
class FedLC:
    """FedLC's loss: cross-entropy of f_c - tau n_c^(-1/4), over all classes.

    A class the vehicle has not got counts as 1e-8 samples: its logit is lowered by 100 tau, which takes it out of the
    softmax, so that the vehicle no longer pushes that class's row of the head away.

    Attributes:
        tau: the strength; 0 is plain cross-entropy.

    Reference: Zhang et al., Federated Learning with Label Distribution Skew via Logits Calibration, ICML 2022; the full
    softmax and the 1e-8 as in FL-bench.
    """

    tau: float = 0.5

    def __post_init__(self) -> None:
        if not 0 <= self.tau < float("inf"):
            raise LearningError(f"tau: {self.tau}, should be finite and not negative")

    def __call__(self, logits: Tensor, labels: Tensor, counts: Counts) -> Tensor:
        """The mean loss of a vehicle with so many samples of each class."""
        shift = self.shift(counts)
        if logits.shape[1:] != shift.shape:
            raise LearningError(f"counts: {len(shift)} classes, but the logits have shape {tuple(logits.shape)}")
        return functional.cross_entropy(logits - shift.to(logits), labels)

    def shift(self, counts: Counts) -> Tensor:
        """(C,) float64: what is taken off the logits. A loss that is no more than this is trained by every trainer."""
        held = torch.as_tensor(counts)
        if held.ndim != 1 or held.numel() == 0 or held.is_complex():
            raise LearningError(f"counts: shape is {tuple(held.shape)}, should be (C,), one number of samples a class")
        if not bool((held >= 0).all()):
            raise LearningError(f"counts: {held.tolist()}, none should be negative")
        return self.tau * held.double().clamp(min=LEAST_COUNT) ** -0.25


LOSSES: Extensions[Loss] = Extensions(
    "loss",
    {
        "cross-entropy": Builtin(cross_entropy, "of the softmax"),
        "fedlc": Builtin(FedLC, "FedLC's calibrated logits; tau=0.5"),
    },
    LearningError,
    own="path.py:function",
    bound=True,
)


@cache
def _found(text: str, file: str) -> Loss:
    return LOSSES.find(text)


def find_loss(loss: str | Loss) -> Loss:
    """The loss that a text names, the same object as long as the file is; a function is one itself."""
    made: Any = _found(loss, LOSSES.known_by(loss)) if isinstance(loss, str) else loss
    if not callable(made):
        raise LearningError(f"loss: {loss!r} is no function, should take logits, labels and counts")
    checked: Loss = made
    return checked


def is_shifted(loss: Loss) -> bool:
    """Whether a loss is the cross-entropy of logits less a vector that the vehicle's counts give."""
    return loss is cross_entropy or hasattr(loss, "shift")


def shift_of(loss: Loss, counts: Tensor) -> Tensor | None:
    """(C,) float64: that vector; None where nothing is taken off."""
    made: Tensor | None = None if loss is cross_entropy else loss.shift(counts)  # type: ignore[attr-defined]
    return made
