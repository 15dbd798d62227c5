"""The Triton kernels of attention among at most 128 tokens: one program a sample and head, nothing is kept between."""

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _odds(q, k, t, scale, T, PRECISION: tl.constexpr):
    """The softmax over keys of q k^T (T, T)."""
    score = tl.dot(q, tl.trans(k), input_precision=PRECISION) * scale
    score = tl.where((t < T)[None, :], score, -float("inf"))
    odds = tl.exp(score - tl.max(score, axis=1)[:, None])
    return odds / tl.sum(odds, axis=1)[:, None]


@triton.jit
def _forward(qkv, out, scale, T, HEADS, D: tl.constexpr, BLOCK: tl.constexpr, PRECISION: tl.constexpr):
    n, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    t, d = tl.arange(0, BLOCK), tl.arange(0, D)
    here = (t < T)[:, None]
    at = qkv + n * T * 3 * HEADS * D + t[:, None] * 3 * HEADS * D + head * D + d[None, :]
    q = tl.load(at, mask=here, other=0.0)
    k = tl.load(at + HEADS * D, mask=here, other=0.0)
    v = tl.load(at + 2 * HEADS * D, mask=here, other=0.0)
    mixed = tl.dot(_odds(q, k, t, scale, T, PRECISION).to(v.dtype), v, input_precision=PRECISION)
    tl.store(
        out + n * T * HEADS * D + t[:, None] * HEADS * D + head * D + d[None, :],
        mixed.to(out.dtype.element_ty),
        mask=here,
    )


@triton.jit
def _backward(above, qkv, out, scale, T, HEADS, D: tl.constexpr, BLOCK: tl.constexpr, PRECISION: tl.constexpr):
    n, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    t, d = tl.arange(0, BLOCK), tl.arange(0, D)
    here = (t < T)[:, None]
    at = n * T * 3 * HEADS * D + t[:, None] * 3 * HEADS * D + head * D + d[None, :]
    q = tl.load(qkv + at, mask=here, other=0.0)
    k = tl.load(qkv + at + HEADS * D, mask=here, other=0.0)
    v = tl.load(qkv + at + 2 * HEADS * D, mask=here, other=0.0)
    g = tl.load(above + n * T * HEADS * D + t[:, None] * HEADS * D + head * D + d[None, :], mask=here, other=0.0)
    odds = _odds(q, k, t, scale, T, PRECISION)
    back = tl.dot(g, tl.trans(v), input_precision=PRECISION)
    tl.store(
        out + at + 2 * HEADS * D,
        tl.dot(tl.trans(odds.to(g.dtype)), g, input_precision=PRECISION).to(out.dtype.element_ty), mask=here,
    )  # fmt: skip
    back = (odds * (back - tl.sum(odds * back, axis=1)[:, None]) * scale).to(q.dtype)
    tl.store(out + at, tl.dot(back, k, input_precision=PRECISION).to(out.dtype.element_ty), mask=here)
    tl.store(
        out + at + HEADS * D, tl.dot(tl.trans(back), q, input_precision=PRECISION).to(out.dtype.element_ty), mask=here
    )


def _options(qkv: Tensor) -> dict[str, object]:
    exact = qkv.dtype == torch.float32
    block = max(16, triton.next_power_of_2(qkv.shape[1]))
    return {"D": qkv.shape[-1], "BLOCK": block, "PRECISION": "ieee" if exact else "tf32", "num_warps": 8}


def forward(qkv: Tensor) -> Tensor:
    """(N, T, 3, heads, d) -> (N, T, heads, d)."""
    n, t, _, heads, d = qkv.shape
    out = torch.empty((n, t, heads, d), dtype=qkv.dtype, device=qkv.device)
    _forward[(n, heads)](qkv, out, d**-0.5, t, heads, **_options(qkv))
    return out


def backward(above: Tensor, qkv: Tensor) -> Tensor:
    """The gradient of `qkv`."""
    n, t, _, heads, d = qkv.shape
    out = torch.empty_like(qkv)
    _backward[(n, heads)](above, qkv, out, d**-0.5, t, heads, **_options(qkv))
    return out
