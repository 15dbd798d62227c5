"""Who trains in a round, and where their samples are: for trainers that take many vehicles at once."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from mpt.federation.jobs import Job
from mpt.learning import Samples
from mpt.learning.losses import Loss, shift_of


class TakingPart(NamedTuple):
    """One vehicle's part in one of the jobs."""

    job: int
    vehicle: int
    samples: Samples


def taking_part(jobs: Sequence[Job]) -> list[TakingPart]:
    """The vehicles that have samples, job by job."""
    return [TakingPart(j, v, s) for j, job in enumerate(jobs) for v, s in sorted(job.vehicles.items()) if len(s.labels)]


@dataclass
class Pool:
    """The samples of all vehicles in one array on the device, (N, H, W, C), so that an index is enough to name one."""

    images: Tensor | None = None
    labels: Tensor | None = None
    _first: dict[Samples, int] = field(default_factory=dict)

    def hold(self, jobs: Sequence[Job]) -> None:
        """Take in what the jobs train on; what is there already stays where it is."""
        new = list(dict.fromkeys(s for job in jobs for s in job.vehicles.values() if s not in self._first))
        if not new:
            return
        size = 0 if self.labels is None else len(self.labels)
        for samples in new:
            self._first[samples] = size
            size += len(samples.labels)
        images = [s.images.permute(0, 2, 3, 1) for s in new]
        labels = [s.labels for s in new]
        self.images = torch.cat(images if self.images is None else [self.images, *images]).contiguous()
        self.labels = torch.cat(labels if self.labels is None else [self.labels, *labels])

    def rows(self, samples: Samples) -> "np.ndarray[Any, np.dtype[np.int64]]":
        """Where a vehicle's samples are."""
        first = self._first[samples]
        return np.arange(first, first + len(samples.labels))


def logit_shift(loss: Loss, samples: Samples, num_classes: int) -> Tensor | None:
    """(C,): what a loss takes off a vehicle's logits; None where it takes nothing off."""
    made = shift_of(loss, torch.bincount(samples.labels, minlength=num_classes))
    return None if made is None else made.float()
