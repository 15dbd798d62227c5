"""Layers of V convolutional networks at once: maps (V B, C, H, W), channels last, one model's samples after another's.

Each has the parameters of the model's layer, by the same names, as (V n, ...). On a GPU they run by kernels of our own
and by batched products, elsewhere by torch's operations.
"""

from importlib.util import find_spec

import torch
from torch import Tensor, nn
from torch.nn import functional

from mpt.learning.backbones.mobilenetv3 import SqueezeExcite
from mpt.learning.stacked import tall_functions as functions
from mpt.learning.stacked.layers import products

FEW = 8
"""Channels below which a convolution is a product with patches."""
ACTIVATIONS: dict[type[nn.Module], int] = {nn.ReLU: 1, nn.Hardswish: 2}
"""Those that BatchNorm's kernels apply as they go."""


def has_depthwise(model: nn.Module) -> bool:
    """Whether a convolution filters every channel by itself."""
    return any(isinstance(m, nn.Conv2d) and m.groups == m.in_channels > 1 for m in model.modules())


def tall_convolution(one: nn.Conv2d, vehicles: int) -> nn.Module:
    """Of the kind that is the fastest for it."""
    plain = one.padding_mode == "zeros" and one.dilation == (1, 1) and not isinstance(one.padding, str)
    if plain and one.groups == 1 and one.kernel_size == (1, 1) and one.stride == (1, 1) and one.padding == (0, 0):
        return TallPointwise(one, vehicles)
    if plain and one.groups == 1 and one.in_channels < FEW:
        return TallFirst(one, vehicles)
    depthwise = one.groups == one.in_channels == one.out_channels and one.bias is None
    side, step = one.kernel_size[0], one.stride[0]
    square = one.kernel_size == (side, side) and one.stride == (step, step) and one.padding == (side // 2, side // 2)
    if plain and depthwise and square and side in {3, 5} and step in {1, 2}:
        return TallDepthwise(one, vehicles)
    return TallConvolution(one, vehicles)


def by_kernels(maps: Tensor) -> bool:
    """Whether kernels of our own take these maps."""
    return (
        maps.device.type == "cuda" and maps.dtype in {torch.bfloat16, torch.float32} and find_spec("triton") is not None
    )


def _rows(maps: Tensor, vehicles: int) -> Tensor:
    """(V B, C, H, W) -> (V, B, H, W, C), contiguous."""
    return torch.unflatten(maps.permute(0, 2, 3, 1), 0, (vehicles, -1)).contiguous()


def _lowered(maps: Tensor) -> Tensor:
    """In the precision that autocast asks for, if it does."""
    kind = maps.device.type
    return maps.to(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else maps


def _maps(rows: Tensor) -> Tensor:
    """(V, B, H, W, C) -> (V B, C, H, W)."""
    return rows.flatten(0, 1).permute(0, 3, 1, 2)


class TallConvolution(nn.Module):
    """Any convolution, by torch's with V times the groups."""

    def __init__(self, one: nn.Conv2d, vehicles: int) -> None:
        super().__init__()
        self.vehicles, self.one = vehicles, (one.stride, one.dilation, vehicles * one.groups)
        self.padding, self.mode = list(one._reversed_padding_repeated_twice), one.padding_mode
        self.weight = nn.Parameter(torch.empty(vehicles * len(one.weight), *one.weight.shape[1:]))
        self.bias = nn.Parameter(torch.empty(vehicles * len(one.weight))) if one.bias is not None else None

    def forward(self, maps: Tensor) -> Tensor:
        """(V B, in, H, W) -> (V B, out, H', W')."""
        wide = torch.unflatten(maps, 0, (self.vehicles, -1)).transpose(0, 1).flatten(1, 2)
        padded = functional.pad(wide, self.padding, "constant" if self.mode == "zeros" else self.mode)
        stride, dilation, groups = self.one
        out = functional.conv2d(padded, functions.held(self.weight), self.bias, stride, 0, dilation, groups)
        tall = torch.unflatten(out, 1, (self.vehicles, -1)).transpose(0, 1).flatten(0, 1)
        return tall.contiguous(memory_format=torch.channels_last)


class TallPointwise(TallConvolution):
    """1 x 1: batched products."""

    def forward(self, maps: Tensor) -> Tensor:
        """(V B, in, H, W) -> (V B, out, H, W)."""
        rows = _rows(_lowered(maps), self.vehicles)
        flat, weight = rows.flatten(1, 3), functions.held(self.weight).flatten(1)
        if by_kernels(maps):
            out = functions.product(flat, torch.unflatten(weight, 0, (self.vehicles, -1)))
            if self.bias is not None:
                out = out + torch.unflatten(self.bias.to(out.dtype), 0, (self.vehicles, 1, -1))
        else:
            out = products(flat, weight, self.bias)
        return _maps(out.view(*rows.shape[:-1], -1))


class TallFirst(TallConvolution):
    """Of few channels: batched products with the neighbourhoods of all pixels."""

    def forward(self, maps: Tensor) -> Tensor:
        """(V B, in, H, W) -> (V B, out, H', W')."""
        weight = functions.held(self.weight).permute(0, 2, 3, 1)
        weight = weight.reshape(self.vehicles, len(weight) // self.vehicles, -1)
        weight = functional.pad(weight, (0, -weight.shape[-1] % FEW))
        if by_kernels(maps):
            around = self._around(maps, weight.shape[-1])
            out = functions.product(around.flatten(1, 3), weight)
        else:
            around = self._plain(_rows(_lowered(maps), self.vehicles), weight.shape[-1])
            out = torch.bmm(around.flatten(1, 3), weight.mT)
        if self.bias is not None:
            out = out + torch.unflatten(self.bias.to(out.dtype), 0, (self.vehicles, 1, -1))
        return _maps(out.view(*around.shape[:-1], -1))

    def _around(self, maps: Tensor, width: int) -> Tensor:
        """Neighbourhoods (V, B, H', W', width) of maps (V B, in, H, W)."""
        rows = _rows(maps, self.vehicles)
        if maps.requires_grad:
            return self._plain(rows.to(_lowered(maps[:0]).dtype), width)
        high, wide = self.weight.shape[2:]
        down, right = self.one[0]
        return functions.patches(rows, (high, wide), (down, right), self.padding, width)

    def _plain(self, rows: Tensor, width: int) -> Tensor:
        """By torch's operations."""
        padded = functional.pad(rows, (0, 0, *self.padding))
        (down, right), (high, wide) = self.one[0], self.weight.shape[2:]
        height, across = (padded.shape[2] - high) // down + 1, (padded.shape[3] - wide) // right + 1
        near = [
            padded[:, :, i : i + down * (height - 1) + 1 : down, j : j + right * (across - 1) + 1 : right]
            for i in range(high)
            for j in range(wide)
        ]
        around = torch.cat(near, dim=-1)
        return functional.pad(around, (0, width - around.shape[-1]))


class TallDepthwise(TallConvolution):
    """Every channel by itself, 3 x 3 or 5 x 5, at stride 1 or 2."""

    def with_sums(self, maps: Tensor) -> tuple[Tensor, functions.Sums | None]:
        """(V B, C, H, W) -> (V B, C, H', W'), and what BatchNorm needs of them, where it came for nothing."""
        if not by_kernels(maps):
            return super().forward(maps), None
        weight = functions.held(self.weight).reshape(self.vehicles, -1, *self.weight.shape[2:])
        out, partial, size = functions.depthwise(_rows(maps, self.vehicles), weight, self.one[0][0])
        return _maps(out), (partial, size)

    def forward(self, maps: Tensor) -> Tensor:
        """(V B, C, H, W) -> (V B, C, H', W')."""
        return self.with_sums(maps)[0]


class TallBatchNorm(nn.Module):
    """BatchNorm by each model's samples, and an activation that may follow.

    Attributes:
        act: a value of `ACTIVATIONS`, or 0 for none.
        keep: (V, B), which samples count, the first ones of each model; None: all.
    """

    running_mean: Tensor | None
    running_var: Tensor | None

    def __init__(self, one: nn.BatchNorm2d, vehicles: int) -> None:
        super().__init__()
        if one.momentum is None:
            raise ValueError("BatchNorm2d: momentum None has no stack, should be a number")
        self.vehicles, self.eps, self.momentum, self.act = vehicles, one.eps, one.momentum, 0
        self.keep: Tensor | None = None
        n = vehicles * one.num_features
        self.weight = nn.Parameter(torch.ones(n)) if one.affine else None
        self.bias = nn.Parameter(torch.zeros(n)) if one.affine else None
        self.register_buffer("running_mean", torch.zeros(n) if one.track_running_stats else None)
        self.register_buffer("running_var", torch.ones(n) if one.track_running_stats else None)

    def forward(self, maps: Tensor, sums: functions.Sums | None = None) -> Tensor:
        """(V B, C, H, W) -> the same shape."""
        rows = _rows(maps, self.vehicles)
        mean, variance = self.running_mean, self.running_var
        plain = not by_kernels(maps) or not self.training
        if plain or mean is None or variance is None or self.weight is None or self.bias is None:
            return _maps(self._plain(rows))
        counts = None
        if self.keep is not None:
            counts = self.keep.sum(dim=1, dtype=torch.int32) * (rows.shape[2] * rows.shape[3])
        affine, running = (self.weight, self.bias), (mean, variance)
        out = functions.normalised(rows.flatten(1, 3), sums, counts, affine, running, self.momentum, self.eps, self.act)
        return _maps(out.view(rows.shape))

    def _plain(self, rows: Tensor) -> Tensor:
        """(V, B, H, W, C), by torch's operations."""
        exact = rows.to(torch.promote_types(rows.dtype, torch.float32))
        each = (self.vehicles, 1, 1, 1, -1)
        if self.training or self.running_mean is None or self.running_var is None:
            mean, variance = self._moments(exact)
        else:
            mean, variance = self.running_mean.view(each), self.running_var.view(each)
        out = (exact - mean) * torch.rsqrt(variance + self.eps)
        if self.weight is not None and self.bias is not None:
            out = out * self.weight.view(each) + self.bias.view(each)
        out = (functional.relu(out), functional.hardswish(out))[self.act - 1] if self.act else out
        return out.to(rows.dtype)

    def _moments(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance (V, 1, 1, 1, C) of the samples that count; the running ones move on."""
        over, n = (1, 2, 3), torch.tensor(float(rows[0, ..., 0].numel()), dtype=rows.dtype, device=rows.device)
        if self.keep is None:
            variance, mean = torch.var_mean(rows, dim=over, correction=0, keepdim=True)
        else:
            weights = self.keep[:, :, None, None, None].to(rows.dtype)
            n = (weights.sum(dim=1, keepdim=True) * rows[0, 0, ..., 0].numel()).clamp(min=1)
            mean = (weights * rows).sum(dim=over, keepdim=True) / n
            variance = (weights * (rows - mean) ** 2).sum(dim=over, keepdim=True) / n
        if self.training and self.running_mean is not None and self.running_var is not None:
            with torch.no_grad():
                unbiased = variance * n / (n - 1).clamp(min=1)
                self.running_mean.lerp_(mean.flatten().to(self.running_mean.dtype), self.momentum)
                self.running_var.lerp_(unbiased.flatten().to(self.running_var.dtype), self.momentum)
        return mean, variance


class TallSqueeze(SqueezeExcite):
    """Squeeze-excite; its gates are made by the layers of V models."""

    def __init__(self, one: SqueezeExcite, _: int) -> None:
        nn.Module.__init__(self)
        self.gate = one.gate

    def forward(self, maps: Tensor) -> Tensor:
        """(V B, C, H, W) -> the same shape."""
        if not by_kernels(maps):
            return super().forward(maps)
        rows = maps.permute(0, 2, 3, 1).contiguous()
        ends = functions.Squeezed(rows.flatten(1, 2))
        gate = ends.means[:, :, None, None]
        for layer in list(self.gate)[1:]:
            gate = layer(gate)
        return ends.scale(gate.flatten(1)).view(rows.shape).permute(0, 3, 1, 2)


class Chain(nn.Sequential):
    """Layers in a row; BatchNorm takes the activation behind it, and the sums of a depthwise convolution before it."""

    def __init__(self, layers: dict[str, nn.Module]) -> None:
        super().__init__()
        for name, layer in layers.items():
            before = next(reversed(self._modules.values()), None)
            if type(layer) in ACTIVATIONS and isinstance(before, TallBatchNorm):
                before.act = ACTIVATIONS[type(layer)]
                layer = nn.Identity()  # noqa: PLW2901
            self._modules[name] = layer

    def forward(self, maps: Tensor) -> Tensor:
        """One after another."""
        sums: functions.Sums | None = None
        for layer in self:
            if isinstance(layer, TallDepthwise):
                maps, sums = layer.with_sums(maps)
            elif isinstance(layer, TallBatchNorm):
                maps, sums = layer(maps, sums), None
            else:
                maps, sums = layer(maps), None
        return maps
