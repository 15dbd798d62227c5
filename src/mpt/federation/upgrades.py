"""A federation whose models were trained elsewhere: round t is read out of the features under version t of a model.

Nothing is trained here, so there is neither a backbone nor a head. What a method needs beyond features it does not get,
and `applicable` says so.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields

import numpy as np
from torch import Tensor

from mpt.base.settings import default_of
from mpt.core.validation import Floats
from mpt.federation.engine import Federation
from mpt.federation.jobs import Job
from mpt.federation.plan import FederationSettings, early
from mpt.federation.state import FederationState, Handle, JobKey, Model, NewModels
from mpt.federation.stored import Stored
from mpt.federation.view import ServerView, views
from mpt.learning.settings import ServerSettings, TrainingSettings
from mpt.methods import Method, Traits, find_training
from mpt.scenario import PlanError

_OF_TRAINING = (
    *(f.name for f in (*fields(TrainingSettings), *fields(ServerSettings))),
    *("backbone", "weights", "freeze", "participation", "schedule", "aggregation", "attack", "loss", "engine"),
    "precision",
)
"""Settings that say how models are trained."""


def check_untrained(settings: FederationSettings, dataset: str, versions: int) -> None:
    """Refuses settings of training, and more rounds than there are versions."""
    for name in _OF_TRAINING:
        value = getattr(settings, name)
        if value != default_of(FederationSettings, name):
            raise PlanError(f"{name}: {value}, should be left out with {dataset}: nothing is trained there")
    if settings.rounds > versions:
        raise PlanError(
            f"rounds: {settings.rounds}, but {dataset} has {versions} versions, and round t is read out of version t; "
            f"should be at most {versions}, as in --rounds {versions} --depart-at {early(versions)} --eval-every 1; "
            "--depart-at is the last version that the class's owner has seen"
        )


def why_not(method: Method) -> str:
    """Why a method cannot be read out of features alone; empty where it can."""
    training = find_training(method.training)
    if Traits.of(method).needs_head:
        return "it reads the model's last layer, and there are features alone"
    if not training.departs:
        return "it reads a model that was trained as if nobody had left, and the versions are as they are"
    if not training.holds_out and not training.stops:
        return "it reads a model that goes on training on the remaining samples, and the versions are as they are"
    if training.loss is not None:
        return "it reads a model that was trained with a loss of its own, and the versions are as they are"
    return ""


def applicable(methods: Sequence[Method]) -> tuple[list[Method], dict[str, str]]:
    """The methods that can be read out of features alone, and by name why the others cannot.

    Raises:
        PlanError: none can.
    """
    reasons = {method.name: why for method in methods if (why := why_not(method))}
    kept = [method for method in methods if method.name not in reasons]
    if not kept:
        name, why = next(iter(reasons.items()))
        raise PlanError(f"methods: none can be read out of features alone; {name}: {why}")
    return kept, reasons


@dataclass
class UpgradedFederation(Federation):
    """Round t is read out of version t; a training that stops at the departure keeps that version."""

    _versions: dict[int, Stored] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_untrained(self.plan, self.dataset.name, self.dataset.versions)

    @property
    def dim(self) -> int:
        """d."""
        return int(self.dataset.train.versions[0].shape[1])

    @property
    def model_notes(self) -> tuple[str, ...]:
        """There is no file of weights."""
        return ()

    @property
    def model_bytes(self) -> int:
        """There is no model."""
        return 0

    def start(self) -> FederationState:
        """Before the first version."""
        return FederationState(0, dict.fromkeys(self.trainings, Model(Handle(0, 0), {})))

    def join(self, other: Federation) -> None:
        """There is nothing to train."""

    def work(self, jobs: Sequence[Job]) -> list[dict[str, Tensor]]:
        """Nothing."""
        return []

    def jobs(self, state: FederationState) -> dict[JobKey, Job]:
        """None."""
        if state.round >= self.plan.rounds:
            raise PlanError(f"round: {state.round + 1}, but the plan has {self.plan.rounds}")
        return {}

    def trained(self, state: FederationState, trained: NewModels) -> FederationState:
        """The next round's versions."""
        number = state.round + 1
        stopped = {t: self.presence.stopped(t, number) for t in self.trainings}
        versions = {t: self.plan.depart_at if stopped[t] else number for t in self.trainings}
        return FederationState(number, {t: Model(Handle(v, v), {}) for t, v in versions.items()})

    def begin(self, state: FederationState, trained: NewModels) -> None:
        """There is nothing to embed."""

    def _seen(self, number: int, models: Mapping[str, Model], earlier: Mapping[str, Model]) -> dict[str, ServerView]:
        current, before = ({t: self._version(m.handle.round) for t, m in some.items()} for some in (models, earlier))
        kept = {m.handle.round for m in (*models.values(), *earlier.values())}
        self._versions = {version: one for version, one in self._versions.items() if version in kept}
        return views(self.presence, number, current, before, self.hostile)

    def _version(self, version: int) -> Stored:
        """What a version makes of the samples; of its head nothing is known, which NaN says."""
        if version not in self._versions:
            train, test = (s.versions[version - 1] for s in (self.dataset.train, self.dataset.test))
            rare = self.plan.rare
            self._versions[version] = Stored(
                self.labels,
                {v: train[held] for v, held in self.partition.indices.items()},
                self.dataset.test.labels,
                np.array(test),
                test[self.dataset.test.labels == rare].mean(axis=0),
                train[self.dataset.train.labels == rare].mean(axis=0),
                unknown_head(self.dataset.num_classes, self.dim),
            )
        return self._versions[version]


def unknown_head(num_classes: int, dim: int) -> tuple[Floats, Floats]:
    """A head of which only the shape is known: (C, d) and (C,) of NaN."""
    return np.full((num_classes, dim), np.nan), np.full(num_classes, np.nan)
