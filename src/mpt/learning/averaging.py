"""FedAvg: the mean of the vehicles' models by sample counts, with BatchNorm's running statistics pooled."""

import math
from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from mpt.learning.settings import DivergedError, LearningError

MOST_COUNTED = 10**12
"""Of integers in a model, which count batches: the largest of the vehicles' is the average's."""
_State = Mapping[str, Tensor]
"""What `model.state_dict()` returns."""


def batchnorm_prefixes(model: nn.Module) -> tuple[str, ...]:
    """The names of the BatchNorm layers that keep running statistics, found by their type.

    Example:
        >>> batchnorm_prefixes(nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)))
        ('1',)
    """
    return tuple(
        name
        for name, module in model.named_modules()
        if isinstance(module, _BatchNorm) and module.running_mean is not None
    )


class RunningAverage:
    """The weighted mean of models that come one after the other; holds one model's worth of float64 sums.

    With p_k = w_k / sum w, parameters and other real numbers become sum_k p_k x_k. A BatchNorm layer's running mean
    becomes m = sum_k p_k m_k and its running variance that of the pooled samples, sum_k p_k (v_k + (m_k - m)^2).
    Integers (the batches BatchNorm has seen) become the largest of the vehicles'. The order of the vehicles matters
    only to float64 rounding. A vehicle of weight 0 is checked and then changes nothing.
    """

    def __init__(self, batchnorm: nn.Module | Iterable[str]) -> None:
        prefixes = batchnorm_prefixes(batchnorm) if isinstance(batchnorm, nn.Module) else tuple(batchnorm)
        joined = [f"{prefix}." if prefix else "" for prefix in prefixes]
        self._mean_of = {f"{prefix}running_var": f"{prefix}running_mean" for prefix in joined}
        self._weight = 0.0
        self._layout: dict[str, tuple[torch.Size, torch.dtype]] = {}
        self._means: dict[str, Tensor] = {}
        self._spreads: dict[str, Tensor] = {}
        self._largest: dict[str, Tensor] = {}

    @property
    def weight(self) -> float:
        """The sum of the weights so far."""
        return self._weight

    def add(self, state: _State, weight: float, *, checked: bool = False) -> None:
        """Take in one vehicle's model; a state that does not fit is refused and changes nothing.

        Args:
            state: its state dict.
            weight: its w_k.
            checked: whether `check` has been called with it.
        """
        if not math.isfinite(weight) or weight < 0:
            raise LearningError(f"weight: {weight}, should be finite and not negative")
        if not checked:
            self.check(state)
        if not self._layout:
            self._layout = {name: (tensor.shape, tensor.dtype) for name, tensor in state.items()}
        if weight == 0:
            return
        with torch.no_grad():
            self._take_in(state, weight)

    def add_many(self, states: _State, weights: Sequence[float]) -> None:
        """Take in several vehicles' models at once, each tensor (V, ...)."""
        total = float(sum(weights))
        if total == 0 or not all(math.isfinite(weight) and weight >= 0 for weight in weights):
            raise LearningError(f"weights: {list(weights)}, should be finite, not negative and not all 0")
        self.add(self._pooled(states, [weight / total for weight in weights]), total)

    def _pooled(self, states: _State, shares: Sequence[float]) -> dict[str, Tensor]:
        """What `add` makes of them, in their own dtypes."""
        p = torch.tensor(shares, dtype=torch.float64, device=next(iter(states.values())).device)
        pooled = {}
        for name, tensor in states.items():
            if not tensor.is_floating_point():
                pooled[name] = tensor.amax(dim=0)
                continue
            wide = tensor.double()
            if name in self._mean_of:
                means = states[self._mean_of[name]].double()
                wide = wide + (means - torch.tensordot(p, means, 1)) ** 2
            pooled[name] = torch.tensordot(p, wide, 1).to(tensor.dtype)
        return pooled

    def state(self) -> dict[str, Tensor]:
        """The average so far, in the dtypes of the first vehicle's model, for `model.load_state_dict`."""
        if self._weight == 0:
            raise LearningError("weights: their sum is 0, at least one vehicle should have samples")
        merged = {}
        for name, (_, dtype) in self._layout.items():
            if name in self._largest:
                merged[name] = self._largest[name].clone()
            elif name in self._spreads:
                merged[name] = (self._spreads[name] / self._weight).to(dtype)
            else:
                merged[name] = self._means[name].to(dtype, copy=True)
        return merged

    def _take_in(self, state: _State, weight: float) -> None:
        """Chan's update of means and of sums of squared deviations: nothing cancels, however large the means are."""
        before, self._weight = self._weight, self._weight + weight
        share = weight / self._weight
        for name, variance in state.items():
            if name in self._mean_of:
                spread = weight * variance.double()
                if before:
                    apart = state[self._mean_of[name]].double() - self._means[self._mean_of[name]]
                    spread += self._spreads[name] + weight * before / self._weight * apart**2
                self._spreads[name] = spread
        for name, tensor in state.items():
            if name in self._mean_of:
                continue
            if not tensor.is_floating_point():
                self._largest[name] = torch.maximum(self._largest[name], tensor) if before else tensor.clone()
            elif before:
                self._means[name] += share * (tensor.double() - self._means[name])
            else:
                self._means[name] = tensor.to(torch.float64, copy=True)

    def check(self, state: _State) -> None:
        """Raise `LearningError` where a state does not fit those before, or has numbers that are none."""
        self.check_layout(state)
        real = {name: tensor.isfinite().all() for name, tensor in state.items() if tensor.is_floating_point()}
        if name := _first_false(real):
            raise DivergedError(f"state: {name} has entries that are NaN or infinite, all should be finite")
        self.check_variances(state)

    def check_variances(self, state: _State) -> None:
        """The part of `check` that is about BatchNorm's running variances."""
        if name := _first_false({name: (state[name] >= 0).all() for name in self._mean_of}):
            raise LearningError(f"state: {name} has negative entries, a variance should not")

    def check_layout(self, state: _State) -> None:
        """The part of `check` that is about names, shapes and dtypes, and about integers."""
        for variance, mean in self._mean_of.items():
            if variance not in state or mean not in state:
                raise LearningError(f"state: {mean} or {variance} is missing, though batchnorm names that layer")
        if self._layout and state.keys() != self._layout.keys():
            name = min(state.keys() ^ self._layout.keys())
            where = "only in this state" if name in state else "missing from this state"
            raise LearningError(f"state: {name} is {where}, all vehicles should have the same entries")
        for name, tensor in state.items():
            shape, dtype = self._layout.get(name, (tensor.shape, tensor.dtype))
            if (tensor.shape, tensor.dtype) != (shape, dtype):
                raise LearningError(
                    f"state: {name} is {tensor.dtype} of shape {tuple(tensor.shape)}, should be {dtype} of shape "
                    f"{tuple(shape)} as in the first state"
                )
            if tensor.is_complex():
                raise LearningError(f"state: {name} is {tensor.dtype}, should be of real numbers or integers")
        counters = {n: (t.long() < MOST_COUNTED).all() for n, t in state.items() if not t.is_floating_point()}
        if name := _first_false(counters):
            raise LearningError(f"state: {name} counts beyond {MOST_COUNTED:.0e}, should be batches that were seen")


class PlainAverage:
    """FedAvg: a `RunningAverage` that is used as a `BoundedAverage`. Nothing is measured, and all counts."""

    def __init__(self, batchnorm: tuple[str, ...], start: _State) -> None:
        self._average = RunningAverage(batchnorm)
        self._average.add(start, 0)
        self._checked: _State | None = None
        self.shares, self.doubted = dict[str, float](), False
        self.medians: None = None

    def add(self, vehicle: str, state: _State, samples: float, holder: bool = False) -> None:
        """As of `BoundedAverage`."""
        if samples <= 0:
            raise LearningError(f"samples: {samples}, should be finite and above 0")
        self._average.add(state, samples, checked=self._checked is state)
        self._checked = None

    def check(self, state: _State) -> None:
        """As of `BoundedAverage`."""
        self._average.check(state)
        self._checked = state

    def state(self) -> dict[str, Tensor]:
        """The average so far."""
        return self._average.state()


def _first_false(flags: dict[str, Tensor]) -> str:
    """The first name whose flag is false, or ""; asks the device once, however many there are."""
    answers = torch.stack(list(flags.values())).tolist() if flags else []
    return next((name for name, answer in zip(flags, answers, strict=True) if not answer), "")
