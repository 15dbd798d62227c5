"""What the server tells vehicles for a statistics report: one versioned dataclass, on one machine as on Flower."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mpt.core import ClassStatistics, StatisticsError
from mpt.core import validation as check
from mpt.core.validation import Floats
from mpt.core.value import Value
from mpt.core.wire import Reader, Writer

_KIND = b"R"
_SCATTER, _SPAN, _ORIGIN, _UNIT = 1, 2, 4, 8


@dataclass(frozen=True, eq=False)
class StatisticsRequest(Value):
    """How vehicles are to make this round's `ClassStatistics`.

    Attributes:
        round: the round whose global model the features come from.
        num_classes: C.
        watched: classes to leave out of the scatter.
        held_out: classes whose samples are not to be trained on from now on: the departed ones.
        scatter: whether to report the scatter; MPT-lite does without.
        span: (k, d) or None, the latest reference prototypes.
        origin: (d,) or None, a vector near the features.
        unit: whether features are divided by their length first, as iCaRL does.
    """

    round: int
    num_classes: int
    watched: tuple[int, ...] = ()
    held_out: tuple[int, ...] = ()
    scatter: bool = True
    span: Floats | None = None
    origin: Floats | None = None
    unit: bool = False

    def __post_init__(self) -> None:
        num_classes = check.as_int(self.num_classes, "num_classes", least=1)
        span = None if self.span is None else check.as_floats(self.span, "span", (None, None))
        origin = None if self.origin is None else check.as_floats(self.origin, "origin", (None,))
        if span is not None and origin is not None and span.shape[1] != len(origin):
            raise StatisticsError(f"span: dimension {span.shape[1]}, but the origin has {len(origin)}")
        checked = {
            "round": check.as_int(self.round, "round", least=0),
            "num_classes": num_classes,
            "watched": tuple(sorted(check.as_classes(self.watched, "watched", num_classes))),
            "held_out": tuple(sorted(check.as_classes(self.held_out, "held_out", num_classes))),
            "scatter": bool(self.scatter),
            "span": span,
            "origin": origin,
            "unit": bool(self.unit),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    def answer(self, features: ArrayLike, labels: ArrayLike, *, min_samples: int = 1) -> bytes:
        """On a vehicle: the statistics of its samples as bytes, without span and origin.

        Args:
            features: (N, d), the samples under the round's global model.
            labels: (N,).
            min_samples: classes with fewer samples are left out: a sum over one sample is that sample's feature.
        """
        _, features, labels = enough(features, labels, min_samples)
        return self.send(self.statistics(features, labels))

    def statistics(self, features: ArrayLike, labels: ArrayLike) -> ClassStatistics:
        """On a vehicle: the statistics of its samples."""
        return ClassStatistics.from_features(
            unit(np.asarray(features, dtype=np.float64)) if self.unit else features,
            labels,
            self.num_classes,
            watched=self.watched,
            span=self.span,
            origin=self.origin,
            scatter=self.scatter,
        )

    def send(self, stats: ClassStatistics) -> bytes:
        """On a vehicle: its statistics as bytes, float32 where that will do, without what the server has sent along."""
        return stats.to_bytes(stats.wire_type, frame=False)

    def read(self, answer: bytes, dim: int | None = None) -> ClassStatistics:
        """On the server: what a vehicle answered; refuses what was made for another span, origin, or dimension.

        Args:
            answer: what `answer` gave.
            dim: d, where the server knows it: an answer of another one is refused before anything is made of it.
        """
        shape = None if dim is None else (self.num_classes, dim)
        stats = ClassStatistics.from_bytes(answer, span=self.span, origin=self.origin, shape=shape)
        for name in ("span", "origin"):
            asked, found = getattr(self, name), getattr(stats, name)
            if not (check.same(asked, found) or (name == "origin" and asked is None and not found.any())):
                raise StatisticsError(f"answer: made with another {name} than the request's")
        if (stats.num_classes, stats.watched) != (self.num_classes, self.watched):
            raise StatisticsError(
                f"answer: {stats.num_classes} classes, watched {stats.watched}; "
                f"asked for {self.num_classes} and {self.watched}"
            )
        return stats

    def to_bytes(self) -> bytes:
        """The request as bytes for `from_bytes`."""
        flags = (
            _SCATTER * self.scatter
            | _SPAN * (self.span is not None)
            | _ORIGIN * (self.origin is not None)
            | _UNIT * self.unit
        )
        d = len(self.origin) if self.origin is not None else self.span.shape[1] if self.span is not None else 0
        rows = 0 if self.span is None else len(self.span)
        writer = Writer(_KIND, flags, "float64")
        writer.numbers("6I", self.round, self.num_classes, len(self.watched), len(self.held_out), d, rows)
        writer.integers(np.array(self.watched + self.held_out, dtype=np.int64))
        for array in (self.span, self.origin):
            if array is not None:
                writer.exact(array)
        return writer.finish()

    @classmethod
    def from_bytes(cls, data: bytes | bytearray | memoryview) -> "StatisticsRequest":
        """What `to_bytes` was called on."""
        reader = Reader(data, _KIND, _SCATTER | _SPAN | _ORIGIN | _UNIT)
        number, num_classes, num_watched, num_held_out, d, rows = reader.numbers("6I")
        watched, held_out = reader.integers(num_watched), reader.integers(num_held_out)
        span = reader.exact(rows, d) if reader.flags & _SPAN else None
        origin = reader.exact(d) if reader.flags & _ORIGIN else None
        reader.finish()
        return cls(
            number,
            num_classes,
            tuple(watched.tolist()),
            tuple(held_out.tolist()),
            bool(reader.flags & _SCATTER),
            span,
            origin,
            bool(reader.flags & _UNIT),
        )


def enough(
    features: ArrayLike, labels: ArrayLike, min_samples: int
) -> tuple[slice | NDArray[np.bool_], ArrayLike, ArrayLike]:
    """The samples of classes of which there are at least `min_samples`: which they are, features and labels."""
    least = check.as_int(min_samples, "min_samples", least=1)
    if least == 1:
        return slice(None), features, labels
    rows, classes = np.asarray(features), np.asarray(labels)
    if rows.shape[:1] != classes.shape:
        return slice(None), features, labels
    found, place, counts = np.unique(classes, return_inverse=True, return_counts=True)
    told = counts[place] >= least if len(found) else np.zeros(classes.shape, dtype=bool)
    return told, rows[told], classes[told]


def unit(rows: Floats) -> Floats:
    """Each row divided by its length; a row of zeros stays one."""
    lengths = np.linalg.norm(rows, axis=-1, keepdims=True)
    return rows / np.where(lengths > 0, lengths, 1.0)
