"""Samples that vehicles set aside, and what they count with them: evidence without test data, as on a fleet."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mpt.core.validation import Ints
from mpt.data import Dataset
from mpt.federation.engine import Federation
from mpt.federation.state import Model
from mpt.learning import numpy_generator
from mpt.methods.method import Readout
from mpt.protocol.evaluation import EvaluationRequest, Evidence, validation_split


def split(held: Mapping[int, Ints], labels: Ints, share: float, seed: int) -> tuple[dict[int, Ints], dict[int, Ints]]:
    """The indices of each vehicle's samples: those that it trains on and reports, and those that it sets aside."""
    kept, aside = dict[int, Ints](), dict[int, Ints]()
    for vehicle, mine in held.items():
        first, second = validation_split(labels[mine], share, numpy_generator(seed, "validation", 0, vehicle))
        kept[vehicle], aside[vehicle] = mine[first], mine[second]
    return kept, aside


@dataclass(frozen=True, eq=False)
class SetAside:
    """What vehicles have set aside.

    Attributes:
        ground: embeds.
        images: by vehicle, on the device.
        labels: by vehicle.
    """

    ground: Federation
    images: Mapping[int, Tensor]
    labels: Mapping[int, Ints]

    @classmethod
    def of(cls, ground: Federation, dataset: Dataset, aside: Mapping[int, Ints]) -> "SetAside":
        """From the indices of each vehicle's; those that have set nothing aside are not among them."""
        train = {v: dataset.train.take(mine) for v, mine in aside.items() if len(mine)}
        images = {
            v: torch.from_numpy(np.array(one.channels_first, order="C")).to(ground.device) for v, one in train.items()
        }
        return cls(ground, images, {v: one.labels for v, one in train.items()})

    def evidence(self, round: int, model: Model, readout: Readout | None, vehicles: Sequence[int]) -> Evidence | None:
        """What these vehicles count of a readout, as bytes there and back; None where it cannot be sent."""
        asked = [v for v in vehicles if v in self.labels]
        layer: Any = readout
        if not asked or layer is None or not hasattr(layer, "to_linear"):
            return None
        request = EvaluationRequest(round, *layer.to_linear())
        features = self.ground.embed(model, *(self.images[v] for v in asked))
        found: Evidence | None = None
        for vehicle, rows in zip(asked, features, strict=True):
            told = request.read(request.answer(rows.cpu().numpy(), self.labels[vehicle]))
            found = told if found is None else found.merge(told)
        return found
