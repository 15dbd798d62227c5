"""The whole federation on one machine: train, average, re-embed, read out every method."""

import copy
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch

from mpt.core import ClassStatistics, NearestClassMean
from mpt.core.validation import Floats
from mpt.data import Dataset
from mpt.federation.metrics import Scores, score
from mpt.federation.partition import Partition, concentrate
from mpt.federation.plan import Plan, ReadoutName
from mpt.federation.rounds import Exchange
from mpt.federation.scenario import departure, left_after, present
from mpt.federation.trainings import TRAININGS, Samples, federated_round, participants
from mpt.learning import Classifier, build, embed, numpy_generator
from mpt.methods import Cost, Local, Method, Now, find_method
from mpt.methods.icarl import Cosine
from mpt.methods.protocol import Readout, Training


@dataclass(frozen=True)
class Row:
    """One method under one readout in one round.

    `prototype_distance` is the Mahalanobis distance to oracle-train's prototype, None where a method has none.
    """

    seed: int
    round: int
    method: str
    readout: str
    scores: Scores
    prototype_distance: float | None
    cost: Cost


Progress = Callable[[Training, int, Sequence[Row]], None]


def run(dataset: Dataset, plan: Plan, *, device: str = "cpu", progress: Progress | None = None) -> list[Row]:
    """All rows of one seed. Each training is run once and shared by the methods that read it."""
    methods = [find_method(name, ridge=plan.ridge, cov_ridge=plan.cov_ridge) for name in plan.methods]
    federation = Federation(dataset, plan, torch.device(device))
    rows: list[Row] = []
    for training in TRAININGS:
        chosen = [m for m in methods if m.training == training]
        if not chosen:
            continue
        for number, new in federation.train(training, chosen):
            rows.extend(new)
            if progress is not None:
                progress(training, number, new)
    return rows


@dataclass
class Federation:
    """The vehicles' data and the test samples on the device, and the rounds that trainings share."""

    dataset: Dataset
    plan: Plan
    device: torch.device
    partition: Partition = field(init=False)
    _shared: dict[bool, dict[int, dict[str, torch.Tensor]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        plan, dataset = self.plan, self.dataset
        self.partition = concentrate(
            dataset.train.labels,
            plan.rare,
            vehicles=plan.vehicles or dataset.num_classes,
            remaining=plan.remaining,
            rng=numpy_generator(plan.seed, "partition"),
            dirichlet=plan.dirichlet,
        )
        self.events = departure(self.partition.owner, after=plan.depart_at)
        images = torch.from_numpy(np.array(dataset.train.images)).permute(0, 3, 1, 2).contiguous().to(self.device)
        labels = torch.from_numpy(np.array(dataset.train.labels)).to(self.device)
        self.vehicles = {
            v: Samples(images[torch.from_numpy(held).to(self.device)], labels[torch.from_numpy(held).to(self.device)])
            for v, held in self.partition.holdings.items()
        }
        self.labels = {v: dataset.train.labels[held] for v, held in self.partition.holdings.items()}
        self.test_images = (
            torch.from_numpy(np.array(dataset.test.images)).permute(0, 3, 1, 2).contiguous().to(self.device)
        )
        self.rare_images = images[labels == plan.rare]

    def model(self) -> Classifier:
        """A new global model, on the device."""
        _, size, channels = self.dataset.image_shape
        made = build(
            self.plan.backbone,
            num_classes=self.dataset.num_classes,
            in_channels=channels,
            image_size=size,
            seed=self.plan.seed,
        )
        return made.to(self.device)

    def train(self, training: Training, methods: Sequence[Method]) -> Iterator[tuple[int, list[Row]]]:
        """Round by round, the rows of the methods that read this training."""
        plan, rules = self.plan, TRAININGS[training]
        events = self.events if rules.departs else ()
        model = self.model()
        kept: dict[str, Any] = {}
        earlier: Classifier | None = None
        remembered: dict[int, Floats] = {}
        shared = self._shared.setdefault(rules.calibrates, {})
        for number in range(1, plan.rounds + 1):
            here = present(self.vehicles, events, number)
            gone = rules.departs and number > plan.depart_at
            if not gone and number in shared:
                model.load_state_dict(shared[number])
            else:
                trained = {
                    v: self.vehicles[v].without(plan.rare) if gone and rules.holds_out else self.vehicles[v]
                    for v in participants(here, plan.participation, seed=plan.seed, round=number)
                }
                federated_round(
                    model, trained, plan.settings, seed=plan.seed, round=number, calibrates=rules.calibrates
                )
                if number <= plan.depart_at:
                    shared[number] = copy.deepcopy(model.state_dict())
            rows: list[Row] = []
            if plan.evaluates(number):
                if number == plan.depart_at:
                    earlier = copy.deepcopy(model)
                leaving = left_after(events, number)
                readouts = _Readouts(self, model, earlier, number, here, leaving, remembered)
                rows = readouts.rows(methods, kept, gone)
            yield number, rows

    def features(self, model: Classifier, images: torch.Tensor) -> Floats:
        """(N, d) features of images (N, C, H, W) that are on the device, in float64."""
        return embed(model, images).double().cpu().numpy()


@dataclass
class _Readouts:
    """One evaluated round: what the server sees of it, and the rows of every method."""

    federation: Federation
    model: Classifier
    earlier: Classifier | None
    number: int
    here: tuple[int, ...]
    leaving: tuple[int, ...]
    remembered: dict[int, Floats]
    _test: Floats = field(init=False)

    def __post_init__(self) -> None:
        self._test = self.federation.features(self.model, self.federation.test_images)

    def rows(self, methods: Sequence[Method], kept: dict[str, Any], gone: bool) -> list[Row]:
        plan, federation = self.federation.plan, self.federation
        exchange = Exchange({v: self._local(v) for v in self.here}, frozenset(self.leaving))
        report, _ = exchange.for_method(Cost())
        now = self._now(exchange, Cost())
        stats = report(now.request())
        test, truth = self._test, now.reference("train")
        made: list[Row] = []
        for method in methods:
            cost = Cost()
            now = self._now(exchange, cost)
            start, spent = time.perf_counter(), exchange.spent
            if self.number == plan.depart_at and TRAININGS[method.training].departs:
                kept[method.name] = method.depart(now)
            outcome = self._outcome(method, now, kept, gone, stats)
            cost.server_seconds = time.perf_counter() - start - (exchange.spent - spent)
            for name, readout in self._readouts(outcome, stats):
                scores = score(readout.predict(test), federation.dataset.test.labels, plan.rare, len(stats.counts))
                distance = None
                if isinstance(outcome, np.ndarray) and np.isfinite(outcome).all():
                    metric = NearestClassMean(truth[None], stats.covariance(), cov_ridge=plan.cov_ridge)
                    distance = float(metric.distances(outcome[None])[0, 0])
                made.append(Row(plan.seed, self.number, method.name, name, scores, distance, cost))
        return made

    def _outcome(
        self, method: Method, now: Now, kept: dict[str, Any], gone: bool, stats: ClassStatistics
    ) -> Floats | Readout:
        """What the method makes of this round; while the class is there, prototype methods measure it directly."""
        plan = self.federation.plan
        if gone or not getattr(method, "needs_departure", False):
            kept[method.name], outcome = method.track(kept.get(method.name), now)
            return outcome
        observed: Floats = stats.means[plan.rare]
        return observed

    def _readouts(self, outcome: Floats | Readout, stats: ClassStatistics) -> Iterator[tuple[str, Readout]]:
        if not isinstance(outcome, np.ndarray):
            yield "own", outcome
            return
        prototypes = stats.means
        prototypes[self.federation.plan.rare] = outcome
        for name in self.federation.plan.readouts:
            yield name, make_readout(name, prototypes, stats.covariance(), self.federation.plan.cov_ridge)

    def _local(self, vehicle: int) -> Local:
        federation = self.federation
        images = federation.vehicles[vehicle].images
        features = federation.features(self.model, images)

        def earlier() -> Floats:
            if self.earlier is None:
                raise RuntimeError("there has been no departure yet")
            if vehicle not in self.remembered:
                self.remembered[vehicle] = federation.features(self.earlier, images)
            return self.remembered[vehicle]

        return Local(federation.labels[vehicle], features, earlier)

    def _now(self, exchange: Exchange, cost: Cost) -> Now:
        plan, federation = self.federation.plan, self.federation
        report, ask = exchange.for_method(cost)

        def reference(which: Literal["test", "train"]) -> Floats:
            if which == "test":
                known = self._test[federation.dataset.test.labels == plan.rare]
            else:
                known = federation.features(self.model, federation.rare_images)
            mean: Floats = known.mean(axis=0)
            return mean

        return Now(
            round=self.number,
            departed=plan.rare,
            num_classes=federation.dataset.num_classes,
            head=head_of(self.model),
            report=report,
            ask=ask,
            reference=reference,
            rng=numpy_generator(plan.seed, "method", self.number),
            cost=cost,
        )


def head_of(model: Classifier) -> tuple[Floats, Floats]:
    """The head's weight (C, d) and bias (C,) in float64."""
    weight, bias = model.head.weight.detach(), model.head.bias.detach()
    return weight.double().cpu().numpy(), bias.double().cpu().numpy()


def make_readout(name: ReadoutName, prototypes: Floats, covariance: Floats, cov_ridge: float) -> Readout:
    """The readout of that name over prototypes (C, d), one of which may be missing."""
    if name == "cosine":
        return Cosine(prototypes)
    shape = {"mahalanobis": covariance, "diagonal": np.diag(covariance.diagonal()), "euclidean": None}[name]
    return NearestClassMean(prototypes, shape, cov_ridge=cov_ridge)
