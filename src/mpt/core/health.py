"""How far a reconstruction can be trusted, said without labels: an expected error and a verdict."""

from typing import Literal

import numpy as np

Verdict = Literal["good", "degraded", "lost"]

_DEGRADED, _LOST = 0.25, 0.5
"""Of the distance to the nearest other prototype; beyond the second, the error may reach the border between the two."""


def expected_error(alpha: float, noise: float, samples: int, prior: float, d: int) -> float:
    r"""Eq. (X8): the Mahalanobis distance to the class's true prototype that is to be expected.

        sqrt(d (alpha^2 sigma^2 / N + (1 - alpha)^2 tau^2)),

    the noise of what was measured and the error of what was predicted, each by its weight.

    Args:
        alpha: of Eq. (X6).
        noise: sigma^2, per sample and whitened dimension.
        samples: N, the number of remaining samples.
        prior: tau^2, of Eq. (X6).
        d: the feature dimension.
    """
    measured = alpha**2 * noise / samples if samples else 0.0
    return float(np.sqrt(d * (measured + (1 - alpha) ** 2 * prior)))


def verdict(error: float, margin: float) -> Verdict:
    """Eq. (X9): "good" below a quarter of the distance to the nearest other prototype, "lost" above half of it."""
    if error <= _DEGRADED * margin:
        return "good"
    return "degraded" if error <= _LOST * margin else "lost"
