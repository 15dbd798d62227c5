"""Made-up fleets: vehicles with samples around prototypes that drift from round to round."""

from dataclasses import dataclass, field

import numpy as np

from mpt.fleet import Tracker

C, D, RARE = 6, 8, 2


@dataclass
class Fleet:
    """`holdings[vehicle][class]` samples; the features of a round are the samples under that round's drift."""

    holdings: dict
    dim: int = D
    num_classes: int = C
    seed: int = 0
    samples: dict = field(default_factory=dict)

    def __post_init__(self):
        rng = np.random.default_rng(self.seed)
        self.centres = 3 * rng.standard_normal((self.num_classes, self.dim))
        self.turn = 0.01 * rng.standard_normal((self.dim, self.dim))
        self.shift = 0.2 * rng.standard_normal(self.dim)
        for vehicle, held in sorted(self.holdings.items()):
            self.add(vehicle, held)

    def add(self, vehicle, held):
        rng = np.random.default_rng([self.seed, *vehicle.encode()])
        labels = np.repeat(list(held), list(held.values())).astype(np.int64)
        self.samples[vehicle] = self.centres[labels] + rng.standard_normal((len(labels), self.dim)), labels

    def features(self, vehicle, round):
        rows, labels = self.samples[vehicle]
        return rows @ (np.eye(self.dim) + round * self.turn) + round * self.shift, labels

    def answers(self, request, vehicles=None):
        vehicles = self.samples if vehicles is None else vehicles
        return {v: request.answer(*self.features(v, request.round)) for v in vehicles}

    def cross_answers(self, question, vehicles=None, lacking=()):
        """With cross moments of all but those that lack the reference models."""
        vehicles = self.samples if vehicles is None else vehicles
        made = {}
        for v in vehicles:
            earlier = {} if v in lacking else {r: self.features(v, r)[0] for r in question.references}
            made[v] = question.answer(*self.features(v, question.round), earlier)
        return made


def paper_fleet(**options):
    """Vehicle "a" holds all but a few samples of the rare class; all else is split evenly."""
    even = dict.fromkeys((c for c in range(C) if c != RARE), 20)
    holdings = {v: {**even, RARE: 2} for v in "bcd"} | {"a": {**even, RARE: 100}}
    return Fleet(holdings, **options)


METHOD = {"mpt": "mpt", "lite": "mpt-lite:one-message", "cross": "mpt-x", "duo": "mpt-duo"}
"""The fleet's method by the variant of `mpt.reconstruct` that it calls."""


def tracker(variant="mpt", **options):
    return Tracker(num_classes=C, dim=D, method=METHOD[variant], **options)


def whats(outcome, vehicle=None):
    return [d.what for d in outcome.decisions if vehicle in (None, d.vehicle)]
