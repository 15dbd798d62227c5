"""The trainings that methods read, and the one round of federated averaging that all of them repeat."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from mpt.learning import (
    Classifier,
    RunningAverage,
    Settings,
    cross_entropy,
    fedlc,
    generator,
    numpy_generator,
    train,
)
from mpt.methods.protocol import Training

State = Mapping[str, Tensor]


@dataclass(frozen=True)
class Rules:
    """What sets a training apart.

    Attributes:
        departs: whether the vehicle leaves at all.
        holds_out: whether the remaining samples are kept out of training once it has left.
        calibrates: whether vehicles train with FedLC's loss.
    """

    departs: bool = True
    holds_out: bool = True
    calibrates: bool = False


TRAININGS: dict[Training, Rules] = {
    "held-out": Rules(),
    "continued": Rules(holds_out=False),
    "fedlc": Rules(holds_out=False, calibrates=True),
    "live": Rules(departs=False, holds_out=False),
}


@dataclass(frozen=True)
class Samples:
    """One vehicle's training samples, on the device: images (n, C, H, W) uint8, labels (n,)."""

    images: Tensor
    labels: Tensor

    def without(self, label: int) -> "Samples":
        """All but one class's."""
        kept = self.labels != label
        return Samples(self.images[kept], self.labels[kept])


def federated_round(
    model: Classifier,
    vehicles: Mapping[int, Samples],
    settings: Settings,
    *,
    seed: int,
    round: int,
    calibrates: bool,
) -> None:
    """Train a copy of `model` on every vehicle and load their average, by sample counts, into it."""
    start = copy.deepcopy(model.state_dict())
    running = RunningAverage(model)
    for vehicle, samples in sorted(vehicles.items()):
        if not len(samples.labels):
            continue
        model.load_state_dict(start)
        counts = torch.bincount(samples.labels, minlength=model.num_classes)
        loss = fedlc(counts) if calibrates else cross_entropy
        drawn = generator(seed, "training", round, vehicle)
        train(model, samples.images, samples.labels, settings, generator=drawn, loss=loss)
        running.add(model.state_dict(), len(samples.labels))
    model.load_state_dict(running.state())


def participants(present: tuple[int, ...], share: float, *, seed: int, round: int) -> tuple[int, ...]:
    """The vehicles that train in this round: a share of those present, at least one."""
    if share >= 1:
        return present
    count = max(1, round_half_up(share * len(present)))
    chosen = numpy_generator(seed, "participation", round).permutation(len(present))[:count]
    return tuple(sorted(present[i] for i in chosen))


def round_half_up(value: float) -> int:
    """To the nearest whole number, halves up, so that 50% of 3 is 2."""
    return int(value + 0.5)
