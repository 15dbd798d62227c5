"""What the kernels and batched products make of V models' maps (V, B, H, W, C), contiguous, with gradients."""

from typing import Any

import torch
from torch import Tensor

Sums = tuple[Tensor, int]
"""Sums and squares about means of blocks of rows, (V, blocks, 2, C), and how many rows a block has."""
PRODUCTS = 528
"""Products side by side that fill a GPU."""
FEWEST = 256
"""Rows that a part of a product has at least."""


def held(parameter: Tensor) -> Tensor:
    """The parameter; its gradient will lie in memory as it does, which kernels for many tensors at once ask for."""
    out: Tensor = _Held.apply(parameter)  # type: ignore[no-untyped-call]
    return out


class _Held(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, parameter: Tensor) -> Tensor:
        ctx.strides = parameter.stride()
        return parameter.view_as(parameter)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        (above,) = grads
        if above.stride() == ctx.strides:
            return above
        return torch.empty_strided(above.shape, ctx.strides, dtype=above.dtype, device=above.device).copy_(above)


def product(rows: Tensor, weight: Tensor) -> Tensor:
    """Each model's rows (V, N, in) by its weight (V, out, in): (V, N, out), in the rows' precision."""
    out: Tensor = _Product.apply(rows, weight)  # type: ignore[no-untyped-call]
    return out


def parts_of(rows: int, vehicles: int) -> int:
    """Into how many parts rows are cut whose products are summed: one product alone would leave a GPU idle."""
    parts = 1
    while rows % (2 * parts) == 0 and rows // (2 * parts) >= FEWEST and 2 * parts * vehicles <= PRODUCTS:
        parts *= 2
    return parts


class _Product(torch.autograd.Function):
    """Batched products; the weights' gradient in parts, which are summed in float32."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor) -> Tensor:
        low = weight.to(rows.dtype)
        ctx.save_for_backward(rows, low)
        return torch.bmm(rows, low.mT)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None]:
        above, (rows, low) = grads[0].contiguous(), ctx.saved_tensors
        to_rows = torch.bmm(above, low) if ctx.needs_input_grad[0] else None
        to_weight = _towards_weight(above, rows) if ctx.needs_input_grad[1] else None
        return to_rows, to_weight


def _towards_weight(above: Tensor, rows: Tensor) -> Tensor:
    """(V, N, out), (V, N, in) -> (V, out, in), float32."""
    v, n = rows.shape[:2]
    parts = parts_of(n, v)
    left, right = (t.view(v * parts, n // parts, -1).contiguous() for t in (above, rows))
    if rows.dtype == torch.float32 or rows.device.type != "cuda":
        made = torch.bmm(left.mT, right).float()
    else:
        made = torch.bmm(left.mT, right, out_dtype=torch.float32)
    return made if parts == 1 else torch.unflatten(made, 0, (v, parts)).sum(dim=1)


def depthwise(maps: Tensor, weight: Tensor, stride: int) -> tuple[Tensor, Tensor, int]:
    """Maps with weights (V, C, K, K), padded by K // 2: the maps, and their `Sums`."""
    from mpt.learning.stacked import depthwise_kernels as kernels  # noqa: PLC0415 - needs Triton

    taps = weight.detach().flatten(2).mT.contiguous()
    out, partial, rows = _Depthwise.apply(maps, weight, taps, stride, kernels)  # type: ignore[no-untyped-call]
    return out, partial, rows


class _Depthwise(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, maps: Tensor, weight: Tensor, taps: Tensor, stride: int, kernels: Any
    ) -> tuple[Tensor, Tensor, int]:
        out, partial, rows = kernels.convolved(maps, taps, stride, stats=True)
        ctx.save_for_backward(maps, taps)
        ctx.kernels, ctx.stride, ctx.side = kernels, stride, weight.shape[-1]
        ctx.mark_non_differentiable(partial)
        return out, partial, rows

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None, None, None, None]:
        above, (maps, taps) = grads[0].contiguous(), ctx.saved_tensors
        to_maps, to_weight = None, None
        if ctx.needs_input_grad[0]:
            to_maps = ctx.kernels.towards_maps(above, taps, ctx.stride, *maps.shape[2:4])
        if ctx.needs_input_grad[1]:
            to_weight = ctx.kernels.towards_weights(maps, above, ctx.side, ctx.stride)
        return to_maps, to_weight, None, None, None


def normalised(
    rows: Tensor,
    sums: Sums | None,
    counts: Tensor | None,
    affine: tuple[Tensor, Tensor],
    running: tuple[Tensor, Tensor],
    momentum: float,
    eps: float,
    act: int,
) -> Tensor:
    """BatchNorm of each model's rows (V, N, C), activated; moves the running statistics (V C,) on.

    Args:
        rows: (V, N, C).
        sums: theirs, where they are there already.
        counts: (V,) int32, how many of a model's first rows count; None: all.
        affine: scale and offset, (V C,) each.
        running: mean and variance, (V C,) each.
        momentum: of the running statistics.
        eps: added to the variance.
        act: 0: none, 1: ReLU, 2: Hardswish.
    """
    from mpt.learning.stacked import norm_kernels as kernels  # noqa: PLC0415 - needs Triton

    partial, size = kernels.sums(rows.detach(), counts) if sums is None or counts is not None else sums
    found = kernels.moments(partial, size, rows.shape[1], running, momentum, eps, counts)
    out: Tensor = _Normalised.apply(rows, *affine, found, counts, act, kernels)  # type: ignore[no-untyped-call]
    return out


class _Normalised(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        rows: Tensor,
        weight: Tensor,
        bias: Tensor,
        found: Tensor,
        counts: Tensor | None,
        act: int,
        kernels: Any,
    ) -> Tensor:
        ctx.save_for_backward(rows, found, weight, bias)
        ctx.act, ctx.counts, ctx.kernels = act, counts, kernels
        out: Tensor = kernels.normalised(rows, found, weight, bias, act)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        made = ctx.kernels.backward(grads[0].contiguous(), *ctx.saved_tensors, ctx.act, ctx.counts)
        return *made, None, None, None, None


def patches(images: Tensor, sides: tuple[int, int], stride: tuple[int, int], padding: list[int], width: int) -> Tensor:
    """Neighbourhoods (V, B, H', W', width) of images (V, B, H, W, C), which get no gradient; zeros fill the width."""
    from mpt.learning.stacked import map_kernels as kernels  # noqa: PLC0415 - needs Triton

    kind = images.device.type
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else images.dtype
    out = kernels.patches(images.flatten(0, 1), sides, stride, padding, width, dtype)
    return torch.unflatten(out, 0, (len(images), -1))


class Squeezed:
    """Squeeze-excite's two ends: the means of the channels, and the maps times the gates that were made of them.

    The maps are needed at both. Their gradient is made at one: what comes from above goes through `scale` as it is, and
    is multiplied by the gates where the gradient of the means is added to it.
    """

    def __init__(self, maps: Tensor) -> None:
        from mpt.learning.stacked import map_kernels as kernels  # noqa: PLC0415 - needs Triton

        self.kernels, self.gate = kernels, torch.empty(0)
        self.maps, self.means = _Means.apply(maps, self)  # type: ignore[no-untyped-call]

    def scale(self, gate: Tensor) -> Tensor:
        """Maps (N, P, C) times gates (N, C)."""
        out: Tensor = _Scaled.apply(self.maps, gate.contiguous(), self)  # type: ignore[no-untyped-call]
        self.maps = self.means = torch.empty(0)
        return out


class _Means(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, maps: Tensor, ends: Squeezed) -> tuple[Tensor, Tensor]:
        ctx.ends = ends
        return maps.view_as(maps), ends.kernels.summed(maps, None, maps.dtype, 1 / maps.shape[1])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        above, to_means = grads
        return ctx.ends.kernels.scaled(above, ctx.ends.gate, to_means.contiguous(), 1 / above.shape[1]), None


class _Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, maps: Tensor, gate: Tensor, ends: Squeezed) -> Tensor:
        ctx.ends, ends.gate = ends, gate.detach()
        ctx.save_for_backward(maps)
        out: Tensor = ends.kernels.scaled(maps, gate)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        above, (maps,) = grads[0].contiguous(), ctx.saved_tensors
        return above, ctx.ends.kernels.summed(above, maps, ctx.ends.gate.dtype), None
