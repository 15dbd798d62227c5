"""The vehicles of `benchmarks/soak.py`: MPT's ClientApp at every node, in a process that outlives the server's.

Questions and replies are Flower's messages, serialised as Flower does it (`message_to_proto`), over a socket. Nodes go
offline, hang, fail, restart without their state, talk nonsense, leave for good and join, all drawn from one seed.
"""

import contextlib
import json
import uuid
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, RecordDict
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.proto.message_pb2 import Message as ProtoMessage
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

from mpt.fleet.flower.records import MODEL, REPLY
from mpt.fleet.flower.vehicle_app import vehicle_app
from mpt.fleet.leave import LeaveFile

OFFLINE, RESTARTS, HANGS, LEAVES = 0.03, 0.01, 0.01, 0.02
"""Of the nodes that are there, in every round: the shares that vanish for some rounds, that are started again at once,
that are there and stay silent for some rounds, and that leave for good."""
OWNER_LEAVES = 0.1
"""The same for the one that holds most of the rare class."""
ERRORS, NONSENSE, SLOW = 0.02, 0.01, 0.01
"""Of the questions: answered with an error, with nonsense, and only after the round."""


def identify() -> None:
    """Let this process make messages (Flower's own name for it is internal)."""
    for name in ("_run_id", "_node_id", "_task_id"):
        setattr(TaskIdentity, name, 1)


@dataclass
class SoakNode:
    """A node, and the vehicle at it.

    Attributes:
        number: Flower's id of it.
        part: of the dataset, which its vehicle holds.
        context: Flower's, with the vehicle's state.
        leave: by which the vehicle is told to leave.
        starts: how often it was started.
        back: the round in which it is online again; 0 where it is.
        hangs: the last round in which it stays silent.
        leaves: whether it is told to leave.
    """

    number: int
    part: int
    context: Context
    leave: LeaveFile
    starts: int = 1
    back: int = 0
    hangs: int = 0
    leaves: bool = False


@dataclass
class Fleet:
    """All nodes, what is to be answered, and what has happened to them.

    Attributes:
        settings: of the apps.
        size: how many nodes there are, those that are offline among them.
        folder: for the vehicles' leave-files.
        seed: everything is drawn from it and the round.
    """

    settings: dict[str, Any]
    size: int
    folder: Path
    seed: int
    round: int = 0
    nodes: dict[int, SoakNode] = field(default_factory=dict)
    joining: list[tuple[int, int]] = field(default_factory=list)
    pending: deque[bytes] = field(default_factory=deque)
    held: list[bytes] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.app = vehicle_app(**self.settings)
        rng = np.random.default_rng((self.seed, 0))
        for part in range(self.size):
            self._join(part, rng)

    def _join(self, part: int, rng: np.random.Generator) -> None:
        number = int(rng.integers(2**62))
        leave = self.folder / f"{number}.leave"
        place: dict[str, bool | float | int | str] = {
            "partition-id": part,
            "num-partitions": self.size,
            "leave-file": str(leave),
        }
        self.nodes[number] = SoakNode(number, part, Context(1, number, place, RecordDict(), {}), LeaveFile(leave))

    def online(self) -> list[tuple[int, str, str]]:
        """What Flower says of the nodes that can be reached: id, name and last start."""
        return [(n.number, f"vehicle-{n.part}", f"start {n.starts}") for n in self.nodes.values() if not n.back]

    def step(self, number: int) -> list[bytes]:
        """What happens to nodes when a round begins; those that vanish then have been asked already.

        Returns:
            replies to questions of the round before, which nobody awaits any more.
        """
        if number <= self.round:
            return []
        late, self.held = self.held, []
        self.round, rng = number, np.random.default_rng((self.seed, number))
        for part in [part for when, part in self.joining if when <= number]:
            self._join(part, rng)
            self.counts["joined"] += 1
        self.joining = [(when, part) for when, part in self.joining if when > number]
        for node in sorted(self.nodes.values(), key=lambda one: one.number):
            self._befall(node, rng)
        return late

    def _befall(self, node: SoakNode, rng: np.random.Generator) -> None:
        chance, length, kind = rng.random(), int(rng.integers(1, 9)), rng.random()
        if node.leaves:
            self._remove(node, rng)
        elif node.back:
            node.back = node.back if node.back > self.round else 0
        elif chance < (OWNER_LEAVES if node.part == self.size - 1 else LEAVES):
            self.counts["left, announced" if kind < 0.5 else "left, silently"] += 1
            if kind < 0.5:
                node.leaves = True
                node.leave.ask()
            else:
                self._remove(node, rng)
        elif chance > 1 - OFFLINE:
            node.back = self.round + length
            self.counts["offline for some rounds"] += 1
            if kind < 0.5:
                self._restart(node)
        elif chance > 1 - OFFLINE - RESTARTS:
            self._restart(node)
        elif chance > 1 - OFFLINE - RESTARTS - HANGS:
            node.hangs = self.round + length - 1
            self.counts["silent for some rounds"] += 1

    def _restart(self, node: SoakNode) -> None:
        """The same key, so the same id; all that it knew is gone."""
        node.starts, node.context.state = node.starts + 1, RecordDict()
        self.counts["started again, state lost"] += 1

    def _remove(self, node: SoakNode, rng: np.random.Generator) -> None:
        """For good; another vehicle comes with the same samples, for the rare class's owner after a while."""
        del self.nodes[node.number]
        node.leave.clear()
        wait = rng.integers(6, 16) if node.part == self.size - 1 else rng.integers(1, 4)
        self.joining.append((self.round + int(wait), node.part))

    def answer(self, data: bytes) -> bytes | None:
        """What is sent for one question: a reply, or nothing."""
        message = _parsed(data)
        number, node = int(message.metadata.group_id), self.nodes.get(message.metadata.dst_node_id)
        if node is None or node.back or node.hangs >= number:
            self.counts["questions without an answer"] += 1
            return None
        kind = int(message.metadata.message_type == "train")
        rng = np.random.default_rng((self.seed, number, node.number, kind))
        chance = rng.random()
        if chance < ERRORS:
            self.counts["errors"] += 1
            return _bytes(Message(Error(2, "RuntimeError: the soak says so"), reply_to=message))
        try:
            reply = self.app(message, node.context)
        except Exception as error:
            self.counts["errors of the app itself"] += 1
            return _bytes(Message(Error(2, f"{type(error).__name__}: {error}"), reply_to=message))
        if chance < ERRORS + NONSENSE:
            self.counts["nonsense"] += 1
            reply = Message(nonsense(reply.content, rng), reply_to=message)
        if chance > 1 - SLOW:
            self.counts["replies after the round"] += 1
            self.held.append(_bytes(reply))
            return None
        return _bytes(reply)


def nonsense(content: RecordDict, rng: np.random.Generator) -> RecordDict:
    """A reply in which something cannot be."""
    config: dict[str, Any] = dict(content.config_records[REPLY])
    noise = rng.bytes(int(rng.integers(1, 2000)))
    match int(rng.integers(6)):
        case 0:
            return RecordDict()
        case 1:
            config |= {"round": "seven", "leaving": 3.5}
        case 2:
            config["answer"] = noise
        case 3:
            config |= {"answer": rng.bytes(2**20), "samples": -1}
        case 4:
            answer = bytearray(config.get("answer", b"") or noise)
            answer[int(rng.integers(len(answer)))] ^= 255
            config["answer"] = bytes(answer)
        case _:
            config["round"] = 10**6
    made = RecordDict({REPLY: ConfigRecord(config)})
    if MODEL in content:
        arrays = dict(content.array_records[MODEL])
        name = sorted(arrays)[int(rng.integers(len(arrays)))]
        wrong = np.full(arrays[name].shape, rng.choice([np.nan, np.inf, 1e30]), np.float32)
        arrays[name] = Array("float32", (3,), "numpy.ndarray", noise) if rng.random() < 0.5 else Array(wrong)
        made[MODEL] = ArrayRecord(arrays)
    return made


def _bytes(message: Message) -> bytes:
    data: bytes = message_to_proto(message).SerializeToString()
    return data


def _parsed(data: bytes) -> Message:
    return message_from_proto(ProtoMessage.FromString(data))


def run_fleet(address: str, fleet: Fleet, counts: Path) -> None:
    """Serve one server after the other, until one says that it was the last; then write what has happened."""
    with Listener(address, "AF_UNIX") as listener:
        over = False
        while not over:
            with listener.accept() as server, contextlib.suppress(EOFError, ConnectionError):
                fleet.pending.clear()
                over = _talk(server, fleet)
    counts.write_text(json.dumps(fleet.counts))


def _talk(server: Connection, fleet: Fleet) -> bool:
    """With one server; True where it was the last. Questions are heard between two answers."""
    while True:
        while server.poll(None if not fleet.pending else 0):
            what, given = server.recv()
            if what == "over":
                return True
            if what == "nodes":  # whoever was not waited for is not answered for: so no end sends while the other does
                fleet.pending.clear()
                server.send(("nodes", fleet.online()))
                continue
            number, questions = given
            for late in fleet.step(number):
                server.send(("reply", late))
            fleet.pending.extend(questions)
        reply = fleet.answer(fleet.pending.popleft())
        if reply is not None:
            server.send(("reply", reply))


def fleet_process(address: str, folder: str, counts: str, settings: dict[str, Any], size: int, seed: int) -> None:
    """What the process of the vehicles runs."""
    torch.set_num_threads(1)
    identify()
    run_fleet(address, Fleet(settings, size, Path(folder), seed), Path(counts))


class SocketGrid(Grid):
    """The server's end of the socket. It knows the questions that it awaits a reply to, and drops all other replies."""

    def __init__(self, address: str) -> None:
        self._fleet, self._awaited, self._replies = Client(address, "AF_UNIX"), set[str](), dict[str, Message]()

    def get_nodes(self) -> list[NodeInfo]:
        """Those that are online."""
        self._awaited.clear()
        self._replies.clear()
        self._fleet.send(("nodes", None))
        found = None
        while found is None:
            found = self._receive()
        return [NodeInfo(node_id=n, name=name, last_activated_at=started) for n, name, started in found]

    def get_node_ids(self) -> Iterable[int]:
        """Of the same."""
        return [info.node_id for info in self.get_nodes()]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send questions, each under an id of its own."""
        several = list(messages)
        for message in several:
            message.metadata.__dict__["_message_id"] = uuid.uuid4().hex
        ids = [message.metadata.message_id for message in several]
        self._awaited |= set(ids)
        if several:
            self._fleet.send(("ask", (int(several[0].metadata.group_id), [_bytes(m) for m in several])))
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """The replies that have come."""
        while self._fleet.poll(0):
            self._receive()
        return [self._replies.pop(number) for number in message_ids if number in self._replies]

    def _receive(self) -> list[tuple[int, str, str]] | None:
        """One thing from the fleet: a reply is kept where it is awaited; nodes are returned."""
        what, given = self._fleet.recv()
        if what == "nodes":
            nodes: list[tuple[int, str, str]] = given
            return nodes
        message = _parsed(given)
        asked = message.metadata.reply_to_message_id
        if asked in self._awaited:
            self._awaited.discard(asked)
            self._replies[asked] = message
        return None

    def over(self) -> None:
        """Tell the fleet that this was the last server."""
        self._fleet.send(("over", None))

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Not used by MPT."""
        raise NotImplementedError

    def set_run(self, run: Any) -> None:
        """Not used by MPT."""
        raise NotImplementedError

    @property
    def run(self) -> Any:
        """Not used by MPT."""
        raise NotImplementedError

    def create_message(self, *arguments: Any, **options: Any) -> Message:
        """Not used by MPT."""
        raise NotImplementedError
