"""Global random generators that are afterwards as they were: statistics do not change what training draws."""

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np


@contextmanager
def draws_unchanged() -> Iterator[None]:
    """After this, Python's, NumPy's and, where it is loaded, torch's global generators go on as if nothing was drawn.

    Building a model draws its first weights, whether or not others are loaded into it then.
    """
    python, torch = random.getstate(), sys.modules.get("torch")
    numpy = np.random.get_state()  # noqa: NPY002 - of those who draw from it
    cpu = None if torch is None else torch.get_rng_state()
    cuda = None if torch is None or not torch.cuda.is_initialized() else torch.cuda.get_rng_state_all()
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002
        if torch is not None:
            torch.set_rng_state(cpu)
        if torch is not None and cuda is not None:
            torch.cuda.set_rng_state_all(cuda)
