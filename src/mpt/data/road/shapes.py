"""Signed distances of flat shapes, and a canvas that fills them with smooth edges.

A shape is a function of coordinates x, y (B, P): negative inside, positive outside, in units of the coordinates.
Numbers in it are floats or (B, 1), so that one shape is drawn for B images at once.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from mpt.data.road.dice import Batch

Number = float | Batch
Outline = Callable[[Batch, Batch], Batch]


def box(left: Number, right: Number, bottom: Number, top: Number) -> Outline:
    """An upright rectangle."""
    return lambda x, y: np.maximum(
        np.abs(x - (left + right) * 0.5) - (right - left) * 0.5, np.abs(y - (bottom + top) * 0.5) - (top - bottom) * 0.5
    )


def quad(bottom: Number, top: Number, lower: tuple[Number, Number], upper: tuple[Number, Number]) -> Outline:
    """A trapezium: from `lower` = (left, right) at `bottom` to `upper` at `top`."""

    def distance(x: Batch, y: Batch) -> Batch:
        rise = y - bottom
        outside: Batch = np.maximum(-rise, y - top)
        for start, end, side in ((lower[0], upper[0], -1.0), (lower[1], upper[1], 1.0)):
            slope = (end - start) / (top - bottom)
            outside = np.maximum(outside, side * (x - start - slope * rise) / _length(1.0, slope))
        return outside

    return distance


def disc(x0: Number, y0: Number, radius: Number, flat: Number = 1.0) -> Outline:
    """A circle; `flat` squeezes its height."""
    return lambda x, y: _length(x - x0, (y - y0) / flat) - radius


def ring(x0: Number, y0: Number, radius: Number, width: Number) -> Outline:
    """A circle's line."""
    return lambda x, y: np.abs(_length(x - x0, y - y0) - radius) - width * 0.5


def line(x0: Number, y0: Number, x1: Number, y1: Number, radius: Number) -> Outline:
    """A stroke with round ends."""

    def distance(x: Batch, y: Batch) -> Batch:
        run, rise = x1 - x0, y1 - y0
        along = np.clip(((x - x0) * run + (y - y0) * rise) / (run * run + rise * rise + 1e-6), 0.0, 1.0)
        return _length(x - x0 - along * run, y - y0 - along * rise) - radius

    return distance


def stripes(shape: Outline, period: Number, width: Number, start: Number = 0.0) -> Outline:
    """Upright stripes inside another shape."""

    def distance(x: Batch, y: Batch) -> Batch:
        phase = (x - start) / period
        stripe: Batch = np.abs((phase - np.floor(phase) - 0.5) * period) - width * 0.5
        return np.maximum(shape(x, y), stripe)

    return distance


def both(a: Outline, b: Outline) -> Outline:
    """What lies in both."""
    return lambda x, y: np.maximum(a(x, y), b(x, y))


def _length(x: Number, y: Number) -> Batch:
    return np.sqrt(np.asarray(x * x + y * y, dtype=np.float32))


class Piece(NamedTuple):
    """A shape with its colour (B, 3) and how opaque it is; opacity 0 leaves it out of an image."""

    shape: Outline
    colour: Batch
    opacity: Number = 1.0


@dataclass(frozen=True)
class Sketch:
    """An object in its own coordinates: x forward from -width / 2 to width / 2, y up from the ground to height."""

    width: Number
    height: Number
    parts: list[Piece]


@dataclass
class Canvas:
    """B square images: RGB (B, 3, size * size); coordinates x to the right and y up, both from -1 to 1."""

    rgb: Batch
    size: int

    @classmethod
    def empty(cls, images: int, size: int) -> "Canvas":
        """Black."""
        return cls(np.zeros((images, 3, size * size), dtype=np.float32), size)

    def coordinates(self) -> tuple[Batch, Batch]:
        """x and y of the pixels' centres, each (1, P)."""
        centres = (np.arange(self.size, dtype=np.float32) + 0.5) * np.float32(2 / self.size) - 1.0
        x, y = np.tile(centres, self.size), np.repeat(-centres, self.size)
        return x[None, :], y[None, :]

    def paint(self, part: Piece, x: Batch, y: Batch, pixel: Number, softness: Number = 1.0) -> None:
        """Lay a part over what is there.

        Args:
            part: the shape, in the coordinates that x and y are in.
            x: (B, P) or (1, P).
            y: likewise.
            pixel: the size of a pixel in these coordinates.
            softness: the width of the edge in pixels.
        """
        cover = np.clip(0.5 - part.shape(x, y) / (pixel * softness), 0.0, 1.0)
        cover *= part.opacity
        self.rgb += cover[:, None, :] * (part.colour[:, :, None] - self.rgb)
