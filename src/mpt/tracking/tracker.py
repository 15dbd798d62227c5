"""The server's side of the paper's algorithm for a whole fleet, whatever carries the messages and trains the model.

    question = tracker.question()                   # to every vehicle, as question.to_bytes()
    answer = question.answer(features, labels)      # on a vehicle, its samples under the round's global model
    outcome = tracker.close(answers, leaving)       # on the server: answers by vehicle id
    outcome.readout.predict(features)

`docs/fleet.md` has the protocol on a page.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mpt.core import ClassStatistics, NearestClassMean, Reconstruction
from mpt.core.affine import halves_suffice
from mpt.core.validation import Floats
from mpt.protocol.cross_request import CrossRequest
from mpt.protocol.question import Question
from mpt.protocol.request import StatisticsRequest
from mpt.tracking import state as states
from mpt.tracking.answers import Taken, largest_answer, take
from mpt.tracking.departures import Departures, settle
from mpt.tracking.errors import FleetError
from mpt.tracking.prototypes import Current, current
from mpt.tracking.remembered import offsets, still_known
from mpt.tracking.roster import Decision, Roster, advance, titled
from mpt.tracking.settings import Settings
from mpt.tracking.spread import watch_next
from mpt.tracking.state import Health, TrackerState

_EMPTY: Mapping[str, int] = {}
_UNNAMED: Mapping[str, str] = {}


@dataclass(frozen=True, eq=False)
class Outcome:
    """What came of a round.

    Attributes:
        round: its number.
        prototypes: (C, d), measured or, for departed classes, reconstructed; a row of NaN where a class has none.
        covariance: (d, d), the pooled within-class covariance; None in MPT-lite, or where it cannot be had.
        readout: made of both, by the method "mpt-x" with classes that nobody trains any more further out, Eq. (X10);
            None as long as no class has a prototype.
        reconstructions: of the classes that were reconstructed, by class.
        statistics: the merged statistics; None where nobody answered.
        answered: the vehicles whose answer was accepted.
        decisions: what changed, and why, in order.
        problems: what went wrong without stopping the round, a sentence each.
    """

    round: int
    prototypes: Floats
    covariance: Floats | None
    readout: NearestClassMean | None
    reconstructions: Mapping[int, Reconstruction]
    statistics: ClassStatistics | None
    answered: tuple[str, ...]
    decisions: tuple[Decision, ...]
    problems: tuple[str, ...]


class Tracker:
    """Who is in the fleet, which classes hang on one vehicle, and what the departed ones look like now.

    All it knows is `state`, a frozen value; `close` puts a new one in its place, or changes nothing where it raises.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> tracker = Tracker(num_classes=3, dim=4, watch=(2,))
        >>> request = tracker.request()
        >>> answers = {v: request.answer(rng.standard_normal((60, 4)), np.arange(60) % 3) for v in "abc"}
        >>> tracker.close(answers).readout
        <NearestClassMean: 3/3 classes, d=4, Mahalanobis, cov_ridge=0.1>
    """

    def __init__(self, settings: Settings | None = None, *, round: int = 0, **chosen: Any) -> None:
        """A fleet that nobody has answered yet.

        Args:
            settings: a `Settings`, or its fields as keywords.
            round: the last round before the first that is tracked.
            chosen: the fields of `Settings`, where none is given.
        """
        if (settings is None) == (not chosen):
            raise FleetError("settings: should be given as a Settings or as its fields, one of the two")
        self.state = TrackerState.start(settings or Settings(**chosen), round)

    @property
    def settings(self) -> Settings:
        """What the operator chose."""
        return self.state.settings

    @property
    def round(self) -> int:
        """The last round that was closed."""
        return self.state.round

    @property
    def roster(self) -> Roster:
        """Who is present, suspected and departed."""
        return self.state.roster

    @property
    def held_out(self) -> tuple[int, ...]:
        """The classes whose remaining samples are held out of training from now on: the departed ones."""
        return self.state.held_out

    @property
    def largest_answer(self) -> int:
        """Bytes: a longer answer to `question()` need not be received at all."""
        return largest_answer(self.question(), self.settings.dim)

    @property
    def models_needed(self) -> tuple[int, ...]:
        """The rounds whose global model is to be kept for the method "mpt-x": vehicles may lack it.

        They are those that tracked classes have now, and the last that somebody answered in: should a vehicle be
        missing in the next round, its deposit is from that one.
        """
        return models_needed(self.state)

    @property
    def lacking(self) -> Mapping[str, tuple[int, ...]]:
        """By vehicle, the rounds of the reference models that it said it does not have: send them to it."""
        return self.state.lacking

    def question(self, round: int | None = None) -> Question:
        """What to ask of every vehicle in the next round, or in a later one."""
        return question_of(self.state, round)

    def request(self, round: int | None = None) -> StatisticsRequest:
        """The question without cross moments: all of it, but of the method "mpt-x"."""
        return self.question(round).statistics

    def close(
        self,
        answers: Mapping[str, bytes],
        leaving: Collection[str] = (),
        *,
        round: int | None = None,
        rounds: Mapping[str, int] = _EMPTY,
        absent: Mapping[str, str] = _UNNAMED,
        names: Mapping[str, str] = _UNNAMED,
    ) -> Outcome:
        """End a round with the answers that came in time.

        Args:
            answers: what `question.answer` gave on each vehicle, by the vehicle's id; a wrong one is refused and the
                round goes on. Whoever is not in here did not answer.
            leaving: vehicles that announced that they leave; where one has answered too, this is its last round.
            round: the round whose global model the features come from; default: the one after the last.
            rounds: the round that an answer was made for, where the transport knows; others are refused. Without it,
                late answers are known by the origin, which changes with every round that somebody answered.
            absent: why a vehicle did not answer, where the transport knows, for the log.
            names: what vehicles are called, where the transport knows, for the log; they are known by their ids.
        """
        self.state, outcome = close_round(self.state, answers, leaving, round, rounds, absent, names)
        return outcome

    def approve(self, classes: Collection[int]) -> None:
        """In shadow mode: let the remaining samples of these classes be held out, once they have departed."""
        wrong = [c for c in classes if not 0 <= c < self.settings.num_classes]
        if wrong:
            raise FleetError(f"approve: class {wrong[0]}, should be from 0 to {self.settings.num_classes - 1}")
        self.state = replace(self.state, approved=tuple(sorted({*self.state.approved, *classes})))

    def to_bytes(self) -> bytes:
        """The tracker as bytes for `from_bytes`: versioned, no pickle, lossless."""
        return states.to_bytes(self.state)

    @classmethod
    def from_bytes(cls, data: bytes | bytearray | memoryview) -> "Tracker":
        """The tracker that goes on where `to_bytes` was called."""
        state = states.from_bytes(data)
        tracker = cls(state.settings)
        tracker.state = state
        return tracker


def question_of(state: TrackerState, round: int | None = None) -> Question:
    """What to ask of every vehicle after this state."""
    number = state.round + 1 if round is None else round
    if number <= state.round:
        raise FleetError(f"round: {number}, but round {state.round} is closed, should be a later one")
    asks = state.settings.asks
    origin = np.zeros(state.settings.dim) if state.origin is None else state.origin
    there = state.spread.totals
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
        if one.reference is not None
    }
    request = StatisticsRequest(
        number,
        state.settings.num_classes,
        watched=state.watch.classes,
        held_out=state.held_out,
        scatter=asks.scatter,
        span=state.span if asks.span else None,
        origin=state.origin,
    )
    return Question(request, cross)


def models_needed(state: TrackerState) -> tuple[int, ...]:
    """See `Tracker.models_needed`."""
    if not state.settings.asks.cross:
        return ()
    last = set() if state.snapshot is None else {state.snapshot.round}
    return tuple(sorted(last | {one.reference.round for one in state.tracked.values() if one.reference is not None}))


def close_round(
    state: TrackerState,
    answers: Mapping[str, bytes],
    leaving: Collection[str] = (),
    round: int | None = None,
    rounds: Mapping[str, int] = _EMPTY,
    absent: Mapping[str, str] = _UNNAMED,
    names: Mapping[str, str] = _UNNAMED,
) -> tuple[TrackerState, Outcome]:
    """The state after a round, and what came of it; see `Tracker.close`."""
    settings, question = state.settings, question_of(state, round)
    request, taken = question.statistics, take(settings, question, answers, rounds)
    reasons = {**absent, **{v: f"its answer was refused ({why})" for v, why in taken.refused.items()}}
    roster, moves = advance(
        state.roster,
        request.round,
        taken.counts.keys(),
        leaving,
        grace=settings.grace,
        absent=reasons,
        names=names,
    )
    present = state.spread
    refusals = tuple(Decision(request.round, "refused", v, (), why) for v, why in sorted(taken.refused.items()))
    moves = tuple(replace(m, classes=present.held_by(m.vehicle, settings.watch_share)) for m in moves)
    departed = settle(state, request, taken, roster)
    known = still_known(state, departed.tracked, roster)
    now = current(state, departed, taken, roster, known, request.round)
    counts = {v: c for v, c in {**state.counts, **taken.counts}.items() if roster.state(v) != "departed"}
    after = replace(state, counts=counts)
    watch, changes = watch_next(settings, state.watch, after.spread, departed.tracked.keys(), request.round)
    health = _health(now)
    plain = (*refusals, *moves, *departed.decisions, *changes, *_verdicts(state, health, request.round))
    called = {**{v: m.name for v, m in roster.members.items()}, **names}
    decisions = tuple(_named(decision, settings, called) for decision in plain)
    after = replace(
        after,
        round=request.round,
        roster=roster,
        watch=watch,
        tracked=departed.tracked,
        remembered={**known, **offsets(taken, roster, now.forecasts)} if settings.remembers else {},
        held_out=departed.held_out,
        lacking=_lacking(state, departed, taken, roster),
        health=health,
        outward=now.outward,
        snapshot=taken.snapshot or state.snapshot,
        prototypes=now.prototypes,
        made=now.made,
        decisions=decisions,
        problems=(
            *(f"vehicle {titled(d.vehicle, called.get(d.vehicle, ''))}: {d.why}" for d in refusals),
            *now.problems,
        ),
    )
    return _aimed(after, taken), _outcome(after, now, taken)


def _named(decision: Decision, settings: Settings, called: Mapping[str, str]) -> Decision:
    """The decision with the names of its vehicles and classes."""
    vehicles = [decision.vehicle] if decision.vehicle in called else decision.vehicle.split(", ")
    name = ", ".join(called.get(v) or v for v in vehicles)
    classes = tuple(settings.class_names[c] for c in decision.classes) if settings.class_names else ()
    return replace(decision, name="" if name == decision.vehicle else name, class_names=classes)


def _lacking(state: TrackerState, departed: Departures, taken: Taken, roster: Roster) -> dict[str, tuple[int, ...]]:
    """By what each vehicle answered last; models that are no longer needed are not lacking."""
    needed = {one.reference.round for one in departed.tracked.values() if one.reference is not None}
    there = {v: rounds for v, rounds in {**state.lacking, **taken.lacking}.items() if roster.state(v) != "departed"}
    found = {v: tuple(r for r in rounds if r in needed) for v, rounds in sorted(there.items())}
    return {v: rounds for v, rounds in found.items() if rounds}


def _health(now: Current) -> dict[int, Health]:
    return {
        c: Health(float(made.expected_error), made.verdict)
        for c, made in sorted(now.reconstructions.items())
        if made.expected_error is not None and made.verdict is not None
    }


def _verdicts(state: TrackerState, health: Mapping[int, Health], round: int) -> tuple[Decision, ...]:
    """The verdicts that are others than the round before."""
    before = {c: known.verdict for c, known in state.health.items()}
    return tuple(
        Decision(round, "verdict", "", (c,), f"{known.verdict}, an error of {known.expected_error:.2g} is expected")
        for c, known in health.items()
        if known.verdict != before.get(c, "good")
    )


def _aimed(state: TrackerState, taken: Taken) -> TrackerState:
    """With the span and origin of the next request, from this round's statistics where there are any."""
    if taken.snapshot is None:
        return state
    stats = taken.snapshot.everybody
    spans = state.settings.asks.span
    references = [c for c in np.flatnonzero(stats.counts).tolist() if c not in state.watch.since]
    span = stats.means[references] if spans and references else None
    return replace(state, origin=stats.overall_mean, span=span)


def _outcome(after: TrackerState, now: Current, taken: Taken) -> Outcome:
    return Outcome(
        round=after.round,
        prototypes=now.prototypes,
        covariance=now.covariance,
        readout=now.readout,
        reconstructions=now.reconstructions,
        statistics=None if taken.snapshot is None else taken.snapshot.everybody,
        answered=tuple(sorted(taken.counts)),
        decisions=after.decisions,
        problems=after.problems,
    )
