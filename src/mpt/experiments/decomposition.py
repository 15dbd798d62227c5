"""The step of the first round after a departure, taken apart: rounds in which one thing alone is as after a departure.

From one state of a federation, after the departure's round, the next global model is made several times. Every vehicle
trains once as if nobody left, and once without the remaining samples; the models are averages of these updates. The
round with all three changes is the held-out training's own, the one with weight and BatchNorm the continued training's.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from mpt.core.validation import Floats
from mpt.data import Dataset
from mpt.federation.background import precisely
from mpt.federation.engine import Federation
from mpt.federation.features import Features
from mpt.federation.jobs import Job
from mpt.federation.lockstep import rounds_together
from mpt.federation.measurement import Anchor, Drift, Measurement
from mpt.federation.metrics import score
from mpt.federation.plan import DEFAULT_READOUT, Plan
from mpt.federation.state import FederationState, Handle, Model
from mpt.federation.view import ServerView, views
from mpt.learning import Classifier, RunningAverage
from mpt.learning.averaging import batchnorm_prefixes
from mpt.scenario import PlanError

BEFORE = 5
"""How many steps before the departure are averaged, at most."""

_READ = ("frozen", "oracle-train", "fedavg", "live")
_BUFFERS = ("running_mean", "running_var", "num_batches_tracked")
_State = dict[str, Tensor]


@dataclass(frozen=True)
class Variant:
    """What is as after a departure; all else is as if the vehicle were there.

    Attributes:
        weight: its update is left out of the average of all but BatchNorm's running statistics.
        batchnorm: it is left out of the average of these.
        training: those who stay hold the remaining samples out of their training, and out of their weights.
    """

    weight: bool = False
    batchnorm: bool = False
    training: bool = False


VARIANTS = {
    "live": Variant(),
    "weight": Variant(weight=True),
    "batchnorm": Variant(batchnorm=True),
    "training": Variant(training=True),
    "weight + batchnorm": Variant(weight=True, batchnorm=True),
    "all three": Variant(weight=True, batchnorm=True, training=True),
}
_OWN = {"live": "live", "weight + batchnorm": "continued", "all three": "held-out"}
"""The trainings of the engine that variants are."""


@dataclass(frozen=True)
class TakenRound:
    """A round after the departure, or in place of one the rounds before it.

    Attributes:
        step: the way of the prototypes in this round, Mahalanobis under its covariance of the vehicles that stay.
        apart: how far they are then from where the live round has them; None of the rounds before.
        frozen: F1 of the class's prototype as it was at departure, among the others' as they are now, mahalanobis.
        oracle: the same with oracle-train's.
    """

    step: Drift
    apart: Drift | None
    frozen: float
    oracle: float


@dataclass(frozen=True)
class Decomposition:
    """One seed.

    Attributes:
        seed: its number.
        before: the mean step of the last rounds up to the departure's, NaN where there is none, with the F1 there.
        after: an outcome a variant, by its name.
        layers: of BatchNorm; without any the variant batchnorm is the live one.
        gap: the largest difference between an entry of a variant's model and of the engine's own; 0 with the
            plain engine on a CPU.
    """

    seed: int
    before: TakenRound
    after: dict[str, TakenRound]
    layers: int
    gap: float


def prepared(plan: Plan) -> Plan:
    """The plan, read out as this module needs it: in the rounds of the departure and after it.

    It keeps its number of rounds, which the learning rate's schedule goes by.
    """
    if plan.participation != 1:
        raise PlanError(f"participation: {plan.participation}, should be 1: who takes part is not to differ as well")
    if plan.serving.server != "average" or plan.serving.lr != 1:
        raise PlanError(f"server: {plan.server}, should be average with a step of 1: the mean is what is taken apart")
    return replace(plan, methods=_READ, readout=DEFAULT_READOUT, eval_every=plan.depart_at + 1, slow_every=None)


def decompose(dataset: Dataset, plans: Sequence[Plan], *, device: str = "cpu") -> list[Decomposition]:
    """Train to the departure and take the next round apart, for plans that differ in their seeds alone.

    Raises:
        PlanError: not all vehicles take part in a round.
    """
    federations = [Federation(dataset, prepared(plan), torch.device(device)) for plan in plans]
    kept = [deque[FederationState](maxlen=BEFORE + 2) for _ in federations]
    rows: list[list[Measurement]] = [[] for _ in federations]
    for states, new in rounds_together(federations, [f.start() for f in federations]):
        for mine, state, told, some in zip(kept, states, rows, new, strict=True):
            mine.append(state)
            told.extend(some)
        if states[0].round > plans[0].depart_at:
            break
    departed = [states[-2] for states in kept]
    with precisely(plans[0].precision):
        made = next_models(federations, departed)
        return [
            _measured(federation, list(states), models, told)
            for federation, states, models, told in zip(federations, kept, made, rows, strict=True)
        ]


def next_models(
    federations: Sequence[Federation], states: Sequence[FederationState]
) -> list[dict[str, dict[str, Tensor]]]:
    """The state dict of the round after `states` by variant, for each of several federations at their departure.

    All vehicles train in one call of the first's trainer: a job of one vehicle gives that vehicle's update.
    """
    jobs = [_jobs(federation, state) for federation, state in zip(federations, states, strict=True)]
    first = federations[0]
    trained = iter(first.train(first.model, [job for some in jobs for job in some.values()]))
    made = []
    for federation, some in zip(federations, jobs, strict=True):
        updates = {key: _Update(next(trained), _samples(job)) for key, job in some.items()}
        made.append({name: _averaged(federation, updates, variant) for name, variant in VARIANTS.items()})
    return made


@dataclass(frozen=True, eq=False)
class _Update:
    """A vehicle's model after the round, and on how many samples it has trained."""

    state: _State
    weight: int


def _jobs(federation: Federation, state: FederationState) -> dict[tuple[int, bool], Job]:
    """By vehicle and whether the remaining samples are held out: a job of it alone. None without samples."""
    number, plan = state.round + 1, federation.plan
    start, settings = state.models["held-out"].tensors, plan.training_in(number)
    jobs = {}
    for vehicle in federation.presence.here("live", number):
        whole, without = federation.vehicles[vehicle], federation.without_rare[vehicle]
        for held_out, samples in ((False, whole), (True, without)):
            if len(samples.labels) and not (held_out and without is whole):
                loss = federation.losses["held-out"]
                jobs[vehicle, held_out] = Job(start, {vehicle: samples}, settings, plan.seed, number, loss)
    return jobs


def _samples(job: Job) -> int:
    return sum(len(samples.labels) for samples in job.vehicles.values())


def _averaged(federation: Federation, updates: Mapping[tuple[int, bool], _Update], variant: Variant) -> _State:
    """The global model of a variant."""
    model, owner = federation.model, federation.partition.owner
    chosen = {}
    for vehicle in sorted({v for v, _ in updates}):
        held_out = variant.training and vehicle != owner and _trains_on_rare(federation, vehicle)
        if (vehicle, held_out) in updates:
            chosen[vehicle] = updates[vehicle, held_out]
    averages = {
        without: _mean(model, [u for v, u in chosen.items() if not (without and v == owner)])
        for without in {variant.weight, variant.batchnorm}
    }
    buffers = {f"{p}.{name}" if p else name for p in batchnorm_prefixes(model) for name in _BUFFERS}
    return {
        name: averages[variant.batchnorm if name in buffers else variant.weight][name]
        for name in averages[variant.weight]
    }


def _trains_on_rare(federation: Federation, vehicle: int) -> bool:
    return federation.without_rare[vehicle] is not federation.vehicles[vehicle]


def _mean(model: Classifier, updates: Iterable[_Update]) -> _State:
    running = RunningAverage(model)
    for update in updates:
        running.add(update.state, update.weight)
    return running.state()


def _measured(
    federation: Federation,
    states: Sequence[FederationState],
    models: Mapping[str, _State],
    rows: Sequence[Measurement],
) -> Decomposition:
    """The outcomes, given the states up to the round after the departure and that round's models by variant."""
    *earlier, own = states
    departed, number = earlier[-1], own.round
    anchor = departed.anchors.departure
    assert anchor is not None
    gaps = {name: _gap(models[name], own.models[training].tensors) for name, training in _OWN.items()}
    if federation.device.type == "cpu" and federation.plan.engine == "plain" and any(gaps.values()):
        raise RuntimeError(f"models: they differ from the engine's own by {gaps}, should be the same bit by bit")
    frozen: Floats = departed.method_states["frozen"]
    live: Anchor | None = None
    after = {}
    for i, (name, tensors) in enumerate(models.items()):
        seen = _view(federation, number, Model(Handle(number, -1 - i), tensors))
        live = live or seen.anchor()
        after[name] = TakenRound(
            seen.drift(anchor), seen.drift(live), _f1(seen, frozen), _f1(seen, seen.oracle("train"))
        )
    then = {row.method: row.f1 for row in rows if row.round == departed.round}
    before = TakenRound(_before(federation, earlier), None, then["frozen"], then["oracle-train"])
    layers = len(batchnorm_prefixes(federation.model))
    return Decomposition(federation.plan.seed, before, after, layers, max(gaps.values()))


def _before(federation: Federation, states: Sequence[FederationState]) -> Drift:
    """The mean step between consecutive ones of these rounds."""
    steps, previous = list[Drift](), None
    for state in states:
        seen = _view(federation, state.round, state.models["held-out"])
        if previous is not None:
            steps.append(seen.drift(previous))
        previous = seen.anchor()
    if not steps:
        return Drift(np.nan, np.nan)
    return Drift(float(np.mean([s.references for s in steps])), float(np.mean([s.rare for s in steps])))


def _view(federation: Federation, number: int, model: Model) -> ServerView:
    return views(federation.presence, number, {"held-out": Features(federation, model)}, {})["held-out"]


def _f1(seen: ServerView, prototype: Floats) -> float:
    """Of the departing class with this prototype (d,)."""
    prototypes, rare = seen.stats.means, seen.plan.rare
    prototypes[rare] = prototype
    (confusion,) = seen.features.confusions([seen.mahalanobis(prototypes)])
    return float(score(confusion, (rare,)).f1[rare])


def _gap(mine: _State, theirs: Mapping[str, Tensor]) -> float:
    return max(float((tensor.double() - theirs[name].double()).abs().max()) for name, tensor in mine.items())
