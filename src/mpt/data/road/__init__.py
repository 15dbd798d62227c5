"""`road`: eight kinds of road objects, drawn with NumPy alone, the same on every machine."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from mpt.data.dataset import Dataset, Split
from mpt.data.request import DatasetSpec
from mpt.data.road import others, vehicles
from mpt.data.road.dice import throw
from mpt.data.road.scene import Draw, render

# every class with its views and how often each is seen
VIEWS: dict[str, tuple[tuple[float, Draw], ...]] = {
    "car": ((0.75, vehicles.car_side), (0.25, vehicles.car_end)),
    "van": ((0.75, vehicles.van_side), (0.25, vehicles.van_end)),
    "truck": ((0.75, vehicles.truck_side), (0.25, vehicles.truck_end)),
    "bus": ((0.75, vehicles.bus_side), (0.25, vehicles.bus_end)),
    "motorcycle": ((0.8, others.motorcycle_side), (0.2, others.motorcycle_end)),
    "bicycle": ((0.8, others.bicycle_side), (0.2, others.bicycle_end)),
    "pedestrian": ((1.0, others.pedestrian),),
    "traffic cone": ((1.0, others.cone),),
}
CLASSES = tuple(VIEWS)
DEFAULT_SIZE, DEFAULT_TRAIN, DEFAULT_TEST = 32, 1000, 250
_BATCH_PIXELS = 1 << 17


def load_road(request: DatasetSpec) -> Dataset:
    """`road?train=N&test=N&seed=N`: N images of each class (default 1,000 and 250), of 32 pixels or `image_size`."""
    per_class = (
        request.integer("train", DEFAULT_TRAIN, least=1),
        request.integer("test", DEFAULT_TEST, least=1),
    )
    seed = request.integer("seed", request.seed, least=0)
    size = request.image_size or DEFAULT_SIZE
    splits = []
    for which, count in enumerate(per_class):
        images = np.concatenate([draw(c, range(count), split=which, seed=seed, size=size) for c in range(len(CLASSES))])
        splits.append(Split(images, np.repeat(np.arange(len(CLASSES)), count)))
    return Dataset("road", CLASSES, *splits)


def draw(
    label: int, indices: Iterable[int], *, split: int = 0, seed: int = 0, size: int = DEFAULT_SIZE
) -> NDArray[np.uint8]:
    """(B, size, size, 3): images of one class.

    Args:
        label: which class of `CLASSES`.
        indices: which images, from 0; one of them looks the same whatever the others are.
        split: 0 for train, 1 for test.
        seed: of the whole set.
        size: the images' side.
    """
    wanted = list(indices)
    images = np.empty((len(wanted), size, size, 3), dtype=np.uint8)
    step = max(1, _BATCH_PIXELS // (size * size))
    views = VIEWS[CLASSES[label]]
    for start in range(0, len(wanted), step):
        dice, noise = throw(seed, split, label, wanted[start : start + step], size)
        masks = dice.pick(*(probability for probability, _ in views))
        for mask, (_, view) in zip(masks, views, strict=True):
            rows = np.flatnonzero(mask)
            if len(rows):
                images[start + rows] = render(view, dice.rows(rows), noise[rows], size)
    return images


__all__ = ["CLASSES", "draw", "load_road"]
