"""Answers to what a method asks beside a round's statistics: by request and vehicle, and merged."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from mpt.core import ClassStatistics, StatisticsError
from mpt.protocol.further import Answered, Request, Unable
from mpt.protocol.request import StatisticsRequest

ENOUGH = 0.5
"""Of the samples that count must be in what was made with a reference model."""


def key_of(request: Request, *, span: bool = True) -> bytes:
    """What a request is known by: its bytes, of all that changes its answer; the span may be left out."""
    if not isinstance(request, StatisticsRequest):
        return request.to_bytes()
    origin = None if request.origin is None or not request.origin.any() else request.origin
    return replace(request, held_out=(), origin=origin, span=request.span if span else None).to_bytes()


def added(answers: Sequence[Answered]) -> Answered:
    """The sum over vehicles."""
    first = answers[0]
    if isinstance(first, ClassStatistics):
        return ClassStatistics.merge([one for one in answers if isinstance(one, ClassStatistics)])
    rows = [one for one in answers if isinstance(one, dict)]
    return {name: np.sum([row[name] for row in rows], axis=0) for name in first}


@dataclass(frozen=True, eq=False)
class Book:
    """Answers to what else was asked in a round.

    Attributes:
        answers: by key, see `key_of`, and vehicle; or why a vehicle has none.
        samples: of each vehicle.
    """

    answers: Mapping[bytes, Mapping[str, Answered | Unable]] = field(default_factory=dict)
    samples: Mapping[str, int] = field(default_factory=dict)

    def merged(self, request: Request) -> Answered:
        """The sum over vehicles; `StatisticsError` where those of most samples are missing."""
        given = self.answers[key_of(request)]
        known = {v: answer for v, answer in sorted(given.items()) if not isinstance(answer, Unable)}
        there, everything = (sum(self.samples[v] for v in some) for some in (known, given))
        if not known or there < ENOUGH * everything:
            whys = {answer.why for answer in given.values() if isinstance(answer, Unable) and answer.why}
            why = min(whys, default="the other vehicles do not have the departure-time model")
            raise StatisticsError(f"answers for {there} of {everything} samples, should be for {ENOUGH:.0%}; {why}")
        return added(list(known.values()))

    @property
    def failures(self) -> dict[str, str]:
        """By vehicle, why a part has failed there."""
        return {
            v: answer.why
            for given in self.answers.values()
            for v, answer in sorted(given.items())
            if isinstance(answer, Unable) and answer.why
        }


class Shared(NamedTuple):
    """Answers to one request: merged of all but the holders, None where there are no others, and each holder's."""

    rest: Answered | None
    holders: Mapping[str, Answered]
