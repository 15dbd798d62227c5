"""A vehicle's work on its own data: local epochs, and features under the current model.

This is the readable reference: one vehicle after the other, one batch after the other.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from mpt.learning.augmentation import draw_epoch, normalise, take
from mpt.learning.backbones.classifier import Classifier
from mpt.learning.losses import Loss, cross_entropy
from mpt.learning.randomness import isolated
from mpt.learning.settings import LearningError, TrainingSettings


def embed_batch(model: Classifier) -> int:
    """How many images to embed at a time: on a CPU few, whose maps stay in the cache; on a GPU many."""
    if model.head.weight.device.type == "cpu":
        return 64
    return max(64, 2**21 // math.prod(model.input_shape[-2:]))


def channels_last(model: Classifier) -> Classifier:
    """The same model, in place, with its convolutions' weights in the order in which they run faster."""
    moved: Classifier = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return moved


@dataclass(frozen=True)
class TrainingResult:
    """What a vehicle's training came to.

    Attributes:
        loss: the mean over all samples of all epochs, as they were trained on; NaN if there was nothing to train on.
        samples: the vehicle's number of samples, its weight in the average.
    """

    loss: float
    samples: int


def train(
    model: Classifier,
    images: Tensor,
    labels: Tensor,
    settings: TrainingSettings,
    *,
    generator: torch.Generator,
    loss: Loss = cross_entropy,
) -> TrainingResult:
    """Train `model` in place on one vehicle's data by SGD from fresh optimiser state.

    Every epoch takes the samples in a new order, all of them but a last batch of one sample, which is left out because
    BatchNorm cannot train on it. Without samples, or with a single one, the model stays as it is. What is random comes
    from `generator` alone; dropout inside the model, if any, from torch's global generators seeded with
    `generator.initial_seed()` for the time being.

    Args:
        images: (N, C, H, W) uint8, on the model's device; for a model of series or vectors these, in float32.
        labels: (N,) int64, on the model's device.
        generator: as `mpt.learning.generator` makes it for this round and vehicle.
        loss: `cross_entropy`, `FedLC()`, or another function of logits, labels and the vehicle's counts.
    """
    check_images(model, images)
    check_augmentation(model, settings)
    _check_labels(model, images, labels)
    n, device = len(labels), images.device
    counts = torch.bincount(labels, minlength=model.num_classes)
    dtype = model.head.weight.dtype
    optimiser = torch.optim.SGD(
        [p for p in model.parameters() if p.requires_grad],
        lr=settings.lr,
        momentum=settings.momentum,
        weight_decay=settings.weight_decay,
    )
    towards = [p.detach().clone() for p in optimiser.param_groups[0]["params"]] if settings.prox else []
    total, seen = torch.zeros((), device=device, dtype=torch.float64), 0
    with _mode(model, training=True), isolated(generator.initial_seed(), device):
        for some in epochs_of(n, settings):
            epoch = draw_epoch(n, model.image_size, settings.augment, generator, device)
            for batch in some:
                inputs = normalise(take(images, epoch, batch), dtype)
                value = loss(model(inputs), labels[epoch.order[batch]], counts)
                if not isinstance(value, Tensor) or value.shape != ():
                    what = f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else repr(value)[:80]
                    raise LearningError(f"loss: gave {what}, should be the batch's mean loss, a tensor of shape ()")
                optimiser.zero_grad(set_to_none=True)
                value.backward()  # type: ignore[no-untyped-call]
                for parameter, start in zip(optimiser.param_groups[0]["params"], towards, strict=bool(towards)):
                    parameter.grad.add_(parameter.detach() - start, alpha=settings.prox)
                optimiser.step()
                size = batch.stop - batch.start
                total += value.detach() * size
                seen += size
    return TrainingResult(float(total) / seen if seen else math.nan, n)


def batches(n: int, batch_size: int) -> Iterator[slice]:
    """The positions of each batch of an epoch of `n` samples; a last batch of one is left out.

    Example:
        >>> list(batches(5, 2))
        [slice(0, 2, None), slice(2, 4, None)]
    """
    for start in range(0, n - 1, batch_size):
        yield slice(start, min(n, start + batch_size))


def epochs_of(n: int, settings: TrainingSettings) -> Iterator[list[slice]]:
    """The batches of each epoch of `n` samples; with `local_steps`, so many in all, the last epoch cut short.

    Example:
        >>> [len(epoch) for epoch in epochs_of(5, TrainingSettings(batch_size=2, local_steps=3))]
        [2, 1]
    """
    each = list(batches(n, settings.batch_size))
    if settings.local_steps is None:
        yield from ([*each] for _ in range(settings.epochs))
        return
    left = settings.local_steps if each else 0
    while left > 0:
        yield each[:left]
        left -= len(each)


def embed(model: Classifier, images: Tensor, batch_size: int | None = None) -> Tensor:
    """The features (N, d) of uint8 images (N, C, H, W), in evaluation mode, without gradients."""
    check_images(model, images)
    batch_size = embed_batch(model) if batch_size is None else batch_size
    if batch_size < 1:
        raise LearningError(f"batch_size: {batch_size}, should be at least 1")
    dtype = model.head.weight.dtype
    rows = torch.empty((len(images), model.dim), dtype=dtype, device=images.device)
    with _mode(model, training=False), torch.no_grad():
        for start in range(0, len(images), batch_size):
            batch = slice(start, start + batch_size)
            rows[batch] = model.features(normalise(images[batch], dtype))
    return rows


@contextmanager
def _mode(model: nn.Module, *, training: bool) -> Iterator[None]:
    """The model in training or evaluation mode; after, every module of it is in its own mode again."""
    before = [(module, module.training) for module in model.modules()]
    model.train(training)
    try:
        yield
    finally:
        for module, was in before:
            module.training = was


def check_images(model: Classifier, images: Tensor) -> None:
    """Refuses what the model cannot take."""
    what, wanted = model.kind, model.input_shape
    dtype = torch.uint8 if what == "images" else torch.float32
    if images.dtype != dtype:
        raise LearningError(f"{what}: dtype is {images.dtype}, should be {dtype}")
    if tuple(images.shape[1:]) != wanted:
        shape = "(N, " + ", ".join(map(str, wanted)) + ")"
        raise LearningError(f"{what}: shape is {tuple(images.shape)}, should be {shape} for this model")
    if images.device != model.head.weight.device:
        raise LearningError(f"{what}: on {images.device}, should be on {model.head.weight.device} like the model")


def check_augmentation(model: Classifier, settings: TrainingSettings) -> None:
    """Refuses what shifts or mirrors images where there are none."""
    if settings.augment != "none" and model.kind != "images":
        raise LearningError(f"augment: {settings.augment} is for images, should be none for {model.kind}")


def _check_labels(model: Classifier, images: Tensor, labels: Tensor) -> None:
    if labels.dtype != torch.int64:
        raise LearningError(f"labels: dtype is {labels.dtype}, should be torch.int64")
    if labels.shape != images.shape[:1]:
        raise LearningError(f"labels: shape is {tuple(labels.shape)}, should be ({len(images)},)")
    if labels.device != images.device:
        raise LearningError(f"labels: on {labels.device}, should be on {images.device} like the images")
    if len(labels):
        low, high = torch.stack(labels.aminmax()).tolist()
        if low < 0 or high >= model.num_classes:
            raise LearningError(
                f"labels: class {low if low < 0 else high}, but there are {model.num_classes} classes "
                f"(0 to {model.num_classes - 1})"
            )
