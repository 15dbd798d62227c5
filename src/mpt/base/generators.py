"""NumPy generators made from (seed, purpose, round, vehicle) alone, so that nothing depends on what ran before."""

import hashlib
import json

import numpy as np


def digest(seed: int, purpose: str, round: int, vehicle: str) -> bytes:
    """32 bytes, the same in every process and on every machine."""
    return hashlib.sha256(json.dumps([seed, purpose, round, vehicle]).encode()).digest()


def numpy_generator(seed: int, purpose: str, round: int = 0, vehicle: int | str = 0) -> np.random.Generator:
    """A generator for this purpose, round and vehicle; vehicles are known by their id, 7 and "7" are the same."""
    return np.random.default_rng(int.from_bytes(digest(seed, purpose, round, str(vehicle))))
