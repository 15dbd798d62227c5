"""What server and vehicles say to each other in a round, whatever carries it."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
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
        request: to report: `StatisticsRequest.to_bytes()`.
    """

    kind: Kind
    round: int
    model: Arrays
    held_out: tuple[int, ...] = ()
    request: bytes = b""


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
        """Send to all `nodes`; what comes back within the time, node by node, as it comes."""
        ...


def nbytes(model: Arrays) -> int:
    """Of a model's arrays."""
    return sum(np.asarray(array).nbytes for array in model.values())
