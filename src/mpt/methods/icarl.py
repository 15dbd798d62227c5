"""iCaRL's nearest-mean-of-exemplars rule (Rebuffi et al., CVPR 2017) with the remaining samples as exemplars."""

from dataclasses import dataclass

import numpy as np

from mpt.core.validation import Floats, Ints
from mpt.methods.method import RoundContext
from mpt.protocol.request import unit


@dataclass(frozen=True)
class Cosine:
    """The class whose unit prototype has the largest cosine; a class without one is never predicted."""

    prototypes: Floats

    def predict(self, features: Floats) -> Ints:
        """The class of each row of `features` (N, d)."""
        cosines = unit(np.asarray(features, dtype=np.float64)) @ unit(self.prototypes).T
        classes: Ints = np.argmax(np.where(np.isnan(cosines), -np.inf, cosines), axis=1).astype(np.int64)
        return classes

    def to_linear(self) -> tuple[Floats, Floats]:
        """The same decision as argmax of `features @ weight.T + bias`: the length of a feature changes no order."""
        missing = np.asarray(np.isnan(self.prototypes).any(axis=1))
        weight = np.where(missing[:, None], 0.0, unit(self.prototypes))
        return weight, np.where(missing, -np.inf, 0.0)


@dataclass(frozen=True)
class Icarl:
    """Features are normalised, averaged, and normalised again; the nearest is the one with the largest cosine."""

    name: str = "icarl"
    training: str = "held-out"

    def depart(self, context: RoundContext) -> None:
        """Nothing is kept."""

    def track(self, state: None, context: RoundContext) -> tuple[None, Cosine]:
        """Means of unit features over the samples that are there."""
        return None, Cosine(context.report(context.request(scatter=False, unit=True)).means)
