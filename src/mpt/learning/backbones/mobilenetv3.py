"""MobileNetV3-Large (Howard et al., ICCV 2019) with strides for small images."""

from typing import NamedTuple

from torch import Tensor, nn


class _Row(NamedTuple):
    """One line of the paper's Table 1."""

    kernel: int
    expanded: int
    outputs: int
    squeeze: bool
    hardswish: bool
    stride: int


_ROWS = (
    _Row(3, 16, 16, False, False, 1),
    _Row(3, 64, 24, False, False, 2),
    _Row(3, 72, 24, False, False, 1),
    _Row(5, 72, 40, True, False, 2),
    _Row(5, 120, 40, True, False, 1),
    _Row(5, 120, 40, True, False, 1),
    _Row(3, 240, 80, False, True, 2),
    _Row(3, 200, 80, False, True, 1),
    _Row(3, 184, 80, False, True, 1),
    _Row(3, 184, 80, False, True, 1),
    _Row(3, 480, 112, True, True, 1),
    _Row(3, 672, 112, True, True, 1),
    _Row(5, 672, 160, True, True, 2),
    _Row(5, 960, 160, True, True, 1),
    _Row(5, 960, 160, True, True, 1),
)


class MobileNetV3(nn.Module):
    """MobileNetV3-Large up to its 1280-wide layer behind the pooling, hardswish included; d = 1280.

    The standard network divides the resolution by 32 (224 px: final map 7x7). Up to 64 pixels the first two strides of
    2 are 1 instead, which makes it 8 (32 px: 4x4, 64 px: 8x8); up to 128 the first one, which makes it 16. BatchNorm's
    momentum is 0.1, not the 0.01 of the long ImageNet training: a vehicle takes few steps in a round. No dropout.
    """

    dim = 1280

    def __init__(self, in_channels: int, image_size: int) -> None:
        super().__init__()
        kept = 2 if image_size <= 64 else 1 if image_size <= 128 else 0
        layers: list[nn.Module] = [_convolution(in_channels, 16, 3, 1 if kept else 2, hardswish=True)]
        kept -= 1
        inputs = 16
        for row in _ROWS:
            stride = row.stride
            if stride == 2 and kept > 0:
                stride, kept = 1, kept - 1
            layers.append(InvertedResidual(inputs, row, stride))
            inputs = row.outputs
        layers.append(_convolution(inputs, 960, 1, 1, hardswish=True))
        self.layers = nn.Sequential(*layers)
        self.last = nn.Sequential(nn.Linear(960, 1280), nn.Hardswish())
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out")
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=0.01)
                nn.init.zeros_(module.bias)

    def forward(self, images: Tensor) -> Tensor:
        """(N, C, H, W) -> (N, 1280)."""
        features: Tensor = self.last(self.layers(images).mean(dim=(2, 3)))
        return features


class InvertedResidual(nn.Module):
    """Expand by a 1x1 convolution, filter each channel, squeeze and excite, project back; add the input if it fits."""

    def __init__(self, inputs: int, row: _Row, stride: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        if row.expanded != inputs:
            layers.append(_convolution(inputs, row.expanded, 1, 1, hardswish=row.hardswish))
        layers.append(
            _convolution(row.expanded, row.expanded, row.kernel, stride, row.expanded, hardswish=row.hardswish)
        )
        if row.squeeze:
            layers.append(SqueezeExcite(row.expanded))
        layers += [nn.Conv2d(row.expanded, row.outputs, 1, bias=False), nn.BatchNorm2d(row.outputs, eps=1e-3)]
        self.layers = nn.Sequential(*layers)
        self.adds = stride == 1 and inputs == row.outputs

    def forward(self, maps: Tensor) -> Tensor:
        """(N, inputs, H, W) -> (N, outputs, H / stride, W / stride)."""
        out: Tensor = self.layers(maps)
        return maps + out if self.adds else out


class SqueezeExcite(nn.Module):
    """Scales each channel by a gate between 0 and 1, computed from the channels' means."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        squeezed = _divisible_by_8(channels // 4)
        self.gate = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(channels, squeezed, 1),
            nn.ReLU(inplace=True),
            nn.Conv2d(squeezed, channels, 1),
            nn.Hardsigmoid(),
        )

    def forward(self, maps: Tensor) -> Tensor:
        """(N, channels, H, W) -> the same shape."""
        gated: Tensor = maps * self.gate(maps)
        return gated


def _convolution(
    inputs: int, outputs: int, kernel: int, stride: int, groups: int = 1, *, hardswish: bool
) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs, eps=1e-3),
        nn.Hardswish() if hardswish else nn.ReLU(inplace=True),
    )


def _divisible_by_8(channels: int) -> int:
    """The nearest multiple of 8, not more than a tenth below."""
    near = max(8, (channels + 4) // 8 * 8)
    return near + 8 if near < 0.9 * channels else near
