"""What `tried_views.py` tries: trainings by path, a federation that knows them, and readouts; see there."""

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from mpt.core import ClassStatistics, NearestClassMean, StatisticsError
from mpt.core.equations import regularize
from mpt.core.readout import DEFAULT_OUTWARD
from mpt.core.two_views import DEFAULT_JOINT_RIDGE
from mpt.federation.engine import Federation
from mpt.federation.features import Features
from mpt.federation.jobs import Job, merging, train_vehicle
from mpt.federation.state import FederationState, Handle, JobKey, Model, NewModels
from mpt.federation.view import ServerView, views
from mpt.learning import Classifier, LearningError, Samples, cross_entropy, generator
from mpt.learning.augmentation import draw_epoch
from mpt.learning.training import channels_last, epochs_of
from mpt.methods import Method, RoundContext, Training, find_method
from mpt.methods.mpt_duo import MptDuo
from mpt.methods.mpt_x import MptX, MptXState
from mpt.methods.simple import Oracle
from mpt.protocol.local import Local
from mpt.protocol.parts import Asked, on_vehicle

GAMMAS = (0.0, 0.2, 0.6, 0.8, 1.0)
ASIDE = 0.1


@dataclass(frozen=True)
class Tried:
    """Stands for a loss and says what is tried; only `TriedFederation` knows what to do with it.

    Attributes:
        pull: B.
        soft: A.
        aside: S.
        tukey: whether features are transformed.
    """

    pull: float = 0.0
    soft: float = 0.0
    aside: float = 0.0
    tukey: bool = False

    def __call__(self, logits: Tensor, labels: Tensor, counts: Tensor) -> Tensor:
        """Refused: an engine that takes it for a loss would leave out what it says."""
        raise LearningError(f"{self}: it is trained by benchmarks/tried_views.py alone")


def tried(**what: Any) -> Training:
    """A training of `TRAININGS`, by path: `tried_views.py:tried(pull=0.1)`."""
    return Training("tried", loss=Tried(**what))


TRAININGS = {
    "held-out": "held-out",
    "pull .1": f"{__file__}:tried(pull=0.1)",
    "pull .3": f"{__file__}:tried(pull=0.3)",
    "soft .3": f"{__file__}:tried(soft=0.3)",
    "soft 1": f"{__file__}:tried(soft=1.0)",
    "aside .1": f"{__file__}:tried(aside={ASIDE})",
    "tukey": f"{__file__}:tried(tukey=True)",
}


def towards(tensors: Mapping[str, Tensor], departure: Mapping[str, Tensor], by: float) -> dict[str, Tensor]:
    """(1 - by) w + by w_departure of all that is a real number; counters stay."""
    return {
        name: torch.lerp(now, departure[name].to(now), by) if now.is_floating_point() else now
        for name, now in tensors.items()
    }


def set_aside(labels: Any, share: float) -> np.ndarray:
    """(n,) bool: every so many-th sample of each class, which follows from the labels alone."""
    labels, every = np.asarray(labels), round(1 / share)
    mask = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        mask[np.flatnonzero(labels == label)[every - 1 :: every]] = True
    return mask


@dataclass(eq=False)
class SoftLabels:
    """What a vehicle minimises after the departure: its labels, and what the readout of the departure says.

    Attributes:
        weight: A.
        targets: (n, C) by vehicle, probabilities of its samples in their order.
    """

    weight: float
    targets: Mapping[int, Tensor]

    def value(self, logits: Tensor, labels: Tensor, targets: Tensor) -> Tensor:
        """The loss of a batch with these targets (N, C)."""
        return functional.cross_entropy(logits, labels) + self.weight * functional.cross_entropy(logits, targets)

    def along(self, job: Job, vehicle: int, size: int) -> Any:
        """The loss of one vehicle's training, batch by batch in the order in which it will draw them."""
        drawn, n = generator(job.seed, "training", job.round, vehicle), len(job.vehicles[vehicle].labels)
        epochs = (
            (draw_epoch(n, size, job.settings.augment, drawn, drawn.device), e) for e in epochs_of(n, job.settings)
        )
        rows = (self.targets[vehicle][epoch.order[batch]] for epoch, some in epochs for batch in some)
        return lambda logits, labels, counts: self.value(logits, labels, next(rows).to(logits))


def train_softly(model: Classifier, job: Job) -> dict[str, Tensor]:
    """`train_plain` with soft labels."""
    mine, running = channels_last(copy.deepcopy(model)), merging(model, job)
    for vehicle, samples in sorted(job.vehicles.items()):
        if len(samples.labels):
            loss = job.loss.along(job, vehicle, model.image_size)  # type: ignore[attr-defined]
            running.add(vehicle, train_vehicle(mine, replace(job, loss=loss), vehicle), len(samples.labels))
    return running.state()


class TukeyFeatures(Features):
    """x^.5 of features, with the sign of x."""

    def _embed(self, *several: Tensor) -> list[Tensor]:
        return [rows.sign() * rows.abs().sqrt() for rows in super()._embed(*several)]


class TriedFederation(Federation):
    """A federation that does what `Tried` says; on a CPU, one seed."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._then: dict[Any, dict[str, Tensor]] = {}
        self._soft: dict[float, SoftLabels] = {}

    def _key(self, state: FederationState, training: str) -> JobKey:
        key = super()._key(state, training)
        what, gone = key.loss, state.round >= self.plan.depart_at
        apart = getattr(what, "aside", 0) or (gone and (getattr(what, "pull", 0) or getattr(what, "soft", 0)))
        return key if apart else key._replace(loss=cross_entropy)

    def jobs(self, state: FederationState) -> dict[JobKey, Job]:
        """What is tried put into them."""
        return {key: self._tried(key, job) for key, job in super().jobs(state).items()}

    def _tried(self, key: JobKey, job: Job) -> Job:
        if job.round == self.plan.depart_at + 1:
            self._then[key.loss] = job.start
        what: Any = key.loss
        if getattr(what, "soft", 0):
            if what.soft not in self._soft:
                self._soft[what.soft] = self.soft_labels(job.start, what.soft)
            return replace(job, loss=self._soft[what.soft])
        if getattr(what, "aside", 0):
            return replace(
                job, loss=cross_entropy, vehicles={v: _trained(s, what.aside) for v, s in job.vehicles.items()}
            )
        return replace(job, loss=cross_entropy) if key.loss is not cross_entropy else job

    def work(self, jobs: Sequence[Job]) -> list[dict[str, Tensor]]:
        """Soft labels by `train_softly`, others by the engine's trainer."""
        soft = [isinstance(job.loss, SoftLabels) for job in jobs]
        plain = iter(super().work([job for job, softly in zip(jobs, soft, strict=True) if not softly]))
        return [train_softly(self.model, j) if softly else next(plain) for j, softly in zip(jobs, soft, strict=True)]

    def made(self, jobs: Mapping[JobKey, Job], trained: Iterable[dict[str, Tensor]]) -> NewModels:
        """The models, pulled where that is tried."""
        made = dict(super().made(jobs, trained))
        for key, model in made.items():
            if by := getattr(key.loss, "pull", 0):
                made[key] = replace(model, tensors=towards(model.tensors, self._then[key.loss], by))
        return made

    def soft_labels(self, departure: dict[str, Tensor], weight: float) -> SoftLabels:
        """What the readout of the departure says of the samples of those who stay, without the departed class's."""
        model = Model(Handle(self.plan.depart_at, next(self._numbers)), departure)
        lots = dict(zip(self.vehicles, self.embed(model, *(s.images for s in self.vehicles.values())), strict=True))
        rare, classes = self.plan.rare, self.dataset.num_classes
        stats = ClassStatistics.merge(
            ClassStatistics.from_features(lots[v].numpy(), self.labels[v], classes, watched=(rare,)) for v in lots
        )
        layer = NearestClassMean(stats.means, stats.covariance(), cov_ridge=self.plan.cov_ridge).to_linear()
        bold, bias = map(torch.from_numpy, layer)
        kept = {v: torch.from_numpy(self.labels[v] != rare) for v in lots}
        targets = {v: (lots[v][kept[v]] @ bold.T + bias).softmax(dim=1) for v in lots}
        every = torch.cat([targets[v] for v in lots if v != self.partition.owner])
        said = f"{every[:, rare].mean():.3f} for the departed class, {every.max(dim=1).values.mean():.3f} for the first"
        print(f"soft labels, mean probabilities: {said}", flush=True)
        return SoftLabels(weight, targets)

    def _seen(self, number: int, models: Mapping[str, Model], earlier: Mapping[str, Model]) -> dict[str, ServerView]:
        seen = super()._seen(number, models, earlier)
        tukey = [t for t in self.trainings if getattr(self.losses[t], "tukey", False)]
        current = {t: TukeyFeatures(self, models[t]) for t in tukey}
        before = {t: TukeyFeatures(self, earlier[t]) for t in tukey if t in earlier}
        return seen | views(self.presence, number, current, before, self.hostile)


def _trained(samples: Samples, share: float) -> Samples:
    kept = torch.from_numpy(~set_aside(samples.labels.cpu().numpy(), share))
    return Samples(samples.images[kept], samples.labels[kept])


def oas_ridge(covariance: np.ndarray, n: int) -> float:
    """OAS's shrinkage rho (Chen et al. 2010) as a ridge of Eq. (3).

    (1 - rho) S + rho (tr S / d) I is 1 - rho times S + lambda (tr S / d) I with lambda = rho / (1 - rho), and a factor
    changes no decision: OAS is a way to choose the ridge.
    """
    d, trace, squares = len(covariance), float(np.trace(covariance)), float(np.sum(covariance**2))
    rho = ((1 - 2 / d) * squares + trace**2) / ((n + 1 - 2 / d) * (squares - trace**2 / d))
    return rho / (1 - rho) if rho < 1 else float("inf")


@dataclass(frozen=True)
class Read(MptX):
    """MPT-X with a readout of its own: another ridge, OAS's where it is None, or another gamma of Eq. (X10)."""

    shrink: float | None = None
    power: float = DEFAULT_OUTWARD

    def track(self, state: MptXState, context: RoundContext) -> tuple[MptXState, Any]:
        """As MPT-X's."""
        state, prototype = super().track(state, context)
        stats = context.report(context.request())
        means, covariance, ridge = stats.means, stats.covariance(), self.shrink
        means[context.departed] = prototype
        if ridge is None:
            others = stats.counts[np.arange(context.num_classes) != context.departed]
            ridge = oas_ridge(covariance, int(others.sum() - np.count_nonzero(others)))
            context.note(told=ridge)
        readout = NearestClassMean(means, covariance, cov_ridge=ridge)
        return state, readout.outwards(context.departed, self.power)


@dataclass(frozen=True)
class Aside(MptX):
    """MPT-X read out as samples that were never trained on say.

    With mu_k the mean of class k's trained samples, nu_k that of those set aside, m the mean of the mu_k, whitened,

        t = sum_k <nu_k - m, mu_k - m> / sum_k |mu_k - m|^2

    is how far out new samples of trained classes lie where trained ones have 1. The departed class is not trained, so
    its prototype is where its new samples are.

    Attributes:
        inward: False: it is read out 1 / t further out, gamma follows. True: it stays, all others are read out at t.
    """

    inward: bool = False
    share: float = ASIDE

    @on_vehicle(sums=("C", "d"), counts=("C",))
    def aside(self, asked: Asked, local: Local) -> dict[str, np.ndarray]:
        """Class sums of the samples that are set aside."""
        mine = np.eye(asked.num_classes)[local.labels[set_aside(local.labels, self.share)]]
        return {"sums": mine.T @ local.features[set_aside(local.labels, self.share)], "counts": mine.sum(axis=0)}

    def track(self, state: MptXState, context: RoundContext) -> tuple[MptXState, Any]:
        """As MPT-X's."""
        state, prototype = super().track(state, context)
        stats, told = context.report(context.request()), context.total(self.aside)
        others = (np.arange(context.num_classes) != context.departed) & (told["counts"] > 0)
        if others.sum() < 2:
            raise StatisticsError(
                "aside: nothing is set aside of two classes, vehicles should have more samples of each"
            )
        kept, counts = told["sums"][others], told["counts"][others, None]
        new, means = kept / counts, stats.means
        trained = (means[others] * stats.counts[others, None] - kept) / (stats.counts[others, None] - counts)
        middle = trained.mean(axis=0)
        solved = np.linalg.solve(regularize(stats.covariance(), self.cov_ridge), (trained - middle).T).T
        t = float(np.sum((new - middle) * solved) / np.sum((trained - middle) * solved))
        means[others], means[context.departed] = trained, prototype
        if self.inward:
            means[others] = middle + t * (trained - middle)
            context.note(told=t)
            return state, NearestClassMean(means, stats.covariance(), cov_ridge=self.cov_ridge)
        readout = NearestClassMean(means, stats.covariance(), cov_ridge=self.cov_ridge)
        lengths = readout.distances(middle[None])[0]
        ratio = np.sqrt(np.mean(lengths[others] ** 2)) / lengths[context.departed]
        gamma = float(np.clip(-np.log(t) / np.log(ratio), 0, 1)) if ratio > 1 else 0.0
        context.note(told=gamma)
        return state, readout.outwards(context.departed, gamma)


def methods(trainings: Iterable[str] = TRAININGS) -> dict[str, tuple[str, str, Method]]:
    """By a name of their own: the training's, what the row is called in it, and the method."""
    rows: list[tuple[str, str, Any]] = []
    for name, path in ((name, TRAININGS[name]) for name in trainings):
        own = {
            "mpt-x": MptX(),
            "mpt-x:small-ridge": Read(shrink=DEFAULT_JOINT_RIDGE),
            "mpt-duo": MptDuo(),
            "oracle-train": Oracle("oracle-train", "held-out", "train"),
        }
        if name in ("held-out", "tukey"):
            own["mpt-x:oas"] = Read()
        if name == "held-out":
            own["stop-at-departure"] = find_method("stop-at-departure")
            own |= {f"mpt-x:gamma {g:g}": Read(shrink=MptX().cov_ridge, power=g) for g in GAMMAS}
        if name.startswith("aside"):
            own |= {"mpt-x:told": Aside(), "mpt-x:inward": Aside(inward=True)}
        for row, made in own.items():
            stopped = row == "stop-at-departure"
            rows.append((name, row, replace(made, name=f"{name}/{row}", training="stopped" if stopped else path)))
    return {method.name: (training, row, method) for training, row, method in rows}
