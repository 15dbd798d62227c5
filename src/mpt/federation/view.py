"""What the server can see of a model in one round, and who scores it besides."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, Literal

import numpy as np

from mpt.core import ClassStatistics, NearestClassMean
from mpt.core.equations import outside, span_basis
from mpt.core.validation import Floats, Ints
from mpt.federation.features import Embedding
from mpt.federation.gated import BenchGate
from mpt.federation.hostile import Hostile
from mpt.federation.measurement import Anchor, Drift, Step
from mpt.federation.plan import Plan
from mpt.federation.presence import PlannedPresence
from mpt.federation.readouts import Mahalanobis, find_readouts, needs_covariance
from mpt.federation.rounds import Channel, Exchange
from mpt.learning import numpy_generator
from mpt.methods import Cost, RoundContext
from mpt.methods.method import Readout
from mpt.protocol.local import Local
from mpt.protocol.request import StatisticsRequest

Presented = Callable[[int, Local], Local]
"""From a vehicle and what is on it to how it presents itself."""


class _Locals(Mapping[int, Local]):
    """What is on each present vehicle, embedded when first looked at."""

    def __init__(
        self, features: Embedding, before: Embedding | None, here: tuple[int, ...], presented: Presented | None = None
    ) -> None:
        self.features, self.before, self.here, self.presented = features, before, here, presented

    def __getitem__(self, vehicle: int) -> Local:
        honest = self.honest(vehicle)
        return honest if self.presented is None else self.presented(vehicle, honest)

    def honest(self, vehicle: int) -> Local:
        """A vehicle as it is."""
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


class ServerView:
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
        owner: int,
        *,
        gone: bool = False,
        hostile: "Callable[[int, Local, ServerView], Local] | None" = None,
    ) -> None:
        self.plan, self.number, self.features = plan, number, features
        self.here, self.held_out, self.owner = here, held_out, owner
        presented: Presented | None = None
        if hostile is not None:
            lying = hostile

            def presented(vehicle: int, local: Local) -> Local:
                return lying(vehicle, local, self)

        self._locals = _Locals(features, before, here, presented)
        gate = BenchGate((plan.rare,) if gone else (), plan.cov_ridge) if plan.gated else None
        self.exchange = Exchange(self._locals, frozenset(leaving), gate)
        self._fitted: dict[str, Readout] = {}

    @property
    def before(self) -> Embedding | None:
        """The departure-time model; None before the departure."""
        return self._locals.before

    def confusions(self, readouts: Sequence[Readout]) -> list[Ints]:
        """(C, C) each: the test samples by label and prediction; some are asked under the departure-time model too."""
        return self.features.confusions(readouts, () if self.before is None else (self.before,))

    def honest(self, liars: Collection[int]) -> dict[int, ClassStatistics]:
        """What the vehicles that do not lie report, with the scatter."""
        request = StatisticsRequest(self.number, len(self.features.head[1]), watched=(self.plan.rare,))
        there = [v for v in self.here if v not in liars]
        return {v: request.read(self._locals.honest(v).answer(request)) for v in there}

    @cached_property
    def stats(self) -> ClassStatistics:
        """This round's statistics, with the scatter."""
        context = self.context(self.exchange.channel(Cost()))
        stats: ClassStatistics = context.report(context.request())
        return stats

    @cached_property
    def staying(self) -> ClassStatistics:
        """Those of the vehicles that do not leave after this round."""
        context = self.context(self.exchange.channel(Cost()))
        stats: ClassStatistics = context.report(context.request(), staying=True)
        return stats

    @cached_property
    def prototypes(self) -> Floats:
        """(C, d): of the reference classes, over the vehicles that stay, before the departure without its vehicle too.

        Rows of NaN for the rare class and for those that none of these vehicles has.
        """
        leaving = self.exchange.leaving
        means = self.stats.means
        if self.owner not in self.here or self.owner in leaving:
            means = self.staying.means
        elif stay := [v for v in self.here if v not in leaving and v != self.owner]:
            request = self.context(self.exchange.channel(Cost())).request(scatter=False)
            answers = (request.read(self.exchange.locals[v].answer(request)) for v in stay)
            means = ClassStatistics.merge(answers).means
        else:
            means[:] = np.nan
        means[self.plan.rare] = np.nan
        return means

    @cached_property
    def covariance(self) -> Floats:
        """(d, d): the shared covariance."""
        return self.stats.covariance()

    def readout(self, name: str, prototypes: Floats) -> Readout:
        """The plan's readout of that name over prototypes (C, d), of which some may be missing.

        What a readout has fitted to the covariance serves all methods, where it takes other prototypes.
        """
        rule = find_readouts(self.plan.readout)[name]
        if rule == Mahalanobis():
            return self.mahalanobis(prototypes)
        made: Any = self._fitted.get(name)
        if made is None or not hasattr(made, "with_prototypes"):
            covariance = self.covariance if needs_covariance(name, self.plan.readout) else None
            fitted = self._fitted[name] = rule.fit(prototypes, covariance, self.plan.cov_ridge)
            return fitted
        other: Readout = made.with_prototypes(prototypes)
        return other

    def mahalanobis(self, prototypes: Floats) -> NearestClassMean:
        """Distances to prototypes (K, d) under the shared covariance, whatever the plan's readouts are."""
        return self._whitened.with_prototypes(prototypes)

    @cached_property
    def _whitened(self) -> NearestClassMean:
        return NearestClassMean(self.stats.means, self.covariance, cov_ridge=self.plan.cov_ridge)

    @cached_property
    def truth(self) -> NearestClassMean:
        """Distances to oracle-train's prototype."""
        return self.mahalanobis(self.oracle("train")[None])

    @cached_property
    def span(self) -> Floats:
        """(d, r): an orthonormal basis of the span of the reference classes' current prototypes."""
        return span_basis(self.staying.means[self.staying.reference_classes])

    @property
    def waited(self) -> float:
        """Seconds so far in which the server had nothing to do: vehicles answered, or samples were embedded."""
        return self.exchange.spent + self.features.seconds

    def oracle(self, which: Literal["test", "train"]) -> Floats:
        """(d,): the rare class's mean over samples that no method may know."""
        return self.features.test_mean if which == "test" else self.features.rare_mean

    def span_errors(self, prototype: Floats) -> tuple[float, float]:
        """How far a prototype (d,) is from oracle-train's inside the reference span, and outside it."""
        gap = prototype - self.oracle("train")
        beyond = outside(gap, self.span)
        return float(np.linalg.norm(gap - beyond)), float(np.linalg.norm(beyond))

    def anchor(self) -> Anchor:
        """Where the prototypes are in this round."""
        classes = np.flatnonzero(np.isfinite(self.prototypes).all(axis=1))
        return Anchor(self.number, classes, self.prototypes[classes], self.oracle("train"))

    def drift(self, anchor: Anchor) -> Drift:
        """From there to here; reference classes that nobody has any more do not count."""
        means, moved = self.prototypes, np.nan
        there = np.isfinite(means[anchor.classes]).all(axis=1)
        if there.any():
            current = self.mahalanobis(means[anchor.classes[there]])
            moved = float(current.distances(anchor.prototypes[there]).diagonal().mean())
        return Drift(moved, float(self.truth.distances(anchor.rare[None])[0, 0]))

    def step(self, previous: Anchor) -> Step:
        """From the evaluated round before this one to here."""
        way = self.drift(previous)
        return Step(way.references, way.rare, self.number - previous.round)

    def context(self, channel: Channel) -> RoundContext:
        """The round for one method."""
        head = self.features.head
        return RoundContext(
            round=self.number,
            departed=self.plan.rare,
            num_classes=len(head[1]),
            classifier=None if np.isnan(head[1]).all() else head,
            report=channel.report,
            summed=channel.total,
            crossed=channel.cross,
            oracle=self.oracle,
            rng=numpy_generator(self.plan.seed, "method", self.number),
            held_out=self.held_out,
            cost=channel.cost,
            doubted=bool(getattr(self.features, "doubted", False)),
            reference=None if self.before is None else self.plan.depart_at,
            witnesses=lambda: None if self.exchange.gate is None else self.exchange.gate.holders.get(self.plan.rare),
        )


def views(
    presence: PlannedPresence,
    number: int,
    features: Mapping[str, Embedding],
    before: Mapping[str, Embedding],
    hostile: Hostile | None = None,
) -> dict[str, ServerView]:
    """What the server sees of each training, given the features under its model and under the departure-time one.

    Trainings that do not differ share it.
    """
    seen: dict[tuple[Any, ...], ServerView] = {}
    result = {}
    for training, mine in features.items():
        here, leaving = presence.here(training, number), presence.leaving(training, number)
        key = (mine, here, leaving, presence.gone(training, number))
        if key not in seen:
            held_out = (presence.plan.rare,) if presence.holds_out(training, number) else ()
            then = before.get(training)
            lying = None
            if hostile is not None and hostile.attacks:
                lying = partial(_presented, hostile, training, number)
            seen[key] = ServerView(
                presence.plan,
                number,
                mine,
                then,
                here,
                leaving,
                held_out,
                presence.owner,
                gone=presence.gone(training, number),
                hostile=lying,
            )
        result[training] = seen[key]
    return result


def _presented(hostile: Hostile, training: str, number: int, vehicle: int, local: Local, view: ServerView) -> Local:
    return hostile.local(local, training, number, vehicle, lambda: view.honest(hostile.attacks))
