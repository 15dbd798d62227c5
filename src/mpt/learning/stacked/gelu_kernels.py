"""The Triton kernel of a GELU behind a bias, with its derivative, so that the error function is computed once."""

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 2048


@triton.jit
def _gelu(rows, bias, out, slope, N, D, BLOCK: tl.constexpr):
    v = tl.program_id(1).to(tl.int64)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    here = at < N * D
    x = tl.load(rows + v * N * D + at, mask=here, other=0.0).to(tl.float32)
    x += tl.load(bias + v * D + at % D, mask=here, other=0.0)
    below = 0.5 * (1 + tl.erf(x * 0.7071067811865476))
    tl.store(out + v * N * D + at, (x * below).to(out.dtype.element_ty), mask=here)
    density = 0.3989422804014327 * tl.exp(-0.5 * x * x)
    tl.store(slope + v * N * D + at, (below + x * density).to(slope.dtype.element_ty), mask=here)


def forward(rows: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """Rows (V, N, d) and bias (V, d) -> GELU of their sum, and its derivative."""
    v, n, d = rows.shape
    out, slope = torch.empty_like(rows), torch.empty_like(rows)
    _gelu[(triton.cdiv(n * d, BLOCK), v)](rows, bias, out, slope, n, d, BLOCK=BLOCK, num_warps=8)
    return out, slope
