"""Where each parameter of a three-layer CNN lies in a flat row, in the order and shape the kernels want."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from mpt.learning.backbones.cnn3 import CNN3, GRID

CHANNELS = (32, 64, 128)
FLAT = GRID**2 * CHANNELS[-1]
"""Inputs of the embedding layer."""


@dataclass(frozen=True)
class Layout:
    """The flat row of parameters: convolutions (taps, inputs, outputs), (gamma, beta) pairs, head, its bias, embedding.

    The first convolution is (1, K, 32), a 1x1 one over the pixels' 3x3 neighbourhoods, whose 9 C numbers are filled up
    with zeros to K. Without BatchNorm, biases stand in place of (gamma, beta) pairs. The embedding layer, where there
    is one, is (cells of the grid, channels, outputs), then its bias. The flat row of running statistics holds (mean,
    variance) pairs.
    """

    in_channels: int
    num_classes: int
    norm: bool = True
    embedding: bool = False

    @classmethod
    def of(cls, backbone: CNN3, in_channels: int, num_classes: int) -> "Layout":
        """Of a three-layer CNN with a head."""
        return cls(in_channels, num_classes, backbone.norm, backbone.embedding)

    @property
    def convolutions(self) -> tuple[str, ...]:
        """Names of the convolutions."""
        return tuple(f"backbone.layers.{i}" for i in ((0, 4, 8) if self.norm else (0, 3, 6)))

    @property
    def norms(self) -> tuple[str, ...]:
        """Names of the BatchNorm layers."""
        return tuple(f"backbone.layers.{i}" for i in (1, 5, 9)) if self.norm else ()

    @property
    def linear(self) -> str:
        """Name of the embedding layer."""
        return f"backbone.layers.{13 if self.norm else 10}"

    @property
    def grid(self) -> int:
        """Cells a side that the last map is averaged to."""
        return GRID if self.embedding else 1

    @property
    def patch(self) -> int:
        """K: 9 C rounded up to a power of two of at least 16."""
        return max(16, 1 << (9 * self.in_channels - 1).bit_length())

    @property
    def shapes(self) -> tuple[tuple[int, int, int], ...]:
        """(taps, inputs, outputs) of the convolutions."""
        first, second, third = CHANNELS
        return (1, self.patch, first), (9, first, second), (9, second, third)

    @property
    def starts(self) -> tuple[int, ...]:
        """Where the three convolutions, the three (gamma, beta) pairs or biases, the head and the embedding layer
        begin, and where the row ends.
        """
        sizes = [taps * inputs * outputs for taps, inputs, outputs in self.shapes]
        sizes += [2 * channels if self.norm else channels for channels in CHANNELS]
        sizes += [self.num_classes * (CHANNELS[-1] + 1)]
        sizes += [(FLAT + 1) * CHANNELS[-1] if self.embedding else 0]
        ends = [0]
        for size in sizes:
            ends.append(ends[-1] + size)
        return tuple(ends)

    @property
    def running_starts(self) -> tuple[int, ...]:
        """Where the three (mean, variance) pairs begin, and where the row ends."""
        first, second, third = CHANNELS if self.norm else (0, 0, 0)
        return 0, 2 * first, 2 * (first + second), 2 * (first + second + third)

    def pack(self, state: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """A model's parameters (P,) and running statistics (R,)."""
        parts = []
        for name, (taps, inputs, outputs) in zip(self.convolutions, self.shapes, strict=True):
            kernel = state[f"{name}.weight"].permute(2, 3, 1, 0).reshape(-1, outputs)
            missing = taps * inputs - len(kernel)
            parts.append(torch.nn.functional.pad(kernel, (0, 0, 0, missing)).reshape(-1))
        if self.norm:
            parts += [state[f"{name}.{part}"] for name in self.norms for part in ("weight", "bias")]
        else:
            parts += [state[f"{name}.bias"] for name in self.convolutions]
        parts += [state["head.weight"].reshape(-1), state["head.bias"]]
        if self.embedding:
            weight = state[f"{self.linear}.weight"].reshape(-1, CHANNELS[-1], GRID, GRID)
            parts += [weight.permute(2, 3, 1, 0).reshape(-1), state[f"{self.linear}.bias"]]
        running = [state[f"{name}.{part}"] for name in self.norms for part in ("running_mean", "running_var")]
        return torch.cat(parts), torch.cat(running) if running else parts[0].new_zeros(0)

    def unpack(self, parameters: Tensor, running: Tensor, like: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The state dict of a flat row (P,) and its running statistics (R,); what is in neither is as in `like`."""
        state = {name: tensor.clone() for name, tensor in like.items()}
        starts = self.starts
        for i, (name, (taps, inputs, outputs)) in enumerate(zip(self.convolutions, self.shapes, strict=True)):
            flat = parameters[starts[i] : starts[i + 1]].reshape(taps * inputs, outputs)
            real = like[f"{name}.weight"].shape[1]
            kernel = flat[: 9 * real].reshape(3, 3, real, outputs).permute(3, 2, 0, 1)
            state[f"{name}.weight"] = kernel.contiguous()
            if not self.norm:
                state[f"{name}.bias"] = parameters[starts[3 + i] : starts[4 + i]].clone()
        for i, (name, channels) in enumerate(zip(self.norms, CHANNELS, strict=False)):
            pair = parameters[starts[3 + i] : starts[4 + i]]
            state[f"{name}.weight"], state[f"{name}.bias"] = pair[:channels].clone(), pair[channels:].clone()
            past = running[self.running_starts[i] : self.running_starts[i + 1]]
            state[f"{name}.running_mean"], state[f"{name}.running_var"] = (
                past[:channels].clone(),
                past[channels:].clone(),
            )
        head = parameters[starts[6] : starts[7]]
        width = self.num_classes * CHANNELS[-1]
        state["head.weight"] = head[:width].reshape(self.num_classes, CHANNELS[-1]).clone()
        state["head.bias"] = head[width:].clone()
        if self.embedding:
            end = starts[7] + FLAT * CHANNELS[-1]
            weight = parameters[starts[7] : end].reshape(GRID, GRID, CHANNELS[-1], CHANNELS[-1]).permute(3, 2, 0, 1)
            state[f"{self.linear}.weight"] = weight.reshape(CHANNELS[-1], FLAT).contiguous()
            state[f"{self.linear}.bias"] = parameters[end:].clone()
        return state
