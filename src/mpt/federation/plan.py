"""Everything that determines the numbers of one seed, as one frozen dataclass without dependencies."""

from dataclasses import dataclass, field
from typing import Literal

from mpt.core.equations import DEFAULT_COV_RIDGE, DEFAULT_RIDGE
from mpt.learning import Settings
from mpt.scenario import Event, PlanError, check_rounds

Engine = Literal["fast", "plain"]
PartitionName = Literal["concentrate", "vehicle"]
Precision = Literal["auto", "float32", "tf32", "bfloat16"]
ReadoutName = Literal["mahalanobis", "diagonal", "euclidean", "cosine"]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The paper's scenario, by default: one of as many vehicles as classes leaves after round 15 of 100.

    Attributes:
        rare: index of the class that departs.
        methods: names, or `path.py:Class`.
        backbone: as `mpt.learning.build` takes it.
        partition: "concentrate" spreads the samples so that one vehicle holds the rare class; "vehicle" leaves them
            with the vehicles that recorded them, and `vehicles`, `remaining` and `dirichlet` do not count.
        vehicles: how many; None: as many as classes.
        remaining: fraction of the rare class that stays behind.
        dirichlet: concentration of the other classes' split; None: even.
        participation: fraction of the present vehicles that train in a round, chosen anew every round.
        rounds: of training and averaging.
        depart_at: the last round with the departing vehicle; at least one round comes after it.
        events: other vehicles that join or leave.
        eval_every: methods are read out in every so many rounds, in the round of the departure, and in the last.
        slow_every: the same for methods that are `slow`, such as CCVR, which trains a head; None: as the others.
        readouts: for methods whose outcome is a prototype.
        ridge: lambda of MPT, relative.
        cov_ridge: lambda_Sigma of MPT and of the Mahalanobis readout.
        settings: of local training.
        seed: of everything that is drawn.
        engine: "plain" is the reference loop, "fast" does the same faster.
        precision: of the fast engine on a GPU; "auto" is bfloat16 with float32 parameters and sums.
    """

    rare: int
    methods: tuple[str, ...]
    backbone: str = "cnn3"
    partition: PartitionName = "concentrate"
    vehicles: int | None = None
    remaining: float = 0.02
    dirichlet: float | None = None
    participation: float = 1.0
    rounds: int = 100
    depart_at: int = 15
    events: tuple[Event, ...] = ()
    eval_every: int = 5
    slow_every: int | None = None
    readouts: tuple[ReadoutName, ...] = ("mahalanobis",)
    ridge: float = DEFAULT_RIDGE
    cov_ridge: float = DEFAULT_COV_RIDGE
    settings: Settings = field(default_factory=Settings)
    seed: int = 0
    engine: Engine = "fast"
    precision: Precision = "auto"

    def __post_init__(self) -> None:
        if not 1 <= self.depart_at < self.rounds:
            raise PlanError(f"depart_at: {self.depart_at}, should be at least 1 and below {self.rounds}, the rounds")
        if not 0 < self.participation <= 1:
            raise PlanError(f"participation: {self.participation}, should be above 0 and at most 1")
        if self.eval_every < 1:
            raise PlanError(f"eval_every: {self.eval_every}, should be at least 1")
        if self.slow_every is not None and (self.slow_every < 1 or self.slow_every % self.eval_every):
            raise PlanError(f"slow_every: {self.slow_every}, should be a multiple of eval_every, {self.eval_every}")
        check_rounds(self.events, self.rounds)

    def evaluates(self, round: int, *, slow: bool = False) -> bool:
        """Whether methods, or those that are slow, are read out in this round."""
        every = self.slow_every if slow and self.slow_every is not None else self.eval_every
        return round in (self.depart_at, self.rounds) or round % every == 0
