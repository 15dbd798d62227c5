"""A fleet in one process: the same server and the same vehicles, without a network. For studies of failures."""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field

from mpt.fleet.exchange import Ask, Failure, Left, Node, Reply

NodeAnswer = Callable[[Ask], Reply | Failure | None]
"""What answers at a node; None: it can be reached, and stays silent."""


@dataclass(frozen=True, eq=False)
class LocalTransport:
    """Asks one vehicle after the other.

    Attributes:
        vehicles: what answers, by node.
        away: says whether a node cannot be reached now, by its name and the round that was asked last.
    """

    vehicles: Mapping[str, NodeAnswer]
    away: Callable[[str, int], bool] = lambda node, round: False
    _round: list[int] = field(default_factory=lambda: [0])

    def nodes(self) -> dict[str, Node]:
        """Those that can be reached."""
        return {node: Node() for node in self.vehicles if not self.away(node, self._round[0])}

    def ask(self, ask: Ask, nodes: Collection[str], left: Left) -> Iterator[tuple[str, Reply | Failure]]:
        """Every reply at once; whoever raises fails, and nobody is waited for."""
        self._round[0] = ask.round
        for node in nodes:
            try:
                reply = self.vehicles[node](ask.to(node))
            except Exception as error:
                reply = Failure(f"{type(error).__name__}: {error}")
            if reply is not None:
                yield node, reply
