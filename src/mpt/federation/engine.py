"""The whole federation on one machine, all trainings in lockstep: train, average, re-embed, read out every method."""

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mpt.data import Dataset, Split
from mpt.federation.features import Features
from mpt.federation.grouped import Groups, chunks, group
from mpt.federation.hostile import Hostile
from mpt.federation.jobs import Job, Trainer, participants, train_plain, work_of
from mpt.federation.lockstep import rounds_together
from mpt.federation.measurement import Anchors, Measurement
from mpt.federation.partition import Partition, PartitionRequest, holders, make_partition
from mpt.federation.plan import Plan
from mpt.federation.presence import PlannedPresence
from mpt.federation.readouts import find_readouts
from mpt.federation.scoring import evaluate
from mpt.federation.state import FederationState, Handle, JobKey, Model, NewModels
from mpt.federation.trainers import Trainers
from mpt.federation.view import ServerView, views
from mpt.learning import Classifier, Loss, Samples, embed, numpy_generator
from mpt.learning.aggregation import find_aggregation
from mpt.learning.backbones import build_for
from mpt.learning.cpu_inference import CpuEmbedder
from mpt.learning.cuda_graphs import draws_nothing
from mpt.learning.losses import find_loss
from mpt.learning.server import stepped
from mpt.learning.training import channels_last, check_augmentation
from mpt.methods import TRAININGS, Method, find_methods, find_training
from mpt.scenario import PlanError, check_vehicles

RoundProgress = Callable[[int, Sequence[Measurement]], None]
"""Called after every round with its number and its rows."""


def run(
    dataset: Dataset,
    plan: Plan,
    *,
    device: str = "cpu",
    progress: RoundProgress | None = None,
    trainer: Trainer | None = None,
) -> list[Measurement]:
    """All rows of one seed."""
    return run_together(dataset, [plan], device=device, progress=progress, trainer=trainer)[0]


def run_together(
    dataset: Dataset,
    plans: Sequence[Plan],
    *,
    device: str = "cpu",
    progress: RoundProgress | None = None,
    trainer: Trainer | None = None,
    methods: Sequence[Method] = (),
) -> list[list[Measurement]]:
    """All rows of several plans that share the backbone and the settings of training, advanced round by round.

    On a GPU all vehicles of all of them train side by side. `progress` gets the rows of all plans; `trainer` and
    `methods` stand in for those that the plans name.
    """
    federations = [Federation(dataset, plan, torch.device(device), trainer, methods) for plan in plans]
    if len({(p.backbone, p.freeze, p.training, p.rounds, p.engine, p.precision) for p in plans}) != 1:
        raise PlanError("plans: they differ in backbone, freeze, training, rounds, engine or precision, should not")
    rows = [list[Measurement]() for _ in plans]
    for states, new in rounds_together(federations, [f.start() for f in federations]):
        for mine, some in zip(rows, new, strict=True):
            mine.extend(some)
        if progress is not None:
            progress(states[0].round, [row for some in new for row in some])
    return rows


@dataclass
class Federation:
    """The vehicles' data and the test samples on the device, and how one round follows from another.

    Attributes:
        trainer: trains the jobs of one round; all that differ come in one call. By default what the plan's engine says.
        methods: by default those that the plan names.
        record: called in every evaluated round with its number and what the server sees of each training.
        trainers: those that other federations of the process have used, where `trainer` is None.
    """

    dataset: Dataset
    plan: Plan
    device: torch.device
    trainer: Trainer | None = None
    methods: Sequence[Method] = ()
    record: Callable[[int, Mapping[str, ServerView]], None] | None = None
    partition: Partition = field(init=False)
    trainers: Trainers = field(default_factory=Trainers)
    _numbers: Iterator[int] = field(default_factory=count, init=False)
    _earlier: dict[Handle, Features] = field(default_factory=dict, init=False)
    _begun: dict[Handle, Features] = field(default_factory=dict, init=False)
    _groups: tuple[tuple[int, ...], Groups | None] = field(default=((), None), init=False)
    _loaded: Model | None = field(default=None, init=False)
    _cpu_embedder: CpuEmbedder | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        plan, dataset = self.plan, self.dataset
        chosen = {} if self.methods else find_methods(plan.methods, ridge=plan.ridge, cov_ridge=plan.cov_ridge)
        self.methods = self.methods or list(chosen.values())
        find_readouts(plan.readout)
        self.partition = self._partition()
        self.labels = {v: dataset.train.labels[held] for v, held in self.partition.indices.items()}
        check_vehicles(plan.event_list, self.labels, self.partition.owner)
        self.presence = PlannedPresence(plan, tuple(self.labels), self.partition.owner)
        self.hostile = Hostile.of(self.presence, self.labels, dataset.num_classes)
        find_aggregation(plan.rule)
        read = dict.fromkeys(method.training for method in self.methods)
        self.trainings = (*(t for t in TRAININGS if t in read), *(t for t in read if t not in TRAININGS))
        self.losses: dict[str, Loss] = {t: find_loss(find_training(t).loss or plan.loss) for t in self.trainings}
        self._check_somebody_trains()

    def _partition(self) -> Partition:
        plan, train = self.plan, self.dataset.train
        if plan.vehicles is not None and plan.vehicles > len(train.labels):
            most = f"at most {len(train.labels)}, as many as there are training samples"
            raise PlanError(f"vehicles: {plan.vehicles}, should be {most}")
        request = PartitionRequest(
            train.labels,
            plan.rare,
            vehicles=plan.vehicles or self.dataset.num_classes,
            remaining=plan.remaining,
            rng=numpy_generator(plan.seed, "partition"),
            dirichlet=plan.dirichlet,
            recorded_by=train.vehicles,
            dataset=self.dataset.name,
        )
        return make_partition(plan.partition, request)

    @cached_property
    def vehicles(self) -> dict[int, Samples]:
        """Each vehicle's training samples, on the device."""
        images, labels = self._on_device(self.dataset.train)
        places = {v: torch.from_numpy(held).to(self.device) for v, held in self.partition.indices.items()}
        return {v: Samples(images[held], labels[held]) for v, held in places.items()}

    @cached_property
    def without_rare(self) -> dict[int, Samples]:
        """The same without the rare class: what those who stay train on where the remaining samples are held out."""
        return {v: samples.without(self.plan.rare) for v, samples in self.vehicles.items()}

    @cached_property
    def test_images(self) -> Tensor:
        """(N, C, H, W) uint8, on the device."""
        return self._on_device(self.dataset.test)[0]

    @cached_property
    def test_labels(self) -> Tensor:
        """(N,), on the device."""
        return torch.from_numpy(np.array(self.dataset.test.labels)).to(self.device)

    @cached_property
    def rare_images(self) -> Tensor:
        """All of the rare class's training images, departed ones included, on the device."""
        rare = np.flatnonzero(self.dataset.train.labels == self.plan.rare)
        return self._on_device(self.dataset.train.take(rare))[0]

    @cached_property
    def model(self) -> Classifier:
        """The architecture on the device, into which models are loaded."""
        return channels_last(self._build()) if self.plan.engine == "fast" else self._build()

    @property
    def dim(self) -> int:
        """d, the length of the features."""
        return self.model.dim

    @property
    def model_notes(self) -> tuple[str, ...]:
        """What of a file of weights was passed over."""
        return self.model.notes

    @property
    def model_bytes(self) -> int:
        """Of a model's state dict."""
        return sum(tensor.numel() * tensor.element_size() for tensor in self.model.state_dict().values())

    @cached_property
    def _parameters(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.model.named_parameters())

    @cached_property
    def _embedder(self) -> Classifier:
        return copy.deepcopy(self.model)

    @cached_property
    def train(self) -> Trainer:
        """The trainer, ready to use."""
        if self.trainer is not None:
            return self.trainer
        if self.plan.engine == "plain":
            return train_plain
        batches = len(self.dataset.train.labels) // self.plan.batch_size
        epochs = self.plan.epochs if self.plan.local_steps is None else 1
        steps = len(self.trainings) * self.plan.rounds * epochs * batches
        return self.trainers.fast(self.model, self.plan, steps)

    def _build(self) -> Classifier:
        made = build_for(
            self.plan.backbone,
            self.dataset.train.channels_first.shape[1:],
            num_classes=self.dataset.num_classes,
            seed=self.plan.seed,
            weights=self.plan.weights,
            freeze=self.plan.freeze,
        )
        check_augmentation(made, self.plan.training)
        return made.to(self.device)

    @cached_property
    def fresh(self) -> Model:
        """The model that all trainings begin with."""
        return Model(Handle(0, next(self._numbers)), dict(self._build().state_dict()))

    def start(self) -> FederationState:
        """Before the first round."""
        return FederationState(0, dict.fromkeys(self.trainings, self.fresh))

    @property
    def family(self) -> int:
        """What federations have in common that have joined each other: where their models' handles are equal, so are
        the models.
        """
        return id(self._numbers)

    def join(self, other: "Federation") -> None:
        """Before either has started: train as one with another, which differs in what is read out alone."""
        self._numbers, self.fresh = other._numbers, other.fresh
        self.vehicles, self.without_rare = other.vehicles, other.without_rare
        self.test_images, self.test_labels = other.test_images, other.test_labels

    def advance(self, state: FederationState) -> tuple[FederationState, list[Measurement]]:
        """The next round, and its rows in the order of the methods; none where the plan does not read it out."""
        jobs = self.jobs(state)
        return self.finish(state, self.made(jobs, self.work(list(jobs.values()))))

    def work(self, jobs: Sequence[Job]) -> list[dict[str, Tensor]]:
        """What the trainer makes of the jobs; where every training has stopped there are none, and it rests."""
        return work_of(self.train, self.model, jobs) if jobs else []

    def jobs(self, state: FederationState) -> dict[JobKey, Job]:
        """What is to be trained in the next round; trainings that do not differ share a job, stopped ones have none."""
        number = state.round + 1
        if number > self.plan.rounds:
            raise PlanError(f"round: {number}, but the plan has {self.plan.rounds}")
        jobs = {}
        for training in self.trainings:
            if self.presence.stopped(training, number):
                continue
            key = self._key(state, training)
            samples = self.without_rare if key.held_out else self.vehicles
            chosen = {v: self.hostile.samples(samples[v], training, number, v) for v in key.who}
            start, settings = state.models[training], self.plan.training_in(number)
            lies = self.hostile.updates(training, number, key.who)
            holding = holders(self.labels, key.who) if number > 1 else frozenset()
            about = (self.plan.seed, number, key.loss, start.moments, self.plan.rule, lies, holding, start.medians)
            jobs[key] = Job(start.tensors, chosen, settings, *about)
        return jobs

    def made(self, jobs: Mapping[JobKey, Job], trained: Iterable[dict[str, Tensor]]) -> NewModels:
        """What a trainer gave for the jobs of a round, one state dict a job, as models."""
        made = {}
        for (key, job), mean in zip(jobs.items(), trained, strict=True):
            new = stepped(job.start, mean, job.moments, self._parameters, self.plan.serving)
            made[key] = Model(Handle(job.round, next(self._numbers)), *new, job.noted.doubted, job.noted.medians)
        return made

    def trained(self, state: FederationState, trained: NewModels) -> FederationState:
        """The next round before any method has looked at it: enough to go on training. Stopped models stay."""
        number = state.round + 1
        models = {
            t: state.models[t] if self.presence.stopped(t, number) else trained[self._key(state, t)]
            for t in self.trainings
        }
        return FederationState(number, models)

    def begin(self, state: FederationState, trained: NewModels) -> None:
        """Before `finish`: on a GPU, begin to embed what the next round is read out of."""
        if self.device.type == "cpu" or not self.plan.evaluates(state.round + 1):
            return
        for training, model in self.trained(state, trained).models.items():
            features = self._begun[model.handle] = self._features(model)
            features.begin(self.presence.here(training, state.round + 1))

    def finish(self, state: FederationState, trained: NewModels) -> tuple[FederationState, list[Measurement]]:
        """The next round, given its new global models."""
        number, models = state.round + 1, self.trained(state, trained).models
        earlier = models if number == self.plan.depart_at else state.earlier
        if not self.plan.evaluates(number):
            return FederationState(number, models, earlier, state.method_states, state.anchors), []
        rows, states, anchors = self.read_out(number, models, earlier, state.method_states, state.anchors)
        return FederationState(number, models, earlier, states, anchors), rows

    def read_out(
        self,
        number: int,
        models: Mapping[str, Model],
        earlier: Mapping[str, Model],
        states: Mapping[str, Any],
        anchors: Anchors,
    ) -> tuple[list[Measurement], dict[str, Any], Anchors]:
        """The rows of an evaluated round, given its models and those of the departure; with what goes on from them."""
        seen = self._seen(number, models, earlier)
        if self.record is not None:
            self.record(number, seen)
        return evaluate(self.plan, number, self.methods, seen, states, anchors)

    def participants(self, training: str, number: int) -> tuple[int, ...]:
        """The vehicles that train in this round, where the training has not stopped."""
        here = self.presence.here(training, number)
        return participants(here, self.plan.participation, seed=self.plan.seed, round=number)

    def _key(self, state: FederationState, training: str) -> JobKey:
        number = state.round + 1
        return JobKey(
            state.models[training].handle,
            self.participants(training, number),
            self.presence.holds_out(training, number),
            self.losses[training],
        )

    def _seen(self, number: int, models: Mapping[str, Model], earlier: Mapping[str, Model]) -> dict[str, ServerView]:
        """What the server sees of each training; trainings that do not differ share it."""
        self._earlier = {m.handle: self._features(m) for m in earlier.values()}
        for kept in self._earlier.values():
            kept.forget()
        features = {m.handle: self._features(m) for m in models.values()}
        self._begun.clear()
        current = {t: features[models[t].handle] for t in self.trainings}
        before = {t: self._earlier[m.handle] for t, m in earlier.items()}
        return views(self.presence, number, current, before, self.hostile)

    def _features(self, model: Model) -> Features:
        """Those that are there already, or new ones."""
        return self._earlier.get(model.handle) or self._begun.get(model.handle) or Features(self, model)

    def embed(self, model: Model, *several: Tensor) -> list[Tensor]:
        """(N, d) features of each of several lots of images that are on the device, in float64."""
        if self._loaded != model:
            self._embedder.load_state_dict(model.tensors)
            self._cpu_embedder = CpuEmbedder(self._embedder) if self._embeds_on_cpu else None
            self._loaded = model
        if self._cpu_embedder is not None:
            return [rows.double() for rows in self._cpu_embedder.many(several)]
        if len(several) > 1 and self.device.type != "cpu":
            joined = embed(self._embedder, torch.cat(several)).double()
            return list(torch.split(joined, [len(images) for images in several]))
        return [embed(self._embedder, images).double() for images in several]

    @cached_property
    def _embeds_on_cpu(self) -> bool:
        return self.plan.engine == "fast" and self.device.type == "cpu" and draws_nothing(self._embedder)

    def groups(self, vehicle: int, here: tuple[int, ...]) -> Groups:
        """The vehicles whose statistics are made together with this one's, among those that are present."""
        held, made = self._groups
        if made is None or held != here or vehicle not in made.vehicles:
            sizes = [len(self.labels[v]) for v in here]
            chunk = next(c for c in chunks(here, sizes, self.dataset.num_classes, self.model.dim) if vehicle in c)
            made = group(chunk, [self.vehicles[v].labels for v in chunk], self.dataset.num_classes)
            self._groups = here, made
        return made

    def _on_device(self, split: Split) -> tuple[Tensor, Tensor]:
        images = torch.from_numpy(np.array(split.channels_first, order="C"))
        return images.to(self.device), torch.from_numpy(np.array(split.labels)).to(self.device)

    def _check_somebody_trains(self) -> None:
        for training in self.trainings:
            for number in range(1, self.plan.rounds + 1):
                labels = [self.labels[v] for v in self.participants(training, number)]
                if not labels:
                    raise PlanError(f"events: nobody is left in round {number}, at least one vehicle should be there")
                if self.presence.stopped(training, number):
                    continue
                held_out = self.presence.holds_out(training, number)
                if not any(np.any(mine != self.plan.rare) if held_out else len(mine) for mine in labels):
                    raise PlanError(f"round {number}: no vehicle that takes part has a sample to train on")
