"""A backbone and a linear head."""

from torch import Tensor, nn


class Classifier(nn.Module):
    """`backbone` maps normalised images (N, C, H, W) to features (N, dim), `head` those to logits (N, num_classes)."""

    backbone: nn.Module
    head: nn.Linear

    def __init__(self, backbone: nn.Module, dim: int, *, num_classes: int, in_channels: int, image_size: int) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = nn.Linear(dim, num_classes)
        self.dim = dim
        self.num_classes = num_classes
        self.in_channels = in_channels
        self.image_size = image_size

    def features(self, images: Tensor) -> Tensor:
        """(N, C, H, W) -> (N, dim)."""
        features: Tensor = self.backbone(images)
        return features

    def forward(self, images: Tensor) -> Tensor:
        """(N, C, H, W) -> (N, num_classes)."""
        logits: Tensor = self.head(self.features(images))
        return logits
