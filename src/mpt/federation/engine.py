"""The whole federation on one machine, all trainings in lockstep: train, average, re-embed, read out every method."""

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import count, islice

import numpy as np
import torch
from torch import Tensor

from mpt.data import Dataset, Split
from mpt.federation.background import Background, precisely
from mpt.federation.features import Features
from mpt.federation.grouped import Groups, chunks, group
from mpt.federation.partition import Partition, PartitionError, by_vehicle, concentrate
from mpt.federation.plan import Plan
from mpt.federation.presence import Presence
from mpt.federation.rows import Row
from mpt.federation.scoring import evaluate
from mpt.federation.state import Handle, JobKey, Model, State, Trained
from mpt.federation.trainers import fast_trainer
from mpt.federation.trainings import TRAININGS, Job, Samples, Trainer, participants, train_plain
from mpt.federation.view import ServerView, views
from mpt.learning import Classifier, build, embed, numpy_generator
from mpt.learning.folded import FoldedEmbedder
from mpt.learning.graphed import can_be_graphed
from mpt.learning.training import channels_last
from mpt.methods import Method, find_method
from mpt.methods.method import Training
from mpt.scenario import PlanError, check_vehicles

Progress = Callable[[int, Sequence[Row]], None]
"""Called after every round with its number and its rows."""


def run(
    dataset: Dataset,
    plan: Plan,
    *,
    device: str = "cpu",
    progress: Progress | None = None,
    trainer: Trainer | None = None,
) -> list[Row]:
    """All rows of one seed."""
    return run_together(dataset, [plan], device=device, progress=progress, trainer=trainer)[0]


def rounds(federation: "Federation", state: State) -> Iterator[tuple[State, list[Row]]]:
    """The rounds after `state`, as `Federation.advance` gives them."""
    for (after,), (rows,) in rounds_together([federation], [state]):
        yield after, rows


def rounds_together(
    federations: Sequence["Federation"], states: Sequence[State]
) -> Iterator[tuple[list[State], list[list[Row]]]]:
    """The rounds of several federations, which are in the same round and trained in one call of the first's trainer.

    On a GPU a round trains while the methods are read out of the one before it: training does not wait for them.
    """
    first = federations[0]
    coming, finished, pending = list(states), list(states), None
    with Background(first.device, beside=first.plan.precision != "float32") as background:
        while True:
            trained = _train_together(federations, coming) if coming[0].round < first.plan.rounds else None
            if pending is not None:
                done = pending()
                finished = [state for state, _ in done]
                yield finished, [rows for _, rows in done]
            if trained is None:
                return
            _begin_together(federations, coming, trained)
            pending = background.submit(partial(_finish_together, federations, finished, trained))
            coming = [f.trained(s, mine) for f, s, mine in zip(federations, coming, trained, strict=True)]


def _train_together(federations: Sequence["Federation"], states: Sequence[State]) -> list[Trained]:
    jobs = [f.jobs(state) for f, state in zip(federations, states, strict=True)]
    first = federations[0]
    with precisely(first.plan.precision):
        models = iter(first.train(first.model, [job for some in jobs for job in some.values()]))
    return [f.made(some, islice(models, len(some))) for f, some in zip(federations, jobs, strict=True)]


def _begin_together(federations: Sequence["Federation"], states: Sequence[State], trained: Sequence[Trained]) -> None:
    with precisely(federations[0].plan.precision):
        for federation, state, mine in zip(federations, states, trained, strict=True):
            federation.begin(state, mine)


def _finish_together(
    federations: Sequence["Federation"], states: Sequence[State], trained: Sequence[Trained]
) -> list[tuple[State, list[Row]]]:
    with precisely(federations[0].plan.precision):
        return [f.finish(state, mine) for f, state, mine in zip(federations, states, trained, strict=True)]


def run_together(
    dataset: Dataset,
    plans: Sequence[Plan],
    *,
    device: str = "cpu",
    progress: Progress | None = None,
    trainer: Trainer | None = None,
    methods: Sequence[Method] = (),
) -> list[list[Row]]:
    """All rows of several plans that share the backbone and the settings of training, advanced round by round.

    On a GPU all vehicles of all of them train side by side. `progress` gets the rows of all plans; `trainer` and
    `methods` stand in for those that the plans name.
    """
    federations = [Federation(dataset, plan, torch.device(device), trainer, methods) for plan in plans]
    if len({(p.backbone, p.settings, p.rounds, p.engine, p.precision) for p in plans}) != 1:
        raise PlanError("plans: they differ in backbone, training, rounds, engine or precision, should be the same")
    rows = [list[Row]() for _ in plans]
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
    """

    dataset: Dataset
    plan: Plan
    device: torch.device
    trainer: Trainer | None = None
    methods: Sequence[Method] = ()
    record: Callable[[int, Mapping[Training, ServerView]], None] | None = None
    partition: Partition = field(init=False)
    _numbers: Iterator[int] = field(default_factory=count, init=False)
    _earlier: dict[Handle, Features] = field(default_factory=dict, init=False)
    _begun: dict[Handle, Features] = field(default_factory=dict, init=False)
    _groups: tuple[tuple[int, ...], Groups | None] = field(default=((), None), init=False)
    _loaded: Model | None = field(default=None, init=False)
    _folded: FoldedEmbedder | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        plan, dataset = self.plan, self.dataset
        self.methods = self.methods or [
            find_method(name, ridge=plan.ridge, cov_ridge=plan.cov_ridge) for name in plan.methods
        ]
        self.partition = self._partition()
        self.labels = {v: dataset.train.labels[held] for v, held in self.partition.holdings.items()}
        check_vehicles(plan.events, self.labels, self.partition.owner)
        self.presence = Presence(plan, tuple(self.labels), self.partition.owner)
        self.trainings = tuple(t for t in TRAININGS if any(m.training == t for m in self.methods))
        self._check_somebody_trains()

    def _partition(self) -> Partition:
        plan, train = self.plan, self.dataset.train
        if plan.partition == "vehicle":
            if train.vehicles is None:
                raise PartitionError(
                    f"partition: vehicle, but {self.dataset.name} does not say which vehicle recorded a sample, should "
                    "be concentrate, or the dataset one such as nuimages:ROOT"
                )
            return by_vehicle(train.labels, plan.rare, train.vehicles)
        return concentrate(
            train.labels,
            plan.rare,
            vehicles=plan.vehicles or self.dataset.num_classes,
            remaining=plan.remaining,
            rng=numpy_generator(plan.seed, "partition"),
            dirichlet=plan.dirichlet,
        )

    @cached_property
    def vehicles(self) -> dict[int, Samples]:
        """Each vehicle's training samples, on the device."""
        images, labels = self._on_device(self.dataset.train)
        places = {v: torch.from_numpy(held).to(self.device) for v, held in self.partition.holdings.items()}
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
        batches = len(self.dataset.train.labels) // self.plan.settings.batch_size
        steps = len(self.trainings) * self.plan.rounds * self.plan.settings.epochs * batches
        return fast_trainer(self.model, self.plan.settings, self.plan.precision, steps)

    def _build(self) -> Classifier:
        _, size, channels = self.dataset.image_shape
        made = build(
            self.plan.backbone,
            num_classes=self.dataset.num_classes,
            in_channels=channels,
            image_size=size,
            seed=self.plan.seed,
        )
        return made.to(self.device)

    def start(self) -> State:
        """Before the first round: one new model for all trainings."""
        fresh = Model(Handle(0, next(self._numbers)), dict(self._build().state_dict()))
        return State(0, dict.fromkeys(self.trainings, fresh))

    def advance(self, state: State) -> tuple[State, list[Row]]:
        """The next round, and its rows in the order of the methods; none where the plan does not read it out."""
        jobs = self.jobs(state)
        return self.finish(state, self.made(jobs, self.train(self.model, list(jobs.values()))))

    def jobs(self, state: State) -> dict[JobKey, Job]:
        """What is to be trained in the next round; trainings that do not differ share a job."""
        number = state.round + 1
        if number > self.plan.rounds:
            raise PlanError(f"round: {number}, but the plan has {self.plan.rounds}")
        jobs = {}
        for training in self.trainings:
            key = self._key(state, training)
            samples = self.without_rare if key.held_out else self.vehicles
            chosen = {v: samples[v] for v in key.who}
            start = state.models[training].tensors
            jobs[key] = Job(start, chosen, self.plan.settings, self.plan.seed, number, key.calibrates)
        return jobs

    def made(self, jobs: Mapping[JobKey, Job], trained: Iterable[dict[str, Tensor]]) -> Trained:
        """What a trainer gave for the jobs of a round, one state dict a job, as models."""
        return {
            key: Model(Handle(job.round, next(self._numbers)), tensors)
            for (key, job), tensors in zip(jobs.items(), trained, strict=True)
        }

    def trained(self, state: State, trained: Trained) -> State:
        """The next round before any method has looked at it: enough to go on training."""
        return State(state.round + 1, {t: trained[self._key(state, t)] for t in self.trainings})

    def begin(self, state: State, trained: Trained) -> None:
        """Before `finish`: on a GPU, begin to embed what the next round is read out of."""
        if self.device.type == "cpu" or not self.plan.evaluates(state.round + 1):
            return
        for training, model in self.trained(state, trained).models.items():
            features = self._begun[model.handle] = self._features(model)
            features.begin(self.presence.here(training, state.round + 1))

    def finish(self, state: State, trained: Trained) -> tuple[State, list[Row]]:
        """The next round, given its new global models."""
        number, models = state.round + 1, self.trained(state, trained).models
        earlier = models if number == self.plan.depart_at else state.earlier
        if not self.plan.evaluates(number):
            return State(number, models, earlier, state.kept, state.anchor), []
        seen = self._seen(number, models, earlier)
        if self.record is not None:
            self.record(number, seen)
        rows, kept, anchor = evaluate(self.plan, number, self.methods, seen, state.kept, state.anchor)
        return State(number, models, earlier, kept, anchor), rows

    def participants(self, training: Training, number: int) -> tuple[int, ...]:
        """The vehicles that train in this round."""
        here = self.presence.here(training, number)
        return participants(here, self.plan.participation, seed=self.plan.seed, round=number)

    def _key(self, state: State, training: Training) -> JobKey:
        number = state.round + 1
        return JobKey(
            state.models[training].handle,
            self.participants(training, number),
            self.presence.holds_out(training, number),
            TRAININGS[training].calibrates,
        )

    def _seen(
        self, number: int, models: Mapping[Training, Model], earlier: Mapping[Training, Model]
    ) -> dict[Training, ServerView]:
        """What the server sees of each training; trainings that do not differ share it."""
        self._earlier = {m.handle: self._features(m) for m in earlier.values()}
        features = {m.handle: self._features(m) for m in models.values()}
        self._begun.clear()
        current = {t: features[models[t].handle] for t in self.trainings}
        return views(self.presence, number, current, {t: self._earlier[m.handle] for t, m in earlier.items()})

    def _features(self, model: Model) -> Features:
        """Those that are there already, or new ones."""
        return self._earlier.get(model.handle) or self._begun.get(model.handle) or Features(self, model)

    def embed(self, model: Model, *several: Tensor) -> list[Tensor]:
        """(N, d) features of each of several lots of images that are on the device, in float64."""
        if self._loaded != model:
            self._embedder.load_state_dict(model.tensors)
            self._folded = FoldedEmbedder(self._embedder) if self._folds else None
            self._loaded = model
        if self._folded is not None:
            return [rows.double() for rows in self._folded.many(several)]
        if len(several) > 1 and self.device.type != "cpu":
            joined = embed(self._embedder, torch.cat(several)).double()
            return list(torch.split(joined, [len(images) for images in several]))
        return [embed(self._embedder, images).double() for images in several]

    @cached_property
    def _folds(self) -> bool:
        return self.plan.engine == "fast" and self.device.type == "cpu" and can_be_graphed(self._embedder)

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
        images = torch.from_numpy(np.array(split.images)).permute(0, 3, 1, 2).contiguous()
        return images.to(self.device), torch.from_numpy(np.array(split.labels)).to(self.device)

    def _check_somebody_trains(self) -> None:
        for training in self.trainings:
            for number in range(1, self.plan.rounds + 1):
                labels = [self.labels[v] for v in self.participants(training, number)]
                if not labels:
                    raise PlanError(f"events: nobody is left in round {number}, at least one vehicle should be there")
                held_out = self.presence.holds_out(training, number)
                if not any(np.any(mine != self.plan.rare) if held_out else len(mine) for mine in labels):
                    raise PlanError(f"round {number}: no vehicle that takes part has a sample to train on")
