"""Settings for all tests."""

import os
import signal
from importlib.util import find_spec

import pytest
from hypothesis import settings

import mpt

settings.register_profile("mpt", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("mpt")

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell that starts pytest in the background has it ignored

if find_spec("torch") is not None:
    import torch

    if not torch.cuda.is_available():
        os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is imported, and torch may import it at any time


@pytest.fixture(scope="module")
def in_float32():
    """Cross moments travel as float32 instead of float16, so that more than three digits can be compared."""
    to_bytes = mpt.CrossStatistics.to_bytes

    def without_halves(stats, *dtype, halves=False, **how):
        return to_bytes(stats, *dtype, **how)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mpt.CrossStatistics, "to_bytes", without_halves)
        yield
