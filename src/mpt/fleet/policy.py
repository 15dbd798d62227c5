"""When a round of a fleet ends, and when the server gives up."""

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

    def __post_init__(self) -> None:
        check(self, FleetError)
