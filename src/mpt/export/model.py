"""A global model and a readout, ready to be deployed: what a run's folder and a fleet's state both give."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mpt.core.validation import Floats
from mpt.learning import Classifier, embed
from mpt.learning.augmentation import normalise
from mpt.learning.backbones.classifier import KINDS


@dataclass(frozen=True)
class Metadata:
    """What a user of an exported file may want to know.

    Attributes:
        class_names: one a logit.
        missing: the names of those that have no prototype; their logit is minus infinity.
        tracked: the names of those that have departed and are tracked.
        round: of the model and the prototypes.
        backbone: its name.
        in_channels, image_size: of the images; of series their channels and length, of vectors their length and 1.
        input_shape: of one sample: (C, H, W) of images, (channels, length) of series, (d,) of vectors.
        mpt: the release that trained it.
        method, readout: how the departed classes are tracked and read out; empty where a fleet's server decides.
    """

    class_names: tuple[str, ...]
    missing: tuple[str, ...]
    tracked: tuple[str, ...]
    round: int
    backbone: str
    in_channels: int
    image_size: int
    input_shape: tuple[int, ...]
    mpt: str
    method: str = ""
    readout: str = ""

    @property
    def kind(self) -> str:
        """What the model takes: images, series or vectors; its file's input is called so."""
        return KINDS[len(self.input_shape)]


class Prediction(NamedTuple):
    """What a sample is taken for.

    Attributes:
        name: the class.
        margin: its logit less the second largest: how clear it is; 0 is a tie.
        runner_up: the second.
    """

    name: str
    margin: float
    runner_up: str


class Deployed(nn.Module):
    """uint8 images (N, C, H, W), float32 series (N, channels, length) or vectors (N, d) to logits (N, num_classes)."""

    outputs = ("logits",)

    def __init__(self, backbone: nn.Module, weight: Floats, bias: Floats) -> None:
        super().__init__()
        self.backbone = backbone
        self.readout = linear(weight, bias)

    def forward(self, images: Tensor) -> Tensor:
        """The class of a sample is the largest logit; it is minus infinity for a class without a prototype."""
        logits: Tensor = self.readout(self.backbone(normalise(images)))
        return logits


@dataclass(frozen=True, eq=False)
class DeployableModel:
    """A model with its readout.

    Attributes:
        model: the global model, in evaluation mode.
        weight, bias: (C, d) and (C,) float64, the readout as a linear layer.
        metadata: of the exported file.
    """

    model: Classifier
    weight: Floats
    bias: Floats
    metadata: Metadata

    def deployed(self) -> nn.Module:
        """What is exported, in float32."""
        return Deployed(self.model.backbone, self.weight, self.bias).eval()

    def logits(self, images: NDArray[Any]) -> Floats:
        """(N, C): features in float32, the readout in float64, as in a run.

        Args:
            images: uint8 (N, H, W, channels); real numbers (N, channels, length) of series, (N, d) of vectors.
        """
        features = embed(self.model, self.batch(images)).double().numpy()
        scores: Floats = features @ self.weight.T + self.bias
        return scores

    def predict(self, images: NDArray[Any]) -> list[Prediction]:
        """What each of these samples is taken for, which are as `logits` takes them."""
        return [self._prediction(row) for row in self.logits(images)]

    def batch(self, images: NDArray[Any]) -> Tensor:
        """The same samples as the model and its file take them: images channels first, others in float32."""
        if self.metadata.kind != "images":
            return torch.from_numpy(np.array(images, dtype=np.float32, order="C"))
        first = np.moveaxis(images, 3, 1) if images.ndim == 4 else images  # else `embed` says what is wrong
        return torch.from_numpy(np.array(first, order="C"))

    def _prediction(self, row: Floats) -> Prediction:
        first, second = (int(c) for c in np.argsort(-row, kind="stable")[:2])
        names = self.metadata.class_names
        return Prediction(names[first], float(row[first] - row[second]), names[second])


def linear(weight: Floats, bias: Floats) -> nn.Linear:
    """A layer in float32 of weight (C, d) and bias (C,)."""
    made = nn.Linear(weight.shape[1], weight.shape[0])
    with torch.no_grad():
        made.weight.copy_(torch.from_numpy(weight.astype(np.float32)))
        made.bias.copy_(torch.from_numpy(bias.astype(np.float32)))
    return made


def missing_of(class_names: Sequence[str], bias: Floats) -> tuple[str, ...]:
    """The classes that are never predicted."""
    return tuple(name for name, gone in zip(class_names, np.isneginf(bias), strict=True) if gone)
