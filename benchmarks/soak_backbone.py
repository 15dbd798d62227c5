"""The backbone of `benchmarks/soak.py`: 588 weights, so that a round is messages and little else."""

from torch import Tensor, nn


class Tiny(nn.Module):
    """Means over 4 x 4 cells, and a linear layer to 12 features."""

    dim = 12

    def __init__(self, in_channels: int, image_size: int) -> None:
        super().__init__()
        cells = nn.AvgPool2d(image_size // 4)
        self.layers = nn.Sequential(cells, nn.Flatten(), nn.Linear(16 * in_channels, self.dim), nn.ReLU())

    def forward(self, images: Tensor) -> Tensor:
        """(N, C, H, W) -> (N, 12)."""
        features: Tensor = self.layers(images)
        return features
