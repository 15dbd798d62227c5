"""Backbones from elsewhere: models of timm and torchvision by name, and what the user's own functions give."""

import importlib
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from mpt.learning.backbones.classifier import KINDS, samples_in_words
from mpt.learning.settings import LearningError


def from_timm(name: str, in_channels: int, image_size: int) -> nn.Module:
    """timm's model `name`, not pretrained, without its classifier."""
    timm = _package("timm", name)
    if not timm.is_model(name):
        raise LearningError(f"backbone: timm has no model {name!r}, timm.list_models() names them")
    return _sized(
        lambda **size: timm.create_model(name, pretrained=False, num_classes=0, in_chans=in_channels, **size),
        {"img_size": image_size},
        f"timm:{name}",
    )


def from_torchvision(name: str, in_channels: int, image_size: int) -> nn.Module:
    """torchvision's classifier `name`, not pretrained, without its last linear layer; grey images go in three times."""
    models = _package("torchvision.models", name)
    if name not in models.list_models(module=models):
        raise LearningError(
            f"backbone: torchvision has no classifier {name!r}, torchvision.models.list_models() names them"
        )
    model = _sized(
        lambda **size: models.get_model(name, weights=None, **size), {"image_size": image_size}, f"torchvision:{name}"
    )
    linear = [path for path, module in model.named_modules() if isinstance(module, nn.Linear)]
    if not linear:
        raise LearningError(f"backbone: torchvision's {name} has no linear layer to take its features from")
    parent, _, last = linear[-1].rpartition(".")
    setattr(model.get_submodule(parent), last, nn.Identity())
    return _GreyAsColour(model) if in_channels == 1 else model


def checked(spec: str, backbone: object) -> nn.Module:
    """What a user's function has returned, if it is a module that says how long its features are."""
    if not isinstance(backbone, nn.Module):
        raise LearningError(f"backbone: {spec} returned a {type(backbone).__name__}, should be a torch.nn.Module")
    if not isinstance(getattr(backbone, "dim", None), int):
        raise LearningError(f"backbone: {spec} returned a module without an integer attribute dim, its feature length")
    return backbone


def measure_dim(backbone: nn.Module, spec: str, shape: Sequence[int]) -> int:
    """The length d of the features, found by a pass over two blank samples of a shape; refuses what is not (N, d)."""
    modes = [(module, module.training) for module in backbone.modules()]
    backbone.eval()
    try:
        with torch.no_grad():
            features = backbone(torch.zeros(2, *shape))
    except Exception as error:
        raise LearningError(f"backbone: {spec} does not take {samples_in_words(shape)} ({error})") from error
    finally:
        for module, training in modes:
            module.training = training
    if not isinstance(features, Tensor) or features.ndim != 2 or len(features) != 2:
        found = tuple(features.shape) if isinstance(features, Tensor) else type(features).__name__
        what = KINDS[len(shape)]
        raise LearningError(f"backbone: {spec} maps two {what} to {found}, should be features of shape (2, dim)")
    return int(features.shape[1])


class _GreyAsColour(nn.Module):
    """A network for colour images, given grey ones."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.model(images.expand(-1, 3, -1, -1))
        return features


def inner(backbone: nn.Module) -> nn.Module:
    """The network itself, whose names are those of its own files of weights."""
    return backbone.model if isinstance(backbone, _GreyAsColour) else backbone


def _package(package: str, name: str) -> ModuleType:
    try:
        return importlib.import_module(package)
    except ImportError as error:
        top = package.partition(".")[0]
        raise LearningError(
            f"backbone: {top}:{name} needs the package {top}, which cannot be imported here ({error})"
        ) from error


def _sized(make: Callable[..., Any], size: dict[str, int], spec: str) -> nn.Module:
    """`make` with the image size where the model takes one (transformers do, most convolutional networks do not)."""
    try:
        try:
            model = make(**size)
        except TypeError:
            model = make()
    except Exception as error:
        raise LearningError(f"backbone: {spec} cannot be built ({error})") from error
    if not isinstance(model, nn.Module):
        raise LearningError(f"backbone: {spec} is a {type(model).__name__}, should be a torch.nn.Module")
    return model
