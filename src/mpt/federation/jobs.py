"""One round of federated averaging, as jobs that trainers do; the reference trainer; who takes part."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from mpt.base.extensions import own_code
from mpt.learning import (
    Classifier,
    DivergedError,
    LearningError,
    Loss,
    RunningAverage,
    Samples,
    TrainingSettings,
    cross_entropy,
    generator,
    numpy_generator,
    train,
)


@dataclass(frozen=True, eq=False)
class Job:
    """One round of one training, before it is trained.

    Attributes:
        start: the global model that every vehicle starts from. Jobs may share it; a trainer leaves it as it is.
        vehicles: what each participating vehicle trains on, by id. A vehicle without samples takes no part.
        settings: of local training.
        seed: with the round and the vehicle's id, what `generator(seed, "training", round, vehicle)` draws from.
        round: its number.
        loss: what vehicles minimise.
        moments: what the server's optimiser has kept with `start`; no trainer's business.
    """

    start: dict[str, Tensor]
    vehicles: Mapping[int, Samples]
    settings: TrainingSettings
    seed: int
    round: int
    loss: Loss = cross_entropy
    moments: Mapping[str, Tensor] = field(default_factory=dict)


Trainer = Callable[[Classifier, Sequence[Job]], list[dict[str, Tensor]]]
"""From the jobs of one round to the new global models, one a job, as new tensors. The classifier is only the
architecture, into which a trainer may load what it likes."""


def work_of(train: Trainer, model: Classifier, jobs: Sequence[Job]) -> list[dict[str, Tensor]]:
    """What a trainer makes of the jobs of one round; where it diverged, the sentence names round and setting."""
    try:
        return train(model, jobs)
    except DivergedError as error:
        raise diverged(jobs[0].round, jobs[0].settings.lr, str(error)) from error


def diverged(round: int, lr: float, why: str) -> LearningError:
    """What to say of a round whose models, or their features, are no longer finite."""
    return LearningError(f"round {round}: training diverged with lr {lr:g} ({why}); try a smaller --lr")


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
    drawn = generator(job.seed, "training", job.round, vehicle)
    with own_code("training", LearningError):
        train(model, samples.images, samples.labels, job.settings, generator=drawn, loss=job.loss)
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
