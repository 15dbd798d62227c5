"""One part of a round: what was asked, and what came back in time. Whatever one reply does harms nobody else."""

import math
from collections import Counter
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from mpt.base.errors import MptError
from mpt.fleet.exchange import Ask, Failure, Kind, Reply, nbytes
from mpt.fleet.judge import unusable
from mpt.fleet.patience import Patience
from mpt.fleet.vehicle import arrays, tensors
from mpt.learning import batchnorm_prefixes
from mpt.learning.aggregation import gathering
from mpt.tracking.errors import FleetError
from mpt.tracking.roster import Decision, check_id, line, titled

if TYPE_CHECKING:
    from mpt.fleet.server import Server

MOST_SAMPLES = 2**31


class Phase:
    """What came of one question. Updates are averaged and reports merged as they arrive, and forgotten.

    Attributes:
        sent, received: how many questions, and bytes of what was taken.
        asked: the nodes.
        updated: of the vehicles whose update was taken, its largest weight.
        reported: how many reports were taken.
        leaving: vehicles that said goodbye.
        failed: why there is no reply, by node: it has missed the question.
        late: by node, likewise: it can be reached, and was not waited for.
        refused: by node, why its reply was not taken.
        problems: a sentence each.
        doubted: whether less than half of somebody's update has counted.
    """

    def __init__(self, server: "Server", kind: Kind, number: int) -> None:
        self.server, self.kind, self.number = server, kind, number
        self.sent = self.received = self.reported = 0
        self.asked, self.leaving = set[str](), set[str]()
        self.updated = dict[str, float]()
        self.failed, self.late, self.refused = dict[str, str](), dict[str, str](), dict[str, str]()
        self.problems = list[str]()
        self._replied, self._left, self._slow = (
            set[str](),
            set[str](),
            {node for kind, node in server.waiting if kind == self.kind},
        )
        self._taken = set[str]()
        self._reasons: Counter[str] = Counter()
        self._said = list[Decision]()
        self.doubted = False
        self._average = gathering(
            server.policy.aggregation, batchnorm_prefixes(server.architecture), tensors(server.model), server.medians
        )
        self._holders = server.tracker.holders

    def needed(self, more: Collection[str] = ()) -> int:
        """How many replies the quorum is: of the nodes asked and `more`, less those that said goodbye instead.

        Those that have not replied to what they were asked before do not raise it, so that nobody stops a fleet by
        being silent.
        """
        policy, asked = self.server.policy, (self.asked | set(more)) - self._left
        whole, prompt = (math.ceil(policy.quorum * len(some)) for some in (asked, asked - self._slow))
        return max(1, prompt, min(whole, policy.min_vehicles))

    @property
    def enough(self) -> bool:
        """Whether the quorum has replied."""
        return max(len(self.updated), self.reported) >= self.needed()

    def may_suffice(self, nodes: set[str]) -> bool:
        """Whether the quorum would be met if all of these replied that have not yet."""
        return len(self.updated) + len(nodes - self._replied) >= self.needed(nodes)

    def ask(self, ask: Ask, nodes: Collection[str]) -> None:
        """Ask those who have not replied yet; whatever is wrong is logged before anything else is decided."""
        self.asked |= set(nodes)
        silent = set(nodes) - self._replied
        self.sent += len(silent)
        patience = Patience(self.server.policy)
        known = {node: vehicle for vehicle, node in self.server.models.nodes.items()}
        for node, reply in self.server.transport.ask(ask, sorted(silent), lambda: patience.left(self.enough)):
            silent.discard(node)
            self.server.waiting.pop((self.kind, node), None)
            self._hear(node, reply, known.get(node, node))
        for node in sorted(silent):
            self._unanswered(node, known.get(node, node), patience)
        self._reasons.update(decision.why for decision in self._said if decision.what != "left-out")
        self.server.log(self._said)
        self._said = []

    def _hear(self, node: str, reply: Reply | Failure, known: str) -> None:
        """Take a reply. Whatever it makes our code raise is its own refusal."""
        if isinstance(reply, Failure):
            self._note("refused" if reply.refused else "failed", node, known, reply.why)
            return
        self._replied.add(node)
        try:
            self._take(reply)
        except Exception as error:
            why = str(error) if isinstance(error, MptError) else f"{type(error).__name__}: {error}"
            self._note("refused", node, reply.vehicle if isinstance(reply.vehicle, str) else known, why)
            return
        nodes = self.server.models.nodes
        if known != reply.vehicle and nodes.get(known) == node:
            del nodes[known]
        nodes[reply.vehicle] = node
        self._said += self._left_out(reply, node)
        if reply.leaving:
            self._left |= {node} if reply.model is None else set()
            self.server.farewells.say(node, self.server.online.get(node))

    def _unanswered(self, node: str, vehicle: str, patience: Patience) -> None:
        """Of a node that has not replied: late, as long as it has not been silent for a whole deadline."""
        waiting, deadline = self.server.waiting, self.server.policy.deadline
        since = waiting.setdefault((self.kind, node), patience.started)
        if patience.waited >= deadline or patience.started + patience.waited - since >= deadline:
            self._note("failed", node, vehicle, "no reply within the deadline")
            return
        why = f"{self.kind}: no reply within {patience.waited:.0f} s, when a quorum of {self.needed()} had replied"
        self.late[node] = why
        self.problems.append(f"vehicle {self._titled(node, vehicle)}: late, {why}")

    def _note(self, what: str, node: str, vehicle: str, why: str) -> None:
        said = line(f"{self.kind}: {why}")
        (self.refused if what == "refused" else self.failed)[node] = said
        self.problems.append(f"{self.kind}: vehicle {self._titled(node, vehicle)}: {line(why)}")
        self._said.append(Decision(self.number, what, vehicle, (), said, self.server.names.get(node, "")))
        if what == "refused":
            self.server.count_refusal(said)

    def _titled(self, node: str, vehicle: str) -> str:
        return line(titled(vehicle, self.server.names.get(node, "")), 70)

    def _left_out(self, reply: Reply, node: str) -> list[Decision]:
        """What a vehicle has of classes that are none of the fleet's, where it did not say so before."""
        counted = ", ".join(f"{name} ({count})" for name, count in sorted(reply.unknown.items()))
        if hash(counted) == self.server.unknown.get(reply.vehicle, hash("")):
            return []
        self.server.unknown[reply.vehicle] = hash(counted)
        why = f"samples of classes that the fleet does not know: {counted}" if counted else "no samples any more"
        return [Decision(self.number, "left-out", reply.vehicle, (), line(why), self.server.names.get(node, ""))]

    @property
    def mostly(self) -> str:
        """The commonest reason for which replies are missing, for a sentence."""
        if not self._reasons:
            return ""
        why, times = self._reasons.most_common(1)[0]
        return f"; the commonest reason, {times} of {self._reasons.total()} times: {why}"

    def _take(self, reply: Reply) -> None:
        check_id(reply.vehicle)
        if reply.round != self.number:
            raise FleetError(f"a reply of round {reply.round} in round {self.number}")
        if reply.vehicle in self._taken:
            raise FleetError("a second reply under the same id")
        if (state := self.server.tracker.roster.state(reply.vehicle)) in ("banned", "quarantined"):
            raise FleetError(f"it is {state}")
        if reply.model is not None and self.kind == "train":
            self._take_update(reply)
        if reply.answer is not None and self.kind != "train":
            self.received += len(reply.answer)
            self.reported += self._take_answer(reply.vehicle, reply.answer)
        self._taken.add(reply.vehicle)
        if reply.leaving:
            self.leaving.add(reply.vehicle)

    def _take_answer(self, vehicle: str, answer: bytes) -> bool:
        """Whether an answer, which is of this round, counts."""
        return self.server.tracker.receive(vehicle, answer, round=self.number) == ""

    def _take_update(self, reply: Reply) -> None:
        assert reply.model is not None
        if not 0 < reply.samples < MOST_SAMPLES:
            raise FleetError(f"samples: {reply.samples}, should be from 1 to {MOST_SAMPLES - 1}")
        update = tensors(reply.model)
        self._average.check(update)
        if why := unusable(self.server.architecture, reply.model):
            raise FleetError(f"model: {why}")
        self._average.add(reply.vehicle, update, reply.samples, reply.vehicle in self._holders)
        self.received += nbytes(reply.model)
        self.updated[reply.vehicle] = max(float(t.abs().max()) for t in update.values() if t.numel())

    def average(self) -> dict[str, Any]:
        """The new global model; who was faster changes it by float64 rounding alone, but for the very first."""
        made = arrays(self._average.state())
        self.server.medians = self._average.medians
        shares, before = self._average.shares, self.server.clipped
        said = [
            Decision(self.number, "clipped", v, (), f"train: {share:.1%} of its update counts, by weight and length")
            for v, share in sorted(shares.items())
            if v not in before
        ]
        self.server.clipped, self.doubted = frozenset(shares), self._average.doubted
        self.server.log(said)
        return made
