"""An object in its surroundings: place and pose, background, what stands in front, light, lens and noise."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from mpt.data.road.dice import Batch, Dice, as_noise
from mpt.data.road.shapes import Canvas, Number, Outline, Piece, Sketch, box, disc, line, quad

Draw = Callable[[Dice], Sketch]


def render(draw: Draw, dice: Dice, noise: NDArray[np.uint8], size: int) -> NDArray[np.uint8]:
    """(B, size, size, 3): one image for each row of the dice.

    Args:
        draw: the object.
        dice: used up from here on.
        noise: (B, size * size * 3, 4) random bytes.
        size: the images' side.
    """
    images = len(noise)
    canvas = Canvas.empty(images, size)
    x, y = canvas.coordinates()
    pixel = 2.0 / size
    thing = draw(dice)

    fill = dice.between(1.6, 1.96)
    width, height = np.asarray(thing.width, dtype=np.float32), np.asarray(thing.height, dtype=np.float32)
    scale = fill / np.maximum(width, height)
    middle_x, middle_y = dice.between(-0.1, 0.1), dice.between(-0.1, 0.06)
    ground = middle_y - height * scale * 0.5
    horizon = ground + dice.between(0.2, 0.7)

    _background(canvas, dice, x, y, pixel, ground, horizon)
    _shadow(canvas, dice, x, y, pixel, (middle_x, ground), width * scale)
    local_x, local_y = _pose(dice, x - middle_x, y - ground, scale)
    softness = dice.between(1.0, 1.6)
    for part in thing.parts:
        canvas.paint(part, local_x, local_y, pixel / scale, softness)
    _in_front(canvas, dice, x, y, pixel, ground)
    _light(canvas, dice, x, y)
    return _camera(canvas, dice, as_noise(noise))


def _pose(dice: Dice, x: Batch, y: Batch, scale: Batch) -> tuple[Batch, Batch]:
    """The object's own coordinates: facing left or right, turned and sheared a little, seen at an angle."""
    half_tangent = dice.between(-0.045, 0.045)
    norm = 1.0 + half_tangent * half_tangent
    cosine, sine = (1.0 - half_tangent * half_tangent) / norm, 2.0 * half_tangent / norm
    turned_x, turned_y = x * cosine + y * sine, y * cosine - x * sine
    along = scale * dice.between(0.8, 1.08) * dice.sign()
    return (turned_x + turned_y * dice.between(-0.12, 0.12)) / along, turned_y / scale


def _background(canvas: Canvas, dice: Dice, x: Batch, y: Batch, pixel: float, ground: Batch, horizon: Batch) -> None:
    """Sky and road with gradients, houses, trees, poles, lane lines, and parts of other vehicles."""

    def paint(shape: Outline, colour: Batch, opacity: Number = 1.0, softness: Number = 1.0) -> None:
        canvas.paint(Piece(shape, colour, opacity), x, y, pixel, softness)

    sky_top = np.where(dice.chance(0.6) > 0, dice.colour((0.1, 0.55), (0.55, 0.98), hue=0.58), dice.grey(0.5, 0.95))
    sky_low = sky_top * (1.0 - dice.between(-0.2, 0.35))
    height = np.clip((y + 1.0) * 0.5, 0.0, 1.0)
    canvas.rgb += sky_low[:, :, None] + height[:, None, :] * (sky_top - sky_low)[:, :, None]

    for _ in range(2):
        left, wide = dice.between(-1.3, 0.7), dice.between(0.3, 1.1)
        house = np.where(dice.chance(0.5) > 0, dice.grey(0.35, 0.85), dice.colour((0.1, 0.5), (0.35, 0.8), hue=0.07))
        there, top = dice.chance(0.45), horizon + dice.between(0.2, 1.4)
        paint(box(left, left + wide, horizon - 0.1, top), house, there)
        rows = dice.between(0.2, 0.35)
        floors = _grid(box(left + 0.05, left + wide - 0.05, horizon, top - 0.08), rows)
        paint(floors, house * dice.between(0.4, 1.3), there * dice.chance(0.6))
    tree = dice.colour((0.3, 0.7), (0.12, 0.55), hue=0.3)
    for _ in range(2):
        paint(
            disc(
                dice.between(-1.1, 1.1),
                horizon + dice.between(0.05, 0.5),
                dice.between(0.15, 0.5),
                dice.between(0.6, 1.3),
            ),
            tree * dice.between(0.7, 1.2),
            dice.chance(0.45),
            softness=3.0,
        )

    road = np.where(dice.chance(0.85) > 0, dice.grey(0.25, 0.6), dice.colour((0.1, 0.4), (0.3, 0.6), hue=0.1))
    paint(box(-2.0, 2.0, -2.0, horizon), road)
    verge = dice.between(0.02, 0.25)
    paint(box(-2.0, 2.0, horizon - verge, horizon), dice.colour((0.05, 0.6), (0.2, 0.7), hue=0.25), dice.chance(0.5))
    near = np.clip((horizon - y) * dice.between(0.1, 0.6), 0.0, 0.6)
    canvas.rgb *= (1.0 - near * dice.between(-0.4, 0.6))[:, None, :]
    for _ in range(2):
        foot = dice.between(-1.4, 1.4)
        head, wide = foot * dice.between(0.0, 0.5), dice.between(0.03, 0.12)
        lane = quad(-1.1, horizon, (foot - wide, foot + wide), (head, head + 0.02))
        paint(lane, dice.grey(0.6, 0.95), dice.chance(0.4))

    for _ in range(2):
        _other_vehicle(dice, paint, horizon)
    for _ in range(2):
        pole = dice.between(-1.0, 1.0)
        paint(
            line(pole, ground + dice.between(0.0, 0.2), pole, dice.between(0.2, 1.3), dice.between(0.02, 0.06)),
            dice.grey(0.1, 0.7),
            dice.chance(0.35),
        )


def _grid(shape: Outline, period: Batch) -> Outline:
    """Windows: squares at a period, inside a shape."""

    def distance(x: Batch, y: Batch) -> Batch:
        across, up = x / period, y / period
        cell = np.maximum(np.abs(across - np.floor(across) - 0.5), np.abs(up - np.floor(up) - 0.5))
        return np.maximum(shape(x, y), (cell - 0.27) * period)

    return distance


def _other_vehicle(dice: Dice, paint: Callable[..., None], horizon: Batch) -> None:
    """A rough vehicle further away, mostly near the sides."""
    there, centre = dice.chance(0.25), dice.sign() * dice.between(0.35, 1.2)
    half, tall = dice.between(0.2, 0.55), dice.between(0.15, 0.5)
    foot = horizon - dice.between(0.05, 0.3)
    colour = dice.coat()
    paint(
        quad(foot + 0.04, foot + tall, (centre - half, centre + half), (centre - half * 0.9, centre + half * 0.8)),
        colour,
        there,
    )
    paint(box(centre - half * 0.7, centre + half * 0.7, foot + tall * 0.55, foot + tall * 0.85), colour * 0.4, there)
    for side in (-0.6, 0.6):
        paint(disc(centre + half * side, foot + 0.06, dice.between(0.05, 0.1)), dice.grey(0.03, 0.2), there)


def _shadow(
    canvas: Canvas, dice: Dice, x: Batch, y: Batch, pixel: float, foot: tuple[Batch, Batch], wide: Number
) -> None:
    """The object's shadow on the road."""
    strength, shift = dice.between(0.0, 0.65), dice.between(-0.15, 0.15)
    shape = disc(foot[0] + shift, foot[1], wide * dice.between(0.4, 0.6), dice.between(0.08, 0.22))
    black = np.zeros((len(canvas.rgb), 3), dtype=np.float32)
    canvas.paint(Piece(shape, black, strength), x, y, pixel, softness=4.0)


def _in_front(canvas: Canvas, dice: Dice, x: Batch, y: Batch, pixel: float, ground: Batch) -> None:
    """What hides a part of the object: a pole, the end of another vehicle, a bush or wall along the lower edge."""
    pole, at = dice.chance(0.14), dice.between(-0.7, 0.7)
    canvas.paint(Piece(box(at, at + dice.between(0.05, 0.16), -2.0, 2.0), dice.grey(0.1, 0.7), pole), x, y, pixel)
    side, reach = dice.sign(), dice.between(0.25, 0.75)
    top, bottom = dice.between(0.0, 0.9), ground - dice.between(0.0, 0.2)
    colour = dice.coat()
    vehicle = dice.chance(0.16)
    canvas.paint(Piece(_beside(box(reach, 2.0, bottom, top), side), colour, vehicle), x, y, pixel)
    canvas.paint(
        Piece(_beside(box(reach + 0.12, 2.0, top - 0.35, top - 0.08), side), colour * 0.4, vehicle), x, y, pixel
    )
    wall, height = dice.chance(0.12), ground + dice.between(0.1, 0.38)
    hedge = np.where(dice.chance(0.5) > 0, dice.colour((0.3, 0.7), (0.15, 0.5), hue=0.3), dice.grey(0.2, 0.8))
    canvas.paint(Piece(box(-2.0, 2.0, -2.0, height), hedge, wall), x, y, pixel, softness=2.0)


def _beside(shape: Outline, side: Batch) -> Outline:
    """The shape, or its mirror image where `side` is -1."""
    return lambda x, y: shape(x * side, y)


def _light(canvas: Canvas, dice: Dice, x: Batch, y: Batch) -> None:
    """Shadow of a house across the picture, haze, sun from one side, colour of the light, contrast and exposure."""
    edge, slant = dice.between(-0.8, 0.8), dice.between(-0.8, 0.8)
    band = np.clip((x + slant * y - edge) * dice.sign() * 6.0 + 0.5, 0.0, 1.0)
    canvas.rgb *= (1.0 - band * dice.chance(0.35) * dice.between(0.2, 0.5))[:, None, :]
    across, up = dice.between(-0.25, 0.25), dice.between(-0.25, 0.25)
    canvas.rgb *= (1.0 + across * x + up * y)[:, None, :]
    haze, bright = dice.between(0.0, 0.3) * dice.chance(0.4), dice.between(0.35, 0.85)
    canvas.rgb += haze[:, :, None] * (bright[:, :, None] - canvas.rgb)
    warm, exposure = dice.between(-0.12, 0.12), dice.between(0.8, 1.2)
    dark = dice.chance(0.15)
    exposure = exposure * (1.0 - dark * dice.between(0.25, 0.55))
    canvas.rgb *= (exposure * np.concatenate([1.0 + warm, np.ones_like(warm), 1.0 - warm], axis=1))[:, :, None]


def _camera(canvas: Canvas, dice: Dice, noise: Batch) -> NDArray[np.uint8]:
    """Blur, in all directions and along the motion, then noise and rounding to bytes."""
    size, images = canvas.size, len(canvas.rgb)
    picture = canvas.rgb.reshape(images, 3, size, size)
    blur = dice.one() * dice.one() * 0.5
    motion = dice.chance(0.25) * dice.between(0.1, 0.3)
    for _ in range(min(8, max(1, size * size // 1024))):
        for axis, strength in ((2, blur), (3, np.minimum(blur + motion, 0.66))):
            picture = _smoothed(picture, axis, strength[:, :, None, None])
            picture = _smoothed(picture, axis, strength[:, :, None, None] * 0.5)
    sigma = 0.008 + dice.one() * dice.one() * 0.05
    picture = picture + (sigma * noise).reshape(images, 3, size, size)
    levels = np.floor(np.clip(picture, 0.0, 1.0) * 255.0 + 0.5).astype(np.uint8)
    return np.ascontiguousarray(levels.transpose(0, 2, 3, 1))


def _smoothed(picture: Batch, axis: int, strength: Batch) -> Batch:
    """`picture` with a share of every pixel taken from its two neighbours; the border repeats itself."""
    n = picture.shape[axis]
    before = np.take(picture, np.maximum(np.arange(n) - 1, 0), axis=axis)
    after = np.take(picture, np.minimum(np.arange(n) + 1, n - 1), axis=axis)
    smoothed: Batch = picture + strength * ((before + after) * 0.5 - picture)
    return smoothed
