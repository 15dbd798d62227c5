"""Backbones for samples that are no images: a network of convolutions over time, and one of linear layers."""

from torch import Tensor, nn


class CNN1D(nn.Module):
    """Three convolutions over time of 32, 64 and 64 channels, each with BatchNorm and ReLU; d = 64.

    Max-pooling of two after the first two, the mean over time after the last. Any length from 4 readings up.

    Args:
        in_channels: of the series.
        image_size: its length; any other will do as well.
        dim: channels of the last convolution, which is the length of the features.
        width: readings that a convolution sees, odd.
    """

    def __init__(self, in_channels: int, image_size: int, *, dim: int = 64, width: int = 5) -> None:
        super().__init__()
        self.dim = dim
        self.layers = nn.Sequential(
            *_convolution(in_channels, 32, width),
            nn.MaxPool1d(2),
            *_convolution(32, 64, width),
            nn.MaxPool1d(2),
            *_convolution(64, dim, width),
        )

    def forward(self, series: Tensor) -> Tensor:
        """(N, channels, length) -> (N, dim)."""
        maps: Tensor = self.layers(series)
        return maps.mean(dim=2)


class MLP(nn.Module):
    """Two linear layers, each with BatchNorm and ReLU; d = 64.

    Args:
        in_channels: the length of the vectors.
        image_size: 1.
        hidden: units of the first layer.
        dim: of the second, which is the length of the features.
    """

    def __init__(self, in_channels: int, image_size: int, *, hidden: int = 128, dim: int = 64) -> None:
        super().__init__()
        self.dim = dim
        self.layers = nn.Sequential(*_linear(in_channels, hidden), *_linear(hidden, dim))

    def forward(self, vectors: Tensor) -> Tensor:
        """(N, d) -> (N, dim)."""
        features: Tensor = self.layers(vectors)
        return features


def _convolution(inputs: int, outputs: int, width: int) -> tuple[nn.Module, ...]:
    convolution = nn.Conv1d(inputs, outputs, width, padding=width // 2, bias=False)
    return convolution, nn.BatchNorm1d(outputs), nn.ReLU(inplace=True)


def _linear(inputs: int, outputs: int) -> tuple[nn.Module, ...]:
    return nn.Linear(inputs, outputs, bias=False), nn.BatchNorm1d(outputs), nn.ReLU(inplace=True)
