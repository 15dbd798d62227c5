"""How long a question waits for its replies."""

import time
from collections.abc import Callable

from mpt.fleet.policy import RoundPolicy


class Patience:
    """Until the deadline; once a quorum has replied, as long again as that took, and at least a few seconds."""

    def __init__(self, policy: RoundPolicy, clock: Callable[[], float] = time.monotonic) -> None:
        self._policy, self._clock = policy, clock
        self.started = clock()
        self._until = self.started + policy.deadline

    def left(self, enough: bool) -> float:
        """Seconds.

        Args:
            enough: whether a quorum has replied by now.
        """
        now = self._clock()
        if enough:
            took = now - self.started
            self._until = min(self._until, now + max(self._policy.tail_seconds, self._policy.tail * took))
        return self._until - now

    @property
    def waited(self) -> float:
        """Seconds since the question was sent."""
        return self._clock() - self.started
