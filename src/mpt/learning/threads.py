"""Several pieces of work at once on a CPU. Torch's own threads share one operation and wait for each other after it."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from queue import SimpleQueue
from typing import TypeVar

import torch

_Tool = TypeVar("_Tool")
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


MOST = 8
"""Pieces of work at once: each needs memory for a model and a batch's maps; more cores share the work of one."""


def at_once(items: int) -> int:
    """How many of so many pieces of work to do at once."""
    return max(1, min(items, torch.get_num_threads(), MOST))


@contextmanager
def with_threads(count: int) -> Iterator[None]:
    """Inside, torch's operations use so many threads. One is best for small ones: others have to be woken up first."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def side_by_side(
    work: Callable[[_Tool, _Item], _Result], tools: Sequence[_Tool], items: Sequence[_Item]
) -> Iterator[_Result]:
    """What `work` makes of each item, in the order of the items; as many at once as there are tools.

    Each call has one of the tools to itself and an equal share of torch's threads, so that results do not depend on
    which call comes first. At most twice as many results as tools wait to be taken. Work may draw no random numbers
    from torch's global generators.

    Example:
        >>> list(side_by_side(lambda tool, item: tool * item, [2, 2], [3, 4, 5]))
        [6, 8, 10]
    """
    share = max(1, torch.get_num_threads() // len(tools))
    free: SimpleQueue[_Tool] = SimpleQueue()
    for tool in tools:
        free.put(tool)

    def with_a_tool(item: _Item) -> _Result:
        tool = free.get()
        try:
            return work(tool, item)
        finally:
            free.put(tool)

    pool = ThreadPoolExecutor(len(tools), "side-by-side", torch.set_num_threads, (share,))
    waiting: deque[Future[_Result]] = deque()
    try:
        with with_threads(share):
            for item in items:
                waiting.append(pool.submit(with_a_tool, item))
                if len(waiting) > 2 * len(tools):
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
