"""Any backbone of which a stack can be made, on a GPU: the vehicles of a round as one network."""

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from mpt.federation.cuda_graph_trainer import CudaGraphTrainer
from mpt.federation.jobs import Job, Merging, merging
from mpt.federation.plan import Precision
from mpt.federation.taking_part import Pool, TakingPart, logit_shift, taking_part
from mpt.learning import Classifier, LearningError, TrainingSettings, generator
from mpt.learning.cuda_graphs import OnStream, Round, advance
from mpt.learning.stacked.steps import StackedSteps
from mpt.learning.training import epochs_of
from mpt.learning.triton_stack.schedule import Schedule, draw

ALIKE = 0.8
"""Vehicles train side by side that take at least this share of the steps of the one with the most."""
SPARE = 1.25
"""A stack is used for fewer vehicles than it was made for, down to one of this many."""
MOST_COMPILED = 3
"""Where the number of vehicles keeps changing, further stacks are not compiled."""
MEMORY = 0.4
"""Of what is free, for a stack."""


@dataclass
class StackedTrainer:
    """Vehicles that take about as many steps side by side; those that nobody is like on streams of their own.

    Attributes:
        most: how many vehicles at a time, where their maps fit into the memory.
    """

    precision: Precision = "bfloat16"
    compiled: bool = False
    most: int = 16
    pool: Pool = field(default_factory=Pool)
    _stacks: list[StackedSteps] = field(default_factory=list)
    _kept: dict[tuple[int, bool], StackedSteps] = field(default_factory=dict)
    _alone: CudaGraphTrainer = field(init=False)

    def __post_init__(self) -> None:
        self._alone = CudaGraphTrainer(self.precision)

    def __call__(self, model: Classifier, jobs: Sequence[Job]) -> list[dict[str, Tensor]]:
        """The averaged models, one a job."""
        settings = jobs[0].settings
        if any(job.settings != settings for job in jobs):
            raise LearningError("jobs: their settings differ, should be the same for all jobs of a round")
        self._stacks = [stack for stack in self._stacks if stack.fits(settings)]
        self._kept = {key: stack for key, stack in self._kept.items() if stack.fits(settings)}
        self.pool.hold(jobs)
        exact = self.precision == "float32"
        with torch.backends.cudnn.flags(enabled=True, benchmark=True, allow_tf32=not exact):
            return self._train(model, jobs)

    def forget(self) -> None:
        """The samples; stacks are kept for the next federation, if it would make the same."""
        self.pool = Pool()
        self._kept = {(stack.vehicles, stack.compiled): stack for stack in self._stacks}
        self._stacks = []

    def _train(self, model: Classifier, jobs: Sequence[Job]) -> list[dict[str, Tensor]]:
        made, cuda = [merging(model, job) for job in jobs], model.head.weight.device.type == "cuda"
        portions = portioned(taking_part(jobs), jobs[0].settings, self._fitting(model, jobs[0].settings))
        alone = [who for portion in portions if len(portion) == 1 for who in portion] if cuda else []
        for portion in [portion for portion in portions if len(portion) > 1 or not cuda]:
            lanes = self._alone.begun(model, jobs, alone)
            self._side_by_side(model, jobs, portion, lanes, made)
            self._take_in(alone[: len(lanes)], lanes, made)
            alone = alone[len(lanes) :]
        while alone:
            lanes = self._alone.begun(model, jobs, alone)
            advance(lanes)
            self._take_in(alone[: len(lanes)], lanes, made)
            alone = alone[len(lanes) :]
        return [{name: tensor.contiguous() for name, tensor in one.state().items()} for one in made]

    @staticmethod
    def _take_in(who: Sequence[TakingPart], lanes: Sequence[Round], made: Sequence[Merging]) -> None:
        for one, (lane, _) in zip(who, lanes, strict=True):
            made[one.job].add(one.vehicle, lane.model.state_dict(), len(one.samples.labels))

    def _side_by_side(
        self,
        model: Classifier,
        jobs: Sequence[Job],
        portion: Sequence[TakingPart],
        lanes: Sequence[Round],
        made: Sequence[Merging],
    ) -> None:
        """Train a portion, and the lanes beside it; its models go to their jobs."""
        stack, schedule = self._stack(model, jobs[0].settings, len(portion)), self._drawn(model, jobs, portion)
        placed = [portion[who] for who in schedule.order]
        shift = torch.zeros(stack.vehicles, model.num_classes, device=stack.device)
        for place, one in enumerate(placed):
            off = logit_shift(jobs[one.job].loss, one.samples, model.num_classes)
            shift[place] = 0.0 if off is None else off
        stack.begin([(jobs[one.job].start, place) for place, one in enumerate(placed)], shift, jobs[0].settings.lr)
        if self.pool.images is None or self.pool.labels is None:
            raise LearningError("jobs: no vehicle has samples, at least one should")
        steps = stack.steps(self.pool.images, self.pool.labels, schedule)
        if stack.device.type == "cuda":
            together: list[tuple[OnStream, Iterator[None]]] = [(stack, steps), *lanes]
            advance(together)
        else:
            for _ in steps:
                pass
        for j, job in enumerate(jobs):
            mine = [place for place, one in enumerate(placed) if one.job == j]
            if mine:
                taken = torch.from_numpy(schedule.steps[mine]).to(stack.device)
                states = {n: t[mine] for n, t in stack.stack.stacked.items()}
                counted = {n: t for n, t in job.start.items() if n not in states}
                states |= {
                    n: t + taken if n.endswith("num_batches_tracked") else _repeated(t, mine)
                    for n, t in counted.items()
                }
                vehicles = [placed[place].vehicle for place in mine]
                made[j].add_many(vehicles, states, [len(placed[place].samples.labels) for place in mine])

    def _drawn(self, model: Classifier, jobs: Sequence[Job], portion: Sequence[TakingPart]) -> Schedule:
        drawn = [generator(jobs[one.job].seed, "training", jobs[one.job].round, one.vehicle) for one in portion]
        return draw([self.pool.rows(one.samples) for one in portion], drawn, jobs[0].settings, model.image_size)

    def _stack(self, model: Classifier, settings: TrainingSettings, vehicles: int) -> StackedSteps:
        """One for so many vehicles or a few more; made where there is none."""
        fitting = [s for s in self._stacks if vehicles <= s.vehicles <= SPARE * vehicles]
        if not fitting:
            compiled = self.compiled and len(self._stacks) < MOST_COMPILED
            mixed = self.precision == "bfloat16"
            kept = self._kept.pop((vehicles, compiled), None)
            fitting = [kept or StackedSteps(model, settings, vehicles, mixed=mixed, compiled=compiled)]
            self._stacks += fitting
        return min(fitting, key=lambda stack: stack.vehicles)

    def _fitting(self, model: Classifier, settings: TrainingSettings) -> int:
        """How many vehicles at a time."""
        device = model.head.weight.device
        if device.type != "cuda" or self._stacks or self._kept:
            return self.most
        free = torch.cuda.mem_get_info(device)[0]
        self.most = max(1, min(self.most, int(MEMORY * free / bytes_a_vehicle(model, settings))))
        return self.most


def _repeated(tensor: Tensor, places: Sequence[int]) -> Tensor:
    """(...) -> (V, ...)."""
    return tensor.expand(len(places), *tensor.shape)


def portioned(work: Sequence[TakingPart], settings: TrainingSettings, most: int) -> list[list[TakingPart]]:
    """Vehicles that take about as many steps, at most so many together, those with the most steps first."""
    steps = {one: sum(map(len, epochs_of(len(one.samples.labels), settings))) for one in work}
    alike = list[list[TakingPart]]()
    for one in sorted(work, key=lambda one: -steps[one]):
        if alike and steps[one] >= ALIKE * steps[alike[-1][0]]:
            alike[-1].append(one)
        else:
            alike.append([one])
    portions = list[list[TakingPart]]()
    for some in alike:
        size = -(-len(some) // -(-len(some) // most))
        portions += [some[first : first + size] for first in range(0, len(some), size)]
    return portions


def bytes_a_vehicle(model: Classifier, settings: TrainingSettings) -> int:
    """About how much memory a vehicle takes in a stack: what layers give, there and back, and its parameters."""
    probe, given = copy.deepcopy(model).to("meta"), list[int]()

    def note(_: nn.Module, __: object, out: object) -> None:
        given.append(out.numel() if isinstance(out, Tensor) else 0)

    for module in probe.modules():
        if not any(True for _ in module.children()):
            module.register_forward_hook(note)
    size = model.image_size
    probe(torch.empty(settings.batch_size, model.in_channels, size, size, device="meta"))
    return 8 * sum(given) + 24 * sum(p.numel() for p in model.parameters())
