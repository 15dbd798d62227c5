"""Any backbone on a GPU: a vehicle's training step captured as a CUDA graph, in channels-last and mixed precision."""

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from mpt.learning.augmentation import draw_epoch, normalise, take
from mpt.learning.backbones.classifier import Classifier
from mpt.learning.capture import capturing
from mpt.learning.randomness import isolated
from mpt.learning.settings import TrainingSettings
from mpt.learning.training import channels_last, epochs_of

MOST_GRAPHS = 24
"""Batch sizes that are captured; further ones run without a graph."""


class CudaGraphSteps:
    """A model and a stream of its own on a CUDA device, where steps are replayed.

    The parameters and SGD's velocities stay in place. Forward and backward passes run in bfloat16 where `mixed`, the
    parameters, the loss and BatchNorm's statistics in float32. With `compiled`, whole batches go through torch.compile,
    which takes some ten seconds once.
    """

    def __init__(self, model: Classifier, settings: TrainingSettings, *, mixed: bool, compiled: bool = False) -> None:
        self.model = channels_last(copy.deepcopy(model)).train()
        self.settings, self.mixed = settings, mixed
        self._whole = torch.compile(self.model, dynamic=False) if compiled else self.model
        self.device = model.head.weight.device
        self.parameters = [p for p in self.model.parameters() if p.requires_grad]
        self.velocities = [torch.zeros_like(p) for p in self.parameters]
        self.towards = [p.detach().clone() for p in self.parameters] if settings.prox else []
        self.rate = torch.zeros((), device=self.device)
        self.shift = torch.zeros(model.num_classes, device=self.device)
        self.stream = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        self._pool = torch.cuda.graph_pool_handle()
        self._held: dict[int, tuple[torch.cuda.CUDAGraph, Tensor, Tensor]] = {}

    def steps(
        self,
        start: Mapping[str, Tensor],
        images: Tensor,
        labels: Tensor,
        generator: torch.Generator,
        shift: Tensor | None,
        lr: float,
    ) -> Iterator[None]:
        """One vehicle's round, queued step by step on the current stream; `model` then is what came of it."""
        self.model.load_state_dict(start)
        torch._foreach_zero_(self.velocities)
        self.rate.fill_(lr)
        if self.towards:
            with torch.no_grad():
                torch._foreach_copy_(self.towards, list[Tensor](self.parameters))
        self.shift.copy_(torch.zeros_like(self.shift) if shift is None else shift)
        size, augment = self.model.image_size, self.settings.augment
        parts = list(epochs_of(len(labels), self.settings))
        epochs = [draw_epoch(len(labels), size, augment, generator, self.device) for _ in parts]
        for epoch, some in zip(epochs, parts, strict=True):
            for batch in some:
                self._take(take(images, epoch, batch), labels[epoch.order[batch]])
                yield

    def _take(self, images: Tensor, labels: Tensor) -> None:
        size = len(labels)
        if size not in self._held and len(self._held) < MOST_GRAPHS:
            self._capture(images, labels)
        if size in self._held:
            graph, held_images, held_labels = self._held[size]
            held_images.copy_(images)
            held_labels.copy_(labels)
            graph.replay()
        else:
            self._step(images, labels)

    def _capture(self, images: Tensor, labels: Tensor) -> None:
        """The step as a graph, after some without one; the model and velocities are then as before."""
        changing = [*self.model.state_dict().values(), *self.velocities]
        before = [tensor.clone() for tensor in changing]
        held = images.clone(), labels.clone()
        for _ in range(3):
            self._step(*held)
        graph = torch.cuda.CUDAGraph()
        stream = torch.cuda.current_stream(self.device)  # whose workspaces no other graph uses
        with capturing(graph, pool=self._pool, stream=stream):
            self._step(*held)
        with torch.no_grad():
            for tensor, was in zip(changing, before, strict=True):
                tensor.copy_(was)
        self._held[len(labels)] = graph, *held

    def _step(self, images: Tensor, labels: Tensor) -> None:
        inputs = normalise(images).contiguous(memory_format=torch.channels_last)
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=self.mixed):
            logits = (self._whole if len(labels) == self.settings.batch_size else self.model)(inputs)
        loss = functional.cross_entropy(logits.float() - self.shift, labels)
        gradients = torch.autograd.grad(loss, self.parameters)
        descend(self.parameters, self.velocities, list(gradients), self.settings, self.rate, self.towards)


class OnStream(Protocol):
    """What has a stream of its own on a device."""

    @property
    def device(self) -> torch.device:
        """Where."""
        ...

    @property
    def stream(self) -> Any:
        """On which its steps are queued."""
        ...


Round = tuple[CudaGraphSteps, Iterator[None]]
"""A lane and the steps of a vehicle's round on it."""


def advance(rounds: Sequence[tuple[OnStream, Iterator[None]]]) -> None:
    """The rounds of several vehicles, each on its own stream, a step of each in turn: small kernels overlap."""
    device = rounds[0][0].device
    caller = torch.cuda.current_stream(device)
    for lane, _ in rounds:
        lane.stream.wait_stream(caller)
    going = list(rounds)
    while going:
        for lane, steps in tuple(going):
            with torch.cuda.stream(lane.stream):
                if next(steps, going) is going:
                    going.remove((lane, steps))
    for lane, _ in rounds:
        caller.wait_stream(lane.stream)


@torch.no_grad()
def descend(
    parameters: list[nn.Parameter],
    velocities: list[Tensor],
    gradients: list[Tensor],
    s: TrainingSettings,
    rate: Tensor,
    towards: list[Tensor],
) -> None:
    """SGD with momentum and weight decay, as torch.optim.SGD does it, at the learning rate `rate` ().

    Where `towards` has the parameters that the round began with, FedProx's pull to them is in the gradient.
    """
    held: list[Tensor] = list(parameters)
    gradients = list(torch._foreach_add(gradients, held, alpha=s.weight_decay))
    if towards:
        torch._foreach_add_(gradients, torch._foreach_sub(held, towards), alpha=s.prox)
    torch._foreach_mul_(velocities, s.momentum)
    torch._foreach_add_(velocities, gradients)
    torch._foreach_sub_(held, torch._foreach_mul(velocities, rate))


def draws_nothing(model: Classifier) -> bool:
    """Whether a step of the model may be replayed: nothing in it draws random numbers when it trains."""
    device = model.head.weight.device
    probe = copy.deepcopy(model).train()
    images = torch.zeros(2, *model.input_shape, device=device)

    def states() -> list[Tensor]:
        return [torch.get_rng_state(), *([torch.cuda.get_rng_state(device)] if device.type == "cuda" else [])]

    with isolated(0, device), torch.no_grad():
        fresh = states()
        probe(images)
        return all(torch.equal(a, b) for a, b in zip(fresh, states(), strict=True))
