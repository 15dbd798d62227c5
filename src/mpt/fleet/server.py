"""The server's side of a fleet, round by round: train, average, ask for statistics, track, evaluate, checkpoint.

It is the loop of `mpt.federation.engine` over a transport: vehicles may be late, wrong, gone, or back.
"""

import json
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from mpt.fleet.checkpoint import json_object, json_texts, read_part
from mpt.fleet.evaluation import Evaluation
from mpt.fleet.exchange import Arrays, Ask, Farewells, Kind, Node, Transport, nbytes
from mpt.fleet.judge import unusable
from mpt.fleet.orders import take_orders
from mpt.fleet.phase import Phase
from mpt.fleet.policy import RoundPolicy
from mpt.fleet.reference_models import ReferenceModels, model_in, models_in, packed
from mpt.fleet.status import EVIDENCE, evidence_in
from mpt.fleet.store import SCORES, TRACKER, Store
from mpt.learning import Classifier
from mpt.learning.aggregation import Medians
from mpt.methods import find_training
from mpt.protocol.evaluation import Evidence
from mpt.tracking.errors import FleetError
from mpt.tracking.roster import Decision, line
from mpt.tracking.sampling import asked_in, drawn
from mpt.tracking.tracker import More, Outcome, Tracker

Log = Callable[[Collection[Decision]], None]
RoundScores = Mapping[str, Any]
"""Accuracy and each class's F1, as `rounds.jsonl` has them."""
_FAR = 100
"""Times the median: an update with a weight that large stands far out."""
VERSION = "mpt"
"""The release, in a server's key."""
_NODES, _UPDATES = "nodes", "updates"
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
        evidence: how vehicles' validation samples were recognised; None where nobody has evaluated.
        earlier: the models that the outcome's readout reads beside the new one, in its order.
    """

    round: int
    model: Arrays
    outcome: Outcome
    asked: int
    updated: int
    seconds: float
    bytes_down: int
    bytes_up: int
    evidence: Evidence | None = None
    earlier: tuple[Arrays, ...] = ()


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
        unknown: by vehicle, a hash of what it said last of its samples of classes that are none of the fleet's.
        waiting: by kind of question and node that has not replied to the last such, since when.
        scores: what `record` has found out about the round's readout; kept with the checkpoint.
        evidence: how vehicles' validation samples were recognised when that was asked last; kept with it, too.
        medians: of the last round's updates, by which this one's are bounded; kept with it, too.
        clipped: the vehicles of whose last update not all counted.
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
    unknown: dict[str, int] = field(default_factory=dict)
    waiting: dict[tuple[Kind, str], float] = field(default_factory=dict)
    scores: RoundScores = field(default_factory=dict)
    _sample: set[str] = field(default_factory=set, init=False)
    evidence: Evidence | None = None
    medians: Medians | None = None
    clipped: frozenset[str] = frozenset()
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
        there, here = read_part(found, "key", json_object), json.loads(json.dumps(dict(self.key)))
        if wrong := differing(there, here):
            raise FleetError(wrong)
        self.model = model_in(found, self.model)
        names = self.tracker.settings.class_names
        chosen = self.tracker.settings
        self.tracker = read_part(found, TRACKER, lambda part: Tracker.from_bytes(part, chosen))
        if not self.tracker.settings.class_names:
            settings = replace(self.tracker.settings, class_names=names)
            self.tracker.state = replace(self.tracker.state, settings=settings)
        self.evidence = evidence_in(found, self.tracker.settings.num_classes)
        self.medians = read_part(found, _UPDATES, _medians) if _UPDATES in found.payload else None
        nodes = read_part(found, _NODES, json_texts) if _NODES in found.payload else {}
        itself = {v: v for v in self.tracker.roster.members if not self.tracker.roster.gone(v)}
        self.models = ReferenceModels(models_in(found), itself | nodes)
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
        """A round; one whose model nobody can use is done again, from the model before."""
        start, most = time.monotonic(), self.policy.max_attempts
        for attempt in range(1, most + 1):
            self._take_orders()
            train = self._trained(number, attempt)
            model = train.average()
            why = unusable(self.architecture, model)
            spoken = [] if why else self._reported(number, model, attempt)
            if not why and not spoken[0][1].reported:
                why = f"nobody could report on it{spoken[0][1].mostly}"
            if not why:
                return self._close(number, model, train, spoken, start)
            self._reject(number, why, train, attempt)
        raise FleetError(
            f"round {number}: its model was given up {most} times, {why}; start the server again to resume from round "
            f"{number - 1}, or ban whoever it is"
        )

    def _trained(self, number: int, again: int) -> Phase:
        """A half round of training, with a quorum of updates; `again` is the attempt at the whole round."""
        train, most = Phase(self, "train", number), self.policy.max_attempts
        for attempt in range(1, most + 1):
            nodes = self._reachable(number, train.may_suffice) - self._apart
            train.ask(self._training(number), self._to_train(number, nodes, most * again + attempt))
            needed = train.needed()
            if len(train.updated) >= needed:
                break
            why = f"{len(train.updated)} of {len(train.asked)} updates, {needed} needed (attempt {attempt} of {most})"
            self.log([Decision(number, "short", why=why)])
            if attempt == most:
                raise FleetError(
                    f"round {number}: {why}{train.mostly}; start the server again to resume from round {number - 1}"
                )
            time.sleep(self.policy.timeout / 10)
        return train

    def _reported(self, number: int, model: Arrays, attempt: int) -> list[tuple[Ask, Phase]]:
        """The first question about a new global model, and what came of it; the tracker has the answers.

        Where nobody of those who were drawn could report, the others are asked.
        """
        self._take_orders()
        report, online = Phase(self, "report", number), self._reachable(number)
        self._sample = self._to_report(number, online, attempt)
        self.tracker.begin(number)
        ask = self._question(model, online, number)
        report.ask(ask, self._sample & online)
        if not report.reported and online - self._sample:
            self._sample |= online
            report.ask(ask, online)
        return [(ask, report)]

    def _to_train(self, number: int, nodes: Collection[str], attempt: int) -> set[str]:
        """All of the nodes, or the share of the policy."""
        share, seed, least = self.policy.train_share, self.tracker.settings.seed, self.policy.min_vehicles
        return drawn(nodes, share, least=least, seed=seed, purpose="train", round=number, attempt=attempt)

    def _to_report(self, number: int, online: set[str], attempt: int) -> set[str]:
        """All nodes that are online or that somebody was reached at, or the share of the policy."""
        share, roster, known = self.policy.report_share, self.tracker.roster, self.models.nodes
        there = online | {node for v, node in known.items() if not roster.gone(v)}
        there -= self._apart if share < 1 else set()
        gone = {node for v, node in known.items() if roster.gone(v)} - online
        seed, least = self.tracker.settings.seed, self.policy.min_vehicles
        return asked_in(there, gone, share, seed=seed, round=number, least=least, attempt=attempt)

    def _close(
        self, number: int, model: Arrays, train: Phase, spoken: list[tuple[Ask, Phase]], start: float
    ) -> Finished:
        """What follows from a round's answers: further questions, decisions, evidence, a checkpoint."""
        _, report = spoken[0]
        leaving = report.leaving | {v for v in train.leaving if v not in self.tracker.answered}
        silent = {v: node for v, node in self.models.nodes.items() if node not in report.asked}
        lost = {v: "it could not be reached" for v, node in silent.items() if node in self._sample}
        sampled = self.policy.report_share < 1
        while True:
            result = self.tracker.take(
                leaving,
                absent=lost | self._by_vehicle(report.failed),
                late=self._by_vehicle(report.late),
                refused=self._by_vehicle(report.refused),
                names={v: self.names[node] for v, node in self.models.nodes.items() if self.names.get(node)},
                head=self._head(model),
                asked=[v for v, node in self.models.nodes.items() if node in self._sample] if sampled else None,
                doubted=train.doubted,
            )
            if not isinstance(result, More):
                break
            there = {self.models.nodes[v] for v in result.vehicles}
            further = self._question(model, there, number, result)
            half = Phase(self, "report", number)
            half.ask(further, there)
            spoken.append((further, half))
            leaving |= half.leaving
        self.model = model
        self.models.keep(self.tracker, model)
        evidence = self._evaluated(model, result, leaving, spoken)
        problems = (*train.problems, *(said for _, half in spoken for said in half.problems), *result.problems)
        self.tracker.note(problems)
        outcome = replace(result, problems=problems)
        self.log(outcome.decisions)
        received = train.received + sum(half.received for _, half in spoken)
        sent = train.sent * nbytes(model)
        for one, half in spoken:
            sent += half.sent * (nbytes(model) + len(one.request))
            sent += len(one.wanting) * sum(map(nbytes, one.models.values()))
        asked, updated = len(train.asked), len(train.updated)
        took = time.monotonic() - start
        earlier = tuple(self.models.kept[r] for r in outcome.references if r in self.models.kept)
        finished = Finished(number, model, outcome, asked, updated, took, sent, received, evidence, earlier)
        self._forget_the_gone()
        self.scores = self.record(finished) or {}
        if self.store is not None:
            self.store.save(number, self.checkpoint())
        return finished

    def _question(self, model: Arrays, nodes: Collection[str], number: int, more: More | None = None) -> Ask:
        return self.models.question(self.tracker, model, nodes, number, more, self.policy.evaluate_every > 0)

    def _evaluated(
        self, model: Arrays, outcome: Outcome, leaving: Collection[str], spoken: list[tuple[Ask, Phase]]
    ) -> Evidence | None:
        """In rounds that are evaluated, what vehicles have counted; the question joins those `spoken`."""
        if not self.policy.evaluates(outcome.round):
            return None
        half = Evaluation(self, outcome.round)
        spoken.append((half.put(model, outcome, leaving), half))
        self.evidence = half.evidence or self.evidence
        return half.evidence

    def _reject(self, number: int, why: str, train: Phase, attempt: int) -> None:
        """Give a round's model up; whose update stands far out is kept apart from now on."""
        said = line(f"the model of this round is given up: {why} (attempt {attempt} of {self.policy.max_attempts})")
        self.log([Decision(number, "rejected", why=said)])
        median = float(np.median(list(train.updated.values())))
        far = {v: size for v, size in train.updated.items() if size > _FAR * median}
        for vehicle, size in sorted(far.items()):
            reason = f"its update had weights up to {size:.1e}, half of all at most {median:.1e}, in a round given up"
            self.log(self.tracker.quarantine(vehicle, reason))
        if attempt < self.policy.max_attempts:
            time.sleep(self.policy.timeout / 10)

    def _by_vehicle(self, whys: Mapping[str, str]) -> dict[str, str]:
        return {v: whys[node] for v, node in self.models.nodes.items() if node in whys}

    @property
    def _apart(self) -> set[str]:
        """The nodes of quarantined vehicles: they do not train."""
        members = self.tracker.roster.members
        return {n for v, n in self.models.nodes.items() if v in members and members[v].state == "quarantined"}

    def _take_orders(self) -> None:
        """What the operator has ordered since."""
        self.log(take_orders(self.store, self.tracker))

    def count_refusal(self, why: str) -> None:
        """A reply was refused before the tracker saw it."""
        self.tracker.count_refusals([why])

    def _forget_the_gone(self) -> None:
        """Of vehicles that the tracker does not know any more nothing is kept."""
        there = self.tracker.roster.members.keys()
        self.models.nodes = {v: node for v, node in self.models.nodes.items() if v in there}
        self.unknown = {v: said for v, said in self.unknown.items() if v in there}
        kept = {*self.online, *self.models.nodes.values()}
        self.names = {node: name for node, name in self.names.items() if node in kept}
        self.waiting = {asked: since for asked, since in self.waiting.items() if asked[1] in self.online}

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
            **({} if self.evidence is None else {EVIDENCE: self.evidence.to_bytes()}),
            **({} if self.medians is None else {_UPDATES: json.dumps(self.medians).encode()}),
            _NODES: json.dumps({v: node for v, node in self.models.nodes.items() if v != node}).encode(),
        }

    def _reachable(self, number: int, enough: Callable[[set[str]], bool] = lambda _: True) -> set[str]:
        """The nodes to ask: all but those that have said goodbye. Those that are not `enough` are waited with."""
        until = time.monotonic() + self.policy.timeout
        while True:
            banned = set(self.tracker.roster.having("banned"))
            banned |= {node for v, node in self.models.nodes.items() if v in banned}
            online = {n: known for n, known in self.farewells.open(self.transport.nodes()).items() if n not in banned}
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


def _medians(part: bytes) -> Medians:
    """What a checkpoint has of the last round's updates."""
    return Medians(*(float(number) for number in json.loads(part)))


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
