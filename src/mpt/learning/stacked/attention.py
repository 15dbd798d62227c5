"""A transformer's block for V models: attention among few tokens, for which flash attention's tiles are too large."""

from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

from mpt.learning.backbones.vit_tiny import HEADS, WIDTH, Block
from mpt.learning.stacked.layers import products

MOST_TOKENS = 128
"""What a program holds at once."""


class TallBlock(Block):
    """(V B, T, 192) -> (V B, T, 192)."""

    def __init__(self, one: Block, vehicles: int) -> None:
        nn.Module.__init__(self)
        self.vehicles = vehicles
        for name, child in one.named_children():
            self.add_module(name, child)

    def attend(self, tokens: Tensor) -> Tensor:
        """The bias of queries, keys and values is added where they are read."""
        rows = products(tokens.reshape(self.vehicles, -1, WIDTH), self.qkv.weight, None)
        qkv = rows.view(*tokens.shape[:2], 3, HEADS, WIDTH // HEADS)
        bias = self.qkv.bias.view(self.vehicles, *qkv.shape[2:])
        if has_kernels(qkv):
            mixed: Tensor = torch.ops.mpt.attention(qkv, bias)
        else:
            each = torch.unflatten(qkv, 0, (self.vehicles, -1)) + bias[:, None, None].to(qkv.dtype)
            mixed = self.attention(each.flatten(0, 1))
        out: Tensor = self.project(mixed.flatten(2))
        return out


def has_kernels(qkv: Tensor) -> bool:
    """Whether there are kernels for queries, keys and values (N, T, 3, heads, d)."""
    short = qkv.shape[1] <= MOST_TOKENS and qkv.dtype == torch.bfloat16
    return qkv.device.type == "cuda" and short and find_spec("triton") is not None


@torch.library.custom_op("mpt::attention", mutates_args=())
def attention(qkv: Tensor, bias: Tensor) -> Tensor:
    """Of queries, keys and values (N, T, 3, heads, d), plus bias (V, 3, heads, d): (N, T, heads, d)."""
    from mpt.learning.stacked import attention_kernels as kernels  # noqa: PLC0415 - needs Triton

    return kernels.forward(qkv.contiguous(), bias.contiguous())


@torch.library.custom_op("mpt::attention_back", mutates_args=())
def attention_back(above: Tensor, qkv: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of `qkv` and, in float32, of `bias`."""
    from mpt.learning.stacked import attention_kernels as kernels  # noqa: PLC0415 - needs Triton

    return kernels.backward(above.contiguous(), qkv.contiguous(), bias.contiguous())


@attention.register_fake
def _(qkv: Tensor, bias: Tensor) -> Tensor:
    n, t, _, heads, d = qkv.shape
    return qkv.new_empty((n, t, heads, d))


@attention_back.register_fake
def _(above: Tensor, qkv: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    return qkv.new_empty(qkv.shape), bias.new_empty(bias.shape, dtype=torch.float32)


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(*inputs)


def _back(ctx: Any, above: Tensor) -> tuple[Tensor, Tensor]:
    back: tuple[Tensor, Tensor] = attention_back(above, *ctx.saved_tensors)
    return back


attention.register_autograd(_back, setup_context=_keep)
