"""Work that goes on beside training: on a GPU in threads and streams of their own, elsewhere at once."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import cache
from typing import Any, TypeVar

import torch

SMALL = 256
"""Up to this feature dimension the server's matrices are faster with one thread than with several that wait."""

MOST_WORKERS = 4
"""Threads that share Python's lock: with more they wait for each other."""

Result = TypeVar("Result")


class Background:
    """Does some pieces of work while something else goes on; what they give is asked for later."""

    def __init__(self, device: torch.device, *, beside: bool = True, pieces: int = 1) -> None:
        self.device, self._workers, self._limit = device, None, ExitStack()
        if beside and device.type == "cuda":
            self._several = min(pieces, MOST_WORKERS)
            self._workers = ThreadPoolExecutor(self._several, "readout")
            self._own = threading.local()

    def __enter__(self) -> "Background":
        if self._workers is not None and self._several > 1:
            self._limit.enter_context(few_threads(0))  # where it is the process's, one thread must not lift another's
        return self

    def __exit__(self, *_: object) -> None:
        self._limit.close()
        if self._workers is not None:
            self._workers.shutdown(cancel_futures=True)

    def submit(self, work: Sequence[Callable[[], Result]]) -> Callable[[], list[Result]]:
        """Begin; calling what comes back waits for the results. All that is queued on the device is done before."""
        if self._workers is None:
            results = [piece() for piece in work]
            return lambda: results
        torch.cuda.current_stream(self.device).synchronize()
        begun = [self._workers.submit(self._on_a_stream, piece) for piece in work]
        return lambda: [piece.result() for piece in begun]

    def _on_a_stream(self, work: Callable[[], Result]) -> Result:
        if not hasattr(self._own, "stream"):
            self._own.stream = torch.cuda.Stream(self.device, priority=-1)  # type: ignore[no-untyped-call]
        with torch.cuda.device(self.device), torch.cuda.stream(self._own.stream):
            result = work()
            self._own.stream.synchronize()
        return result


def precisely(precision: str) -> AbstractContextManager[Any]:
    """Inside, with "float32", convolutions on a GPU are exact: torch lets cuDNN round to tf32 otherwise.

    The flags are the process's, so nothing may go on beside it; `rounds_together` sees to that.
    """
    if precision != "float32":
        return nullcontext()
    exact: AbstractContextManager[Any] = torch.backends.cudnn.flags(enabled=True, allow_tf32=False)
    return exact


def few_threads(dim: int) -> AbstractContextManager[Any]:
    """Inside, NumPy's and SciPy's products of small matrices use one thread.

    NumPy and SciPy have each their own threads, and torch has others; idle ones spin for a while and take the cores
    from those that work.
    """
    controller = _controller()
    if dim > SMALL or controller is None:
        return nullcontext()
    limited: AbstractContextManager[Any] = controller.limit(limits=1, user_api="blas")
    return limited


@cache
def _controller() -> Any:
    try:
        from threadpoolctl import ThreadpoolController  # noqa: PLC0415 - comes with scikit-learn
    except ImportError:
        return None
    return ThreadpoolController()
