"""Settings for all tests."""

import os
import signal
from importlib.util import find_spec

from hypothesis import settings

settings.register_profile("mpt", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("mpt")

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell that starts pytest in the background has it ignored

if find_spec("torch") is not None:
    import torch

    if not torch.cuda.is_available():
        os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is imported, and torch may import it at any time
