"""Random numbers of one image each, the same on every machine.

They are the raw words of PCG64, whose stream NumPy guarantees, and depend on (seed, split, class, index) alone, so that
asking for more images extends a set and changes none. Everything that is drawn from them uses `+ - * /`, square roots,
comparisons and rounding, which IEEE 754 fixes to the last bit, and no sums whose order a machine may choose: the images
are equal bit by bit everywhere.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Batch = NDArray[np.floating[Any]]  # float32 throughout

_PURPOSE = 0x726F6164
_WORDS = 384
_NOISE_STEPS = 4  # bytes added up for one value of noise, which is nearly normal then


def throw(seed: int, split: int, label: int, indices: Sequence[int], size: int) -> tuple["Dice", NDArray[np.uint8]]:
    """The dice of B images, and (B, size * size * 3, 4) random bytes for their noise."""
    noise_words = size * size * 3 * _NOISE_STEPS // 8
    words = np.empty((len(indices), _WORDS + noise_words), dtype="<u8")
    for row, index in zip(words, indices, strict=True):
        sequence = np.random.SeedSequence((_PURPOSE, seed, split, label, index))
        row[:] = np.random.PCG64(sequence).random_raw(len(row))
    uniform = (words[:, :_WORDS] >> 40).astype(np.float32) * np.float32(2.0**-24)
    noise = np.ascontiguousarray(words[:, _WORDS:]).view(np.uint8).reshape(len(words), -1, _NOISE_STEPS)
    return Dice(uniform), noise


def as_noise(random_bytes: NDArray[np.uint8]) -> Batch:
    """(B, M) of mean 0 and deviation 1 from (B, M, 4) bytes."""
    total = np.zeros(random_bytes.shape[:2], dtype=np.float32)
    for step in range(_NOISE_STEPS):
        total += random_bytes[:, :, step]
    return (total - 510.0) * np.float32(1 / 147.8)


@dataclass
class Dice:
    """Uniform numbers (B, 384) in [0, 1), used up column by column; each throw gives (B, 1)."""

    uniform_numbers: Batch
    used: int = 0

    def rows(self, which: NDArray[Any]) -> "Dice":
        """The dice of some of the images, from here on."""
        return Dice(self.uniform_numbers[which], self.used)

    def one(self) -> Batch:
        """(B, 1) in [0, 1)."""
        self.used += 1
        return self.uniform_numbers[:, self.used - 1 : self.used]

    def between(self, low: float | Batch, high: float | Batch) -> Batch:
        """(B, 1), uniform."""
        return low + self.one() * (high - low)

    def chance(self, probability: float) -> Batch:
        """(B, 1) of 1.0 with that probability and 0.0 otherwise."""
        return (self.one() < probability).astype(np.float32)

    def pick(self, *probabilities: float) -> list[Batch]:
        """Masks (B, 1), one for each probability; in every row exactly one of them is 1.0."""
        number, masks, low = self.one(), [], 0.0
        for i, probability in enumerate(probabilities):
            high = 2.0 if i == len(probabilities) - 1 else low + probability
            masks.append(((number >= low) & (number < high)).astype(np.float32))
            low = high
        return masks

    def sign(self) -> Batch:
        """(B, 1) of -1.0 or 1.0."""
        return 2.0 * self.chance(0.5) - 1.0

    def colour(self, saturation: tuple[float, float], value: tuple[float, float], hue: float | None = None) -> Batch:
        """(B, 3): RGB of a random hue, or of one near `hue` (0 red, 1/3 green, 2/3 blue)."""
        turn = self.one() if hue is None else hue + self.between(-0.03, 0.03)
        phase = turn + np.array([0.0, 2 / 3, 1 / 3], dtype=np.float32)
        phase = phase - np.floor(phase)
        pure = np.clip(np.abs(phase * 6.0 - 3.0) - 1.0, 0.0, 1.0)
        strength, bright = self.between(*saturation), self.between(*value)
        mixed: Batch = bright * (1.0 - strength * (1.0 - pure))
        return mixed

    def coat(self, plain: float = 0.5) -> Batch:
        """(B, 3): white, grey or black with probability `plain`, else red, yellow, green or blue of some tone."""
        tones = [self.colour((0.45, 0.9), (0.25, 0.9), hue=hue) for hue in (0.0, 0.11, 0.38, 0.6)]
        coloured = sum(mask * tone for mask, tone in zip(self.pick(0.35, 0.2, 0.1, 0.35), tones, strict=True))
        return np.where(self.chance(plain) > 0, self.grey(0.06, 0.95), coloured)

    def grey(self, low: float, high: float) -> Batch:
        """(B, 3): a grey that leans a little to some colour."""
        return self.colour((0.0, 0.15), (low, high))
