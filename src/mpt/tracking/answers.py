"""A round's answers: checked one by one, and merged as they come."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import NamedTuple

import numpy as np

from mpt.core import ClassStatistics, CrossStatistics, StatisticsError
from mpt.core.validation import Floats, Ints, same
from mpt.protocol.cross_request import CrossRequest
from mpt.protocol.further import Answered, Further, Request, Unable, as_request
from mpt.protocol.parts import parts_of
from mpt.protocol.question import Question, parts
from mpt.protocol.request import StatisticsRequest
from mpt.tracking.book import Book, Shared, added, key_of
from mpt.tracking.plausible import check_moments, check_statistics
from mpt.tracking.roster import check_id
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

    def held(self, vehicle: str, share: float) -> tuple[int, ...]:
        """The watched classes of which a holder has at least this share of the samples."""
        if vehicle not in self.holders:
            return ()
        mine, all_counts = self.holders[vehicle].counts, self.everybody.counts
        return tuple(c for c in self.everybody.watched if mine[c] > 0 and mine[c] >= share * all_counts[c])


@dataclass(frozen=True, eq=False)
class Taken:
    """What came of a round's answers.

    Attributes:
        snapshot: the accepted ones; None where there are none.
        counts: (C,) samples of each accepted vehicle.
        watched: (d,) sums, about the request's origin, of the watched classes that an accepted vehicle has samples of.
        refused: why an answer was not accepted, by vehicle.
        cross: the merged cross moments, by departed class.
        lacking: the rounds of the reference models that an accepted vehicle does not have.
        silent: why a vehicle's answer does not count that was right as far as it went: a later question has none.
        book: answers to what else was asked.
    """

    snapshot: Snapshot | None
    counts: Mapping[str, Ints] = field(default_factory=dict)
    watched: Mapping[str, Mapping[int, Floats]] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    cross: Mapping[int, CrossStatistics] = field(default_factory=dict)
    lacking: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    silent: Mapping[str, str] = field(default_factory=dict)
    book: Book = field(default_factory=Book)

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


def read_answers(
    settings: TrackerSettings,
    question: Question,
    answers: Mapping[str, bytes],
    rounds: Mapping[str, int],
    later: Later = (),
) -> Taken:
    """Read, check and merge a round's answers in the order of the vehicles' ids; a wrong one harms only itself.

    Args:
        settings: for C, d and the shares.
        question: what was asked.
        answers: what `question.answer` gave on each vehicle, by id. Each is asked for once, and not kept.
        rounds: the round that an answer was made for, where the transport knows.
        later: what was asked after it. A vehicle counts that has answered every question, rightly.
    """
    request = question.statistics
    asked = (key_of(one) for further in _furthers(question, later) for one in further.requests)
    book = {key: dict[str, Answered | Unable]() for key in asked}
    silent = dict[str, str]()
    counts, refused = dict[str, Ints](), dict[str, str]()
    holders, watched = dict[str, ClassStatistics](), dict[str, dict[int, Floats]]()
    cross, lacking = dict[int, CrossStatistics](), dict[str, tuple[int, ...]]()
    for vehicle in answers:
        check_id(vehicle)

    def arriving() -> Iterator[ClassStatistics]:
        """The reports of those who are no holders."""
        for vehicle in sorted(answers):
            unheard = [i for i, (_, theirs) in enumerate(later, 2) if vehicle not in theirs]
            if unheard:
                silent[vehicle] = f"it answered the round's first question, but not question {unheard[0]}"
                continue
            try:
                made_for = rounds.get(vehicle, request.round)
                stats, moments, more = _read(settings, question, answers[vehicle], made_for)
                told = _read_further(settings, question.further, more, stats)
                for further, theirs in later:
                    told |= _read_further(settings, further, theirs[vehicle], stats)
            except Exception as error:  # whatever it is, it harms nobody else
                refused[vehicle] = str(error) if isinstance(error, StatisticsError) else f"answer: {error!r:.200}"
                continue
            counts[vehicle] = stats.counts
            watched[vehicle] = {c: stats.sums[c].copy() for c in request.watched if stats.counts[c] > 0}
            for c, part in moments.items():
                cross[c] = cross[c] + part if c in cross else part
            for key, answer in told.items():
                book[key][vehicle] = answer
            lacking[vehicle] = _lacking(question, later, moments, told)
            holders[vehicle] = stats
            yield from _let_go(holders, _front(settings, holders, request.watched))
        yield from _let_go(holders, _holding(settings, holders, counts, request.watched))

    reports = arriving()
    first = next(reports, None)
    rest = None if first is None else ClassStatistics.merge(chain([first], reports))
    earlier = {question.cross[c].reference: Earlier(cross[c].counts, cross[c].earlier_means) for c in sorted(cross)}
    snapshot = Snapshot(request.round, rest, holders, earlier) if counts else None
    samples = {vehicle: int(mine.sum()) for vehicle, mine in counts.items()}
    return Taken(snapshot, counts, watched, refused, cross, lacking, silent, Book(book, samples))


def _furthers(question: Question, later: Later) -> list[Further]:
    return [*([] if question.further is None else [question.further]), *(further for further, _ in later)]


def _lacking(
    question: Question, later: Later, moments: Collection[int], told: Mapping[bytes, Answered | Unable]
) -> tuple[int, ...]:
    """The rounds of the reference models that a vehicle was asked about and had no answer for."""
    asked = {c: request.reference for c, request in question.cross.items()}
    lacking = {number for c, number in asked.items() if c not in moments}
    for further in _furthers(question, later):
        for request in further.requests:
            if not isinstance(request, StatisticsRequest) and request.reference is not None:
                answer = told[key_of(request)]
                lacking |= {request.reference} if isinstance(answer, Unable) and not answer.why else set()
    return tuple(sorted(lacking - {asked[c] for c in moments}))


def _read_further(
    settings: TrackerSettings, further: Further | None, answer: bytes | None, stats: ClassStatistics
) -> dict[bytes, Answered | Unable]:
    """A vehicle's answers to what else was asked, by key."""
    if further is None or answer is None:
        if further is not None or answer is not None:
            raise StatisticsError(f"answer: {'more' if further is None else 'less'} than was asked for")
        return {}
    most = largest_further(settings, further)
    if not isinstance(answer, bytes | bytearray | memoryview):
        raise StatisticsError(f"answer: {type(answer).__name__}, should be bytes")
    if memoryview(answer).nbytes > most:
        raise StatisticsError(f"answer: {memoryview(answer).nbytes} bytes, should be at most {most}")
    known = {} if settings.speaks is None else parts_of(settings.speaks)
    found = dict[bytes, Answered | Unable]()
    for request, part in zip(further.requests, further.parts(bytes(answer)), strict=True):
        if isinstance(part, Unable):
            found[key_of(request)] = part
        elif isinstance(request, StatisticsRequest):
            told = _read_statistics(settings, request, part)
            if not np.array_equal(told.counts, stats.counts):
                raise StatisticsError("answer: the counts of two statistics of one round are not the same")
            found[key_of(request)] = told
        else:
            of = known[request.part]
            found[key_of(request)] = of.read(part, settings.num_classes, settings.dim)
    return found


def _read(
    settings: TrackerSettings, question: Question, answer: bytes, made_for: int
) -> tuple[ClassStatistics, dict[int, CrossStatistics], bytes | None]:
    request = question.statistics
    if made_for != request.round:
        raise StatisticsError(f"answer: made for round {made_for}, this is round {request.round}")
    if not isinstance(answer, bytes | bytearray | memoryview):
        raise StatisticsError(f"answer: {type(answer).__name__}, should be bytes")
    most = largest_answer(settings, question)
    if memoryview(answer).nbytes > most:
        raise StatisticsError(f"answer: {memoryview(answer).nbytes} bytes, should be at most {most}")
    reported, moments, further = parts(bytes(answer))
    stats = _read_statistics(settings, request, reported)
    for c in moments:
        if c not in question.cross:
            raise StatisticsError(f"answer: cross moments of class {c}, which were not asked for")
    cross = {c: _read_cross(question.cross[c], part, stats, settings) for c, part in moments.items()}
    return stats, cross, further


def _read_statistics(settings: TrackerSettings, request: StatisticsRequest, reported: bytes) -> ClassStatistics:
    stats = request.read(reported)
    if stats.dim != settings.dim:
        raise StatisticsError(f"answer: feature dimension {stats.dim}, should be {settings.dim}")
    if (stats.scatter is not None) != request.scatter:
        raise StatisticsError(f"answer: {'no' if request.scatter else 'a'} scatter, asked for the opposite")
    check_statistics(stats, settings, unit=request.unit)
    return stats


def _read_cross(
    request: CrossRequest, part: bytes, stats: ClassStatistics, settings: TrackerSettings
) -> CrossStatistics:
    moments = request.read(part, {})
    if moments.sums.shape != stats.sums.shape:
        raise StatisticsError(f"answer: cross moments of shape {moments.sums.shape}, should be {stats.sums.shape}")
    for name in ("weights", "earlier_origin", "origin"):
        if not same(getattr(moments, name), getattr(request, name)):
            raise StatisticsError(f"answer: cross moments made with another {name}")
    check_moments(moments, stats, settings)
    return moments


def _front(settings: TrackerSettings, holders: Mapping[str, ClassStatistics], watched: tuple[int, ...]) -> set[str]:
    """Those who may turn out to hold `release_share` of a watched class: the first 1 / release_share in each."""
    vehicles, most = list(holders), int(1 / settings.release + 1e-9)
    if not watched:
        return set()
    counts = np.array([stats.counts[list(watched)] for stats in holders.values()])
    first = np.argsort(-counts, axis=0, kind="stable")[:most]
    return {vehicles[i] for column, rows in enumerate(first.T) for i in rows if counts[i, column] > 0}


def _holding(
    settings: TrackerSettings,
    holders: Mapping[str, ClassStatistics],
    counts: Mapping[str, Ints],
    watched: tuple[int, ...],
) -> set[str]:
    if not counts or not watched:
        return set()
    needed = settings.release * np.sum(list(counts.values()), axis=0)[list(watched)]
    mine = {v: stats.counts[list(watched)] for v, stats in holders.items()}
    return {v for v, held in mine.items() if np.any((held > 0) & (held >= needed))}


def _let_go(holders: dict[str, ClassStatistics], stay: Collection[str]) -> Iterator[ClassStatistics]:
    for vehicle in [v for v in holders if v not in stay]:
        yield holders.pop(vehicle)
