"""The Triton kernels of one training step of many three-layer CNNs side by side.

Every array starts with the vehicle: activations are (V, B, H, W, C), rows of a vehicle's (B, H, W) are counted through.
Of a batch of B the first `size` samples are there; the rest are zeros and take part in nothing. `sizes` and `indices`
hold all steps of a round; the number of the current step is on the device, so that one CUDA graph serves all of them.
Sums over rows are made in a fixed order (partial sums of blocks, added up by one program): the same input gives the
same output, bit by bit.
"""

import triton
import triton.language as tl

EPS = tl.constexpr(1e-5)


@triton.jit
def patches(
    images, indices, flips, shifts, sizes, step, out,
    V, B, H: tl.constexpr, W: tl.constexpr, C: tl.constexpr, K: tl.constexpr,
    FLIP: tl.constexpr, SHIFT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The 3x3 neighbourhood of every pixel, normalised: uint8 (N, H, W, C) -> (V, B, H, W, K), zeros past 9 C."""
    v = tl.program_id(1)
    now = tl.load(step).to(tl.int64) * V + v
    size = tl.load(sizes + now)
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = rows < size * (H * W)
    b, y, x = rows // (H * W), (rows // W) % H, rows % W
    sample = tl.load(indices + now * B + b, mask=there, other=0).to(tl.int64)
    k = tl.arange(0, K)
    yy = y[:, None] + (k // (3 * C))[None, :] - 1
    xx = x[:, None] + ((k // C) % 3)[None, :] - 1
    inside = there[:, None] & (k < 9 * C)[None, :] & (yy >= 0) & (yy < H) & (xx >= 0) & (xx < W)
    if FLIP:
        flip = tl.load(flips + now * B + b, mask=there, other=0)
        xx = tl.where(flip[:, None] != 0, W - 1 - xx, xx)
    if SHIFT:
        down = tl.load(shifts + (now * B + b) * 2, mask=there, other=0).to(tl.int32)
        right = tl.load(shifts + (now * B + b) * 2 + 1, mask=there, other=0).to(tl.int32)
        yy = tl.minimum(tl.maximum(yy + down[:, None], 0), H - 1)
        xx = tl.minimum(tl.maximum(xx + right[:, None], 0), W - 1)
    value = tl.load(images + sample[:, None] * (H * W * C) + (yy * W + xx) * C + (k % C)[None, :], mask=inside, other=0)
    value = tl.where(inside, value.to(tl.float32) / 63.75 - 2.0, 0.0)
    target = out + v.to(tl.int64) * B * H * W * K + rows[:, None] * K + k[None, :]
    tl.store(target, value.to(out.dtype.element_ty), mask=(rows < B * H * W)[:, None])


@triton.jit
def convolve(
    x, weights, y, partial, sizes, step,
    V, B, stride, H: tl.constexpr, W: tl.constexpr, CI: tl.constexpr, CO: tl.constexpr, TAPS: tl.constexpr,
    BACK: tl.constexpr, STATS: tl.constexpr, PRECISION: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Each vehicle's images with its own weights: (V, B, H, W, CI) -> (V, B, H, W, CO), 3x3 or, with one tap, 1x1.

    `weights` is (TAPS, CI, CO) a vehicle; with BACK it is that of the forward pass, (TAPS, CO, CI), and the result the
    gradient with respect to its input. With STATS every block leaves its channels' sums and squares about its means in
    `partial` (V, blocks, 2, CO).
    """
    v, block = tl.program_id(1).to(tl.int64), tl.program_id(0)
    size = tl.load(sizes + tl.load(step).to(tl.int64) * V + v)
    rows = block * BLOCK + tl.arange(0, BLOCK)
    there = rows < size * (H * W)
    row, column = (rows // W) % H, rows % W
    ci, co = tl.arange(0, CI), tl.arange(0, CO)
    x += v * B * H * W * CI
    weights += v * stride
    acc = tl.zeros((BLOCK, CO), tl.float32)
    for tap in range(TAPS):
        down, right = (tap // 3 - 1, tap % 3 - 1) if TAPS == 9 else (0, 0)
        seen = there & (row + down >= 0) & (row + down < H) & (column + right >= 0) & (column + right < W)
        pixel = tl.load(x + (rows + down * W + right)[:, None] * CI + ci[None, :], mask=seen[:, None], other=0.0)
        if BACK:
            weight = tl.load(weights + (TAPS - 1 - tap) * CI * CO + co[None, :] * CI + ci[:, None])
        else:
            weight = tl.load(weights + tap * CI * CO + ci[:, None] * CO + co[None, :])
        acc = tl.dot(pixel, weight, acc, input_precision=PRECISION)
    target = y + v * B * H * W * CO + rows[:, None] * CO + co[None, :]
    tl.store(target, acc.to(y.dtype.element_ty), mask=(rows < B * H * W)[:, None])
    if STATS:
        count = tl.sum(there.to(tl.float32), axis=0)
        total = tl.sum(acc, axis=0)
        apart = tl.where(there[:, None], acc - (total / tl.maximum(count, 1.0))[None, :], 0.0)
        here = partial + (v * tl.num_programs(0) + block) * 2 * CO
        tl.store(here + co, total)
        tl.store(here + CO + co, tl.sum(apart * apart, axis=0))


@triton.jit
def finish_statistics(
    partial, moments, running, sizes, step, V, blocks, stride,
    HW: tl.constexpr, CO: tl.constexpr, BLOCK: tl.constexpr, MANY: tl.constexpr,
):  # fmt: skip
    """BatchNorm's mean and 1 / deviation (V, 2, CO) from the blocks' partial sums, and the running ones moved on."""
    v = tl.program_id(0).to(tl.int64)
    size = tl.load(sizes + tl.load(step).to(tl.int64) * V + v)
    samples = (size * HW).to(tl.float32)
    co, many = tl.arange(0, CO), tl.arange(0, MANY)
    partial += v * blocks * 2 * CO
    total = tl.zeros((CO,), tl.float32)
    for start in range(0, blocks, MANY):
        block = start + many
        here = partial + block[:, None] * 2 * CO + co[None, :]
        total += tl.sum(tl.load(here, mask=(block < blocks)[:, None], other=0.0), axis=0)
    mean = total / samples
    spread = tl.zeros((CO,), tl.float32)
    for start in range(0, blocks, MANY):
        block = start + many
        count = tl.minimum(tl.maximum(size * HW - block * BLOCK, 0), BLOCK).to(tl.float32)[:, None]
        here = partial + block[:, None] * 2 * CO + co[None, :]
        sums = tl.load(here, mask=(block < blocks)[:, None], other=0.0)
        squares = tl.load(here + CO, mask=(block < blocks)[:, None], other=0.0)
        apart = sums / tl.maximum(count, 1.0) - mean[None, :]
        spread += tl.sum(tl.where(count > 0, squares + count * apart * apart, 0.0), axis=0)
    tl.store(moments + v * 2 * CO + co, mean)
    tl.store(moments + v * 2 * CO + CO + co, 1.0 / tl.sqrt_rn(spread / samples + EPS))
    past = running + v * stride + co
    tl.store(past, 0.9 * tl.load(past) + 0.1 * mean)
    tl.store(past + CO, 0.9 * tl.load(past + CO) + 0.1 * (spread / (samples - 1.0)))


@triton.jit
def _channels(moments, affine, v, stride, c, C: tl.constexpr, NORM: tl.constexpr):
    """Mean, 1 / deviation, gamma and beta of a vehicle's channels; without NORM 0, 1, 1 and the bias."""
    affine += v * stride
    if NORM:
        moments += v * 2 * C
        return tl.load(moments + c), tl.load(moments + C + c), tl.load(affine + c), tl.load(affine + C + c)
    zero = tl.zeros((C,), tl.float32)
    return zero, zero + 1.0, zero + 1.0, tl.load(affine + c)


@triton.jit
def _window(rows, i: tl.constexpr, H: tl.constexpr, W: tl.constexpr):
    """The full-size row of corner `i` of a 2x2 window, given the rows of the pooled map."""
    half: tl.constexpr = W // 2
    b, y, x = rows // (H // 2 * half), (rows // half) % (H // 2), rows % half
    return (b * H + 2 * y + i // 2) * W + 2 * x + i % 2


@triton.jit
def activate_pool(
    y, moments, affine, out, sizes, step, V, B, stride,
    H: tl.constexpr, W: tl.constexpr, C: tl.constexpr, NORM: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """BatchNorm, ReLU and 2x2 max-pooling: (V, B, H, W, C) -> (V, B, H / 2, W / 2, C)."""
    v = tl.program_id(1).to(tl.int64)
    size = tl.load(sizes + tl.load(step).to(tl.int64) * V + v)
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    c = tl.arange(0, C)
    there = (rows < size * (H * W // 4))[:, None]
    mean, scale, gamma, beta = _channels(moments, affine, v, stride, c, C, NORM)
    y += v * B * H * W * C
    best = tl.zeros((BLOCK, C), tl.float32)
    for i in tl.static_range(4):
        value = tl.load(y + _window(rows, i, H, W)[:, None] * C + c[None, :], mask=there, other=0.0).to(tl.float32)
        best = tl.maximum(best, (value - mean[None, :]) * (scale * gamma)[None, :] + beta[None, :])
    target = out + v * B * (H * W // 4) * C + rows[:, None] * C + c[None, :]
    tl.store(target, tl.where(there, best, 0.0).to(out.dtype.element_ty), mask=(rows < B * (H * W // 4))[:, None])


@triton.jit
def activate_mean(
    y, moments, affine, out, sizes, step, V, B, stride,
    H: tl.constexpr, W: tl.constexpr, C: tl.constexpr, GRID: tl.constexpr, NORM: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """BatchNorm, ReLU and the means over the cells of a grid: (V, B, H, W, C) -> (V, B, GRID, GRID, C).

    One program a vehicle, sample and cell; with a GRID of 1 it is the mean over the map.
    """
    v, b, cell = tl.program_id(1).to(tl.int64), tl.program_id(0) // (GRID * GRID), tl.program_id(0) % (GRID * GRID)
    high: tl.constexpr = H // GRID
    wide: tl.constexpr = W // GRID
    size = tl.load(sizes + tl.load(step).to(tl.int64) * V + v)
    c, part = tl.arange(0, C), tl.arange(0, BLOCK)
    mean, scale, gamma, beta = _channels(moments, affine, v, stride, c, C, NORM)
    y += (v * B + b) * (H * W * C)
    total = tl.zeros((C,), tl.float32)
    for start in range(0, high * wide, BLOCK):
        there = ((start + part < high * wide) & (b < size))[:, None]
        row, column = cell // GRID * high + (start + part) // wide, cell % GRID * wide + (start + part) % wide
        value = tl.load(y + (row * W + column)[:, None] * C + c[None, :], mask=there, other=0.0).to(tl.float32)
        active = tl.maximum((value - mean[None, :]) * (scale * gamma)[None, :] + beta[None, :], 0.0)
        total += tl.sum(tl.where(there, active, 0.0), axis=0)
    target = out + ((v * B + b) * (GRID * GRID) + cell) * C + c
    tl.store(target, (total / (high * wide)).to(out.dtype.element_ty))


@triton.jit
def multiply(
    left, right, bias, out, left_v, left_m, left_k, right_v, right_k, right_n, out_v, out_m,
    M, N: tl.constexpr, K: tl.constexpr, ACTIVE: tl.constexpr, PRECISION: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Each vehicle's product (M, K) x (K, N) of arrays with any strides; ACTIVE: a bias is added and ReLU applied."""
    v = tl.program_id(2).to(tl.int64)
    m, n = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M), tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    left += v * left_v
    right += v * right_v
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K):
        inside = start + k < K
        a = tl.load(
            left + m[:, None] * left_m + (start + k)[None, :] * left_k,
            mask=(m < M)[:, None] & inside[None, :], other=0.0,
        )  # fmt: skip
        b = tl.load(right + (start + k)[:, None] * right_k + n[None, :] * right_n, mask=inside[:, None], other=0.0)
        acc = tl.dot(a, b, acc, input_precision=PRECISION)
    if ACTIVE:
        acc = tl.maximum(acc + tl.load(bias + v * right_v + n)[None, :], 0.0)
    tl.store(out + v * out_v + m[:, None] * out_m + n[None, :], acc.to(out.dtype.element_ty), mask=(m < M)[:, None])


@triton.jit
def embedding_back(features, above, out, gradients, B, gradient_stride, D: tl.constexpr, BLOCK: tl.constexpr):
    """Back through the embedding layer's ReLU: the gradient (V, B, D) of what it got, and that of its bias (D,)."""
    v = tl.program_id(0).to(tl.int64)
    b, d = tl.arange(0, BLOCK), tl.arange(0, D)
    here = (v * B + b)[:, None] * D + d[None, :]
    there = (b < B)[:, None]
    active = tl.load(features + here, mask=there, other=0.0) > 0.0
    gradient = tl.where(active, tl.load(above + here, mask=there, other=0.0), 0.0)
    tl.store(out + here, gradient.to(out.dtype.element_ty), mask=there)
    tl.store(gradients + v * gradient_stride + d, tl.sum(gradient, axis=0))


@triton.jit
def classify(
    features, labels, shift, weights, gradients, back, indices, sizes, step,
    V, B, stride, gradient_stride, classes,
    D: tl.constexpr, C: tl.constexpr, BLOCK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The head and its cross-entropy, forwards and backwards: one program a vehicle.

    `weights` is (classes, D), then (classes,) the bias; their gradients go where they lie in `gradients`, that of the
    features (V, B, D) to `back`. `shift` (V, classes) is taken off the logits (FedLC).
    """
    v = tl.program_id(0).to(tl.int64)
    now = tl.load(step).to(tl.int64) * V + v
    size = tl.load(sizes + now)
    b, c, d = tl.arange(0, BLOCK), tl.arange(0, C), tl.arange(0, D)
    there, known = b < size, c < classes
    sample = tl.load(indices + now * B + b, mask=there, other=0)
    label = tl.load(labels + sample, mask=there, other=-1).to(tl.int32)
    feature = tl.load(features + (v * B + b)[:, None] * D + d[None, :], mask=there[:, None], other=0.0)
    weights += v * stride
    weight = tl.load(weights + c[:, None] * D + d[None, :], mask=known[:, None], other=0.0)
    bias = tl.load(weights + classes * D + c, mask=known, other=0.0)
    bias -= tl.load(shift + v * classes + c, mask=known, other=0.0)
    logits = tl.dot(feature, tl.trans(weight), input_precision=PRECISION) + bias[None, :]
    logits = tl.where(known[None, :], logits, -float("inf"))
    odds = tl.exp(logits - tl.max(logits, axis=1)[:, None])
    chance = odds / tl.sum(odds, axis=1)[:, None]
    wrong = tl.where(there[:, None], (chance - (c[None, :] == label[:, None])) / size, 0.0)
    gradient = tl.dot(wrong, weight, input_precision=PRECISION)
    tl.store(back + (v * B + b)[:, None] * D + d[None, :], gradient, mask=(b < B)[:, None])
    gradients += v * gradient_stride
    outer = tl.dot(tl.trans(wrong), feature, input_precision=PRECISION)
    tl.store(gradients + c[:, None] * D + d[None, :], outer, mask=known[:, None])
    tl.store(gradients + classes * D + c, tl.sum(wrong, axis=0), mask=known)


@triton.jit
def activate_back(
    y, moments, affine, above, partial, means, out, sizes, step, V, B, stride,
    H: tl.constexpr, W: tl.constexpr, C: tl.constexpr, POOL: tl.constexpr, GRID: tl.constexpr,
    NORM: tl.constexpr, WRITE: tl.constexpr, SUMS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Back through pooling (2x2 maximum, or the means of a grid's cells), ReLU and BatchNorm.

    `above` is the gradient of what came out: (V, B, H / 2, W / 2, C), or (V, B, GRID, GRID, C). With SUMS, a block leaves
    the sums over its rows of dz and dz x^ in `partial` (V, blocks, 2, C); with WRITE, their `means` (V, 2, C) are at hand
    where there is BatchNorm and the gradient of what it got goes to `out` (V, B, H, W, C).
    """
    v, block = tl.program_id(1).to(tl.int64), tl.program_id(0)
    size = tl.load(sizes + tl.load(step).to(tl.int64) * V + v)
    inner: tl.constexpr = H * W // 4 if POOL else H * W
    rows = block * BLOCK + tl.arange(0, BLOCK)
    c = tl.arange(0, C)
    there = (rows < size * inner)[:, None]
    mean, scale, gamma, beta = _channels(moments, affine, v, stride, c, C, NORM)
    y += v * B * H * W * C
    if POOL:
        incoming = tl.load(above + (v * B * inner + rows)[:, None] * C + c[None, :], mask=there, other=0.0)
        incoming = incoming.to(tl.float32)
        best, winner = tl.zeros((BLOCK, C), tl.float32), tl.full((BLOCK, C), -1, tl.int32)
        chosen = tl.zeros((BLOCK, C), tl.float32)
        for i in tl.static_range(4):
            value = tl.load(y + _window(rows, i, H, W)[:, None] * C + c[None, :], mask=there, other=0.0)
            unit = (value.to(tl.float32) - mean[None, :]) * scale[None, :]
            active = unit * gamma[None, :] + beta[None, :]
            better = active > best
            best = tl.where(better, active, best)
            chosen = tl.where(better, unit, chosen)
            winner = tl.where(better, i, winner)
    else:
        cell = (rows // W) % H // (H // GRID) * GRID + rows % W // (W // GRID)
        source = (v * B + rows // inner) * (GRID * GRID) + cell
        incoming = tl.load(above + source[:, None] * C + c[None, :], mask=there, other=0.0).to(tl.float32)
        incoming = incoming / (inner // (GRID * GRID))
        value = tl.load(y + rows[:, None] * C + c[None, :], mask=there, other=0.0)
        chosen = (value.to(tl.float32) - mean[None, :]) * scale[None, :]
        winner = tl.where(chosen * gamma[None, :] + beta[None, :] > 0.0, 0, -1)
    if WRITE:
        out += v * B * H * W * C
        whole = (rows < B * inner)[:, None]
        for i in tl.static_range(4 if POOL else 1):
            at = _window(rows, i, H, W) if POOL else rows
            gradient = tl.where(winner == i, incoming, 0.0)
            if NORM:
                first, second = tl.load(means + v * 2 * C + c), tl.load(means + v * 2 * C + C + c)
                unit = chosen
                if POOL:
                    value = tl.load(y + at[:, None] * C + c[None, :], mask=there, other=0.0)
                    unit = (value.to(tl.float32) - mean[None, :]) * scale[None, :]
                gradient = (gradient - first[None, :] - unit * second[None, :]) * (gamma * scale)[None, :]
            gradient = tl.where(there, gradient, 0.0)
            tl.store(out + at[:, None] * C + c[None, :], gradient.to(out.dtype.element_ty), mask=whole)
    if SUMS:
        passed = tl.where(winner >= 0, incoming, 0.0)
        here = partial + (v * tl.num_programs(0) + block) * 2 * C
        tl.store(here + c, tl.sum(passed, axis=0))
        tl.store(here + C + c, tl.sum(passed * chosen, axis=0))


@triton.jit
def finish_back(
    partial, means, gradients, sizes, step, V, blocks, gradient_stride,
    HW: tl.constexpr, C: tl.constexpr, NORM: tl.constexpr, MANY: tl.constexpr,
):  # fmt: skip
    """The sums of `activate_back` over all blocks: gradients of gamma and beta, and the means (V, 2, C); or the bias's."""
    v = tl.program_id(0).to(tl.int64)
    samples = (tl.load(sizes + tl.load(step).to(tl.int64) * V + v) * HW).to(tl.float32)
    c, many = tl.arange(0, C), tl.arange(0, MANY)
    partial += v * blocks * 2 * C
    first, second = tl.zeros((C,), tl.float32), tl.zeros((C,), tl.float32)
    for start in range(0, blocks, MANY):
        here = partial + (start + many)[:, None] * 2 * C + c[None, :]
        there = (start + many < blocks)[:, None]
        first += tl.sum(tl.load(here, mask=there, other=0.0), axis=0)
        second += tl.sum(tl.load(here + C, mask=there, other=0.0), axis=0)
    gradients += v * gradient_stride
    if NORM:
        tl.store(means + v * 2 * C + c, first / samples)
        tl.store(means + v * 2 * C + C + c, second / samples)
        tl.store(gradients + c, second)
        tl.store(gradients + C + c, first)
    else:
        tl.store(gradients + c, first)


@triton.jit
def weight_gradient(
    x, back, gradients, sizes, step,
    V, B, split_stride, gradient_stride, H: tl.constexpr, W: tl.constexpr, CI: tl.constexpr, CO: tl.constexpr,
    TAPS: tl.constexpr, PRECISION: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The gradient (TAPS, CI, CO) of a convolution's weights, one program a vehicle, tap and share of the rows."""
    tap, split, v = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    size = tl.load(sizes + tl.load(step).to(tl.int64) * V + v)
    total = size * (H * W)
    share = tl.cdiv(tl.cdiv(total, tl.num_programs(1)), BLOCK) * BLOCK
    down, right = (tap // 3 - 1, tap % 3 - 1) if TAPS == 9 else (0, 0)
    ci, co = tl.arange(0, CI), tl.arange(0, CO)
    x += v * B * H * W * CI
    back += v * B * H * W * CO
    acc = tl.zeros((CI, CO), tl.float32)
    for start in range(split * share, tl.minimum((split + 1) * share, total), BLOCK):
        rows = start + tl.arange(0, BLOCK)
        row, column = (rows // W) % H + down, rows % W + right
        there = rows < total
        seen = there & (row >= 0) & (row < H) & (column >= 0) & (column < W)
        pixel = tl.load(x + (rows + down * W + right)[:, None] * CI + ci[None, :], mask=seen[:, None], other=0.0)
        gradient = tl.load(back + rows[:, None] * CO + co[None, :], mask=there[:, None], other=0.0)
        acc = tl.dot(tl.trans(pixel), gradient, acc, input_precision=PRECISION)
    here = gradients + v * gradient_stride + split * split_stride + tap * CI * CO
    tl.store(here + ci[:, None] * CO + co[None, :], acc)


@triton.jit
def descend(
    parameters, velocities, gradients, copies, towards, rate,
    count, first, whole, first_splits, splits, momentum, decay, prox, gradient_stride,
    PROX: tl.constexpr, COPY: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """SGD with momentum and weight decay on flat parameters (V, P), gradients (V, first_splits, P).

    The gradients of the first parameters are the sum of all splits, those of the others of fewer, those from `whole` on
    are in the first. `rate` (1,) is the learning rate. With PROX the parameters are pulled to `towards` (V, P).
    """
    v = tl.program_id(1).to(tl.int64)
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = i < count
    value = tl.load(parameters + v * count + i, mask=there, other=0.0)
    gradient = decay * value
    if PROX:
        gradient += prox * (value - tl.load(towards + v * count + i, mask=there, other=0.0))
    for split in range(first_splits):
        part = there & ((i < first) | ((split < splits) & (i < whole)) | (split == 0))
        gradient += tl.load(gradients + v * gradient_stride + split * count + i, mask=part, other=0.0)
    velocity = momentum * tl.load(velocities + v * count + i, mask=there, other=0.0) + gradient
    value -= tl.load(rate) * velocity
    tl.store(velocities + v * count + i, velocity, mask=there)
    tl.store(parameters + v * count + i, value, mask=there)
    if COPY:
        tl.store(copies + v * count + i, value.to(copies.dtype.element_ty), mask=there)


@triton.jit
def next_step(step):
    """The next step."""
    tl.store(step, tl.load(step) + 1)
