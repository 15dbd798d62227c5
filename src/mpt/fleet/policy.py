"""When a round of a fleet ends, when the server gives up, and when it asks how well classes are recognised."""

from dataclasses import dataclass

from mpt.base.settings import check, setting
from mpt.tracking.errors import FleetError

_SECONDS = "a number of seconds above 0"


@dataclass(frozen=True, kw_only=True)
class RoundPolicy:
    """Vehicles are asked until a quorum has replied, or the server gives up.

    A question waits until its deadline, or a short tail beyond its quorum: whoever is cut off then is late. A further
    attempt comes after a tenth of `timeout` at the soonest, for those that the quorum lacks.
    """

    deadline: float = setting(
        600.0, "seconds that vehicles have to reply, to train and to each question", above=0, should=_SECONDS
    )
    quorum: float = setting(
        0.5,
        "share of the vehicles asked whose reply is needed, less those that did not reply before",
        above=0,
        most=1,
    )
    tail: float = setting(
        1.0, "once a quorum has replied the others have this many times as long again as that took", least=0
    )
    tail_seconds: float = setting(30.0, "and at least so many seconds; then the round goes on without them", least=0)
    min_vehicles: int = setting(2, "so many vehicles must be reachable for a round to begin", least=1)
    timeout: float = setting(600.0, "seconds to wait for them", above=0, should=_SECONDS)
    max_attempts: int = setting(3, "of a round that is short of updates, before the server stops", least=1)
    aggregation: str = setting(
        "clipped",
        "how updates become one model: clipped (no vehicle counts for much more than is usual) or another of mpt "
        "aggregations",
        should="one of mpt aggregations, or path.py:function of your own",
        fits=bool,
    )
    train_share: float = setting(
        1.0, "share of the vehicles that can be reached which are asked to train in a round", above=0, most=1
    )
    report_share: float = setting(
        1.0,
        "share of the vehicles that are asked for statistics in a round; others have missed nothing",
        above=0,
        most=1,
    )
    evaluate_every: int = setting(
        0, "every so many rounds vehicles count how their validation samples are recognised; 0: never", least=0
    )
    validation: float = setting(
        0.0,
        "share of each class that a vehicle sets aside for that, neither trained on nor reported",
        least=0,
        most=0.5,
    )

    def __post_init__(self) -> None:
        check(self, FleetError)
        if self.evaluate_every and not self.validation:
            raise FleetError("validation: 0, should be above 0 where evaluate_every is")

    def evaluates(self, number: int) -> bool:
        """Whether a round's readout is evaluated."""
        return self.evaluate_every > 0 and number % self.evaluate_every == 0
