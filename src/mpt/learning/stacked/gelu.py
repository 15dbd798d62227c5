"""The perceptron of a transformer's block, for V models: what lies between its two products in one go over memory."""

from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from mpt.learning.backbones.vit_tiny import Perceptron
from mpt.learning.stacked.layers import TallLinear, products


class TallPerceptron(Perceptron):
    """(V B, T, d) -> (V B, T, d)."""

    def __init__(self, one: Perceptron, vehicles: int) -> None:
        super().__init__(*one)
        self.vehicles = vehicles

    def forward(self, rows: Tensor) -> Tensor:
        """Each model's samples by its own weights."""
        first, _, second = self
        assert isinstance(first, TallLinear)
        assert isinstance(second, TallLinear)
        inner = products(rows.reshape(self.vehicles, -1, rows.shape[-1]), first.weight, None)
        assert first.bias is not None
        bias = torch.unflatten(first.bias, 0, (self.vehicles, -1))
        out = second.product(biased_gelu(inner, bias))
        return out.view(*rows.shape[:-1], -1)


def biased_gelu(rows: Tensor, bias: Tensor) -> Tensor:
    """GELU of rows (V, N, d) plus bias (V, d)."""
    if rows.device.type != "cuda" or rows.dtype != torch.bfloat16 or find_spec("triton") is None:
        return functional.gelu(rows + bias[:, None].to(rows.dtype))
    out: Tensor = torch.ops.mpt.biased_gelu(rows, bias)[0]
    return out


@torch.library.custom_op("mpt::biased_gelu", mutates_args=())
def gelu_and_slope(rows: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """GELU of rows (V, N, d) plus bias (V, d), and its derivative there."""
    from mpt.learning.stacked import gelu_kernels as kernels  # noqa: PLC0415 - needs Triton

    return kernels.forward(rows.contiguous(), bias.contiguous())


@gelu_and_slope.register_fake
def _(rows: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    return rows.new_empty(rows.shape), rows.new_empty(rows.shape)


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(output[1])


def _back(ctx: Any, above: Tensor, _: Tensor) -> tuple[Tensor, Tensor]:
    back = above * ctx.saved_tensors[0]
    return back, back.sum(dim=1, dtype=torch.float32)


gelu_and_slope.register_autograd(_back, setup_context=_keep)
