"""Backbones by name, in plain torch, and the classifier they become."""

import operator
from functools import partial
from typing import Any

import torch
from torch import nn

from mpt.base.extensions import Builtin, Extensions
from mpt.learning.backbones.classifier import KINDS, Classifier, samples_in_words
from mpt.learning.backbones.cnn3 import CNN3
from mpt.learning.backbones.external import checked, from_timm, from_torchvision, inner, measure_dim
from mpt.learning.backbones.mobilenetv3 import MobileNetV3
from mpt.learning.backbones.resnet18 import ResNet18
from mpt.learning.backbones.series import CNN1D, MLP
from mpt.learning.backbones.vit_tiny import ViTTiny
from mpt.learning.pretrained import load_weights
from mpt.learning.randomness import derive_seed, isolated
from mpt.learning.settings import LearningError

__all__ = ["BACKBONES", "MAX_SIZE", "MIN_SIZE", "Classifier", "build", "build_for"]

MIN_SIZE, MAX_SIZE = 28, 224


BACKBONES: Extensions[nn.Module] = Extensions(
    "backbone",
    {
        "cnn3": Builtin(CNN3, "three 3x3 convolutions of 32, 64, 128 channels, 0.1M parameters, d = 128"),
        "cnn3-plain": Builtin(
            partial(CNN3, norm=False), "the same with biases in place of BatchNorm, 0.1M parameters, d = 128"
        ),
        "cnn3-embedding": Builtin(
            partial(CNN3, norm=False, embedding=True),
            "cnn3-plain that ends in a fully connected embedding layer, 0.4M parameters, d = 128",
        ),
        "resnet18": Builtin(ResNet18, "ResNet-18, small-image stem up to 64 pixels, 11.2M parameters, d = 512"),
        "mobilenetv3": Builtin(
            MobileNetV3, "MobileNetV3-Large, fewer strides up to 128 pixels, 4.2M parameters, d = 1280"
        ),
        "vit-tiny": Builtin(ViTTiny, "ViT-Tiny, patches of 4, 8 or 16 pixels, class token, 5.4M parameters, d = 192"),
        "cnn1d": Builtin(CNN1D, "for series: three convolutions over time of 32, 64, 64 channels, d = 64"),
        "mlp": Builtin(MLP, "for vectors: two linear layers of 128 and 64 units, d = 64"),
    },
    LearningError,
    own="path.py:function",
    words=("timm", "torchvision"),
)
"""Each is made of (in_channels, image_size): an `nn.Module` from images (N, C, H, W) to features (N, dim).

For series these are their channels and their length, for vectors their length and 1.
"""

TAKES = {"cnn1d": "series", "mlp": "vectors"}
"""What a backbone is for, where that is not images; a user's own takes what it takes."""


def build(
    spec: str,
    *,
    num_classes: int,
    in_channels: int,
    image_size: int,
    seed: int,
    weights: str | None = None,
    freeze: bool = False,
    input_shape: tuple[int, ...] | None = None,
) -> Classifier:
    """A classifier whose weights follow from `seed` and a file alone; torch's global generator is left as it was.

    Args:
        spec: a name in `BACKBONES` (28 to 224 pixels, 1 or 3 channels); "timm:NAME" or "torchvision:NAME" where that
            package is installed, never pretrained; or "path.py:function(width=32)", the user's own
            function(in_channels, image_size, ...) -> nn.Module with an attribute `dim`, from images to (N, dim)
            features.
        num_classes: C, the length of the logits.
        in_channels: 1 for grey images, 3 for colour.
        image_size: height and width in pixels.
        seed: any integer. Two heads of different length sit on the same backbone for the same seed.
        weights: a file with the backbone's weights, as `mpt.learning.pretrained` takes it; None: from the seed.
        freeze: whether the head alone is trained.
        input_shape: of one sample, (channels, length) of series or (d,) of vectors; None: of square images.

    Returns:
        The classifier on the CPU, in training mode.
    """
    num_classes = _at_least_one(num_classes, "num_classes")
    in_channels = _at_least_one(in_channels, "in_channels")
    image_size = _at_least_one(image_size, "image_size")
    shape = input_shape or (in_channels, image_size, image_size)
    _check_kind(spec, shape)
    with torch.device("cpu"), isolated(derive_seed(seed, "model")):
        backbone = _make(spec, in_channels, image_size)
        dim = measure_dim(backbone, spec, shape)
        declared = getattr(backbone, "dim", dim)
        if isinstance(declared, int) and declared != dim:
            raise LearningError(f"backbone: {spec} says dim = {declared}, but its features have length {dim}")
        sizes = {"num_classes": num_classes, "in_channels": in_channels, "image_size": image_size}
        made = Classifier(backbone, dim, **sizes, input_shape=shape)
        if weights is not None:
            made.notes = load_weights(inner(backbone), weights, f"{spec} for {samples_in_words(shape)}")
        return made.freeze() if freeze else made


def build_for(spec: str, shape: tuple[int, ...], **how: Any) -> Classifier:
    """`build` for samples of a shape: (C, H, W) of images, (channels, length) of series, (d,) of vectors."""
    if len(shape) == 3 and shape[1] != shape[2]:
        side = min(max(min(shape[1:]), MIN_SIZE), MAX_SIZE)
        raise LearningError(
            f"images: {shape[1]} x {shape[2]} pixels, should be square; --image-size {side} makes them {side} x {side}"
        )
    size = shape[-1] if len(shape) > 1 else 1
    wanted = None if len(shape) == 3 else shape
    return build(spec, in_channels=shape[0], image_size=size, input_shape=wanted, **how)


def _check_kind(spec: str, shape: tuple[int, ...]) -> None:
    """Refuses a backbone that is for samples of another kind; a user's own is tried."""
    head, what = BACKBONES.parse(spec).head, KINDS[len(shape)]
    if head not in BACKBONES and spec.partition(":")[0] not in ("timm", "torchvision"):
        return
    takes = TAKES.get(head, "images")
    if takes != what:
        fit = [name for name in BACKBONES if TAKES.get(name, "images") == what]
        raise LearningError(
            f"backbone: {spec} takes {takes}, but these samples are {samples_in_words(shape)}, should be "
            f"{', '.join(fit)} or path.py:function"
        )


def _make(spec: str, in_channels: int, image_size: int) -> nn.Module:
    head = BACKBONES.parse(spec).head
    if head in TAKES:
        return BACKBONES.find(spec, in_channels, image_size)
    if head in BACKBONES:
        if not MIN_SIZE <= image_size <= MAX_SIZE:
            fit = 32 if image_size < MIN_SIZE else MAX_SIZE
            raise LearningError(
                f"image_size: {image_size}, should be from {MIN_SIZE} to {MAX_SIZE} pixels for the backbone {spec}; "
                f"--image-size {fit} makes images {fit} x {fit}"
            )
        if in_channels not in (1, 3):
            raise LearningError(f"in_channels: {in_channels}, should be 1 or 3 for the backbone {spec}")
        return BACKBONES.find(spec, in_channels, image_size)
    source, _, name = spec.partition(":")
    if source == "timm":
        return from_timm(name, in_channels, image_size)
    if source == "torchvision":
        return from_torchvision(name, in_channels, image_size)
    return checked(spec, BACKBONES.find(spec, in_channels, image_size))


def _at_least_one(value: object, name: str) -> int:
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise LearningError(f"{name}: {value!r}, should be an integer") from None
    if number < 1:
        raise LearningError(f"{name}: {number}, should be at least 1")
    return number
