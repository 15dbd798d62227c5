"""One evaluated round: methods are let look at it, and what they make of it is measured."""

import copy
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from mpt.base.extensions import own_code
from mpt.core.validation import Floats
from mpt.core.value import Value
from mpt.federation.background import few_threads
from mpt.federation.measurement import Anchors, Drift, Measurement, Step
from mpt.federation.metrics import Scores, score
from mpt.federation.plan import Plan
from mpt.federation.readouts import OWN, find_readouts, needs_covariance
from mpt.federation.rounds import Channel
from mpt.federation.view import ServerView
from mpt.methods import Cost, Method, MethodError, RoundContext, Traits, find_training
from mpt.methods.method import Readout


def evaluate(
    plan: Plan,
    number: int,
    methods: Sequence[Method],
    seen: Mapping[str, ServerView],
    states: Mapping[str, Any],
    anchors: Anchors,
) -> tuple[list[Measurement], dict[str, Any], Anchors]:
    """The rows of a round in the order of the methods, their states from now on, and the anchors from now on."""
    unscored, states, held_out = list[Unscored](), dict(states), seen.get("held-out")
    drift = step = None
    with few_threads(next(iter(seen.values())).features.head[0].shape[1]):
        scorer = MethodScorer(plan, number)
        if held_out is not None:
            here = held_out.anchor()
            step = None if anchors.previous is None else held_out.step(anchors.previous)
            anchors = Anchors(here if number == plan.depart_at else anchors.departure, here)
            drift = None if anchors.departure is None else held_out.drift(anchors.departure)
        for method in methods:
            if Traits.of(method).slow and not plan.evaluates(number, slow=True):
                continue
            mine = (drift, step) if method.training == "held-out" else (None, None)
            unscored.extend(scorer.rows(method, seen[method.training], states, *mine))
        confusions = {
            one: iter(one.confusions([u.readout for u in unscored if u.seen is one])) for one in seen.values()
        }
    rows = [u.row(score(next(confusions[u.seen]), (plan.rare,))) for u in unscored]
    return rows, states, anchors


class Unscored(NamedTuple):
    """A row before its readout has been applied to the test samples: those of one model are applied together."""

    row: Callable[[Scores], Measurement]
    seen: ServerView
    readout: Readout


@dataclass(frozen=True)
class MethodScorer:
    """Lets methods look at a round and measures what they make of it."""

    plan: Plan
    number: int

    def rows(
        self, method: Method, seen: ServerView, states: dict[str, Any], drift: Drift | None, step: Step | None
    ) -> list[Unscored]:
        """The method's rows, one a readout; what it keeps is put into `states`."""
        cost = Cost()
        channel = seen.exchange.channel(cost)
        context = seen.context(channel)
        start, waited = time.perf_counter(), seen.waited
        if self.number == self.plan.depart_at and find_training(method.training).departs:
            with own_code(f"method: {method.name}", MethodError):
                states[method.name] = method.depart(context)
        outcome = self._outcome(method, context, seen, states)
        cost.server_seconds = time.perf_counter() - start - (seen.waited - waited) + channel.spared
        if (gate := seen.exchange.gate) is not None:
            context.note(clipped=len(gate.clipped), refused=len(gate.refused))
        distance = errors = None
        if isinstance(outcome, np.ndarray) and np.isfinite(outcome).all():
            distance, errors = float(seen.truth.distances(outcome[None])[0, 0]), seen.span_errors(outcome)
        rows = []
        outward = Traits.of(method).outward and self._gone(method)
        for name, readout in self._readouts(outcome, seen, outward):
            row = partial(
                Measurement,
                self.plan.seed,
                self.number,
                method.name,
                name,
                self.plan.rare,
                self._gone(method),
                prototype_distance=distance,
                cost=cost,
                readout_cost=Cost() if name == OWN else self._readout_cost(name, context, channel),
                notes=dict(context.notes),
                drift=drift,
                step=step,
                span_errors=errors,
                applied=readout if self.number in (self.plan.depart_at, self.plan.rounds) else None,
            )
            rows.append(Unscored(row, seen, readout))
        return rows

    def _outcome(
        self, method: Method, context: RoundContext, seen: ServerView, states: dict[str, Any]
    ) -> Floats | Readout:
        """What the method makes of this round; while the class is there, prototype methods measure it directly."""
        if self._gone(method) or not Traits.of(method).needs_departure:
            mine = states.get(method.name)
            mine = mine if isinstance(mine, Value) else copy.deepcopy(mine)
            with own_code(f"method: {method.name}", MethodError):
                tracked: Any = method.track(mine, context)
            if not isinstance(tracked, tuple) or len(tracked) != 2:
                what = type(tracked).__name__
                raise MethodError(f"method: {method.name}.track gave {what}, should be its state and a prototype")
            outcome: Floats | Readout
            states[method.name], outcome = tracked
            shape = np.shape(outcome) if isinstance(outcome, np.ndarray) else None
            if shape != seen.features.head[0].shape[1:] and not hasattr(outcome, "predict"):
                what = type(outcome).__name__ if shape is None else f"an array of shape {shape}"
                raise MethodError(f"method: {method.name} gave {what}, should be a prototype (d,) or have predict()")
            return outcome
        observed: Floats = seen.stats.means[self.plan.rare]
        return observed

    def _gone(self, method: Method) -> bool:
        return find_training(method.training).departs and self.number > self.plan.depart_at

    def _readouts(self, outcome: Floats | Readout, seen: ServerView, outward: bool) -> Iterator[tuple[str, Readout]]:
        if not isinstance(outcome, np.ndarray):
            yield OWN, outcome
            return
        prototypes = seen.stats.means
        prototypes[self.plan.rare] = outcome
        for name in find_readouts(self.plan.readout):
            with own_code(f"readout: {name}", MethodError):
                made: Any = seen.readout(name, prototypes)
                if not callable(getattr(made, "predict", None)):
                    raise MethodError(f"readout: {name} gave {type(made).__name__}, should have predict()")
                yield name, made.outwards(self.plan.rare) if outward and hasattr(made, "outwards") else made

    def _readout_cost(self, name: str, context: RoundContext, channel: Channel) -> Cost:
        """What a readout of prototypes needs beyond the statistics that the method has asked for in this round.

        The prototypes of the other classes are in every report; the covariance only in those with a scatter. The
        diagonal comes from the same report: there is no smaller one.
        """
        cost, scatter = Cost(), needs_covariance(name, self.plan.readout)
        if not any(request.scatter or not scatter for request in channel.asked.values()):
            channel.exchange.channel(cost).report(context.request(scatter=scatter))
        return cost
