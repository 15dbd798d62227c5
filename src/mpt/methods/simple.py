"""The rows that need no more than means: frozen, mean-shift, remaining-mean, the references, and the softmax head."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from mpt.core.validation import Floats, Ints
from mpt.core.value import Value
from mpt.methods.method import RoundContext


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
class SoftmaxHead:
    """The classifier head itself: softmax, after FedAvg or FedLC."""

    needs_head: ClassVar[bool] = True

    name: str = "fedavg"
    training: str = "continued"

    def depart(self, context: RoundContext) -> None:
        """Nothing is kept."""

    def track(self, state: None, context: RoundContext) -> tuple[None, Linear]:
        """The head of the global model."""
        return None, Linear(*context.head)


@dataclass(frozen=True)
class Frozen:
    """The prototype as it was at departure."""

    needs_departure: ClassVar[bool] = True

    name: str = "frozen"
    training: str = "held-out"

    def depart(self, context: RoundContext) -> Floats:
        """Keep the prototype."""
        prototype: Floats = context.prototype()
        return prototype

    def track(self, state: Floats, context: RoundContext) -> tuple[Floats, Floats]:
        """The kept prototype."""
        return state, state


@dataclass(frozen=True, eq=False)
class Positions(Value):
    """Where the prototypes were at the departure.

    Attributes:
        prototype: (d,), of the departed class.
        classes: (K,), the reference classes.
        means: (K, d), their prototypes over the samples of those who stay.
    """

    prototype: Floats
    classes: Ints
    means: Floats


@dataclass(frozen=True)
class MeanShift:
    """The prototype plus the mean way of the reference classes' prototypes: mu + sum_k (m_k' - m_k) / K.

    The K classes are those of the departure that are still measured; where there are none, the prototype stays.
    """

    needs_departure: ClassVar[bool] = True

    name: str = "mean-shift"
    training: str = "held-out"

    def depart(self, context: RoundContext) -> Positions:
        """Keep where the prototypes are."""
        request = context.request(scatter=False)
        everybody, staying = context.report(request), context.report(request, staying=True)
        classes = staying.reference_classes
        return Positions(everybody.means[context.departed], classes, staying.means[classes])

    def track(self, state: Positions, context: RoundContext) -> tuple[Positions, Floats]:
        """The prototype, moved."""
        ways = context.report(context.request(scatter=False)).means[state.classes] - state.means
        ways = ways[np.isfinite(ways).all(axis=1)]
        return state, state.prototype + ways.mean(axis=0) if len(ways) else state.prototype


@dataclass(frozen=True)
class RemainingMean:
    """The plain mean of the remaining samples; no prototype where there are none."""

    name: str = "remaining-mean"
    training: str = "held-out"

    def depart(self, context: RoundContext) -> None:
        """Nothing is kept."""

    def track(self, state: None, context: RoundContext) -> tuple[None, Floats]:
        """Their mean feature."""
        return None, context.prototype()


@dataclass(frozen=True)
class Oracle:
    """A row to compare with, which knows what no method may know."""

    name: str
    training: str
    knows: Literal["test", "train"]
    outward: bool = False

    def depart(self, context: RoundContext) -> None:
        """Nothing is kept."""

    def track(self, state: None, context: RoundContext) -> tuple[None, Floats]:
        """The mean feature of the samples it knows."""
        return None, context.oracle(self.knows)
