"""One round after training: what vehicles can answer, what the server may ask, and what it costs."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from mpt.core import ClassStatistics, CrossStatistics, StatisticsError
from mpt.core.cross import StaticPart
from mpt.core.equations import span_basis
from mpt.core.validation import Floats
from mpt.federation.gated import BenchGate
from mpt.methods.method import Cost
from mpt.protocol.cross_request import CrossRequest
from mpt.protocol.local import Local
from mpt.protocol.messages import pack, unpack
from mpt.protocol.parts import Asked, Part
from mpt.protocol.request import StatisticsRequest
from mpt.tracking.merging import Summed


@dataclass(frozen=True, eq=False)
class Merged:
    """What came of one statistics request. The answers themselves are not kept, however many vehicles there are.

    Attributes:
        everybody: the sum of all reports.
        staying: of those of the vehicles that do not leave after this round; None where nobody stays.
        bytes_up: of all answers.
        vehicle_seconds: that the vehicles took to make them.
        server_seconds: that it took to read and merge them.
    """

    everybody: ClassStatistics
    staying: ClassStatistics | None
    bytes_up: int
    vehicle_seconds: float
    server_seconds: float


@dataclass
class Exchange:
    """The vehicles of one round, as the server reaches them: questions go out as bytes, answers come back as bytes.

    Statistics requests that several methods make are answered once; each is charged in full.

    Attributes:
        locals: what is on each present vehicle, by id.
        leaving: vehicles whose last round this is.
        gate: through which answers go; None: all are taken as they are.
        spent: seconds that vehicles really took to answer, each question once.
    """

    locals: Mapping[int, Local]
    leaving: frozenset[int] = frozenset()
    gate: BenchGate | None = None
    spent: float = 0.0
    _merged: dict[bytes, Merged] = field(default_factory=dict)

    def channel(self, cost: Cost) -> "Channel":
        """The vehicles as one method reaches them, charging `cost`."""
        return Channel(self, cost)

    def statistics(self, request: StatisticsRequest) -> tuple[Merged, bool]:
        """Everybody's answer to a statistics request, merged as it arrives, and whether that has just been done."""
        question = request.to_bytes()
        new = question not in self._merged
        if new:
            self._merged[question] = self._merge(question, request)
        return self._merged[question], new

    def _merge(self, question: bytes, request: StatisticsRequest) -> Merged:
        locals = dict(sorted(self.locals.items()))
        begun = time.perf_counter()
        received = StatisticsRequest.from_bytes(question)
        start = time.perf_counter()
        parsing, size, seconds = len(locals) * (start - begun), 0, 0.0

        def arriving() -> Iterator[tuple[int, ClassStatistics]]:
            nonlocal size, seconds
            for vehicle in sorted(locals, key=lambda v: v in self.leaving):
                begun = time.perf_counter()
                answer = locals[vehicle].answer(received)
                seconds += time.perf_counter() - begun
                size += len(answer)
                yield vehicle, request.read(answer)

        basis = None if request.span is None else span_basis(request.span)
        taken = arriving() if self.gate is None else self.gate.statistics(arriving(), basis, request.unit)
        stay, leave = Summed[ClassStatistics](), Summed[ClassStatistics]()
        for vehicle, report in taken:
            (leave if vehicle in self.leaving else stay).add(report)
        staying, gone = stay.total(), leave.total()
        everybody = ClassStatistics.merge([one for one in (staying, gone) if one is not None])
        took = time.perf_counter() - start
        self.spent += seconds + start - begun
        return Merged(everybody, staying, size, seconds + parsing, took - seconds)


@dataclass
class Channel:
    """The vehicles as one method reaches them in one round.

    Attributes:
        exchange: the round.
        cost: what the method is charged; a statistics request that it makes twice is charged once.
        asked: the statistics requests it has made.
        spared: seconds of the server's that the method would have taken, had another one not asked for the same.
    """

    exchange: Exchange
    cost: Cost
    asked: dict[bytes, StatisticsRequest] = field(default_factory=dict)
    spared: float = 0.0

    def report(self, request: StatisticsRequest, *, staying: bool = False) -> ClassStatistics:
        """Everybody's statistics merged, or those of the vehicles that do not leave after this round."""
        merged, new = self.exchange.statistics(request)
        question = request.to_bytes()
        if question not in self.asked:
            self.asked[question] = request
            self._charge(len(question) * len(self.exchange.locals), merged.bytes_up, merged.vehicle_seconds)
            self.spared += 0.0 if new else merged.server_seconds
        if not staying:
            return merged.everybody
        if merged.staying is None:
            raise StatisticsError("report: no vehicle stays after this round, at least one should")
        return merged.staying

    def total(self, part: Part, asked: Asked) -> dict[str, Floats]:
        """What a part of the method gives on all vehicles, added up as it arrives; no answer is kept."""
        question = pack(*asked.arrays.values()) if asked.arrays else b""
        received = replace(asked, arrays=dict(zip(asked.arrays, unpack(question), strict=True)) if question else {})
        sums = dict[str, Floats]()
        for _, answer in self._asked(question, partial(part.made, received)):
            made = part.read(answer, asked.num_classes)
            sums = {name: sums[name] + made[name] for name in made} if sums else made
        return sums

    def cross(self, request: CrossRequest, known: Mapping[bytes, StaticPart]) -> Iterator[CrossStatistics]:
        """Everybody's cross moments, each as it arrives, completed from the static parts that the server has."""
        question, gate = request.to_bytes(), self.exchange.gate
        asked = self._asked(question, lambda local: local.answer_cross(CrossRequest.from_bytes(question)))
        reports = ((vehicle, request.read(answer, known)) for vehicle, answer in asked)
        yield from (report for _, report in reports) if gate is None else gate.cross(reports)

    def _asked(self, question: bytes, answer: Callable[[Local], bytes]) -> Iterator[tuple[int, bytes]]:
        """Everybody's answer to a question of the method's own; question and answers are charged."""
        locals = dict(sorted(self.exchange.locals.items()))
        self._charge(len(question) * len(locals), 0, 0.0)
        for vehicle, local in locals.items():
            start = time.perf_counter()
            made = answer(local)
            seconds = time.perf_counter() - start
            self.exchange.spent += seconds
            self.cost.bytes_up += len(made)
            self.cost.vehicle_seconds += seconds
            yield vehicle, made

    def _charge(self, bytes_down: int, bytes_up: int, vehicle_seconds: float) -> None:
        self.cost.messages += 1
        self.cost.bytes_down += bytes_down
        self.cost.bytes_up += bytes_up
        self.cost.vehicle_seconds += vehicle_seconds
