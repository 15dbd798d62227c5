"""What is measured: a method under a readout in one round, and how far the feature space has moved."""

from dataclasses import dataclass

from mpt.core.validation import Floats, Ints
from mpt.federation.metrics import Scores
from mpt.methods import Cost, Readout


@dataclass(frozen=True)
class Drift:
    """How far the feature space has moved since the departure, as Mahalanobis distances under the current covariance.

    Attributes:
        references: mean over the reference classes of the way their prototypes went.
        rare: the way of the rare class's prototype over all its training samples, oracle-train's.
    """

    references: float
    rare: float


@dataclass(frozen=True)
class Step(Drift):
    """The same since the evaluated round before this one; `references` is NaN where there are no such classes.

    Attributes:
        rounds: how many rounds lie between the two.
    """

    rounds: int


@dataclass(frozen=True, eq=False)
class Anchor:
    """Where the held-out training's prototypes were in an evaluated round.

    Attributes:
        round: its number.
        classes: (K,), the reference classes.
        prototypes: (K, d), theirs, over the vehicles that stay when the class departs.
        rare: (d,), oracle-train's.
    """

    round: int
    classes: Ints
    prototypes: Floats
    rare: Floats


@dataclass(frozen=True)
class Anchors:
    """What the way of the held-out training's prototypes is measured from.

    Attributes:
        departure: where they were then; None before it.
        previous: where they were in the latest evaluated round; None before the first.
    """

    departure: Anchor | None = None
    previous: Anchor | None = None


@dataclass(frozen=True, eq=False)
class Measurement:
    """One method under one readout in one round.

    Attributes:
        departing: the class that departs.
        gone: whether it has, in the training that the method reads.
        scores: of all classes.
        prototype_distance: Mahalanobis distance to oracle-train's prototype, None where a method has no prototype.
        cost: what the method sent and took.
        readout_cost: what the readout needs beyond that: the other classes' prototypes, and the covariance.
        notes: what the method noted.
        drift: of the held-out training from the departure on; None before it, and for methods that read another one.
        span_errors: Euclidean lengths of what lies inside and outside the current reference span of the way from
            oracle-train's prototype to the method's; None where a method has no prototype.
        applied: the readout itself, in the round of the departure and in the last, to be kept with the run's models.
        step: of the held-out training since the evaluated round before, before the departure too; None in the first
            one, and for methods that read another training.
    """

    seed: int
    round: int
    method: str
    readout: str
    departing: int
    gone: bool
    scores: Scores
    prototype_distance: float | None
    cost: Cost
    readout_cost: Cost
    notes: dict[str, float]
    drift: Drift | None
    span_errors: tuple[float, float] | None = None
    applied: Readout | None = None
    step: Step | None = None

    @property
    def f1(self) -> float:
        """Of the class that departs."""
        return float(self.scores.f1[self.departing])
