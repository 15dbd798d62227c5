"""Made-up features for the tests: clusters with a within-class covariance that is far from round."""

from dataclasses import dataclass

import numpy as np

import mpt


@dataclass
class World:
    features: np.ndarray
    labels: np.ndarray
    num_classes: int
    rare: int
    prototypes: np.ndarray

    def stats(self, features=None, **options):
        features = self.features if features is None else features
        return mpt.ClassStatistics.from_features(
            features, self.labels, self.num_classes, **{"watched": [self.rare], **options}
        )

    def without_rare(self, keep=0):
        """The world in which only `keep` samples of the rare class are left."""
        rare = np.flatnonzero(self.labels == self.rare)
        rows = np.setdiff1d(np.arange(len(self.labels)), rare[keep:])
        return World(self.features[rows], self.labels[rows], self.num_classes, self.rare, self.prototypes)


def make_world(seed=0, *, num_classes=6, d=12, per_class=60, offset=0.0, rare=2):
    rng = np.random.default_rng(seed)
    shape = rng.standard_normal((d, d)) * np.sqrt(1 / np.arange(1, d + 1))
    labels = np.repeat(np.arange(num_classes), per_class)
    prototypes = 3 * rng.standard_normal((num_classes, d)) + offset
    features = prototypes[labels] + rng.standard_normal((len(labels), d)) @ shape.T
    order = rng.permutation(len(labels))
    return World(features[order], labels[order], num_classes, rare, prototypes)


def spd(rng, d, condition=10.0):
    """A random symmetric positive definite matrix."""
    q = np.linalg.qr(rng.standard_normal((d, d)))[0]
    matrix = (q * np.geomspace(1, condition, d)) @ q.T
    return (matrix + matrix.T) / 2


def decaying(rng, d, spectrum):
    """A covariance with the given eigenvalues in a random basis."""
    q = np.linalg.qr(rng.standard_normal((d, d)))[0]
    matrix = (q * spectrum) @ q.T
    return (matrix + matrix.T) / 2
