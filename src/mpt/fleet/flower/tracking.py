"""The server's side of MPT in a Flower app of your own: ask for statistics after every round, and track.

    tracking = Tracking(grid, Tracker(num_classes=10, dim=64))
    strategy.start(grid, arrays, num_rounds=20, train_config=tracking.train_config, evaluate_fn=tracking)
    tracking.outcome.readout.predict(features)

`mpt.fleet.flower.mods` is the vehicle's side. Neither needs torch.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, MetricRecord
from flwr.serverapp import Grid

from mpt.fleet.approvals import take_approvals
from mpt.fleet.exchange import Ask, Failure, Farewells, Node, Reply
from mpt.fleet.flower.mods import HELD_OUT
from mpt.fleet.flower.records import arrays_of
from mpt.fleet.flower.transport import FlowerTransport, Ids
from mpt.fleet.log import DecisionLog
from mpt.fleet.reference_models import ReferenceModels, kept_in
from mpt.fleet.store import TRACKER, Store, refuse_if_ahead
from mpt.methods import find_training
from mpt.tracking.errors import FleetError
from mpt.tracking.roster import Decision, check_id, titled
from mpt.tracking.state import TrackerState
from mpt.tracking.tracker import More, Outcome, Tracker

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
) -> Outcome:
    """Ask every vehicle for its statistics under the new global model, and close the round in the tracker.

    Args:
        grid: Flower's.
        tracker: changed.
        arrays: the global model, after the round's aggregation.
        deadline: seconds that vehicles have; whoever has not answered then did not.
        round: default: the one after the tracker's last.
        ids: by what vehicles are known; see `FlowerTransport`.
        farewells: who has said goodbye in earlier calls; they are not asked before their node is started again.
        models: the global models that are needed again, one value for all calls; the method "mpt-x" has to have it.
        head: the names, in `arrays`, of the last layer's weight and bias, for methods that read them.
    """
    if tracker.settings.asks.models and models is None:
        raise FleetError(
            f"models: none, should be a ReferenceModels(), the same in all rounds, for {tracker.settings.method!r}"
        )
    known, gone = models or ReferenceModels(), farewells or Farewells()
    transport = FlowerTransport(grid, ids, restarts=ids == "node")
    online = gone.open(transport.nodes())
    model = arrays_of(arrays)
    ask = known.question(tracker, model, online, round)
    heard = _ask(transport, ask, online, deadline)
    leaving, later = set[str](), list[_Heard]()
    _say_goodbye(heard, gone, leaving)

    def ask_on(more: More) -> dict[str, bytes]:
        there = {heard.nodes[v]: online[heard.nodes[v]] for v in more.vehicles}
        later.append(_ask(transport, known.question(tracker, model, there, round, more), there, deadline))
        _say_goodbye(later[-1], gone, leaving)
        return later[-1].answers

    lost = {v: "it could not be reached" for v in tracker.roster.having("present", "suspected") if v not in online}
    outcome = tracker.close(
        heard.answers,
        leaving,
        round=ask.round,
        rounds={vehicle: reply.round for vehicle, reply in heard.replies.items()},
        absent={**lost, **heard.failed} if ids == "node" else {},
        names={vehicle: online[node].name for vehicle, node in heard.nodes.items() if online[node].name},
        head=None if head is None else (model[head[0]], model[head[1]]),
        ask=ask_on,
    )
    known.nodes |= heard.nodes
    known.keep(tracker, ask.model)
    wrong = tuple(
        Decision(ask.round, "failed", node, (), why, online[node].name)
        for one in (heard, *later)
        for node, why in sorted(one.failed.items())
    )
    said = (*(f"node {titled(d.vehicle, d.name)}: {d.why}" for d in wrong), *outcome.problems)
    tracker.state = replace(tracker.state, problems=said)
    return replace(outcome, problems=said, decisions=(*wrong, *outcome.decisions))


def _ask(transport: FlowerTransport, ask: Ask, online: Mapping[str, Node], deadline: float) -> "_Heard":
    """What comes back of one question."""
    heard = _Heard(online, set(online))
    for node, reply in transport.ask(ask, sorted(online), deadline):
        heard.take(node, reply)
    for node in sorted(heard.silent):
        heard.fail(node, "no reply within the deadline")
    return heard


def _say_goodbye(heard: "_Heard", gone: Farewells, leaving: set[str]) -> None:
    """Note who leaves."""
    for vehicle, reply in heard.replies.items():
        if reply.leaving:
            leaving.add(vehicle)
            gone.say(heard.nodes[vehicle], heard.online[heard.nodes[vehicle]])


@dataclass
class _Heard:
    """What has come back in a round.

    Attributes:
        online: the nodes that were asked.
        silent: those that have not replied yet.
        replies: by vehicle.
        nodes: where each vehicle replied from.
        failed: why there is no reply, by node.
    """

    online: Mapping[str, Node]
    silent: set[str]
    replies: dict[str, Reply] = field(default_factory=dict)
    nodes: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    def take(self, node: str, reply: Reply | Failure) -> None:
        """One that has come."""
        self.silent.discard(node)
        if isinstance(reply, Failure):
            self.fail(node, reply.why)
            return
        try:
            check_id(reply.vehicle)
        except FleetError as error:
            self.fail(node, str(error))
            return
        if reply.vehicle in self.replies:
            self.fail(node, f"a second reply of vehicle {reply.vehicle}")
            return
        self.replies[reply.vehicle], self.nodes[reply.vehicle] = reply, node

    @property
    def answers(self) -> dict[str, bytes]:
        """By vehicle."""
        return {vehicle: reply.answer for vehicle, reply in self.replies.items() if reply.answer is not None}

    def fail(self, node: str, why: str) -> None:
        """There is none from a node, and why."""
        self.failed[node] = why


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
            that the method "mpt-x" needs again; None: nowhere. One that is ahead of the tracker is refused. In shadow
            mode, what `mpt fleet approve` has written there is read before every round's question.
        farewells: who has said goodbye; they are not asked again before their node is started again.
        models: of the method "mpt-x", the global models that are needed again; those of the store are in it.
        head: the names, in the global model, of the last layer's weight and bias, for methods that read them (`ccvr`,
            `fedavg`).
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
    models: ReferenceModels = field(default_factory=ReferenceModels)
    head: tuple[str, str] | None = None
    train_config: ConfigRecord = field(default_factory=ConfigRecord)
    outcome: Outcome | None = None

    def __post_init__(self) -> None:
        if find_training(self.tracker.settings.training).loss is not None:
            method = self.tracker.settings.method
            raise FleetError(f"method: {method!r} is a loss that vehicles train with, and training is your app's")
        if self.store is not None:
            refuse_if_ahead(self.store, self.tracker.round)
            found = self.store.latest()
            self.models.kept = {**({} if found is None else kept_in(found.payload)), **self.models.kept}
        self.models.resumed = self.tracker.round > 0
        self.train_config[HELD_OUT] = list(self.tracker.held_out)

    def __call__(self, server_round: int, arrays: ArrayRecord) -> MetricRecord | None:
        """After a round: track, evaluate, and give both numbers. Round 0, before all training, is only evaluated.

        The tracker counts rounds itself, so that one of an earlier run is resumed.
        """
        if server_round > 0:
            self.log(take_approvals(self.store, self.tracker))
            self.outcome = ask_statistics(
                self.grid,
                self.tracker,
                arrays,
                deadline=self.deadline,
                ids=self.ids,
                farewells=self.farewells,
                models=self.models,
                head=self.head,
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
