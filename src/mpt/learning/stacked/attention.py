"""Attention among few tokens, every sample and head at once, for which flash attention's tiles are too large."""

from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from mpt.learning.backbones.vit_tiny import SelfAttention

MOST_TOKENS = 128
"""What a program holds at once."""


class ShortAttention(SelfAttention):
    """The same, by kernels of our own on a GPU."""

    def forward(self, qkv: Tensor) -> Tensor:
        """(N, T, 3, heads, d) -> (N, T, heads, d)."""
        short = qkv.shape[1] <= MOST_TOKENS and qkv.dtype == torch.bfloat16
        if qkv.device.type != "cuda" or not short or find_spec("triton") is None:
            return super().forward(qkv)
        out: Tensor = torch.ops.mpt.attention(qkv)
        return out


@torch.library.custom_op("mpt::attention", mutates_args=())
def attention(qkv: Tensor) -> Tensor:
    """Of queries, keys and values (N, T, 3, heads, d): (N, T, heads, d)."""
    from mpt.learning.stacked import attention_kernels as kernels  # noqa: PLC0415 - needs Triton

    return kernels.forward(qkv.contiguous())


@torch.library.custom_op("mpt::attention_back", mutates_args=())
def attention_back(above: Tensor, qkv: Tensor) -> Tensor:
    """The gradient of `qkv`."""
    from mpt.learning.stacked import attention_kernels as kernels  # noqa: PLC0415 - needs Triton

    return kernels.backward(above.contiguous(), qkv.contiguous())


@attention.register_fake
def _(qkv: Tensor) -> Tensor:
    n, t, _, heads, d = qkv.shape
    return qkv.new_empty((n, t, heads, d))


@attention_back.register_fake
def _(above: Tensor, qkv: Tensor) -> Tensor:
    return qkv.new_empty(qkv.shape)


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(inputs[0])


def _back(ctx: Any, above: Tensor) -> Tensor:
    back: Tensor = attention_back(above, ctx.saved_tensors[0])
    return back


attention.register_autograd(_back, setup_context=_keep)
