"""A GELU behind a bias, by a kernel of our own."""

import os

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional

from mpt.learning.stacked.gelu import biased_gelu


def drawn(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(len(shape)), requires_grad=True)


@pytest.mark.slow
def test_the_kernel_gives_what_torch_gives():
    if os.environ.get("TRITON_INTERPRET") != "1":
        pytest.skip("there is a CUDA device: the kernels run there")
    pytest.importorskip("triton", reason="Triton is not installed")
    from mpt.learning.stacked import gelu_kernels as kernels  # noqa: PLC0415

    rows, bias = drawn(3, 70, 33), drawn(3, 33)
    expected = functional.gelu(rows + bias[:, None])
    (slope,) = torch.autograd.grad(expected, rows, torch.ones_like(rows))
    found = kernels.forward(rows.detach(), bias.detach())
    torch.testing.assert_close(found, (expected.detach(), slope), rtol=1e-5, atol=1e-6)


def test_on_a_cpu_it_is_torchs():
    rows, bias = drawn(2, 5, 4), drawn(2, 4)
    assert torch.equal(biased_gelu(rows, bias)[1], functional.gelu(rows[1] + bias[1]))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
def test_on_a_gpu_it_is_torchs_to_rounding():
    rows, bias = (drawn(*shape).detach().cuda().requires_grad_() for shape in ((3, 700, 768), (3, 768)))
    low = rows.detach().bfloat16().requires_grad_()
    found, expected = biased_gelu(low, bias), functional.gelu(rows + bias[:, None])
    above = torch.randn_like(expected)
    left = torch.autograd.grad(found, (low, bias), above.bfloat16())
    right = torch.autograd.grad(expected, (rows, bias), above)
    for a, b in zip((found, *left), (expected, *right), strict=True):
        assert (a.float() - b).norm() < 0.01 * b.norm()
