"""Capturing CUDA graphs in a process that has had others."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def capturing(graph: Any, **options: Any) -> Iterator[None]:
    """`torch.cuda.graph` without garbage collection meanwhile.

    Where graphs of an earlier federation wait to be collected, freeing them is a call that ends a capture.
    """
    collects = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        with torch.cuda.graph(graph, capture_error_mode="thread_local", **options):
            yield
    finally:
        if collects:
            gc.enable()
