"""One round after training: what vehicles can answer, what the server may ask, and what it costs."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from mpt.core import ClassStatistics
from mpt.federation.request import StatisticsRequest
from mpt.methods.protocol import Answer, Cost, Local


@dataclass
class Exchange:
    """The vehicles of one round, as the server reaches them: questions go out as bytes, answers come back as bytes.

    Statistics requests that several methods make are answered once; `for_method` charges each of them in full.

    Attributes:
        locals: what is on each present vehicle, by id.
        leaving: vehicles whose last round this is.
        spent: seconds that vehicles really took to answer, each question once.
    """

    locals: Mapping[int, Local]
    leaving: frozenset[int] = frozenset()
    spent: float = 0.0
    _answers: dict[bytes, tuple[dict[int, bytes], float]] = field(default_factory=dict)

    def for_method(self, cost: Cost) -> tuple[Callable[..., ClassStatistics], Callable[[bytes, Answer], list[bytes]]]:
        """`report` and `ask` of `Now`, charging `cost`."""
        charged: set[bytes] = set()

        def charge(question: bytes, answers: Mapping[int, bytes], seconds: float) -> None:
            cost.messages += 1
            cost.bytes_down += len(question) * len(answers)
            cost.bytes_up += sum(map(len, answers.values()))
            cost.vehicle_seconds += seconds

        def report(request: StatisticsRequest, *, staying: bool = False) -> ClassStatistics:
            question = request.to_bytes()
            if question not in self._answers:
                self._answers[question] = self._collect(question, _statistics)
            answers, seconds = self._answers[question]
            if question not in charged:
                charged.add(question)
                charge(question, answers, seconds)
            reports = [request.read(a) for v, a in answers.items() if not (staying and v in self.leaving)]
            return sum(reports[1:], reports[0])

        def ask(question: bytes, answer: Answer) -> list[bytes]:
            answers, seconds = self._collect(question, answer)
            charge(question, answers, seconds)
            return list(answers.values())

        return report, ask

    def _collect(self, question: bytes, answer: Answer) -> tuple[dict[int, bytes], float]:
        locals = sorted(self.locals.items())
        start = time.perf_counter()
        answers = {vehicle: answer(question, local) for vehicle, local in locals}
        seconds = time.perf_counter() - start
        self.spent += seconds
        return answers, seconds


def _statistics(question: bytes, local: Local) -> bytes:
    return StatisticsRequest.from_bytes(question).answer(local.features, local.labels)
