"""ResNet-18 (He et al., CVPR 2016) with a stem for small images."""

import torch
from torch import Tensor, nn

SMALL = 64
"""Up to this many pixels the stem keeps the resolution."""


class ResNet18(nn.Module):
    """Four stages of two basic blocks of 64, 128, 256 and 512 channels; d = 512.

    Images up to 64 pixels get a 3x3 stem of stride 1 and no max-pooling, as is usual for CIFAR (32 px: final map 4x4);
    larger ones the standard 7x7 stem of stride 2 with max-pooling (224 px: 7x7).
    """

    dim = 512

    def __init__(self, in_channels: int, image_size: int) -> None:
        super().__init__()
        small = image_size <= SMALL
        kernel, stride = (3, 1) if small else (7, 2)
        self.stem = nn.Sequential(
            nn.Conv2d(in_channels, 64, kernel, stride, padding=kernel // 2, bias=False),
            nn.BatchNorm2d(64),
            nn.ReLU(inplace=True),
            nn.Identity() if small else nn.MaxPool2d(3, stride=2, padding=1),
        )
        self.stages = nn.Sequential(
            *(BasicBlock(64, 64, 1), BasicBlock(64, 64, 1)),
            *(BasicBlock(64, 128, 2), BasicBlock(128, 128, 1)),
            *(BasicBlock(128, 256, 2), BasicBlock(256, 256, 1)),
            *(BasicBlock(256, 512, 2), BasicBlock(512, 512, 1)),
        )
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        """(N, C, H, W) -> (N, 512)."""
        maps: Tensor = self.stages(self.stem(images))
        return maps.mean(dim=(2, 3))


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut, which is a 1x1 convolution where the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, maps: Tensor) -> Tensor:
        """(N, inputs, H, W) -> (N, outputs, H / stride, W / stride)."""
        return torch.relu(self.residual(maps) + self.shortcut(maps))
