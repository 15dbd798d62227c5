"""The paper's small network: three convolutions."""

from torch import Tensor, nn


class CNN3(nn.Module):
    """Three 3x3 convolutions of 32, 64 and 128 channels, each with BatchNorm and ReLU; d = 128.

    2x2 max-pooling after the first two, global average pooling after the last. Any size from 4 pixels up.
    """

    dim = 128

    def __init__(self, in_channels: int, image_size: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *_convolution(in_channels, 32),
            nn.MaxPool2d(2),
            *_convolution(32, 64),
            nn.MaxPool2d(2),
            *_convolution(64, 128),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        )

    def forward(self, images: Tensor) -> Tensor:
        """(N, C, H, W) -> (N, 128)."""
        features: Tensor = self.layers(images)
        return features


def _convolution(inputs: int, outputs: int) -> tuple[nn.Module, ...]:
    return nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)
