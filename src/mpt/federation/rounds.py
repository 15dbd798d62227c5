"""One round after training: what vehicles can answer, what the server may ask, and what it costs."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from mpt.core import ClassStatistics
from mpt.federation.request import StatisticsRequest
from mpt.methods.protocol import Answer, Cost, Local


@dataclass
class Exchange:
    """The vehicles of one round, as the server reaches them: questions go out as bytes, answers come back as bytes.

    Statistics requests that several methods make are answered once; each is charged in full.

    Attributes:
        locals: what is on each present vehicle, by id.
        leaving: vehicles whose last round this is.
        spent: seconds that vehicles really took to answer, each question once.
    """

    locals: Mapping[int, Local]
    leaving: frozenset[int] = frozenset()
    spent: float = 0.0
    _answers: dict[bytes, tuple[dict[int, bytes], float]] = field(default_factory=dict)
    _merged: dict[tuple[bytes, bool], tuple[ClassStatistics, float]] = field(default_factory=dict)

    def channel(self, cost: Cost) -> "Channel":
        """The vehicles as one method reaches them, charging `cost`."""
        return Channel(self, cost)

    def statistics(self, question: bytes) -> tuple[dict[int, bytes], float]:
        """Everybody's answer to a statistics request, by id, and the seconds that took; made once."""
        if question not in self._answers:
            self._answers[question] = self.collect(question, _statistics)
        return self._answers[question]

    def merge(self, request: StatisticsRequest, *, staying: bool) -> tuple[ClassStatistics, float, bool]:
        """The answers merged, the seconds that takes the server, and whether it has just been done; it is done once."""
        key = request.to_bytes(), staying
        new = key not in self._merged
        if new:
            answers, _ = self.statistics(key[0])
            start, leaving = time.perf_counter(), self.leaving if staying else frozenset()
            reports = [request.read(answer) for vehicle, answer in answers.items() if vehicle not in leaving]
            self._merged[key] = sum(reports[1:], reports[0]), time.perf_counter() - start
        return *self._merged[key], new

    def collect(self, question: bytes, answer: Answer) -> tuple[dict[int, bytes], float]:
        """Everybody's answer, by id, and the seconds that took without the forward pass."""
        locals = sorted(self.locals.items())
        start = time.perf_counter()
        answers = {vehicle: answer(question, local) for vehicle, local in locals}
        seconds = time.perf_counter() - start
        self.spent += seconds
        return answers, seconds


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
        question = request.to_bytes()
        answers, seconds = self.exchange.statistics(question)
        if question not in self.asked:
            self.asked[question] = request
            self._charge(question, answers, seconds)
        merged, took, new = self.exchange.merge(request, staying=staying)
        self.spared += 0.0 if new else took
        return merged

    def ask(self, question: bytes, answer: Answer) -> list[bytes]:
        """Everybody's answer to a question of the method's own."""
        answers, seconds = self.exchange.collect(question, answer)
        self._charge(question, answers, seconds)
        return list(answers.values())

    def _charge(self, question: bytes, answers: Mapping[int, bytes], seconds: float) -> None:
        self.cost.messages += 1
        self.cost.bytes_down += len(question) * len(answers)
        self.cost.bytes_up += sum(map(len, answers.values()))
        self.cost.vehicle_seconds += seconds


def _statistics(question: bytes, local: Local) -> bytes:
    return local.answer(StatisticsRequest.from_bytes(question))
