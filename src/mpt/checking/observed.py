"""A method on a made-up federation, with all that it asks and gives written down."""

import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from mpt.checking.world import PLAN, World
from mpt.core import CrossStatistics
from mpt.core.cross import StaticPart
from mpt.core.validation import Floats, Ints
from mpt.federation.measurement import Anchors
from mpt.federation.scoring import evaluate
from mpt.federation.state import FederationState
from mpt.federation.stored import predictions, side_by_side
from mpt.federation.view import views
from mpt.methods import Method, MethodError
from mpt.methods.method import RoundContext
from mpt.protocol.cross_request import CrossRequest
from mpt.protocol.local import Local
from mpt.protocol.parts import Asked, Part, parts_of
from mpt.runs.checkpoint import RunCheckpoint, load, save

Make = Callable[[], Method]
"""Makes the method anew, as a run that is resumed would."""


@dataclass(frozen=True, eq=False)
class Sent:
    """One vehicle's answer to one question of the method's own.

    Attributes:
        round: in which it was asked.
        question: the arrays that were sent along.
        answer: the arrays that came.
        features: (n, d), of the vehicle's samples, under the current model and, once there is one, the earlier one.
    """

    round: int
    question: tuple[Floats, ...]
    answer: tuple[Floats, ...]
    features: tuple[Floats, ...]


@dataclass(eq=False)
class Observation:
    """What a method did.

    Attributes:
        prototypes: what it gave in each round, where that was a prototype.
        predicted: (N,), what it predicts for the test samples in each round, where it gave a readout.
        sent: every answer to its own questions.
        references: rounds in which it read `context.oracle`.
    """

    prototypes: dict[int, Floats] = field(default_factory=dict)
    predicted: dict[int, Ints] = field(default_factory=dict)
    sent: list[Sent] = field(default_factory=list)
    references: list[int] = field(default_factory=list)


class Observed:
    """A method as the judge sees it, which writes down what goes through it."""

    def __init__(
        self, make: Make, method: Method, seen: Observation, test: Callable[[Any], Floats], isolated: bool
    ) -> None:
        self.make, self.method, self.seen, self.test, self.isolated = make, method, seen, test, isolated

    def __getattr__(self, name: str) -> Any:
        return getattr(self.method, name)

    def depart(self, context: RoundContext) -> Any:
        """As the method's."""
        return self.method.depart(self._watched(context))

    def track(self, state: Any, context: RoundContext) -> tuple[Any, Any]:
        """As the method's."""
        given: Any = self.method.track(state, self._watched(context))
        if not isinstance(given, tuple) or len(given) != 2:
            raise MethodError(f"track gave {type(given).__name__}, should be two: what is kept, and the outcome")
        if isinstance(given[1], np.ndarray):
            self.seen.prototypes[context.round] = np.array(given[1])
        elif hasattr(given[1], "predict"):
            self.seen.predicted[context.round] = predictions(given[1], self.test(given[1]), context.num_classes)
        return given

    def _watched(self, context: RoundContext) -> RoundContext:
        def oracle(which: Any) -> Floats:
            self.seen.references.append(context.round)
            return context.oracle(which)

        def summed(part: Part, asked: Asked) -> dict[str, Floats]:
            if part.name not in parts_of(self.method):
                raise MethodError(f"{part.name}: no function of the method has that name, vehicles could not find it")

            def noted(asked: Asked, local: Local) -> Mapping[str, Floats]:
                installed = parts_of(self.make())[part.name] if self.isolated else part
                given = installed.answer(asked, local)
                earlier = (local.earlier(),) if part.earlier else ()
                arrays = tuple(np.asarray(given[name], dtype=np.float64) for name in part.shapes if name in given)
                self.seen.sent.append(
                    Sent(context.round, tuple(asked.arrays.values()), arrays, (local.features, *earlier))
                )
                return given

            return context.summed(replace(part, answer=noted), asked)

        def crossed(request: CrossRequest, known: Mapping[bytes, StaticPart]) -> Iterator[CrossStatistics]:
            assert context.crossed is not None
            for report in context.crossed(request, known):
                arrays = (report.counts.astype(np.float64), report.earlier, report.sums, report.gram, report.cross)
                self.seen.sent.append(Sent(context.round, (request.weights, request.origin), arrays, ()))
                yield report

        return replace(context, oracle=oracle, summed=summed, crossed=crossed)


def observe(make: Make, world: World, *, isolated: bool = False, resumed: bool = False) -> Observation:
    """All rounds of the plan.

    Args:
        make: the method.
        world: where.
        isolated: answers are made away from the server's memory.
        resumed: after every round what the method keeps is written, read, and handed to a method that was made anew.

    Raises:
        Exception: what the method raises.
    """
    seen, method, states, anchors, before = Observation(), make(), dict[str, Any](), Anchors(), None
    for number in range(1, PLAN.rounds + 1):
        stored = world.features(number)
        before = stored if number == PLAN.depart_at else before
        training = method.training
        mine = views(world.presence, number, {training: stored}, {} if before is None else {training: before})
        earlier = () if before is None else (before,)
        watched: Any = Observed(make, method, seen, partial(side_by_side, test=stored.test, before=earlier), isolated)
        _, states, anchors = evaluate(PLAN, number, [watched], mine, states, anchors)
        if resumed:
            states, method = _written_and_read(number, states), make()
    return seen


def _written_and_read(number: int, states: dict[str, Any]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        save(Path(folder), RunCheckpoint("check", 0, FederationState(number, {}, {}, states)))
        said: list[str] = []
        found = load(Path(folder), "check", device="cpu", say=said.append)
    if found is None or found.state is None:
        raise MethodError(f"what depart and track keep cannot be read again: {' '.join(said)}")
    return found.state.method_states
