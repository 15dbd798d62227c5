"""The server's side of a fleet, round by round: train, average, ask for statistics, track, checkpoint.

It is the loop of `mpt.federation.engine` over a transport: vehicles may be late, wrong, gone, or back.
"""

import json
import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from mpt.fleet.approvals import take_approvals
from mpt.fleet.exchange import Arrays, Ask, Failure, Farewells, Kind, Node, Reply, Transport, nbytes
from mpt.fleet.policy import RoundPolicy
from mpt.fleet.reference_models import ReferenceModels, kept_in, packed, unpacked
from mpt.fleet.store import SCORES, TRACKER, Store
from mpt.fleet.vehicle import arrays, tensors
from mpt.learning import Classifier, LearningError, RunningAverage
from mpt.methods import find_training
from mpt.tracking.errors import FleetError
from mpt.tracking.roster import Decision, check_id, printable, titled
from mpt.tracking.tracker import More, Outcome, Tracker

Log = Callable[[Collection[Decision]], None]
RoundScores = Mapping[str, Any]
"""Accuracy and each class's F1, as `rounds.jsonl` has them."""
MOST_SAMPLES = 2**31
VERSION = "mpt"
"""The release, in a server's key."""
_NODES = "nodes"
_EARLIER = {
    "shadow": False,
    "loss": "cross-entropy",
    "weights": "",
    "freeze": False,
    "momentum": 0.9,
    "weight_decay": 5e-4,
    "prox": 0.0,
}
"""What settings were before there was such a one."""


@dataclass(frozen=True, eq=False)
class Finished:
    """A round that is over.

    Attributes:
        round: its number.
        model: the new global model.
        outcome: prototypes, readout, decisions.
        asked: how many vehicles were asked to train.
        updated: how many updates were averaged.
        seconds: it took.
        bytes_down, bytes_up: of models and statistics, all vehicles together.
    """

    round: int
    model: Arrays
    outcome: Outcome
    asked: int
    updated: int
    seconds: float
    bytes_down: int
    bytes_up: int


@dataclass
class Server:
    """What goes on from round to round.

    Attributes:
        architecture: the model's, for BatchNorm's layers and the layout of updates.
        model: the global model.
        tracker: who is there, and what departed classes look like.
        transport: carries the messages.
        key: what a checkpoint must agree in, to be resumed from; but `VERSION` and what only one of both knows may
            differ, which is said: formats have versions of their own.
        loss: what vehicles minimise, by name, where the method's training names no loss of its own.
        models: the global models that the tracker needs again, and where each vehicle was reached last.
        names: what nodes are called, where the transport knows.
        online: the nodes that could be reached last.
        farewells: where vehicles have said goodbye.
        unknown: by vehicle, its samples of classes that are none of the fleet's, as it said last.
        scores: what `record` has found out about the round's readout; kept with the checkpoint.
        store: where checkpoints are kept; None: nowhere.
        log: takes decisions.
        record: takes every round that is over, before it is checkpointed: after a crash one may come twice, none never.
            What it gives is kept with the checkpoint.
    """

    architecture: Classifier
    model: Arrays
    tracker: Tracker
    transport: Transport
    policy: RoundPolicy = field(default_factory=RoundPolicy)
    key: Mapping[str, Any] = field(default_factory=dict)
    loss: str = "cross-entropy"
    store: Store | None = None
    log: Log = lambda _: None
    record: Callable[["Finished"], RoundScores | None] = lambda _: None
    models: ReferenceModels = field(default_factory=ReferenceModels)
    names: dict[str, str] = field(default_factory=dict)
    farewells: Farewells = field(default_factory=Farewells)
    unknown: dict[str, dict[str, int]] = field(default_factory=dict)
    scores: RoundScores = field(default_factory=dict)
    online: Mapping[str, Node] = field(default_factory=dict)

    def resume(self) -> int:
        """Go on from the store's last checkpoint, if there is one; the round that it is of, or 0."""
        found = self.store.latest() if self.store is not None else None
        if found is None:
            return 0
        lacking = [part for part in ("key", "model", TRACKER) if part not in found.payload]
        if lacking:
            raise FleetError(
                f"store: round {found.round} has no {lacking[0]!r}, it is not a server's; give another place"
            )
        there, here = json.loads(found.payload["key"]), json.loads(json.dumps(dict(self.key)))
        if wrong := differing(there, here):
            raise FleetError(wrong)
        self.model = unpacked(found.payload["model"])
        names = self.tracker.settings.class_names
        self.tracker = Tracker.from_bytes(found.payload[TRACKER])
        if not self.tracker.settings.class_names:
            settings = replace(self.tracker.settings, class_names=names)
            self.tracker.state = replace(self.tracker.state, settings=settings)
        nodes = dict(json.loads(found.payload.get(_NODES, b"{}")))
        self.models = ReferenceModels(kept_in(found.payload), nodes)
        self.models.keep(self.tracker, self.model)
        self.models.resumed = True
        why = "the server resumes after this round, from its checkpoint" + _upgraded(there, here)
        self.log([Decision(found.round, "resumed", why=why)])
        return found.round

    def rounds(self, last: int) -> Iterator[Finished]:
        """The rounds up to `last`."""
        while self.tracker.round < last:
            yield self._round(self.tracker.round + 1)

    def _round(self, number: int) -> Finished:
        start = time.monotonic()
        train = _Phase(self, "train", number)
        for attempt in range(1, self.policy.max_attempts + 1):
            nodes = self._reachable(number, train.may_suffice)
            train.ask(self._training(number), nodes)
            needed, most = train.needed(), self.policy.max_attempts
            if len(train.updates) >= needed:
                break
            why = f"{len(train.updates)} of {len(train.asked)} updates, {needed} needed (attempt {attempt} of {most})"
            self.log([Decision(number, "short", why=why)])
            if attempt == most:
                raise FleetError(
                    f"round {number}: {why}{train.mostly}; start the server again to resume from round {number - 1}"
                )
            time.sleep(self.policy.timeout / 10)
        model = train.average()
        report, nodes = _Phase(self, "report", number), self._reachable(number)
        ask = self.models.question(self.tracker, model, nodes, number)
        report.ask(ask, nodes)
        later, leaving = list[tuple[Ask, _Phase]](), report.leaving | (train.leaving - report.answers.keys())

        def ask_on(more: More) -> dict[str, bytes]:
            there = {self.models.nodes[v] for v in more.vehicles}
            asked = self.models.question(self.tracker, model, there, number, more)
            half = _Phase(self, "report", number)
            later.append((asked, half))
            half.ask(asked, there)
            leaving.update(half.leaving)
            return half.answers

        self.log(take_approvals(self.store, self.tracker))
        outcome = self.tracker.close(
            report.answers,
            leaving,
            round=number,
            rounds=report.rounds,
            absent=self._absent(report, nodes),
            names={v: self.names[node] for v, node in self.models.nodes.items() if self.names.get(node)},
            head=self._head(model),
            ask=ask_on,
        )
        self.model = model
        self.models.keep(self.tracker, model)
        spoken = [(ask, report), *later]
        problems = (*train.problems, *(said for _, half in spoken for said in half.problems), *outcome.problems)
        self.tracker.state = replace(self.tracker.state, problems=problems)
        outcome = replace(outcome, problems=problems)
        self.log(outcome.decisions)
        asked, updated = len(train.asked), len(train.updates)
        received = train.received + sum(half.received for _, half in spoken)
        sent = train.sent * nbytes(model)
        for one, half in spoken:
            sent += half.sent * (nbytes(model) + len(one.request))
            sent += len(one.wanting) * sum(map(nbytes, one.models.values()))
        finished = Finished(number, model, outcome, asked, updated, time.monotonic() - start, sent, received)
        self.scores = self.record(finished) or {}
        if self.store is not None:
            self.store.save(number, self.checkpoint())
        return finished

    def _absent(self, report: "_Phase", asked: Collection[str]) -> dict[str, str]:
        """Why vehicles did not report, where that is known."""
        lost = {v: "it could not be reached" for v, node in self.models.nodes.items() if node not in asked}
        return lost | {v: report.failed[node] for v, node in self.models.nodes.items() if node in report.failed}

    def _training(self, number: int) -> Ask:
        loss = find_training(self.tracker.settings.training).loss or self.loss
        if not isinstance(loss, str):
            raise FleetError(
                "loss: a function, which no vehicle can be told, should be a text such as path.py:function"
            )
        return Ask("train", number, self.model, self.tracker.held_out, loss=loss)

    def _head(self, model: Arrays) -> tuple[Any, Any]:
        """Weight (C, d) and bias (C,) of the model's last layer."""
        weight, bias = (np.asarray(model[f"head.{name}"], dtype=np.float64) for name in ("weight", "bias"))
        return weight, bias

    def checkpoint(self) -> dict[str, bytes]:
        """The whole state, as named bytes."""
        return self.models.payload(but=self.tracker.round) | {
            "model": packed(self.model),
            TRACKER: self.tracker.to_bytes(),
            "key": json.dumps(dict(self.key)).encode(),
            SCORES: json.dumps(dict(self.scores)).encode(),
            _NODES: json.dumps(self.models.nodes).encode(),
        }

    def _reachable(self, number: int, enough: Callable[[set[str]], bool] = lambda _: True) -> set[str]:
        """The nodes to ask: all but those that have said goodbye. Those that are not `enough` are waited with."""
        until = time.monotonic() + self.policy.timeout
        while True:
            online = self.farewells.open(self.transport.nodes())
            self.online, asked, over = online, set(online), time.monotonic() > until
            self.names |= {node: known.name for node, known in online.items()}
            if len(asked) >= self.policy.min_vehicles and (over or enough(asked)):
                return asked
            if over:
                raise FleetError(
                    f"round {number}: {len(asked)} vehicles can be reached after {self.policy.timeout:g} s, at least "
                    f"{self.policy.min_vehicles} are needed; start the server again to resume from round {number - 1}"
                )
            time.sleep(min(0.5, self.policy.timeout / 10))


class _Phase:
    """One half of a round: what was asked, and what came back in time."""

    def __init__(self, server: Server, kind: Kind, number: int) -> None:
        self.server, self.kind, self.number = server, kind, number
        self.sent = self.received = 0
        self.asked: set[str] = set()
        self._replied: set[str] = set()
        self._left: set[str] = set()
        self.updates: dict[str, Reply] = {}
        self.answers: dict[str, bytes] = {}
        self.rounds: dict[str, int] = {}
        self.leaving: set[str] = set()
        self.failed: dict[str, str] = {}
        self.problems: list[str] = []
        self._reasons: Counter[str] = Counter()
        self._layout = RunningAverage(server.architecture)
        self._layout.add(tensors(server.model), 0)

    def needed(self, more: Collection[str] = ()) -> int:
        """How many updates the quorum is, of the nodes asked and `more`, less those that said goodbye instead."""
        return max(1, math.ceil(self.server.policy.quorum * len((self.asked | set(more)) - self._left)))

    def may_suffice(self, nodes: set[str]) -> bool:
        """Whether the quorum would be met if all of these replied that have not yet."""
        return len(self.updates) + len(nodes - self._replied) >= self.needed(nodes)

    def ask(self, ask: Ask, nodes: Collection[str]) -> None:
        """Ask those who have not replied yet; whatever is wrong is logged before anything else is decided."""
        self.asked |= set(nodes)
        silent, wrong = set(nodes) - self._replied, list[Decision]()
        known = {node: vehicle for vehicle, node in self.server.models.nodes.items()}
        names = self.server.names
        self.sent += len(silent)

        def failed(node: str, why: str) -> None:
            vehicle, name = known.get(node, node), names.get(node, "")
            self.failed[node] = f"{self.kind}: {why}"
            self.problems.append(f"{self.kind}: vehicle {titled(vehicle, name)}: {why}")
            wrong.append(Decision(self.number, "failed", vehicle, (), f"{self.kind}: {why}", name))

        for node, reply in self.server.transport.ask(ask, sorted(silent), self.server.policy.deadline):
            silent.discard(node)
            if isinstance(reply, Failure):
                failed(node, reply.why)
                continue
            self._replied.add(node)
            try:
                self._take(reply)
                moved = known.get(node, reply.vehicle)
                if moved != reply.vehicle and self.server.models.nodes.get(moved) == node:
                    del self.server.models.nodes[moved]
                self.server.models.nodes[reply.vehicle] = node
                wrong += self._left_out(reply, node)
                if reply.leaving:
                    self._left |= {node} if reply.model is None else set()
                    self.server.farewells.say(node, self.server.online.get(node))
            except (FleetError, LearningError) as error:
                self.failed[node] = f"its reply was refused ({self.kind}: {error})"
                why = f"{self.kind}: {error}"
                wrong.append(Decision(self.number, "refused", reply.vehicle, (), why, names.get(node, "")))
        for node in sorted(silent):
            failed(node, "no reply within the deadline")
        self._reasons.update(decision.why for decision in wrong if decision.what != "left-out")
        self.server.log(wrong)

    def _left_out(self, reply: Reply, node: str) -> list[Decision]:
        """What a vehicle has of classes that are none of the fleet's, where it did not say so before."""
        if dict(reply.unknown) == self.server.unknown.get(reply.vehicle, {}):
            return []
        self.server.unknown[reply.vehicle] = dict(reply.unknown)
        counted = ", ".join(f"{name} ({count})" for name, count in sorted(reply.unknown.items()))
        why = f"samples of classes that the fleet does not know: {counted}" if counted else "no samples any more"
        return [Decision(self.number, "left-out", reply.vehicle, (), why, self.server.names.get(node, ""))]

    @property
    def mostly(self) -> str:
        """The commonest reason for which updates are missing, for a sentence."""
        if not self._reasons:
            return ""
        why, times = self._reasons.most_common(1)[0]
        return f"; the commonest reason, {times} of {self._reasons.total()} times: {printable(why)}"

    def _take(self, reply: Reply) -> None:
        check_id(reply.vehicle)
        if reply.round != self.number:
            raise FleetError(f"a reply of round {reply.round} in round {self.number}")
        if reply.vehicle in self.updates or reply.vehicle in self.answers:
            raise FleetError("a second reply under the same id")
        if reply.leaving:
            self.leaving.add(reply.vehicle)
        if reply.answer is not None and self.kind == "report":
            self.received += len(reply.answer)
            self.answers[reply.vehicle], self.rounds[reply.vehicle] = reply.answer, reply.round
        if reply.model is not None and self.kind == "train":
            if not 0 < reply.samples < MOST_SAMPLES:
                raise FleetError(f"samples: {reply.samples}, should be from 1 to {MOST_SAMPLES - 1}")
            self.received += nbytes(reply.model)
            self._layout.add(tensors(reply.model), 0)
            self.updates[reply.vehicle] = reply

    def average(self) -> dict[str, Any]:
        """FedAvg, in the order of ids, so that it does not depend on who was faster."""
        running = RunningAverage(self.server.architecture)
        for _, reply in sorted(self.updates.items(), key=lambda item: _order(item[0])):
            assert reply.model is not None
            running.add(tensors(reply.model), reply.samples)
        return arrays(running.state())


def differing(there: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    """Why a server with the one key cannot resume from a checkpoint with the other; empty where it can."""
    there = {**_EARLIER, **there}
    both = sorted((there.keys() & here.keys()) - {VERSION})
    other = [f"{n.replace('_', '-')} {there[n]!r}, not {here[n]!r}" for n in both if there[n] != here[n]]
    if not other:
        return ""
    return f"store: it holds a fleet with {'; '.join(other)}: give another state folder, or the same settings"


def _upgraded(there: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    """What differs between a checkpoint's key and the server's and is no reason not to resume, for a sentence."""
    said = ""
    if there.get(VERSION) != here.get(VERSION):
        said += f", which mpt {there.get(VERSION)} has written; this is mpt {here.get(VERSION)}"
    if unknown := sorted((there.keys() ^ here.keys()) - {VERSION}):
        said += f"; settings that only one of both knows: {', '.join(unknown)}"
    return said


def _order(vehicle: str) -> tuple[int, str]:
    """By number where an id is one, as the one-machine engine counts vehicles."""
    return (int(vehicle), "") if vehicle.isascii() and vehicle.isdigit() else (-1, vehicle)
