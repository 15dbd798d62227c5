"""What server and vehicles say to each other in a round, whatever carries it."""

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from mpt.tracking.roster import line

Arrays = Mapping[str, NDArray[Any]]
"""A model's state dict as NumPy arrays."""

Kind = Literal["train", "report", "evaluate"]
Left = Callable[[], float]
"""Seconds that there are left to wait, asked for again and again: replies shorten them."""


@dataclass(frozen=True, eq=False)
class Ask:
    """What the server sends to vehicles: to train, to report on the new global model, and to evaluate its readout.

    Attributes:
        kind: "train", "report" or "evaluate".
        round: its number.
        model: the global model.
        held_out: to train: classes whose samples are not to be trained on, those of departed vehicles.
        loss: to train: what to minimise, by name.
        may_follow: to report: whether a further question may come in the same round.
        request: to report: `Question.to_bytes()`, or `Further.to_bytes()` where it follows another in the same round;
            to evaluate: `EvaluationRequest.to_bytes()`.
        largest_answer: to report and to evaluate: bytes; a longer answer is not looked at.
        keep: to report: whether features under this model may be asked for again, as by the method "mpt-x" or where a
            further question may follow.
        aside: to report and to evaluate: whether features of validation samples are kept and asked for as well, as by
            the method "mpt-duo".
        references: to report and to evaluate: the fingerprint of each reference model that the request names, by round.
        models: reference models that go along, by round.
        wanting: the nodes that they go to.
    """

    kind: Kind
    round: int
    model: Arrays
    held_out: tuple[int, ...] = ()
    request: bytes = b""
    largest_answer: int = 2**30
    keep: bool = False
    references: Mapping[int, str] = field(default_factory=dict)
    models: Mapping[int, Arrays] = field(default_factory=dict)
    wanting: frozenset[str] = frozenset()
    loss: str = "cross-entropy"
    may_follow: bool = False
    aside: bool = False

    def to(self, node: str) -> "Ask":
        """What one node is sent."""
        return replace(self, models=self.models if node in self.wanting else {}, wanting=frozenset())


@dataclass(frozen=True, eq=False)
class Reply:
    """What a vehicle answers.

    Attributes:
        vehicle: its id.
        round: of the question.
        leaving: whether it leaves for good after this reply.
        samples: how many it trained on.
        model: its update; None where it did not train.
        answer: its statistics as bytes, or to an evaluation its counts; None where it trains.
        unknown: how many samples it has of classes that are none of the fleet's, by their names; they are left out.
    """

    vehicle: str
    round: int
    leaving: bool = False
    samples: int = 0
    model: Arrays | None = None
    answer: bytes | None = None
    unknown: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Failure:
    """Why there is no reply from somewhere; the sentence goes to the log.

    Attributes:
        why: the sentence, on one line; what comes from elsewhere is cut.
        refused: whether a reply came that cannot be taken: its vehicle is there.
    """

    why: str
    refused: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "why", line(self.why))


class Node(NamedTuple):
    """What a transport knows of a place where a vehicle can be reached.

    Attributes:
        name: what the operator calls it; empty where nobody has named it.
        started: when it was started last, in any form that another start changes; empty where that is not known.
    """

    name: str = ""
    started: str = ""


class Transport(Protocol):
    """Carries questions and replies. A node is where a vehicle can be reached; it is not the vehicle's id."""

    def nodes(self) -> Mapping[str, Node]:
        """Where vehicles can be reached now."""
        ...

    def ask(self, ask: Ask, nodes: Collection[str], left: Left) -> Iterator[tuple[str, Reply | Failure]]:
        """Send `ask.to(node)` to all `nodes`; what comes back, node by node, as it comes, while there is time left.

        Whatever a reply makes the transport raise is that reply's `Failure`. Nothing of a reply is kept.
        """
        ...


@dataclass
class Farewells:
    """Nodes whose vehicle has said goodbye: they are not asked again before they are started again.

    For a while they can still be reached: the goodbye is on its way, the SuperNode is ending.
    """

    said: dict[str, str] = field(default_factory=dict)

    def say(self, node: str, known: Node | None) -> None:
        """A vehicle has said goodbye at a node; one whose start is not known may be back at any time."""
        if known is not None and known.started:
            self.said[node] = known.started

    def open(self, nodes: Mapping[str, Node]) -> dict[str, Node]:
        """Those of the nodes that may be asked."""
        self.said = {n: started for n, started in self.said.items() if n in nodes and nodes[n].started == started}
        return {n: known for n, known in nodes.items() if n not in self.said}


def fingerprint(model: Arrays) -> str:
    """What a model is known by; all of its names and bits count."""
    state = hashlib.blake2b(digest_size=16)
    for name, array in sorted(model.items()):
        state.update(f"{name} {array.dtype.str} {array.shape} ".encode())
        state.update(np.ascontiguousarray(array).data)
    return state.hexdigest()


def nbytes(model: Arrays) -> int:
    """Of a model's arrays."""
    return sum(np.asarray(array).nbytes for array in model.values())
