"""A round's answers as they arrive: each is checked, merged and forgotten; a wrong one changes nothing."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from mpt.core import ClassStatistics, CrossStatistics, StatisticsError
from mpt.core.equations import span_basis
from mpt.core.validation import Floats, Ints, read_only, same
from mpt.protocol.cross_request import CrossRequest
from mpt.protocol.further import Answered, Further, Unable
from mpt.protocol.parts import parts_of
from mpt.protocol.question import JOINT, Question, parts
from mpt.protocol.request import StatisticsRequest
from mpt.tracking.answers import Clipped, Earlier, Later, Snapshot, Taken, largest_answer, largest_further
from mpt.tracking.book import Book, key_of
from mpt.tracking.coverage import besides_largest
from mpt.tracking.gate import Gate, Passed, told
from mpt.tracking.history import History
from mpt.tracking.merging import Summed
from mpt.tracking.plausible import check_moments, check_statistics
from mpt.tracking.roster import check_id, line
from mpt.tracking.settings import TrackerSettings

MOST_REMEMBERED = 64
"""Vehicles, of each watched class, whose means of it are kept apart: those with most samples."""


@dataclass(frozen=True, eq=False)
class Before:
    """What the server knows before a round's answers come.

    Attributes:
        excluded: vehicles whose answers are not taken, and why.
        owners: by class with a deposit, the vehicles that it was made for.
        enough: by such a class, more samples than this carry it.
        history: the last round's answers.
    """

    excluded: Mapping[str, str] = field(default_factory=dict)
    owners: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    enough: Mapping[int, float] = field(default_factory=dict)
    history: History = field(default_factory=History)

    def brings_back(self, vehicle: str, c: int, samples: int) -> bool:
        """Whether a vehicle with so many samples is an owner of a departed class, or would carry it by itself."""
        return vehicle in self.owners.get(c, ()) or samples > self.enough.get(c, np.inf)


class Intake:
    """Takes a round's answers one by one, in any order: what they add up to differs by float64 rounding alone.

    What is kept of a vehicle beside the sums is its counts (C,); whole reports are kept of those who may hold
    `release_share` of a watched class, at most 1 / `release_share` a class.
    """

    def __init__(
        self,
        settings: TrackerSettings,
        question: Question,
        later: tuple[Further, ...] = (),
        before: "Before | None" = None,
    ) -> None:
        """For the answers to a round's question, and to what was asked after it.

        Args:
            settings: for C, d and the shares.
            question: the first.
            later: what was asked after it.
            before: what is known from before the round.
        """
        known = before or Before()
        self._settings, self._question, self._later, self._excluded = settings, question, later, known.excluded
        self._gate: Gate[str] = Gate(tuple(known.owners), settings.cov_ridge, known.brings_back, known.history.expected)
        asked = (key_of(one) for further in self._furthers for one in further.requests)
        self._book = {key: dict[str, Answered | Unable]() for key in asked}
        self._counts, self._refused, self._told = dict[str, Ints](), dict[str, str](), dict[str, "_Read"]()
        self._holders, self._rest = dict[str, ClassStatistics](), Summed[ClassStatistics]()
        self._watched = {c: dict[str, Floats]() for c in question.statistics.watched}
        self._cross = dict[int, Summed[CrossStatistics]]()
        self._lacking = dict[str, tuple[int, ...]]()

    @property
    def answered(self) -> Collection[str]:
        """The vehicles whose answer was accepted so far."""
        return self._counts.keys()

    @property
    def refused(self) -> Mapping[str, str]:
        """Why answers were refused so far, by vehicle."""
        return self._refused

    def knows(self, vehicle: str) -> bool:
        """Whether an answer of a vehicle has been taken or refused."""
        return vehicle in self._counts or vehicle in self._refused

    def take(self, vehicle: str, answer: bytes, *, made_for: int | None = None, later: tuple[bytes, ...] = ()) -> str:
        """Take in an answer; why it was refused, or an empty text.

        Args:
            vehicle: its id.
            answer: to the question.
            made_for: the round that it was made for, where the transport knows.
            later: the answers to what was asked after it.
        """
        check_id(vehicle)
        try:
            if vehicle in self._excluded:
                raise StatisticsError(self._excluded[vehicle])
            read = self._read(answer, made_for, later)
        except Exception as error:  # whatever it is, it is this answer's own refusal
            return self._refuse(vehicle, error)
        self._counts[vehicle] = read.statistics.counts
        if not self._settings.gate:
            self._add(vehicle, read)
            return ""
        self._told[vehicle] = read
        self._merge(lambda: self._gate.take(vehicle, read.statistics, read.cross), vehicle)
        return self._refused.get(vehicle, "")

    def _refuse(self, vehicle: str, error: Exception) -> str:
        """An answer does not count; why."""
        self._refused[vehicle] = line(str(error) if isinstance(error, StatisticsError) else f"answer: {error!r}")
        return self._refused[vehicle]

    def _merge(self, compared: Callable[[], Collection[Passed[str]]], vehicle: str = "") -> None:
        """Merge what goes through the gate."""
        try:
            passed = compared()
        except Exception as error:  # likewise
            passed = self._blame(error) if self._gate.held else self._drop([vehicle], error)
        for one in passed:
            read = self._told.pop(one.vehicle)
            self._add(one.vehicle, replace(read, statistics=one.statistics, cross=one.cross))

    def _blame(self, error: Exception) -> Collection[Passed[str]]:
        """Comparing those that are held raised: it is the refusal of the one without whom it does not, else of all."""
        held = self._gate.held
        for vehicle in held:
            gate = self._gate.without({vehicle})
            try:
                passed = gate.flush()
            except Exception:  # not this one, or not this one alone
                continue
            self._gate = gate
            self._drop([vehicle], error)
            return passed
        self._gate = self._gate.without(held)
        return self._drop(held, error)

    def _drop(self, vehicles: Collection[str], error: Exception) -> Collection[Passed[str]]:
        """Refuse answers that were read; nothing goes through."""
        for vehicle in vehicles:
            del self._counts[vehicle], self._told[vehicle]
            self._refuse(vehicle, error)
        return ()

    @property
    def _clipped(self) -> dict[str, Clipped]:
        """By vehicle, what of its answer did not count."""
        gate, found = self._gate, dict[str, Clipped]()
        for vehicle in sorted(gate.clips.keys() | gate.cross_clips.keys()):
            clip, cuts = gate.clips.get(vehicle), gate.cross_clips.get(vehicle, {})
            classes = tuple(
                sorted({*(() if clip is None else clip.times), *(c for cut in cuts.values() for c in cut.times)})
            )
            found[vehicle] = Clipped(classes, told(clip, cuts, self._settings.name_of))
        return {vehicle: clipped for vehicle, clipped in found.items() if clipped.why}

    def taken(self, silent: Mapping[str, str]) -> Taken:
        """What has come so far; `silent` are those whose answers do not count, and why."""
        self._merge(self._gate.flush)
        request, asked = self._question.statistics, self._question.cross
        holding = _holding(self._settings, self._holders, self._counts, request.watched)
        holders = {v: stats for v, stats in sorted(self._holders.items()) if v in holding}
        rest = self._rest.total(stats for v, stats in sorted(self._holders.items()) if v not in holding)
        totals = {c: merged.total() for c, merged in sorted(self._cross.items())}
        cross = {c: total for c, total in totals.items() if total is not None and c < JOINT}
        joint = {key - JOINT: total for key, total in totals.items() if total is not None and key >= JOINT}
        earlier = {asked[c].reference: Earlier(one.counts, one.earlier_means) for c, one in cross.items()}
        snapshot = Snapshot(request.round, rest, holders, earlier) if self._counts else None
        watched = dict[str, dict[int, Floats]]()
        for c, rows in self._watched.items():
            for vehicle, row in self._most(c, rows).items():
                watched.setdefault(vehicle, {})[c] = row
        samples = {vehicle: int(mine.sum()) for vehicle, mine in self._counts.items()} if self._book else {}
        book = Book(self._book, samples)
        return Taken(
            snapshot,
            self._counts,
            watched,
            self._refused,
            cross,
            self._lacking,
            silent,
            book,
            clipped=self._clipped,
            joint=joint,
        )

    def _add(self, vehicle: str, read: "_Read") -> None:
        """Nothing here can fail: all that was read fits the question."""
        stats, request = read.statistics, self._question.statistics
        self._counts[vehicle] = _counted(self._counts[vehicle], stats.counts, self._gate.departed)
        for c, rows in self._watched.items():
            if stats.counts[c] > 0:
                rows[vehicle] = stats.sums[c] / stats.counts[c]
                if len(rows) >= 2 * MOST_REMEMBERED:
                    self._watched[c] = self._most(c, rows)
        for c, part in read.cross.items():
            self._cross.setdefault(c, Summed()).add(part)
        for key, answer in read.told.items():
            self._book[key][vehicle] = answer
        if lacking := self._lacks(read):
            self._lacking[vehicle] = lacking
        self._holders[vehicle] = stats
        for other in self._holders.keys() - _front(self._settings, self._holders, request.watched):
            self._rest.add(self._holders.pop(other))

    def _most(self, c: int, rows: dict[str, Floats]) -> dict[str, Floats]:
        """The rows of those who have most samples of a class."""
        first = sorted(rows, key=lambda vehicle: (-self._counts[vehicle][c], vehicle))[:MOST_REMEMBERED]
        return {vehicle: rows[vehicle] for vehicle in sorted(first)}

    @cached_property
    def _furthers(self) -> list[Further]:
        first = self._question.further
        return [*([] if first is None else [first]), *self._later]

    @cached_property
    def _largest(self) -> int:
        return largest_answer(self._settings, self._question)

    @cached_property
    def _basis(self) -> Floats | None:
        span = self._question.statistics.span
        return None if span is None else span_basis(span)

    def _lacks(self, read: "_Read") -> tuple[int, ...]:
        """The rounds of the reference models that a vehicle was asked about and had no answer for."""
        asked = {c: request.reference for c, request in self._question.cross.items()}
        lacking = {number for c, number in asked.items() if c not in read.cross}
        for further in self._furthers:
            for request in further.requests:
                if not isinstance(request, StatisticsRequest) and request.reference is not None:
                    answer = read.told[key_of(request)]
                    lacking |= {request.reference} if isinstance(answer, Unable) and not answer.why else set()
        return tuple(sorted(lacking - {asked[c] for c in read.cross}))

    def _read(self, answer: bytes, made_for: int | None, later: tuple[bytes, ...]) -> "_Read":
        settings, question = self._settings, self._question
        request = question.statistics
        if made_for is not None and made_for != request.round:
            raise StatisticsError(f"answer: made for round {made_for}, this is round {request.round}")
        _check_size(answer, self._largest)
        reported, moments, more = parts(bytes(answer))
        stats = self._statistics(request, reported)
        for c in moments:
            if c not in question.cross:
                raise StatisticsError(f"answer: cross moments of class {c}, which were not asked for")
        cross = {c: _read_cross(question.cross[c], part, stats, settings) for c, part in moments.items()}
        told = self._further(question.further, more, stats)
        for further, theirs in zip(self._later, later, strict=True):
            told |= self._further(further, theirs, stats)
        return _Read(stats, cross, told)

    def _statistics(self, request: StatisticsRequest, reported: bytes) -> ClassStatistics:
        stats = request.read(reported, self._settings.dim)
        if (stats.scatter is not None) != request.scatter:
            raise StatisticsError(f"answer: {'no' if request.scatter else 'a'} scatter, asked for the opposite")
        span = request.span
        basis = self._basis if span is self._question.statistics.span else None if span is None else span_basis(span)
        check_statistics(stats, self._settings.name_of, basis=basis, unit=request.unit)
        return stats

    def _further(
        self, further: Further | None, answer: bytes | None, stats: ClassStatistics
    ) -> dict[bytes, Answered | Unable]:
        """A vehicle's answers to what else was asked, by key."""
        if further is None or answer is None:
            if further is not None or answer is not None:
                raise StatisticsError(f"answer: {'more' if further is None else 'less'} than was asked for")
            return {}
        settings = self._settings
        _check_size(answer, largest_further(settings, further))
        known = {} if settings.speaks is None else parts_of(settings.speaks)
        found = dict[bytes, Answered | Unable]()
        for request, part in zip(further.requests, further.parts(bytes(answer)), strict=True):
            if isinstance(part, Unable):
                found[key_of(request)] = part
            elif isinstance(request, StatisticsRequest):
                told = self._statistics(request, part)
                if not np.array_equal(told.counts, stats.counts):
                    raise StatisticsError("answer: the counts of two statistics of one round are not the same")
                found[key_of(request)] = told
            else:
                found[key_of(request)] = known[request.part].read(part, settings.num_classes, settings.dim)
        return found


@dataclass(frozen=True, eq=False)
class _Read:
    """An answer that was read and checked."""

    statistics: ClassStatistics
    cross: Mapping[int, CrossStatistics]
    told: Mapping[bytes, Answered | Unable]


def read_answers(
    settings: TrackerSettings,
    question: Question,
    answers: Mapping[str, bytes],
    rounds: Mapping[str, int],
    later: Later = (),
    before: "Before | None" = None,
) -> Taken:
    """All answers of a round at once, in the order of the vehicles' ids.

    Args:
        settings: for C, d and the shares.
        question: what was asked.
        answers: what `question.answer` gave on each vehicle, by id. Each is asked for once, and not kept.
        rounds: the round that an answer was made for, where the transport knows.
        later: what was asked after it. A vehicle counts that has answered every question, rightly.
        before: what is known from before the round.
    """
    for vehicle in answers:
        check_id(vehicle)
    asked, silent = tuple(further for further, _ in later), dict[str, str]()
    intake = Intake(settings, question, asked, before)
    for vehicle in sorted(answers):
        unheard = [i for i, (_, theirs) in enumerate(later, 2) if vehicle not in theirs]
        if unheard:
            silent[vehicle] = f"it answered the round's first question, but not question {unheard[0]}"
            continue
        more = tuple(theirs[vehicle] for _, theirs in later)
        intake.take(vehicle, answers[vehicle], made_for=rounds.get(vehicle), later=more)
    return intake.taken(silent)


def _check_size(answer: object, most: int) -> None:
    if not isinstance(answer, bytes | bytearray | memoryview):
        raise StatisticsError(f"answer: {type(answer).__name__}, should be bytes")
    if memoryview(answer).nbytes > most:
        raise StatisticsError(f"answer: {memoryview(answer).nbytes} bytes, should be at most {most}")


def _read_cross(
    request: CrossRequest, part: bytes, stats: ClassStatistics, settings: TrackerSettings
) -> CrossStatistics:
    moments = request.read(part, {})
    for name in ("weights", "earlier_origin", "origin"):
        if not same(getattr(moments, name), getattr(request, name)):
            raise StatisticsError(f"answer: cross moments made with another {name}")
    check_moments(moments, stats, settings.name_of)
    return moments


def _counted(said: Ints, counted: Ints, departed: Collection[int]) -> Ints:
    """(C,): what a vehicle says, but of departed classes what counts."""
    known, gone = said.copy(), list(departed)
    known[gone] = counted[gone]
    return read_only(known)


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
    at, whole = list(watched), np.sum(list(counts.values()), axis=0)
    there = besides_largest(counts, holders) if settings.gate else dict.fromkeys(holders, whole)
    held = {v: (stats.counts[at], settings.release * there[v][at]) for v, stats in holders.items()}
    return {v for v, (mine, needed) in held.items() if np.any((mine > 0) & (mine >= needed))}
