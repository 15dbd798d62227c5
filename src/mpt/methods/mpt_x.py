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
from mpt.core.cross import Still
from mpt.core.equations import DEFAULT_COV_RIDGE, DEFAULT_RIDGE
from mpt.core.validation import Floats
from mpt.core.value import Value
from mpt.methods.method import Asks, Now, Training
from mpt.methods.mpt import note
from mpt.protocol.cross_request import CrossRequest


@dataclass(frozen=True, eq=False)
class Kept(Value):
    """What the server keeps of a departed class.

    Attributes:
        deposit: made at departure, whose model is the reference model.
        round: of the departure.
        weights: (C,), how much each class counts in the cross moments.
        earlier_origin: (d,), a vector near the reference model's features.
        still: by digest, what the vehicles of the last report need not send again.
    """

    deposit: Deposit
    round: int
    weights: Floats
    earlier_origin: Floats
    still: Mapping[bytes, Still] = field(default_factory=dict)


@dataclass(frozen=True)
class MptX:
    """Vehicles embed their samples under the departure-time model too and report cross moments, Eq. (X1) to (X10).

    A vehicle's samples under the departure-time model never change, so what is summed of them alone is sent once; who
    joins, comes back or has new data sends it again, without being told.
    """

    needs_departure: ClassVar[bool] = True
    version: ClassVar[int] = 3
    asks: ClassVar[Asks] = Asks(cross=True)

    name: str = "mpt-x"
    training: Training = "held-out"
    ridge: float = DEFAULT_RIDGE
    cov_ridge: float = DEFAULT_COV_RIDGE
    outward: bool = True

    def depart(self, now: Now) -> Kept:
        """Keep the departing prototype and fix the class weights."""
        before, staying = now.report(now.request()), now.report(now.request(), staying=True)
        (kept,) = self.deposit(before, [now.departed], staying)
        return Kept(kept, now.round, class_weights(kept, now.num_classes), staying.overall_mean)

    def track(self, kept: Kept, now: Now) -> tuple[Kept, Floats]:
        """Ask for the cross moments and take the prototype through the map."""
        stats = now.report(now.request())
        request = CrossRequest(
            now.round,
            kept.round,
            kept.weights,
            kept.earlier_origin,
            stats.overall_mean,
            frozenset(kept.still),
            halves_suffice(kept.weights, stats.counts, stats.dim),
        )
        still = dict[bytes, Still]()

        def arriving() -> Iterator[CrossStatistics]:
            if now.crossed is None:
                raise StatisticsError("cross moments: nobody reports them here; on a fleet the method is mpt-x itself")
            for report in now.crossed(request, kept.still):
                still[report.still_digest] = report.still
                yield report

        rec = self.reconstruct(kept.deposit, stats, CrossStatistics.merge(arriving()))
        note(now, kept.deposit, rec)
        return replace(kept, still=still), rec.prototype

    def deposit(
        self, before: ClassStatistics, departed: Sequence[int], staying: ClassStatistics
    ) -> tuple[Deposit, ...]:
        """As MPT's."""
        return deposit(before, departed, staying=staying, ridge=self.ridge, cov_ridge=self.cov_ridge)

    def reconstruct(
        self, kept: Deposit, stats: ClassStatistics, cross: CrossStatistics | None = None
    ) -> Reconstruction:
        """Eq. (X2) to (X9); without cross moments as MPT does."""
        return reconstruct(kept, stats) if cross is None else reconstruct(kept, stats, variant="cross", cross=cross)
