"""A living federation on one machine: vehicles come and go by a scenario, and the server decides from what they report.

Nothing is decided beforehand. In every round those who are there train, and answer the questions of a `Tracker`, the
same that serves a fleet, as bytes. It watches, suspects, deposits, holds out and recovers; each row has a tracker of
its own with another method. Three trainings are read: "held-out" follows the server's decisions, "continued" has the
same presence and holds nothing out, in "live" the holders of concentrated classes never leave.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from mpt.core import ClassStatistics, NearestClassMean
from mpt.core.validation import Floats, Ints
from mpt.data import Dataset
from mpt.federation.background import few_threads, precisely
from mpt.federation.engine import Federation
from mpt.federation.features import Features
from mpt.federation.jobs import Job, participants
from mpt.federation.partition import CONCENTRATED, Partition
from mpt.federation.plan import Plan
from mpt.federation.set_aside import SetAside, split
from mpt.federation.state import Handle, Model
from mpt.federation.stored import views_of
from mpt.learning import Samples, numpy_generator
from mpt.learning.losses import find_loss
from mpt.methods import find_method, find_part, find_training
from mpt.methods.method import Readout
from mpt.methods.mpt_duo import MptDuo
from mpt.methods.simple import Linear, Oracle, SoftmaxHead
from mpt.protocol.evaluation import Evidence
from mpt.protocol.further import Further
from mpt.protocol.question import Question
from mpt.protocol.request import StatisticsRequest
from mpt.scenario import PlanError, Presence, absent_pairs, never_leaving
from mpt.tracking.roster import Decision
from mpt.tracking.sampling import asked_in
from mpt.tracking.settings import TrackerSettings
from mpt.tracking.tracker import More, Outcome, Tracker

LEADER = "mpt"
"""The method of the tracker whose decisions the held-out training follows."""

RowKind = Literal["tracked", "oracle", "live", "head"]


class Row(NamedTuple):
    """A row of the tables.

    Attributes:
        name: of the method.
        training: that it reads.
        kind: a tracker's; measured with what no server knows; of holders that never leave; or the softmax head.
    """

    name: str
    training: str
    kind: RowKind


@dataclass(frozen=True, eq=False)
class LivingRound:
    """What happened in a round.

    Attributes:
        round: its number.
        here: the vehicles that are there, by number.
        trained, answered: those of them that took part in training, and whose report counts.
        present: (C,), samples of each class on those who are there.
        tracked: the classes with a deposit after it, reconstructed or measured.
        held_out: those that are not trained on from now on.
        states: how many vehicles the server takes for present, suspected, departed and so on.
        decisions: what changed, and why.
        confusions: (C, C) by row, test samples by label and prediction; empty where the round is not read out.
        deposited: by row, the classes whose prototype comes from a deposit.
        bytes_up: by row, of the reports of all vehicles.
        state_bytes: of the server's state.
        evidence: what vehicles have counted with the samples that they set aside, where the round is read out.
    """

    round: int
    here: tuple[int, ...]
    trained: tuple[int, ...]
    answered: tuple[int, ...]
    present: Ints
    tracked: tuple[int, ...]
    held_out: tuple[int, ...]
    states: Mapping[str, int]
    decisions: tuple[Decision, ...]
    confusions: Mapping[str, Ints]
    deposited: Mapping[str, tuple[int, ...]]
    bytes_up: Mapping[str, int]
    state_bytes: int
    evidence: Evidence | None = None


class _Ground(Federation):
    """The samples on the device and what trains and embeds them; who is there when is not its business."""

    def __init__(self, dataset: Dataset, plan: Plan, device: torch.device, partition: Partition) -> None:
        self._given = partition
        super().__init__(dataset, plan, device)

    def _partition(self) -> Partition:
        return self._given

    def _check_somebody_trains(self) -> None:
        pass


@dataclass
class Living:
    """A scenario that is played, round by round.

    Attributes:
        dataset: what is learned.
        plan: the settings of training; those of the paper's departure are not read.
        presence: who is there when.
        shares: (V, C), of each class's samples on each vehicle.
        device: that trains.
        server: settings of the tracker, by name.
        asked: the share of the vehicles that are asked for statistics in a round.
        validation: the share of its samples that a vehicle sets aside: neither trained on nor reported, they tell how
            well the server's readout does, without test data.
    """

    dataset: Dataset
    plan: Plan
    presence: Presence
    shares: Floats
    device: torch.device
    server: Mapping[str, Any] = field(default_factory=dict)
    asked: float = 1.0
    validation: float = 0.0
    _kept: dict[str, dict[int, Features]] = field(default_factory=dict, init=False)
    _answers: dict[tuple[Handle, bytes, int], bytes] = field(default_factory=dict, init=False)
    _samples: dict[tuple[int, tuple[int, ...]], Samples] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        if self.shares.shape != (len(self.presence.vehicles), self.dataset.num_classes):
            raise PlanError(
                f"shares: {self.shares.shape}, should be {len(self.presence.vehicles)} vehicles by "
                f"{self.dataset.num_classes} classes"
            )
        labels, seed = self.dataset.train.labels, self.plan.seed
        whole = spread(labels, self.shares, numpy_generator(seed, "scenario"))
        held, aside = split(whole, labels, self.validation, seed)
        self.counts = np.array([np.bincount(labels[i], minlength=self.dataset.num_classes) for i in held.values()])
        self._ground = _Ground(self.dataset, self.plan, self.device, Partition(held, 0, self.plan.rare, 0))
        self._set_aside = SetAside.of(self._ground, self.dataset, aside)
        self.rows = tuple(row_of(name) for name in self.plan.methods)
        self.trainings = tuple(dict.fromkeys(["held-out", *(row.training for row in self.rows)]))
        tracked = {LEADER, *(row.name for row in self.rows if row.kind == "tracked")}
        self.trackers = {name: self._tracker(name) for name in sorted(tracked)}

    def _tracker(self, method: str) -> Tracker:
        plan = self.plan
        about: dict[str, Any] = {"ridge": plan.ridge, "cov_ridge": plan.cov_ridge, "seed": plan.seed, **self.server}
        classes, dim = tuple(self.dataset.classes), self._ground.model.dim
        return Tracker(TrackerSettings(len(classes), dim, method=method, class_names=classes, **about))

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {name: v for v, name in enumerate(self.presence.vehicles)}

    @property
    def leader(self) -> Tracker:
        """The tracker whose decisions count."""
        return self.trackers[LEADER]

    @cached_property
    def pairs(self) -> NDArray[np.bool_]:
        """(R, C): in which rounds a concentrated class is absent, by the truth: the same for every row and policy."""
        held = self.counts.max(axis=0) >= CONCENTRATED * self.counts.sum(axis=0)
        pairs: NDArray[np.bool_] = absent_pairs(self.presence, self.counts, self.leader.settings.carry_share) & held
        return pairs

    @cached_property
    def always(self) -> Presence:
        """The presence in which the holders of classes that are absent some time never leave."""
        classes = np.flatnonzero(self.pairs.any(axis=0))
        return never_leaving(self.presence, sorted({int(self.counts[:, c].argmax()) for c in classes}))

    def rounds(self) -> Iterator[LivingRound]:
        """All rounds, one after the other."""
        fresh = self._ground.start().models
        models = dict.fromkeys(self.trainings, next(iter(fresh.values())))
        for number in range(1, self.presence.rounds + 1):
            with precisely(self.plan.precision):
                models, trained = self._train(number, models)
                yield self._read_out(number, models, trained)

    def _presence(self, training: str) -> Presence:
        return self.presence if find_training(training).departs else self.always

    def _train(self, number: int, models: Mapping[str, Model]) -> tuple[dict[str, Model], tuple[int, ...]]:
        """The next models; where nobody takes part a model stays as it is."""
        jobs, keys, who = dict[Any, Job](), dict[str, Any](), dict[str, tuple[int, ...]]()
        plan, settings = self.plan, self.plan.training_in(number)
        for training in self.trainings:
            here = self._presence(training).answering(number)
            held_out = self.leader.held_out if find_training(training).holds_out else ()
            part = participants(here, plan.participation, seed=plan.seed, round=number) if here else ()
            chosen = {v: self._without(v, held_out) for v in part}
            who[training] = tuple(v for v in part if len(chosen[v].labels))
            if not who[training]:
                continue
            loss, start = find_loss(find_training(training).loss or plan.loss), models[training]
            keys[training] = key = (start.handle, who[training], held_out, loss)
            jobs[key] = Job(start.tensors, chosen, settings, plan.seed, number, loss, start.moments)
        made = self._ground.made(jobs, self._ground.work(list(jobs.values())))
        return {t: made[keys[t]] if t in keys else models[t] for t in self.trainings}, who["held-out"]

    def _without(self, vehicle: int, held_out: tuple[int, ...]) -> Samples:
        """A vehicle's samples but for some classes."""
        key = (vehicle, held_out)
        if key not in self._samples:
            kept = self._ground.vehicles[vehicle]
            for c in held_out:
                kept = kept.without(c)
            self._samples[key] = kept
        return self._samples[key]

    def _read_out(self, number: int, models: Mapping[str, Model], trained: tuple[int, ...]) -> LivingRound:
        self._answers.clear()
        handles = {model.handle: model for model in models.values()}
        features = {h: Features(self._ground, model) for h, model in handles.items()}
        mine = {t: features[models[t].handle] for t in self.trainings}
        outcomes, sizes, asked = dict[str, Outcome](), dict[str, int](), self._whom(number)
        for name, tracker in self.trackers.items():
            seen = mine[tracker.settings.training]
            seen.embed_vehicles([v for v in self.presence.answering(number) if asked is None or v in asked])
            with few_threads(self._ground.model.dim):
                outcomes[name], sizes[name] = self._tracked(tracker, number, seen, asked)
        scored = number % self.plan.eval_every == 0 or number == self.presence.rounds
        led = outcomes[LEADER]
        here, roster = self.presence.here(number), self.leader.roster
        return LivingRound(
            round=number,
            here=here,
            trained=trained,
            answered=tuple(self._numbers[v] for v in led.answered),
            present=self.counts[list(here)].sum(axis=0),
            tracked=tuple(sorted(self.leader.state.tracked)),
            held_out=self.leader.held_out,
            states={state: len(roster.having(state)) for state in ("present", "suspected", "departed")},
            decisions=led.decisions,
            confusions=self._confusions(number, mine, outcomes) if scored else {},
            deposited={name: tuple(sorted(t.state.tracked)) for name, t in self.trackers.items()},
            bytes_up=sizes,
            state_bytes=len(self.leader.to_bytes()),
            evidence=self._evidence(led, models["held-out"]) if scored and self.validation else None,
        )

    def _evidence(self, led: Outcome, model: Model) -> Evidence | None:
        there = [self._numbers[v] for v in led.answered]
        return self._set_aside.evidence(led.round, model, led.readout, there)

    def _whom(self, number: int) -> frozenset[int] | None:
        """The vehicles that are asked, of those who are there or were and have not departed; None: all."""
        if self.asked >= 1:
            return None
        names, roster = self.presence.vehicles, self.leader.roster
        there = {names[v] for v in self.presence.here(number)} | {v for v in roster.members if not roster.gone(v)}
        gone = roster.members.keys() - there
        chosen = asked_in(there, gone, self.asked, seed=self.plan.seed, round=number, least=1)
        return frozenset(self._numbers[v] for v in chosen)

    def _tracked(
        self, tracker: Tracker, number: int, features: Features, asked: Collection[int] | None
    ) -> tuple[Outcome, int]:
        """A round of one tracker, and the bytes of the reports."""
        names, size = self.presence.vehicles, 0
        there = [v for v in self.presence.answering(number) if asked is None or v in asked]

        def told(question: Question | Further, vehicles: Collection[int]) -> dict[str, bytes]:
            nonlocal size
            made = {names[v]: self._answer(tracker, question, v, features) for v in vehicles}
            size += sum(map(len, made.values()))
            return made

        def ask(more: More) -> dict[str, bytes]:
            return told(more.further, [self._numbers[v] for v in more.vehicles])

        outcome = tracker.close(
            told(tracker.question(number), there),
            [names[v] for v in self.presence.leaving(number)],  # a message of its own, see `with_failures`
            round=number,
            head=features.head,
            asked=None if asked is None else [names[v] for v in asked],
            ask=ask,
        )
        kept = self._kept.get(tracker.settings.method, {}) | {number: features}
        self._kept[tracker.settings.method] = {
            r: kept[r] for r in {*tracker.models_needed, *outcome.references} if r in kept
        }
        return outcome, size

    def _answer(self, tracker: Tracker, question: Question | Further, vehicle: int, features: Features) -> bytes:
        """A vehicle's answer; the same question under the same model is answered once."""
        key = (features.model.handle, question.to_bytes(), vehicle)
        if key not in self._answers:
            method = tracker.settings.method
            kept = self._kept.get(method, {})
            earlier = {r: kept[r].vehicle(vehicle) for r in question.references if r in kept}
            self._answers[key] = question.answer(
                features.vehicle(vehicle),
                self._ground.labels[vehicle],
                earlier,
                find=lambda of, part: find_part(of, part, method),
            )
        return self._answers[key]

    def _confusions(
        self, number: int, features: Mapping[str, Features], outcomes: Mapping[str, Outcome]
    ) -> dict[str, Ints]:
        """By row, the test samples by label and prediction."""
        found = dict[str, Ints]()
        for one in dict.fromkeys(features.values()):
            mine = [row for row in self.rows if features[row.training] is one]
            with few_threads(self._ground.model.dim):
                made = {row.name: self._readout(row, number, one, outcomes) for row in mine}
            known = {name: readout for name, readout in made.items() if readout is not None}
            joined = {name: outcomes[name].references for name, readout in known.items() if views_of(readout) > 1}
            plain = [name for name in known if name not in joined]
            found |= dict(zip(plain, one.confusions([known[name] for name in plain]), strict=True))
            for name, rounds in joined.items():
                before = [self._kept[self.trackers[name].settings.method][number] for number in rounds]
                (found[name],) = one.confusions([known[name]], before)
        return {row.name: found[row.name] for row in self.rows if row.name in found}

    def _readout(self, row: Row, number: int, features: Features, outcomes: Mapping[str, Outcome]) -> Readout | None:
        led = outcomes[LEADER]
        if row.kind == "head":
            return Linear(*features.head)
        if row.kind == "live":
            stats = self._statistics(features, self.always.answering(number))
            return None if stats is None else self._nearest(stats.means, stats.covariance())
        if row.kind == "oracle":
            absent = {*np.flatnonzero(self.pairs[number - 1]).tolist(), *led.tracked}
            prototypes = led.prototypes.copy()
            for c in absent:
                prototypes[c] = self._truth(features, c)
            return self._nearest(prototypes, led.covariance)
        outcome = outcomes[row.name]
        if outcome.covariance is None and outcome.readout is not None and not isinstance(outcome.readout, Linear):
            same = self.trackers[row.name].settings.training == self.leader.settings.training
            return self._nearest(outcome.prototypes, led.covariance if same else None)
        return outcome.readout

    def _nearest(self, prototypes: Floats, covariance: Floats | None) -> NearestClassMean | None:
        if np.isnan(prototypes).all():
            return None
        return NearestClassMean(prototypes, covariance, cov_ridge=self.plan.cov_ridge)

    def _statistics(self, features: Features, vehicles: Sequence[int]) -> ClassStatistics | None:
        """Everybody's, without a tracker; the same classes are left out of the covariance as there."""
        request = StatisticsRequest(0, self.dataset.num_classes, watched=self.leader.state.watch.classes)
        features.embed_vehicles(vehicles)
        parts = [request.read(request.answer(features.vehicle(v), self._ground.labels[v])) for v in vehicles]
        return ClassStatistics.merge(parts) if parts else None

    def _truth(self, features: Features, c: int) -> Floats:
        """(d,): the mean of all training samples of a class, wherever they are."""
        labels = self._ground.labels
        rows = [features.vehicle(v)[labels[v] == c] for v in labels if (labels[v] == c).any()]
        mean: Floats = np.concatenate(rows).mean(axis=0)
        return mean


def row_of(name: str) -> Row:
    """What a row of that name is in a living federation.

    Raises:
        PlanError: the method stops training at the departure, of which there may be several here, or is there to
            compare two models with.
    """
    method = find_method(name)
    training = find_training(method.training)
    if training.stops:
        raise PlanError(f"methods: {name} stops training at the departure, of which a scenario has several")
    if isinstance(method, MptDuo) and (method.knows == "train" or not training.departs):
        raise PlanError(f"methods: {name} is there to compare mpt-duo with, in a run with one departure")
    if isinstance(method, SoftmaxHead):
        return Row(method.name, method.training, "head")
    if not training.departs:
        return Row(method.name, method.training, "live")
    if isinstance(method, Oracle):
        if method.knows == "test":
            raise PlanError(f"methods: {name} knows the test samples, should be oracle-train in a scenario")
        return Row(method.name, method.training, "oracle")
    return Row(method.name, method.training, "tracked")


def spread(labels: Ints, shares: Floats, rng: np.random.Generator) -> dict[int, Ints]:
    """The indices of each vehicle's samples: of each class in proportion to its column of shares (V, C)."""
    held: dict[int, list[Ints]] = {v: [] for v in range(len(shares))}
    for c in range(shares.shape[1]):
        samples = rng.permutation(np.flatnonzero(labels == c))
        ends = np.round(np.cumsum(shares[:, c])[:-1] * len(samples)).astype(int)
        for v, part in enumerate(np.split(samples, ends)):
            held[v].append(part)
    return {v: np.sort(np.concatenate(parts)).astype(np.int64) for v, parts in held.items()}
