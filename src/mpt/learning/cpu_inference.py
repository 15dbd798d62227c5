"""Features on a CPU: BatchNorm folded into convolutions, channels-last, pooling by maxima, several batches at once."""

import copy
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from mpt.learning.backbones.classifier import Classifier
from mpt.learning.threads import MOST, at_once, side_by_side, with_threads
from mpt.learning.training import channels_last, check_images, embed, embed_batch


class CpuEmbedder:
    """What `embed` gives to rounding, of one model that may change afterwards; it draws no random numbers."""

    def __init__(self, model: Classifier) -> None:
        many = at_once(MOST)
        with with_threads(1):
            self.models = [folded(model) for _ in range(many)]

    def __call__(self, images: Tensor) -> Tensor:
        """The features (N, d) of uint8 images (N, C, H, W)."""
        return self.many([images])[0]

    def many(self, several: Sequence[Tensor]) -> list[Tensor]:
        """The same for several vehicles' images, all their batches in one queue."""
        model = self.models[0]
        for images in several:
            check_images(model, images)
        size = embed_batch(model)
        counts = [-(-len(images) // size) for images in several]
        parts = [part for images in several if len(images) for part in torch.split(images, size)]
        embedded = iter(side_by_side(embed, self.models[: max(1, len(parts))], parts))
        return [
            torch.cat([next(embedded) for _ in range(count)]) if count else embed(model, images)
            for count, images in zip(counts, several, strict=True)
        ]


def folded(model: Classifier) -> Classifier:
    """A copy in evaluation mode and channels-last, in which a BatchNorm right behind a convolution is part of it.

    (W * x - m) g / s + b = (g / s W) * x + (b - m g / s), where s^2 is the running variance and eps. 2x2 max-pooling is
    `Halved`.
    """
    made = copy.deepcopy(model).eval()
    for module in made.modules():
        if type(module).forward is nn.Sequential.forward:
            _fold(module)
            _pool(module)
    return channels_last(made)


def _fold(layers: nn.Module) -> None:
    for first, second in pairwise(list(layers._modules)):
        convolution, norm = layers._modules[first], layers._modules[second]
        if type(convolution) is not nn.Conv2d or type(norm) is not nn.BatchNorm2d:
            continue
        if norm.running_mean is not None and not _hooked(convolution) and not _hooked(norm):
            layers._modules[first] = fuse_conv_bn_eval(convolution, norm)
            layers._modules[second] = nn.Identity()


class Halved(nn.Module):
    """2x2 max-pooling as maxima of slices; torch's also writes where the maxima are, in eight bytes each."""

    def forward(self, maps: Tensor) -> Tensor:
        """(N, C, H, W) -> (N, C, H // 2, W // 2)."""
        rows = torch.maximum(maps[:, :, :-1:2], maps[:, :, 1::2])
        return torch.maximum(rows[..., :-1:2], rows[..., 1::2])


def _pool(layers: nn.Module) -> None:
    for name, layer in layers._modules.items():
        if type(layer) is not nn.MaxPool2d or _hooked(layer) or layer.ceil_mode or layer.return_indices:
            continue
        if (layer.kernel_size, layer.stride, layer.padding, layer.dilation) == (2, 2, 0, 1):
            layers._modules[name] = Halved()


def _hooked(module: nn.Module) -> bool:
    return bool(module._forward_hooks or module._forward_pre_hooks)
