"""The Triton kernels of attention among at most 128 tokens: one program a sample and head, nothing is kept between.

Tokens are a block of a power of two. Where there is one more, as a class token beside 64 patches makes it, the last is
no block of its own: it is kept as vectors, which are padded to 16 for products, of which but one row or column is not 0.

Of the bias, only the queries' is part of the scores, in products of its own. The keys' adds the same to all scores of a
query: the softmax does not see it, and its gradient is 0. The values' is added to what is mixed of them, for odds sum
up to 1, and its gradient is the sum of the gradient above.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

PRECISIONS = {torch.float32: "ieee"}
LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def _block(rows, t, d, T, step):
    """Tokens t: (t, d)."""
    return tl.load(rows + t[:, None] * step + d[None, :], mask=(t < T)[:, None], other=0.0)


@triton.jit
def _write(rows, x, t, d, T, step):
    tl.store(rows + t[:, None] * step + d[None, :], x, mask=(t < T)[:, None])


@triton.jit
def _dot(a, b, PRECISION: tl.constexpr):
    return tl.dot(a.to(b.dtype), b, input_precision=PRECISION)


@triton.jit
def _dots(a, b, c, d, PRECISION: tl.constexpr):
    """The sum of two products, a b + c d."""
    return tl.dot(c.to(d.dtype), d, _dot(a, b, PRECISION), input_precision=PRECISION)


@triton.jit
def _row(x, like):
    """(d,) -> (16, d)."""
    return tl.where((tl.arange(0, 16) == 0)[:, None], x[None, :], 0.0).to(like.dtype)


@triton.jit
def _column(x, like):
    """(t,) -> (t, 16)."""
    return tl.where((tl.arange(0, 16) == 0)[None, :], x[:, None], 0.0).to(like.dtype)


@triton.jit
def _vector(product):
    """(t, 16) -> (t,), of a product with what is padded."""
    return tl.sum(product, axis=1)


@triton.jit
def _odds(score, scale):
    """The softmax over keys (t, t)."""
    scale *= LOG2E
    odds = tl.exp2(score * scale - (tl.max(score, axis=1) * scale)[:, None])
    return odds * (1 / tl.sum(odds, axis=1))[:, None]


@triton.jit
def _odds_beside(score, score_1, scale):
    """The softmax over the block's keys (t, t) and the last (t,)."""
    scale *= LOG2E
    high = tl.maximum(tl.max(score, axis=1), score_1) * scale
    odds, odds_1 = tl.exp2(score * scale - high[:, None]), tl.exp2(score_1 * scale - high)
    share = 1 / (tl.sum(odds, axis=1) + odds_1)
    return odds * share[:, None], odds_1 * share


@triton.jit
def _odds_of_last(score, score_1, scale):
    """Likewise, of the last query: (t,) and a number."""
    scale *= LOG2E
    high = tl.maximum(tl.max(score, axis=0), score_1) * scale
    odds, odds_1 = tl.exp2(score * scale - high), tl.exp2(score_1 * scale - high)
    share = 1 / (tl.sum(odds, axis=0) + odds_1)
    return odds * share, odds_1 * share


@triton.jit
def _last(rows, bias, d, BLOCK: tl.constexpr, wide):
    """The last token's query, with the bias, key and value."""
    at = rows + BLOCK * 3 * wide + d
    q, k, v = tl.load(at), tl.load(at + wide), tl.load(at + 2 * wide)
    return q.to(tl.float32) + bias, k.to(tl.float32), v.to(tl.float32)


@triton.jit
def _attend(
    qkv, bias, out, scale, EACH, HEADS,
    T: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    n, wide = tl.program_id(0), HEADS * D
    t, d = tl.arange(0, BLOCK), tl.program_id(1) * D + tl.arange(0, D)
    qkv += n.to(tl.int64) * T * 3 * wide
    out += n.to(tl.int64) * T * wide
    bias += n // EACH * 3 * wide + d
    of_q, of_v = tl.load(bias).to(tl.float32), tl.load(bias + 2 * wide).to(tl.float32)
    q, k = _block(qkv, t, d, T, 3 * wide), _block(qkv + wide, t, d, T, 3 * wide)
    v = _block(qkv + 2 * wide, t, d, T, 3 * wide)
    b = tl.broadcast_to(of_q[None, :], (BLOCK, D))
    score = _dots(q, tl.trans(k), b, tl.trans(k), PRECISION)
    if T > BLOCK:
        q_1, k_1, v_1 = _last(qkv, of_q, d, BLOCK, wide)
        row_q, row_k = tl.trans(_row(q_1, q)), tl.trans(_row(k_1, k))
        odds, odds_1 = _odds_beside(score, _vector(_dots(q, row_k, b, row_k, PRECISION)), scale)
        last, last_1 = _odds_of_last(_vector(_dot(k, row_q, PRECISION)), tl.sum(q_1 * k_1, axis=0), scale)
        mixed = _dots(odds, v, _column(odds_1, v), _row(v_1, v), PRECISION)
        mixed_1 = _vector(_dot(tl.trans(v), _column(last, v), PRECISION)) + last_1 * v_1 + of_v
        tl.store(out + BLOCK * wide + d, mixed_1)
    else:
        mixed = _dot(_odds(tl.where((t < T)[None, :], score, -float("inf")), scale), v, PRECISION)
    _write(out, mixed + of_v[None, :], t, d, T, wide)


@triton.jit
def _attend_back(
    above, qkv, bias, out, sums, scale, EACH, HEADS,
    T: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    n, wide = tl.program_id(0), HEADS * D
    t, d = tl.arange(0, BLOCK), tl.program_id(1) * D + tl.arange(0, D)
    above += n.to(tl.int64) * T * wide
    qkv += n.to(tl.int64) * T * 3 * wide
    out += n.to(tl.int64) * T * 3 * wide
    sums += n.to(tl.int64) * 3 * wide + d
    of_q = tl.load(bias + n // EACH * 3 * wide + d).to(tl.float32)
    q, k = _block(qkv, t, d, T, 3 * wide), _block(qkv + wide, t, d, T, 3 * wide)
    v, g = _block(qkv + 2 * wide, t, d, T, 3 * wide), _block(above, t, d, T, wide)
    b = tl.broadcast_to(of_q[None, :], (BLOCK, D)).to(q.dtype)
    tl.store(sums + wide, tl.zeros((D,), tl.float32))
    sum_g = _vector(_dot(tl.trans(g), tl.full((BLOCK, 16), 1 / 16, tl.float32).to(g.dtype), PRECISION))
    score = _dots(q, tl.trans(k), b, tl.trans(k), PRECISION)
    if T > BLOCK:
        q_1, k_1, v_1 = _last(qkv, of_q, d, BLOCK, wide)
        g_1 = tl.load(above + BLOCK * wide + d).to(tl.float32)
        tl.store(sums + 2 * wide, sum_g + g_1)
        _back_beside(out, sums, score, q, k, v, g, b, q_1, k_1, v_1, g_1, t, d, scale, T, wide, BLOCK, PRECISION)
    else:
        tl.store(sums + 2 * wide, sum_g)
        odds = _odds(tl.where((t < T)[None, :], score, -float("inf")), scale)
        _write(out + 2 * wide, _dot(tl.trans(odds.to(g.dtype)), g, PRECISION), t, d, T, 3 * wide)
        back = _dot(g, tl.trans(v), PRECISION)
        s = (odds * (back - tl.sum(odds * back, axis=1)[:, None]) * scale).to(q.dtype)
        dq = _dot(s, k, PRECISION)
        _write(out, dq, t, d, T, 3 * wide)
        tl.store(sums, tl.sum(dq, axis=0))
        _write(out + wide, _dots(tl.trans(s), q, tl.trans(s), b, PRECISION), t, d, T, 3 * wide)


@triton.jit
def _back_beside(
    out, sums, score, q, k, v, g, b, q_1, k_1, v_1, g_1, t, d, scale, T, wide,
    BLOCK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """With the last token: `score`, later `s`, is of the block's queries and keys, `_1` of the last key, `last` of the
    last query, and `last_1` of both."""
    to = out + BLOCK * 3 * wide + d
    row_q, row_k, row_v, row_g = _row(q_1, q), _row(k_1, k), _row(v_1, v), _row(g_1, g)
    score_1 = _vector(_dots(q, tl.trans(row_k), b, tl.trans(row_k), PRECISION))
    odds, odds_1 = _odds_beside(score, score_1, scale)
    score_last = _vector(_dot(k, tl.trans(row_q), PRECISION))
    last, last_1 = _odds_of_last(score_last, tl.sum(q_1 * k_1, axis=0), scale)
    dv = _dots(tl.trans(odds.to(g.dtype)), g, _column(last, g), row_g, PRECISION)
    _write(out + 2 * wide, dv, t, d, T, 3 * wide)
    dv_1 = _vector(_dot(tl.trans(g), _column(odds_1, g), PRECISION)) + last_1 * g_1
    tl.store(to + 2 * wide, dv_1)
    back, back_1 = _dot(g, tl.trans(v), PRECISION), _vector(_dot(g, tl.trans(row_v), PRECISION))
    mean = (tl.sum(odds * back, axis=1) + odds_1 * back_1) * scale
    s, s_1 = (odds * (back * scale - mean[:, None])).to(q.dtype), _column(odds_1 * (back_1 * scale - mean), q)
    back, back_1 = _vector(_dot(v, tl.trans(row_g), PRECISION)), tl.sum(g_1 * v_1, axis=0)
    mean_last = (tl.sum(last * back, axis=0) + last_1 * back_1) * scale
    s_last, s_last_1 = _column(last * (back * scale - mean_last), q), last_1 * (back_1 * scale - mean_last)
    dq = _dots(s, k, s_1, row_k, PRECISION)
    _write(out, dq, t, d, T, 3 * wide)
    dq_1 = _vector(_dot(tl.trans(k), s_last, PRECISION)) + s_last_1 * k_1
    tl.store(to, dq_1)
    tl.store(sums, tl.sum(dq, axis=0) + dq_1)
    dk = tl.dot(s_last, row_q, _dots(tl.trans(s), q, tl.trans(s), b, PRECISION), input_precision=PRECISION)
    _write(out + wide, dk, t, d, T, 3 * wide)
    dk_1 = _vector(_dots(tl.trans(q), s_1, tl.trans(b), s_1, PRECISION)) + s_last_1 * q_1
    tl.store(to + wide, dk_1)


def _options(qkv: Tensor) -> dict[str, object]:
    tokens, width = qkv.shape[1], qkv.shape[-1]
    block = max(16, triton.next_power_of_2(tokens - 1))
    warps = {"num_warps": 4, "maxnreg": 128} if block <= 64 else {"num_warps": 8}
    return {"T": tokens, "D": width, "BLOCK": block, "PRECISION": PRECISIONS.get(qkv.dtype, "tf32")} | warps


def forward(qkv: Tensor, bias: Tensor) -> Tensor:
    """(N, T, 3, heads, d) and its bias (V, 3, heads, d) -> (N, T, heads, d)."""
    n, t, _, heads, d = qkv.shape
    out = torch.empty((n, t, heads, d), dtype=qkv.dtype, device=qkv.device)
    _attend[(n, heads)](qkv, bias, out, d**-0.5, n // len(bias), heads, **_options(qkv))
    return out


def backward(above: Tensor, qkv: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of `qkv` and, in float32, of `bias`."""
    n, _, _, heads, d = qkv.shape
    out = torch.empty_like(qkv)
    sums = torch.empty((n, 3, heads, d), dtype=torch.float32, device=qkv.device)
    _attend_back[(n, heads)](above, qkv, bias, out, sums, d**-0.5, n // len(bias), heads, **_options(qkv))
    return out, torch.unflatten(sums, 0, (len(bias), -1)).sum(dim=1)
