"""The server's side of MPT in a Flower app of your own: ask for statistics after every round, and track.

    tracking = Tracking(grid, Tracker(num_classes=10, dim=64))
    strategy.start(grid, arrays, num_rounds=20, train_config=tracking.train_config, evaluate_fn=tracking)
    tracking.outcome.readout.predict(features)  # with "mpt-duo": under the models of outcome.references, too

`mpt.fleet.flower.mods` is the vehicle's side. Neither needs torch.
"""

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, MetricRecord
from flwr.serverapp import Grid

from mpt.base.errors import MptError
from mpt.fleet.exchange import Ask, Failure, Farewells, Node, Reply
from mpt.fleet.flower.mods import HELD_OUT
from mpt.fleet.flower.records import arrays_of
from mpt.fleet.flower.transport import FlowerTransport, Ids, refuse_claimed_ids
from mpt.fleet.log import DecisionLog
from mpt.fleet.orders import take_orders
from mpt.fleet.patience import Patience
from mpt.fleet.policy import RoundPolicy
from mpt.fleet.reference_models import ReferenceModels, models_in
from mpt.fleet.store import TRACKER, Store, refuse_if_ahead
from mpt.methods import find_training
from mpt.tracking.errors import FleetError
from mpt.tracking.roster import UNHEARD, Decision, check_id, line, titled
from mpt.tracking.sampling import asked_in
from mpt.tracking.state import TrackerState
from mpt.tracking.tracker import More, Outcome, Tracker

_THERE = ("present", "suspected", *UNHEARD)
Evaluate = Callable[[int, ArrayRecord], MetricRecord | None]
"""The `evaluate_fn` of Flower's strategies."""


def ask_statistics(
    grid: Grid,
    tracker: Tracker,
    arrays: ArrayRecord,
    *,
    deadline: float = 600.0,
    round: int | None = None,
    ids: Ids = "node",
    farewells: Farewells | None = None,
    models: ReferenceModels | None = None,
    head: tuple[str, str] | None = None,
    waiting: dict[str, float] | None = None,
    share: float = 1.0,
) -> Outcome:
    """Ask every vehicle for its statistics under the new global model, and close the round in the tracker.

    Args:
        grid: Flower's.
        tracker: changed.
        arrays: the global model, after the round's aggregation.
        deadline: seconds that vehicles have; once half of them have answered the others have as long again, and whoever
            is cut off then is late.
        round: default: the one after the tracker's last.
        ids: by what vehicles are known; see `FlowerTransport`.
        farewells: who has said goodbye in earlier calls; they are not asked before their node is started again.
        models: the global models that are needed again, one value for all calls; the method "mpt-x" has to have it.
        head: the names, in `arrays`, of the last layer's weight and bias, for methods that read them.
        waiting: since when nodes have not replied, one value for all calls: these are not waited for.
        share: of the vehicles, that are asked in a round; the others have missed nothing. With `models`, the same value
            in all calls, where vehicles are known by what they say.
    """
    if tracker.settings.asks.models and models is None:
        raise FleetError(
            f"models: none, should be a ReferenceModels(), the same in all rounds, for {tracker.settings.method!r}"
        )
    refuse_claimed_ids(grid, ids, "ids")
    known, gone = models or ReferenceModels(), farewells or Farewells()
    transport = FlowerTransport(grid, ids, restarts=ids == "node")
    banned = tracker.roster.having("banned")
    online = {node: info for node, info in gone.open(transport.nodes()).items() if node not in banned}
    model, policy = arrays_of(arrays), RoundPolicy(deadline=deadline, report_share=share)
    number = tracker.begin(round).round
    sample = _sample(tracker, known, online, policy, number)
    online = {node: info for node, info in online.items() if node in sample}
    ask = known.question(tracker, model, online, round)
    spoken = [_Heard(tracker, online, gone, {} if waiting is None else waiting)]
    spoken[0].ask(transport, ask, policy)
    lost = {v: "it could not be reached" for v in tracker.roster.having(*_THERE) if v in sample and v not in online}
    first, by_node = spoken[0], ids == "node"
    asked = sample if by_node else {v for v, node in (known.nodes | first.nodes).items() if node in sample}
    while True:
        result = tracker.take(
            {v for one in spoken for v in one.leaving},
            absent={**lost, **first.failed} if by_node else {},
            late=first.late if by_node else {},
            refused=first.refused if by_node else {},
            names={vehicle: online[node].name for vehicle, node in first.nodes.items() if online[node].name},
            head=None if head is None else (model[head[0]], model[head[1]]),
            asked=asked if share < 1 else None,
        )
        if not isinstance(result, More):
            break
        there = {first.nodes[v]: online[first.nodes[v]] for v in result.vehicles}
        spoken.append(_Heard(tracker, there, gone, first.waiting))
        spoken[-1].ask(transport, known.question(tracker, model, there, round, result), policy)
    known.nodes |= first.nodes
    known.keep(tracker, ask.model)
    wrong = tuple(
        Decision(ask.round, what, node, (), why, online[node].name)
        for one in spoken
        for what, whys in (("failed", one.failed), ("refused", one.refused))
        for node, why in sorted(whys.items())
    )
    tracker.count_refusals(d.why for d in wrong if d.what == "refused")
    said = (*(f"node {titled(d.vehicle, d.name)}: {d.why}" for d in wrong), *result.problems)
    tracker.note(said)
    return replace(result, problems=said, decisions=(*wrong, *result.decisions))


def _sample(
    tracker: Tracker, known: ReferenceModels, online: Collection[str], policy: RoundPolicy, round: int
) -> set[str]:
    """The nodes that are asked in a round: all, or the share of the policy."""
    there = {known.nodes.get(v, v) for v in tracker.roster.having(*_THERE)} | set(online)
    gone = {known.nodes.get(v, v) for v in tracker.roster.having("departed")} - there
    seed, least = tracker.settings.seed, policy.min_vehicles
    return asked_in(there, gone, policy.report_share, seed=seed, round=round, least=least)


@dataclass
class _Heard:
    """What has come back of one question. Answers go to the tracker, and are not kept here.

    Attributes:
        tracker: takes answers.
        online: the nodes that were asked.
        gone: takes goodbyes.
        waiting: since when nodes have not replied.
        nodes: where each vehicle replied from.
        leaving: vehicles that leave.
        failed, late, refused: why there is no reply that counts, by node.
    """

    tracker: Tracker
    online: Mapping[str, Node]
    gone: Farewells
    waiting: dict[str, float]
    nodes: dict[str, str] = field(default_factory=dict)
    leaving: set[str] = field(default_factory=set)
    failed: dict[str, str] = field(default_factory=dict)
    late: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)

    def ask(self, transport: FlowerTransport, ask: Ask, policy: RoundPolicy) -> None:
        """Ask, and take what comes."""
        silent, slow, patience = set(self.online), set(self.waiting), Patience(policy)
        needed = max(1, math.ceil(policy.quorum * len(silent - slow)))
        for node, reply in transport.ask(ask, sorted(silent), lambda: patience.left(len(self.nodes) >= needed)):
            silent.discard(node)
            self.waiting.pop(node, None)
            self._take(node, reply)
        for node in sorted(silent):
            since = self.waiting.setdefault(node, patience.started)
            if max(patience.waited, patience.started + patience.waited - since) >= policy.deadline:
                self.failed[node] = "no reply within the deadline"
            else:
                self.late[node] = f"no reply within {patience.waited:.0f} s, when {needed} had replied"

    def _take(self, node: str, reply: Reply | Failure) -> None:
        """One that has come. Whatever it makes our code raise is its own refusal."""
        if isinstance(reply, Failure):
            (self.refused if reply.refused else self.failed)[node] = reply.why
            return
        try:
            check_id(reply.vehicle)
            if reply.vehicle in self.nodes:
                raise FleetError(f"a second reply of vehicle {reply.vehicle}")
            if reply.answer is not None:
                self.tracker.receive(reply.vehicle, reply.answer, round=reply.round)
        except Exception as error:
            self.refused[node] = line(str(error) if isinstance(error, MptError) else f"{type(error).__name__}: {error}")
            return
        self.nodes[reply.vehicle] = node
        if reply.leaving:
            self.leaving.add(reply.vehicle)
            self.gone.say(node, self.online[node])


@dataclass
class Tracking:
    """An `evaluate_fn` for a strategy's `start`: it tracks after every round, and then evaluates as you like.

    Attributes:
        grid: Flower's.
        tracker: knows the number of classes and the length of your features.
        evaluate: your own `evaluate_fn`; when it is called, `outcome` has the round's readout.
        deadline: seconds that vehicles have to answer.
        ids: by what vehicles are known; see `FlowerTransport`.
        log: takes decisions; default: a sentence each on standard error.
        store: where the tracker is kept after every round, for `mpt fleet status` and to resume from, with the models
            that the method "mpt-x" needs again; None: nowhere. One that is ahead of the tracker is refused, as is one
            that another server writes to. In shadow mode, what `mpt fleet approve` has written there is read before
            every round's question.
        farewells: who has said goodbye; they are not asked again before their node is started again.
        waiting: since when nodes have not replied; these are not waited for.
        models: of the method "mpt-x", the global models that are needed again; those of the store are in it.
        head: the names, in the global model, of the last layer's weight and bias, for methods that read them (`ccvr`,
            `fedavg`).
        share: of the vehicles, that are asked for statistics in a round; the others have missed nothing.
        train_config: give it to `start`: it tells vehicles which classes not to train on, `mods.held_out(message)`.
        outcome: of the last round.
    """

    grid: Grid
    tracker: Tracker
    evaluate: Evaluate | None = None
    deadline: float = 600.0
    ids: Ids = "node"
    log: Callable[[Collection[Decision]], None] = field(default_factory=lambda: DecisionLog().write)
    store: Store | None = None
    farewells: Farewells = field(default_factory=Farewells)
    waiting: dict[str, float] = field(default_factory=dict)
    models: ReferenceModels = field(default_factory=ReferenceModels)
    head: tuple[str, str] | None = None
    share: float = 1.0
    train_config: ConfigRecord = field(default_factory=ConfigRecord)
    outcome: Outcome | None = None

    def __post_init__(self) -> None:
        refuse_claimed_ids(self.grid, self.ids, "ids")
        if find_training(self.tracker.settings.training).loss is not None:
            method = self.tracker.settings.method
            raise FleetError(f"method: {method!r} is a loss that vehicles train with, and training is your app's")
        if self.store is not None:
            refuse_if_ahead(self.store, self.tracker.round)
            found = self.store.latest()
            self.models.kept = {**({} if found is None else models_in(found)), **self.models.kept}
        self.models.resumed = self.tracker.round > 0
        self.train_config[HELD_OUT] = list(self.tracker.held_out)

    def __call__(self, server_round: int, arrays: ArrayRecord) -> MetricRecord | None:
        """After a round: track, evaluate, and give both numbers. Round 0, before all training, is only evaluated.

        The tracker counts rounds itself, so that one of an earlier run is resumed.
        """
        if server_round > 0:
            if self.store is not None:
                refuse_if_ahead(self.store, self.tracker.round)
            self.log(take_orders(self.store, self.tracker))
            self.outcome = ask_statistics(
                self.grid,
                self.tracker,
                arrays,
                deadline=self.deadline,
                ids=self.ids,
                farewells=self.farewells,
                models=self.models,
                head=self.head,
                waiting=self.waiting,
                share=self.share,
            )
            self.log(self.outcome.decisions)
            self.train_config[HELD_OUT] = list(self.tracker.held_out)
            if self.store is not None:
                self.store.save(self.tracker.round, {TRACKER: self.tracker.to_bytes(), **self.models.payload()})
        judged = self.evaluate(server_round, arrays) if self.evaluate is not None else None
        if self.outcome is None:
            return judged
        return MetricRecord({**metrics(self.tracker.state, self.outcome), **(judged or {})})


def metrics(state: TrackerState, outcome: Outcome) -> dict[str, int | float]:
    """A round in numbers: who answered, and of every class with a deposit how it is tracked.

    `mpt-class-C-remaining`: samples of the class in the round. `mpt-class-C-moved`: how far its prototype is from the
    deposit's. `mpt-class-C-alpha`: the weight of what was measured, where it was reconstructed in this round.
    """
    numbers: dict[str, int | float] = {
        "mpt-round": outcome.round,
        "mpt-answered": len(outcome.answered),
        "mpt-problems": len(outcome.problems),
    }
    for c, tracked in sorted(state.tracked.items()):
        name = f"mpt-class-{c}"
        numbers[f"{name}-remaining"] = 0 if outcome.statistics is None else int(outcome.statistics.counts[c])
        numbers[f"{name}-moved"] = float(np.linalg.norm(outcome.prototypes[c] - tracked.deposit.prototype))
        if c in outcome.reconstructions:
            numbers[f"{name}-alpha"] = float(outcome.reconstructions[c].alpha)
    return numbers
