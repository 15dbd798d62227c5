"""`motion`: windows of a phone's accelerometer and gyroscope, made with NumPy alone, shaped like UCI-HAR.

Nine channels (body acceleration, angular velocity and total acceleration, each in x, y and z) of 128 readings at 50 per
second, six activities, thirty subjects. The subjects differ in pace, strength, how they wear the phone and how steady
they are; the last nine of them are for the test.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mpt.data.dataset import Dataset, Split
from mpt.data.request import DatasetSpec

CLASSES = ("walking", "upstairs", "downstairs", "sitting", "standing", "laying")
CHANNELS, LENGTH, RATE = 9, 128, 50.0
SUBJECTS, TESTED = 30, 9
DEFAULT_EACH = 12
_HARMONICS = 4

Array = NDArray[np.float64]


@dataclass(frozen=True)
class _Activity:
    """How an activity looks.

    Attributes:
        pace: steps per second; 0: nobody walks.
        strength: of what moves.
        down: where gravity points, in x, y and z.
        like: how much of a step's shape it has in common with the others, 0 to 1.
    """

    pace: float
    strength: float
    down: tuple[float, float, float]
    like: float


_ACTIVITIES = (
    _Activity(1.9, 1.0, (1.0, 0.05, 0.1), 0.8),
    _Activity(1.75, 0.9, (0.98, -0.06, 0.16), 0.8),
    _Activity(2.0, 1.15, (0.99, 0.08, 0.04), 0.8),
    _Activity(0.0, 0.05, (0.9, 0.15, 0.42), 0.0),
    _Activity(0.0, 0.07, (0.99, 0.0, 0.14), 0.0),
    _Activity(0.0, 0.04, (0.3, 0.6, 0.7), 0.0),
)


def load_motion(request: DatasetSpec) -> Dataset:
    """`motion?each=N&seed=N`: N windows of every subject and activity (default 12)."""
    each = request.integer("each", DEFAULT_EACH, least=1)
    seed = request.integer("seed", request.seed, least=0)
    if request.image_size is not None:
        raise request.error(f"image_size is {request.image_size}, should be left out: these are no images")
    return motion(each, seed)


def motion(each: int = DEFAULT_EACH, seed: int = 0) -> Dataset:
    """`each` windows (9, 128) of every subject and activity, float32; what is drawn depends on the seed alone."""
    shapes = _shapes(np.random.default_rng([seed, 1]))
    windows, labels, subjects = [], [], []
    for subject in range(SUBJECTS):
        rng = np.random.default_rng([seed, 2, subject])
        who = _Subject.drawn(rng)
        for label, activity in enumerate(_ACTIVITIES):
            windows.append(who.windows(activity, shapes[label], each, rng))
            labels += [label] * each
            subjects += [f"subject-{subject + 1:02d}"] * each
    series, classes, names = np.concatenate(windows).astype(np.float32), np.array(labels), np.array(subjects)
    tested = np.isin(names, [f"subject-{subject + 1:02d}" for subject in range(SUBJECTS - TESTED, SUBJECTS)])
    train, test = (Split(series[part], classes[part], names[part]) for part in (~tested, tested))
    return Dataset("motion", CLASSES, train, test)


def _shapes(rng: np.random.Generator) -> tuple[NDArray[np.complex128], ...]:
    """(6, H) a class: amplitude and phase of each harmonic of a step on each moving channel."""
    fading = 1.0 / (1 + np.arange(_HARMONICS))

    def drawn() -> NDArray[np.complex128]:
        return np.asarray(_complex(rng, 6, _HARMONICS) * fading)

    common = drawn()
    return tuple(one.like * common + np.sqrt(1 - one.like**2) * drawn() for one in _ACTIVITIES)


def _complex(rng: np.random.Generator, *shape: int) -> NDArray[np.complex128]:
    """Real parts first, then imaginary ones."""
    real = rng.normal(size=shape)
    return np.asarray(real + 1j * rng.normal(size=shape), dtype=np.complex128)


@dataclass(frozen=True, eq=False)
class _Subject:
    """A person: pace and strength relative to others, how the phone is turned, how steady the hand is."""

    pace: float
    strength: float
    turned: Array
    tremor: float
    own: NDArray[np.complex128]

    @classmethod
    def drawn(cls, rng: np.random.Generator) -> "_Subject":
        angles = rng.normal(scale=0.35, size=3)
        turned = np.eye(3)
        for axis, angle in enumerate(angles):
            i, j = [k for k in range(3) if k != axis]
            turn = np.eye(3)
            turn[i, i] = turn[j, j] = np.cos(angle)
            turn[i, j], turn[j, i] = -np.sin(angle), np.sin(angle)
            turned = turned @ turn
        own = 0.4 * _complex(rng, 6, _HARMONICS)
        return cls(
            float(np.exp(rng.normal(scale=0.08))),
            float(np.exp(rng.normal(scale=0.2))),
            turned,
            float(np.exp(rng.normal(scale=0.4))),
            np.asarray(own / (1 + np.arange(_HARMONICS))),
        )

    def windows(self, activity: _Activity, shape: NDArray[np.complex128], n: int, rng: np.random.Generator) -> Array:
        """(n, 9, 128)."""
        time = np.arange(LENGTH) / RATE
        pace = activity.pace * self.pace * np.exp(rng.normal(scale=0.1, size=(n, 1)))
        phase = 2 * np.pi * (pace * time + rng.random((n, 1)))
        strength = activity.strength * self.strength * np.exp(rng.normal(scale=0.3, size=(n, 1, 1)))
        wave = np.exp(1j * phase[:, None, :] * (1 + np.arange(_HARMONICS))[None, :, None])
        step = shape + self.own + 0.4 * _complex(rng, n, 6, _HARMONICS) / (1 + np.arange(_HARMONICS))
        moved = np.real(np.einsum("nch,nht->nct", step, wave)) if activity.pace else 0.0
        sway = np.cumsum(rng.normal(size=(n, 6, LENGTH)), axis=2) / np.sqrt(LENGTH)
        still = 0.0 if activity.pace else 0.6 * sway * self.tremor
        body = 0.3 * strength * (moved + still) + 0.03 * self.tremor * rng.normal(size=(n, 6, LENGTH))
        down = np.array(activity.down) + rng.normal(scale=0.08, size=(n, 3))
        down /= np.linalg.norm(down, axis=1, keepdims=True)
        acceleration = np.einsum("ij,njt->nit", self.turned, body[:, :3])
        gravity = (down @ self.turned.T)[:, :, None]
        return np.concatenate([acceleration, body[:, 3:], acceleration + gravity], axis=1)
