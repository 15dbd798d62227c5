"""A round of V vehicles at once: their batches through one network, step by step, as CUDA graphs on a GPU."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from mpt.learning.augmentation import normalise
from mpt.learning.backbones.classifier import Classifier
from mpt.learning.capture import capturing
from mpt.learning.cuda_graphs import MOST_GRAPHS, descend
from mpt.learning.settings import TrainingSettings
from mpt.learning.stacked.networks import stack_of
from mpt.learning.triton_stack.schedule import Schedule

Key = tuple[int, bool]
"""How many samples a batch has, and whether some vehicles have fewer."""


class StackedSteps:
    """V models that train side by side, with SGD's velocities.

    Forward and backward passes run in bfloat16 where `mixed`, the parameters, the loss and BatchNorm's statistics in
    float32. With `compiled`, whole batches go through torch.compile. Where a vehicle has fewer samples than others in a
    step, or none, its batch is filled up with samples that count for nothing, or, where the network cannot tell them
    from others, the step is taken once for each size. A model without samples stays as it is.
    """

    def __init__(
        self, model: Classifier, settings: TrainingSettings, vehicles: int, *, mixed: bool, compiled: bool = False
    ) -> None:
        self.settings, self.vehicles, self.mixed, self.compiled = settings, vehicles, mixed, compiled
        self.device = model.head.weight.device
        self.stack = stack_of(model, vehicles)
        if compiled:
            self.stack.compile_parts()
        self._descend = torch.compile(descend, dynamic=False) if compiled else descend
        self.parameters = [p for p in self.stack.parameters() if p.requires_grad]
        self.velocities = [torch.zeros_like(p) for p in self.parameters]
        self.towards = [p.detach().clone() for p in self.parameters] if settings.prox else []
        self.rate = torch.zeros((), device=self.device)
        self.shift = torch.zeros(vehicles, 1, model.num_classes, device=self.device)
        self.counts = torch.zeros(vehicles, 1, device=self.device, dtype=torch.int64)
        self.stream = torch.cuda.Stream(self.device) if self.device.type == "cuda" else None  # type: ignore[no-untyped-call]
        self._pool = torch.cuda.graph_pool_handle() if self.device.type == "cuda" else None
        self._held: dict[Key, tuple[torch.cuda.CUDAGraph, Tensor, Tensor]] = {}

    def begin(self, starts: Sequence[tuple[Mapping[str, Tensor], int]], shift: Tensor, lr: float) -> None:
        """Put models into their places, (V, classes) to be taken off their logits, and forget the velocities."""
        for start, place in starts:
            self.stack.load(start, place)
        torch._foreach_zero_(self.velocities)
        self.rate.fill_(lr)
        self.shift.copy_(shift[:, None])
        if self.towards:
            with torch.no_grad():
                torch._foreach_copy_(self.towards, list[Tensor](self.parameters))

    def steps(self, images: Tensor, labels: Tensor, schedule: Schedule) -> Iterator[None]:
        """A round's steps, queued one by one on the current stream.

        Args:
            images: (N, H, W, C) uint8, what the schedule counts through.
            labels: (N,).
            schedule: of at most V vehicles, in the order of their places.
        """
        width = int(schedule.sizes.max(initial=0))
        taken = self._padded(schedule.indices[:, :, :width]).to(torch.int64)
        counts = self._padded(schedule.sizes).to(torch.int64)
        flips = self._padded(schedule.flips[:, :, :width]) if schedule.flips.ndim > 1 else None
        shifts = self._padded(schedule.shifts[:, :, :width]) if schedule.shifts.ndim > 1 else None
        for t, sizes in enumerate(schedule.sizes):
            for size in [int(sizes.max())] if self.stack.fills else sorted(set(sizes[sizes > 0].tolist())):
                full = bool(np.all(sizes == size)) and len(sizes) == self.vehicles
                if not full:
                    self.counts.copy_(counts[t, :, None])
                    if not self.stack.fills:
                        self.counts[self.counts != size] = 0
                some = [None if a is None else a[t, :, :size] for a in (flips, shifts)]
                at = taken[t, :, :size]
                self._take(picked(images, at, *some), labels[at], ragged=not full)
                yield

    def _padded(self, rows: NDArray[Any]) -> Tensor:
        """(T, v, ...) -> (T, V, ...) on the device: places that nobody has hold zeros."""
        nobody = [(0, 0), (0, self.vehicles - rows.shape[1]), *[(0, 0)] * (rows.ndim - 2)]
        return torch.from_numpy(np.pad(rows, nobody)).to(self.device)

    def _take(self, images: Tensor, labels: Tensor, *, ragged: bool) -> None:
        inputs, key = self.stack.arranged(normalise(images)), (labels.shape[1], ragged)
        if self.device.type == "cuda" and key not in self._held and len(self._held) < MOST_GRAPHS:
            self._capture(key, inputs, labels)
        if key in self._held:
            graph, held_inputs, held_labels = self._held[key]
            held_inputs.copy_(inputs)
            held_labels.copy_(labels)
            graph.replay()
        else:
            self._step(inputs, labels, ragged=ragged)

    def _capture(self, key: Key, inputs: Tensor, labels: Tensor) -> None:
        """The step as a graph, after some without one; models and velocities are then as before."""
        before = [tensor.clone() for tensor in self._changing()]
        held = inputs.clone(memory_format=torch.preserve_format), labels.clone()
        for _ in range(3):
            self._step(*held, ragged=key[1])
        graph = torch.cuda.CUDAGraph()
        with capturing(graph, pool=self._pool, stream=torch.cuda.current_stream(self.device)):
            self._step(*held, ragged=key[1])
        with torch.no_grad():
            for tensor, was in zip(self._changing(), before, strict=True):
                tensor.copy_(was)
        self._held[key] = graph, *held

    def _changing(self) -> list[Tensor]:
        """What a step changes, each (V, ...)."""
        moving = [torch.unflatten(v, 0, (self.vehicles, -1)) for v in self.velocities]
        return [*self.stack.stacked.values(), *moving]

    def _step(self, inputs: Tensor, labels: Tensor, *, ragged: bool) -> None:
        before = [tensor.clone() for tensor in self._changing()] if ragged else []
        whole = labels.shape[1] == self.settings.batch_size and not (ragged and not self.stack.fills)
        keep = torch.arange(labels.shape[1], device=self.device) < self.counts if ragged else None
        self.stack.let_count(keep)
        with _searching(whole), torch.autocast("cuda", dtype=torch.bfloat16, enabled=self.mixed):
            logits = self.stack(inputs)
        shifted = (logits.float() - self.shift).flatten(0, 1)
        losses = functional.cross_entropy(shifted, labels.flatten(), reduction="none").view(labels.shape)
        if keep is not None:
            losses = torch.where(keep, losses, 0.0) / self.counts.clamp(min=1)
        loss = losses.sum() if ragged else losses.sum() / labels.shape[1]
        gradients = list(torch.autograd.grad(loss, self.parameters))
        move = self._descend if whole else descend
        move(self.parameters, self.velocities, gradients, self.settings, self.rate, self.towards)
        if ragged:
            self._restore(before)

    @torch.no_grad()
    def _restore(self, before: Sequence[Tensor]) -> None:
        """Models of vehicles that have no sample in a step are as before it."""
        for tensor, was in zip(self._changing(), before, strict=True):
            there = self.counts.view(-1, *[1] * (tensor.ndim - 1)) > 0
            tensor.copy_(torch.where(there, tensor, was))

    def fits(self, settings: TrainingSettings) -> bool:
        """Whether these settings need no other steps; the learning rate is told in every round."""
        return replace(self.settings, lr=1.0) == replace(settings, lr=1.0)


@contextmanager
def _searching(whole: bool) -> Iterator[None]:
    """Whole batches are compiled, and their convolutions chosen by trying; the few others as they come."""
    with ExitStack() as stack:
        if not whole:
            stack.enter_context(torch.compiler.set_stance("force_eager"))
            tf32 = torch.backends.cudnn.allow_tf32
            stack.enter_context(torch.backends.cudnn.flags(enabled=True, benchmark=False, allow_tf32=tf32))
        yield


def picked(images: Tensor, at: Tensor, flips: Tensor | None, shifts: Tensor | None) -> Tensor:
    """Images (N, H, W, C) at (V, B) places, mirrored and shifted as `take` does it: (V, B, H, W, C)."""
    if flips is None and shifts is None:
        return images[at]
    height, width = images.shape[1:3]
    rows = torch.arange(height, device=images.device).expand(*at.shape, -1)
    columns = torch.arange(width, device=images.device).expand(*at.shape, -1)
    if flips is not None:
        columns = torch.where(flips[..., None] != 0, width - 1 - columns, columns)
    if shifts is not None:
        rows = (rows + shifts[..., :1]).clamp(0, height - 1)
        columns = (columns + shifts[..., 1:]).clamp(0, width - 1)
    return images[at[..., None, None], rows[..., :, None], columns[..., None, :]]
