"""A backbone and a linear head."""

from collections.abc import Sequence
from typing import Self

from torch import Tensor, nn

KINDS = {1: "vectors", 2: "series", 3: "images"}
"""What a sample is, by the dimensions of one: (d,), (channels, length), (C, H, W)."""


def samples_in_words(shape: Sequence[int]) -> str:
    """Samples of a shape, as in "series of 9 x 128"."""
    return f"{KINDS[len(shape)]} of {' x '.join(map(str, shape))}"


class Classifier(nn.Module):
    """`backbone` maps normalised images (N, C, H, W) to features (N, dim), `head` those to logits (N, num_classes).

    Where `input_shape` says so, series (N, channels, length) or vectors (N, d) stand for images.

    Attributes:
        input_shape: of one sample: (C, H, W), (channels, length) or (d,).
        frozen: whether the head alone is trained, see `freeze`.
        notes: what of a file of weights was passed over, a sentence each.
    """

    backbone: nn.Module
    head: nn.Linear

    def __init__(
        self,
        backbone: nn.Module,
        dim: int,
        *,
        num_classes: int,
        in_channels: int,
        image_size: int,
        input_shape: tuple[int, ...] | None = None,
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = nn.Linear(dim, num_classes)
        self.dim = dim
        self.num_classes = num_classes
        self.in_channels = in_channels
        self.image_size = image_size
        self.input_shape = input_shape or (in_channels, image_size, image_size)
        self.frozen = False
        self.notes: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """What it takes: images, series or vectors."""
        return KINDS[len(self.input_shape)]

    def freeze(self) -> Self:
        """From now on the backbone stays as it is: it has no gradients, and is in evaluation mode in training too."""
        self.backbone.requires_grad_(False)
        self.frozen = True
        return self.train(self.training)

    def train(self, mode: bool = True) -> Self:
        """In training or evaluation mode; a frozen backbone's BatchNorm and dropout are always in the latter."""
        super().train(mode)
        if self.frozen:
            self.backbone.eval()
        return self

    def features(self, images: Tensor) -> Tensor:
        """(N, C, H, W) -> (N, dim)."""
        features: Tensor = self.backbone(images)
        return features

    def forward(self, images: Tensor) -> Tensor:
        """(N, C, H, W) -> (N, num_classes)."""
        logits: Tensor = self.head(self.features(images))
        return logits
