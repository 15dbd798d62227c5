"""What server and vehicles say to each other in a round, whatever carries it."""

import hashlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

Arrays = Mapping[str, NDArray[Any]]
"""A model's state dict as NumPy arrays."""

Kind = Literal["train", "report"]


@dataclass(frozen=True, eq=False)
class Ask:
    """What the server sends to every vehicle: once to train, once to report on the new global model.

    Attributes:
        kind: "train" or "report".
        round: its number.
        model: the global model.
        held_out: to train: classes whose samples are not to be trained on, those of departed vehicles.
        request: to report: `Question.to_bytes()`.
        largest_answer: to report: bytes; a longer answer is not looked at.
        keep: to report: whether features under this model may be asked for again, as in the variant "cross".
        references: to report: the fingerprint of each reference model that the request names, by its round.
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
        answer: to a report: its statistics as bytes; None otherwise.
    """

    vehicle: str
    round: int
    leaving: bool = False
    samples: int = 0
    model: Arrays | None = None
    answer: bytes | None = None


@dataclass(frozen=True)
class Failure:
    """Why there is no reply from somewhere; the sentence goes to the log."""

    why: str


class Transport(Protocol):
    """Carries questions and replies. A node is where a vehicle can be reached; it is not the vehicle's id."""

    def nodes(self) -> Collection[str]:
        """Where vehicles can be reached now."""
        ...

    def ask(self, ask: Ask, nodes: Collection[str], seconds: float) -> Iterator[tuple[str, Reply | Failure]]:
        """Send `ask.to(node)` to all `nodes`; what comes back within the time, node by node, as it comes."""
        ...


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
