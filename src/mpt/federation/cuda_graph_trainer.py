"""Any backbone that draws nothing, on a GPU: some vehicles at a time, each by replaying a captured step."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from mpt.federation.jobs import Job, merging
from mpt.federation.plan import Precision
from mpt.federation.taking_part import TakingPart, logit_shift, taking_part
from mpt.learning import Classifier, TrainingSettings, generator
from mpt.learning.cuda_graphs import CudaGraphSteps, Round, advance


@dataclass
class CudaGraphTrainer:
    """Some vehicles at a time, any backbone on a GPU, each on a stream of its own.

    Attributes:
        most: how many vehicles at a time, where their models fit into half of the memory that is free.
    """

    precision: Precision = "bfloat16"
    compiled: bool = False
    most: int = 12
    _lanes: list[CudaGraphSteps] = field(default_factory=list)
    _free: int = 0

    def __call__(self, model: Classifier, jobs: Sequence[Job]) -> list[dict[str, Tensor]]:
        """The averaged models, one a job."""
        exact = self.precision == "float32"
        with torch.backends.cudnn.flags(enabled=True, benchmark=True, allow_tf32=not exact):
            return self._train(model, jobs)

    def _train(self, model: Classifier, jobs: Sequence[Job]) -> list[dict[str, Tensor]]:
        work = taking_part(jobs)
        averages = [merging(model, job) for job in jobs]
        while work:
            some = self.begun(model, jobs, work)
            advance(some)
            for (lane, _), w in zip(some, work, strict=False):
                averages[w.job].add(w.vehicle, lane.model.state_dict(), len(w.samples.labels))
            work = work[len(some) :]
        return [{name: tensor.contiguous() for name, tensor in running.state().items()} for running in averages]

    def begun(self, model: Classifier, jobs: Sequence[Job], work: Sequence[TakingPart]) -> list[Round]:
        """The rounds of the first of these vehicles, as many as there are lanes for, each on its lane."""
        if self._lanes and replace(self._lanes[0].settings, lr=1.0) != replace(jobs[0].settings, lr=1.0):
            self._lanes.clear()
        lanes = self._portion(model, jobs[0].settings, len(work)) if work else []
        return [(lane, self._steps(lane, jobs[w.job], w)) for lane, w in zip(lanes, work, strict=False)]

    def _steps(self, lane: CudaGraphSteps, job: Job, who: TakingPart) -> Iterator[None]:
        drawn = generator(job.seed, "training", job.round, who.vehicle)
        shift = logit_shift(job.loss, who.samples, lane.model.num_classes)
        return lane.steps(job.start, who.samples.images, who.samples.labels, drawn, shift, job.settings.lr)

    def _portion(self, model: Classifier, settings: TrainingSettings, vehicles: int) -> list[CudaGraphSteps]:
        """Lanes for so many of the vehicles that the portions are about equal; one at first, to see what it takes."""
        free = torch.cuda.mem_get_info(model.head.weight.device)[0]
        if len(self._lanes) == 1:
            self.most = min(self.most, 1 + free // max(2 * (self._free - free), 2**26))
        wanted = min(self.most, vehicles) if self._lanes else 1
        self._free = self._free or free
        while len(self._lanes) < wanted:
            mixed = self.precision == "bfloat16"
            self._lanes.append(CudaGraphSteps(model, settings, mixed=mixed, compiled=self.compiled))
        portions = -(-vehicles // len(self._lanes))
        return self._lanes[: -(-vehicles // portions)]
