"""MPT and MPT-lite, and MPT's parts as rows of their own."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from mpt.core import Deposit, Reconstruction, deposit, reconstruct
from mpt.core.equations import DEFAULT_COV_RIDGE, DEFAULT_RIDGE
from mpt.core.health import VERDICTS
from mpt.core.validation import Floats
from mpt.methods.method import Now, Training
from mpt.protocol.request import StatisticsRequest


def note(now: Now, kept: Deposit, rec: Reconstruction) -> None:
    """How the prototype was put together: alpha, noise, growth and the lengths of the parts; what error to expect.

    growth is |predicted| over |Pc r0|, the length of the stored residual outside the current reference span: in
    MPT-lite the scalar g, in MPT what the covariance transport does to that length. The verdict is noted as a number:
    0 good, 1 degraded, 2 lost.
    """
    norm = np.linalg.norm
    now.note(
        alpha=rec.alpha,
        growth=rec.growth,
        noise=rec.noise,
        remaining=rec.samples,
        in_span_norm=float(norm(rec.in_span)),
        predicted_norm=float(norm(rec.predicted)),
        measured_norm=float(norm(rec.measured)),
        residual_norm=float(norm(kept.residual)),
    )
    if rec.expected_error is not None and rec.verdict is not None:
        now.note(expected_error=rec.expected_error, verdict=VERDICTS.index(rec.verdict))


def _prototype(rec: Reconstruction, _: Deposit) -> Floats:
    return rec.prototype


@dataclass(frozen=True)
class Mpt:
    """Missing prototype tracking: deposit at departure, reconstruct every round (Eq. 1 to 7)."""

    needs_departure: ClassVar[bool] = True

    name: str = "mpt"
    training: Training = "held-out"
    ridge: float = DEFAULT_RIDGE
    cov_ridge: float = DEFAULT_COV_RIDGE
    part: Callable[[Reconstruction, Deposit], Floats] = _prototype
    outward: bool = False

    def depart(self, now: Now) -> Deposit:
        """Decompose the departing prototype."""
        before, staying = now.report(now.request()), now.report(now.request(), staying=True)
        return deposit(before, now.departed, staying=staying, ridge=self.ridge, cov_ridge=self.cov_ridge)

    def track(self, kept: Deposit, now: Now) -> tuple[Deposit, Floats]:
        """Reconstruct it in the current feature space."""
        rec = reconstruct(kept, now.report(now.request()))
        note(now, kept, rec)
        return kept, self.part(rec, kept)


@dataclass(frozen=True)
class MptLite:
    """MPT-lite: no d x d matrix travels; the server sends the current reference prototypes as span.

    Squares outside a span that is ten rounds old are too large, so every readout asks twice: for the means, and with
    them as span. A fleet that reports every round can do with one question: last round's prototypes serve as span.
    """

    needs_departure: ClassVar[bool] = True

    name: str = "mpt-lite"
    training: Training = "held-out"
    ridge: float = DEFAULT_RIDGE

    def depart(self, now: Now) -> Deposit:
        """Decompose the departing prototype."""
        request = self._request(now)
        return deposit(now.report(request), now.departed, staying=now.report(request, staying=True), ridge=self.ridge)

    def track(self, kept: Deposit, now: Now) -> tuple[Deposit, Floats]:
        """Reconstruct it from counts, sums and squares."""
        rec = reconstruct(kept, now.report(self._request(now)), variant="lite")
        note(now, kept, rec)
        return kept, rec.prototype

    def _request(self, now: Now) -> StatisticsRequest:
        means = now.report(now.request(scatter=False), staying=True)
        return now.request(scatter=False, span=means.means[means.reference_classes])


def parts(ridge: float = DEFAULT_RIDGE, cov_ridge: float = DEFAULT_COV_RIDGE) -> tuple[Mpt, ...]:
    """The rows of the paper's analysis: each leaves out what the next one adds."""

    def row(name: str, part: Callable[[Reconstruction, Deposit], Floats]) -> Mpt:
        return Mpt(name, ridge=ridge, cov_ridge=cov_ridge, part=part)

    return (
        row("mpt:in-span", lambda rec, _: rec.in_span),
        row("mpt:stored-residual", lambda rec, kept: rec.in_span + kept.residual),
        row("mpt:predicted", lambda rec, _: rec.in_span + rec.predicted),
        row("mpt:measured", lambda rec, _: rec.in_span + rec.measured),
    )
