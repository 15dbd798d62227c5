"""What the server of a fleet asks of every vehicle in a round, and what one answers: one message each way."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from mpt.core import StatisticsError
from mpt.core.value import Value
from mpt.core.wire import Reader, Writer
from mpt.protocol.cross_request import CrossRequest
from mpt.protocol.request import StatisticsRequest, enough

_QUESTION, _ANSWER = b"F", b"B"
_NOTHING: Mapping[int, ArrayLike] = {}


@dataclass(frozen=True, eq=False)
class Question(Value):
    """A request for statistics and, of the method "mpt-x", one for cross moments a departed class.

    Without the latter question and answer are, as bytes, those of `StatisticsRequest`.

    Attributes:
        statistics: what to report of the features under the round's global model.
        cross: by departed class, what to report of them together with those under an earlier one.
    """

    statistics: StatisticsRequest
    cross: Mapping[int, CrossRequest] = field(default_factory=dict)

    @property
    def round(self) -> int:
        """The round whose global model the features come from."""
        return self.statistics.round

    @property
    def references(self) -> tuple[int, ...]:
        """The rounds whose global models the earlier features come from: the reference models."""
        return tuple(sorted({request.reference for request in self.cross.values()}))

    def answer(
        self,
        features: ArrayLike,
        labels: ArrayLike,
        earlier: Mapping[int, ArrayLike] = _NOTHING,
        *,
        min_samples: int = 1,
    ) -> bytes:
        """On a vehicle: the statistics of its samples, and the cross moments that it can make.

        Args:
            features: (N, d), the samples under the round's global model.
            labels: (N,).
            earlier: (N, d) by round, the same samples under those of the reference models that the vehicle has.
            min_samples: classes with fewer samples are left out: a sum over one sample is that sample's feature.
        """
        told, rows, kept = enough(features, labels, min_samples)
        statistics = self.statistics.answer(rows, kept)
        moments = {
            c: request.answer(np.asarray(earlier[request.reference])[told], rows, kept)
            for c, request in sorted(self.cross.items())
            if request.reference in earlier
        }
        if not moments:
            return statistics
        writer = Writer(_ANSWER, 0, "float64")
        writer.numbers("I", len(moments))
        writer.block(statistics)
        for c, part in moments.items():
            writer.numbers("I", c)
            writer.block(part)
        return writer.finish()

    def to_bytes(self) -> bytes:
        """The question as bytes for `from_bytes`."""
        if not self.cross:
            return self.statistics.to_bytes()
        writer = Writer(_QUESTION, 0, "float64")
        writer.numbers("I", len(self.cross))
        writer.block(self.statistics.to_bytes())
        for c, request in sorted(self.cross.items()):
            writer.numbers("I", c)
            writer.block(request.to_bytes())
        return writer.finish()

    @classmethod
    def from_bytes(cls, data: bytes | bytearray | memoryview) -> "Question":
        """What `to_bytes` was called on."""
        statistics, cross = _parts(data, _QUESTION)
        requests = {c: CrossRequest.from_bytes(part) for c, part in cross.items()}
        return cls(StatisticsRequest.from_bytes(statistics), requests)


def parts(answer: bytes) -> tuple[bytes, dict[int, bytes]]:
    """On the server: an answer's statistics, and its cross moments by departed class."""
    return _parts(answer, _ANSWER)


def _parts(data: bytes | bytearray | memoryview, kind: bytes) -> tuple[bytes, dict[int, bytes]]:
    """A message that has others in it; one of another kind is the whole of the first part."""
    whole = bytes(data)
    if whole[3:4] != kind:
        return whole, {}
    reader = Reader(whole, kind, 0)
    (count,) = reader.numbers("I")
    first, others = reader.block(), dict[int, bytes]()
    for _ in range(count):
        (c,) = reader.numbers("I")
        if c in others:
            raise StatisticsError(f"class {c}: twice in one message")
        others[c] = reader.block()
    reader.finish()
    return first, others
