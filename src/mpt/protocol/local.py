"""What can be asked on a vehicle: its samples under the models it knows, and what it makes of them."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from mpt.core import ClassStatistics, CrossStatistics
from mpt.core.validation import Floats, Ints
from mpt.protocol.cross_request import CrossRequest
from mpt.protocol.request import StatisticsRequest


@dataclass(frozen=True, eq=False)
class Local:
    """What a method may read on a vehicle, where samples are at home.

    Attributes:
        labels: (n,), of the vehicle's samples.
        embedded: (n, d), their features under the current global model, or what gives them; read `features`.
        earlier: gives the same samples' features under the departure-time model; costs one more forward pass.
        report: makes the statistics where the features are, on a GPU say; None: from `features`.
        cross: the same for cross moments; None: from `earlier` and `features`.
    """

    labels: Ints
    embedded: Floats | Callable[[], Floats]
    earlier: Callable[[], Floats]
    report: Callable[[StatisticsRequest], ClassStatistics] | None = None
    cross: Callable[[CrossRequest], CrossStatistics] | None = None

    @cached_property
    def features(self) -> Floats:
        """(n, d): the samples' features under the current global model."""
        return self.embedded() if callable(self.embedded) else self.embedded

    def answer(self, request: StatisticsRequest) -> bytes:
        """What the vehicle reports."""
        if self.report is None:
            return request.answer(self.features, self.labels)
        return request.send(self.report(request))

    def answer_cross(self, request: CrossRequest) -> bytes:
        """What the vehicle reports of its samples under two models."""
        if self.cross is None:
            return request.answer(self.earlier(), self.features, self.labels)
        return request.send(self.cross(request))
