"""A small fleet for the tests of methods: features drift, the owner of class 2 leaves, answers are real bytes."""

from dataclasses import dataclass, field

import numpy as np

from mpt.federation.rounds import Exchange
from mpt.methods.method import Cost, RoundContext
from mpt.protocol.local import Local

RARE, CLASSES, D = 2, 5, 10


@dataclass
class Fleet:
    seed: int = 0
    remaining: int = 6
    drift: float = 0.0
    rng: np.random.Generator = field(init=False)

    def __post_init__(self):
        self.rng = np.random.default_rng(self.seed)
        self.prototypes = 3 * self.rng.standard_normal((CLASSES, D))
        self.labels = np.repeat(np.arange(CLASSES), 60)
        self.before = self.prototypes[self.labels] + self.rng.standard_normal((300, D)) + 4
        rare = np.flatnonzero(self.labels == RARE)
        self.owner = np.arange(300) % 3
        self.owner[rare] = 3
        self.owner[rare[: self.remaining]] = np.arange(self.remaining) % 3
        mapping = np.eye(D) + self.drift * self.rng.standard_normal((D, D)) / np.sqrt(D)
        self.after = self.before @ mapping + self.drift

    def now(self, *, departed):
        """The round of the departure, or one after it."""
        features = self.after if departed else self.before
        vehicles = range(3) if departed else range(4)
        exchange = Exchange(
            {v: self._local(v, features) for v in vehicles}, frozenset() if departed else frozenset({3})
        )
        cost = Cost()
        channel = exchange.channel(cost)
        rare = self.labels == RARE
        return RoundContext(
            round=30 if departed else 15,
            departed=RARE,
            num_classes=CLASSES,
            classifier=(self.rng.standard_normal((CLASSES, D)), np.zeros(CLASSES)),
            report=channel.report,
            summed=channel.total,
            crossed=channel.cross,
            oracle=lambda kind: features[rare].mean(axis=0),
            rng=np.random.default_rng(1),
            cost=cost,
        )

    def _local(self, vehicle, features):
        mine = self.owner == vehicle
        return Local(self.labels[mine], features[mine], lambda: self.before[mine])

    @property
    def remaining_rows(self):
        return (self.labels == RARE) & (self.owner != 3)

    def run(self, method):
        """The method's outcome after the departure, and that round."""
        state = method.depart(self.now(departed=False))
        now = self.now(departed=True)
        return method.track(state, now)[1], now
