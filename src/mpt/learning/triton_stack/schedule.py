"""Which sample each vehicle takes at which step of a round, drawn as the reference loop draws it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from mpt.learning.augmentation import draw_epoch
from mpt.learning.settings import TrainingSettings
from mpt.learning.training import epochs_of


@dataclass(frozen=True)
class Schedule:
    """All steps of a round for V vehicles, those with the most steps first.

    Attributes:
        order: (V,), where each of them stands in what `draw` was given.
        steps: (V,), how many steps each takes, descending.
        indices: (T, V, B) int32, the sample at each place of each batch; 0 where there is none.
        sizes: (T, V) int32, how many there are.
        flips: (T, V, B) uint8, or (1,) where nothing is mirrored.
        shifts: (T, V, B, 2) int8, or (1,) where nothing is shifted.
    """

    order: NDArray[np.int64]
    steps: NDArray[np.int64]
    indices: NDArray[np.int32]
    sizes: NDArray[np.int32]
    flips: NDArray[np.uint8]
    shifts: NDArray[np.int8]

    def active(self) -> list[tuple[int, int]]:
        """(vehicles, steps): how many steps are taken by so many vehicles, the first ones, one after the other.

        Example:
            >>> empty = np.zeros(0)
            >>> Schedule(np.arange(3), np.array([4, 2, 2]), *[empty] * 4).active()
            [(3, 2), (1, 2)]
        """
        runs, done = [], 0
        for count in range(len(self.steps), 0, -1):
            until = int(self.steps[count - 1])
            if until > done:
                runs.append((count, until - done))
                done = until
        return runs


def draw(
    rows: Sequence[NDArray[np.int64]],
    generators: Sequence[torch.Generator],
    settings: TrainingSettings,
    image_size: int,
) -> Schedule:
    """The steps of vehicles that hold the samples `rows` of a common array, each drawn from its own generator."""
    size, augment = settings.batch_size, settings.augment
    slices = [list(epochs_of(len(held), settings)) for held in rows]
    taken = np.array([sum(map(len, epochs)) for epochs in slices], dtype=np.int64)
    order = np.argsort(-taken, kind="stable")
    shape = (int(taken.max(initial=0)), len(rows), size)
    indices, sizes = np.zeros(shape, np.int32), np.zeros(shape[:2], np.int32)
    flips = np.zeros(shape if augment in ("flip", "crop-flip") else 1, np.uint8)
    shifts = np.zeros((*shape, 2) if augment == "crop-flip" else 1, np.int8)
    cpu = torch.device("cpu")
    for place, vehicle in enumerate(order):
        held, step = rows[vehicle], 0
        for parts in slices[vehicle]:
            epoch = draw_epoch(len(held), image_size, augment, generators[vehicle], cpu)
            samples = held[epoch.order.numpy()]
            for part in parts:
                count = part.stop - part.start
                indices[step, place, :count], sizes[step, place] = samples[part], count
                if epoch.flip is not None:
                    flips[step, place, :count] = epoch.flip[part].numpy()
                if epoch.shift is not None:
                    shifts[step, place, :count] = epoch.shift[part].numpy()
                step += 1
    return Schedule(order, taken[order], indices, sizes, flips, shifts)
