"""The paper's small network, three convolutions, with BatchNorm or without, with an embedding layer or without."""

from torch import Tensor, nn

GRID = 4
"""The last map of a network with an embedding layer is averaged to so many cells a side."""


class CNN3(nn.Module):
    """Three 3x3 convolutions of 32, 64 and 128 channels, each with BatchNorm and ReLU; d = 128.

    2x2 max-pooling after the first two, global average pooling after the last. Any size from 4 pixels up. Pooling comes
    before ReLU, which gives the same and has a quarter of the work.

    Args:
        norm: False: biases in place of BatchNorm.
        embedding: True: the last map is averaged to 4x4, flattened, and goes through a linear layer to 128 and ReLU;
            from 16 pixels up.
    """

    dim = 128

    def __init__(self, in_channels: int, image_size: int, *, norm: bool = True, embedding: bool = False) -> None:
        super().__init__()
        self.norm, self.embedding = norm, embedding
        end = _embedding() if embedding else (GlobalAverage(),)
        self.layers = nn.Sequential(
            *_convolution(in_channels, 32, norm, nn.MaxPool2d(2)),
            *_convolution(32, 64, norm, nn.MaxPool2d(2)),
            *_convolution(64, 128, norm),
            *end,
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


def _embedding() -> tuple[nn.Module, ...]:
    return nn.AdaptiveAvgPool2d(GRID), nn.Flatten(), nn.Linear(GRID**2 * 128, 128), nn.ReLU(inplace=True)


def _convolution(inputs: int, outputs: int, norm: bool, *pooling: nn.Module) -> tuple[nn.Module, ...]:
    convolution = nn.Conv2d(inputs, outputs, 3, padding=1, bias=not norm)
    return convolution, *((nn.BatchNorm2d(outputs),) if norm else ()), *pooling, nn.ReLU(inplace=True)
