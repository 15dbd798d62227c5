"""Lies in training: wrong labels, and updates that are none."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from mpt.core.validation import Ints
from mpt.federation.attacks.scene import Scene, State


def _moved(start: State, update: State, by: float) -> State:
    """`by` times the way from the global model to the vehicle's; variances do not go below zero."""
    made = {}
    for name, tensor in update.items():
        if not tensor.is_floating_point():
            made[name] = tensor
            continue
        moved = (start[name].double() + by * (tensor.double() - start[name].double())).to(tensor.dtype)
        made[name] = moved.clamp(min=0) if name.endswith("running_var") else moved
    return made


@dataclass(frozen=True)
class WrongLabels:
    """It trains on the next class's label in place of each."""

    def labels(self, labels: Ints, scene: Scene) -> Ints:
        """The next one's."""
        return (labels + 1) % scene.num_classes


@dataclass(frozen=True)
class Flip:
    """Its update goes the other way, `by` times as far."""

    by: float = 1.0

    def update(
        self, start: State, update: State, samples: int, scene: Scene, others: Mapping[int, State]
    ) -> tuple[State, int]:
        """Backwards."""
        return _moved(start, update, -self.by), samples


@dataclass(frozen=True)
class Boost:
    """Its update goes `by` times as far."""

    by: float = 10.0

    def update(
        self, start: State, update: State, samples: int, scene: Scene, others: Mapping[int, State]
    ) -> tuple[State, int]:
        """Further."""
        return _moved(start, update, self.by), samples


@dataclass(frozen=True)
class Zero:
    """All its weights are zero, and it says that it has trained on `samples`."""

    samples: int = 2**31 - 1

    def update(
        self, start: State, update: State, samples: int, scene: Scene, others: Mapping[int, State]
    ) -> tuple[State, int]:
        """Nothing."""
        return {name: torch.zeros_like(tensor) for name, tensor in update.items()}, self.samples


@dataclass(frozen=True)
class Little:
    """A little is enough (Baruch et al., NeurIPS 2019): the honest updates' mean, every weight `z` deviations off."""

    z: float = 1.0

    def update(
        self, start: State, update: State, samples: int, scene: Scene, others: Mapping[int, State]
    ) -> tuple[State, int]:
        """Off by as much as honest ones are."""
        if len(others) < 2:
            return update, samples
        made = {}
        for name, tensor in update.items():
            if not tensor.is_floating_point():
                made[name] = tensor
                continue
            honest = torch.stack([state[name].double() for state in others.values()])
            off = (honest.mean(dim=0) - self.z * honest.std(dim=0)).to(tensor.dtype)
            made[name] = off.clamp(min=0) if name.endswith("running_var") else off
        return made, samples
