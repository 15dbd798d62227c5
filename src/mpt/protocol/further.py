"""What else the server of a fleet asks: statistics of another kind, and parts of a method.

With the round's first question where it is known by then; after it, in the same round, where it follows from answers.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from mpt.core import ClassStatistics, StatisticsError
from mpt.core.validation import Floats, Ints
from mpt.core.value import Value
from mpt.core.wire import Reader, Writer, kind_of
from mpt.protocol.local import Local
from mpt.protocol.parts import Part, PartRequest
from mpt.protocol.request import StatisticsRequest, enough

_QUESTION, _ANSWER, _STATISTICS = b"M", b"O", b"R"
_MADE, _LACKS, _FAILED = 0, 1, 2
_DIGEST, _LONGEST = 16, 400
_NOTHING: Mapping[int, ArrayLike] = {}
MOST = 256
"""Requests in one message."""

Request = StatisticsRequest | PartRequest
FindPart = Callable[[str, str], Part]
"""From the names of a method and of its part to the part, as it is installed; raises where it is not."""
Answered = ClassStatistics | dict[str, Floats]


class Unable(NamedTuple):
    """A vehicle has no answer to one request: it lacks the reference model, or its part has failed, and why."""

    why: str


@dataclass(frozen=True, eq=False)
class Further(Value):
    """Some requests in one message.

    Attributes:
        round: the round whose global model the features come from.
        requests: each for statistics, or for what a part of a method gives.
    """

    round: int
    requests: tuple[Request, ...]

    def __post_init__(self) -> None:
        wrong = [request.round for request in self.requests if request.round != self.round]
        if wrong or not 0 < len(self.requests) <= MOST:
            raise StatisticsError(f"requests: should be 1 to {MOST}, all of round {self.round}")

    @cached_property
    def references(self) -> tuple[int, ...]:
        """The rounds of the reference models."""
        found = {r.reference for r in self.requests if isinstance(r, PartRequest) and r.reference is not None}
        return tuple(sorted(found))

    def answer(
        self,
        features: ArrayLike,
        labels: ArrayLike,
        earlier: Mapping[int, ArrayLike] = _NOTHING,
        *,
        find: FindPart,
        min_samples: int = 1,
    ) -> bytes:
        """On a vehicle: what it can answer; of a reference model that it does not have it answers nothing.

        Args:
            features: (N, d), the samples under the round's global model.
            labels: (N,).
            earlier: (N, d) by round, the same samples under those of the reference models that the vehicle has.
            find: finds parts of methods.
            min_samples: classes with fewer samples are left out.
        """
        told, rows, kept = enough(features, labels, min_samples)
        there = {number: np.asarray(known, dtype=np.float64)[told] for number, known in earlier.items()}
        current, classes = np.asarray(rows, dtype=np.float64), np.asarray(kept)
        writer = Writer(_ANSWER, 0, "float64")
        writer.raw(self.digest)
        writer.numbers("I", len(self.requests))
        for request in self.requests:
            status, part = _tried(request, classes, current, there, find)
            writer.numbers("B", status)
            writer.block(part)
        return writer.finish()

    @cached_property
    def digest(self) -> bytes:
        """16 bytes, by which an answer says what it answers."""
        return hashlib.blake2b(self.to_bytes(), digest_size=_DIGEST).digest()

    def parts(self, answer: bytes) -> "list[bytes | Unable]":
        """On the server: the answer to each request, as bytes, or why there is none."""
        reader = Reader(answer, _ANSWER, 0)
        if reader.raw(_DIGEST) != self.digest:
            raise StatisticsError("answer: made for another question of the round, or for another round")
        (count,) = reader.numbers("I")
        if count != len(self.requests):
            raise StatisticsError(f"answer: to {count} requests, should be to {len(self.requests)}")
        found = list[bytes | Unable]()
        for request in self.requests:
            (status,), part = reader.numbers("B"), reader.block()
            if status != _MADE and isinstance(request, StatisticsRequest):
                raise StatisticsError("answer: statistics that were asked for are missing")
            text = part[:_LONGEST].decode(errors="replace")
            found.append(part if status == _MADE else Unable(text if status == _FAILED else ""))
        reader.finish()
        return found

    def to_bytes(self) -> bytes:
        """The message as bytes for `from_bytes`."""
        writer = Writer(_QUESTION, 0, "float64")
        writer.numbers("2I", self.round, len(self.requests))
        for request in self.requests:
            writer.block(request.to_bytes())
        return writer.finish()

    @classmethod
    def from_bytes(cls, data: bytes | bytearray | memoryview) -> "Further":
        """What `to_bytes` was called on."""
        reader = Reader(data, _QUESTION, 0)
        number, count = reader.numbers("2I")
        blocks = [reader.block() for _ in range(min(count, MOST + 1))]
        reader.finish()
        return cls(number, tuple(as_request(block) for block in blocks))


def is_further(message: bytes) -> bool:
    """Whether a question is one that follows another in the same round."""
    return kind_of(message) == _QUESTION


def as_request(block: bytes) -> Request:
    """What a request's `to_bytes` was called on."""
    return StatisticsRequest.from_bytes(block) if kind_of(block) == _STATISTICS else PartRequest.from_bytes(block)


def _tried(
    request: Request, classes: Ints, current: Floats, there: Mapping[int, Floats], find: FindPart
) -> tuple[int, bytes]:
    """The answer to one request. A part that fails costs the method its answer, not the vehicle its others."""
    if isinstance(request, StatisticsRequest):
        return _MADE, request.answer(current, classes)
    if request.reference is not None and request.reference not in there:
        return _LACKS, b""
    try:
        earlier = current if request.reference is None else there[request.reference]
        local = Local(classes, current, lambda: earlier)
        return _MADE, find(request.method, request.part).made(request.asked, local)
    except Exception as error:
        said = str(error) if isinstance(error, StatisticsError) else f"{type(error).__name__}: {error}"
        return _FAILED, said.encode()[:_LONGEST]
