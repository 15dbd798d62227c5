"""The trainings that methods read, and the one round of federated averaging that all of them repeat."""

from collections.abc import Callable, Mapping, Sequence
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
from mpt.methods.method import Training


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


@dataclass(frozen=True, eq=False)
class Samples:
    """One vehicle's training samples, on the device: images (n, C, H, W) uint8, labels (n,).

    They equal themselves and no others, so that who keeps something of them may know them by themselves.
    """

    images: Tensor
    labels: Tensor

    def without(self, label: int) -> "Samples":
        """All but one class's."""
        kept = self.labels != label
        return self if bool(kept.all()) else Samples(self.images[kept], self.labels[kept])


@dataclass(frozen=True, eq=False)
class Job:
    """One round of one training, before it is trained.

    Attributes:
        start: the global model that every vehicle starts from. Jobs may share it; a trainer leaves it as it is.
        vehicles: what each participating vehicle trains on, by id. A vehicle without samples takes no part.
        settings: of local training.
        seed: with the round and the vehicle's id, what `generator(seed, "training", round, vehicle)` draws from.
        round: its number.
        calibrates: whether vehicles train with FedLC's loss.
    """

    start: dict[str, Tensor]
    vehicles: Mapping[int, Samples]
    settings: Settings
    seed: int
    round: int
    calibrates: bool


Trainer = Callable[[Classifier, Sequence[Job]], list[dict[str, Tensor]]]
"""From the jobs of one round to the new global models, one a job, as new tensors. The classifier is only the
architecture, into which a trainer may load what it likes."""


def train_plain(model: Classifier, jobs: Sequence[Job]) -> list[dict[str, Tensor]]:
    """The reference trainer: one job and one vehicle after the other, averaged by sample counts."""
    return [_train_job(model, job) for job in jobs]


def _train_job(model: Classifier, job: Job) -> dict[str, Tensor]:
    running = RunningAverage(model)
    for vehicle, samples in sorted(job.vehicles.items()):
        if len(samples.labels):
            running.add(train_vehicle(model, job, vehicle), len(samples.labels))
    return running.state()


def train_vehicle(model: Classifier, job: Job, vehicle: int) -> Mapping[str, Tensor]:
    """One vehicle's update: the state dict of `model`, which the next call overwrites."""
    samples = job.vehicles[vehicle]
    model.load_state_dict(job.start)
    counts = torch.bincount(samples.labels, minlength=model.num_classes)
    loss = fedlc(counts) if job.calibrates else cross_entropy
    drawn = generator(job.seed, "training", job.round, vehicle)
    train(model, samples.images, samples.labels, job.settings, generator=drawn, loss=loss)
    state: Mapping[str, Tensor] = model.state_dict()
    return state


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
