"""Motorcycle, bicycle, pedestrian and traffic cone."""

import numpy as np

from mpt.data.road.dice import Batch, Dice
from mpt.data.road.shapes import Number, Outline, Piece, Sketch, both, box, disc, line, quad, ring


def _cloth(dice: Dice) -> Batch:
    """(B, 3): clothes."""
    return dice.coat(0.55) * 0.85


def _skin(dice: Dice) -> Batch:
    """(B, 3): skin."""
    return dice.colour((0.3, 0.55), (0.3, 0.95), hue=0.07)


def _rider(dice: Dice, seat: tuple[Number, Number], hand: tuple[Number, Number], foot: tuple[Number, Number]) -> Sketch:
    """Somebody who sits, seen from the side, with a random lean; parts are there with probability 0.55."""
    there, top, trousers, lean = dice.chance(0.55), _cloth(dice), _cloth(dice), dice.between(0.08, 0.26)
    neck_x, neck_y = seat[0] + lean, seat[1] + dice.between(0.3, 0.36)
    knee_x, knee_y = seat[0] + dice.between(0.14, 0.2), (seat[1] + foot[1]) * 0.5 + 0.06
    head = np.where(dice.chance(0.6) > 0, _cloth(dice), _skin(dice))
    parts = [
        Piece(line(seat[0], seat[1], knee_x, knee_y, 0.05), trousers, there),
        Piece(line(knee_x, knee_y, foot[0], foot[1], 0.042), trousers, there),
        Piece(line(seat[0], seat[1] + 0.04, neck_x, neck_y, 0.08), top, there),
        Piece(line(neck_x, neck_y - 0.03, hand[0], hand[1], 0.034), top * 0.85, there),
        Piece(disc(neck_x + 0.03, neck_y + 0.13, 0.085), head, there),
    ]
    return Sketch(0.4, np.where(there > 0, neck_y + 0.2, 0.0), parts)


def motorcycle_side(dice: Dice) -> Sketch:
    """Thick wheels, engine, tank; often with a rider."""
    paint, metal, dark = dice.coat(0.3), dice.grey(0.2, 0.7), dice.grey(0.03, 0.2)
    wheel, base = dice.between(0.16, 0.2), dice.between(0.29, 0.34)
    seat_y, bar_y = dice.between(0.42, 0.48), dice.between(0.52, 0.64)
    bar_x = base - dice.between(0.12, 0.2)
    rider = _rider(dice, (-0.12, seat_y + 0.06), (bar_x, bar_y), (0.02, 0.14))
    parts = [
        *[Piece(ring(x, wheel, wheel - 0.035, dice.between(0.06, 0.085)), dark) for x in (-base, base)],
        Piece(quad(0.14, 0.36, (-0.16, 0.15), (-0.12, 0.18)), metal * 0.6),
        Piece(line(-base, wheel, -0.05, 0.3, 0.025), metal),
        Piece(line(base, wheel, bar_x, bar_y, 0.024), metal),
        Piece(line(-0.05, 0.16, -base - 0.05, 0.15, 0.03), metal, dice.chance(0.7)),
        Piece(quad(0.32, seat_y + 0.04, (-0.05, 0.2), (-0.02, 0.16)), paint),
        Piece(line(-base - 0.02, seat_y + 0.02, -0.02, seat_y - 0.02, 0.035), dark),
        Piece(quad(0.26, seat_y, (-0.3, -0.04), (-0.34, -0.04)), paint * 0.9, dice.chance(0.5)),
        Piece(quad(0.28, bar_y, (0.12, base + 0.05), (bar_x - 0.03, bar_x + 0.07)), paint, dice.chance(0.5)),
        Piece(line(bar_x, bar_y, bar_x - 0.06, bar_y + 0.02, 0.02), dark),
        Piece(disc(bar_x + 0.07, bar_y - 0.06, 0.045), dice.colour((0.0, 0.3), (0.6, 1.0), hue=0.13)),
        *rider.parts,
    ]
    return Sketch(base * 2.0 + wheel * 2.0, np.maximum(bar_y + 0.04, rider.height), parts)


def bicycle_side(dice: Dice) -> Sketch:
    """Thin wheels and a frame of thin tubes; often with a rider."""
    paint, dark = dice.coat(0.4), dice.grey(0.03, 0.3)
    wheel, base = dice.between(0.18, 0.23), dice.between(0.29, 0.35)
    seat_y, bar_y = dice.between(0.46, 0.54), dice.between(0.5, 0.62)
    tube, tyre = dice.between(0.013, 0.026), dice.between(0.022, 0.042)
    bar_x, crank_y = base - dice.between(0.07, 0.13), wheel - 0.02
    rider = _rider(dice, (-0.13, seat_y + 0.05), (bar_x, bar_y), (0.0, 0.12))
    parts = [
        *[Piece(ring(x, wheel, wheel - 0.02, tyre), dark) for x in (-base, base)],
        Piece(line(-base, wheel, -0.03, crank_y, tube), paint),
        Piece(line(-0.03, crank_y, -0.13, seat_y, tube), paint),
        Piece(line(-base, wheel, -0.11, seat_y - 0.06, tube), paint),
        Piece(line(-0.11, seat_y - 0.06, bar_x, bar_y - 0.08, tube), paint),
        Piece(line(-0.03, crank_y, bar_x, bar_y - 0.1, tube), paint),
        Piece(line(base, wheel, bar_x, bar_y, tube), paint),
        Piece(line(bar_x, bar_y, bar_x + 0.05, bar_y + 0.01, 0.02), dark),
        Piece(line(-0.18, seat_y, -0.09, seat_y, 0.024), dark),
        Piece(box(-base - 0.08, -0.2, wheel * 2.0, wheel * 2.0 + 0.14), _cloth(dice), dice.chance(0.2)),
        *rider.parts,
    ]
    return Sketch(base * 2.0 + wheel * 2.0, np.maximum(bar_y + 0.04, rider.height), parts)


def _bike_end(dice: Dice, tyre: Number, bar: Number, extras: list[Piece], rider_there: Batch) -> Sketch:
    """A two-wheeler from the front or rear: wheel, handlebar, extras, rider."""
    dark, top, trousers = dice.grey(0.03, 0.25), _cloth(dice), _cloth(dice)
    head, width = np.where(dice.chance(0.6) > 0, _cloth(dice), _skin(dice)), dice.between(0.1, 0.15)
    parts = [
        Piece(line(0.0, tyre, 0.0, 0.34, tyre), dark),
        *[Piece(line(s * 0.06, 0.5, s * 0.11, 0.2, 0.045), trousers, rider_there) for s in (-1.0, 1.0)],
        Piece(quad(0.46, 0.86, (-width, width), (-width - 0.03, width + 0.03)), top, rider_there),
        *[Piece(line(s * (width + 0.02), 0.8, s * bar, 0.58, 0.035), top * 0.85, rider_there) for s in (-1.0, 1.0)],
        Piece(disc(0.0, 0.97, 0.085), head, rider_there),
        Piece(line(-bar, 0.57, bar, 0.57, 0.02), dark),
        *extras,
    ]
    return Sketch(bar * 2.0 + 0.06, np.where(rider_there > 0, 1.06, 0.64), parts)


def motorcycle_end(dice: Dice) -> Sketch:
    """A motorcycle from the front or rear."""
    paint, half = dice.coat(0.3), dice.between(0.1, 0.16)
    lamp = np.where(dice.chance(0.4) > 0, dice.colour((0.7, 0.9), (0.5, 0.9), hue=0.0), dice.grey(0.7, 1.0))
    extras = [
        Piece(quad(0.28, 0.6, (-half * 0.7, half * 0.7), (-half, half)), paint),
        Piece(disc(0.0, 0.48, dice.between(0.04, 0.06)), lamp),
    ]
    return _bike_end(dice, dice.between(0.045, 0.07), dice.between(0.22, 0.3), extras, dice.chance(0.75))


def bicycle_end(dice: Dice) -> Sketch:
    """A bicycle from the front or rear."""
    paint = dice.coat(0.4)
    extras = [Piece(line(0.0, 0.3, 0.0, 0.56, 0.022), paint)]
    return _bike_end(dice, dice.between(0.02, 0.036), dice.between(0.18, 0.27), extras, dice.chance(1.0))


def pedestrian(dice: Dice) -> Sketch:
    """Somebody who stands or walks, with a coat, a skirt or a bag at times."""
    top, trousers, skin, hair = _cloth(dice), _cloth(dice), _skin(dice), dice.grey(0.03, 0.6)
    stride, swing = dice.between(0.01, 0.17), dice.between(0.02, 0.2)
    shoulder, hip = dice.between(0.08, 0.14), dice.between(0.06, 0.11)
    skirt, coat, bag = dice.chance(0.2), dice.chance(0.25), dice.chance(0.3)
    skirt_end, bag_side = dice.between(0.25, 0.38), dice.sign()
    parts = [
        Piece(line(-0.035, 0.46, -stride, 0.05, 0.042), trousers),
        Piece(line(0.035, 0.46, stride, 0.05, 0.042), trousers * 0.85),
        Piece(line(-shoulder, 0.77, -shoulder - swing * 0.6, 0.5, 0.033), top * 0.85),
        Piece(quad(skirt_end, 0.5, (-hip - 0.05, hip + 0.05), (-hip, hip)), trousers, skirt),
        Piece(quad(0.44, 0.82, (-hip, hip), (-shoulder, shoulder)), top),
        Piece(quad(0.3, 0.5, (-hip - 0.02, hip + 0.02), (-hip, hip)), top, coat),
        Piece(line(shoulder, 0.77, shoulder + swing * 0.6, 0.5, 0.033), top * 0.9),
        Piece(box(bag_side * 0.16 - 0.06, bag_side * 0.16 + 0.06, 0.36, dice.between(0.48, 0.6)), _cloth(dice), bag),
        Piece(disc(0.0, 0.92, 0.075), hair),
        Piece(disc(0.015, 0.905, 0.06), skin, dice.chance(0.75)),
    ]
    return Sketch(0.4, 1.0, parts)


def cone(dice: Dice) -> Sketch:
    """A traffic cone with reflecting bands, or a slim marker of the same make."""
    usual, faded = dice.colour((0.75, 0.98), (0.6, 1.0), hue=0.04), dice.colour((0.2, 0.8), (0.35, 0.95), hue=0.09)
    paint = np.where(dice.chance(0.7) > 0, usual, faded)
    foot, tip = dice.between(0.17, 0.34), dice.between(0.025, 0.08)
    base = foot + dice.between(0.03, 0.12)
    body: Outline = quad(0.05, 1.0, (-foot, foot), (-tip, tip))
    band, tall = dice.between(0.5, 0.7), dice.between(0.1, 0.18)
    white = dice.grey(0.7, 1.0)
    parts = [
        Piece(
            box(-base, base, 0.0, dice.between(0.05, 0.1)),
            np.where(dice.chance(0.5) > 0, paint * 0.8, dice.grey(0.05, 0.3)),
        ),
        Piece(body, paint),
        Piece(both(body, box(-1.0, 1.0, band, band + tall)), white, dice.chance(0.85)),
        Piece(both(body, box(-1.0, 1.0, band - 0.3, band - 0.3 + tall)), white, dice.chance(0.5)),
        Piece(both(body, box(0.02, 1.0, 0.0, 1.0)), paint * 0.6, 0.35),
    ]
    return Sketch(base * 2.0, 1.0, parts)
