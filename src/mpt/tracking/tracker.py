"""The server's side of the paper's algorithm for a whole fleet, whatever carries the messages and trains the model.

    question = tracker.question()                   # to every vehicle, as question.to_bytes()
    answer = question.answer(features, labels)      # on a vehicle, its samples under the round's global model
    outcome = tracker.close(answers, leaving)       # on the server: answers by vehicle id
    outcome.readout.predict(features)

`docs/reference/fleet.md` has the protocol on a page.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from mpt.base.notebook import table
from mpt.protocol.question import Question
from mpt.protocol.request import StatisticsRequest
from mpt.tracking import state as states
from mpt.tracking.answers import largest_answer
from mpt.tracking.coverage import besides_largest
from mpt.tracking.dialogue import ClassifierHead
from mpt.tracking.errors import FleetError
from mpt.tracking.intake import Intake
from mpt.tracking.operator import Order, obey, quarantine
from mpt.tracking.refusals import counted
from mpt.tracking.roster import Absent, Decision, Roster
from mpt.tracking.rounds import Heard, More, Outcome, known_before, models_needed, questions, shortened, take
from mpt.tracking.settings import TrackerSettings
from mpt.tracking.state import TrackerState

__all__ = ["More", "Outcome", "Tracker"]

_EMPTY: Mapping[str, int] = {}
_UNNAMED: Mapping[str, str] = {}


class Tracker:
    """Who is in the fleet, which classes hang on one vehicle, and what the departed ones look like now.

    All it knows is `state`, a frozen value; `close` puts a new one in its place, or changes nothing where it raises.

    Example:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> tracker = Tracker(num_classes=3, dim=4, watch=(2,))
        >>> request = tracker.request()
        >>> answers = {v: request.answer(rng.standard_normal((60, 4)), np.arange(60) % 3) for v in "abc"}
        >>> tracker.close(answers).readout
        <NearestClassMean: 3/3 classes, d=4, Mahalanobis, cov_ridge=0.1>
    """

    def __init__(self, settings: TrackerSettings | None = None, *, round: int = 0, **chosen: Any) -> None:
        """A fleet that nobody has answered yet.

        Args:
            settings: a `TrackerSettings`, or its fields as keywords.
            round: the last round before the first that is tracked.
            chosen: the fields of `TrackerSettings`, where none is given.
        """
        if settings is not None and chosen:
            raise FleetError("settings: should be given as a TrackerSettings or as its fields, one of the two")
        if settings is None and not {"num_classes", "dim"} <= chosen.keys():
            raise FleetError("num_classes, dim: should both be given; mpt.LabelledTracker finds them out by itself")
        made = settings or TrackerSettings(**chosen)
        made.check_method()
        self.state = TrackerState.start(made, round)
        self._heard: Heard | None = None

    def __repr__(self) -> str:
        roster, state = self.roster, self.state
        there, gone = len(roster.having("present")), len(roster.having("departed"))
        kept = f", {len(state.tracked)} of {self.settings.num_classes} classes kept alive" if state.tracked else ""
        return f"<Tracker: round {self.round}, {there} vehicles present, {gone} departed{kept}>"

    def _repr_html_(self) -> str:
        """For notebooks: every class, who has samples of it, and what is known of its prototype."""
        heads = ("class", "", "samples", "vehicles", "verdict", "expected error")
        return table(repr(self).strip("<>"), heads, overview(self.state))

    @property
    def settings(self) -> TrackerSettings:
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
    def holders(self) -> frozenset[str]:
        """The vehicles for whose sake a class is watched: what they have learned, others have not."""
        state, watched = self.state, list(self.state.watch.classes)
        there, release = besides_largest(state.counts, state.counts), self.settings.release
        held = {v: (mine[watched], release * there[v][watched]) for v, mine in state.counts.items()}
        return frozenset(v for v, (mine, needed) in held.items() if np.any((mine > 0) & (mine >= needed)))

    @property
    def held_out(self) -> tuple[int, ...]:
        """The classes whose remaining samples are held out of training from now on: the departed ones."""
        return self.state.held_out

    @property
    def largest_answer(self) -> int:
        """Bytes: a longer answer to `question()` need not be received at all."""
        return largest_answer(self.settings, self.question())

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
        return questions(self.state, round)

    def request(self, round: int | None = None) -> StatisticsRequest:
        """The question without cross moments: all of it, but of the method "mpt-x"."""
        return self.question(round).statistics

    def receive(self, vehicle: str, answer: bytes, *, round: int | None = None) -> str:
        """A vehicle's answer to the latest question, as it comes; the round is closed by `take`.

        Where the method has no questions of its own the answer is read, merged and forgotten here: why it is refused,
        or an empty text. Else it is kept, and read by `take`.

        Args:
            vehicle: its id.
            answer: what `question.answer`, or `further.answer`, gave there.
            round: the round that it was made for, where the transport knows.
        """
        self._heard = (self._heard or self._begun()).receive(vehicle, answer, round)
        return "" if self._heard.intake is None else self._heard.intake.refused.get(vehicle, "")

    def begin(self, round: int | None = None) -> Question:
        """The first question of the next round, or of a later one; what was received and not closed is gone."""
        self._heard = self._begun(round)
        return self._heard.question

    def _begun(self, round: int | None = None) -> Heard:
        """A round that nothing has been heard in. Where a method has no questions of its own, answers are not kept."""
        question = self.question(round)
        streams = self.settings.speaks is None
        return Heard(
            question, intake=Intake(self.settings, question, (), known_before(self.state)) if streams else None
        )

    @property
    def answered(self) -> Collection[str]:
        """The vehicles whose answer to the round's first question has come, and was accepted where it was read."""
        if self._heard is None:
            return ()
        return self._heard.answers.keys() if self._heard.intake is None else self._heard.intake.answered

    def take(
        self,
        leaving: Collection[str] = (),
        *,
        absent: Mapping[str, str] = _UNNAMED,
        late: Mapping[str, str] = _UNNAMED,
        refused: Mapping[str, str] = _UNNAMED,
        names: Mapping[str, str] = _UNNAMED,
        head: ClassifierHead | None = None,
        asked: Collection[str] | None = None,
        doubted: bool = False,
    ) -> More | Outcome:
        """With what has been received: what to ask next in this round, of whom; or what came of it.

        What is said here is remembered until the round is closed.

        Args:
            leaving: vehicles that announced that they leave; where one has answered too, this is its last round.
            absent: why a vehicle did not answer, where the transport knows, for the log.
            late: vehicles that are there and were not waited for, and why: they have not missed the round.
            refused: vehicles whose answer the transport has refused, and why: neither have they.
            names: what vehicles are called, where the transport knows, for the log; they are known by their ids.
            head: weight (C, d) and bias (C,) of the round's global model, for methods that read them.
            asked: the vehicles that were asked in this round, where not all were: the others have missed nothing, and
                their classes are as they were answered for last. None: all were.
            doubted: whether somebody's update was cut by more than half: what was learned in the round is in doubt,
                and no prototype is called good.
        """
        about = (leaving, Absent(absent, late, refused), names, head, asked, doubted)
        heard = (self._heard or self._begun()).told(*about)
        result = take(self.state, heard)
        if isinstance(result, More):
            self._heard = heard.ask(result)
            return result
        self._heard, (self.state, outcome) = None, result
        return outcome

    def close(
        self,
        answers: Mapping[str, bytes],
        leaving: Collection[str] = (),
        *,
        round: int | None = None,
        rounds: Mapping[str, int] = _EMPTY,
        absent: Mapping[str, str] = _UNNAMED,
        late: Mapping[str, str] = _UNNAMED,
        refused: Mapping[str, str] = _UNNAMED,
        names: Mapping[str, str] = _UNNAMED,
        head: ClassifierHead | None = None,
        asked: Collection[str] | None = None,
        doubted: bool = False,
        ask: Callable[[More], Mapping[str, bytes]] | None = None,
    ) -> Outcome:
        """End a round with the answers that came in time.

        Args:
            answers: what `question.answer` gave on each vehicle, by the vehicle's id; a wrong one is refused and the
                round goes on. Whoever is not in here did not answer.
            leaving: vehicles that announced that they leave; where one has answered too, this is its last round. It is
                looked at again after every `ask`, which may add to it.
            round: the round whose global model the features come from; default: the one after the last.
            rounds: the round that an answer was made for, where the transport knows; others are refused. Without it,
                late answers are known by the origin, which changes with every round that somebody answered.
            absent: why a vehicle did not answer, where the transport knows, for the log.
            late: vehicles that are there and were not waited for, and why: they have not missed the round.
            refused: vehicles whose answer the transport has refused, and why: neither have they.
            names: what vehicles are called, where the transport knows, for the log; they are known by their ids.
            head: of the round's global model, for methods that read it.
            asked: the vehicles that were asked in this round, where not all were: the others have missed nothing, and
                their classes are as they were answered for last. None: all were.
            doubted: as of `take`.
            ask: asks the vehicles that are named, and gives what came back in time: for methods with several questions.
        """
        heard = Heard(self.question(round), answers, rounds=rounds)
        while True:
            heard = heard.told(leaving, Absent(absent, late, refused), names, head, asked, doubted)
            result = take(self.state, heard)
            if not isinstance(result, More):
                break
            if ask is None:
                raise FleetError(
                    f"method: {self.settings.method!r} asks several times in a round: close should be given an ask"
                )
            heard = heard.ask(result, ask(result))
        self._heard, (self.state, outcome) = None, result
        return outcome

    def note(self, problems: Sequence[str]) -> None:
        """Keep these as the last round's problems, for the status: the first of them, where there are many."""
        self.state = replace(self.state, problems=shortened(problems))

    def count_refusals(self, whys: Iterable[str]) -> None:
        """Count replies that were refused before they came here, by reason."""
        self.state = replace(self.state, refusals=counted(self.state.refusals, whys))

    def quarantine(self, vehicle: str, why: str) -> tuple[Decision, ...]:
        """Take a vehicle's answers no more until the operator lets it back; it is there, and has missed nothing."""
        self.state, decisions = quarantine(self.state, vehicle, why)
        return decisions

    def obey(self, orders: Iterable[Order]) -> tuple[Decision, ...]:
        """Carry out what the operator has ordered, and what changed."""
        self.state, decisions = obey(self.state, orders)
        return decisions

    def to_bytes(self) -> bytes:
        """The tracker as bytes for `from_bytes`: versioned, no pickle, lossless."""
        return states.to_bytes(self.state)

    @classmethod
    def from_bytes(cls, data: bytes | bytearray | memoryview, settings: TrackerSettings | None = None) -> "Tracker":
        """The tracker, resumed where `to_bytes` was called.

        Args:
            data: what it gave.
            settings: what an earlier release did not write is as here; None: by default.
        """
        state = states.from_bytes(data, settings)
        tracker = cls(state.settings)
        tracker.state = state
        return tracker


def overview(state: TrackerState) -> list[tuple[Any, ...]]:
    """Every class for people: number, how it is known, samples, vehicles that have some, verdict, expected error."""
    classes = state.settings.num_classes
    samples, rows = sum(state.counts.values(), start=np.zeros(classes, np.int64)), list[tuple[Any, ...]]()
    for c in range(classes):
        held, health = sum(bool(mine[c]) for mine in state.counts.values()), state.health.get(c)
        kept = state.tracked.get(c)
        how = "departed" if kept else "watched" if c in state.watch.classes else "measured" if held else "unknown"
        verdict, error = (None, None) if health is None else (health.verdict, health.expected_error)
        rows.append((c, how, int(samples[c]), held, verdict, error))
    return rows
