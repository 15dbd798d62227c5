"""Lies in what a vehicle reports of its samples."""

from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from mpt.core import ClassStatistics, CrossStatistics
from mpt.core.bounded import Consensus, bounded
from mpt.core.influence import SLACK, beyond_median, chance
from mpt.core.linalg import dot
from mpt.core.validation import Floats, Ints
from mpt.federation.attacks.scene import Scene

Report = TypeVar("Report", ClassStatistics, CrossStatistics)

CLAIMED = 3
"""Samples of the rare class that a vehicle claims which has none."""


def claiming(labels: Ints, scene: Scene) -> Ints:
    """The labels; where none is the rare class's, some of the commonest class's are called so."""
    if np.any(labels == scene.rare) or not len(labels):
        return labels
    made = labels.copy()
    made[np.flatnonzero(labels == np.bincount(labels).argmax())[:CLAIMED]] = scene.rare
    return made


def _towards(features: Floats, labels: Ints, scene: Scene) -> Floats:
    """(d,): from the rare class's mean to the nearest other class's on the vehicle."""
    mine = features[labels == scene.rare].mean(axis=0)
    others = np.stack([features[labels == c].mean(axis=0) for c in np.unique(labels) if c != scene.rare])
    gaps = others - mine
    nearest: Floats = gaps[np.argmin(np.sum(gaps**2, axis=1))]
    return nearest


@dataclass(frozen=True)
class Shift:
    """Its samples of the rare class lie `by` times the way to the nearest other class away."""

    by: float = 20.0

    def features(self, features: Floats, labels: Ints, scene: Scene) -> tuple[Floats, Ints]:
        """Move them; a vehicle that has none claims three."""
        claimed = claiming(labels, scene)
        if len(np.unique(claimed)) < 2:
            return features, labels
        moved = features.copy()
        moved[claimed == scene.rare] += self.by * _towards(features, claimed, scene)
        return moved, claimed


@dataclass(frozen=True)
class Parting:
    """A departing vehicle that lies in its last report: its samples of the rare class, as by `shift`."""

    by: float = 3.0

    def features(self, features: Floats, labels: Ints, scene: Scene) -> tuple[Floats, Ints]:
        """In its last round alone."""
        return Shift(self.by).features(features, labels, scene) if scene.leaving else (features, labels)


@dataclass(frozen=True)
class Stretch:
    """All its features are `by` times as long."""

    by: float = 100.0

    def features(self, features: Floats, labels: Ints, scene: Scene) -> tuple[Floats, Ints]:
        """Multiply them."""
        return self.by * features, labels


@dataclass(frozen=True)
class Outlier:
    """One of its samples lies at `at`; it is one of the rare class where it has any."""

    at: float = 1e17

    def features(self, features: Floats, labels: Ints, scene: Scene) -> tuple[Floats, Ints]:
        """Put it there."""
        moved = features.copy()
        rare = np.flatnonzero(labels == scene.rare)
        moved[rare[0] if len(rare) else 0] = self.at
        return moved, labels


@dataclass(frozen=True)
class Swap:
    """Its samples of the rare class and of the next one are taken for each other."""

    def features(self, features: Floats, labels: Ints, scene: Scene) -> tuple[Floats, Ints]:
        """Swap the labels."""
        other = (scene.rare + 1) % scene.num_classes
        swapped = np.where(labels == scene.rare, other, np.where(labels == other, scene.rare, labels))
        return features, swapped


@dataclass(frozen=True)
class Scatter:
    """A scatter with one direction of variance `size`, and squares that fit it."""

    size: float = 1e6

    def report(self, report: ClassStatistics, scene: Scene) -> ClassStatistics:
        """Add it."""
        classes = report.reference_classes
        if not len(classes):
            return report
        direction = scene.rng().standard_normal(report.dim)
        added = self.size * int(report.counts[classes].sum()) * np.outer(direction, direction) / report.dim
        squares = report.squares.copy()
        squares[classes[0]] += float(np.trace(added))
        return replace(report, squares=squares, scatter=None if report.scatter is None else report.scatter + added)


@dataclass(frozen=True)
class Counts:
    """All its samples count `by` times, and those of the rare class are shifted."""

    by: int = 1000
    shift: float = 2.0

    def features(self, features: Floats, labels: Ints, scene: Scene) -> tuple[Floats, Ints]:
        """The shift."""
        return Shift(self.shift).features(features, labels, scene)

    def report(self, report: ClassStatistics, scene: Scene) -> ClassStatistics:
        """Everything times `by`."""
        scatter = None if report.scatter is None else self.by * report.scatter
        sums, squares = self.by * report.sums, self.by * report.squares
        return replace(report, counts=self.by * report.counts, sums=sums, squares=squares, scatter=scatter)

    def cross(self, moments: CrossStatistics, scene: Scene) -> CrossStatistics:
        """Likewise."""
        names = ("counts", "earlier", "sums", "gram", "cross")
        return replace(moments, **{name: self.by * getattr(moments, name) for name in names})


@dataclass(frozen=True)
class Cross:
    """Right sums, and cross moments that are `by` times as long and of no map."""

    by: float = 1.0

    def cross(self, moments: CrossStatistics, scene: Scene) -> CrossStatistics:
        """Noise in place of what is about the class means; no longer than the gate lets through unseen."""
        _, about = moments.within
        noise = scene.rng().standard_normal(about.shape)
        noise *= self.by * np.linalg.norm(about) / np.linalg.norm(noise)
        return replace(moments, cross=moments.cross - about + noise)


@dataclass(frozen=True)
class Edge:
    """A lie within the bounds: its mean of the rare class at `times` the radius of Eq. (G3) from the honest ones'.

    It knows everybody's reports and the gate. `draw` None: towards the nearest other class. A number: a direction that
    is drawn, in the rare class and in every other one, of which some lies between classes and some does not; and its
    rare samples count up to three times.
    """

    times: float = 0.99
    draw: int | None = None

    def features(self, features: Floats, labels: Ints, scene: Scene) -> tuple[Floats, Ints]:
        """Move the classes' samples, each as a whole."""
        honest = scene.honest()
        agreed = bounded(list(honest.values()), departed=(scene.rare,) if scene.gone else ()).consensus
        claimed = claiming(labels, scene)
        if agreed is None or len(np.unique(claimed)) < 2:
            return features, labels
        moved, origin = features.copy(), next(iter(honest.values())).origin
        for c in [scene.rare] if self.draw is None else np.unique(claimed).tolist():
            if np.isfinite(agreed.means.centres[c, 0]):
                mine = claimed == c
                samples = int(mine.sum()) * (self._claim(scene) if c == scene.rare else 1)
                target = self._target(agreed, c, samples, scene) + origin
                moved[mine] += target - features[mine].mean(axis=0)
        return moved, claimed

    def report(self, report: ClassStatistics, scene: Scene) -> ClassStatistics:
        """Its rare samples several times, once their owner has left."""
        return _repeated(report, scene, self._claim(scene), ("counts", "sums", "squares"))

    def cross(self, moments: CrossStatistics, scene: Scene) -> CrossStatistics:
        """Likewise."""
        return _repeated(moments, scene, self._claim(scene), ("counts", "earlier", "sums"))

    def _claim(self, scene: Scene) -> int:
        """How many times its rare samples count."""
        return 1 if self.draw is None or not scene.gone else int(scene.rng(self.draw, -1).integers(1, 4))

    def _target(self, agreed: Consensus, c: int, samples: int, scene: Scene) -> Floats:
        """(d,): where the class's mean is to lie, about the origin."""
        means = agreed.means
        d, k = means.basis.shape
        within, beyond, size = self._direction(agreed, c, scene)
        variance = float(chance(np.array(samples), means.counts[c]))
        far = means.centres[c].copy()
        for part, dimensions, scale in ((within, k, means.scales[0]), (beyond, d - k, means.scales[1])):
            length = float(np.linalg.norm(part))
            if dimensions and length > 0:
                radius = np.sqrt(SLACK * beyond_median(dimensions) * scale * dimensions * variance)
                far += self.times * size * radius / length * part
        return far if means.factor is None else dot(means.factor, far)

    def _direction(self, agreed: Consensus, c: int, scene: Scene) -> tuple[Floats, Floats, float]:
        """Whitened, within the directions between classes and beyond, and how much of the radius is used."""
        means = agreed.means
        if self.draw is None:
            gaps = means.centres - means.centres[c]
            lengths = np.nan_to_num(np.sum(gaps**2, axis=1), nan=np.inf)
            lengths[c] = np.inf
            return gaps[np.argmin(lengths)], np.zeros(len(gaps[0])), 1.0
        rng = scene.rng(self.draw, c)
        drawn = rng.standard_normal(len(means.basis))
        within = dot(means.basis, dot(means.basis.T, drawn))
        return within, drawn - within, float(rng.random() ** 0.25)


def _repeated(report: Report, scene: Scene, times: int, names: tuple[str, ...]) -> Report:
    """A report in which the rare class's samples, which are in no scatter, count several times."""
    made = {name: getattr(report, name).copy() for name in names}
    for array in made.values():
        array[scene.rare] *= times
    return replace(report, **made)
