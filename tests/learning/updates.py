"""Updates of made-up fleets, to be aggregated."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="mpt.learning needs torch, which is not installed")

from mpt.learning import RunningAverage
from mpt.learning.aggregation import Updates

NORM = ("n",)
RUNNING = ("n.running_mean", "n.running_var")


def state(w, mean=0.0, var=1.0, steps=3):
    """A model of ten weights with a BatchNorm layer."""
    w = torch.as_tensor(np.asarray(w, dtype=np.float64))
    return {
        "a": w[:4].reshape(2, 2),
        "b": w[4:],
        "n.running_mean": torch.full((2,), float(mean), dtype=torch.float64),
        "n.running_var": torch.full((2,), float(var), dtype=torch.float64),
        "n.num_batches_tracked": torch.tensor(steps),
    }


def fleet(vehicles=9, *, seed=0, samples=None, scale=0.1, holders=()):
    """Updates about a common step, as honest vehicles make them; some with more samples than others."""
    rng = np.random.default_rng(seed)
    start, step = rng.standard_normal(10), scale * rng.standard_normal(10)
    moved = [start + step * (1 + 0.3 * rng.standard_normal(10)) for _ in range(vehicles)]
    counts = samples or rng.integers(20, 50, vehicles).tolist()
    states = [state(w, 0.1 + 0.01 * rng.random(), 1.1 + 0.01 * rng.random(), 3 + i) for i, w in enumerate(moved)]
    return Updates(state(start), states, counts, NORM, frozenset(holders))


def weights(of):
    """(10,): what is learned."""
    return np.concatenate([of["a"].flatten().numpy(), of["b"].numpy()])


def lying(updates, place, by, samples=None):
    """One of them goes `by` times as far."""
    start, states, counts = weights(updates.start), list(updates.states), list(updates.samples)
    states[place] = {**states[place], **named(start + by * (weights(states[place]) - start))}
    counts[place] = samples or counts[place]
    return Updates(updates.start, states, counts, updates.batchnorm, updates.holders)


def without(updates, place):
    return updates.chosen([i for i in range(len(updates.states)) if i != place])


def named(w):
    return {name: tensor for name, tensor in state(w).items() if name in "ab"}


def averaged(updates):
    running = RunningAverage(updates.batchnorm)
    for one, samples in zip(updates.states, updates.samples, strict=True):
        running.add(one, samples)
    return running.state()


def same(left, right):
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


def close(left, right, far=1e-9):
    assert left.keys() == right.keys()
    for name, tensor in left.items():
        np.testing.assert_allclose(tensor, right[name], rtol=far, atol=far, err_msg=name)


def with_a_holder(far=1.0):
    """Nine vehicles that have all learned eight weights; the first alone learns the last, its class's."""
    rng = np.random.default_rng(3)
    ways = np.concatenate([1 + 0.1 * rng.standard_normal((9, 8)), np.zeros((9, 2))], axis=1)
    ways[0, 9] = far * np.sqrt(8)
    return Updates(state(np.zeros(10)), [state(way) for way in ways], [30] * 9, NORM, frozenset({0}))
