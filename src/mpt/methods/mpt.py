"""MPT and MPT-lite, and MPT's parts as rows of their own."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from mpt.core import (
    ClassStatistics,
    CrossStatistics,
    Deposit,
    Reconstruction,
    StatisticsError,
    deposit,
    reconstruct,
)
from mpt.core.equations import DEFAULT_COV_RIDGE, DEFAULT_RIDGE
from mpt.core.health import VERDICTS
from mpt.core.reconstruction import witnessed
from mpt.core.validation import Floats
from mpt.core.value import Value
from mpt.methods.method import Asks, RoundContext
from mpt.methods.spaces import Log, Space
from mpt.protocol.request import StatisticsRequest

RIDGES, COV_RIDGES = Log(0.01, 3), Log(0.01, 1)
"""Between what lambda of Eq. (1) and lambda_Sigma of Eq. (3) are tuned."""


def note(context: RoundContext, stored: Deposit, rec: Reconstruction) -> None:
    """How the prototype was put together: alpha, noise, growth and the lengths of the parts; what error to expect.

    growth is |predicted| over |Pc r0|, the length of the stored residual outside the current reference span: in
    MPT-lite the scalar g, in MPT what the covariance transport does to that length. The verdict is noted as a number:
    0 good, 1 degraded, 2 lost, 3 unconfirmed, 4 disputed.
    """
    norm = np.linalg.norm
    context.note(
        alpha=rec.alpha,
        growth=rec.growth,
        noise=rec.noise,
        remaining=rec.samples,
        in_span_norm=float(norm(rec.in_span)),
        predicted_norm=float(norm(rec.predicted)),
        measured_norm=float(norm(rec.measured)),
        residual_norm=float(norm(stored.residual)),
    )
    if rec.expected_error is not None:
        context.note(expected_error=rec.expected_error)
    if rec.verdict is not None:
        context.note(verdict=VERDICTS.index(rec.verdict))
    if rec.contradiction is not None:
        context.note(contradiction=rec.contradiction)


def vouched(context: RoundContext, rec: Reconstruction) -> Reconstruction:
    """The reconstruction, in which few vehicles' samples count by less where they contradict the forecast.

    What was learned from vehicles of which one is in doubt is called good by nobody.
    """
    witnesses = context.witnesses()
    made = rec if witnesses is None else witnessed(rec, witnesses)
    return replace(made, verdict="unconfirmed") if context.doubted and made.verdict == "good" else made


def _prototype(rec: Reconstruction, _: Deposit) -> Floats:
    return rec.prototype


@dataclass(frozen=True)
class Mpt:
    """Missing prototype tracking: deposit at departure, reconstruct every round (Eq. 1 to 7)."""

    needs_departure: ClassVar[bool] = True
    asks: ClassVar[Asks] = Asks()
    space: ClassVar[Space] = {"ridge": RIDGES, "cov_ridge": COV_RIDGES}

    name: str = "mpt"
    training: str = "held-out"
    ridge: float = DEFAULT_RIDGE
    cov_ridge: float = DEFAULT_COV_RIDGE
    part: Callable[[Reconstruction, Deposit], Floats] = _prototype
    outward: bool = False

    @property
    def calibrated(self) -> bool:
        """What is noted is of the whole prototype, as MPT makes it."""
        return self.part is _prototype

    def depart(self, context: RoundContext) -> Deposit:
        """Decompose the departing prototype."""
        before, staying = context.report(context.request()), context.report(context.request(), staying=True)
        (stored,) = self.deposit(before, [context.departed], staying)
        return stored

    def track(self, state: Deposit, context: RoundContext) -> tuple[Deposit, Floats]:
        """Reconstruct it in the current feature space."""
        rec = vouched(context, self.reconstruct(state, context.report(context.request())))
        note(context, state, rec)
        return state, self.part(rec, state)

    def deposit(
        self, before: ClassStatistics, departed: Sequence[int], staying: ClassStatistics
    ) -> tuple[Deposit, ...]:
        """Eq. (1) and (2)."""
        return deposit(before, departed, staying=staying, ridge=self.ridge, cov_ridge=self.cov_ridge)

    def reconstruct(
        self, stored: Deposit, stats: ClassStatistics, cross: CrossStatistics | None = None
    ) -> Reconstruction:
        """Eq. (3) to (7)."""
        return reconstruct(stored, stats)


@dataclass(frozen=True)
class MptLite:
    """MPT-lite: no d x d matrix travels; the server sends the current reference prototypes as span.

    Squares outside a span that is ten rounds old are too large, so every readout asks twice: for the means, and with
    them as span. A fleet that reports every round can do with one question: last round's prototypes serve as span.
    """

    needs_departure: ClassVar[bool] = True
    space: ClassVar[Space] = {"ridge": RIDGES}

    name: str = "mpt-lite"
    training: str = "held-out"
    ridge: float = DEFAULT_RIDGE

    def depart(self, context: RoundContext) -> Deposit:
        """Decompose the departing prototype."""
        request = self._request(context)
        (stored,) = self.deposit(context.report(request), [context.departed], context.report(request, staying=True))
        return stored

    def track(self, state: Deposit, context: RoundContext) -> tuple[Deposit, Floats]:
        """Reconstruct it from counts, sums and squares."""
        rec = self.reconstruct(state, context.report(self._request(context)))
        note(context, state, rec)
        return state, rec.prototype

    def deposit(
        self, before: ClassStatistics, departed: Sequence[int], staying: ClassStatistics
    ) -> tuple[Deposit, ...]:
        """Eq. (1) and (2), and the spread outside the reference span."""
        if before.span is None or not len(before.span):
            raise StatisticsError("span: the statistics were made without one, which MPT-lite needs")
        return deposit(before, departed, staying=staying, ridge=self.ridge)

    def reconstruct(
        self, stored: Deposit, stats: ClassStatistics, cross: CrossStatistics | None = None
    ) -> Reconstruction:
        """With g for the transport."""
        return reconstruct(stored, stats, variant="lite")

    def _request(self, context: RoundContext) -> StatisticsRequest:
        means = context.report(context.request(scatter=False), staying=True)
        return context.request(scatter=False, span=means.means[means.reference_classes])


@dataclass(frozen=True, eq=False)
class Spanned(Value):
    """A deposit, and the span (k, d) of the next question: the reference prototypes as they were in the last one."""

    deposit: Deposit
    span: Floats


@dataclass(frozen=True)
class OneMessage:
    """MPT-lite with one question a round, for fleets that report every round: last round's prototypes are the span.

    On one machine the last round is the last that was read out, and the departure's has two questions.
    """

    needs_departure: ClassVar[bool] = True
    asks: ClassVar[Asks] = Asks(scatter=False, span=True)
    space: ClassVar[Space] = {"ridge": RIDGES}

    name: str = "mpt-lite:one-message"
    training: str = "held-out"
    ridge: float = DEFAULT_RIDGE

    def depart(self, context: RoundContext) -> Spanned:
        """Decompose the departing prototype."""
        stored = self._lite.depart(context)
        return Spanned(stored, stored.reference)

    def track(self, state: Spanned, context: RoundContext) -> tuple[Spanned, Floats]:
        """Reconstruct it from counts, sums and squares about the last span."""
        stats = context.report(context.request(scatter=False, span=state.span))
        rec = self.reconstruct(state.deposit, stats)
        note(context, state.deposit, rec)
        return Spanned(state.deposit, stats.means[stats.reference_classes]), rec.prototype

    def deposit(
        self, before: ClassStatistics, departed: Sequence[int], staying: ClassStatistics
    ) -> tuple[Deposit, ...]:
        """As MPT-lite's."""
        return self._lite.deposit(before, departed, staying)

    def reconstruct(
        self, stored: Deposit, stats: ClassStatistics, cross: CrossStatistics | None = None
    ) -> Reconstruction:
        """As MPT-lite's."""
        return self._lite.reconstruct(stored, stats)

    @property
    def _lite(self) -> MptLite:
        return MptLite(ridge=self.ridge)


PARTS: dict[str, tuple[Callable[[Reconstruction, Deposit], Floats], str]] = {
    "mpt:in-span": (lambda rec, _: rec.in_span, "MPT's in-span part alone"),
    "mpt:stored-residual": (
        lambda rec, stored: rec.in_span + stored.residual,
        "in-span part and the residual as stored at departure",
    ),
    "mpt:predicted": (lambda rec, _: rec.in_span + rec.predicted, "in-span part and predicted residual, alpha = 0"),
    "mpt:measured": (lambda rec, _: rec.in_span + rec.measured, "in-span part and measured residual, alpha = 1"),
}
"""The rows of the paper's analysis, each of which leaves out what the next one adds: what is read out, and a line."""
