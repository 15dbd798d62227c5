"""Random generators made from (seed, purpose, round, vehicle) alone, so that nothing depends on what ran before."""

import operator
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from mpt.base import generators as draws
from mpt.learning.settings import LearningError


def derive_seed(seed: int, purpose: str, round: int = 0, vehicle: int | str = 0) -> int:
    """A number from 0 to 2^63 - 1 that is a hash of the four, the same in every process and on every machine.

    Vehicles are known by their id: 7 and "7" are the same vehicle.

    Example:
        >>> derive_seed(0, "training", round=3, vehicle="7") == derive_seed(0, "training", 3, 7)
        True
    """
    return int.from_bytes(_digest(seed, purpose, round, vehicle)[:8]) >> 1


def generator(
    seed: int, purpose: str, round: int = 0, vehicle: int | str = 0, *, device: torch.device | str = "cpu"
) -> torch.Generator:
    """A torch generator for this purpose, round and vehicle.

    On the CPU, the default, the draws are the same wherever the model is; the rest of the package moves them to the
    model's device. Torch keeps 32 bits of a CPU generator's seed.
    """
    made = torch.Generator(device=device)
    made.manual_seed(derive_seed(seed, purpose, round, vehicle))
    return made


def numpy_generator(seed: int, purpose: str, round: int = 0, vehicle: int | str = 0) -> np.random.Generator:
    """A NumPy generator for this purpose, round and vehicle; not the same draws as `generator`'s."""
    return np.random.default_rng(int.from_bytes(_digest(seed, purpose, round, vehicle)))


@contextmanager
def isolated(seed: int, device: torch.device | None = None) -> Iterator[None]:
    """Inside, torch's global generators (the CPU's and a CUDA `device`'s) start from `seed`; after, they are as before.

    For what can draw from nowhere else: the initialisation of layers, and dropout. Not for several threads at once.
    """
    cuda = device is not None and device.type == "cuda"
    with torch.random.fork_rng(devices=[device] if cuda else []):
        torch.default_generator.manual_seed(seed)
        if cuda:
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)
        yield


def _digest(seed: int, purpose: str, round: int, vehicle: int | str) -> bytes:
    if not isinstance(purpose, str) or not purpose:
        raise LearningError(f"purpose: {purpose!r}, should be a word such as 'training'")
    who = vehicle if isinstance(vehicle, str) else str(_integer(vehicle, "vehicle"))
    return draws.digest(_integer(seed, "seed"), purpose, _integer(round, "round"), who)


def _integer(value: object, name: str) -> int:
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise LearningError(f"{name}: {value!r}, should be an integer") from None
