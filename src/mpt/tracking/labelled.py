"""The tracker for anybody: labels as they are, answers as they come, rounds that time or the caller closes.

    tracker = LabelledTracker(grace=2)
    question = tracker.begin(seconds=30).to_bytes()         # to every device
    why = tracker.receive("pump-7", answer)                 # as they come; why one is refused, or an empty text
    outcome = tracker.poll()                                # None until everybody is heard, or the time is over
    outcome.readout.predict(features)                       # labels

Inside is a `Tracker`, whose classes are the places of the labels in a list that grows.
"""

import dataclasses
import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from mpt.base.notebook import table
from mpt.base.text import did_you_mean
from mpt.core import StatisticsError
from mpt.core.validation import as_int
from mpt.methods import FLEET_METHODS
from mpt.protocol.labelled import LabelledAnswer, LabelledQuestion, widened
from mpt.protocol.labels import Label, as_label_set
from mpt.tracking import labelled_state as states
from mpt.tracking.errors import FleetError
from mpt.tracking.intake import Intake
from mpt.tracking.labelled_outcome import LabelledOutcome
from mpt.tracking.labelled_state import LabelledState, settings_for
from mpt.tracking.open_round import OpenRound, check_new, dimension, placed
from mpt.tracking.operator import Order, obey
from mpt.tracking.refusals import counted
from mpt.tracking.roster import LONGEST_REASON, Absent, Decision, Roster, check_id, line
from mpt.tracking.rounds import Heard, More, known_before, models_needed, take
from mpt.tracking.settings import TrackerSettings
from mpt.tracking.state import TrackerState
from mpt.tracking.tracker import overview

MOST_LABELS = 1000
"""That there may be where nothing is said: a device that invents labels does not fill the memory."""
_KNOWN = {field.name for field in dataclasses.fields(TrackerSettings)} - {"num_classes", "dim", "watch", "class_names"}
_NOBODY: Mapping[str, bytes] = {}


class LabelledTracker:
    """Who is there, which labels hang on one device, and what those look like now whose devices are gone.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> tracker = LabelledTracker()
        >>> question = tracker.question()
        >>> labels = np.array(["idle", "drill", "saw"])[np.arange(60) % 3]
        >>> tracker.close({device: question.answer(rng.standard_normal((60, 4)), labels) for device in "abc"})
        <LabelledOutcome: round 1, 3 devices answered, 3 of 3 labels have a prototype>
        >>> tracker
        <LabelledTracker: round 1, 3 labels, 3 devices present, 0 departed>
    """

    def __init__(
        self,
        *,
        labels: Collection[Label] | None = None,
        num_classes: int | None = None,
        dim: int | None = None,
        watch: Collection[Label] = (),
        round: int = 0,
        clock: Callable[[], float] = time.monotonic,
        **chosen: Any,
    ) -> None:
        """A fleet that nobody has answered yet.

        Args:
            labels: the only ones that there may be; answers with others are refused. None: any, in any round, of the
                kind that most answers in the first round that has any have.
            num_classes: how many labels there may be; None: as many as `labels`, or 1,000.
            dim: d, the feature dimension; None: that of most answers in the first round that has any.
            watch: labels that are watched from the first round on, however they are spread.
            round: the last round before the first that is tracked.
            clock: gives the time in seconds, for deadlines.
            chosen: the other fields of `TrackerSettings`: method, grace, watch_share and so on.
        """
        for name in sorted(chosen.keys() - _KNOWN):
            known = f"should be one of {', '.join(sorted(_KNOWN))}"
            raise FleetError(f"{name}: no setting of a tracker, {did_you_mean(name, _KNOWN, known)}")
        settings = {name: value.item() if isinstance(value, np.generic) else value for name, value in chosen.items()}
        try:
            only = None if labels is None else as_label_set(labels)
            always = as_label_set(watch, "watch", only or ())
            most = MOST_LABELS if only is None else max(2, len(only))
            room = as_int(most if num_classes is None else num_classes, "num_classes", least=2)
            d = None if dim is None else as_int(dim, "dim", least=1)
            number = as_int(round, "round", least=0)
        except StatisticsError as error:
            raise FleetError(str(error)) from None
        if only is not None and (others := set(always).difference(only)):
            raise FleetError(f"watch: {min(others)!r}, should be one of the labels")
        first = always if only is None else only
        if len(first) > room:
            raise FleetError(f"num_classes: {room}, should be at least {len(first)}, as many as are named")
        plain = settings_for(settings, always, first, d)
        plain.check_method()
        if plain.speaks is not None:
            raise FleetError(
                f"method: {plain.method!r} asks what it likes, should be one of {', '.join(FLEET_METHODS)}; "
                "mpt.fleet.Tracker takes the others"
            )
        self.state = LabelledState(settings, always, only, room, first, d, TrackerState.start(plain, number))
        self._clock = clock

    def __repr__(self) -> str:
        there, gone = len(self.roster.having("present")), len(self.roster.having("departed"))
        alive, heard = len(self.state.plain.tracked), self.state.open
        kept = f", {alive} kept alive" if alive else ""
        now = "" if heard is None else f"; round {heard.round} is open, {len(heard.answers)} have answered"
        what = f"round {self.round}, {len(self.labels)} labels{kept}, {there} devices present, {gone} departed{now}"
        return f"<LabelledTracker: {what}>"

    def _repr_html_(self) -> str:
        """For notebooks: every label, who has samples of it, and what is known of its prototype."""
        rows = overview(self.state.plain)
        named = [(str(label), *others) for label, (_, *others) in zip(self.labels, rows, strict=False)]
        return table(repr(self).strip("<>"), ("label", "", "samples", "devices", "verdict", "expected error"), named)

    @property
    def labels(self) -> tuple[Label, ...]:
        """Of all classes that are known, in the order of their numbers."""
        return self.state.labels

    @property
    def dim(self) -> int | None:
        """d; None as long as it is not known."""
        return self.state.dim

    @property
    def round(self) -> int:
        """The last round that was closed."""
        return self.state.plain.round

    @property
    def roster(self) -> Roster:
        """Who is present, suspected and departed."""
        return self.state.plain.roster

    @property
    def held_out(self) -> tuple[Label, ...]:
        """The labels whose remaining samples are held out of training from now on: those of departed classes."""
        return tuple(self.labels[c] for c in self.state.plain.held_out)

    @property
    def watched(self) -> tuple[Label, ...]:
        """The labels that hang on one device, or are kept alive already."""
        return tuple(self.labels[c] for c in self.state.plain.watch.classes)

    @property
    def models_needed(self) -> tuple[int, ...]:
        """The rounds whose global model is to be kept for the method "mpt-x": see `Tracker.models_needed`."""
        return models_needed(self.state.plain)

    @property
    def lacking(self) -> Mapping[str, tuple[int, ...]]:
        """By device, the rounds of the reference models that it said it does not have: send them to it."""
        return self.state.plain.lacking

    def begin(self, seconds: float | None = None, *, expected: Collection[str] = ()) -> LabelledQuestion:
        """Open the next round. Who was refused, late or has said goodbye since the last one counts as heard in it.

        Args:
            seconds: after which it is over; None: when every device that is expected is heard, or `close` is called.
            expected: devices to wait for beside those that are known and have not departed. In the first round nobody
                is known.
        """
        heard = self.state.open
        if heard is not None and heard.answers:
            raise FleetError(f"round {heard.round} is open and has been answered, should be closed first")
        if isinstance(expected, str):
            raise FleetError(f"expected: {expected!r}, should be several devices, [{expected!r}]")
        for device in expected:
            check_id(device)
        number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
        if seconds is not None and not (number and 0 < seconds < math.inf):
            raise FleetError(f"seconds: {seconds!r}, should be a positive number, or None")
        deadline = None if seconds is None else self._clock() + seconds
        known = self.roster.having("present", "late", "refused", "suspected")
        unwanted = self.roster.having("banned", "quarantined")
        opened = OpenRound(self.state.question()) if heard is None else heard
        awaited = frozenset({*known, *expected, *self.state.knocking}.difference(unwanted))
        self.state = replace(self.state, open=replace(opened, deadline=deadline, expected=awaited))
        return opened.question

    def _heard(self) -> OpenRound:
        """The round that is open; where none is, one is opened without a deadline."""
        if self.state.open is None:
            self.begin()
        assert self.state.open is not None
        return self.state.open

    def question(self) -> LabelledQuestion:
        """What every device is asked in the round that is open; where none is, one is opened without a deadline."""
        return self._heard().question

    @property
    def answered(self) -> tuple[str, ...]:
        """The devices whose answer has come in the open round, and was accepted."""
        return () if self.state.open is None else tuple(sorted(self.state.open.answers))

    @property
    def awaited(self) -> tuple[str, ...]:
        """The devices that the open round still waits for."""
        return () if self.state.open is None else tuple(sorted(self.state.open.awaited))

    @property
    def seconds_left(self) -> float | None:
        """Of the open round; None where it has no deadline."""
        heard = self.state.open
        return None if heard is None or heard.deadline is None else max(0.0, heard.deadline - self._clock())

    @property
    def due(self) -> bool:
        """Whether the open round is over: its time is, or everybody that was expected is heard."""
        return self.state.open is not None and self.state.open.over(self._clock())

    def receive(self, device: str, answer: bytes) -> str:
        """Take a device's answer as it comes: an empty text, or why it does not count.

        The same answer may come twice. Who was refused may answer again. Who is too late is there: it has missed
        nothing, and the next round waits for it.

        Args:
            device: its id, which survives a restart: 1 to 256 characters.
            answer: what `LabelledQuestion.answer` gave there.
        """
        check_id(device)
        heard = self._heard()
        try:
            read = LabelledAnswer.from_bytes(answer)
            if why := self._too_late(heard, read):
                self.state = replace(self.state, open=heard.too_late(device, why))
                return why
            if device in heard.answers:
                same = heard.answers[device] == read
                return "" if same else "a second answer to the same question; the first one counts"
            self._check(device, heard.question, read)
        except Exception as error:  # whatever it is, it is this answer's own refusal
            why = line(str(error) if isinstance(error, StatisticsError) else f"answer: {error!r}")
            self.state = replace(self.state, open=heard.refuse(device, why))
            return why
        self.state = replace(self.state, open=heard.accept(device, read))
        return ""

    def _too_late(self, heard: OpenRound, answer: LabelledAnswer) -> str:
        if answer.round < heard.round:
            return f"too late: the answer is for round {answer.round}, this is round {heard.round}"
        over = heard.deadline is not None and self._clock() >= heard.deadline
        return f"too late: the time of round {heard.round} is over" if over else ""

    def _check(self, device: str, question: LabelledQuestion, answer: LabelledAnswer) -> None:
        """Read an answer by itself, as the round's end will; `StatisticsError` where it is wrong."""
        state = self.state
        if answer.round != question.round:
            raise StatisticsError(f"answer: made for round {answer.round}, this is round {question.round}")
        check_new(question, answer, state.room, state.only)
        known, labels = len(question.labels), (*question.labels, *answer.new)
        dim = dimension(question, answer) if state.dim is None else state.dim
        settings = replace(state.settings(labels, dim), gate=False)
        intake = Intake(settings, question.widened(len(answer.new)), (), known_before(state.plain))
        if why := intake.take(device, answer.plain):
            raise StatisticsError(why)
        counts = intake.taken({}).counts[device]
        if counts[len(labels) :].any() or not counts[known : len(labels)].all():
            raise StatisticsError("answer: samples without a label, or a new label without samples")

    def leave(self, device: str) -> None:
        """A device has said that it leaves: where it has answered in the open round, that is its last answer."""
        check_id(device)
        heard = self._heard()
        self.state = replace(self.state, open=replace(heard, leaving=heard.leaving | {device}))

    def poll(self) -> LabelledOutcome | None:
        """Close the round if it is over, and what came of it; else None."""
        return self.close() if self.due else None

    def close(self, answers: Mapping[str, bytes] = _NOBODY) -> LabelledOutcome:
        """Close the open round now. Devices that have not answered have missed it, but for those that were late.

        Args:
            answers: by device, taken in first: for a loop that has them all at once.
        """
        for device, answer in answers.items():
            self.receive(device, answer)
        dim, heard = self.state.dim, self._heard().of_one_kind()
        heard = self._crowded(heard.of_one_dimension() if dim is None else heard)
        labels = heard.labels
        if dim is None and heard.answers:
            dim = dimension(heard.question, next(iter(heard.answers.values())))
        before = self.state.grown(labels, dim)
        size = before.settings.num_classes
        plain = {v: placed(heard.question, a, labels, size, dim or 1) for v, a in heard.answers.items()}
        told = Heard(widened(heard.question.plain, size), plain)
        result = take(before, told.told(heard.leaving, Absent({}, heard.late, heard.refused), {}, None))
        assert not isinstance(result, More), "these methods ask once"
        after, outcome = result
        after = replace(after, refusals=counted(after.refusals, heard.refused.values()))
        knocking = frozenset(heard.late) - heard.leaving
        self.state = replace(self.state, plain=after, labels=labels, dim=dim, knocking=knocking, open=None)
        said = tuple(line(f"device {v}: {why}", 2 * LONGEST_REASON) for v, why in sorted(heard.refused.items()))
        return LabelledOutcome(labels, outcome, (*said, *outcome.problems))

    def _crowded(self, heard: OpenRound) -> OpenRound:
        """Where answers that fit one by one have too many labels together: without those that bring most, or came last.

        So no device that invents labels locks out the others.
        """
        room = self.state.room
        if len(heard.labels) <= room:
            return heard
        kept, refused = replace(heard, answers={}), dict(heard.refused)
        for device, answer in sorted(heard.answers.items(), key=lambda one: len(one[1].new)):
            more = replace(kept, answers={**kept.answers, device: answer})
            if len(more.labels) <= room:
                kept = more
            else:
                refused[device] = f"answer: with its new labels there would be more than {room}"
        return replace(kept, refused=refused)

    def obey(self, orders: Iterable[Order]) -> tuple[Decision, ...]:
        """Carry out what an operator has ordered, and what changed; see `Tracker.obey`.

        In the middle of a round too: who is banned or forgotten is not heard in it.
        """
        (plain, decisions), heard = obey(self.state.plain, orders), self.state.open
        gone = {decision.vehicle for decision in decisions if decision.what in ("banned", "forgotten")}
        left = None if heard is None else heard.without(gone)
        self.state = replace(self.state, plain=plain, knocking=self.state.knocking - gone, open=left)
        return decisions

    def to_bytes(self) -> bytes:
        """The tracker as bytes for `from_bytes`, in the middle of a round too: versioned, no pickle, lossless."""
        return states.to_bytes(self.state, self._clock())

    @classmethod
    def from_bytes(
        cls, data: bytes | bytearray | memoryview, *, clock: Callable[[], float] = time.monotonic
    ) -> "LabelledTracker":
        """The tracker, resumed where `to_bytes` was called; an open round has as many seconds left as it had then.

        Args:
            data: what it gave.
            clock: as of `LabelledTracker`.

        Raises:
            FleetError: where the bytes are truncated, altered, of another version or not such a tracker's.
        """
        tracker = cls(clock=clock)
        tracker.state = states.from_bytes(data, clock())
        return tracker
