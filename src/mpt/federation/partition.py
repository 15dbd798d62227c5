"""Who holds what: the training samples of each vehicle, with one class concentrated on one of them.

A partition of one's own is a function, `mine.py:by_city(cities=3)`, of a `PartitionRequest`; it gives the indices of
each vehicle's samples. One that is built in is a function here or in a file of its own, and a line in `PARTITIONS`.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpt.base.errors import MptError
from mpt.base.extensions import Builtin, Extensions, told
from mpt.core.validation import Ints

CONCENTRATED = 0.5
"""A class has a holder where one vehicle has this share of its samples."""


class PartitionError(MptError):
    """The samples cannot be spread as asked; the message says why and what would be possible."""


@dataclass(frozen=True, eq=False)
class PartitionRequest:
    """What is to be spread, and how.

    Attributes:
        labels: (N,) class of each training sample.
        rare: the class of which one vehicle holds most, and leaves.
        vehicles: how many; at least 2.
        remaining: fraction of the rare class that stays behind.
        rng: what is drawn comes from it.
        dirichlet: concentration of the other classes' split; None: even.
        recorded_by: (N,) names of the vehicles that recorded the samples; None where the dataset does not say.
        dataset: its name, for sentences.
    """

    labels: Ints
    rare: int
    vehicles: int
    remaining: float
    rng: np.random.Generator
    dirichlet: float | None = None
    recorded_by: NDArray[np.str_] | None = None
    dataset: str = "the dataset"


@dataclass(frozen=True)
class Partition:
    """The training samples of every vehicle.

    Attributes:
        indices: for each vehicle id, the indices of its samples, in ascending order.
        owner: the vehicle that holds the rare class but for the remaining samples; it departs.
        rare: that class.
        remaining: number of its samples on the other vehicles.
        names: of the vehicles, by id; empty where they have none.
    """

    indices: Mapping[int, Ints]
    owner: int
    rare: int
    remaining: int
    names: tuple[str, ...] = ()

    @classmethod
    def of(cls, indices: Mapping[int, Any], labels: Ints, rare: int) -> "Partition":
        """From each vehicle's indices: who holds most of the rare class departs, the first of several.

        Raises:
            PartitionError: ids are not 0, 1, ...; fewer than two vehicles; an index is none or is there twice; nobody
                has a sample of the rare class.
        """
        ids = list(range(len(indices)))
        if set(indices) != set(ids) or len(ids) < 2:
            raise PartitionError(f"partition: vehicles {list(indices)[:9]}, should be two or more, numbered from 0")
        try:
            held = {v: np.sort(np.asarray(indices[v]).reshape(-1)) for v in ids}
        except ValueError:
            raise PartitionError("partition: indices of a vehicle are no array, should be whole numbers") from None
        for v, rows in held.items():
            if len(rows) and rows.dtype.kind not in "iu":
                raise PartitionError(f"partition: indices of vehicle {v} are {rows.dtype}, should be whole numbers")
        everything = np.concatenate([rows.astype(np.int64) for rows in held.values()])
        if len(np.unique(everything)) < len(everything):
            raise PartitionError("partition: a sample is there twice, should be on one vehicle at most")
        if len(everything) and not 0 <= everything.min() <= everything.max() < len(labels):
            raise PartitionError(f"partition: an index is none of the {len(labels)} samples")
        owned = [int(np.sum(labels[held[v].astype(np.int64)] == rare)) for v in ids]
        if not any(owned):
            raise PartitionError(f"rare: class {rare} has no samples")
        owner = int(np.argmax(owned))
        return cls({v: rows.astype(np.int64) for v, rows in held.items()}, owner, rare, sum(owned) - owned[owner])


def by_vehicle(request: PartitionRequest) -> Partition:
    """Leave the samples with the vehicles that recorded them, numbered in the order of their names.

    The one that holds most of the rare class departs, the first of several; what the others hold of it is what remains.
    """
    if request.recorded_by is None:
        raise PartitionError(
            f"partition: vehicle, but {request.dataset} does not say which vehicle recorded a sample, should "
            "be concentrate, or the dataset one such as nuimages:ROOT or an npz: file with subject_train in it"
        )
    names, holder = np.unique(request.recorded_by, return_inverse=True)
    if len(names) < 2:
        raise PartitionError(f"partition: all samples are of vehicle {str(names[0])!r}, should be of at least 2")
    indices = {v: np.flatnonzero(holder == v) for v in range(len(names))}
    return replace(Partition.of(indices, request.labels, request.rare), names=tuple(map(str, names)))


def concentrate(request: PartitionRequest) -> Partition:
    """Spread the samples over the vehicles, the rare class all on the last one but for an exact fraction.

    The other classes are split evenly over all vehicles, or in proportions drawn from a symmetric Dirichlet
    distribution a class (the smaller `dirichlet`, the more uneven). The remaining samples, rounded to whole ones and to
    at least one where the fraction is not 0, go to the other vehicles in turn.
    """
    labels, rare, vehicles, rng = request.labels, request.rare, request.vehicles, request.rng
    if vehicles < 2:
        raise PartitionError(f"vehicles: {vehicles}, should be at least 2: one that leaves and one that stays")
    if not 0 <= request.remaining < 1:
        raise PartitionError(f"remaining: {request.remaining}, should be at least 0 and below 1")
    if request.dirichlet is not None and request.dirichlet <= 0:
        raise PartitionError(f"dirichlet: {request.dirichlet}, should be above 0")
    owner = vehicles - 1
    held: dict[int, list[Ints]] = {v: [] for v in range(vehicles)}
    left_behind = 0
    for c in np.unique(labels):
        samples = rng.permutation(np.flatnonzero(labels == c))
        if c == rare:
            left_behind = max(round(request.remaining * len(samples)), 1) if request.remaining else 0
            if left_behind >= len(samples):
                raise PartitionError(
                    f"rare: class {rare} has {len(samples)} samples, too few to leave {request.remaining:.2%} behind"
                )
            held[owner].append(samples[left_behind:])
            parts = [samples[:left_behind][v::owner] for v in range(owner)]
        elif request.dirichlet is None:
            parts = [samples[v::vehicles] for v in np.roll(np.arange(vehicles), int(c))]
        else:
            shares = rng.dirichlet(np.full(vehicles, request.dirichlet))
            parts = np.split(samples, np.round(np.cumsum(shares)[:-1] * len(samples)).astype(int))
        for v, part in enumerate(parts):
            held[v].append(part)
    if left_behind == 0 and rare not in labels:
        raise PartitionError(f"rare: class {rare} has no samples")
    indices = {v: np.sort(np.concatenate(parts)).astype(np.int64) for v, parts in held.items()}
    return Partition(indices, owner, rare, left_behind)


def holders(labels: Mapping[int, Ints], who: Collection[int]) -> frozenset[int]:
    """Those of some vehicles, each with its labels (n,), who hold half of a class or more, as reports tell a server."""
    classes = 1 + max((int(mine.max()) for mine in labels.values() if len(mine)), default=0)
    counts = np.array([np.bincount(labels[v], minlength=classes) for v in who])
    holding = (counts >= CONCENTRATED * counts.sum(axis=0)) & (counts > 0)
    return frozenset(v for v, mine in zip(who, holding.any(axis=1), strict=True) if mine)


PARTITIONS: Extensions[Callable[[PartitionRequest], Partition | Mapping[int, Any]]] = Extensions(
    "partition",
    {
        "concentrate": Builtin(concentrate, "the paper's: one vehicle is given the rare class but for a fraction"),
        "vehicle": Builtin(
            by_vehicle, "every sample stays with the vehicle that recorded it, where the dataset says so"
        ),
    },
    PartitionError,
    own="path.py:function",
    bound=True,
)


def make_partition(text: str, request: PartitionRequest) -> Partition:
    """What the partition that a text names makes of the samples."""
    divide = PARTITIONS.find(text)
    if not callable(divide):
        raise PartitionError(f"partition: {text} is a {type(divide).__name__}, should be a function of a request")
    try:
        made = divide(request)
    except MptError:
        raise
    except Exception as error:
        raise PartitionError(f"partition: {text} failed ({told(error)})") from error
    if isinstance(made, Partition):
        Partition.of(made.indices, request.labels, request.rare)
        return made
    if not isinstance(made, Mapping):
        raise PartitionError(f"partition: {text} gave a {type(made).__name__}, should be each vehicle's indices, by id")
    return Partition.of(made, request.labels, request.rare)
