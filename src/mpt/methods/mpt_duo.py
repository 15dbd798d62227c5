"""MPT-duo: the departure-time model and the current one, read out together; and the rows that tell why."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

from mpt.core import ClassStatistics, CrossStatistics, Deposit, NearestClassMean, Reconstruction
from mpt.core.cross import StaticPart
from mpt.core.equations import DEFAULT_COV_RIDGE, DEFAULT_RIDGE
from mpt.core.two_views import (
    DEFAULT_JOINT_RIDGE,
    EarlierView,
    JoinedViews,
    Joining,
    join_views,
    joint_covariance,
    joint_ridge,
    separate_covariances,
    unit_weights,
)
from mpt.core.validation import Floats
from mpt.core.value import Value
from mpt.methods.method import Asks, RoundContext
from mpt.methods.mpt import COV_RIDGES
from mpt.methods.mpt_x import MptX, MptXState, cross_moments
from mpt.methods.spaces import Log, OneOf, Space, Uniform
from mpt.methods.trainings import MethodError

JOINT_RIDGES = Log(0.003, 1)
"""Between what lambda of Eq. (D3) is tuned."""

Knows = Literal["mpt-x", "train"]
"""Where the departed class is under the current model: as MPT-X tracks it, or by all of its training samples."""


@dataclass(frozen=True, eq=False)
class DuoState(Value):
    """What the server keeps.

    Attributes:
        view: what the departure-time model knows.
        origin: (d,), a vector near its features.
        tracked: what MPT-X keeps; None where the class is not tracked.
        static: by digest, what the vehicles of the last report need not send again of the joint moments.
    """

    view: EarlierView
    origin: Floats
    tracked: MptXState | None = None
    static: dict[bytes, StaticPart] = field(default_factory=dict)


@dataclass(frozen=True)
class MptDuo:
    """Images go through the departure-time model too: there the departed prototype is exact, Eq. (D1) to (D6).

    The current model's prototype is MPT-X's. Vehicles send one d x d sum more each round, the cross moments in which
    all classes count alike, for the covariance of the two views side by side. Without a departure in its training
    (`live`) the earlier model is that of the same round: what two models give without anything to remember.
    """

    asks: ClassVar[Asks] = Asks(cross=True, joint=True)
    space: ClassVar[Space] = {
        "joint_ridge": JOINT_RIDGES,
        "cov_ridge": COV_RIDGES,
        "joining": OneOf(("joint", "sum")),
        "share": Uniform(0.1, 0.9),
        "outward": OneOf((True, False)),
    }

    name: str = "mpt-duo"
    training: str = "held-out"
    knows: Knows = "mpt-x"
    ridge: float = DEFAULT_RIDGE
    cov_ridge: float = DEFAULT_COV_RIDGE
    joint_ridge: float = DEFAULT_JOINT_RIDGE
    joining: Joining = "joint"
    share: float = 0.5
    outward: bool = True

    def __post_init__(self) -> None:
        for name, allowed in {"knows": ("mpt-x", "train"), "joining": ("joint", "sum")}.items():
            if getattr(self, name) not in allowed:
                raise MethodError(f"{name}: {getattr(self, name)!r}, should be {' or '.join(allowed)}")
        for name, most in {"joint_ridge": float("inf"), "share": 1.0}.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
                raise MethodError(f"{name}: {value!r}, should be a number from 0{' to 1' if most == 1 else ''}")

    def depart(self, context: RoundContext) -> DuoState:
        """Keep what the model of this round knows, and what MPT-X keeps."""
        stats = context.report(context.request())
        view = EarlierView.of(stats, context.departed, context.round)
        return DuoState(view, stats.overall_mean, self._tracker.depart(context) if self.knows == "mpt-x" else None)

    def track(
        self, state: DuoState | None, context: RoundContext
    ) -> tuple[DuoState | None, NearestClassMean | JoinedViews]:
        """The readout of both views; until the departure of the one that there is."""
        stats = context.report(context.request())
        prototypes = stats.means
        if state is None and context.reference == context.round:
            state = self.depart(context)
        if state is None or state.view.round == context.round:
            return state, NearestClassMean(prototypes, stats.shared_covariance, cov_ridge=self.cov_ridge)
        tracked = state.tracked
        if tracked is not None:
            tracked, prototypes[context.departed] = self._tracker.track(tracked, context)
        else:
            prototypes[context.departed] = context.oracle("train")
        current = NearestClassMean(prototypes, stats.shared_covariance, cov_ridge=self.cov_ridge)
        static, cross = self._moments(state, stats, context)
        gone = (context.departed,)
        made = self.join(current, stats, (state.view,), (cross,), {}, gone, gone if self.knows == "mpt-x" else ())
        return replace(state, tracked=tracked, static=static), made

    @property
    def between(self) -> bool:
        """Eq. (D3) needs the moments between two earlier views, Eq. (D4) does not."""
        return self.joining == "joint"

    def join(
        self,
        current: NearestClassMean,
        stats: ClassStatistics,
        earlier: Sequence[EarlierView],
        crosses: Sequence[CrossStatistics],
        between: Mapping[tuple[int, int], CrossStatistics],
        departed: Sequence[int],
        outward: Sequence[int],
    ) -> JoinedViews:
        """Eq. (D3), or Eq. (D4)."""
        joint = self.joining == "joint"
        return join_views(
            current,
            earlier,
            joint_covariance(stats, crosses, between) if joint else separate_covariances(stats, crosses),
            departed=departed,
            joining=self.joining,
            share=self.share,
            ridge=joint_ridge(crosses, self.joint_ridge) if joint else self.cov_ridge,
            outward=outward if self.outward else False,
        )

    def deposit(
        self, before: ClassStatistics, departed: Sequence[int], staying: ClassStatistics
    ) -> tuple[Deposit, ...]:
        """As MPT-X's."""
        return self._tracker.deposit(before, departed, staying)

    def reconstruct(
        self, stored: Deposit, stats: ClassStatistics, cross: CrossStatistics | None = None
    ) -> Reconstruction:
        """As MPT-X's."""
        return self._tracker.reconstruct(stored, stats, cross)

    @property
    def _tracker(self) -> MptX:
        return MptX(ridge=self.ridge, cov_ridge=self.cov_ridge, outward=self.outward)

    def _moments(
        self, state: DuoState, stats: ClassStatistics, context: RoundContext
    ) -> tuple[dict[bytes, StaticPart], CrossStatistics]:
        """The cross moments for Eq. (D2), and what need not be sent again."""
        weights = unit_weights(context.num_classes, context.watched or (context.departed,))
        return cross_moments(context, stats, state.view.round, weights, state.origin, state.static)
