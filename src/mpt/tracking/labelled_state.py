"""All that a `LabelledTracker` knows, as one value and as bytes."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from mpt.core import StatisticsError
from mpt.core.validation import as_int
from mpt.core.wire import Reader, Writer
from mpt.protocol.labelled import LabelledAnswer, LabelledQuestion
from mpt.protocol.labels import Label, as_label_set, from_json, to_json
from mpt.tracking import state as states
from mpt.tracking.errors import FleetError
from mpt.tracking.growing import with_classes
from mpt.tracking.open_round import OpenRound
from mpt.tracking.rounds import questions
from mpt.tracking.settings import TrackerSettings
from mpt.tracking.state import TrackerState

_KIND = b"U"
_PLAIN = ("chosen", "labels", "watch", "only", "room", "dim")


@dataclass(frozen=True, eq=False)
class LabelledState:
    """What a `LabelledTracker` knows.

    Attributes:
        chosen: settings of `TrackerSettings`, but for those that follow from the labels.
        watch: labels that are always watched.
        only: the labels that there may be; None: any.
        room: how many there may be.
        labels: of the classes, in the order of their numbers.
        dim: d; None as long as nobody has answered.
        plain: in numbers; of d = 1, and empty, as long as `dim` is None.
        knocking: devices that came too late for the last round; the next one waits for them.
        open: the round that is being heard.
    """

    chosen: Mapping[str, Any]
    watch: tuple[Label, ...]
    only: tuple[Label, ...] | None
    room: int
    labels: tuple[Label, ...]
    dim: int | None
    plain: TrackerState
    knocking: frozenset[str] = field(default=frozenset())
    open: OpenRound | None = None

    def question(self) -> LabelledQuestion:
        """Of the next round."""
        return LabelledQuestion(questions(self.plain), self.labels)

    def settings(self, labels: tuple[Label, ...], dim: int | None) -> TrackerSettings:
        """In numbers, with these labels."""
        return settings_for(self.chosen, self.watch, labels, dim)

    def grown(self, labels: tuple[Label, ...], dim: int | None) -> TrackerState:
        """In numbers, with these labels, behind those that there are."""
        plain = self.plain
        if self.dim is None and dim is not None:
            fresh = TrackerState.start(self.settings(self.labels, dim), plain.round)
            plain = replace(plain, settings=fresh.settings, prototypes=fresh.prototypes)
        return with_classes(plain, self.settings(labels, dim))


def settings_for(
    chosen: Mapping[str, Any], watch: tuple[Label, ...], labels: tuple[Label, ...], dim: int | None
) -> TrackerSettings:
    """In numbers: with two classes and one that is not watched at least, which may have no label yet."""
    size = max(2, len(labels), len(watch) + 1)
    names = [str(label) for label in labels]
    names += [name for name in ("?", *(f"?{i}" for i in range(size))) if name not in names][: size - len(names)]
    most = chosen.get("most_watched")
    capped = {"most_watched": min(most, size - 1)} if isinstance(most, int) else {}
    places = tuple(labels.index(label) for label in watch)
    return TrackerSettings(size, dim or 1, watch=places, class_names=tuple(names), **{**chosen, **capped})


def to_bytes(state: LabelledState, now: float) -> bytes:
    """The state as bytes for `from_bytes`; `now` is the time, of which an open round has some left."""
    heard = state.open
    about: dict[str, Any] = {name: getattr(state, name) for name in _PLAIN}
    about |= {"chosen": dict(state.chosen), "knocking": sorted(state.knocking), "open": None}
    if heard is not None:
        left = None if heard.deadline is None else max(0.0, heard.deadline - now)
        names = {"answers": list(heard.answers), "leaving": sorted(heard.leaving), "expected": sorted(heard.expected)}
        about["open"] = {**names, "refused": dict(heard.refused), "late": dict(heard.late), "left": left}
    writer = Writer(_KIND, 0, "float64")
    writer.block(to_json(**about))
    writer.block(states.to_bytes(state.plain))
    if heard is not None:
        writer.block(heard.question.to_bytes())
        for answer in heard.answers.values():
            writer.block(answer.to_bytes())
    return writer.finish()


def from_bytes(data: bytes | bytearray | memoryview, now: float) -> LabelledState:
    """What `to_bytes` was called on, at another time.

    Raises:
        FleetError: where the bytes are truncated, altered, of another version or not such a tracker's.
    """
    try:
        return _read(Reader(data, _KIND, 0), now)
    except FleetError:
        raise
    except StatisticsError as error:
        raise FleetError(str(error)) from None
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        why = f"({type(error).__name__}: {error})"
        raise FleetError(f"LabelledTracker bytes: not as this release writes them {why}") from error


def _read(reader: Reader, now: float) -> LabelledState:
    chosen, labels, watch, only, room, dim, knocking, heard = from_json(
        reader, "LabelledTracker", *_PLAIN, "knocking", "open"
    )
    plain = states.from_bytes(reader.block())
    plain.settings.check_method()
    known, watched = as_label_set(labels), as_label_set(watch)
    allowed = None if only is None else as_label_set(only)
    most = as_int(room, "room", least=2)
    state = LabelledState(chosen, watched, allowed, most, known, dim, plain, frozenset(knocking))
    if plain.settings != state.settings(known, dim):
        raise FleetError("LabelledTracker bytes: the tracker inside has other settings")
    if heard is not None:
        left = heard["left"]
        if left is not None and not 0 <= left < math.inf:
            raise FleetError(f"LabelledTracker bytes: a round with {left} seconds left")
        question = LabelledQuestion.from_bytes(reader.block())
        answers = {device: LabelledAnswer.from_bytes(reader.block()) for device in heard["answers"]}
        deadline, expected = None if left is None else now + left, frozenset(heard["expected"])
        told = OpenRound(question, deadline, expected, answers, heard["refused"], heard["late"])
        state = replace(state, open=replace(told, leaving=frozenset(heard["leaving"])))
    reader.finish()
    return state
