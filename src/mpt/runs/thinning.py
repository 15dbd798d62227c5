"""What of a record a thinned copy keeps: rounds, samples, and how finely features are rounded."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mpt.core.validation import Ints
from mpt.federation.plan import Plan
from mpt.federation.stored import Stored
from mpt.learning import numpy_generator
from mpt.runs.config import ConfigError
from mpt.runs.record import RecordedLabels

_LADDER = (*((step, 1) for step in (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6)), (0.5, 2), (0.5, 4), (0.5, 8))
"""Steps, and which part of the samples is kept, from the dearest on."""


@dataclass(frozen=True)
class Amount:
    """How much of each round is kept.

    Attributes:
        step: to which features are rounded, in deviations.
        train: training samples of the largest class; of the others the same share, of the rare one all.
        test: test samples of the largest class; of all others, the rare one too, the same share.
    """

    step: float
    train: int
    test: int

    @property
    def bits(self) -> float:
        """About what a number takes, however it is compressed: those of a normal one, log2(sqrt(2 pi e) / step)."""
        return math.log2(math.sqrt(2 * math.pi * math.e) / self.step)


def amounts(samples: RecordedLabels, step: float | None, train: int | None, test: int | None) -> Iterator[Amount]:
    """What is tried until it is small enough; what is not None stays as it is."""
    largest = [int(np.bincount(labels).max()) for labels in (_all_labels(samples), samples.test_labels)]
    tried = set()
    for coarse, part in _LADDER:
        chosen = [
            most // part if given is None else min(given, most)
            for given, most in zip((train, test), largest, strict=True)
        ]
        amount = Amount(step or coarse, max(1, chosen[0]), max(1, chosen[1]))
        if amount not in tried:
            tried.add(amount)
            yield amount


def rounds_of(plan: Plan, wanted: Sequence[int]) -> tuple[int, ...]:
    """The rounds to keep: the departure's, the last, and those that are wanted.

    By default two more, about evenly between the two others on a logarithmic scale.
    """
    there = [number for number in range(1, plan.rounds + 1) if plan.evaluates(number)]
    for number in wanted:
        if number not in there:
            told = ", ".join(map(str, there))
            raise ConfigError(f"rounds: {number} was not recorded, should be of {told}")
    after = [number for number in there if number > plan.depart_at]
    if not wanted:
        ratio = plan.rounds / plan.depart_at
        between = [plan.depart_at * ratio ** (part / 3) for part in (1, 2)]
        wanted = [min(after, key=lambda number: abs(math.log(number / aim))) for aim in between]
    return tuple(sorted({*wanted, plan.depart_at, plan.rounds}))


@dataclass(frozen=True, eq=False)
class Selection:
    """Which samples of one seed are kept.

    Attributes:
        vehicles: (m,) places among each vehicle's samples, by id, ascending.
        test: (M,) places among the test samples, ascending.
    """

    vehicles: Mapping[int, Ints]
    test: Ints

    @classmethod
    def of(cls, samples: RecordedLabels, rare: int, amount: Amount, seed: int) -> "Selection":
        """Drawn by class and vehicle, the same whenever it is drawn.

        Of a class of which a vehicle has n samples, ceil(n s) are kept, s being the share of the largest class that
        `amount` says. The rare class's training samples are kept whole: few of them remain.
        """
        largest, vehicles = int(np.bincount(_all_labels(samples)).max()), {}
        for vehicle, labels in sorted(samples.labels.items()):
            rng = numpy_generator(seed, "thin", vehicle=vehicle)
            vehicles[vehicle] = _drawn(labels, amount.train, largest, rng, whole=rare)
        most = int(np.bincount(samples.test_labels).max())
        return cls(vehicles, _drawn(samples.test_labels, amount.test, most, numpy_generator(seed, "thin test")))

    def labels(self, samples: RecordedLabels, rounds: tuple[int, ...]) -> RecordedLabels:
        """Those of the samples that are kept."""
        kept = {vehicle: labels[self.vehicles[vehicle]] for vehicle, labels in samples.labels.items()}
        return replace(samples, labels=kept, test_labels=samples.test_labels[self.test], rounds=rounds)

    def features(self, model: Stored) -> Stored:
        """Theirs; the two means that references read stay those of all samples."""
        return replace(
            model,
            labels={vehicle: labels[self.vehicles[vehicle]] for vehicle, labels in model.labels.items()},
            features={vehicle: rows[self.vehicles[vehicle]] for vehicle, rows in model.features.items()},
            test_labels=model.test_labels[self.test],
            test=model.test[self.test],
        )


def _drawn(labels: Ints, many: int, largest: int, rng: np.random.Generator, whole: int | None = None) -> Ints:
    """Places of ceil(n many / largest) samples of each class with n; of the class `whole` all."""
    kept = []
    for c in np.unique(labels):
        places = np.flatnonzero(labels == c)
        wanted = len(places) if c == whole else min(len(places), -(-len(places) * many // largest))
        kept.append(rng.permutation(places)[:wanted])
    return np.sort(np.concatenate(kept)) if kept else np.zeros(0, dtype=np.int64)


def _all_labels(samples: RecordedLabels) -> Ints:
    return np.concatenate(list(samples.labels.values()))
