"""A question and its answer where classes are known by their labels, and a device may have some that nobody had before.

    question = LabelledQuestion.from_bytes(data)            # on a device
    answer = question.answer(features, ["idle", "drill"])   # its samples under the round's global model

Inside, classes are numbered in the order of the question's labels. Those that a device has and the question has not
come behind them, by their names, in its answer.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from mpt.core import StatisticsError
from mpt.core.validation import as_int
from mpt.core.value import Value
from mpt.core.wire import Reader, Writer
from mpt.protocol.labels import Label, as_label_set, distinct, from_json, to_json
from mpt.protocol.question import Question
from mpt.protocol.request import enough

_QUESTION, _ANSWER = b"L", b"N"
_NOTHING: Mapping[int, ArrayLike] = {}


@dataclass(frozen=True, eq=False, repr=False)
class LabelledQuestion(Value):
    """What the server asks of every device in a round.

    Attributes:
        plain: the same with classes as numbers, the places of their labels.
        labels: of the classes that are known so far; there may be fewer than `plain` has room for.
    """

    plain: Question
    labels: tuple[Label, ...] = ()

    def __post_init__(self) -> None:
        labels = as_label_set(self.labels)
        room = self.plain.statistics.num_classes
        if len(labels) != len(self.labels) or len(labels) > room:
            raise StatisticsError(f"labels: {len(self.labels)}, should be at most {room}, each once")
        object.__setattr__(self, "labels", labels)

    def __repr__(self) -> str:
        return f"<LabelledQuestion: round {self.round}, {len(self.labels)} labels, {len(self.held_out)} held out>"

    @property
    def round(self) -> int:
        """The round whose global model the features come from."""
        return self.plain.round

    @property
    def references(self) -> tuple[int, ...]:
        """The rounds whose global models the earlier features come from, of the method "mpt-x"."""
        return self.plain.references

    @property
    def held_out(self) -> tuple[Label, ...]:
        """The labels whose samples are not to be trained on from now on: those of departed classes."""
        return tuple(self.labels[c] for c in self.plain.statistics.held_out)

    def answer(
        self,
        features: ArrayLike,
        labels: object,
        earlier: Mapping[int, ArrayLike] = _NOTHING,
        *,
        min_samples: int = 1,
    ) -> bytes:
        """On a device: the sums of its samples by label, as bytes for `LabelledTracker.receive`.

        Args:
            features: (N, d), the samples under the round's global model.
            labels: (N,) texts, integers, real numbers or truth values.
            earlier: (N, d) by round, the same samples under those of the reference models that the device has.
            min_samples: labels with fewer samples are left out, and not named: a sum over one sample is that sample's
                feature.
        """
        names, which = distinct(labels)
        as_label_set(names, known=self.labels)
        told, rows, kept = enough(features, which, min_samples)
        mine = np.asarray(kept, dtype=np.int64)
        there = {names[i] for i in np.unique(mine).tolist()}
        new = tuple(label for label in names if label in there and label not in self.labels)
        place = {label: c for c, label in enumerate((*self.labels, *new))}
        classes = np.array([place.get(label, -1) for label in names], dtype=np.int64)[mine]
        before = {number: np.asarray(earlier[number])[told] for number in self.references if number in earlier}
        question = self.widened(len(new))
        return LabelledAnswer(self.round, new, question.answer(rows, classes, before)).to_bytes()

    def widened(self, new: int) -> Question:
        """The question in numbers, with room for so many classes more than there are labels."""
        return widened(self.plain, max(self.plain.statistics.num_classes, len(self.labels) + new))

    def to_bytes(self) -> bytes:
        """The question as bytes for `from_bytes`."""
        writer = Writer(_QUESTION, 0, "float64")
        writer.block(to_json(labels=self.labels))
        writer.block(self.plain.to_bytes())
        return writer.finish()

    @classmethod
    def from_bytes(cls, data: bytes | bytearray | memoryview) -> "LabelledQuestion":
        """What `to_bytes` was called on."""
        reader = Reader(data, _QUESTION, 0)
        (labels,) = from_json(reader, "LabelledQuestion", "labels")
        known = as_label_set(labels)
        if len(known) != len(labels):
            raise StatisticsError("LabelledQuestion bytes: a label twice")
        made = cls(Question.from_bytes(reader.block()), known)
        reader.finish()
        return made


@dataclass(frozen=True, eq=False)
class LabelledAnswer(Value):
    """What a device answered.

    Attributes:
        round: that it was made for.
        new: the labels that it has and the question has not, in the order of their numbers.
        plain: the answer to `LabelledQuestion.widened(len(new))`.
    """

    round: int
    new: tuple[Label, ...]
    plain: bytes

    def to_bytes(self) -> bytes:
        """The answer as bytes for `from_bytes`."""
        writer = Writer(_ANSWER, 0, "float64")
        writer.block(to_json(round=self.round, new=self.new))
        writer.block(self.plain)
        return writer.finish()

    @classmethod
    def from_bytes(cls, data: bytes | bytearray | memoryview) -> "LabelledAnswer":
        """What `to_bytes` was called on."""
        reader = Reader(data, _ANSWER, 0)
        number, new = from_json(reader, "LabelledAnswer", "round", "new")
        labels = as_label_set(new)
        if len(labels) != len(new):
            raise StatisticsError("LabelledAnswer bytes: a label twice")
        made = cls(as_int(number, "round", least=0), labels, reader.block())
        reader.finish()
        return made


def widened(question: Question, num_classes: int) -> Question:
    """A question with more classes; those that are new have no weight in cross moments."""
    more = num_classes - question.statistics.num_classes
    if not more:
        return question
    cross = {c: replace(one, weights=np.pad(one.weights, (0, more))) for c, one in question.cross.items()}
    return replace(question, statistics=replace(question.statistics, num_classes=num_classes), cross=cross)
