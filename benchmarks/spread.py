"""Partitions for `benchmarks/hostile.py`: who holds what where somebody lies, or nobody does."""

from dataclasses import replace

import numpy as np

from mpt.core.validation import Ints
from mpt.federation.partition import Partition, PartitionRequest, concentrate

LIAR = 0


def holder(request: PartitionRequest) -> Partition:
    """The paper's; vehicle 0 has remaining samples."""
    return concentrate(request)


def bystander(request: PartitionRequest) -> Partition:
    """The same, but vehicle 0's remaining samples are on the others."""
    made = concentrate(request)
    mine = made.indices[LIAR]
    rare = mine[request.labels[mine] == request.rare]
    others = [v for v in made.indices if v not in (LIAR, made.owner)]
    held = {v: [rows] for v, rows in made.indices.items()}
    held[LIAR] = [mine[request.labels[mine] != request.rare]]
    for place, index in enumerate(rare):
        held[others[place % len(others)]].append(np.array([index]))
    return replace(made, indices={v: np.sort(np.concatenate(rows)) for v, rows in held.items()})


def _without(made: Partition) -> Partition:
    return replace(made, indices={v: rows[:0] if v == LIAR else rows for v, rows in made.indices.items()})


def without_holder(request: PartitionRequest) -> Partition:
    """As `holder`, without vehicle 0's samples."""
    return _without(holder(request))


def without_bystander(request: PartitionRequest) -> Partition:
    """As `bystander`, without vehicle 0's samples."""
    return _without(bystander(request))


def without_two(request: PartitionRequest) -> Partition:
    """As `holder`, without the samples of vehicles 0 and 1."""
    made = holder(request)
    return replace(made, indices={v: rows[:0] if v in (LIAR, 1) else rows for v, rows in made.indices.items()})


def even(request: PartitionRequest) -> Partition:
    """Every class split evenly, the rare one too but for a vehicle that has half of it."""
    return concentrate(replace(request, remaining=0.5))


def in_order(request: PartitionRequest) -> Partition:
    """Every vehicle has a run of images in the dataset's order, in which writers follow each other.

    The rare class is as in the paper. Runs differ in length, by up to a factor of about ten.
    """
    made = concentrate(request)
    common = np.flatnonzero(request.labels != request.rare)
    shares = 0.25 / request.vehicles + 0.75 * request.rng.dirichlet(np.ones(request.vehicles))
    runs = np.split(common, np.round(np.cumsum(shares)[:-1] * len(common)).astype(int))
    held: dict[int, Ints] = {}
    for v, rows in made.indices.items():
        held[v] = np.sort(np.concatenate([runs[v], rows[request.labels[rows] == request.rare]]))
    return replace(made, indices=held)
