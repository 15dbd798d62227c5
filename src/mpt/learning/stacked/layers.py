"""Layers of V models at once. Each has the parameters of the model's layer, by the same names, as (V n, ...)."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from mpt.learning.backbones.vit_tiny import ViTTiny, cut


def wide_convolution(one: nn.Conv2d, vehicles: int) -> nn.Conv2d:
    """In V groups, maps (B, V in, H, W) -> (B, V out, H', W')."""
    return nn.Conv2d(
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
