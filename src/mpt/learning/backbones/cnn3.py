"""The paper's small network: three convolutions."""

from torch import Tensor, nn


class CNN3(nn.Module):
    """Three 3x3 convolutions of 32, 64 and 128 channels, each with BatchNorm and ReLU; d = 128.

    2x2 max-pooling after the first two, global average pooling after the last. Any size from 4 pixels up. Pooling comes
    before ReLU, which gives the same and has a quarter of the work.
    """

    dim = 128

    def __init__(self, in_channels: int, image_size: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *_convolution(in_channels, 32, nn.MaxPool2d(2)),
            *_convolution(32, 64, nn.MaxPool2d(2)),
            *_convolution(64, 128),
            GlobalAverage(),
        )

    def forward(self, images: Tensor) -> Tensor:
        """(N, C, H, W) -> (N, 128)."""
        features: Tensor = self.layers(images)
        return features


class GlobalAverage(nn.Module):
    """The mean over the pixels, written so that its gradient keeps the order in memory, channels-last or not."""

    def forward(self, maps: Tensor) -> Tensor:
        """(N, C, H, W) -> (N, C)."""
        return maps.permute(0, 2, 3, 1).flatten(1, 2).mean(dim=1)


def _convolution(inputs: int, outputs: int, *pooling: nn.Module) -> tuple[nn.Module, ...]:
    convolution = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
    return convolution, nn.BatchNorm2d(outputs), *pooling, nn.ReLU(inplace=True)
