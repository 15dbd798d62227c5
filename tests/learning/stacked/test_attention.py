"""Attention by kernels of our own."""

import os

import pytest

torch = pytest.importorskip("torch")

from mpt.learning.backbones.vit_tiny import SelfAttention
from mpt.learning.stacked.attention import ShortAttention


def qkv(tokens):
    return torch.randn(3, tokens, 3, 2, 16, generator=torch.Generator().manual_seed(0), requires_grad=True)


@pytest.mark.slow
@pytest.mark.parametrize("tokens", [5, 17])
def test_the_kernels_give_what_torch_gives(tokens):
    if os.environ.get("TRITON_INTERPRET") != "1":
        pytest.skip("there is a CUDA device: the kernels run there")
    pytest.importorskip("triton", reason="Triton is not installed")
    from mpt.learning.stacked import attention_kernels as kernels  # noqa: PLC0415

    inputs = qkv(tokens)
    expected = SelfAttention()(inputs)
    above = torch.randn(expected.shape, generator=torch.Generator().manual_seed(1))
    (gradient,) = torch.autograd.grad(expected, inputs, above)
    torch.testing.assert_close(kernels.forward(inputs.detach()), expected.detach(), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(kernels.backward(above, inputs.detach()), gradient, rtol=1e-5, atol=1e-5)


def test_on_a_cpu_it_is_torchs():
    assert torch.equal(ShortAttention()(qkv(7)), SelfAttention()(qkv(7)))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
def test_on_a_gpu_it_is_torchs_to_rounding():
    inputs = torch.randn(8, 65, 3, 3, 64, device="cuda").bfloat16().requires_grad_()
    exact = inputs.detach().float().requires_grad_()
    found, expected = ShortAttention()(inputs), SelfAttention()(exact)
    above = torch.randn_like(expected)
    (left,), (right,) = (
        torch.autograd.grad(found, inputs, above.bfloat16()),
        torch.autograd.grad(expected, exact, above),
    )
    for a, b in ((found, expected), (left, right)):
        assert (a.float() - b).norm() < 0.01 * b.norm()
