"""Layers of V models at once. Each has the parameters of the model's layer, by the same names, as (V n, ...)."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from mpt.learning.backbones.vit_tiny import ViTTiny, cut

FEW = 8
"""Channels below which cuDNN is slow at convolutions in groups, as it is where they have a stride."""


def wide_convolution(one: nn.Conv2d, vehicles: int) -> nn.Module:
    """In V groups, maps (B, V in, H, W) -> (B, V out, H', W')."""
    slow = one.in_channels < FEW or one.kernel_size == (1, 1) or one.stride != (1, 1)
    if slow and one.groups == 1 and one.padding_mode == "zeros" and one.dilation == (1, 1):
        return WideProduct(one, vehicles)
    same = one.padding == tuple(k // 2 for k in one.kernel_size) and all(k % 2 for k in one.kernel_size)
    kind = WideSame if same and not slow and one.groups == 1 and one.dilation == (1, 1) else nn.Conv2d
    return kind(
        vehicles * one.in_channels,
        vehicles * one.out_channels,
        one.kernel_size,  # type: ignore[arg-type]
        one.stride,  # type: ignore[arg-type]
        one.padding,  # type: ignore[arg-type]
        one.dilation,  # type: ignore[arg-type]
        vehicles * one.groups,
        one.bias is not None,
        one.padding_mode,
    )


def wide_batchnorm(one: nn.BatchNorm2d, vehicles: int) -> nn.BatchNorm2d:
    """Of V n channels."""
    return nn.BatchNorm2d(vehicles * one.num_features, one.eps, one.momentum, one.affine, one.track_running_stats)


class _Linear(nn.Module):
    """V linear layers, weights (V out, in)."""

    def __init__(self, one: nn.Linear, vehicles: int) -> None:
        super().__init__()
        self.vehicles = vehicles
        self.weight = nn.Parameter(torch.empty(vehicles * one.out_features, one.in_features))
        self.bias = nn.Parameter(torch.empty(vehicles * one.out_features)) if one.bias is not None else None

    def product(self, rows: Tensor) -> Tensor:
        """(V, N, in) -> (V, N, out)."""
        return products(rows, self.weight, self.bias)


def products(rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Each model's rows (V, N, in) by its own weight, of (V out, in), and its own bias, of (V out,)."""
    weights = torch.unflatten(weight, 0, (len(rows), -1))
    out = torch.bmm(rows, weights.mT)
    return out if bias is None else out + torch.unflatten(bias.to(out.dtype), 0, (len(rows), 1, -1))


class WideProduct(nn.Module):
    """A convolution, maps (B, V in, H, W) -> (B, V out, H', W'), as products with their patches."""

    def __init__(self, one: nn.Conv2d, vehicles: int) -> None:
        super().__init__()
        self.vehicles, self.stride, self.kernel = vehicles, one.stride, one.weight.shape[2:]
        self.padding = tuple(one._reversed_padding_repeated_twice)
        self.weight = nn.Parameter(torch.empty(vehicles * len(one.weight), *one.weight.shape[1:]))
        self.bias = nn.Parameter(torch.empty(vehicles * len(one.weight))) if one.bias is not None else None

    def forward(self, images: Tensor) -> Tensor:
        """Each model's images by its own weights."""
        padded = functional.pad(images, self.padding)
        height, width = ((n - k) // s + 1 for n, k, s in zip(padded.shape[2:], self.kernel, self.stride, strict=True))
        (down, right), (rows, columns) = self.stride, self.kernel
        taps = [
            padded[:, :, i : i + down * (height - 1) + 1 : down, j : j + right * (width - 1) + 1 : right]
            for i in range(rows)
            for j in range(columns)
        ]
        patches = torch.stack([torch.unflatten(tap, 1, (self.vehicles, -1)) for tap in taps], dim=3)
        mine = patches.permute(1, 0, 4, 5, 2, 3).flatten(4).flatten(1, 3)
        out = products(mine, self.weight.flatten(1), self.bias)
        maps = torch.unflatten(out, 1, (len(images), height, width)).permute(1, 2, 3, 0, 4).flatten(3)
        return maps.permute(0, 3, 1, 2)


class WideSame(nn.Conv2d):
    """A convolution of stride 1 in groups that keeps the size of its maps."""

    def _conv_forward(self, maps: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        if self.padding_mode != "zeros":
            other: Tensor = super()._conv_forward(maps, weight, bias)
            return other
        if torch.is_autocast_enabled(maps.device.type):
            kind = torch.get_autocast_dtype(maps.device.type)
            maps, weight = maps.to(kind), weight.to(kind)
        out: Tensor = _Same.apply(maps, weight, self.groups)  # type: ignore[no-untyped-call]
        return out if bias is None else out + bias[:, None, None].to(out.dtype)


class _Same(torch.autograd.Function):
    """The input's gradient is a convolution of the same kind, at which cuDNN is faster than at what it has for it."""

    @staticmethod
    def forward(ctx: Any, maps: Tensor, weight: Tensor, groups: int) -> Tensor:
        """(B, V in, H, W) -> (B, V out, H, W)."""
        ctx.save_for_backward(maps, weight)
        ctx.groups = groups
        return functional.conv2d(maps, weight, padding=[k // 2 for k in weight.shape[2:]], groups=groups)

    @staticmethod
    def backward(ctx: Any, *above: Tensor) -> tuple[Tensor, Tensor, None]:
        """The gradients of maps and weight."""
        (maps, weight), groups = ctx.saved_tensors, ctx.groups
        padding = [k // 2 for k in weight.shape[2:]]
        turned = torch.unflatten(weight, 0, (groups, -1)).transpose(1, 2).flatten(0, 1).flip(2, 3)
        turned = turned.contiguous(memory_format=torch.channels_last)
        back = functional.conv2d(above[0], turned, padding=padding, groups=groups)
        options = [1, 1], padding, [1, 1], False, [0, 0], groups, [False, True, False]
        _, of_weight, _ = torch.ops.aten.convolution_backward(above[0], maps, weight, None, *options)
        return back, of_weight, None


class WideLinear(_Linear):
    """(B, V in) -> (B, V out)."""

    def forward(self, rows: Tensor) -> Tensor:
        """Each model's part by its own weights."""
        mine = torch.unflatten(rows, 1, (self.vehicles, -1)).transpose(0, 1)
        return self.product(mine).transpose(0, 1).flatten(1)


class TallLinear(_Linear):
    """(V B, ..., in) -> (V B, ..., out)."""

    def forward(self, rows: Tensor) -> Tensor:
        """Each model's samples by its own weights."""
        out = self.product(rows.reshape(self.vehicles, -1, rows.shape[-1]))
        return out.view(*rows.shape[:-1], -1)


class TallLayerNorm(nn.Module):
    """(V B, ..., d) -> the same shape."""

    def __init__(self, one: nn.LayerNorm, vehicles: int) -> None:
        super().__init__()
        self.vehicles, self.shape, self.eps = vehicles, one.normalized_shape, one.eps
        self.weight = nn.Parameter(torch.empty(vehicles * self.shape[0]))
        self.bias = nn.Parameter(torch.empty(vehicles * self.shape[0]))

    def forward(self, rows: Tensor) -> Tensor:
        """Normalised, then each model's scale and offset."""
        normal = functional.layer_norm(rows, self.shape, None, None, self.eps)
        places = (self.vehicles, *[1] * (rows.ndim - 1), -1)
        mine = torch.unflatten(normal, 0, (self.vehicles, -1))
        return (mine * self.weight.view(places) + self.bias.view(places)).flatten(0, 1)


class TallViT(ViTTiny):
    """(V B, C, H, W) -> (V B, 192)."""

    def __init__(self, one: ViTTiny, vehicles: int) -> None:
        nn.Module.__init__(self)
        self.vehicles, self.padding, self.patch = vehicles, one.padding, one.patches.kernel_size[0]
        self.class_token = nn.Parameter(torch.empty(vehicles, *one.class_token.shape[1:]))
        self.positions = nn.Parameter(torch.empty(vehicles, *one.positions.shape[1:]))
        self.patches = _Patches(one.patches, vehicles)  # type: ignore[assignment]
        self.blocks, self.norm = one.blocks, one.norm

    def embedded(self, images: Tensor) -> Tensor:
        """Each model's patches, class token and positions."""
        rows = cut(images, self.patch)
        mine = torch.unflatten(rows, 0, (self.vehicles, -1)).flatten(1, 2)
        tokens = products(mine, self.patches.weight.flatten(1), self.patches.bias)
        tokens = torch.unflatten(tokens, 1, (-1, rows.shape[1]))
        first = self.class_token[:, None].expand(-1, tokens.shape[1], -1, -1).to(tokens.dtype)
        return (torch.cat([first, tokens], dim=2) + self.positions[:, None]).flatten(0, 1)


class _Patches(nn.Module):
    """The parameters of V convolutions that cut images into patches."""

    def __init__(self, one: nn.Conv2d, vehicles: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vehicles * len(one.weight), *one.weight.shape[1:]))
        self.bias = nn.Parameter(torch.empty(vehicles * len(one.weight)))
