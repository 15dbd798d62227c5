"""A method on a made-up federation, with all that it asks and gives written down."""

import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from mpt.checking.vehicles import apart, carried
from mpt.checking.world import PLAN, World
from mpt.checkpoint import Checkpoint, load, save
from mpt.core.validation import Floats, Ints
from mpt.federation.scoring import evaluate
from mpt.federation.state import State
from mpt.federation.stored import predictions
from mpt.federation.view import views
from mpt.methods import Method, MethodError
from mpt.methods.method import Now
from mpt.protocol.local import Answer, Local
from mpt.protocol.parts import Part, parts_of
from mpt.tables import Tables

Make = Callable[[], Method]
"""Makes the method anew, as a run that goes on would."""


@dataclass(frozen=True, eq=False)
class Sent:
    """One vehicle's answer to one question of the method's own.

    Attributes:
        round: in which it was asked.
        question: the message.
        answer: the message.
        features: (n, d), of the vehicle's samples, under the current model and, once there is one, the earlier one.
    """

    round: int
    question: bytes
    answer: bytes
    features: tuple[Floats, ...]


@dataclass(eq=False)
class Seen:
    """What a method did.

    Attributes:
        prototypes: what it gave in each round, where that was a prototype.
        predicted: (N,), what it predicts for the test samples in each round, where it gave a readout.
        sent: every answer to its own questions.
        references: rounds in which it read `now.reference`.
        carried: names of what its answers close over.
    """

    prototypes: dict[int, Floats] = field(default_factory=dict)
    predicted: dict[int, Ints] = field(default_factory=dict)
    sent: list[Sent] = field(default_factory=list)
    references: list[int] = field(default_factory=list)
    carried: set[str] = field(default_factory=set)


class Observed:
    """A method as the judge sees it, which writes down what goes through it."""

    def __init__(self, make: Make, method: Method, seen: Seen, test: Callable[[], Floats], isolated: bool) -> None:
        self.make, self.method, self.seen, self.test, self.isolated = make, method, seen, test, isolated

    def __getattr__(self, name: str) -> Any:
        return getattr(self.method, name)

    def depart(self, now: Now) -> Any:
        """As the method's."""
        return self.method.depart(self._watched(now))

    def track(self, kept: Any, now: Now) -> tuple[Any, Any]:
        """As the method's."""
        given: Any = self.method.track(kept, self._watched(now))
        if not isinstance(given, tuple) or len(given) != 2:
            raise MethodError(f"track gave {type(given).__name__}, should be two: what is kept, and the outcome")
        if isinstance(given[1], np.ndarray):
            self.seen.prototypes[now.round] = np.array(given[1])
        elif hasattr(given[1], "predict"):
            self.seen.predicted[now.round] = predictions(given[1], self.test(), now.num_classes)
        return given

    def _watched(self, now: Now) -> Now:
        def reference(which: Any) -> Floats:
            self.seen.references.append(now.round)
            return now.reference(which)

        def ask(question: bytes, answer: Answer) -> Iterator[bytes]:
            if not isinstance(question, bytes):
                raise MethodError(f"now.ask was given {type(question).__name__}, should be bytes")
            self.seen.carried.update(carried(answer, watched))

            def noted(question: bytes, local: Local) -> bytes:
                earlier = (local.earlier(),) if now.round >= PLAN.depart_at else ()
                made = (apart(answer, watched) if self.isolated else answer)(question, local)
                if not isinstance(made, bytes):
                    raise MethodError(f"an answer is {type(made).__name__}, should be bytes")
                self.seen.sent.append(Sent(now.round, question, made, (local.features, *earlier)))
                return made

            return now.ask(question, noted)

        def summed(part: Part, arrays: Mapping[str, Floats]) -> dict[str, Floats]:
            installed = parts_of(self.make())[part.name] if self.isolated else part
            return replace(watched, summed=None).total(installed.answer, **arrays)

        watched = replace(now, reference=reference, ask=ask, summed=summed)
        return watched


def observe(make: Make, world: World, *, isolated: bool = False, resumed: bool = False) -> Seen:
    """All rounds of the plan.

    Args:
        make: the method.
        world: where.
        isolated: answers are made away from the server's memory.
        resumed: after every round what the method keeps is written, read, and handed to a method that was made anew.

    Raises:
        Exception: what the method raises.
    """
    seen, method, kept, anchor, before = Seen(), make(), dict[str, Any](), None, None
    for number in range(1, PLAN.rounds + 1):
        stored = world.features(number)
        before = stored if number == PLAN.depart_at else before
        training = method.training
        mine = views(world.presence, number, {training: stored}, {} if before is None else {training: before})
        watched: Any = Observed(make, method, seen, partial(getattr, stored, "test"), isolated)
        _, kept, anchor = evaluate(PLAN, number, [watched], mine, kept, anchor)
        if resumed:
            kept, method = _written_and_read(number, kept), make()
    return seen


def _written_and_read(number: int, kept: dict[str, Any]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        save(Path(folder), Checkpoint("check", 0, State(number, {}, {}, kept), Tables()))
        said: list[str] = []
        found = load(Path(folder), "check", device="cpu", say=said.append)
    if found is None or found.state is None:
        raise MethodError(f"what depart and track keep cannot be read again: {' '.join(said)}")
    return found.state.kept
