"""The rows that need no more than means: frozen, remaining-mean, the references, and the softmax head."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from mpt.core.validation import Floats, Ints
from mpt.methods.method import Now, Training


@dataclass(frozen=True)
class Linear:
    """A linear layer as a readout: argmax of features @ weight.T + bias."""

    weight: Floats
    bias: Floats

    def predict(self, features: Floats) -> Ints:
        """The class of each row of `features` (N, d)."""
        scores = np.asarray(features, dtype=np.float64) @ self.weight.T + self.bias
        classes: Ints = np.argmax(scores, axis=1).astype(np.int64)
        return classes

    def to_linear(self) -> tuple[Floats, Floats]:
        """Itself."""
        return self.weight, self.bias


@dataclass(frozen=True)
class Head:
    """The classifier head itself: softmax, after FedAvg or FedLC."""

    name: str = "fedavg"
    training: Training = "continued"

    def depart(self, now: Now) -> None:
        """Nothing is kept."""

    def track(self, kept: None, now: Now) -> tuple[None, Linear]:
        """The head of the global model."""
        return None, Linear(*now.head)


@dataclass(frozen=True)
class Frozen:
    """The prototype as it was at departure."""

    needs_departure: ClassVar[bool] = True

    name: str = "frozen"
    training: Training = "held-out"

    def depart(self, now: Now) -> Floats:
        """Keep the prototype."""
        prototype: Floats = now.prototype()
        return prototype

    def track(self, kept: Floats, now: Now) -> tuple[Floats, Floats]:
        """The kept prototype."""
        return kept, kept


@dataclass(frozen=True)
class RemainingMean:
    """The plain mean of the remaining samples; no prototype where there are none."""

    name: str = "remaining-mean"
    training: Training = "held-out"

    def depart(self, now: Now) -> None:
        """Nothing is kept."""

    def track(self, kept: None, now: Now) -> tuple[None, Floats]:
        """Their mean feature."""
        return None, now.prototype()


@dataclass(frozen=True)
class Reference:
    """A row to compare with, which knows what no method may know."""

    name: str
    training: Training
    knows: Literal["test", "train"]
    outward: bool = False

    def depart(self, now: Now) -> None:
        """Nothing is kept."""

    def track(self, kept: None, now: Now) -> tuple[None, Floats]:
        """The mean feature of the samples it knows."""
        return None, now.reference(self.knows)


oracle = Reference("oracle", "held-out", "test")
oracle_train = Reference("oracle-train", "held-out", "train")
oracle_train_outward = Reference("oracle-train:outward", "held-out", "train", outward=True)
live = Reference("live", "live", "train")
