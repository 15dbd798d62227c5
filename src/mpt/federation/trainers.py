"""The fast trainers: what `train_plain` does, for a GPU and for a CPU.

All draw the same samples in the same order as `train_plain`, so that in float32 they differ from it by rounding only.
"""

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mpt.federation.cuda_graph_trainer import CudaGraphTrainer
from mpt.federation.jobs import Job, Trainer, merging, train_plain, train_vehicle
from mpt.federation.plan import Plan, Precision
from mpt.federation.stacked_trainer import StackedTrainer
from mpt.federation.taking_part import Pool, TakingPart, logit_shift, taking_part
from mpt.learning import Classifier, DivergedError, LearningError, TrainingSettings, generator
from mpt.learning.backbones import BACKBONES
from mpt.learning.backbones.cnn3 import CNN3, GRID
from mpt.learning.cuda_graphs import draws_nothing
from mpt.learning.losses import is_shifted
from mpt.learning.randomness import isolated
from mpt.learning.stacked.networks import can_be_stacked
from mpt.learning.threads import at_once, side_by_side
from mpt.learning.training import channels_last
from mpt.learning.triton_stack.layout import CHANNELS, Layout
from mpt.learning.triton_stack.schedule import draw

MOST_CLASSES, MOST_BATCH = 128, 256
WORTH_COMPILING = 10_000


def fast_trainer(
    model: Classifier, settings: TrainingSettings, precision: Precision = "auto", steps: int = 0
) -> Trainer:
    """The fastest trainer for a model where it is.

    On a GPU: all vehicles side by side for cnn3 that is not frozen (needs Triton, which comes with torch's CUDA
    builds); as one network where that can be made of them and there are steps enough to compile it for; else some at a
    time by replaying a captured step each; series and vectors by the reference loop. On a CPU: in channels-last,
    several vehicles at once where the model draws no random numbers, else one after the other. `precision` concerns
    GPUs; "auto" is bfloat16 with float32 parameters and sums. `steps` is about how many batches there will be: many are
    worth compiling for.
    """
    if model.head.weight.device.type != "cuda":
        return train_side_by_side if draws_nothing(model) else train_channels_last
    chosen: Precision = "bfloat16" if precision == "auto" else precision
    if model.kind != "images":
        return train_plain
    if stackable(model, settings):
        return ByLoss(TritonTrainer(chosen))
    if not draws_nothing(model):
        return train_plain
    compiled = steps >= WORTH_COMPILING and find_spec("triton") is not None
    if compiled and chosen == "bfloat16" and not model.frozen and can_be_stacked(model):
        return ByLoss(StackedTrainer(chosen, compiled=True))
    return ByLoss(CudaGraphTrainer(chosen, compiled=compiled))


@dataclass
class Trainers:
    """For federations that run one after the other: what was compiled for the last one serves the next of its kind."""

    _key: tuple[Any, ...] = ()
    _made: Trainer | None = None

    def fast(self, model: Classifier, plan: Plan, steps: int) -> Trainer:
        """`fast_trainer`'s, the one of the last federation where it was made for this."""
        what = (plan.backbone, model.input_shape, model.num_classes, plan.freeze, str(model.head.weight.device))
        key = (*what, replace(plan.training, lr=1.0), plan.precision, steps >= WORTH_COMPILING)
        built_in = BACKBONES.parse(plan.backbone).head in BACKBONES  # another's may be edited, or depend on the seed
        if self._made is None or key != self._key or not built_in:
            self._made = None
            self._made, self._key = fast_trainer(model, plan.training, plan.precision, steps), key
        return self._made

    @contextmanager
    def used(self) -> Iterator[None]:
        """Inside, a federation trains; then its trainer forgets what it has of it, and is dropped if it failed."""
        try:
            yield
        except BaseException:
            self._made = None
            raise
        if isinstance(self._made, ByLoss):
            self._made.forget()


def stackable(model: Classifier, settings: TrainingSettings) -> bool:
    """Whether `TritonTrainer` can train it."""
    return (
        isinstance(model.backbone, CNN3)
        and not model.frozen
        and model.image_size % (4 * GRID if model.backbone.embedding else 4) == 0
        and model.num_classes <= MOST_CLASSES
        and settings.batch_size <= MOST_BATCH
        and find_spec("triton") is not None
    )


@dataclass(frozen=True)
class ByLoss:
    """Jobs whose loss is a cross-entropy of shifted logits by a trainer that is made for them, others one by one."""

    fast: Trainer

    def __call__(self, model: Classifier, jobs: Sequence[Job]) -> list[dict[str, Tensor]]:
        """The averaged models, one a job."""
        places = [i for i, job in enumerate(jobs) if is_shifted(job.loss)]
        done = dict(zip(places, self.fast(model, [jobs[i] for i in places]) if places else [], strict=True))
        return [done[i] if i in done else train_plain(model, [job])[0] for i, job in enumerate(jobs)]

    def forget(self) -> None:
        """What belongs to a federation that is done."""
        if isinstance(self.fast, TritonTrainer | StackedTrainer):
            self.fast.forget()


def train_channels_last(model: Classifier, jobs: Sequence[Job]) -> list[dict[str, Tensor]]:
    """`train_plain` with weights and maps in channels-last order, in which CPUs convolve faster."""
    trained = train_plain(channels_last(copy.deepcopy(model)), jobs)
    return [_like(state, model) for state in trained]


def train_side_by_side(model: Classifier, jobs: Sequence[Job]) -> list[dict[str, Tensor]]:
    """`train_channels_last` with several vehicles at once, where the model draws no random numbers."""
    work = taking_part(jobs)
    models = [channels_last(copy.deepcopy(model)) for _ in range(at_once(len(work)))]
    averages = [merging(model, job) for job in jobs]

    def update(mine: Classifier, who: TakingPart) -> dict[str, Tensor]:
        return {name: tensor.clone() for name, tensor in train_vehicle(mine, jobs[who.job], who.vehicle).items()}

    with isolated(0):
        for who, state in zip(work, side_by_side(update, models, work), strict=True):
            averages[who.job].add(who.vehicle, state, len(who.samples.labels))
    return [_like(average.state(), model) for average in averages]


def _like(state: dict[str, Tensor], model: Classifier) -> dict[str, Tensor]:
    """The state with tensors in the order in memory that the model's have."""
    before = {name: tensor.stride() for name, tensor in model.state_dict().items()}
    return {name: _strided(tensor, before[name]) for name, tensor in state.items()}


def _strided(tensor: Tensor, stride: tuple[int, ...]) -> Tensor:
    return tensor if tensor.stride() == stride else tensor.contiguous()


@dataclass
class TritonTrainer:
    """All vehicles of all jobs at once, or as many as the memory holds: three-layer CNNs on a GPU.

    Attributes:
        most: how many vehicles at a time; None: what fits into the free memory.
    """

    precision: Precision = "bfloat16"
    most: int | None = None
    pool: Pool = field(default_factory=Pool)
    _stack: Any = None
    _fits: int = 2**31

    def __call__(self, model: Classifier, jobs: Sequence[Job]) -> list[dict[str, Tensor]]:
        """The averaged models, one a job."""
        settings, layout = jobs[0].settings, _layout(model)
        if any(job.settings != settings for job in jobs):
            raise LearningError("jobs: their settings differ, should be the same for all jobs of a round")
        self.pool.hold(jobs)
        packed = [layout.pack(job.start) for job in jobs]
        work = taking_part(jobs)
        stack = self._fitting(layout, settings, model, len(work))
        parts = [
            self._train(stack, work[first : first + stack.capacity], jobs, packed, model)
            for first in range(0, len(work), stack.capacity)
        ]
        parameters, running = (torch.cat([part[i] for part in parts]) for i in (0, 1))
        steps = np.concatenate([part[2] for part in parts])
        owner = np.array([vehicle.job for vehicle in work])
        made = []
        for j, job in enumerate(jobs):
            trained = (work, np.flatnonzero(owner == j), parameters, running, steps)
            plain = job.plain
            made.append(self._average(layout, job, *trained) if plain else self._merged(layout, model, job, *trained))
        return made

    def forget(self) -> None:
        """The samples, and the stack, whose size depends on what it was used for."""
        self.pool, self._stack = Pool(), None

    @staticmethod
    def _merged(
        layout: Layout,
        model: Classifier,
        job: Job,
        work: Sequence[TakingPart],
        places: Any,
        parameters: Tensor,
        running: Tensor,
        steps: Any,
    ) -> dict[str, Tensor]:
        """Vehicle by vehicle, as other trainers do it."""
        made = merging(model, job)
        for place in places.tolist():
            state = layout.unpack(parameters[place], running[place], job.start)
            for name in state:
                if name.endswith("num_batches_tracked"):
                    state[name] = job.start[name] + int(steps[place])
            made.add(work[place].vehicle, state, len(work[place].samples.labels))
        return made.state()

    def _train(
        self, stack: Any, work: Sequence[TakingPart], jobs: Sequence[Job], packed: Any, model: Classifier
    ) -> tuple[Tensor, Tensor, Any]:
        """Parameters (V, P), running statistics (V, R) and numbers of steps (V,) of V vehicles after the round."""
        drawn = [generator(jobs[w.job].seed, "training", jobs[w.job].round, w.vehicle) for w in work]
        schedule = draw([self.pool.rows(w.samples) for w in work], drawn, jobs[0].settings, model.image_size)
        owner = [work[who].job for who in schedule.order]
        stack.parameters[: len(owner)] = torch.stack([parameters for parameters, _ in packed])[owner]
        stack.running[: len(owner)] = torch.stack([running for _, running in packed])[owner]
        stack.shift.zero_()
        for place, who in enumerate(schedule.order):
            shift = logit_shift(jobs[owner[place]].loss, work[who].samples, model.num_classes)
            if shift is not None:
                stack.shift[place] = shift
        stack.run(self.pool.images, self.pool.labels, schedule, jobs[0].settings.lr)
        back = np.argsort(schedule.order)
        at = torch.from_numpy(back).to(stack.parameters.device)
        return stack.parameters[at], stack.running[at], schedule.steps[back]

    def _fitting(self, layout: Layout, settings: TrainingSettings, model: Classifier, vehicles: int) -> Any:
        """A stack for so many vehicles, or for as many of them as fit; the one that is there, if it will do."""
        from mpt.learning.triton_stack.stack import Stack, bytes_a_vehicle, key_of  # noqa: PLC0415 - needs Triton

        key, device = key_of(layout, settings, model.image_size), model.head.weight.device
        if self._stack is not None and self._stack.key == key and self._stack.capacity >= min(vehicles, self._most):
            return self._stack
        self._stack = None
        dtype = torch.bfloat16 if self.precision == "bfloat16" else torch.float32
        if self.most is None and device.type == "cuda":
            torch.cuda.empty_cache()
            each = bytes_a_vehicle(layout, settings, model.image_size, dtype)
            self._fits = max(1, int(0.7 * torch.cuda.mem_get_info(device)[0] / each))
        capacity = min(vehicles, self._most)
        tf32 = self.precision == "tf32"
        self._stack = Stack(layout, settings, model.image_size, capacity, device, dtype=dtype, tf32=tf32)
        return self._stack

    @property
    def _most(self) -> int:
        return self.most or self._fits

    @staticmethod
    def _average(
        layout: Layout,
        job: Job,
        work: Sequence[TakingPart],
        places: Any,
        parameters: Tensor,
        running: Tensor,
        steps: Any,
    ) -> dict[str, Tensor]:
        """FedAvg by sample counts, BatchNorm's variances pooled, as `RunningAverage` does it."""
        counts = np.array([len(work[place].samples.labels) for place in places], dtype=np.float64)
        at = torch.from_numpy(places).to(parameters.device)
        share = torch.from_numpy(counts / counts.sum()).to(parameters.device)[:, None]
        averaged = (share * parameters[at].double()).sum(0)
        moments = running[at].double()
        mean = (share * moments).sum(0)
        for start, channels in zip(layout.running_starts[:-1], CHANNELS if layout.norm else (), strict=False):
            means = moments[:, start : start + channels]
            mean[start + channels : start + 2 * channels] += (
                share * (means - mean[start : start + channels]) ** 2
            ).sum(0)
        if not bool(torch.isfinite(averaged).all() & torch.isfinite(mean).all()):
            raise DivergedError("the model has entries that are NaN or infinite")
        state = layout.unpack(averaged.float(), mean.float(), job.start)
        for name in state:
            if name.endswith("num_batches_tracked"):
                state[name] = job.start[name] + int(steps[places].max())
        return state


def _layout(model: Classifier) -> Layout:
    if not isinstance(model.backbone, CNN3):
        raise LearningError(f"backbone: {type(model.backbone).__name__}, should be a three-layer CNN for this trainer")
    return Layout.of(model.backbone, model.in_channels, model.num_classes)
