"""V classifiers of one architecture as one network: as wide as all of them together, or as tall."""

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from mpt.learning.backbones.classifier import Classifier
from mpt.learning.backbones.mobilenetv3 import SqueezeExcite
from mpt.learning.backbones.vit_tiny import Block, Perceptron, ViTTiny
from mpt.learning.randomness import isolated
from mpt.learning.stacked.attention import TallBlock
from mpt.learning.stacked.gelu import TallPerceptron
from mpt.learning.stacked.layers import TallLayerNorm, TallLinear, TallViT, WideLinear, wide_batchnorm, wide_convolution
from mpt.learning.stacked.tall_maps import Chain, TallBatchNorm, TallSqueeze, has_depthwise, tall_convolution

CLOSE = 1e-9
"""How far a stack's logits may be from its models', relative to them, in float64."""

BLOCKS = (Block,)
"""What is compiled by itself, because there are many of one shape, which share the code."""

Layer = Callable[[Any, int], nn.Module]


class NotStackable(Exception):  # noqa: N818 - it is no error: another trainer takes the model
    """A part of a model of which no stack can be made."""


class OneNetwork(nn.Module):
    """V models as one network.

    Attributes:
        fills: whether a batch may be filled up with samples that do not count.
        vehicles: V.
        network: the model, its layers that have parameters replaced by those of all V models.
        stacked: every parameter and floating buffer of the model, by its name there: (V, ...), views of the network's.
    """

    layers: Mapping[type[nn.Module], Layer]
    fills = False

    def __init__(self, model: Classifier, vehicles: int) -> None:
        super().__init__()
        self.vehicles = vehicles
        self.network = self._replaced(model).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        held = dict(self.network.named_parameters()) | dict(self.network.named_buffers())
        self.stacked = {
            n: torch.unflatten(t.detach(), 0, (vehicles, -1)) for n, t in held.items() if t.is_floating_point()
        }

    def arranged(self, images: Tensor) -> Tensor:
        """Images (V, B, H, W, C) as `forward` takes them."""
        raise NotImplementedError

    def load(self, start: Mapping[str, Tensor], place: int) -> None:
        """Put a model into its place."""
        mine = [tensor[place] for tensor in self.stacked.values()]
        torch._foreach_copy_(mine, [start[name].view(one.shape) for name, one in zip(self.stacked, mine, strict=True)])

    def let_count(self, keep: Tensor | None) -> None:
        """Which samples (V, B) count in what layers make of a whole batch, the first ones of each model; None: all."""
        for layer in self.network.modules():
            if isinstance(layer, TallBatchNorm):
                layer.keep = keep

    def compile_parts(self) -> None:
        """Through torch.compile, all of it, or block by block where many look alike and share what is made for one."""
        for part in _parts(self.network):
            part.compile(dynamic=False)

    def _replaced(self, module: nn.Module) -> nn.Module:
        """A copy with layers for V models."""
        made = self.layers.get(type(module))
        if made is not None:
            layer = made(module, self.vehicles)
            for name, parameter in module.named_parameters():
                layer.get_parameter(name).requires_grad_(parameter.requires_grad)
            like = next(iter((*module.parameters(), *module.buffers())), torch.empty(0))
            layer.to(like.device, like.dtype)
        else:
            if any(True for _ in (*module.parameters(recurse=False), *module.buffers(recurse=False))):
                raise NotStackable(type(module).__name__)
            layer = copy.copy(module)
            layer._modules = dict(module._modules)
        for name, child in layer._modules.items():
            if child is not None and (made is None or child in module._modules.values()):
                layer._modules[name] = self._replaced(child)
        return layer


def _parts(module: nn.Module) -> Iterator[nn.Module]:
    """Its blocks, and what is beside them."""
    if isinstance(module, BLOCKS) or not any(isinstance(inner, BLOCKS) for inner in module.modules()):
        yield module
    else:
        for child in module.children():
            yield from _parts(child)


class Wide(OneNetwork):
    """Convolutional networks: maps (B, V C, H, W), of which each model has its own C channels.

    A convolution in V groups is V convolutions, and BatchNorm of V C channels is that of V models.
    """

    layers: Mapping[type[nn.Module], Layer] = {
        nn.Conv2d: wide_convolution,
        nn.BatchNorm2d: wide_batchnorm,
        nn.Linear: WideLinear,
    }

    def arranged(self, images: Tensor) -> Tensor:
        """(V, B, H, W, C) -> (B, V C, H, W), channels last in memory."""
        maps = images.permute(1, 2, 3, 0, 4).flatten(3)
        return maps.permute(0, 3, 1, 2)

    def forward(self, maps: Tensor) -> Tensor:
        """(B, V C, H, W) -> logits (V, B, classes)."""
        logits: Tensor = self.network(maps)
        return torch.unflatten(logits, 1, (self.vehicles, -1)).transpose(0, 1)


class Tall(OneNetwork):
    """Vision transformers: tokens (V B, T, d), the samples of one model after those of another."""

    fills = True

    layers: Mapping[type[nn.Module], Layer] = {
        nn.Linear: TallLinear,
        nn.LayerNorm: TallLayerNorm,
        ViTTiny: TallViT,
        Perceptron: TallPerceptron,
        Block: TallBlock,
    }

    def arranged(self, images: Tensor) -> Tensor:
        """(V, B, H, W, C) -> (V B, C, H, W)."""
        return images.flatten(0, 1).permute(0, 3, 1, 2)

    def forward(self, images: Tensor) -> Tensor:
        """(V B, C, H, W) -> logits (V, B, classes)."""
        logits: Tensor = self.network(images)
        return torch.unflatten(logits, 0, (self.vehicles, -1))


class TallMaps(Tall):
    """Convolutional networks with depthwise convolutions: maps (V B, C, H, W), by kernels of our own on a GPU."""

    layers: Mapping[type[nn.Module], Layer] = {
        nn.Conv2d: tall_convolution,
        nn.BatchNorm2d: TallBatchNorm,
        nn.Linear: TallLinear,
        SqueezeExcite: TallSqueeze,
    }

    def compile_parts(self) -> None:
        """Nothing: the kernels compile as they are called."""

    def _replaced(self, module: nn.Module) -> nn.Module:
        layer = super()._replaced(module)
        return Chain(layer._modules) if type(module) is nn.Sequential else layer  # type: ignore[arg-type]


def stack_of(model: Classifier, vehicles: int) -> OneNetwork:
    """One network of V models like this one.

    Raises:
        NotStackable: a part of it mixes what belongs to different models, or is of a kind that is not known.
    """
    found = []
    for kind in (TallMaps, Wide, Tall) if has_depthwise(model) else (Wide, Tall):
        try:
            if _agrees(kind, model):
                return kind(model, vehicles).train()
            found.append(f"{kind.__name__}: other logits")
        except Exception as error:  # a network of the user's own: whatever it meets, it has no stack
            found.append(f"{kind.__name__}: {str(error)[:80]}")
    raise NotStackable("; ".join(found))


def can_be_stacked(model: Classifier) -> bool:
    """Whether `stack_of` makes one network of several like this one."""
    try:
        stack_of(model, 2)
    except NotStackable:
        return False
    return True


@torch.no_grad()
def _agrees(kind: type[OneNetwork], model: Classifier) -> bool:
    """Whether it gives what two models give, on random images; on the CPU, where no precision is saved on."""
    with isolated(0):
        ones = [copy.deepcopy(model).cpu().double().train() for _ in range(2)]
        for i, one in enumerate(ones):
            for p in one.parameters():
                p.mul_(1 + 0.1 * torch.rand_like(p)).add_(0.01 * (i + 1))
        stack = kind(ones[0], 2).train()
        images = torch.randn(2, 4, model.image_size, model.image_size, model.in_channels, dtype=torch.float64)
        for i, one in enumerate(ones):
            stack.load(one.state_dict(), i)
        for first in (4, 3) if kind.fills else (4,):
            stack.let_count(None if first == 4 else torch.tensor([[True] * 3 + [False], [True] * 4]))
            both = stack(stack.arranged(images))
            counting = [mine[:n].permute(0, 3, 1, 2) for mine, n in zip(images, (first, 4), strict=True)]
            each = torch.cat([one(mine) for one, mine in zip(ones, counting, strict=True)])
            if (torch.cat([both[0, :first], both[1]]) - each).norm() > CLOSE * each.norm():
                return False
    return True
