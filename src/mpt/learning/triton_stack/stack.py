"""Many three-layer CNNs that train side by side on one device: the buffers, one step, and a round of steps."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
import triton
from numpy.typing import NDArray
from torch import Tensor

from mpt.learning.capture import capturing
from mpt.learning.settings import TrainingSettings
from mpt.learning.triton_stack import kernels as k
from mpt.learning.triton_stack.layout import CHANNELS, FLAT, Layout
from mpt.learning.triton_stack.schedule import Schedule

ROWS = 128
"""Of a block in kernels over rows; what is bound by memory takes HALF."""
HALF = 64


@dataclass(frozen=True)
class Tiles:
    """How a convolution is cut up, found by trying on an H200: rows of a block, warps, loads in flight."""

    rows: int
    warps: int
    stages: int


FORWARD = (Tiles(256, 4, 3), Tiles(128, 4, 4), Tiles(128, 4, 4))
BACKWARD = (None, Tiles(256, 8, 3), Tiles(256, 8, 3))
EXACT = Tiles(64, 4, 1)
"""For float32, whose tiles are twice as large."""


@dataclass
class Stack:
    """V models with their own parameters, on images of one size.

    Attributes:
        capacity: V, the most vehicles at a time.
        dtype: of activations; float32 multiplies exactly, or in tf32 with `tf32`.
    """

    layout: Layout
    settings: TrainingSettings
    image_size: int
    capacity: int
    device: torch.device
    dtype: torch.dtype = torch.bfloat16
    tf32: bool = False
    images: Tensor = field(init=False)
    labels: Tensor = field(init=False)
    indices: Tensor = field(init=False)
    sizes: Tensor = field(init=False)
    flips: Tensor = field(init=False)
    shifts: Tensor = field(init=False)
    flipped: bool = False
    shifted: bool = False
    _where: tuple[int, ...] = ()
    _graphs: dict[int, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        v, b, side, channels = self.capacity, self.settings.batch_size, self.image_size, CHANNELS
        sides = (side, side // 2, side // 4)
        self.sides = sides
        self.splits = tuple(max(1, min(most, 160 // v)) for most in (16, 8, 8))

        def empty(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=self.device)

        parameters = self.layout.starts[-1]
        self.parameters, self.velocities = empty(v, parameters), empty(v, parameters)
        self.copies = self.parameters if self.dtype == torch.float32 else empty(v, parameters, dtype=self.dtype)
        self.gradients = empty(v, max(self.splits), parameters)
        self.running = empty(v, self.layout.running_starts[-1])
        self.shift = empty(v, self.layout.num_classes)
        self.towards = torch.empty_like(self.parameters) if self.settings.prox else self.parameters
        self.step, self.rate = empty(1, dtype=torch.int32), empty(1)
        self.inputs = [empty(v, b, side, side, self.layout.patch, dtype=self.dtype)]
        self.inputs += [empty(v, b, s, s, c, dtype=self.dtype) for s, c in zip(sides[1:], channels[:2], strict=True)]
        self.maps = [empty(v, b, s, s, c, dtype=self.dtype) for s, c in zip(sides, channels, strict=True)]
        self.back = [torch.empty_like(maps) for maps in self.maps]
        self.above = [torch.empty_like(inputs) for inputs in self.inputs[1:]]
        self.features, self.above_features = empty(v, b, channels[-1]), empty(v, b, channels[-1])
        if self.layout.embedding:
            self.flat, self.above_flat = empty(v, b, FLAT, dtype=self.dtype), empty(v, b, FLAT, dtype=self.dtype)
            self.back_features = empty(v, b, channels[-1], dtype=self.dtype)
        self.partial = [empty(v, triton.cdiv(b * s * s, HALF), 2, c) for s, c in zip(sides, channels, strict=True)]
        self.moments = [empty(v, 2, c) for c in channels]
        self.means = [empty(v, 2, c) for c in channels]

    @property
    def key(self) -> "Key":
        """What a stack is made for."""
        return key_of(self.layout, self.settings, self.image_size)

    def run(self, images: Tensor, labels: Tensor, schedule: Schedule, lr: float) -> None:
        """Take all steps of `schedule` on images (N, H, W, C) uint8 and labels (N,) int64, on the device."""
        self._take_in(images, labels, schedule)
        self.velocities.zero_()
        self.step.zero_()
        self.rate.fill_(lr)
        if self.settings.prox:
            self.towards.copy_(self.parameters)
        if self.dtype != torch.float32:
            self.copies.copy_(self.parameters)
        for vehicles, steps in schedule.active():
            self._repeat(vehicles, steps)

    def _take_in(self, images: Tensor, labels: Tensor, schedule: Schedule) -> None:
        """The round's samples, where the graphs look for them; they are captured anew where those have moved."""
        arrays = {
            "indices": _widened(schedule.indices, self.capacity),
            "sizes": _widened(schedule.sizes, self.capacity),
            "flips": _widened(schedule.flips, self.capacity),
            "shifts": _widened(schedule.shifts, self.capacity),
        }
        for name, array in arrays.items():
            tensor, held = torch.from_numpy(array), getattr(self, name, None)
            if held is None or held.numel() < tensor.numel() or held.dtype != tensor.dtype:
                held = torch.zeros(tensor.numel() * 2, dtype=tensor.dtype, device=self.device)
                setattr(self, name, held)
                self._graphs.clear()
            held[: tensor.numel()].copy_(tensor.reshape(-1))
        where = (images.data_ptr(), labels.data_ptr(), schedule.flips.ndim, schedule.shifts.ndim)
        if where != self._where:
            self._where, self.images, self.labels = where, images, labels
            self._graphs.clear()
        self.flipped, self.shifted = schedule.flips.ndim > 1, schedule.shifts.ndim > 1

    def _repeat(self, vehicles: int, steps: int) -> None:
        if self.device.type != "cuda":
            for _ in range(steps):
                self._step(vehicles)
            return
        graph = self._graphs.get(vehicles)
        if graph is None:
            before = [t.clone() for t in (self.parameters, self.velocities, self.copies, self.running, self.step)]
            stream = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
            stream.wait_stream(torch.cuda.current_stream(self.device))
            with torch.cuda.stream(stream):
                self._step(vehicles)
            torch.cuda.current_stream(self.device).wait_stream(stream)
            for tensor, was in zip(
                (self.parameters, self.velocities, self.copies, self.running, self.step), before, strict=True
            ):
                tensor.copy_(was)
            graph = torch.cuda.CUDAGraph()
            with capturing(graph):
                self._step(vehicles)
            self._graphs[vehicles] = graph
        for _ in range(steps):
            graph.replay()

    def _step(self, vehicles: int) -> None:
        """One batch of each of the first vehicles, forwards and backwards, and a step of SGD."""
        self._forward(vehicles)
        self._backward(vehicles)
        count, s = self.layout.starts[-1], self.settings
        k.descend[(triton.cdiv(count, 1024), vehicles)](
            self.parameters, self.velocities, self.gradients, self.copies, self.towards, self.rate,
            count, self.layout.starts[1], self.layout.starts[7], self.splits[0], max(self.splits[1:]),
            s.momentum, s.weight_decay, s.prox, max(self.splits) * count,
            PROX=s.prox > 0, COPY=self.dtype != torch.float32, BLOCK=1024,
        )  # fmt: skip
        k.next_step[(1,)](self.step)

    @property
    def _precision(self) -> str:
        return "tf32" if self.tf32 else "ieee"

    def _forward(self, vehicles: int) -> None:
        v, b, side = self.capacity, self.settings.batch_size, self.image_size
        starts, count, past = self.layout.starts, self.layout.starts[-1], self.layout.running_starts
        norm, grid = self.layout.norm, self.layout.grid
        k.patches[(triton.cdiv(b * side * side, ROWS), vehicles)](
            self.images, self.indices, self.flips, self.shifts, self.sizes, self.step, self.inputs[0],
            v, b, H=side, W=side, C=self.layout.in_channels, K=self.layout.patch,
            FLIP=self.flipped, SHIFT=self.shifted, BLOCK=ROWS,
        )  # fmt: skip
        for i, (s, (taps, inputs, outputs)) in enumerate(zip(self.sides, self.layout.shapes, strict=True)):
            tiles = EXACT if self.dtype == torch.float32 else FORWARD[i]
            blocks = triton.cdiv(b * s * s, tiles.rows)
            k.convolve[(blocks, vehicles)](
                self.inputs[i], self.copies[:, starts[i] :], self.maps[i], self.partial[i], self.sizes, self.step,
                v, b, count, H=s, W=s, CI=inputs, CO=outputs, TAPS=taps,
                BACK=False, STATS=norm, PRECISION=self._precision,
                BLOCK=tiles.rows, num_warps=tiles.warps, num_stages=tiles.stages,
            )  # fmt: skip
            if norm:
                k.finish_statistics[(vehicles,)](
                    self.partial[i], self.moments[i], self.running[:, past[i] :], self.sizes, self.step,
                    v, blocks, past[-1], HW=s * s, CO=outputs, BLOCK=tiles.rows, MANY=4096 // outputs,
                )  # fmt: skip
            affine = self.parameters[:, starts[3 + i] :]
            if i < 2:
                k.activate_pool[(triton.cdiv(b * s * s // 4, HALF), vehicles)](
                    self.maps[i], self.moments[i], affine, self.inputs[i + 1], self.sizes, self.step,
                    v, b, count, H=s, W=s, C=outputs, NORM=norm, BLOCK=HALF,
                )  # fmt: skip
            else:
                cells = self.flat if self.layout.embedding else self.features
                k.activate_mean[(b * grid**2, vehicles)](
                    self.maps[i], self.moments[i], affine, cells, self.sizes, self.step,
                    v, b, count, H=s, W=s, C=outputs, GRID=grid, NORM=norm,
                    BLOCK=min(32, triton.next_power_of_2(s * s // grid**2)),
                )  # fmt: skip
        if self.layout.embedding:
            self._embed(vehicles)

    def _embed(self, vehicles: int) -> None:
        """The embedding layer: (V, B, 2048) -> features (V, B, 128)."""
        b, start, count = self.settings.batch_size, self.layout.starts[7], self.layout.starts[-1]
        d, rows, deep = CHANNELS[-1], max(16, min(64, triton.next_power_of_2(b))), self._deep
        k.multiply[(triton.cdiv(b, rows), d // 32, vehicles)](
            self.flat, self.copies[:, start:], self.parameters[:, start + FLAT * d :], self.features,
            b * FLAT, FLAT, 1, count, d, 1, b * d, d,
            M=b, N=d, K=FLAT, ACTIVE=True, PRECISION=self._precision, BLOCK_M=rows, BLOCK_N=32, BLOCK_K=2 * deep,
        )  # fmt: skip

    def _embed_back(self, vehicles: int) -> None:
        """Back through it: the gradients of its weight, its bias and what it got."""
        b, start, count = self.settings.batch_size, self.layout.starts[7], self.layout.starts[-1]
        d, rows, whole = CHANNELS[-1], max(16, min(64, triton.next_power_of_2(b))), max(self.splits) * count
        deep, most = self._deep, triton.next_power_of_2(b)
        k.embedding_back[(vehicles,)](
            self.features, self.above_features, self.back_features, self.gradients[:, :, start + FLAT * d :],
            b, whole, D=d, BLOCK=most,
        )  # fmt: skip
        k.multiply[(FLAT // 64, d // 64, vehicles)](
            self.flat, self.back_features, self.parameters, self.gradients[:, :, start:],
            b * FLAT, 1, FLAT, b * d, d, 1, whole, d,
            M=FLAT, N=d, K=b, ACTIVE=False, PRECISION=self._precision, BLOCK_M=64, BLOCK_N=64, BLOCK_K=deep,
        )  # fmt: skip
        k.multiply[(triton.cdiv(b, rows), FLAT // 64, vehicles)](
            self.back_features, self.copies[:, start:], self.parameters, self.above_flat,
            b * d, d, 1, count, 1, d, b * FLAT, FLAT,
            M=b, N=FLAT, K=d, ACTIVE=False, PRECISION=self._precision, BLOCK_M=rows, BLOCK_N=64, BLOCK_K=deep,
        )  # fmt: skip

    @property
    def _deep(self) -> int:
        """Terms of a product that are taken at a time."""
        return 32 if self.dtype == torch.float32 else 64

    def _backward(self, vehicles: int) -> None:
        v, b, classes = self.capacity, self.settings.batch_size, self.layout.num_classes
        starts, count = self.layout.starts, self.layout.starts[-1]
        whole = max(self.splits) * count
        k.classify[(vehicles,)](
            self.features, self.labels, self.shift, self.parameters[:, starts[6] :], self.gradients[:, :, starts[6] :],
            self.above_features, self.indices, self.sizes, self.step, v, b, count, whole, classes,
            D=CHANNELS[-1], C=max(16, triton.next_power_of_2(classes)), BLOCK=max(16, triton.next_power_of_2(b)),
            PRECISION="ieee",
        )  # fmt: skip
        norm, grid = self.layout.norm, self.layout.grid
        if self.layout.embedding:
            self._embed_back(vehicles)
        for i in (2, 1, 0):
            s, (taps, inputs, outputs) = self.sides[i], self.layout.shapes[i]
            pool = i < 2
            above = self.above[i] if pool else self.above_flat if self.layout.embedding else self.above_features
            blocks = triton.cdiv(b * s * s // (4 if pool else 1), HALF)
            affine = self.parameters[:, starts[3 + i] :]
            partial = self.partial[i].view(-1)
            for sums, write in ((True, False), (False, True)) if norm else ((True, True),):
                k.activate_back[(blocks, vehicles)](
                    self.maps[i], self.moments[i], affine, above, partial, self.means[i], self.back[i],
                    self.sizes, self.step, v, b, count, H=s, W=s, C=outputs, POOL=pool, GRID=grid,
                    NORM=norm, WRITE=write, SUMS=sums, BLOCK=HALF,
                )  # fmt: skip
                if sums:
                    k.finish_back[(vehicles,)](
                        partial, self.means[i], self.gradients[:, :, starts[3 + i] :], self.sizes, self.step,
                        v, blocks, whole, HW=s * s, C=outputs, NORM=norm, MANY=4096 // outputs,
                    )  # fmt: skip
            exact = self.dtype == torch.float32
            k.weight_gradient[(taps, self.splits[i], vehicles)](
                self.inputs[i], self.back[i], self.gradients[:, :, starts[i] :], self.sizes, self.step,
                v, b, count, whole, H=s, W=s, CI=inputs, CO=outputs, TAPS=taps,
                PRECISION=self._precision, BLOCK=HALF if exact else ROWS, num_stages=1 if exact else 3,
            )  # fmt: skip
            tiles = EXACT if exact else BACKWARD[i]
            if tiles is not None and i > 0:
                k.convolve[(triton.cdiv(b * s * s, tiles.rows), vehicles)](
                    self.back[i], self.copies[:, starts[i] :], self.above[i - 1], self.partial[i],
                    self.sizes, self.step, v, b, count, H=s, W=s, CI=outputs, CO=inputs, TAPS=taps,
                    BACK=True, STATS=False, PRECISION=self._precision,
                    BLOCK=tiles.rows, num_warps=tiles.warps, num_stages=tiles.stages,
                )  # fmt: skip


Key = tuple[Layout, TrainingSettings, int]


def key_of(layout: Layout, settings: TrainingSettings, image_size: int) -> Key:
    """What sets stacks apart: not the learning rate, which a round is told."""
    return layout, replace(settings, lr=1.0), image_size


def bytes_a_vehicle(layout: Layout, settings: TrainingSettings, image_size: int, dtype: torch.dtype) -> int:
    """About how much memory a stack takes for each of its vehicles: its buffers, found by making them without data."""
    made = Stack(layout, settings, image_size, 1, torch.device("meta"), dtype=dtype)
    held = [value for value in vars(made).values() if isinstance(value, Tensor | list)]
    tensors = [t for value in held for t in (value if isinstance(value, list) else [value])]
    return sum(t.numel() * t.element_size() for t in tensors)


def _widened(array: NDArray[Any], capacity: int) -> NDArray[Any]:
    """(T, V, ...) with V filled up to the capacity; what is no table stays."""
    if array.ndim < 2 or array.shape[1] == capacity:
        return np.ascontiguousarray(array)
    wide = np.zeros((array.shape[0], capacity, *array.shape[2:]), array.dtype)
    wide[:, : array.shape[1]] = array
    return wide
