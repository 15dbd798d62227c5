"""One round of federated averaging, as jobs that trainers do; the reference trainer; who takes part."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from torch import Tensor

from mpt.base.extensions import own_code
from mpt.federation.attacks import Attack, AttackError, Scene, lies_about
from mpt.learning import (
    Classifier,
    DivergedError,
    LearningError,
    Loss,
    RunningAverage,
    Samples,
    TrainingSettings,
    batchnorm_prefixes,
    cross_entropy,
    generator,
    numpy_generator,
    train,
)
from mpt.learning.aggregation import Medians, Updates, clipping, find_aggregation


@dataclass
class Noted:
    """What merging the updates of a round has found out.

    Attributes:
        doubted: whether less than half of somebody's update has counted.
        medians: by which the next round's are bounded.
    """

    doubted: bool = False
    medians: Medians | None = None


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
        aggregation: the rule by which the updates become one model.
        hostile: the vehicles whose update is a lie, with what they know.
        holders: the vehicles that hold most of a class.
        medians: of the round before, by which updates are bounded.
        noted: takes what merging them finds out.
    """

    start: dict[str, Tensor]
    vehicles: Mapping[int, Samples]
    settings: TrainingSettings
    seed: int
    round: int
    loss: Loss = cross_entropy
    moments: Mapping[str, Tensor] = field(default_factory=dict)
    aggregation: str = "average"
    hostile: Mapping[int, tuple[Attack, Scene]] = field(default_factory=dict)
    holders: frozenset[int] = frozenset()
    medians: Medians | None = None
    noted: Noted = field(default_factory=Noted)

    @property
    def plain(self) -> bool:
        """Whether the updates are honest, and averaged as they are."""
        return self.aggregation == "average" and not self.hostile


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
    running = merging(model, job)
    for vehicle, samples in sorted(job.vehicles.items()):
        if len(samples.labels):
            running.add(vehicle, train_vehicle(model, job, vehicle), len(samples.labels))
    return running.state()


class Merging(Protocol):
    """Takes a job's updates as they are made, and gives the new global model."""

    def add(self, vehicle: int, state: Mapping[str, Tensor], samples: int) -> None:
        """One vehicle's, which the caller may overwrite."""
        ...

    def add_many(self, vehicles: Sequence[int], states: Mapping[str, Tensor], samples: Sequence[int]) -> None:
        """Those of several, each tensor (V, ...)."""
        ...

    def state(self) -> dict[str, Tensor]:
        """What comes of them."""
        ...


def merging(model: Classifier, job: Job) -> Merging:
    """For a job: a running average, or where that will not do, all updates at once."""
    return _Averaged(RunningAverage(model)) if job.plain else _Held(job, batchnorm_prefixes(model))


@dataclass
class _Averaged:
    """As they come."""

    average: RunningAverage

    def add(self, vehicle: int, state: Mapping[str, Tensor], samples: int) -> None:
        self.average.add(state, samples)

    def add_many(self, vehicles: Sequence[int], states: Mapping[str, Tensor], samples: Sequence[int]) -> None:
        self.average.add_many(states, samples)

    def state(self) -> dict[str, Tensor]:
        return self.average.state()


@dataclass
class _Held:
    """All of them: lies may depend on the others, and so may rules. A lie that is no model is left out."""

    job: Job
    batchnorm: tuple[str, ...]
    updates: dict[int, tuple[Mapping[str, Tensor], int]] = field(default_factory=dict)

    def add(self, vehicle: int, state: Mapping[str, Tensor], samples: int) -> None:
        self.updates[vehicle] = {name: tensor.clone() for name, tensor in state.items()}, samples

    def add_many(self, vehicles: Sequence[int], states: Mapping[str, Tensor], samples: Sequence[int]) -> None:
        for place, (vehicle, count) in enumerate(zip(vehicles, samples, strict=True)):
            self.add(vehicle, {name: tensor[place] for name, tensor in states.items()}, count)

    def state(self) -> dict[str, Tensor]:
        job, sent = self.job, dict(sorted(self.updates.items()))
        honest = {v: state for v, (state, _) in sent.items() if v not in job.hostile}
        for vehicle, (attack, scene) in sorted(job.hostile.items()):
            if vehicle in sent and lies_about(attack, "update"):
                with own_code("attack", AttackError):
                    sent[vehicle] = attack.update(job.start, *sent[vehicle], scene, honest)
                if not all(bool(tensor.isfinite().all()) for tensor in sent[vehicle][0].values()):
                    del sent[vehicle]
        states, samples = [state for state, _ in sent.values()], [float(n) for _, n in sent.values()]
        holders = frozenset(place for place, vehicle in enumerate(sent) if vehicle in job.holders)
        updates = Updates(job.start, states, samples, self.batchnorm, holders)
        if job.aggregation == "clipped":
            bounded = clipping(updates, job.medians)
            made = bounded.state()
            job.noted.doubted, job.noted.medians = bounded.doubted, bounded.medians
            return made
        with own_code("aggregation", LearningError):
            return find_aggregation(job.aggregation)(updates)


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
