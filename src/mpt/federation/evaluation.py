"""One evaluated round: what the server can see of a model, and the rows of every method."""

import copy
import sysconfig
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from mpt.core import ClassStatistics, NearestClassMean, StatisticsError
from mpt.core.equations import outside, span_basis
from mpt.core.validation import Floats, Ints
from mpt.core.value import Value
from mpt.federation.background import few_threads
from mpt.federation.features import Embedding
from mpt.federation.metrics import Scores, score
from mpt.federation.plan import Plan, ReadoutName
from mpt.federation.presence import Presence
from mpt.federation.rounds import Channel, Exchange
from mpt.federation.trainings import TRAININGS
from mpt.learning import numpy_generator
from mpt.methods import Cost, Local, Method, MethodError, Now
from mpt.methods.icarl import Cosine
from mpt.methods.method import Readout, Training


@dataclass(frozen=True)
class Drift:
    """How far the feature space has moved since the departure, as Mahalanobis distances under the current covariance.

    Attributes:
        references: mean over the reference classes of the way their prototypes went.
        rare: the way of the rare class's prototype over all its training samples, oracle-train's.
    """

    references: float
    rare: float


@dataclass(frozen=True, eq=False)
class Anchor:
    """Where the held-out training's prototypes were at departure.

    Attributes:
        classes: (K,), the reference classes.
        prototypes: (K, d), theirs, over the vehicles that stay.
        rare: (d,), oracle-train's.
    """

    classes: Ints
    prototypes: Floats
    rare: Floats


@dataclass(frozen=True, eq=False)
class Row:
    """One method under one readout in one round.

    Attributes:
        prototype_distance: Mahalanobis distance to oracle-train's prototype, None where a method has no prototype.
        cost: what the method sent and took.
        readout_cost: what the readout needs beyond that: the other classes' prototypes, and the covariance.
        notes: what the method noted.
        drift: of the held-out training from the departure on; None before it, and for methods that read another one.
        span_errors: Euclidean lengths of what lies inside and outside the current reference span of the way from
            oracle-train's prototype to the method's; None where a method has no prototype.
    """

    seed: int
    round: int
    method: str
    readout: str
    scores: Scores
    prototype_distance: float | None
    cost: Cost
    readout_cost: Cost
    notes: dict[str, float]
    drift: Drift | None
    span_errors: tuple[float, float] | None = None


class _Locals(Mapping[int, Local]):
    """What is on each present vehicle, embedded when first looked at."""

    def __init__(self, features: Embedding, before: Embedding | None, here: tuple[int, ...]) -> None:
        self.features, self.before, self.here = features, before, here

    def __getitem__(self, vehicle: int) -> Local:
        return self.features.local(vehicle, self.here, partial(self._earlier, vehicle), self.before)

    def __iter__(self) -> Iterator[int]:
        return iter(self.here)

    def __len__(self) -> int:
        return len(self.here)

    def _earlier(self, vehicle: int) -> Floats:
        """(n, d): of a vehicle's samples, under the departure-time model."""
        if self.before is None:
            raise RuntimeError("there has been no departure yet")
        return self.before.vehicle(vehicle)


class Seen:
    """A model in one round, as the server and who scores it see it; what several methods need is made once."""

    def __init__(
        self,
        plan: Plan,
        number: int,
        features: Embedding,
        before: Embedding | None,
        here: tuple[int, ...],
        leaving: tuple[int, ...],
        held_out: tuple[int, ...],
    ) -> None:
        self.plan, self.number, self.features = plan, number, features
        self.here, self.held_out = here, held_out
        self.exchange = Exchange(_Locals(features, before, here), frozenset(leaving))
        self._nearest: dict[ReadoutName, NearestClassMean] = {}

    @cached_property
    def stats(self) -> ClassStatistics:
        """This round's statistics, with the scatter."""
        now = self.now(self.exchange.channel(Cost()))
        stats: ClassStatistics = now.report(now.request())
        return stats

    @cached_property
    def staying(self) -> ClassStatistics:
        """Those of the vehicles that do not leave after this round."""
        now = self.now(self.exchange.channel(Cost()))
        stats: ClassStatistics = now.report(now.request(), staying=True)
        return stats

    @cached_property
    def covariance(self) -> Floats:
        """(d, d): the shared covariance."""
        return self.stats.covariance()

    def nearest(self, name: ReadoutName, prototypes: Floats) -> NearestClassMean:
        """The readout of that name over prototypes (C, d), of which some may be missing."""
        if name not in self._nearest:
            variances = np.diag(self.covariance.diagonal())
            shape = {"mahalanobis": self.covariance, "diagonal": variances, "euclidean": None}[name]
            self._nearest[name] = NearestClassMean(prototypes, shape, cov_ridge=self.plan.cov_ridge)
        return self._nearest[name].with_prototypes(prototypes)

    @cached_property
    def truth(self) -> NearestClassMean:
        """Distances to oracle-train's prototype."""
        return self.nearest("mahalanobis", self.reference("train")[None])

    @cached_property
    def span(self) -> Floats:
        """(d, r): an orthonormal basis of the span of the reference classes' current prototypes."""
        return span_basis(self.staying.means[self.staying.reference_classes])

    @property
    def waited(self) -> float:
        """Seconds so far in which the server had nothing to do: vehicles answered, or samples were embedded."""
        return self.exchange.spent + self.features.seconds

    def reference(self, which: Literal["test", "train"]) -> Floats:
        """(d,): the rare class's mean over samples that no method may know."""
        return self.features.test_mean if which == "test" else self.features.rare_mean

    def span_errors(self, prototype: Floats) -> tuple[float, float]:
        """How far a prototype (d,) is from oracle-train's inside the reference span, and outside it."""
        gap = prototype - self.reference("train")
        beyond = outside(gap, self.span)
        return float(np.linalg.norm(gap - beyond)), float(np.linalg.norm(beyond))

    def anchor(self) -> Anchor:
        """In the round of the departure: where the prototypes are."""
        classes = self.staying.reference_classes
        return Anchor(classes, self.staying.means[classes], self.reference("train"))

    def drift(self, anchor: Anchor) -> Drift:
        """From there to here; reference classes that nobody has any more do not count."""
        means = self.staying.means
        there = np.isfinite(means[anchor.classes]).all(axis=1)
        current = self.nearest("mahalanobis", means[anchor.classes[there]])
        moved = current.distances(anchor.prototypes[there]).diagonal()
        return Drift(float(moved.mean()), float(self.truth.distances(anchor.rare[None])[0, 0]))

    def now(self, channel: Channel) -> Now:
        """The round for one method."""
        head = self.features.head
        return Now(
            round=self.number,
            departed=self.plan.rare,
            num_classes=len(head[1]),
            head=head,
            report=channel.report,
            ask=channel.ask,
            reference=self.reference,
            rng=numpy_generator(self.plan.seed, "method", self.number),
            held_out=self.held_out,
            cost=channel.cost,
        )


def look(
    presence: Presence, number: int, features: Mapping[Training, Embedding], before: Mapping[Training, Embedding]
) -> dict[Training, Seen]:
    """What the server sees of each training, given the features under its model and under the departure-time one.

    Trainings that do not differ share it.
    """
    seen: dict[tuple[Any, ...], Seen] = {}
    result = {}
    for training, mine in features.items():
        here, leaving = presence.here(training, number), presence.leaving(training, number)
        key = (id(mine), here, leaving, presence.gone(training, number))
        if key not in seen:
            held_out = (presence.plan.rare,) if presence.holds_out(training, number) else ()
            seen[key] = Seen(presence.plan, number, mine, before.get(training), here, leaving, held_out)
        result[training] = seen[key]
    return result


def evaluate(
    plan: Plan,
    number: int,
    methods: Sequence[Method],
    seen: Mapping[Training, Seen],
    kept: Mapping[str, Any],
    anchor: Anchor | None,
) -> tuple[list[Row], dict[str, Any], Anchor | None]:
    """The rows of a round in the order of the methods, what they keep from now on, and the anchor from now on."""
    unscored, kept, held_out = list[Unscored](), dict(kept), seen.get("held-out")
    with few_threads(next(iter(seen.values())).features.head[0].shape[1]):
        judge = Judge(plan, number)
        if held_out is not None and number == plan.depart_at:
            anchor = held_out.anchor()
        drift = None if held_out is None or anchor is None else held_out.drift(anchor)
        for method in methods:
            if getattr(method, "slow", False) and not plan.evaluates(number, slow=True):
                continue
            mine = drift if method.training == "held-out" else None
            unscored.extend(judge.rows(method, seen[method.training], kept, mine))
        confusions = {
            id(one): iter(one.features.confusions([u.readout for u in unscored if u.seen is one]))
            for one in seen.values()
        }
    rows = [u.row(score(next(confusions[id(u.seen)]), plan.rare)) for u in unscored]
    return rows, kept, anchor


class Unscored(NamedTuple):
    """A row before its readout has been applied to the test samples: those of one model are applied together."""

    row: Callable[[Scores], Row]
    seen: Seen
    readout: Readout


@dataclass(frozen=True)
class Judge:
    """Lets methods look at a round and measures what they make of it."""

    plan: Plan
    number: int

    def rows(self, method: Method, seen: Seen, kept: dict[str, Any], drift: Drift | None) -> list[Unscored]:
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
        outward = getattr(method, "outward", False) and self._gone(method)
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

    def _outcome(self, method: Method, now: Now, seen: Seen, kept: dict[str, Any]) -> Floats | Readout:
        """What the method makes of this round; while the class is there, prototype methods measure it directly."""
        if self._gone(method) or not getattr(method, "needs_departure", False):
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

    def _readouts(self, outcome: Floats | Readout, seen: Seen, outward: bool) -> Iterator[tuple[str, Readout]]:
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
