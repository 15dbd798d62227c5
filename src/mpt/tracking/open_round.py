"""A round that is being heard: who has answered what, whom it waits for, and until when."""

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np

from mpt.core import ClassStatistics, StatisticsError
from mpt.core.validation import Ints
from mpt.protocol.labelled import LabelledAnswer, LabelledQuestion
from mpt.protocol.labels import Label, as_label_set, kind_of
from mpt.protocol.question import parts
from mpt.tracking.growing import moved

Trait = TypeVar("Trait", bound=Hashable)
Known = TypeVar("Known")


@dataclass(frozen=True, eq=False)
class OpenRound:
    """What has been heard since a question was asked.

    Attributes:
        question: that was asked.
        deadline: by the tracker's clock; None: the caller closes the round.
        expected: the devices that it waits for.
        answers: by device, those that were accepted.
        refused: why an answer was not, by device.
        late: devices that are there and were not heard in time, and how that is known.
        leaving: devices that have said that they leave.
    """

    question: LabelledQuestion
    deadline: float | None = None
    expected: frozenset[str] = frozenset()
    answers: Mapping[str, LabelledAnswer] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    late: Mapping[str, str] = field(default_factory=dict)
    leaving: frozenset[str] = frozenset()

    @property
    def round(self) -> int:
        """Its number."""
        return self.question.round

    @property
    def awaited(self) -> frozenset[str]:
        """The devices that it still waits for."""
        return self.expected - self.answers.keys() - self.refused.keys() - self.leaving

    def over(self, now: float) -> bool:
        """Whether there is nothing to wait for: the deadline has passed, or all that were expected are heard."""
        if self.deadline is not None and now >= self.deadline:
            return True
        return bool(self.expected and self.answers) and not self.awaited

    def accept(self, device: str, answer: LabelledAnswer) -> "OpenRound":
        """With a right answer: what was wrong before it counts no more."""
        refused, late = _others(self.refused, [device]), _others(self.late, [device])
        return replace(self, answers={**self.answers, device: answer}, refused=refused, late=late)

    def refuse(self, device: str, why: str) -> "OpenRound":
        """With a wrong answer, unless there is a right one."""
        return self if device in self.answers else replace(self, refused={**self.refused, device: why})

    def too_late(self, device: str, why: str) -> "OpenRound":
        """With an answer that came too late, unless there is one that did not."""
        return self if device in self.answers else replace(self, late={**self.late, device: why})

    def without(self, devices: Collection[str]) -> "OpenRound":
        """As if nothing had been heard of these devices, and nothing was expected of them."""
        heard = replace(self, answers=_others(self.answers, devices), refused=_others(self.refused, devices))
        expected, leaving = self.expected.difference(devices), self.leaving.difference(devices)
        return replace(heard, late=_others(self.late, devices), expected=expected, leaving=leaving)

    def of_one_kind(self) -> "OpenRound":
        """Where the question has no labels yet: without the answers whose labels are of another kind than most have.

        It is decided here, and not when an answer comes: whoever comes first would lock all others out for good.
        """
        if self.question.labels:
            return self
        kinds = {device: kind_of(answer.new) for device, answer in self.answers.items() if answer.new}
        return self._as_most(kinds, lambda kind, most: f"answer: labels are {kind}, should be {most}, as most have")

    def of_one_dimension(self) -> "OpenRound":
        """Where d is not known yet: without the answers whose features have another dimension than most have.

        As with kinds, devices without samples do not decide, unless nobody has any.
        """
        read = {device: statistics(self.question, answer) for device, answer in self.answers.items()}
        dims = {device: stats.dim for device, stats in read.items()}
        having = {device: dims[device] for device, stats in read.items() if stats.counts.any()}
        said = "answer: features of {} dimensions, most have {}"
        return self._as_most(dims, said.format, having)

    def _as_most(
        self,
        found: Mapping[str, Trait],
        why: Callable[[Trait, Trait], str],
        voting: Mapping[str, Trait] | None = None,
    ) -> "OpenRound":
        """Without the answers of which something else was found than of most; of as many, what came first counts."""
        if not found:
            return self
        ((most, _),) = Counter((voting or found).values()).most_common(1)
        wrong = {device: why(one, most) for device, one in found.items() if one != most}
        return replace(self, answers=_others(self.answers, wrong), refused={**self.refused, **wrong})

    @property
    def labels(self) -> tuple[Label, ...]:
        """Those of the question, and behind them the new ones of all answers, sorted; all are `of_one_kind`."""
        known = self.question.labels
        new = {label for answer in self.answers.values() for label in answer.new} - set(known)
        return known + tuple(sorted(new))


def _others(table: Mapping[str, Known], devices: Collection[str]) -> dict[str, Known]:
    return {device: known for device, known in table.items() if device not in devices}


def check_new(question: LabelledQuestion, answer: LabelledAnswer, room: int, only: Iterable[Label] | None) -> None:
    """Refuse labels that cannot be: of another kind, more than there is room for, or none of those that may be.

    Args:
        question: that was answered.
        answer: to it.
        room: how many labels there may be in all.
        only: the labels that there may be, where that was said.
    """
    as_label_set(answer.new, known=question.labels)
    if known := set(answer.new) & set(question.labels):
        raise StatisticsError(f"answer: the label {ascii(min(known))[:40]} as a new one, the question has it")
    if only is not None and (others := set(answer.new).difference(only)):
        raise StatisticsError(f"answer: the label {ascii(min(others))[:40]}, which is none of the tracker's labels")
    if len(question.labels) + len(answer.new) > room:
        raise StatisticsError(
            f"answer: {len(answer.new)} new labels, with which there would be more than {room}; "
            "num_classes says how many there may be"
        )


def placed(question: LabelledQuestion, answer: LabelledAnswer, labels: tuple[Label, ...], size: int, dim: int) -> bytes:
    """A device's answer in numbers, its classes in the places of `labels`, of `size` classes in all."""
    mine, asked = (*question.labels, *answer.new), question.widened(len(answer.new))
    if mine == labels[: len(mine)] and asked.statistics.num_classes == size:
        return answer.plain
    order = {label: c for c, label in enumerate(labels)}
    places: Ints = np.array([order[label] for label in mine], dtype=np.int64)
    return moved(answer.plain, asked, places, size, dim)


def statistics(question: LabelledQuestion, answer: LabelledAnswer) -> ClassStatistics:
    """What a device has reported, of whatever dimension."""
    return question.widened(len(answer.new)).statistics.read(parts(answer.plain)[0])


def dimension(question: LabelledQuestion, answer: LabelledAnswer) -> int:
    """d of an answer, whatever it is."""
    return statistics(question, answer).dim
