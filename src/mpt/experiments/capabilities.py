"""Table 1 from what methods do: each is let loose on a small fleet, and what it reads, keeps and sends is watched."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from mpt.federation.rounds import Exchange
from mpt.methods import Cost, Local, Method, RoundContext, Traits
from mpt.methods.simple import Linear

_RARE, _CLASSES, _D = 2, 5, 10


@dataclass(frozen=True)
class Capabilities:
    """What a method was seen doing.

    Attributes:
        compensates: it keeps something from the departure, or is told the truth, and what it makes of it moves with the
            feature space (PD).
        federates: all that it learns comes as answers of vehicles or is part of the global model (HFL).
        aggregates: its messages are no larger when vehicles hold more samples, and it is told nothing else (PF).
        trains: it says that it trains something itself (not TF).
        embeds_twice: vehicles embed samples under the departure-time model as well.
    """

    compensates: bool
    federates: bool
    aggregates: bool
    trains: bool
    embeds_twice: bool

    @property
    def marks(self) -> tuple[bool, bool, bool, bool]:
        """PD, HFL, PF, TF."""
        return self.compensates, self.federates, self.aggregates, not self.trains


def capabilities(method: Method) -> Capabilities:
    """Watch a method over a departure and a round after it."""
    small, large = _Fleet(40), _Fleet(80)
    kept, first = _run(method, small)
    _run(method, large)
    moved = _differ(first, _run(method, _Fleet(40, drift=0.9))[1])
    told = bool(small.told)
    return Capabilities(
        compensates=(kept is not None or told) and moved,
        federates=not told,
        aggregates=small.cost.bytes_up == large.cost.bytes_up and not told,
        trains=Traits.of(method).trains,
        embeds_twice=bool(small.earlier),
    )


def _run(method: Method, fleet: "_Fleet") -> tuple[Any, Any]:
    state = method.depart(fleet.context(departed=False))
    fleet.told.clear()
    fleet.earlier.clear()
    fleet.cost = Cost()
    return state, method.track(state, fleet.context(departed=True))[1]


def _differ(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray):
        return not np.allclose(one, other)
    return True


class _Fleet:
    """Features that drift, answers that are real bytes; class 2 departs but for some samples."""

    def __init__(self, per_class: int, drift: float = 0.3) -> None:
        rng = np.random.default_rng(0)
        prototypes = 3 * rng.standard_normal((_CLASSES, _D))
        turn = rng.standard_normal((_D, _D)) / np.sqrt(_D)
        self.labels = np.repeat(np.arange(_CLASSES), per_class)
        self.before = prototypes[self.labels] + rng.standard_normal((len(self.labels), _D)) + 4
        self.after = self.before @ (np.eye(_D) + drift * turn) + drift
        rare = np.flatnonzero(self.labels == _RARE)
        self.owner = np.arange(len(self.labels)) % 3
        self.owner[rare] = 3
        self.owner[rare[:6]] = np.arange(6) % 3
        self.told: list[str] = []
        self.earlier: list[int] = []
        self.cost = Cost()

    def context(self, *, departed: bool) -> RoundContext:
        features = self.after if departed else self.before
        vehicles = range(3) if departed else range(4)
        exchange = Exchange(
            {v: self._local(v, features) for v in vehicles}, frozenset() if departed else frozenset({3})
        )
        channel = exchange.channel(self.cost)

        def oracle(which: str) -> Any:
            self.told.append(which)
            return features[self.labels == _RARE].mean(axis=0)

        head = Linear(np.random.default_rng(1).standard_normal((_CLASSES, _D)), np.zeros(_CLASSES))
        return RoundContext(
            round=20 if departed else 15,
            departed=_RARE,
            num_classes=_CLASSES,
            classifier=head.to_linear(),
            report=channel.report,
            summed=channel.total,
            crossed=channel.cross,
            oracle=oracle,
            rng=np.random.default_rng(2),
            cost=self.cost,
        )

    def _local(self, vehicle: int, features: Any) -> Local:
        mine = self.owner == vehicle

        def earlier() -> Any:
            self.earlier.append(vehicle)
            return self.before[mine]

        return Local(self.labels[mine], features[mine], earlier)
