"""A Flower grid as the fleet's transport, with a deadline of our own."""

import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Literal

from flwr.app import Message
from flwr.serverapp import Grid

from mpt.fleet.exchange import Ask, Failure, Left, Node, Reply
from mpt.fleet.flower.records import TYPES, AbsentError, ask_content, read_reply
from mpt.tracking.errors import FleetError

Ids = Literal["node", "partition"]
_LONGEST = 2000
"""Characters of an error's reason that are looked at."""


@dataclass(frozen=True, eq=False)
class FlowerTransport:
    """Messages over a grid.

    Attributes:
        grid: Flower's.
        ids: by what a vehicle is known: "node", Flower's node id, which belongs to the vehicle's key where nodes are
            authenticated; or "partition", what the vehicle says, for simulations, whose node ids change with every run.
        restarts: whether a vehicle that has left comes back as a node that was started again; simulated ones run on.
        pause: seconds between two looks for replies.
    """

    grid: Grid
    ids: Ids = "node"
    restarts: bool = True
    pause: float = 0.2

    def nodes(self) -> dict[str, Node]:
        """Flower's nodes that are online, by the names they were registered with."""
        online = {str(info.node_id): info for info in self.grid.get_nodes()}
        return {n: Node(info.name, info.last_activated_at if self.restarts else "") for n, info in online.items()}

    def ask(self, ask: Ask, nodes: Collection[str], left: Left) -> Iterator[tuple[str, Reply | Failure]]:
        """Push to all, pull until all have replied or the time is over. A reply is known by the question's id."""
        content, seconds = ask_content(ask.to("")), left()
        kind, group = TYPES[ask.kind], str(ask.round)
        messages = [
            Message(
                ask_content(ask.to(node)) if node in ask.wanting else content,
                int(node),
                kind,
                ttl=seconds,
                group_id=group,
            )
            for node in nodes
        ]
        sent = dict(zip(self.grid.push_messages(messages), nodes, strict=True))
        while sent:
            for message in self.grid.pull_messages(list(sent)):
                found = sent.pop(message.metadata.reply_to_message_id, None)
                if found is not None:
                    yield found, self._read(message, ask, found)
            if not sent or left() <= 0:
                return
            time.sleep(self.pause)

    def _read(self, message: Message, ask: Ask, node: str) -> Reply | Failure:
        try:
            if message.has_error():
                return Failure(f"error {message.error.code}: {_last_line(message.error.reason)}")
            vehicle = node if self.ids == "node" else None
            return read_reply(message.content, ask.model, ask.largest_answer, vehicle)
        except Exception as error:  # whatever it is, it is this reply's own refusal
            why = str(error) if isinstance(error, FleetError) else f"{type(error).__name__}: {error}"
            return Failure(f"its reply was refused: {why}", refused=not isinstance(error, AbsentError))


def _last_line(reason: str | None) -> str:
    """Of an error's reason, which may be a whole traceback, or far longer."""
    lines = [text.strip() for text in (reason or "")[-_LONGEST:].splitlines() if text.strip()]
    return lines[-1] if lines else "no reason given"
