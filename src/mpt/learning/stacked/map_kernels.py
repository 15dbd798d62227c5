"""The Triton kernels of squeeze-excite's means and gates, maps (N, P, C), and of a first convolution's patches."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from mpt.learning.stacked.norm_kernels import block_of, unit_of

SIZES = ["P", "C8", "ROWS", "H", "W", "OH", "OW"]
VALUES = 4096
"""That a program has at once."""


@triton.jit(do_not_specialize=SIZES)
def _summed(
    x, other, out, share, P, C8, UNIT: tl.constexpr, PAIR: tl.constexpr, G: tl.constexpr, CB: tl.constexpr
):  # fmt: skip
    """A sample's sums over its pixels, (N, P, C) -> (N, C), times `share`; with PAIR those of products."""
    n = tl.program_id(1).to(tl.int64)
    C = C8 * UNIT
    c = tl.program_id(0) * CB + tl.arange(0, CB)
    inside = c < C
    total = tl.zeros((G, CB), tl.float32)
    for start in range(0, P, G):
        pixel = start + tl.arange(0, G)
        here = (pixel < P)[:, None] & inside[None, :]
        at = n * P * C + ((pixel * C)[:, None] + c[None, :])
        value = tl.load(x + at, mask=here, other=0.0).to(tl.float32)
        if PAIR:
            value *= tl.load(other + at, mask=here, other=0.0).to(tl.float32)
        total += value
    tl.store(out + n * C + c, (tl.sum(total, axis=0) * share).to(out.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=SIZES)
def _scaled(
    x, gate, plus, out, share, P, C8, UNIT: tl.constexpr, ADD: tl.constexpr, G: tl.constexpr, CB: tl.constexpr
):  # fmt: skip
    """Maps (N, P, C) times gates (N, C); with ADD, `plus` (N, C) times `share` is added."""
    n = tl.program_id(1).to(tl.int64)
    C = C8 * UNIT
    c = tl.program_id(0) * CB + tl.arange(0, CB)
    inside = c < C
    scale = tl.load(gate + n * C + c, mask=inside, other=0.0).to(tl.float32)
    offset = tl.zeros((CB,), tl.float32)
    if ADD:
        offset = tl.load(plus + n * C + c, mask=inside, other=0.0).to(tl.float32) * share
    for start in range(0, P, G):
        pixel = start + tl.arange(0, G)
        here = (pixel < P)[:, None] & inside[None, :]
        at = n * P * C + ((pixel * C)[:, None] + c[None, :])
        value = tl.load(x + at, mask=here, other=0.0).to(tl.float32) * scale[None, :] + offset[None, :]
        tl.store(out + at, value.to(out.dtype.element_ty), mask=here)


@triton.jit(do_not_specialize=SIZES)
def _patches(
    x, out, ROWS, H, W, OH, OW, HIGH: tl.constexpr, WIDE: tl.constexpr, C: tl.constexpr, DOWN: tl.constexpr,
    RIGHT: tl.constexpr, TOP: tl.constexpr, LEFT: tl.constexpr, WIDTH: tl.constexpr, KB: tl.constexpr,
    G: tl.constexpr,
):  # fmt: skip
    """The neighbourhood of every pixel: (N, H, W, C) -> (N OH OW, WIDTH), in the order (HIGH, WIDE, C), then zeros."""
    row, k = tl.program_id(0) * G + tl.arange(0, G), tl.arange(0, KB)
    n, y, x_at = row // (OW * OH), row // OW % OH * DOWN - TOP, row % OW * RIGHT - LEFT
    iy = y[:, None] + (k // (WIDE * C))[None, :]
    ix = x_at[:, None] + (k // C % WIDE)[None, :]
    seen = (row < ROWS)[:, None] & (k < HIGH * WIDE * C)[None, :] & (iy >= 0) & (iy < H) & (ix >= 0) & (ix < W)
    at = (n.to(tl.int64) * H * W)[:, None] * C + (iy * W + ix) * C + (k % C)[None, :]
    value = tl.load(x + at, mask=seen, other=0.0).to(out.dtype.element_ty)
    here = (row < ROWS)[:, None] & (k < WIDTH)[None, :]
    tl.store(out + row.to(tl.int64)[:, None] * WIDTH + k[None, :], value, mask=here)


def _tile(pixels: int, channels: int) -> tuple[int, int, int]:
    """Channels and pixels that a program has at once, and what the channels are a multiple of."""
    block = block_of(channels)
    return block, min(triton.next_power_of_2(pixels), VALUES // block), unit_of(channels)


def summed(maps: Tensor, other: Tensor | None, dtype: torch.dtype, share: float = 1.0) -> Tensor:
    """Sums over pixels of maps (N, P, C), or of their products with others, times `share`: (N, C)."""
    n, p, c = maps.shape
    block, g, unit = _tile(p, c)
    out = torch.empty((n, c), dtype=dtype, device=maps.device)
    _summed[(triton.cdiv(c, block), n)](
        maps, other, out, share, p, c // unit, UNIT=unit, PAIR=other is not None, G=g, CB=block, num_warps=4
    )
    return out


def scaled(maps: Tensor, gate: Tensor, plus: Tensor | None = None, share: float = 1.0) -> Tensor:
    """Maps (N, P, C) times gates (N, C), and `plus` (N, C) times `share` added to every pixel."""
    n, p, c = maps.shape
    block, g, unit = _tile(p, c)
    out = torch.empty_like(maps)
    _scaled[(triton.cdiv(c, block), n)](
        maps, gate, plus, out, share, p, c // unit, UNIT=unit, ADD=plus is not None, G=g, CB=block, num_warps=4
    )
    return out


def patches(
    maps: Tensor, sides: tuple[int, int], stride: tuple[int, int], padding: list[int], width: int, dtype: torch.dtype
) -> Tensor:
    """Neighbourhoods of images (N, H, W, C), padded by (left, right, top, bottom): (N, H', W', width)."""
    n, h, w, c = maps.shape
    left, right, top, bottom = padding
    oh, ow = (h + top + bottom - sides[0]) // stride[0] + 1, (w + left + right - sides[1]) // stride[1] + 1
    out = torch.empty((n, oh, ow, width), dtype=dtype, device=maps.device)
    columns = triton.next_power_of_2(width)
    g = max(1, 2048 // columns)
    _patches[(triton.cdiv(n * oh * ow, g),)](
        maps, out, n * oh * ow, h, w, oh, ow, HIGH=sides[0], WIDE=sides[1], C=c, DOWN=stride[0], RIGHT=stride[1],
        TOP=top, LEFT=left, WIDTH=width, KB=columns, G=g, num_warps=4,
    )  # fmt: skip
    return out
