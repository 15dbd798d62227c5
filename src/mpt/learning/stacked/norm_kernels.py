"""The Triton kernels of V models' BatchNorm with the activation behind it, rows (V, N, C).

A program takes a block of channels and some rows, eight neighbouring channels a thread. Sums over rows are made in a
fixed order, by blocks and then by one program. Squares are summed about a value of the block's own, and blocks are put
together by their means. Without WHOLE, the first `counts` (V,) rows of each model count, and the others for nothing.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

SIZES = ["N", "C8", "TIMES", "BLOCKS", "ROWS"]
PROGRAMS = 132 * 6
"""About how many there are of a kernel whose programs go on from block to block."""
TILE = 8192
"""Values that a program has at once."""
MANY = 128


@triton.jit
def _counted(counts, v, N, WHOLE: tl.constexpr):
    """How many rows of a model count."""
    n = N
    if not WHOLE:
        n = tl.load(counts + v)
    return n


@triton.jit
def _activated(pre, ACT: tl.constexpr):
    """None, ReLU or Hardswish."""
    if ACT == 1:
        pre = tl.maximum(pre, 0.0)
    if ACT == 2:
        pre = pre * tl.minimum(tl.maximum(pre + 3.0, 0.0), 6.0) * (1.0 / 6.0)
    return pre


@triton.jit
def _passed(above, pre, ACT: tl.constexpr):
    """What of a gradient the activation passes on."""
    if ACT == 1:
        above = tl.where(pre > 0.0, above, 0.0)
    if ACT == 2:
        above = tl.where(pre < -3.0, 0.0, tl.where(pre <= 3.0, above * (pre * (1.0 / 3.0) + 0.5), above))
    return above


@triton.jit
def _channels(moments, weight, bias, v, c, inside, C):
    """Mean, 1 / deviation, scale and offset of a model's channels."""
    mean = tl.load(moments + v * 2 * C + c, mask=inside, other=0.0)
    inverse = tl.load(moments + v * 2 * C + C + c, mask=inside, other=0.0)
    scale = tl.load(weight + v * C + c, mask=inside, other=0.0)
    return mean, inverse, scale, tl.load(bias + v * C + c, mask=inside, other=0.0)


@triton.jit(do_not_specialize=SIZES)
def _sums(x, counts, partial, N, C8, TIMES, WHOLE: tl.constexpr, UNIT: tl.constexpr, G: tl.constexpr, CB: tl.constexpr):
    """Every block's sums, and squares about its means: partial (V, blocks, 2, C)."""
    block, v = tl.program_id(1), tl.program_id(2).to(tl.int64)
    C = C8 * UNIT
    c = tl.program_id(0) * CB + tl.arange(0, CB)
    inside = c < C
    x += v * N * C
    n = _counted(counts, v, N, WHOLE)
    first = block * TIMES * G
    pivot = tl.load(x + first * C + c, mask=inside, other=0.0).to(tl.float32)
    total, squares = tl.zeros((G, CB), tl.float32), tl.zeros((G, CB), tl.float32)
    for time in range(TIMES):
        row = first + time * G + tl.arange(0, G)
        here = (row < n)[:, None] & inside[None, :]
        value = tl.load(x + (row * C)[:, None] + c[None, :], mask=here, other=0.0).to(tl.float32)
        apart = tl.where(here, value - pivot[None, :], 0.0)
        total += apart
        squares += apart * apart
    count = tl.maximum(tl.minimum(TIMES * G, n - first), 0).to(tl.float32)
    about = tl.sum(total, axis=0)
    left = partial + (v * tl.num_programs(1) + block) * 2 * C + c
    tl.store(left, about + count * pivot, mask=inside)
    tl.store(left + C, tl.maximum(tl.sum(squares, axis=0) - about * about / tl.maximum(count, 1.0), 0.0), mask=inside)


@triton.jit(do_not_specialize=SIZES)
def _moments(
    partial, counts, moments, running_mean, running_var, momentum, eps, N, C8, BLOCKS, ROWS,
    WHOLE: tl.constexpr, UNIT: tl.constexpr, MANY: tl.constexpr, CB: tl.constexpr,
):  # fmt: skip
    """Mean and 1 / deviation (V, 2, C) from blocks of ROWS rows, and the running ones moved on.

    A model of which no row counts has zeros, and keeps its running ones.
    """
    v = tl.program_id(1).to(tl.int64)
    n = _counted(counts, v, N, WHOLE)
    samples = tl.maximum(n, 1).to(tl.float32)
    C = C8 * UNIT
    c, many = tl.program_id(0) * CB + tl.arange(0, CB), tl.arange(0, MANY)
    inside = c < C
    partial += v * BLOCKS * 2 * C
    total = tl.zeros((MANY, CB), tl.float32)
    for start in range(0, BLOCKS, MANY):
        block = start + many
        here = (block < BLOCKS)[:, None] & inside[None, :]
        total += tl.load(partial + (block * 2 * C)[:, None] + c[None, :], mask=here, other=0.0)
    mean = tl.sum(total, axis=0) / samples
    spread = tl.zeros((MANY, CB), tl.float32)
    for start in range(0, BLOCKS, MANY):
        block = start + many
        here = (block < BLOCKS)[:, None] & inside[None, :]
        count = tl.maximum(tl.minimum(n - block * ROWS, ROWS), 0).to(tl.float32)[:, None]
        at = partial + (block * 2 * C)[:, None] + c[None, :]
        apart = tl.load(at, mask=here, other=0.0) / tl.maximum(count, 1.0) - mean[None, :]
        squares = tl.load(at + C, mask=here, other=0.0)
        spread += tl.where(here, squares + count * apart * apart, 0.0)
    squares = tl.sum(spread, axis=0)
    tl.store(moments + v * 2 * C + c, mean, mask=inside)
    tl.store(moments + v * 2 * C + C + c, tl.where(n > 0, 1.0 / tl.sqrt_rn(squares / samples + eps), 0.0), mask=inside)
    momentum = tl.where(n > 0, momentum, 0.0)
    past = tl.load(running_mean + v * C + c, mask=inside, other=0.0)
    tl.store(running_mean + v * C + c, past + momentum * (mean - past), mask=inside)
    past = tl.load(running_var + v * C + c, mask=inside, other=0.0)
    tl.store(running_var + v * C + c, past + momentum * (squares / tl.maximum(samples - 1.0, 1.0) - past), mask=inside)


@triton.jit(do_not_specialize=SIZES)
def _apply(
    x, moments, weight, bias, y, N, C8,
    UNIT: tl.constexpr, ACT: tl.constexpr, G: tl.constexpr, CB: tl.constexpr,
):  # fmt: skip
    """Normalised, scaled, moved and activated."""
    v = tl.program_id(2).to(tl.int64)
    C = C8 * UNIT
    c = tl.program_id(0) * CB + tl.arange(0, CB)
    row = tl.program_id(1) * G + tl.arange(0, G)
    inside = c < C
    mean, inverse, scale, offset = _channels(moments, weight, bias, v, c, inside, C)
    here = (row < N)[:, None] & inside[None, :]
    at = v * N * C + ((row * C)[:, None] + c[None, :])
    value = tl.load(x + at, mask=here, other=0.0).to(tl.float32)
    pre = (value - mean[None, :]) * (inverse * scale)[None, :] + offset[None, :]
    tl.store(y + at, _activated(pre, ACT).to(y.dtype.element_ty), mask=here)


@triton.jit(do_not_specialize=SIZES)
def _back_sums(
    above, x, counts, moments, weight, bias, partial, N, C8, TIMES,
    WHOLE: tl.constexpr, UNIT: tl.constexpr, ACT: tl.constexpr, G: tl.constexpr, CB: tl.constexpr,
):  # fmt: skip
    """Every block's sums of the gradient behind the activation, and of it times the normalised rows."""
    block, v = tl.program_id(1), tl.program_id(2).to(tl.int64)
    C = C8 * UNIT
    c = tl.program_id(0) * CB + tl.arange(0, CB)
    inside = c < C
    mean, inverse, scale, offset = _channels(moments, weight, bias, v, c, inside, C)
    n = _counted(counts, v, N, WHOLE)
    plain, times = tl.zeros((G, CB), tl.float32), tl.zeros((G, CB), tl.float32)
    for time in range(TIMES):
        row = (block * TIMES + time) * G + tl.arange(0, G)
        here = (row < n)[:, None] & inside[None, :]
        at = v * N * C + ((row * C)[:, None] + c[None, :])
        value = tl.load(x + at, mask=here, other=0.0).to(tl.float32)
        normal = (value - mean[None, :]) * inverse[None, :]
        g = tl.load(above + at, mask=here, other=0.0).to(tl.float32)
        g = _passed(g, normal * scale[None, :] + offset[None, :], ACT)
        plain += g
        times += g * normal
    left = partial + (v * tl.num_programs(1) + block) * 2 * C + c
    tl.store(left, tl.sum(plain, axis=0), mask=inside)
    tl.store(left + C, tl.sum(times, axis=0), mask=inside)


@triton.jit(do_not_specialize=SIZES)
def _back_totals(partial, to_bias, to_weight, C8, BLOCKS, UNIT: tl.constexpr, MANY: tl.constexpr, CB: tl.constexpr):
    """The blocks' sums added up: the gradients of offset and scale."""
    v = tl.program_id(1).to(tl.int64)
    C = C8 * UNIT
    c, many = tl.program_id(0) * CB + tl.arange(0, CB), tl.arange(0, MANY)
    inside = c < C
    partial += v * BLOCKS * 2 * C
    plain, times = tl.zeros((MANY, CB), tl.float32), tl.zeros((MANY, CB), tl.float32)
    for start in range(0, BLOCKS, MANY):
        block = start + many
        here = (block < BLOCKS)[:, None] & inside[None, :]
        at = partial + (block * 2 * C)[:, None] + c[None, :]
        plain += tl.load(at, mask=here, other=0.0)
        times += tl.load(at + C, mask=here, other=0.0)
    tl.store(to_bias + v * C + c, tl.sum(plain, axis=0), mask=inside)
    tl.store(to_weight + v * C + c, tl.sum(times, axis=0), mask=inside)


@triton.jit(do_not_specialize=SIZES)
def _back_apply(
    above, x, counts, moments, weight, bias, to_bias, to_weight, out, N, C8,
    WHOLE: tl.constexpr, UNIT: tl.constexpr, ACT: tl.constexpr, G: tl.constexpr, CB: tl.constexpr,
):  # fmt: skip
    """The gradient of the rows."""
    v = tl.program_id(2).to(tl.int64)
    C = C8 * UNIT
    c = tl.program_id(0) * CB + tl.arange(0, CB)
    row = tl.program_id(1) * G + tl.arange(0, G)
    inside = c < C
    mean, inverse, scale, offset = _channels(moments, weight, bias, v, c, inside, C)
    n = _counted(counts, v, N, WHOLE)
    samples = tl.maximum(n, 1).to(tl.float32)
    plain = tl.load(to_bias + v * C + c, mask=inside, other=0.0) / samples
    times = tl.load(to_weight + v * C + c, mask=inside, other=0.0) / samples
    here = (row < N)[:, None] & inside[None, :]
    at = v * N * C + ((row * C)[:, None] + c[None, :])
    normal = (tl.load(x + at, mask=here, other=0.0).to(tl.float32) - mean[None, :]) * inverse[None, :]
    g = tl.load(above + at, mask=here, other=0.0).to(tl.float32)
    g = _passed(g, normal * scale[None, :] + offset[None, :], ACT)
    back = (g - plain[None, :] - normal * times[None, :]) * (inverse * scale)[None, :]
    if not WHOLE:
        back = tl.where((row < n)[:, None], back, 0.0)
    tl.store(out + at, back.to(out.dtype.element_ty), mask=here)


def unit_of(channels: int) -> int:
    """What the number of channels is surely a multiple of; by eight, 16 bytes are read at once."""
    return 8 if channels % 8 == 0 else 1


def block_of(channels: int) -> int:
    """How many channels a program takes: many, but few that are not there."""
    if channels <= 16:
        return 16
    cost = {128: 1.0, 64: 1.01, 32: 1.1}
    return min(cost, key=lambda block: cost[block] * triton.cdiv(channels, block) * block)


def _blocks(rows: Tensor, g: int, across: int) -> tuple[int, int]:
    """How many programs share a model's rows, and how many tiles each has."""
    v, n, _ = rows.shape
    tiles = triton.cdiv(n, g)
    times = triton.cdiv(tiles, min(tiles, max(1, PROGRAMS // (v * across))))
    return triton.cdiv(tiles, times), times


def sums(rows: Tensor, counts: Tensor | None = None) -> tuple[Tensor, int]:
    """Partial statistics (V, blocks, 2, C) of rows (V, N, C), and how many rows a block has.

    Here and below, the first `counts` (V,) rows, int32, count; None: all.
    """
    v, n, c = rows.shape
    cb, unit = block_of(c), unit_of(c)
    g, across = TILE // cb, triton.cdiv(c, cb)
    blocks, times = _blocks(rows, g, across)
    partial = torch.empty((v, blocks, 2, c), dtype=torch.float32, device=rows.device)
    _sums[(across, blocks, v)](
        rows, counts, partial, n, c // unit, times, WHOLE=counts is None, UNIT=unit, G=g, CB=cb, num_warps=8
    )
    return partial, times * g


def moments(
    partial: Tensor,
    rows: int,
    n: int,
    running: tuple[Tensor, Tensor],
    momentum: float,
    eps: float,
    counts: Tensor | None = None,
) -> Tensor:
    """Mean and 1 / deviation (V, 2, C) of n rows from blocks' sums; moves the running statistics (V C,) on, in place."""
    v, blocks, _, c = partial.shape
    unit = unit_of(c)
    out = torch.empty((v, 2, c), dtype=torch.float32, device=partial.device)
    _moments[(triton.cdiv(c, 16), v)](
        partial,
        counts,
        out,
        *running,
        momentum,
        eps,
        n,
        c // unit,
        blocks,
        rows,
        WHOLE=counts is None,
        UNIT=unit,
        MANY=MANY,
        CB=16,
    )
    return out


def normalised(rows: Tensor, found: Tensor, weight: Tensor, bias: Tensor, act: int) -> Tensor:
    """Rows (V, N, C) normalised with `moments`, by scale and offset (V C,), and activated."""
    v, n, c = rows.shape
    cb, unit = block_of(c), unit_of(c)
    g = TILE // cb
    out = torch.empty_like(rows)
    _apply[(triton.cdiv(c, cb), triton.cdiv(n, g), v)](
        rows, found, weight, bias, out, n, c // unit, UNIT=unit, ACT=act, G=g, CB=cb, num_warps=8
    )
    return out


def backward(
    above: Tensor, rows: Tensor, found: Tensor, weight: Tensor, bias: Tensor, act: int, counts: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of rows (V, N, C), of scale and of offset (V C,)."""
    v, n, c = rows.shape
    cb, unit = block_of(c), unit_of(c)
    g, across = TILE // 2 // cb, triton.cdiv(c, cb)
    blocks, times = _blocks(rows, g, across)
    partial = torch.empty((v, blocks, 2, c), dtype=torch.float32, device=rows.device)
    _back_sums[(across, blocks, v)](
        above,
        rows,
        counts,
        found,
        weight,
        bias,
        partial,
        n,
        c // unit,
        times,
        WHOLE=counts is None,
        UNIT=unit,
        ACT=act,
        G=g,
        CB=cb,
        num_warps=8,
    )
    to_weight, to_bias = torch.empty_like(weight), torch.empty_like(bias)
    _back_totals[(triton.cdiv(c, 16), v)](partial, to_bias, to_weight, c // unit, blocks, UNIT=unit, MANY=MANY, CB=16)
    out = torch.empty_like(rows)
    _back_apply[(across, triton.cdiv(n, g), v)](
        above, rows, counts, found, weight, bias, to_bias, to_weight, out, n, c // unit,
        WHOLE=counts is None, UNIT=unit, ACT=act, G=g, CB=cb, num_warps=8,
    )  # fmt: skip
    return out, to_weight, to_bias
