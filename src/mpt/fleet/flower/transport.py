"""A Flower grid as the fleet's transport, with a deadline of our own."""

import contextvars
import queue
import threading
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
_SIMULATED = ("InMemoryGrid",)
"""Flower's grids in which all vehicles are simulated, by name."""
_HANGS = 10.0
"""Seconds after which the others are not kept waiting by the reply that is being pulled."""


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
        pulled = Pulled(self.grid, sent, self.pause)
        try:
            while sent:
                for number, message in pulled.take():
                    found = sent.pop(number)
                    yield found, self._read(message, ask, found)
                if not sent or left() <= 0:
                    return
        finally:
            pulled.stop()

    def _read(self, message: Message | Exception, ask: Ask, node: str) -> Reply | Failure:
        try:
            if isinstance(message, Exception):
                raise message
            if message.has_error():
                return Failure(f"error {message.error.code}: {_last_line(message.error.reason)}")
            vehicle = node if self.ids == "node" else None
            return read_reply(message.content, ask.model, ask.largest_answer, vehicle)
        except Exception as error:  # whatever it is, it is this reply's own refusal
            why = str(error) if isinstance(error, FleetError) else f"{type(error).__name__}: {error}"
            return Failure(f"its reply was refused: {why}", refused=not isinstance(error, AbsentError))


def refuse_claimed_ids(grid: Grid, ids: Ids, setting: str) -> None:
    """Refuse to believe vehicles that are not simulated what they call themselves; `setting` is what is wrong.

    Flower's grids are told apart by name: their modules move between releases. A grid of Flower's that is not known is
    taken for a deployment's.
    """
    flowers = type(grid).__module__.partition(".")[0] == "flwr"
    if ids == "partition" and flowers and type(grid).__name__ not in _SIMULATED:
        raise FleetError(
            f'{setting} = "partition" in a deployment, where any vehicle could answer in the name of another; '
            'it is for simulations, should be "node"'
        )


class Pulled:
    """Replies as they come, each pulled by itself: what one makes Flower raise, or wait for, is its own.

    Flower reads a reply's bytes where it is pulled, and waits there for those that its sender has announced and not
    sent, for minutes. A thread that hangs in one reply is left behind, and another goes on with the others.
    """

    def __init__(self, grid: Grid, numbers: Collection[str], pause: float) -> None:
        self._grid, self._pause, self._open = grid, pause, list(numbers)
        self._came = queue.SimpleQueue[tuple[str, Message | Exception]]()
        self._turn: object | None = None
        self._begin()

    def take(self) -> Iterator[tuple[str, Message | Exception]]:
        """What has come since, waited for a moment; what is wrong with the connection is raised."""
        if time.monotonic() - self._since > _HANGS:
            self._begin()
        try:
            number, message = self._came.get(timeout=self._pause)
        except queue.Empty:
            return
        if isinstance(message, Exception) and _of_the_connection(message):
            raise message
        yield number, message

    def stop(self) -> None:
        """Pull no more."""
        self._turn = None

    def _begin(self) -> None:
        self._since = time.monotonic()
        self._turn = object()
        context = contextvars.copy_context()
        threading.Thread(target=context.run, args=(self._pull, self._turn), daemon=True).start()

    def _pull(self, turn: object) -> None:
        while self._turn is turn and self._open:
            for _ in range(len(self._open)):
                if self._turn is not turn:
                    return
                number, self._since = self._open.pop(0), time.monotonic()
                try:
                    came: list[Message | Exception] = list(self._grid.pull_messages([number]))
                except Exception as error:
                    came = [error]
                for message in came[:1]:
                    self._came.put((number, message))
                if not came:
                    self._open.append(number)
            self._since = time.monotonic()
            time.sleep(self._pause)


def _of_the_connection(error: Exception) -> bool:
    """Whether the SuperLink could not be asked; everything else is about a reply."""
    return isinstance(error, OSError) or type(error).__module__.partition(".")[0] in ("httpx", "httpcore")


def _last_line(reason: str | None) -> str:
    """Of an error's reason, which may be a whole traceback, or far longer."""
    lines = [text.strip() for text in (reason or "")[-_LONGEST:].splitlines() if text.strip()]
    return lines[-1] if lines else "no reason given"
