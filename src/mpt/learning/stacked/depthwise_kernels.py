"""The Triton kernels of V models' depthwise convolutions, maps (V, B, H, W, C), weights by taps (V, K K, C).

A program takes a block of channels and G groups of pixels; a thread has eight neighbouring channels of some groups. A
group is a strip of R pixels one below another, which share what they read: taps of one column are taken together, and
of equal loads the compiler keeps one. Sums over pixels are made in a fixed order, by blocks and then by one
program.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from mpt.learning.stacked.norm_kernels import block_of, unit_of

SIZES = ["B", "H", "W", "OH", "OW", "C8", "TIMES", "BLOCKS"]
PROGRAMS = 132 * 12
"""About how many there are of a kernel whose programs go on from block to block."""


@triton.jit(do_not_specialize=SIZES)
def _convolve(
    x, weights, y, partial, B, H, W, OH, OW, C8,
    UNIT: tl.constexpr, K: tl.constexpr, S: tl.constexpr, R: tl.constexpr, FLIP: tl.constexpr, STATS: tl.constexpr,
    G: tl.constexpr, CB: tl.constexpr,
):  # fmt: skip
    """(B, H, W, C) -> (B, OH, OW, C) with K K taps at stride S, padded by K // 2; with FLIP the taps are turned round.

    With STATS a block's sums and squares about its means go to `partial` (V, blocks, 2, C).
    """
    block, v = tl.program_id(1), tl.program_id(2).to(tl.int64)
    C = C8 * UNIT
    c = tl.program_id(0) * CB + tl.arange(0, CB)
    g = block * G + tl.arange(0, G)
    strips = OH // R
    column, top, n = g % OW, (g // OW) % strips * R, g // (OW * strips)
    there, inside = g < B * strips * OW, c < C
    both = there[:, None] & inside[None, :]
    x += v * B * H * W * C
    weights += v * K * K * C
    at = (n * H * W)[:, None] * C + c[None, :]
    sums = ()
    for _ in tl.static_range(R):
        sums = sums + (tl.zeros((G, CB), tl.float32),)  # noqa: RUF005 - Triton's tuples
    for kx in range(K):
        ix = column * S + kx - K // 2
        seen = there & (ix >= 0) & (ix < W)
        more = ()
        for r in tl.static_range(R):
            acc = sums[r]
            for ky in tl.static_range(K):
                iy = top * S + (r * S + ky - K // 2)
                here = (seen & (iy >= 0) & (iy < H))[:, None] & inside[None, :]
                value = tl.load(x + at + ((iy * W + ix) * C)[:, None], mask=here, other=0.0).to(tl.float32)
                tap = (K - 1 - ky) * K + (K - 1 - kx) if FLIP else ky * K + kx
                acc += value * tl.load(weights + tap * C + c, mask=inside, other=0.0)[None, :]
            more = more + (acc,)  # noqa: RUF005
        sums = more
    target = y + v * B * OH * OW * C + ((n * OH + top) * OW + column)[:, None] * C + c[None, :]
    total = tl.zeros((CB,), tl.float32)
    for r in tl.static_range(R):
        rounded = sums[r].to(y.dtype.element_ty)
        tl.store(target + r * OW * C, rounded, mask=both)
        if STATS:
            total += tl.sum(rounded.to(tl.float32), axis=0)
    if STATS:
        count = tl.sum(there.to(tl.float32), axis=0) * R
        squares = tl.zeros((CB,), tl.float32)
        for r in tl.static_range(R):
            apart = sums[r].to(y.dtype.element_ty).to(tl.float32) - (total / count)[None, :]
            squares += tl.sum(tl.where(both, apart * apart, 0.0), axis=0)
        left = partial + (v * tl.num_programs(1) + block) * 2 * C + c
        tl.store(left, total, mask=inside)
        tl.store(left + C, squares, mask=inside)


@triton.jit(do_not_specialize=SIZES)
def _spread(
    above, weights, out, B, H, W, OH, OW, C8,
    UNIT: tl.constexpr, K: tl.constexpr, G: tl.constexpr, CB: tl.constexpr,
):  # fmt: skip
    """The input's gradient at stride 2: (B, OH, OW, C) -> (B, H, W, C). A group is 2 x 2 pixels of the input."""
    block, v = tl.program_id(1), tl.program_id(2).to(tl.int64)
    C = C8 * UNIT
    c = tl.program_id(0) * CB + tl.arange(0, CB)
    g = block * G + tl.arange(0, G)
    down, across = (H + 1) // 2, (W + 1) // 2
    column, row, n = g % across, (g // across) % down, g // (across * down)
    there, inside = g < B * down * across, c < C
    above += v * B * OH * OW * C
    weights += v * K * K * C
    at = (n * OH * OW)[:, None] * C + c[None, :]
    sums = ()
    for corner in tl.static_range(4):
        acc = tl.zeros((G, CB), tl.float32)
        for ky in tl.static_range(K):
            for kx in tl.static_range(K):
                dy, dx = corner // 2 + K // 2 - ky + 2 * K, corner % 2 + K // 2 - kx + 2 * K
                if dy % 2 == 0 and dx % 2 == 0:
                    oy, ox = row + (dy // 2 - K), column + (dx // 2 - K)
                    here = (there & (oy >= 0) & (oy < OH) & (ox >= 0) & (ox < OW))[:, None] & inside[None, :]
                    value = tl.load(above + at + ((oy * OW + ox) * C)[:, None], mask=here, other=0.0).to(tl.float32)
                    acc += value * tl.load(weights + (ky * K + kx) * C + c, mask=inside, other=0.0)[None, :]
        sums = sums + (acc,)  # noqa: RUF005
    out += v * B * H * W * C
    for corner in tl.static_range(4):
        iy, ix = row * 2 + corner // 2, column * 2 + corner % 2
        here = (there & (iy < H) & (ix < W))[:, None] & inside[None, :]
        target = out + (((n * H + iy) * W + ix) * C)[:, None] + c[None, :]
        tl.store(target, sums[corner].to(out.dtype.element_ty), mask=here)


@triton.jit(do_not_specialize=SIZES)
def _weigh(
    x, above, partial, B, H, W, OH, OW, C8, TIMES,
    UNIT: tl.constexpr, K: tl.constexpr, S: tl.constexpr, R: tl.constexpr, ROWS: tl.constexpr,
    G: tl.constexpr, CB: tl.constexpr,
):  # fmt: skip
    """A block's part of the weights' gradient: partial (V, blocks, K K, C). A program has ROWS rows of taps."""
    block, v = tl.program_id(1), tl.program_id(2).to(tl.int64)
    C = C8 * UNIT
    part = tl.program_id(0) % (K // ROWS) * ROWS
    c = tl.program_id(0) // (K // ROWS) * CB + tl.arange(0, CB)
    strips = OH // R
    inside = c < C
    x += v * B * H * W * C
    above += v * B * OH * OW * C
    sums = ()
    for _ in tl.static_range(ROWS * K):
        sums = sums + (tl.zeros((G, CB), tl.float32),)  # noqa: RUF005
    for time in range(TIMES):
        g = (block * TIMES + time) * G + tl.arange(0, G)
        column, top, n = g % OW, (g // OW) % strips * R, g // (OW * strips)
        there = g < B * strips * OW
        both = there[:, None] & inside[None, :]
        at = (n * H * W)[:, None] * C + c[None, :]
        given = ((n * OH + top) * OW + column)[:, None] * C + c[None, :]
        more = ()
        for kx in tl.static_range(K):
            ix = column * S + (kx - K // 2)
            seen = there & (ix >= 0) & (ix < W)
            for j in tl.static_range(ROWS):
                acc = sums[kx * ROWS + j]
                for r in tl.static_range(R):
                    iy = top * S + part + (r * S + j - K // 2)
                    here = (seen & (iy >= 0) & (iy < H))[:, None] & inside[None, :]
                    value = tl.load(x + at + ((iy * W + ix) * C)[:, None], mask=here, other=0.0).to(tl.float32)
                    acc += value * tl.load(above + given + r * OW * C, mask=both, other=0.0).to(tl.float32)
                more = more + (acc,)  # noqa: RUF005
        sums = more
    left = partial + ((v * tl.num_programs(1) + block) * K * K + part * K) * C + c
    for kx in tl.static_range(K):
        for j in tl.static_range(ROWS):
            tl.store(left + (j * K + kx) * C, tl.sum(sums[kx * ROWS + j], axis=0), mask=inside)


@triton.jit(do_not_specialize=SIZES)
def _add_up(partial, out, C8, BLOCKS, UNIT: tl.constexpr, KK: tl.constexpr, MANY: tl.constexpr, CB: tl.constexpr):
    """(V, blocks, K K, C) -> (V, C, K K)."""
    tap, v = tl.program_id(1), tl.program_id(2).to(tl.int64)
    C = C8 * UNIT
    c, many = tl.program_id(0) * CB + tl.arange(0, CB), tl.arange(0, MANY)
    inside = c < C
    total = tl.zeros((MANY, CB), tl.float32)
    for start in range(0, BLOCKS, MANY):
        block = start + many
        here = partial + ((v * BLOCKS + block) * KK + tap)[:, None] * C + c[None, :]
        total += tl.load(here, mask=(block < BLOCKS)[:, None] & inside[None, :], other=0.0)
    tl.store(out + (v * C + c) * KK + tap, tl.sum(total, axis=0), mask=inside)


def _warps(block: int) -> int:
    """So that a block's weights are fewer than the threads, each of which then reads its own."""
    return 8 if block == 128 else 4


def _strip(height: int, most: int = 4) -> int:
    """How many pixels one below another, so that strips fill the height."""
    return next(r for r in (4, 2, 1) if r <= most and height % r == 0)


def convolved(maps: Tensor, taps: Tensor, stride: int, *, stats: bool) -> tuple[Tensor, Tensor, int]:
    """Maps (V, B, H, W, C) with taps (V, K K, C): the maps, their partial statistics and how many rows each has."""
    v, b, h, w, c = maps.shape
    kernel = round(taps.shape[1] ** 0.5)
    oh, ow = (h - 1) // stride + 1, (w - 1) // stride + 1
    out = maps.new_empty((v, b, oh, ow, c))
    partial, rows = _convolved(maps, taps, out, stride, kernel, flip=False, stats=stats)
    return out, partial, rows


def _convolved(
    maps: Tensor, taps: Tensor, out: Tensor, stride: int, kernel: int, *, flip: bool, stats: bool
) -> tuple[Tensor, int]:
    v, b, h, w, c = maps.shape
    oh, ow = out.shape[2:4]
    cb, unit, strip = block_of(c), unit_of(c), _strip(oh)
    g = _warps(cb) * 256 // cb
    blocks = triton.cdiv(b * (oh // strip) * ow, g)
    partial = torch.empty((v, blocks, 2, c) if stats else (1,), dtype=torch.float32, device=maps.device)
    _convolve[(triton.cdiv(c, cb), blocks, v)](
        maps, taps, out, partial, b, h, w, oh, ow, c // unit,
        UNIT=unit, K=kernel, S=stride, R=strip, FLIP=flip, STATS=stats, G=g, CB=cb, num_warps=_warps(cb),
    )  # fmt: skip
    return partial, g * strip


def towards_maps(above: Tensor, taps: Tensor, stride: int, height: int, width: int) -> Tensor:
    """The gradient of the maps (V, B, H, W, C), of that of `convolved`, (V, B, H', W', C)."""
    v, b, oh, ow, c = above.shape
    kernel = round(taps.shape[1] ** 0.5)
    out = above.new_empty((v, b, height, width, c))
    if stride == 1:
        _convolved(above, taps, out, 1, kernel, flip=True, stats=False)
        return out
    cb, unit = block_of(c), unit_of(c)
    g = _warps(cb) * 256 // cb
    blocks = triton.cdiv(b * ((height + 1) // 2) * ((width + 1) // 2), g)
    _spread[(triton.cdiv(c, cb), blocks, v)](
        above, taps, out, b, height, width, oh, ow, c // unit,
        UNIT=unit, K=kernel, G=g, CB=cb, num_warps=_warps(cb),
    )  # fmt: skip
    return out


def towards_weights(maps: Tensor, above: Tensor, kernel: int, stride: int) -> Tensor:
    """The gradient of the weights, (V, C, K, K), float32."""
    v, b, h, w, c = maps.shape
    oh, ow = above.shape[2:4]
    cb, unit, strip, rows = block_of(c), unit_of(c), _strip(oh, 2), 3 if kernel == 3 else 1
    g, across = _warps(cb) * 256 // cb, triton.cdiv(c, cb) * (kernel // rows)
    most = triton.cdiv(b * (oh // strip) * ow, g)
    times = triton.cdiv(most, min(most, max(1, PROGRAMS // (v * across))))
    blocks = triton.cdiv(most, times)
    partial = torch.empty((v, blocks, kernel * kernel, c), dtype=torch.float32, device=maps.device)
    _weigh[(across, blocks, v)](
        maps, above, partial, b, h, w, oh, ow, c // unit, times,
        UNIT=unit, K=kernel, S=stride, R=strip, ROWS=rows, G=g, CB=cb, num_warps=_warps(cb),
    )  # fmt: skip
    out = torch.empty((v, c, kernel, kernel), dtype=torch.float32, device=maps.device)
    _add_up[(triton.cdiv(c, 32), kernel * kernel, v)](
        partial, out, c // unit, blocks, UNIT=unit, KK=kernel * kernel, MANY=32, CB=32
    )
    return out
