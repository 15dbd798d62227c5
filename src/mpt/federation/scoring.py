"""One evaluated round: methods are let look at it, and what they make of it is measured."""

import copy
import sysconfig
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mpt.core import StatisticsError
from mpt.core.validation import Floats
from mpt.core.value import Value
from mpt.federation.background import few_threads
from mpt.federation.metrics import Scores, score
from mpt.federation.plan import Plan
from mpt.federation.rounds import Channel
from mpt.federation.rows import Anchor, Drift, Row
from mpt.federation.trainings import TRAININGS
from mpt.federation.view import ServerView
from mpt.methods import Cost, Method, MethodError, Now, Traits
from mpt.methods.icarl import Cosine
from mpt.methods.method import Readout, Training


def evaluate(
    plan: Plan,
    number: int,
    methods: Sequence[Method],
    seen: Mapping[Training, ServerView],
    kept: Mapping[str, Any],
    anchor: Anchor | None,
) -> tuple[list[Row], dict[str, Any], Anchor | None]:
    """The rows of a round in the order of the methods, what they keep from now on, and the anchor from now on."""
    unscored, kept, held_out = list[Unscored](), dict(kept), seen.get("held-out")
    with few_threads(next(iter(seen.values())).features.head[0].shape[1]):
        scorer = MethodScorer(plan, number)
        if held_out is not None and number == plan.depart_at:
            anchor = held_out.anchor()
        drift = None if held_out is None or anchor is None else held_out.drift(anchor)
        for method in methods:
            if Traits.of(method).slow and not plan.evaluates(number, slow=True):
                continue
            mine = drift if method.training == "held-out" else None
            unscored.extend(scorer.rows(method, seen[method.training], kept, mine))
        confusions = {
            one: iter(one.features.confusions([u.readout for u in unscored if u.seen is one])) for one in seen.values()
        }
    rows = [u.row(score(next(confusions[u.seen]), plan.rare)) for u in unscored]
    return rows, kept, anchor


class Unscored(NamedTuple):
    """A row before its readout has been applied to the test samples: those of one model are applied together."""

    row: Callable[[Scores], Row]
    seen: ServerView
    readout: Readout


@dataclass(frozen=True)
class MethodScorer:
    """Lets methods look at a round and measures what they make of it."""

    plan: Plan
    number: int

    def rows(self, method: Method, seen: ServerView, kept: dict[str, Any], drift: Drift | None) -> list[Unscored]:
        """The method's rows, one a readout; what it keeps is put into `kept`."""
        cost = Cost()
        channel = seen.exchange.channel(cost)
        now = seen.now(channel)
        start, waited = time.perf_counter(), seen.waited
        if self.number == self.plan.depart_at and TRAININGS[method.training].departs:
            with _said(method.name):
                kept[method.name] = method.depart(now)
        outcome = self._outcome(method, now, seen, kept)
        cost.server_seconds = time.perf_counter() - start - (seen.waited - waited) + channel.spared
        distance = errors = None
        if isinstance(outcome, np.ndarray) and np.isfinite(outcome).all():
            distance, errors = float(seen.truth.distances(outcome[None])[0, 0]), seen.span_errors(outcome)
        rows = []
        outward = Traits.of(method).outward and self._gone(method)
        for name, readout in self._readouts(outcome, seen, outward):
            row = partial(
                Row,
                self.plan.seed,
                self.number,
                method.name,
                name,
                prototype_distance=distance,
                cost=cost,
                readout_cost=Cost() if name == "own" else readout_cost(name, now, channel),
                notes=dict(now.notes),
                drift=drift,
                span_errors=errors,
            )
            rows.append(Unscored(row, seen, readout))
        return rows

    def _outcome(self, method: Method, now: Now, seen: ServerView, kept: dict[str, Any]) -> Floats | Readout:
        """What the method makes of this round; while the class is there, prototype methods measure it directly."""
        if self._gone(method) or not Traits.of(method).needs_departure:
            mine = kept.get(method.name)
            mine = mine if isinstance(mine, Value) else copy.deepcopy(mine)
            with _said(method.name):
                kept[method.name], outcome = method.track(mine, now)
            shape = np.shape(outcome) if isinstance(outcome, np.ndarray) else None
            if shape != (len(now.head[0][0]),) and not hasattr(outcome, "predict"):
                what = type(outcome).__name__ if shape is None else f"an array of shape {shape}"
                raise MethodError(f"method: {method.name} gave {what}, should be a prototype (d,) or have predict()")
            return outcome
        observed: Floats = seen.stats.means[self.plan.rare]
        return observed

    def _gone(self, method: Method) -> bool:
        return TRAININGS[method.training].departs and self.number > self.plan.depart_at

    def _readouts(self, outcome: Floats | Readout, seen: ServerView, outward: bool) -> Iterator[tuple[str, Readout]]:
        if not isinstance(outcome, np.ndarray):
            yield "own", outcome
            return
        prototypes = seen.stats.means
        prototypes[self.plan.rare] = outcome
        for name in self.plan.readouts:
            if name == "cosine":
                yield name, Cosine(prototypes)
            else:
                nearest = seen.nearest(name, prototypes)
                yield name, nearest.outwards(self.plan.rare) if outward else nearest


@contextmanager
def _said(name: str) -> Iterator[None]:
    """What a method raises, as a sentence with the line of the user's file; what the package itself says stays."""
    try:
        yield
    except (StatisticsError, MethodError):
        raise
    except (Exception, SystemExit) as error:
        mine = [f for f in traceback.extract_tb(error.__traceback__) if not _installed(Path(f.filename))]
        if not mine:
            raise
        where = f"{Path(mine[-1].filename).name}, line {mine[-1].lineno}"
        raise MethodError(f"method: {name}: {type(error).__name__}: {error} ({where})") from error


def _installed(path: Path) -> bool:
    """Whether a file is this package's, another's or Python's own, and not the user's."""
    places = (Path(__file__).parents[1], Path(sysconfig.get_path("stdlib")))
    return "site-packages" in path.parts or any(path.resolve().is_relative_to(place.resolve()) for place in places)


def readout_cost(name: str, now: Now, channel: Channel) -> Cost:
    """What a readout of prototypes needs beyond the statistics that the method has asked for in this round.

    The prototypes of the other classes are in every report; the covariance only in those with a scatter. The diagonal
    comes from the same report: there is no smaller one.
    """
    cost, scatter = Cost(), name in ("mahalanobis", "diagonal")
    if not any(request.scatter or not scatter for request in channel.asked.values()):
        channel.exchange.channel(cost).report(now.request(scatter=scatter))
    return cost
