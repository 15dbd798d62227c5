"""MPT-X: cross-moment tracking, the departed prototype under a map that vehicles measure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from mpt.core import (
    ClassStatistics,
    CrossStatistics,
    Deposit,
    Reconstruction,
    StatisticsError,
    class_weights,
    deposit,
    reconstruct,
)
from mpt.core.affine import halves_suffice
from mpt.core.cross import StaticPart
from mpt.core.equations import DEFAULT_COV_RIDGE, DEFAULT_RIDGE
from mpt.core.validation import Floats
from mpt.core.value import Value
from mpt.methods.method import Asks, RoundContext
from mpt.methods.mpt import COV_RIDGES, note, vouched
from mpt.methods.spaces import OneOf, Space
from mpt.protocol.cross_request import CrossRequest


@dataclass(frozen=True, eq=False)
class MptXState(Value):
    """What the server keeps of a departed class.

    Attributes:
        deposit: made at departure, whose model is the reference model.
        round: of the departure.
        weights: (C,), how much each class counts in the cross moments.
        earlier_origin: (d,), a vector near the reference model's features.
        static: by digest, what the vehicles of the last report need not send again.
    """

    deposit: Deposit
    round: int
    weights: Floats
    earlier_origin: Floats
    static: Mapping[bytes, StaticPart] = field(default_factory=dict)


def cross_moments(
    context: RoundContext,
    stats: ClassStatistics,
    earlier: int,
    weights: Floats,
    origin: Floats,
    static: Mapping[bytes, StaticPart],
) -> tuple[dict[bytes, StaticPart], CrossStatistics]:
    """Ask for the cross moments with an earlier round's model: what need not be sent again, and their sum.

    Args:
        context: of this round.
        stats: everybody's, of this round.
        earlier: that round.
        weights: (C,), a of the cross moments.
        origin: (d,), of features under the earlier model.
        static: what vehicles have sent before.
    """
    if context.crossed is None:
        raise StatisticsError("cross moments: nobody reports them here; on a fleet the method is mpt-x itself")
    halves = halves_suffice(weights, stats.counts, stats.dim)
    request = CrossRequest(context.round, earlier, weights, origin, stats.overall_mean, frozenset(static), halves)
    sent, crossed = dict[bytes, StaticPart](), context.crossed

    def arriving() -> Iterator[CrossStatistics]:
        for report in crossed(request, static):
            sent[report.static_digest] = report.static
            yield report

    return sent, CrossStatistics.merge(arriving())


@dataclass(frozen=True)
class MptX:
    """Vehicles embed their samples under the departure-time model too and report cross moments, Eq. (X1) to (X10).

    A vehicle's samples under the departure-time model never change, so what is summed of them alone is sent once; who
    joins, comes back or has new data sends it again, without being told. `ridge` has no say in its prototype, only in
    what is noted beside it.
    """

    needs_departure: ClassVar[bool] = True
    calibrated: ClassVar[bool] = True
    version: ClassVar[int] = 3
    asks: ClassVar[Asks] = Asks(cross=True)
    space: ClassVar[Space] = {"cov_ridge": COV_RIDGES, "outward": OneOf((True, False))}

    name: str = "mpt-x"
    training: str = "held-out"
    ridge: float = DEFAULT_RIDGE
    cov_ridge: float = DEFAULT_COV_RIDGE
    outward: bool = True

    def depart(self, context: RoundContext) -> MptXState:
        """Keep the departing prototype and fix the class weights."""
        before, staying = context.report(context.request()), context.report(context.request(), staying=True)
        (stored,) = self.deposit(before, [context.departed], staying)
        return MptXState(stored, context.round, class_weights(stored, context.num_classes), staying.overall_mean)

    def track(self, state: MptXState, context: RoundContext) -> tuple[MptXState, Floats]:
        """Ask for the cross moments and take the prototype through the map."""
        stats = context.report(context.request())
        static, merged = cross_moments(context, stats, state.round, state.weights, state.earlier_origin, state.static)
        rec = vouched(context, self.reconstruct(state.deposit, stats, merged))
        note(context, state.deposit, rec)
        return replace(state, static=static), rec.prototype

    def deposit(
        self, before: ClassStatistics, departed: Sequence[int], staying: ClassStatistics
    ) -> tuple[Deposit, ...]:
        """As MPT's."""
        return deposit(before, departed, staying=staying, ridge=self.ridge, cov_ridge=self.cov_ridge)

    def reconstruct(
        self, stored: Deposit, stats: ClassStatistics, cross: CrossStatistics | None = None
    ) -> Reconstruction:
        """Eq. (X2) to (X9); without cross moments as MPT does."""
        return reconstruct(stored, stats) if cross is None else reconstruct(stored, stats, variant="cross", cross=cross)
