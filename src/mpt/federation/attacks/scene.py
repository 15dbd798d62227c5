"""What a hostile vehicle knows when it lies, and what it may lie about."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from torch import Tensor

from mpt.base.errors import MptError
from mpt.base.generators import numpy_generator
from mpt.core import ClassStatistics, CrossStatistics
from mpt.core.validation import Floats, Ints

State = Mapping[str, Tensor]


class AttackError(MptError):
    """An attack cannot be found or does not do what one should; the message says which and what would be right."""


@dataclass(frozen=True)
class Scene:
    """A round as a hostile vehicle sees it. It knows more than a real one would.

    Attributes:
        round: its number.
        vehicle: the one that lies.
        rare: the class that departs.
        num_classes: C.
        gone: whether the class's owner has left.
        leaving: whether this is the vehicle's own last round.
        seed: of the run.
        honest: gives the statistics that the honest vehicles which are there report in this round, by vehicle; it is
            empty where updates are made.
    """

    round: int
    vehicle: int
    rare: int
    num_classes: int
    gone: bool
    leaving: bool
    seed: int
    honest: Callable[[], Mapping[int, ClassStatistics]] = dict

    def rng(self, *more: int) -> np.random.Generator:
        """For attacks that draw: the same in every run of the seed."""
        return numpy_generator(self.seed, " ".join(["attack", *map(str, more)]), self.round, self.vehicle)


class Attack(Protocol):
    """A lie: a class with any of these functions. What it does not have is honest."""

    def labels(self, labels: Ints, scene: Scene) -> Ints:
        """(n,): what the vehicle trains on instead of its labels."""
        ...

    def update(
        self, start: State, update: State, samples: int, scene: Scene, others: Mapping[int, State]
    ) -> tuple[State, int]:
        """The model and the number of samples that it sends after training; `others` are the honest ones' models."""
        ...

    def features(self, features: Floats, labels: Ints, scene: Scene) -> tuple[Floats, Ints]:
        """What it reports statistics and cross moments of, instead of its features (n, d) and labels: as many."""
        ...

    def report(self, report: ClassStatistics, scene: Scene) -> ClassStatistics:
        """What it sends instead of these statistics."""
        ...

    def cross(self, moments: CrossStatistics, scene: Scene) -> CrossStatistics:
        """What it sends instead of these cross moments."""
        ...


HOOKS = ("labels", "update", "features", "report", "cross")


def lies_about(attack: Any, what: str) -> bool:
    """Whether an attack has a function of that name."""
    return callable(getattr(attack, what, None))
