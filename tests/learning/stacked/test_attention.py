"""A transformer's block for several models, and its attention by kernels of our own."""

import os

import pytest

torch = pytest.importorskip("torch")

from mpt.learning.backbones.vit_tiny import Block, SelfAttention
from mpt.learning.randomness import isolated
from mpt.learning.stacked.attention import TallBlock
from mpt.learning.stacked.networks import Tall

V = 3


def drawn(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def by_torch(qkv, bias):
    """Each vehicle's samples with its own bias."""
    return SelfAttention()((torch.unflatten(qkv, 0, (V, -1)) + bias[:, None, None]).flatten(0, 1))


def compared(qkv, bias):
    """The kernels with what torch does in float32, and their gradients."""
    exact = qkv.detach().float().requires_grad_()
    expected, found = by_torch(exact, bias), torch.ops.mpt.attention(qkv, bias)
    above = drawn(2, *expected.shape).to(qkv.device)
    yield found, expected
    yield from zip(
        torch.autograd.grad(found, (qkv, bias), above.to(qkv.dtype)),
        torch.autograd.grad(expected, (exact, bias), above),
        strict=True,
    )


@pytest.mark.slow
@pytest.mark.parametrize(("tokens", "samples"), [(5, 2), (17, 2), (20, 1), (65, 1)])
def test_the_kernels_give_what_torch_gives(tokens, samples):
    if os.environ.get("TRITON_INTERPRET") != "1":
        pytest.skip("there is a CUDA device: the kernels run there")
    pytest.importorskip("triton", reason="Triton is not installed")
    qkv, bias = drawn(0, V * samples, tokens, 3, 2, 16).requires_grad_(), drawn(1, V, 3, 2, 16).requires_grad_()
    for found, expected in compared(qkv, bias):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=3e-5)


def blocks():
    with isolated(0):
        return [Block() for _ in range(V)]


def tall_block(ones):
    """Of each its own bias."""
    tall = Tall(ones[0], V)
    for place, one in enumerate(ones):
        with torch.no_grad():
            one.qkv.bias.copy_(drawn(place, *one.qkv.bias.shape))
        tall.load(one.state_dict(), place)
    return tall.network


def test_a_tall_block_is_its_blocks():
    ones = blocks()
    tall = tall_block(ones)
    assert type(tall) is TallBlock
    tokens = drawn(V, V, 2, 7, 192)
    found = torch.unflatten(tall(tokens.flatten(0, 1)), 0, (V, -1))
    for mine, one, given in zip(found, ones, tokens, strict=True):
        torch.testing.assert_close(mine, one(given), rtol=1e-4, atol=1e-5)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
@pytest.mark.parametrize("tokens", [50, 65, 100])
def test_on_a_gpu_it_is_torchs_to_rounding(tokens):
    qkv = drawn(0, 4 * V, tokens, 3, 3, 64).cuda().bfloat16().requires_grad_()
    for found, expected in compared(qkv, drawn(1, V, 3, 3, 64).cuda().requires_grad_()):
        assert (found.float() - expected).norm() < 0.01 * expected.norm()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
def test_on_a_gpu_a_tall_block_is_the_cpus_to_rounding():
    block = tall_block(blocks())
    tokens, results = drawn(0, 2 * V, 65, 192), []
    for device in ("cpu", "cuda"):
        block.to(device)
        with torch.autocast("cuda", torch.bfloat16):
            out = block(tokens.to(device))
        (gradient,) = torch.autograd.grad((out * drawn(1, *tokens.shape).to(device)).sum(), block.qkv.bias)
        results.append((out.float().cpu(), gradient.cpu()))
    for exact, found in zip(*results, strict=True):
        assert (found - exact).norm() < 0.02 * exact.norm()
