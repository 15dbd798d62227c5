"""A readout of two models for deployment: two files, and the rule by which the second is asked.

The first, `current`, takes images (N, C, H, W), or else series or vectors, and gives what the current model says:
`logits` (N, num_classes), whether the earlier model is to be asked, `ask` (N,), and what the current model adds then,
`partial` (N, num_classes). The second, `earlier`, takes the same and their `partial` and gives `logits`, which decide.
The class is the largest one.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mpt.core.validation import Floats
from mpt.export.model import DeployableModel, Metadata, linear
from mpt.learning import Classifier, embed
from mpt.learning.augmentation import normalise

RULE = "where ask is true, the logits of the file `earlier`, given the same samples and their partial, decide"


@dataclass(frozen=True)
class TwoModelMetadata(Metadata):
    """The same, and how the two files belong together.

    Attributes:
        part: which of the two it is: current or earlier.
        rule: in words.
        ask_below: `ask` is true where the largest logits of departed and of other classes are at most so far apart.
        earlier_round: of the earlier model.
    """

    part: str = "current"
    rule: str = RULE
    ask_below: str = "inf"
    earlier_round: int = 0


class Asking(nn.Module):
    """The current model, and whether the earlier one is asked."""

    outputs = ("logits", "partial", "ask")

    def __init__(self, model: "TwoModels") -> None:
        super().__init__()
        self.backbone = model.model.backbone
        self.readout = linear(model.weight, model.bias)
        self.share = linear(model.current_share, np.zeros(len(model.bias)))
        gone = np.isin(np.arange(len(model.bias)), model.departed)
        self.register_buffer("departed", torch.from_numpy(np.flatnonzero(gone)))
        self.register_buffer("others", torch.from_numpy(np.flatnonzero(~gone)))
        self.register_buffer("known", torch.from_numpy(~np.isneginf(model.joint_bias)))
        self.limit = model.ask_below

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Samples, as of one model, to logits, partial and ask."""
        features = self.backbone(normalise(images))
        logits: Tensor = self.readout(features)
        sides = [logits.index_select(1, one).amax(dim=1) for one in (self.departed, self.others)]  # type: ignore[arg-type]
        known = self.known.index_select(0, logits.argmax(dim=1))  # type: ignore[operator]
        return logits, self.share(features), ((sides[0] - sides[1]).abs() <= self.limit) & known


class Answering(nn.Module):
    """The earlier model, for samples of which the current one has said its part."""

    outputs = ("logits",)

    def __init__(self, model: "TwoModels") -> None:
        super().__init__()
        self.backbone = model.earlier.backbone
        self.readout = linear(model.earlier_share, model.joint_bias)

    def forward(self, images: Tensor, partial: Tensor) -> Tensor:
        """Samples and their partial (N, num_classes) to logits."""
        logits: Tensor = self.readout(self.backbone(normalise(images))) + partial
        return logits


@dataclass(frozen=True, eq=False)
class TwoModels(DeployableModel):
    """A current and an earlier model with their readout; `weight` and `bias` are the current one's alone.

    Attributes:
        earlier: the departure-time model, in evaluation mode.
        joint_weight, joint_bias: (C, 2 d) and (C,), of the features side by side, the current ones first; minus
            infinity for a class that the earlier model does not know.
        departed: the classes that the earlier model is asked for.
        ask_below: how far apart logits are at most where it is asked.
    """

    earlier: Classifier
    joint_weight: Floats
    joint_bias: Floats
    departed: tuple[int, ...]
    ask_below: float = float("inf")

    @property
    def current_share(self) -> Floats:
        """(C, d): of `joint_weight`, what the current features count by."""
        return self.joint_weight[:, : self.weight.shape[1]]

    @property
    def earlier_share(self) -> Floats:
        """(C, d): the same of the earlier ones."""
        return self.joint_weight[:, self.weight.shape[1] :]

    def deployed(self) -> nn.Module:
        """The first file's, in float32."""
        return Asking(self).eval()

    def second(self) -> nn.Module:
        """The second file's."""
        return Answering(self).eval()

    def asked(self, current: Floats) -> NDArray[np.bool_]:
        """(N,): whether the earlier model is asked, given the current one's logits (N, C)."""
        gone = np.isin(np.arange(len(self.bias)), self.departed)
        with np.errstate(invalid="ignore"):
            gap = np.abs(current[:, gone].max(axis=1) - current[:, ~gone].max(axis=1))
        asked: NDArray[np.bool_] = (gap <= self.ask_below) & ~np.isneginf(self.joint_bias)[current.argmax(axis=1)]
        return asked

    def logits(self, images: NDArray[Any]) -> Floats:
        """(N, C): those of both models where the earlier one is asked; samples are as of one model."""
        batch = self.batch(images)
        features = embed(self.model, batch).double().numpy()
        scores: Floats = features @ self.weight.T + self.bias
        asked = self.asked(scores)
        if asked.any():
            before = embed(self.earlier, batch[torch.from_numpy(asked)]).double().numpy()
            both = np.concatenate([features[asked], before], axis=1)
            scores[asked] = both @ self.joint_weight.T + self.joint_bias
        return scores
