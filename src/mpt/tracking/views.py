"""What a fleet's server keeps for readouts of two views, of "mpt-duo": the earlier views, and their joint moments."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from mpt.core import CrossStatistics
from mpt.core.two_views import EarlierView
from mpt.tracking import method_state


@dataclass(frozen=True, eq=False)
class Views:
    """The earlier views of a fleet between two rounds.

    Attributes:
        kept: in the order of their rounds, at most two; vehicles are asked for the joint moments of each.
        moments: by the round of a view, its joint moments with the last round's features, where enough have come.
        between: by the rounds of two views, their joint moments: the earlier one's, of the later one's round.
        departed: the classes that the last readout asks the earlier views for; none where the current one is alone.
    """

    kept: tuple[EarlierView, ...] = ()
    moments: Mapping[int, CrossStatistics] = field(default_factory=dict)
    between: Mapping[tuple[int, int], CrossStatistics] = field(default_factory=dict)
    departed: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.kept)

    def together(self, between: bool) -> tuple[EarlierView, ...]:
        """The views that can be read together; where the moments between them are needed and missing, one alone."""
        pairs = combinations((view.round for view in self.kept), 2)
        return self.kept if not between or all(pair in self.between for pair in pairs) else (telling(self.kept),)

    def without(self, classes: Collection[int]) -> "Views":
        """The views without what they know of some classes, whose deposits are gone."""
        kept = tuple(view.without(classes) for view in self.kept)
        there = tuple(view for view in kept if view.departed)
        rounds = {view.round for view in there}
        return Views(
            there,
            {number: one for number, one in self.moments.items() if number in rounds},
            {pair: one for pair, one in self.between.items() if rounds.issuperset(pair)},
            tuple(c for c in self.departed if c not in classes) if there else (),
        )

    def to_bytes(self) -> bytes:
        """As bytes for `from_bytes`, lossless."""
        kept = [(view.round, view.departed, view.prototypes) for view in self.kept]
        between = {**self.between}
        return method_state.to_bytes((kept, dict(self.moments), between, self.departed), None)

    @classmethod
    def from_bytes(cls, data: bytes) -> "Views":
        """What `to_bytes` was called on."""
        kept, moments, between, departed = method_state.from_bytes(data, None)
        return cls(tuple(EarlierView(*view) for view in kept), moments, between, departed)


def telling(views: Sequence[EarlierView]) -> EarlierView:
    """The view that knows most of all departed classes; of several the latest."""
    gone = sorted({c for view in views for c in view.departed})
    return max(views, key=lambda view: (int(view.known[gone].sum()), view.round))
