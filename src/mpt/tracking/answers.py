"""A round's answers as they are kept: what came of each, and all of them merged. `mpt.tracking.intake` reads them."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from mpt.core import ClassStatistics, CrossStatistics, StatisticsError
from mpt.core.validation import Floats, Ints
from mpt.protocol.further import Answered, Further, Request, Unable, as_request
from mpt.protocol.parts import parts_of
from mpt.protocol.question import Question
from mpt.protocol.request import StatisticsRequest
from mpt.tracking.book import Book, Shared, added, key_of
from mpt.tracking.settings import TrackerSettings

_ENVELOPE = 4 + 4 + 8 + 16 + 16 + 4
_SAID = 512
"""Bytes in which a vehicle may say why a part has failed."""


Later = Sequence[tuple[Further, Mapping[str, bytes]]]
"""What was asked after a round's first question, and what came, by vehicle."""


class Earlier(NamedTuple):
    """A round's samples under a reference model: counts (C,), and means (C, d), a row of NaN where there are none."""

    counts: Ints
    means: Floats


@dataclass(frozen=True, eq=False)
class Snapshot:
    """One round's statistics, in which the holders of watched classes can still be told apart.

    Only their reports are kept; those of all others are merged. A vehicle holds a watched class where it has at least
    `release_share` of the class's samples in this round, so at most 1 / `release_share` reports a class are kept.

    Attributes:
        round: the round.
        rest: the merged reports of all other vehicles; None where there are none.
        holders: the report of each holder, by id.
        earlier: the samples of those who have the model, by the round of each reference model.
        further: what `depart` of a method with questions of its own would ask, by key: see `key_of`.
    """

    round: int
    rest: ClassStatistics | None
    holders: Mapping[str, ClassStatistics]
    earlier: Mapping[int, Earlier] = field(default_factory=dict)
    further: Mapping[bytes, Shared] = field(default_factory=dict)

    @cached_property
    def everybody(self) -> ClassStatistics:
        """The merged reports of all vehicles."""
        merged = self.without(())
        assert merged is not None
        return merged

    def without(self, vehicles: Collection[str]) -> ClassStatistics | None:
        """The merged reports of all vehicles but these holders; None where nobody is left."""
        staying = [stats for v, stats in sorted(self.holders.items()) if v not in vehicles]
        parts = [*([] if self.rest is None else [self.rest]), *staying]
        return ClassStatistics.merge(parts) if parts else None

    def further_of(self, request: Request, without: Collection[str] = ()) -> Answered:
        """The merged answers to a request of all but some holders.

        Statistics say which span they were made with, so those about another one are taken where there are no others:
        who stays is not known when they are asked for.
        """
        loose = {key_of(as_request(key), span=False): key for key in self.further}
        key = key_of(request)
        key = key if key in self.further else loose.get(key_of(request, span=False), b"")
        if key not in self.further:
            raise StatisticsError(f"what it asks for now was not asked in round {self.round}")
        shared = self.further[key]
        staying = [answer for v, answer in sorted(shared.holders.items()) if v not in without]
        parts = [*([] if shared.rest is None else [shared.rest]), *staying]
        if not parts:
            raise StatisticsError("nobody stays")
        return added(parts)

    def held(self, vehicle: str, share: float, *, besides: bool = False) -> tuple[int, ...]:
        """The watched classes of which a holder has at least this share of the samples.

        Args:
            vehicle: the holder.
            share: of all; with `besides`, of what there is without the other holder that claims most of a class.
            besides: see there.
        """
        if vehicle not in self.holders:
            return ()
        mine, whole = self.holders[vehicle].counts, self.everybody.counts
        others = [stats.counts for v, stats in self.holders.items() if v != vehicle]
        if besides and others:
            whole = whole - np.max(others, axis=0)
        return tuple(c for c in self.everybody.watched if mine[c] > 0 and mine[c] >= share * whole[c])


class Clipped(NamedTuple):
    """What of a vehicle's answer did not count: the classes whose mean was far off, and a sentence."""

    classes: tuple[int, ...]
    why: str


@dataclass(frozen=True, eq=False)
class Taken:
    """What came of a round's answers.

    Attributes:
        snapshot: the accepted ones; None where there are none.
        counts: (C,) samples of each accepted vehicle; of departed classes as many as count.
        watched: (d,) means, about the request's origin, of the watched classes that an accepted vehicle has samples of;
            of those with most samples alone.
        refused: why an answer was not accepted, by vehicle.
        cross: the merged cross moments, by departed class.
        joint: the merged joint moments, by the round of the earlier view.
        lacking: the rounds of the reference models that an accepted vehicle does not have, where it lacks any.
        silent: why a vehicle's answer does not count that was right as far as it went: a later question has none.
        book: answers to what else was asked.
        unasked: (C,) what each vehicle reported last that is there and was not asked in this round.
        clipped: by vehicle, what of its answer did not count.
    """

    snapshot: Snapshot | None
    counts: Mapping[str, Ints] = field(default_factory=dict)
    watched: Mapping[str, Mapping[int, Floats]] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    cross: Mapping[int, CrossStatistics] = field(default_factory=dict)
    lacking: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    silent: Mapping[str, str] = field(default_factory=dict)
    book: Book = field(default_factory=Book)
    unasked: Mapping[str, Ints] = field(default_factory=dict)
    clipped: Mapping[str, Clipped] = field(default_factory=dict)
    joint: Mapping[int, CrossStatistics] = field(default_factory=dict)

    def for_departures(self, keys: Collection[bytes]) -> Snapshot | None:
        """The snapshot with the answers under these keys, by holder."""
        if self.snapshot is None or not keys:
            return self.snapshot
        holders = self.snapshot.holders
        further = dict[bytes, Shared]()
        for key in sorted(keys):
            known = {v: a for v, a in sorted(self.book.answers[key].items()) if not isinstance(a, Unable)}
            rest = [answer for v, answer in known.items() if v not in holders]
            theirs = {v: answer for v, answer in known.items() if v in holders}
            further[key] = Shared(added(rest) if rest else None, theirs)
        return replace(self.snapshot, further=further)


def largest_answer(settings: TrackerSettings, question: Question) -> int:
    """Bytes: no right answer is longer, whatever its dtype and whether it echoes what was sent along."""
    c, dim = question.statistics.num_classes, settings.dim
    moments = 2 * c + 2 * dim + 2 * c * dim + dim * dim + dim * (dim + 1) // 2
    further = 0 if question.further is None else largest_further(settings, question.further)
    cross = len(question.cross) * (_ENVELOPE + 16 + 8 * moments)
    return _ENVELOPE + 16 + 8 * _numbers(question.statistics, dim) + cross + further


def largest_further(settings: TrackerSettings, further: Further) -> int:
    """The same of what else is asked."""
    known, size = {} if settings.speaks is None else parts_of(settings.speaks), 0
    for request in further.requests:
        if isinstance(request, StatisticsRequest):
            size += 8 * _numbers(request, settings.dim)
        else:
            shapes = known[request.part].sizes(settings.num_classes, settings.dim).values()
            size += sum(8 * math.prod(shape) + 4 * (1 + len(shape)) for shape in shapes)
        size += _ENVELOPE + 16 + _SAID
    return _ENVELOPE + 16 + size


def _numbers(request: StatisticsRequest, dim: int) -> int:
    c = request.num_classes
    numbers = c + len(request.watched) + c * dim + c + dim
    numbers += 0 if request.span is None else request.span.size
    return numbers + (dim * (dim + 1) // 2 if request.scatter else 0)
