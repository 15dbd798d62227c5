"""Who is there in which round of which training, and what is held out of it."""

from dataclasses import dataclass

from mpt.federation.plan import Plan
from mpt.methods import find_training
from mpt.scenario import Event, departure, left_after, present


@dataclass(frozen=True)
class PlannedPresence:
    """A plan's vehicles over its rounds.

    Attributes:
        plan: with the events.
        vehicles: all there are, by id.
        owner: the one that departs with the rare class.
    """

    plan: Plan
    vehicles: tuple[int, ...]
    owner: int

    def events(self, training: str) -> tuple[Event, ...]:
        """Who comes and goes in a training."""
        gone = departure(self.owner, after=self.plan.depart_at)
        return self.plan.event_list + (gone if find_training(training).departs else ())

    def gone(self, training: str, number: int) -> bool:
        """Whether the departing vehicle has left before this round."""
        return find_training(training).departs and number > self.plan.depart_at

    def holds_out(self, training: str, number: int) -> bool:
        """Whether the remaining samples are held out of this round."""
        return find_training(training).holds_out and self.gone(training, number)

    def stopped(self, training: str, number: int) -> bool:
        """Whether nothing is trained in this round: the training ended with the departure."""
        return find_training(training).stops and self.gone(training, number)

    def here(self, training: str, number: int) -> tuple[int, ...]:
        """The vehicles that are there in this round."""
        return present(self.vehicles, self.events(training), number)

    def leaving(self, training: str, number: int) -> tuple[int, ...]:
        """Those whose last round it is."""
        return left_after(self.events(training), number)
