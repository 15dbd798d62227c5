"""Small made-up tasks."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="mpt.learning needs torch, which is not installed")

from mpt.learning import RunningAverage, build


def stripes(n, *, seed, size=28, channels=1, num_classes=4):
    """Noisy stripes whose direction and width are the class: uint8 images (n, channels, size, size) and labels."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(num_classes, size=n)
    ramp = np.arange(size)
    period = 4 + 4 * (labels // 2)
    phase = rng.integers(8, size=n)
    wave = ((ramp + phase[:, None]) // (period[:, None] // 2)) % 2
    plane = np.where((labels % 2)[:, None, None], wave[:, :, None], wave[:, None, :])
    noisy = 128 + 50 * (2 * plane - 1)[:, None] + 40 * rng.standard_normal((n, channels, size, size))
    return torch.from_numpy(noisy.clip(0, 255).astype(np.uint8)), torch.from_numpy(labels)


def small(spec="cnn3", *, seed=0, size=28, channels=1, num_classes=4):
    return build(spec, num_classes=num_classes, in_channels=channels, image_size=size, seed=seed)


def same_state(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


def copied(model):
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def average(states, weights, *, batchnorm):
    running = RunningAverage(batchnorm)
    for state, weight in zip(states, weights, strict=True):
        running.add(state, weight)
    return running.state()
