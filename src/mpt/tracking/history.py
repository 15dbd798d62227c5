"""What a vehicle's class means were, where too few vehicles have a class for its means to judge one another.

A class with one or two holders has nobody to be compared with but itself. Its holder's mean is expected where it was in
the round before, moved as the fleet's other classes have moved on average; it counts up to twice as far from there as
any of these has strayed from that average, Eq. (G6). So a lie takes many rounds where features move little. It is no
bound in the end, and no such class is called good on its holder's word alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from mpt.core import ClassStatistics
from mpt.core.bounded import Consensus
from mpt.core.health import whiten
from mpt.core.influence import SLACK
from mpt.core.linalg import dot
from mpt.core.validation import Floats

STRAYED = 2.0
"""Times the largest deviation of a reference class from the mean drift."""


@dataclass(frozen=True, eq=False)
class Expected:
    """Where a mean is expected, (d,), and the radius about there, whitened."""

    mean: Floats
    radius: float


@dataclass(frozen=True, eq=False)
class History:
    """The last round's answers, as far as they are kept.

    Attributes:
        last: all of them, merged; None where there are none.
        holders: of the holders of watched classes, by vehicle.
    """

    last: ClassStatistics | None = None
    holders: Mapping[str, ClassStatistics] = field(default_factory=dict)

    def expected(self, vehicle: str, report: ClassStatistics, agreed: Consensus) -> dict[int, Expected]:
        """By class that fewer than three vehicles have: where a vehicle's mean is expected.

        Args:
            vehicle: its id.
            report: of this round.
            agreed: what this round's reports agree on.
        """
        mine, means = self.holders.get(vehicle), agreed.means
        if mine is None or self.last is None:
            return {}
        few = (report.counts > 0) & (mine.counts > 0) & ~np.isfinite(means.centres[:, 0])
        steps = self._steps(report, agreed) if few.any() else None
        if steps is None:
            return {}
        drift, strayed = steps
        found, before, k = {}, mine.means, report.dim
        for c in np.flatnonzero(few).tolist():
            changed = report.counts[c] != mine.counts[c]
            noise = SLACK * max(means.scales) * k / int(report.counts[c]) if changed else 0.0
            found[c] = Expected(before[c] + drift, float(np.sqrt((STRAYED * strayed) ** 2 + noise)))
        return found

    def _steps(self, report: ClassStatistics, agreed: Consensus) -> tuple[Floats, float] | None:
        """The mean drift (d,) of the classes that both rounds know well, and how far one strays from it, whitened."""
        assert self.last is not None
        means, factor = agreed.means, agreed.means.factor
        known = np.flatnonzero(np.isfinite(means.centres[:, 0]) & (self.last.counts > 0))
        if len(known) < 2:
            return None
        now = means.centres[known] if factor is None else dot(means.centres[known], factor.T)
        steps = now + report.origin - self.last.means[known]
        drift: Floats = steps.mean(axis=0)
        apart = steps - drift if factor is None else whiten(steps - drift, factor)
        return drift, float(np.sqrt(np.sum(apart**2, axis=1)).max()) * len(known) / (len(known) - 1)


def held_back(expected: Expected, mean: Floats, factor: Floats | None) -> tuple[Floats, float] | None:
    """The mean (d,) that counts in place of one beyond the radius, at the radius, and how many times it that was."""
    away = mean - expected.mean
    length = float(np.linalg.norm(away if factor is None else whiten(away, factor)))
    if length <= expected.radius:
        return None
    return expected.mean + expected.radius / length * away, length / max(expected.radius, 1e-300)
