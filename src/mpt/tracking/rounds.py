"""A round of a fleet as a dialogue, pure: the server's state and what has been heard give questions, or the outcome.

question = questions(state)                         # to every vehicle
heard = Heard(question).receive("7", answer)        # one by one, as they come
result = take(state, heard)                         # More: to those who answered; or the next state and an Outcome
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

import numpy as np

from mpt.core import ClassStatistics, Reconstruction
from mpt.core.affine import halves_suffice
from mpt.core.validation import Floats, Ints
from mpt.protocol.cross_request import CrossRequest
from mpt.protocol.further import MOST, Further
from mpt.protocol.question import JOINT, Question
from mpt.protocol.request import StatisticsRequest
from mpt.tracking.answers import Taken, largest_further
from mpt.tracking.book import key_of
from mpt.tracking.coverage import Coverage, grown, watch_next
from mpt.tracking.departures import Departures, settle
from mpt.tracking.dialogue import ClassifierHead, Told, foreseen, listen, prepare
from mpt.tracking.errors import FleetError
from mpt.tracking.history import History
from mpt.tracking.intake import Before, Intake, read_answers
from mpt.tracking.joint import joint_requests, newly_apart, views_after
from mpt.tracking.prototypes import AnyReadout, Current, current, measured_in
from mpt.tracking.refusals import counted
from mpt.tracking.roster import Absent, Decision, Roster, advance, check_id, printable, titled
from mpt.tracking.settings import TrackerSettings
from mpt.tracking.stale import offsets, still_known
from mpt.tracking.state import TrackerState
from mpt.tracking.trusted import last_trusted
from mpt.tracking.verdicts import doubting, health_of, newly_clipped, verdicts

MOST_DECISIONS, MOST_PROBLEMS = 1000, 100
"""Of a round, that are kept in the state; the log has them all."""
MOST_QUESTIONS = 8
"""Of one round. A method that asks on and on is not waited for."""


@dataclass(frozen=True, eq=False)
class Outcome:
    """What came of a round.

    Attributes:
        round: its number.
        prototypes: (C, d), measured or, for departed classes, reconstructed; a row of NaN where a class has none.
        covariance: (d, d), the pooled within-class covariance; None in MPT-lite, or where it cannot be had.
        readout: made of both, by the method "mpt-x" with classes that nobody trains any more further out, Eq. (X10); a
            linear layer where the method gives a readout of its own; by "mpt-duo" of features under two models or
            three side by side, once joint moments have come; None as long as no class has a prototype.
        reconstructions: of the classes that were reconstructed by MPT or MPT-X, by class.
        tracked: of the classes with a deposit, those that the method has found in this round; others were measured.
        statistics: the merged statistics; None where nobody answered.
        answered: the vehicles whose answer was accepted.
        decisions: what changed, and why, in order.
        problems: what went wrong without stopping the round, a sentence each.
        references: the rounds whose global models the readout reads beside this round's, in its order.
    """

    round: int
    prototypes: Floats
    covariance: Floats | None
    readout: AnyReadout | None
    reconstructions: Mapping[int, Reconstruction]
    tracked: tuple[int, ...]
    statistics: ClassStatistics | None
    answered: tuple[str, ...]
    decisions: tuple[Decision, ...]
    problems: tuple[str, ...]
    references: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class More:
    """What is to be asked next in the same round.

    Attributes:
        further: the question.
        vehicles: who is asked: those whose answers were right so far. Whoever does not answer this one did not answer
            in this round.
        largest_answer: bytes; a longer one need not be received.
    """

    further: Further
    vehicles: tuple[str, ...]
    largest_answer: int

    @property
    def round(self) -> int:
        """The round."""
        return self.further.round

    @property
    def references(self) -> tuple[int, ...]:
        """The rounds of the reference models that it names."""
        return self.further.references

    def to_bytes(self) -> bytes:
        """The question as bytes."""
        return self.further.to_bytes()


@dataclass(frozen=True, eq=False)
class Heard:
    """A round so far.

    Attributes:
        question: the first.
        answers: to it, by vehicle.
        later: the questions after it, each with its answers by vehicle.
        rounds: the round that a vehicle's first answer was made for, where the transport knows.
        intake: takes answers as they come, where they need not be kept: the method has no questions of its own.
        leaving, absent, names, head, asked, doubted: what has been said beside the answers so far, see `Tracker.take`.
    """

    question: Question
    answers: Mapping[str, bytes] = field(default_factory=dict)
    later: tuple[tuple[Further, Mapping[str, bytes]], ...] = ()
    rounds: Mapping[str, int] = field(default_factory=dict)
    intake: Intake | None = None
    leaving: frozenset[str] = frozenset()
    absent: Absent = field(default_factory=Absent)
    names: Mapping[str, str] = field(default_factory=dict)
    head: ClassifierHead | None = None
    asked: frozenset[str] | None = None
    doubted: bool = False

    def told(
        self,
        leaving: Collection[str],
        absent: Absent,
        names: Mapping[str, str],
        head: ClassifierHead | None,
        asked: Collection[str] | None = None,
        doubted: bool = False,
    ) -> "Heard":
        """With more of what is said beside answers."""
        if isinstance(leaving, str):
            raise FleetError(f"leaving: {leaving!r}, should be several vehicles, [{leaving!r}]")
        gone, head = self.leaving | set(leaving), head or self.head
        whom = self.asked if asked is None else frozenset(asked)
        called = {**self.names, **names}
        said = replace(self, leaving=gone, absent=self.absent | absent, names=called, doubted=self.doubted or doubted)
        return replace(said, head=head, asked=whom)

    def receive(self, vehicle: str, answer: bytes, made_for: int | None = None) -> "Heard":
        """With a vehicle's answer to the latest question; `FleetError` where it has one already."""
        check_id(vehicle)
        there = self.later[-1][1] if self.later else self.answers
        if vehicle in there or (self.intake is not None and self.intake.knows(vehicle)):
            raise FleetError(f"vehicle {vehicle}: a second answer to the same question")
        if self.intake is not None:
            self.intake.take(vehicle, answer, made_for=made_for)
            return self
        if not self.later:
            rounds = self.rounds if made_for is None else {**self.rounds, vehicle: made_for}
            return replace(self, answers={**self.answers, vehicle: answer}, rounds=rounds)
        further, answers = self.later[-1]
        return replace(self, later=(*self.later[:-1], (further, {**answers, vehicle: answer})))

    def ask(self, more: More, answers: Mapping[str, bytes] | None = None) -> "Heard":
        """With a further question, and what has come of it already."""
        return replace(self, later=(*self.later, (more.further, dict(answers or {}))))


def questions(state: TrackerState, round: int | None = None) -> Question:
    """What to ask of every vehicle first, in the round after this state or in a later one."""
    number = state.round + 1 if round is None else round
    if number <= state.round:
        raise FleetError(f"round: {number}, but round {state.round} is closed, should be a later one")
    asks = state.settings.asks
    origin = np.zeros(state.settings.dim) if state.origin is None else state.origin
    there = state.coverage.totals
    cross = {
        c: CrossRequest(
            number,
            one.reference.round,
            one.reference.weights,
            one.reference.origin,
            origin,
            halves=halves_suffice(one.reference.weights, there, state.settings.dim),
        )
        for c, one in state.tracked.items()
        if asks.cross and one.reference is not None
    }
    if asks.joint:
        cross |= {JOINT + view: joint for view, joint in joint_requests(state, number, origin).items()}
    request = StatisticsRequest(
        number,
        state.settings.num_classes,
        watched=state.watch.classes,
        held_out=state.held_out,
        scatter=asks.scatter,
        span=state.span if asks.span else None,
        origin=state.origin,
    )
    return Question(request, cross, foreseen(state, request))


def excluded(state: TrackerState) -> dict[str, str]:
    """The vehicles whose answers are not taken, and why."""
    members = state.roster.members
    return {v: f"it is {m.state}: {m.why}" for v, m in members.items() if m.state in ("banned", "quarantined")}


def known_before(state: TrackerState) -> Before:
    """What the round's answers are taken by."""
    last = state.snapshot
    history = History() if last is None else History(last.everybody, last.holders)
    owners = {c: one.owners for c, one in state.tracked.items()}
    enough = {c: state.settings.carry_share * one.samples for c, one in state.tracked.items()}
    return Before(excluded(state), owners, enough, history)


def models_needed(state: TrackerState) -> tuple[int, ...]:
    """See `Tracker.models_needed`."""
    if not state.settings.asks.models:
        return ()
    last = {one.round for one in (state.snapshot, *state.trusted.values()) if one is not None}
    return tuple(sorted(last | {one.reference.round for one in state.tracked.values() if one.reference is not None}))


def take(state: TrackerState, heard: Heard) -> More | tuple[TrackerState, Outcome]:
    """What is to be asked next in the round, or the state after it and what came of it; see `Tracker.take`."""
    settings, question = state.settings, heard.question
    request = question.statistics
    if heard.intake is not None:
        taken = heard.intake.taken({})
    else:
        taken = read_answers(settings, question, heard.answers, heard.rounds, heard.later, known_before(state))
    roster, moves = advance(
        state.roster,
        request.round,
        taken.counts.keys(),
        heard.leaving,
        grace=settings.grace,
        waiting=settings.waiting,
        absent=heard.absent | Absent(taken.silent, {}, taken.refused),
        names=heard.names,
        kept={v for one in state.tracked.values() for v in one.owners},
        asked=heard.asked,
    )
    taken = replace(taken, unasked=_unasked(state, taken, roster, heard.asked))
    prepared = prepare(state, taken, request)
    taken = replace(taken, snapshot=taken.for_departures(prepared.keys))
    departed = settle(state, request, taken, roster)
    measured = measured_in(settings, departed, taken)
    told = listen(settings, departed.tracked, measured, departed.held_out, taken, request, heard.head)
    missing = {key_of(one): one for one in (*prepared.missing, *told.missing)}
    if missing and len(heard.later) + 1 < MOST_QUESTIONS:
        further = Further(request.round, tuple(missing.values())[:MOST])
        return More(further, tuple(sorted(taken.counts)), largest_further(settings, further))
    if missing:
        why = f"{settings.method}: {MOST_QUESTIONS} questions were asked in this round, it would ask on"
        told = replace(told, problems=(*told.problems, why))
    return _closed(state, taken, roster, moves, departed, told, request.round, heard)


def _unasked(state: TrackerState, taken: Taken, roster: Roster, asked: frozenset[str] | None) -> dict[str, Ints]:
    """The vehicles that are there and were not asked in this round, and what each reported last."""
    if asked is None:
        return {}
    there = roster.having("present", "late", "refused")
    passed_over = (v for v in there if v not in asked and v not in taken.counts)
    return {v: state.counts[v] for v in passed_over if v in state.counts}


def _closed(
    state: TrackerState,
    taken: Taken,
    roster: Roster,
    moves: tuple[Decision, ...],
    departed: Departures,
    told: Told,
    round: int,
    heard: Heard,
) -> tuple[TrackerState, Outcome]:
    """The state after a round that everything is known of."""
    settings, present, names = state.settings, state.coverage, heard.names
    refusals = tuple(Decision(round, "refused", v, (), why) for v, why in sorted(taken.refused.items()))
    known = still_known(state, departed.tracked, roster)
    trusted = last_trusted(state, roster, taken.unasked)
    now = current(state, departed, taken, roster, known, told, trusted, round)
    now = doubting(now) if heard.doubted else now
    tracked = {
        c: replace(one, method_state=told.method_states.get(c, one.method_state)) for c, one in departed.tracked.items()
    }
    counts = {v: c for v, c in {**state.counts, **taken.counts}.items() if not roster.gone(v)}
    after = replace(state, counts=counts)
    coverage = grown(state.counts, after.coverage) if settings.gate else after.coverage
    watch, changes = watch_next(settings, state.watch, coverage, departed.tracked.keys(), roster, round)
    health = health_of(now)
    held = (_holding(decision, present, settings) for decision in moves)
    said = verdicts(state, health, taken, now, departed.tracked, round)
    views = views_after(state, tracked, now.views, (now.prototypes, now.made), round)
    plain = chain(refusals, newly_clipped(state, taken, round), held, departed.decisions, changes, said)
    called = {**{v: m.name for v, m in roster.members.items()}, **names}
    decisions = tuple(_named(decision, settings, called) for decision in plain)
    problems = (
        *(f"vehicle {titled(d.vehicle, called.get(d.vehicle, ''))}: {d.why}" for d in refusals),
        *(
            f"vehicle {titled(v, called.get(v, ''))}: {printable(why)}"
            for v, why in (*sorted(taken.silent.items()), *sorted(taken.book.failures.items()))
        ),
        *now.problems,
        *newly_apart(settings, state.views, views),
    )
    after = replace(
        after,
        round=round,
        roster=roster,
        watch=watch,
        tracked=tracked,
        stale_offsets={**known, **offsets(taken, roster, now.forecasts)} if settings.remembers else {},
        held_out=departed.held_out,
        refusals=counted(state.refusals, taken.refused.values()),
        clipped=tuple(sorted(taken.clipped)) if taken.snapshot is not None else state.clipped,
        lacking=_lacking(state, departed, taken, roster),
        health=health,
        outward=now.outward,
        snapshot=taken.snapshot or state.snapshot,
        trusted=trusted,
        linear=now.linear,
        views=views,
        prototypes=now.prototypes,
        made=now.made,
        decisions=decisions[:MOST_DECISIONS],
        problems=shortened(problems),
    )
    return _aimed(after, taken), _outcome(after, now, taken, decisions, problems)


def _holding(decision: Decision, present: Coverage, settings: TrackerSettings) -> Decision:
    """The decision about a vehicle with the classes that hang on it. In a large fleet most are as they were."""
    classes = present.held_by(decision.vehicle, settings.watch_share)
    return replace(decision, classes=classes) if classes else decision


def _named(decision: Decision, settings: TrackerSettings, called: Mapping[str, str]) -> Decision:
    """The decision with the names of its vehicles and classes."""
    vehicles = [decision.vehicle] if decision.vehicle in called else decision.vehicle.split(", ")
    name = ", ".join(called.get(v) or v for v in vehicles)
    classes = tuple(settings.class_names[c] for c in decision.classes) if settings.class_names else ()
    name = "" if name == decision.vehicle else name
    return replace(decision, name=name, class_names=classes) if name or classes else decision


def _lacking(state: TrackerState, departed: Departures, taken: Taken, roster: Roster) -> dict[str, tuple[int, ...]]:
    """By what each vehicle answered last; models that are no longer needed are not lacking."""
    needed = {one.reference.round for one in departed.tracked.values() if one.reference is not None}
    known = {v: rounds for v, rounds in state.lacking.items() if v not in taken.counts} | dict(taken.lacking)
    there = {v: rounds for v, rounds in known.items() if not roster.gone(v)}
    found = {v: tuple(r for r in rounds if r in needed) for v, rounds in sorted(there.items())}
    return {v: rounds for v, rounds in found.items() if rounds}


def _aimed(state: TrackerState, taken: Taken) -> TrackerState:
    """With the span and origin of the next request, from this round's statistics where there are any."""
    if taken.snapshot is None:
        return state
    stats = taken.snapshot.everybody
    spans = state.settings.asks.span
    references = [c for c in np.flatnonzero(stats.counts).tolist() if c not in state.watch.since]
    span = stats.means[references] if spans and references else None
    return replace(state, origin=stats.overall_mean, span=span)


def shortened(problems: Sequence[str]) -> tuple[str, ...]:
    """What a state keeps of a round's problems: the first of them, where there are many."""
    more = len(problems) - MOST_PROBLEMS
    return (*problems[:MOST_PROBLEMS], *([f"and {more} more, which the log has"] if more > 0 else []))


def _outcome(
    after: TrackerState, now: Current, taken: Taken, decisions: tuple[Decision, ...], problems: tuple[str, ...]
) -> Outcome:
    return Outcome(
        round=after.round,
        prototypes=now.prototypes,
        covariance=now.covariance,
        readout=now.readout,
        reconstructions=now.reconstructions,
        tracked=now.tracked,
        statistics=None if taken.snapshot is None else taken.snapshot.everybody,
        answered=tuple(sorted(taken.counts)),
        decisions=decisions,
        problems=problems,
        references=now.references,
    )
