"""A made-up federation: features that drift from round to round, a vehicle that leaves; real messages, no training."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mpt.core.validation import Floats, Ints
from mpt.federation.plan import Plan
from mpt.federation.presence import PlannedPresence
from mpt.federation.stored import Stored

CLASSES, DIM, RARE, OWNER = 6, 24, 2, 3
HELD, TESTED = 60, 40
"""Training and test samples of a class."""
PLAN = Plan(rare=RARE, methods=("checked",), vehicles=OWNER + 1, rounds=4, depart_at=2, eval_every=1)


@dataclass(frozen=True)
class World:
    """Four vehicles and six classes, of which the last vehicle holds one but for the remaining samples.

    Attributes:
        remaining: samples of that class on the other vehicles.
        copies: how often every sample is there.
        shuffled: whether each vehicle has its samples in another order.
        renamed: whether the vehicles have other ids, in another order.
    """

    remaining: int = 9
    copies: int = 1
    shuffled: bool = False
    renamed: bool = False

    @property
    def presence(self) -> PlannedPresence:
        """Who is there when."""
        return PlannedPresence(PLAN, tuple(sorted(self.ids)), self.ids[OWNER])

    @property
    def ids(self) -> tuple[int, ...]:
        """What the vehicles are called."""
        return (8, 1, 4, 0) if self.renamed else (0, 1, 2, OWNER)

    @cached_property
    def _indices(self) -> dict[int, Ints]:
        """Which samples each vehicle has."""
        labels = np.repeat(np.arange(CLASSES), HELD)
        owner = np.arange(len(labels)) % (OWNER + 1)
        rare = np.flatnonzero(labels == RARE)
        owner[rare] = OWNER
        owner[rare[: self.remaining]] = np.arange(self.remaining) % OWNER
        rng, held = np.random.default_rng(5), {}
        for vehicle, name in enumerate(self.ids):
            mine = np.tile(np.flatnonzero(owner == vehicle), self.copies)
            held[name] = rng.permutation(mine) if self.shuffled else mine
        return held

    def features(self, number: int) -> Stored:
        """What the model of a round makes of all samples: A x + b + tanh(B x) / 2, in float32, with A and B its own."""
        rng = np.random.default_rng(0)
        prototypes = 2 * rng.standard_normal((CLASSES, DIM))
        labels, test_labels = np.repeat(np.arange(CLASSES), HELD), np.repeat(np.arange(CLASSES), TESTED)
        samples = [prototypes[some] + rng.standard_normal((len(some), DIM)) for some in (labels, test_labels)]
        linear, bent, shift = np.eye(DIM), np.zeros((DIM, DIM)), np.zeros(DIM)
        for _ in range(number):
            linear = linear + 0.1 * rng.standard_normal((DIM, DIM)) / np.sqrt(DIM)
            bent = bent + 0.2 * rng.standard_normal((DIM, DIM)) / np.sqrt(DIM)
            shift = shift + 0.2 * rng.standard_normal(DIM)

        def embed(x: Floats) -> Floats:
            made: Floats = (x @ linear + shift + 0.5 * np.tanh(x @ bent)).astype(np.float32).astype(np.float64)
            return made

        train, test = map(embed, samples)
        means = np.stack([train[labels == c].mean(axis=0) for c in range(CLASSES)])
        return Stored(
            {v: labels[held] for v, held in self._indices.items()},
            {v: train[held] for v, held in self._indices.items()},
            test_labels,
            test,
            test[test_labels == RARE].mean(axis=0),
            means[RARE],
            (means, -0.5 * np.sum(means**2, axis=1)),
        )
