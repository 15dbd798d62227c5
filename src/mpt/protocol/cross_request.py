"""What the server tells vehicles for a report of cross moments: one versioned dataclass, as on Flower so here."""

from collections.abc import Mapping
from dataclasses import dataclass

from numpy.typing import ArrayLike

from mpt.core import CrossStatistics, StatisticsError
from mpt.core import validation as check
from mpt.core.cross import DIGEST_SIZE, StaticPart, as_weights
from mpt.core.validation import Floats
from mpt.core.value import Value
from mpt.core.wire import Reader, Writer

_KIND = b"Q"
_WHOLE = 1


@dataclass(frozen=True, eq=False)
class CrossRequest(Value):
    """How vehicles are to make this round's `CrossStatistics`.

    Attributes:
        round: the round whose global model the current features come from.
        reference: the round whose global model the earlier features come from. A vehicle keeps that model, or, better,
            the features that it made with it; one that has neither asks the server for the model.
        weights: (C,), how much each class counts; zero for those that are departed or watched.
        earlier_origin: (d,), a vector near the features of the reference model.
        origin: (d,), a vector near the current features.
        known: digests of the static parts that the server has; a vehicle whose own is among them leaves it out.
        halves: whether the moments may travel as float16; see `mpt.core.affine.halves_suffice`.
    """

    round: int
    reference: int
    weights: Floats
    earlier_origin: Floats
    origin: Floats
    known: frozenset[bytes] = frozenset()
    halves: bool = True

    def __post_init__(self) -> None:
        number = check.as_int(self.round, "round", least=0)
        origin = check.as_floats(self.origin, "origin", (None,))
        wrong = [digest for digest in self.known if not isinstance(digest, bytes) or len(digest) != DIGEST_SIZE]
        if wrong:
            raise StatisticsError(f"known: {wrong[0]!r}, should be {DIGEST_SIZE} bytes")
        checked = {
            "round": number,
            "reference": check.as_int(self.reference, "reference", least=0, most=number),
            "weights": as_weights(self.weights, len(check.as_array(self.weights, "weights"))),
            "earlier_origin": check.as_floats(self.earlier_origin, "earlier_origin", (len(origin),)),
            "origin": origin,
            "known": frozenset(self.known),
            "halves": bool(self.halves),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    def answer(self, earlier: ArrayLike, features: ArrayLike, labels: ArrayLike) -> bytes:
        """On a vehicle: the statistics of its samples, as `send` makes them."""
        return self.send(self.moments(earlier, features, labels))

    def moments(self, earlier: ArrayLike, features: ArrayLike, labels: ArrayLike) -> CrossStatistics:
        """On a vehicle: the cross moments of its samples."""
        return CrossStatistics.from_features(
            earlier,
            features,
            labels,
            len(self.weights),
            weights=self.weights,
            earlier_origin=self.earlier_origin,
            origin=self.origin,
        )

    def send(self, stats: CrossStatistics) -> bytes:
        """On a vehicle: its statistics as float32, `cross` as float16, where that will do; less what the server has."""
        return stats.to_bytes(stats.wire_type, frame=False, known=self.known, halves=self.halves)

    def read(self, answer: bytes, known: Mapping[bytes, StaticPart]) -> CrossStatistics:
        """On the server: what a vehicle answered, completed from `known`; refuses what was made for another request."""
        return CrossStatistics.from_bytes(
            answer,
            weights=self.weights,
            earlier_origin=self.earlier_origin,
            origin=self.origin,
            known=known,
            shape=(len(self.weights), len(self.origin)),
        )

    def to_bytes(self) -> bytes:
        """The request as bytes for `from_bytes`."""
        writer = Writer(_KIND, _WHOLE * (not self.halves), "float64")
        writer.numbers("5I", self.round, self.reference, len(self.weights), len(self.origin), len(self.known))
        for array in (self.weights, self.earlier_origin, self.origin):
            writer.exact(array)
        writer.raw(b"".join(sorted(self.known)))
        return writer.finish()

    @classmethod
    def from_bytes(cls, data: bytes | bytearray | memoryview) -> "CrossRequest":
        """What `to_bytes` was called on."""
        reader = Reader(data, _KIND, _WHOLE)
        number, reference, num_classes, d, known = reader.numbers("5I")
        weights, earlier_origin, origin = reader.exact(num_classes), reader.exact(d), reader.exact(d)
        digests = reader.raw(known * DIGEST_SIZE)
        reader.finish()
        parts = (digests[i : i + DIGEST_SIZE] for i in range(0, len(digests), DIGEST_SIZE))
        halves = not reader.flags & _WHOLE
        return cls(number, reference, weights, earlier_origin, origin, frozenset(parts), halves)
