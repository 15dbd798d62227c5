"""The fast trainers: what `train_plain` does, for a GPU and for a CPU.

All draw the same samples in the same order as `train_plain`, so that in float32 they differ from it by rounding only.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mpt.federation.plan import Precision
from mpt.federation.trainings import Job, Samples, Trainer, train_plain
from mpt.learning import Classifier, LearningError, RunningAverage, Settings, generator
from mpt.learning.backbones.cnn3 import CNN3
from mpt.learning.graphed import GraphedSteps, can_be_graphed
from mpt.learning.losses import calibration
from mpt.learning.stacked.layout import CHANNELS, Layout
from mpt.learning.stacked.schedule import Schedule, draw
from mpt.learning.training import channels_last

MOST_CLASSES, MOST_BATCH = 128, 256
WORTH_COMPILING = 10_000


def fast_trainer(model: Classifier, settings: Settings, precision: Precision = "auto", steps: int = 0) -> Trainer:
    """The fastest trainer for a model where it is.

    On a GPU: all vehicles side by side for cnn3 (needs Triton, which comes with torch's CUDA builds), else one after
    the other by replaying a captured step. On a CPU: in channels-last. `precision` concerns GPUs; "auto" is bfloat16
    with float32 parameters and sums. `steps` is about how many batches there will be: many are worth compiling for.
    """
    if model.head.weight.device.type != "cuda":
        return train_channels_last
    chosen: Precision = "bfloat16" if precision == "auto" else precision
    if stackable(model, settings):
        return StackedTrainer(chosen)
    if can_be_graphed(model):
        return GraphedTrainer(chosen, compiled=steps >= WORTH_COMPILING and find_spec("triton") is not None)
    return train_plain


def stackable(model: Classifier, settings: Settings) -> bool:
    """Whether `StackedTrainer` can train it."""
    return (
        isinstance(model.backbone, CNN3)
        and model.image_size % 4 == 0
        and model.num_classes <= MOST_CLASSES
        and settings.batch_size <= MOST_BATCH
        and find_spec("triton") is not None
    )


def train_channels_last(model: Classifier, jobs: Sequence[Job]) -> list[dict[str, Tensor]]:
    """`train_plain` with weights and maps in channels-last order, in which CPUs convolve faster."""
    before = {name: tensor.stride() for name, tensor in model.state_dict().items()}
    trained = train_plain(channels_last(copy.deepcopy(model)), jobs)
    return [{name: _strided(tensor, before[name]) for name, tensor in state.items()} for state in trained]


def _strided(tensor: Tensor, stride: tuple[int, ...]) -> Tensor:
    return tensor if tensor.stride() == stride else tensor.contiguous()


@dataclass
class Pool:
    """The samples of all vehicles in one array on the device, (N, H, W, C), so that an index is enough to name one."""

    images: Tensor | None = None
    labels: Tensor | None = None
    _first: dict[int, tuple[int, Samples]] = field(default_factory=dict)

    def hold(self, jobs: Sequence[Job]) -> None:
        """Take in what the jobs train on; what is there already stays where it is."""
        new = {id(s): s for job in jobs for s in job.vehicles.values() if id(s) not in self._first}
        if not new:
            return
        size = 0 if self.labels is None else len(self.labels)
        for key, samples in new.items():
            self._first[key] = size, samples
            size += len(samples.labels)
        images = [s.images.permute(0, 2, 3, 1) for s in new.values()]
        labels = [s.labels for s in new.values()]
        self.images = torch.cat(images if self.images is None else [self.images, *images]).contiguous()
        self.labels = torch.cat(labels if self.labels is None else [self.labels, *labels])

    def rows(self, samples: Samples) -> "np.ndarray[Any, np.dtype[np.int64]]":
        """Where a vehicle's samples are."""
        first = self._first[id(samples)][0]
        return np.arange(first, first + len(samples.labels))


@dataclass
class StackedTrainer:
    """All vehicles of all jobs at once: three-layer CNNs on a GPU."""

    precision: Precision = "bfloat16"
    pool: Pool = field(default_factory=Pool)
    _stack: Any = None

    def __call__(self, model: Classifier, jobs: Sequence[Job]) -> list[dict[str, Tensor]]:
        """The averaged models, one a job."""
        settings, layout = jobs[0].settings, Layout(model.in_channels, model.num_classes)
        if any(job.settings != settings for job in jobs):
            raise LearningError("jobs: their settings differ, should be the same for all jobs of a round")
        self.pool.hold(jobs)
        names = [(j, v) for j, job in enumerate(jobs) for v, s in sorted(job.vehicles.items()) if len(s.labels)]
        held = [jobs[j].vehicles[v] for j, v in names]
        generators = [generator(jobs[j].seed, "training", jobs[j].round, v) for j, v in names]
        schedule = draw([self.pool.rows(s) for s in held], generators, settings, model.image_size)
        stack = self._fitting(layout, settings, model, len(names))
        packed = [layout.pack(job.start) for job in jobs]
        owner = [names[place][0] for place in schedule.order]
        stack.parameters[: len(owner)] = torch.stack([parameters for parameters, _ in packed])[owner]
        stack.running[: len(owner)] = torch.stack([running for _, running in packed])[owner]
        stack.shift.zero_()
        for place, who in enumerate(schedule.order):
            if jobs[owner[place]].calibrates:
                stack.shift[place] = _shift(held[who], model.num_classes)
        stack.run(self.pool.images, self.pool.labels, schedule)
        counts = np.array([len(held[who].labels) for who in schedule.order], dtype=np.float64)
        return [
            self._average(layout, stack, job, np.flatnonzero(np.array(owner) == j), counts, schedule)
            for j, job in enumerate(jobs)
        ]

    def _fitting(self, layout: Layout, settings: Settings, model: Classifier, vehicles: int) -> Any:
        from mpt.learning.stacked.stack import Stack  # noqa: PLC0415 - needs Triton

        key = (layout, settings, model.image_size)
        if self._stack is None or self._stack.capacity < vehicles or self._stack.key != key:
            self._stack = None
            exact = self.precision != "bfloat16"
            self._stack = Stack(
                layout,
                settings,
                model.image_size,
                vehicles,
                model.head.weight.device,
                dtype=torch.float32 if exact else torch.bfloat16,
                tf32=self.precision == "tf32",
            )
        return self._stack

    def _average(
        self, layout: Layout, stack: Any, job: Job, places: Any, counts: Any, schedule: Schedule
    ) -> dict[str, Tensor]:
        """FedAvg by sample counts, BatchNorm's variances pooled, as `RunningAverage` does it."""
        device = stack.parameters.device
        at = torch.from_numpy(places).to(device)
        share = torch.from_numpy(counts[places] / counts[places].sum()).to(device)[:, None]
        parameters = (share * stack.parameters[at].double()).sum(0)
        running = stack.running[at].double()
        mean = (share * running).sum(0)
        starts = layout.running_starts
        for start, channels in zip(starts[:-1], CHANNELS, strict=True):
            means = running[:, start : start + channels]
            mean[start + channels : start + 2 * channels] += (
                share * (means - mean[start : start + channels]) ** 2
            ).sum(0)
        if not bool(torch.isfinite(parameters).all() & torch.isfinite(mean).all()):
            raise LearningError(
                f"round {job.round}: the model has entries that are NaN or infinite; a smaller lr may help"
            )
        state = layout.unpack(parameters.float(), mean.float(), job.start)
        for name in state:
            if name.endswith("num_batches_tracked"):
                state[name] = job.start[name] + int(schedule.steps[places].max())
        return state


@dataclass
class GraphedTrainer:
    """One vehicle after the other, any backbone on a GPU."""

    precision: Precision = "bfloat16"
    compiled: bool = False
    _steps: GraphedSteps | None = None

    def __call__(self, model: Classifier, jobs: Sequence[Job]) -> list[dict[str, Tensor]]:
        """The averaged models, one a job."""
        exact = self.precision == "float32"
        with torch.backends.cudnn.flags(enabled=True, benchmark=True, allow_tf32=not exact):
            return [self._train(model, job) for job in jobs]

    def _train(self, model: Classifier, job: Job) -> dict[str, Tensor]:
        if self._steps is None or self._steps.settings != job.settings:
            self._steps = GraphedSteps(model, job.settings, mixed=self.precision == "bfloat16", compiled=self.compiled)
        running = RunningAverage(model)
        for vehicle, samples in sorted(job.vehicles.items()):
            if not len(samples.labels):
                continue
            drawn = generator(job.seed, "training", job.round, vehicle)
            shift = _shift(samples, model.num_classes) if job.calibrates else None
            running.add(self._steps.train(job.start, samples.images, samples.labels, drawn, shift), len(samples.labels))
        return {name: tensor.contiguous() for name, tensor in running.state().items()}


def _shift(samples: Samples, num_classes: int) -> Tensor:
    """(C,): what FedLC takes off a vehicle's logits."""
    return calibration(torch.bincount(samples.labels, minlength=num_classes)).float()
