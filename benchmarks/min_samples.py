"""For `benchmarks/hostile.py`: vehicles that keep the rare class out of their reports where they have few of it.

As `min-samples` does on a fleet; of all other classes every vehicle has many there.
"""

from dataclasses import dataclass, replace
from typing import TypeVar

from mpt.core import ClassStatistics, CrossStatistics
from mpt.federation.attacks import Scene

Report = TypeVar("Report", ClassStatistics, CrossStatistics)


@dataclass(frozen=True)
class LeaveOut:
    """No rare class where there are fewer than `least` samples of it; it is in no scatter."""

    least: int = 2

    def report(self, report: ClassStatistics, scene: Scene) -> ClassStatistics:
        """Without it."""
        return self._without(report, scene, ("counts", "sums", "squares"))

    def cross(self, moments: CrossStatistics, scene: Scene) -> CrossStatistics:
        """Likewise."""
        return self._without(moments, scene, ("counts", "earlier", "sums"))

    def _without(self, report: Report, scene: Scene, names: tuple[str, ...]) -> Report:
        if report.counts[scene.rare] >= self.least:
            return report
        made = {name: getattr(report, name).copy() for name in names}
        for array in made.values():
            array[scene.rare] = 0
        return replace(report, **made)
