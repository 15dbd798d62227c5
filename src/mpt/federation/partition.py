"""Who holds what: the training samples of each vehicle, with one class concentrated on one of them."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mpt.core.validation import Ints


class PartitionError(ValueError):
    """The samples cannot be spread as asked; the message says why and what would be possible."""


@dataclass(frozen=True)
class Partition:
    """The training samples of every vehicle.

    Attributes:
        holdings: for each vehicle id, the indices of its samples, in ascending order.
        owner: the vehicle that holds the rare class but for the remaining samples.
        rare: that class.
        remaining: number of its samples on the other vehicles.
        names: of the vehicles, by id; empty where they have none.
    """

    holdings: Mapping[int, Ints]
    owner: int
    rare: int
    remaining: int
    names: tuple[str, ...] = ()


def by_vehicle(labels: Ints, rare: int, vehicles: NDArray[np.str_]) -> Partition:
    """Leave the samples with the vehicles that recorded them, numbered in the order of their names.

    The one that holds most of the rare class departs, the first of several; what the others hold of it is what remains.

    Args:
        labels: (N,) class of each training sample.
        rare: the class of which one vehicle holds most.
        vehicles: (N,) name of the vehicle that recorded each sample.
    """
    names, holder = np.unique(vehicles, return_inverse=True)
    if len(names) < 2:
        raise PartitionError(f"partition: all samples are of vehicle {str(names[0])!r}, should be of at least 2")
    held = np.bincount(holder[labels == rare], minlength=len(names))
    if not held.any():
        raise PartitionError(f"rare: class {rare} has no samples")
    owner = int(np.argmax(held))
    holdings = {v: np.flatnonzero(holder == v).astype(np.int64) for v in range(len(names))}
    return Partition(holdings, owner, rare, int(held.sum() - held[owner]), tuple(map(str, names)))


def concentrate(
    labels: Ints,
    rare: int,
    *,
    vehicles: int,
    remaining: float,
    rng: np.random.Generator,
    dirichlet: float | None = None,
) -> Partition:
    """Spread the samples over `vehicles`, the rare class all on the last one but for an exact `remaining` fraction.

    The other classes are split evenly over all vehicles, or in proportions drawn from a symmetric Dirichlet
    distribution a class (the smaller `dirichlet`, the more uneven). The remaining samples go to the other vehicles in
    turn.

    Args:
        labels: (N,) class of each training sample.
        rare: the class to concentrate.
        vehicles: number of vehicles, at least 2.
        remaining: fraction of the rare class that stays behind, from 0 to below 1; rounded to whole samples, and to at
            least one where it is not 0.
        rng: the order of samples and the Dirichlet proportions come from it.
        dirichlet: concentration parameter, or None for the even split.
    """
    if vehicles < 2:
        raise PartitionError(f"vehicles: {vehicles}, should be at least 2: one that leaves and one that stays")
    if not 0 <= remaining < 1:
        raise PartitionError(f"remaining: {remaining}, should be at least 0 and below 1")
    if dirichlet is not None and dirichlet <= 0:
        raise PartitionError(f"dirichlet: {dirichlet}, should be above 0")
    owner = vehicles - 1
    held: dict[int, list[Ints]] = {v: [] for v in range(vehicles)}
    left_behind = 0
    for c in np.unique(labels):
        samples = rng.permutation(np.flatnonzero(labels == c))
        if c == rare:
            left_behind = max(round(remaining * len(samples)), 1) if remaining else 0
            if left_behind >= len(samples):
                raise PartitionError(
                    f"rare: class {rare} has {len(samples)} samples, too few to leave {remaining:.2%} behind"
                )
            held[owner].append(samples[left_behind:])
            parts = [samples[:left_behind][v::owner] for v in range(owner)]
        elif dirichlet is None:
            parts = [samples[v::vehicles] for v in np.roll(np.arange(vehicles), int(c))]
        else:
            shares = rng.dirichlet(np.full(vehicles, dirichlet))
            parts = np.split(samples, np.round(np.cumsum(shares)[:-1] * len(samples)).astype(int))
        for v, part in enumerate(parts):
            held[v].append(part)
    if left_behind == 0 and rare not in labels:
        raise PartitionError(f"rare: class {rare} has no samples")
    holdings = {v: np.sort(np.concatenate(parts)).astype(np.int64) for v, parts in held.items()}
    return Partition(holdings, owner, rare, left_behind)
