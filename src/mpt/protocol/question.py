"""What the server of a fleet asks of every vehicle in a round, and what one answers: the round's first message."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from mpt.core import StatisticsError
from mpt.core.value import Value
from mpt.core.wire import Reader, Writer, kind_of
from mpt.protocol.cross_request import CrossRequest
from mpt.protocol.further import FindPart, Further, is_further
from mpt.protocol.parts import Part
from mpt.protocol.request import StatisticsRequest, enough

_QUESTION, _ANSWER = b"F", b"B"
_FURTHER = 1
JOINT = 1 << 31
"""Above the numbers of all classes: under it and a round are the joint moments of an earlier view."""
_NOTHING: Mapping[int, ArrayLike] = {}


def _no_parts(method: str, part: str) -> Part:
    raise StatisticsError(f"{part} of {method}: this vehicle has no methods to find it in")


@dataclass(frozen=True, eq=False)
class Question(Value):
    """A request for statistics, of the method "mpt-x" one for cross moments a departed class, and what else is asked.

    Without the others question and answer are, as bytes, those of `StatisticsRequest`.

    Attributes:
        statistics: what to report of the features under the round's global model.
        cross: by departed class, what to report of them together with those under an earlier one; of the method
            "mpt-duo" by `JOINT` and a round as well, all classes alike.
        further: what else a method asks for, as far as it is known before the answers.
    """

    statistics: StatisticsRequest
    cross: Mapping[int, CrossRequest] = field(default_factory=dict)
    further: Further | None = None

    @property
    def round(self) -> int:
        """The round whose global model the features come from."""
        return self.statistics.round

    @property
    def references(self) -> tuple[int, ...]:
        """The rounds whose global models the earlier features come from: the reference models."""
        more = () if self.further is None else self.further.references
        return tuple(sorted({*more, *(request.reference for request in self.cross.values())}))

    def answer(
        self,
        features: ArrayLike,
        labels: ArrayLike,
        earlier: Mapping[int, ArrayLike] = _NOTHING,
        *,
        min_samples: int = 1,
        find: FindPart = _no_parts,
    ) -> bytes:
        """On a vehicle: the statistics of its samples, the cross moments that it can make, and what else is asked.

        Args:
            features: (N, d), the samples under the round's global model.
            labels: (N,).
            earlier: (N, d) by round, the same samples under those of the reference models that the vehicle has.
            min_samples: classes with fewer samples are left out: a sum over one sample is that sample's feature.
            find: finds parts of methods, where the question has any.
        """
        told, rows, kept = enough(features, labels, min_samples)
        statistics = self.statistics.answer(rows, kept)
        moments = {
            c: request.answer(np.asarray(earlier[request.reference])[told], rows, kept)
            for c, request in sorted(self.cross.items())
            if request.reference in earlier
        }
        more = None
        if self.further is not None:
            more = self.further.answer(features, labels, earlier, find=find, min_samples=min_samples)
        return packed(statistics, moments, more)

    def to_bytes(self) -> bytes:
        """The question as bytes for `from_bytes`."""
        if not self.cross and self.further is None:
            return self.statistics.to_bytes()
        more = None if self.further is None else self.further.to_bytes()
        writer = _writer(_QUESTION, more)
        writer.numbers("I", len(self.cross))
        writer.block(self.statistics.to_bytes())
        for c, request in sorted(self.cross.items()):
            writer.numbers("I", c)
            writer.block(request.to_bytes())
        if more is not None:
            writer.block(more)
        return writer.finish()

    @classmethod
    def from_bytes(cls, data: bytes | bytearray | memoryview) -> "Question":
        """What `to_bytes` was called on."""
        statistics, cross, more = _parts(data, _QUESTION)
        requests = {c: CrossRequest.from_bytes(part) for c, part in cross.items()}
        further = None if more is None else Further.from_bytes(more)
        return cls(StatisticsRequest.from_bytes(statistics), requests, further)


def read_question(data: bytes | bytearray | memoryview) -> Question | Further:
    """On a vehicle: what the server asks, first or further."""
    return Further.from_bytes(data) if is_further(bytes(data)) else Question.from_bytes(data)


def packed(statistics: bytes, moments: Mapping[int, bytes], more: bytes | None = None) -> bytes:
    """An answer of what `parts` finds in it."""
    if not moments and more is None:
        return statistics
    writer = _writer(_ANSWER, more)
    writer.numbers("I", len(moments))
    writer.block(statistics)
    for c, part in moments.items():
        writer.numbers("I", c)
        writer.block(part)
    if more is not None:
        writer.block(more)
    return writer.finish()


def parts(answer: bytes) -> tuple[bytes, dict[int, bytes], bytes | None]:
    """On the server: an answer's statistics, its cross moments by departed class, and what else it answers."""
    return _parts(answer, _ANSWER)


def _writer(kind: bytes, more: bytes | None) -> Writer:
    return Writer(kind, 0, "float64") if more is None else Writer(kind, _FURTHER, "float64", version=2)


def _parts(data: bytes | bytearray | memoryview, kind: bytes) -> tuple[bytes, dict[int, bytes], bytes | None]:
    """A message that has others in it; one of another kind is the whole of the first part."""
    whole = bytes(data)
    if kind_of(whole) != kind:
        return whole, {}, None
    reader = Reader(whole, kind, _FURTHER)
    (count,) = reader.numbers("I")
    first, others = reader.block(), dict[int, bytes]()
    for _ in range(count):
        (c,) = reader.numbers("I")
        if c in others:
            raise StatisticsError(f"class {c}: twice in one message")
        others[c] = reader.block()
    more = reader.block() if reader.flags & _FURTHER else None
    reader.finish()
    return first, others, more
