"""Work that goes on beside training: on a GPU in a thread of its own and a stream of its own, elsewhere at once."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any, TypeVar

import torch

SMALL = 256
"""Up to this feature dimension the server's matrices are faster with one thread than with several that wait."""

_Result = TypeVar("_Result")


class Background:
    """Does one piece of work after the other; what it gives is asked for later."""

    def __init__(self, device: torch.device, *, beside: bool = True) -> None:
        self.device = device
        self._worker, self._stream = None, None
        if beside and device.type == "cuda":
            self._worker = ThreadPoolExecutor(1, "readout")
            self._stream = torch.cuda.Stream(device, priority=-1)  # type: ignore[no-untyped-call]

    def __enter__(self) -> "Background":
        return self

    def __exit__(self, *_: object) -> None:
        if self._worker is not None:
            self._worker.shutdown(cancel_futures=True)

    def submit(self, work: Callable[[], _Result]) -> Callable[[], _Result]:
        """Begin; calling what comes back waits for the result. All that is queued on the device is done before."""
        if self.device.type == "cuda":
            torch.cuda.current_stream(self.device).synchronize()
        if self._worker is None:
            result = work()
            return lambda: result
        return self._worker.submit(self._on_a_stream, work).result

    def _on_a_stream(self, work: Callable[[], _Result]) -> _Result:
        assert self._stream is not None
        with torch.cuda.device(self.device), torch.cuda.stream(self._stream):
            result = work()
            self._stream.synchronize()
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
