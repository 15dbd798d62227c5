"""The server of `benchmarks/soak.py`: MPT's app in a process of its own, and when it is killed."""

import os
import sys
import time
import traceback
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import torch
from flwr.app import Message
from soak_fleet import SocketGrid, identify

from mpt.core.validation import Floats
from mpt.fleet import log
from mpt.fleet.flower.config import AppConfig
from mpt.fleet.flower.server_app import serve
from mpt.fleet.server import Finished
from mpt.tracking.errors import FleetError

LOG_BYTES = 2**18
"""At which logs are rotated here, so that 300 rounds reach the bound; a fleet does it at `mpt.fleet.log.LARGEST`."""


class KilledError(Exception):
    """The server ends here."""


@dataclass(frozen=True)
class Plan:
    """When the server is killed.

    Attributes:
        signals: rounds in which, or shortly after which, it gets SIGKILL; with them how long after its last round.
        crashes: rounds in which an exception ends it, and at which of the grid's calls in that round.
    """

    signals: Mapping[int, float]
    crashes: Mapping[int, int]

    @classmethod
    def drawn(cls, rounds: int, every: int, seed: int) -> "Plan":
        """About every so many rounds, by turns."""
        rng, made, at = np.random.default_rng((seed, 7)), list[int](), 0
        while every:
            at += int(rng.integers(max(1, every - every // 3), every + every // 3 + 1))
            if at >= rounds:
                break
            made.append(at)
        return cls({r: float(rng.random()) for r in made[::2]}, {r: int(rng.integers(1, 12)) for r in made[1::2]})


class CrashingGrid(SocketGrid):
    """Raises at a call of a round, once, as Flower's does when its SuperLink has gone; in the next, if it is over."""

    def __init__(self, address: str, crashes: Mapping[int, int]) -> None:
        super().__init__(address)
        self._crashes, self._round, self._calls = dict(crashes), 0, 0

    def push_messages(self, messages: Any) -> Any:
        """Send, unless the server ends here."""
        several: list[Message] = list(messages)
        number = int(several[0].metadata.group_id) if several else self._round
        self._calls = 0 if number != self._round else self._calls
        self._round = number
        self._count()
        return super().push_messages(several)

    def pull_messages(self, message_ids: Any) -> Any:
        """Receive, unless the server ends here."""
        self._count()
        return super().pull_messages(message_ids)

    def _count(self) -> None:
        self._calls += 1
        for number, call in self._crashes.items():
            if self._round > number or (self._round == number and self._calls >= call):
                del self._crashes[number]
                raise KilledError


def server_process(address: str, pipe: Connection, config: AppConfig, crashes: Mapping[int, int], errors: str) -> None:
    """What the process of the server runs; a line a round, and a word whenever it has ended, go to the pipe."""
    torch.set_num_threads(1)
    identify()
    log.LARGEST = LOG_BYTES
    sys.stderr = open(errors, "a", buffering=1)  # noqa: SIM115
    grid, last, first = CrashingGrid(address, crashes), _clocks(), True

    def after(finished: Finished) -> None:
        nonlocal last, first
        now = _clocks()
        took, last = now - last, now
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        decided = Counter(decision.what for decision in finished.outcome.decisions)
        row = {"round": finished.round, "start": int(first), "seconds": took[0], "cpu_seconds": took[1]}
        pipe.send(("round", row | {"rss_mb": pages * os.sysconf("SC_PAGE_SIZE") / 2**20}, dict(decided)))
        first = False

    while True:
        try:
            serve(config, grid, after)
        except KilledError:
            pipe.send(("ended by an exception", {}, {}))
        except FleetError as error:
            pipe.send(("gave up", {"why": str(error)}, {}))
        except Exception as error:  # what the soak is there to find
            traceback.print_exc()
            pipe.send(("died", {"why": f"{type(error).__name__}: {error}"}, {}))
        else:
            grid.over()
            pipe.send(("over", {}, {}))
            return
        last = _clocks()


def _clocks() -> Floats:
    """Seconds: the wall's, and those that this process has worked."""
    return np.array([time.monotonic(), time.process_time()])
