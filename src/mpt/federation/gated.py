"""The server's gate on one machine, as a fleet's: answers go through it before they are merged."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from mpt.core import ClassStatistics, CrossStatistics, StatisticsError
from mpt.core.bounded_cross import bounded_cross
from mpt.core.validation import Floats
from mpt.tracking.gate import Gate
from mpt.tracking.plausible import check_statistics


@dataclass
class BenchGate:
    """The two parts of a server's gate: what no samples could give is refused, what is unlikely counts by less.

    Attributes:
        departed: classes of whose remaining samples no vehicle has a majority.
        cov_ridge: lambda_Sigma of Eq. (3).
        refused: why a vehicle's statistics were not taken, in any of the round's questions.
        clipped: the vehicles of whose statistics or cross moments not all counted.
        holders: by departed class, how many vehicles have samples of it.
    """

    departed: tuple[int, ...]
    cov_ridge: float
    refused: dict[int, str] = field(default_factory=dict)
    clipped: set[int] = field(default_factory=set)
    holders: dict[int, int] = field(default_factory=dict)
    _gate: Gate[int] | None = None

    def statistics(
        self, reports: Iterable[tuple[int, ClassStatistics]], basis: Floats | None, unit: bool
    ) -> Iterator[tuple[int, ClassStatistics]]:
        """Those that are taken, as they count."""
        gate: Gate[int] = Gate(self.departed, self.cov_ridge)
        self.holders = dict.fromkeys(self.departed, 0)
        for vehicle, report in reports:
            try:
                check_statistics(report, basis=basis, unit=unit)
            except StatisticsError as error:
                self.refused[vehicle] = str(error)
                continue
            for c in self.departed:
                self.holders[c] += int(report.counts[c] > 0)
            yield from ((one.vehicle, one.statistics) for one in gate.take(vehicle, report))
        yield from ((one.vehicle, one.statistics) for one in gate.flush())
        self.clipped |= gate.clips.keys()
        if gate.consensus is not None and gate.consensus.probes is not None:
            self._gate = gate

    def cross(self, reports: Iterable[tuple[int, CrossStatistics]]) -> Iterator[CrossStatistics]:
        """The same of cross moments, after the statistics of the same round."""
        held = [(vehicle, report) for vehicle, report in reports if vehicle not in self.refused]
        clips = {} if self._gate is None else self._gate.clips
        agreed = None if self._gate is None else self._gate.consensus
        made = bounded_cross([report for _, report in held], [clips.get(v) for v, _ in held], agreed)
        self.clipped |= {v for (v, _), cut in zip(held, made.clips, strict=True) if cut is not None}
        yield from made.reports
