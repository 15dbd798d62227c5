"""What a vehicle holds: its part of a dataset, or a dataset of its own."""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch

from mpt.data import Dataset, LocalData, Split, load
from mpt.federation.partition import PartitionRequest, concentrate
from mpt.learning import Samples, numpy_generator
from mpt.tracking.errors import FleetError


def shared(dataset: Dataset, vehicle: int, vehicles: int, *, rare: str, remaining: float, seed: int) -> Samples:
    """What `mpt run` with these settings gives to one of its vehicles."""
    if not 0 <= vehicle < vehicles:
        raise FleetError(f"partition-id: {vehicle}, should be from 0 to {vehicles - 1}")
    rng = numpy_generator(seed, "partition")
    request = PartitionRequest(dataset.train.labels, dataset.class_index(rare), vehicles, remaining, rng)
    partition = concentrate(request)
    return samples(dataset.train.take(partition.indices[vehicle]))


def named(held: Samples, dataset: Dataset | LocalData, classes: Sequence[str]) -> tuple[Samples, dict[str, int]]:
    """Samples of a dataset, their labels turned into the fleet's by the classes' names.

    Samples of classes that the fleet does not know are left out; how many of each is the second result.
    """
    numbers = torch.tensor([classes.index(name) if name in classes else -1 for name in dataset.classes])
    labels = numbers[held.labels]
    there = torch.bincount(held.labels, minlength=len(dataset.classes)).tolist()
    unknown = {name: n for name, n in zip(dataset.classes, there, strict=True) if n and name not in classes}
    known = labels >= 0
    return Samples(held.images[known], labels[known]), unknown


def samples(split: Split, *, grey_as_colour: bool = False) -> Samples:
    """A split as tensors: images (n, C, H, W), labels (n,); grey ones with three equal channels, where wanted."""
    images = torch.from_numpy(np.array(split.images)).permute(0, 3, 1, 2)
    if grey_as_colour and images.shape[1] == 1:
        images = images.expand(-1, 3, -1, -1)
    images = images.contiguous()
    return Samples(images, torch.from_numpy(np.array(split.labels)))


@lru_cache(2)
def loaded(name: str, *, image_size: int, per_class: int) -> Dataset:
    """A dataset by any name of `mpt run`; 0 stands for what the dataset has. Simulated vehicles share it."""
    return load(name, image_size=image_size or None, per_class=per_class or None)
