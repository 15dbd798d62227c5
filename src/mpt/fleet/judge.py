"""Whether a model can be used at all: an update that cannot is refused, and no such model is kept."""

from functools import lru_cache

import numpy as np
import torch

from mpt.fleet.exchange import Arrays
from mpt.fleet.vehicle import load
from mpt.learning import Classifier, embed

LARGEST = 1e9
"""Of a weight, a feature or a class score: sums over samples of larger features are refused as statistics."""
LARGEST_VARIANCE = 1e19
"""Of BatchNorm's running variance, which has the squares of differences between vehicles in it."""


def unusable(architecture: Classifier, model: Arrays) -> str:
    """Why nobody could train or report with a model, tried on two images; empty where they could.

    Args:
        architecture: the model's; its weights are replaced.
        model: the weights, of the architecture's names and shapes.
    """
    for name, array in model.items():
        most = LARGEST_VARIANCE if name.endswith("running_var") else LARGEST
        largest = float(np.abs(array).max(initial=0)) if array.dtype.kind == "f" else 0.0
        if not largest <= most:
            return f"{name} has numbers up to {largest:.1e}, should be below {most:.0e}"
    load(architecture, model)
    device = architecture.head.weight.device
    features = embed(architecture, _images(architecture.in_channels, architecture.image_size).to(device))
    with torch.no_grad():
        scores = architecture.head(features)
    for name, values in (("features", features), ("class scores", scores)):
        largest = float(values.abs().nan_to_num(nan=float("inf")).max())
        if not largest <= LARGEST:
            return f"it gives {name} up to {largest:.1e} for a plain image, should be below {LARGEST:.0e}"
    return ""


@lru_cache(maxsize=4)
def _images(channels: int, size: int) -> torch.Tensor:
    """A grey image and one of noise, (2, channels, size, size)."""
    drawing = torch.Generator().manual_seed(0)
    drawn = torch.randint(0, 256, (1, channels, size, size), dtype=torch.uint8, generator=drawing)
    return torch.cat([torch.full_like(drawn, 128), drawn])
