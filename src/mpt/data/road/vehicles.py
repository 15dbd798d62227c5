"""Car, van, truck and bus from the side and from the front or rear.

The four share proportions, colours and parts on purpose: a van with windows is nearly a bus, without nearly a truck.
"""

import numpy as np

from mpt.data.road.dice import Batch, Dice
from mpt.data.road.shapes import Number, Outline, Piece, Sketch, both, box, disc, line, quad, stripes

_CLEARANCE = 0.09


def _glass(dice: Dice) -> Batch:
    """(B, 3): dark, or bright with the sky in it."""
    return dice.colour((0.1, 0.4), (0.06, 0.4), hue=0.58)


def _wheels(dice: Dice, places: list[tuple[Number, Number]], radius: Number) -> list[Piece]:
    """Wheels at (x, opacity)."""
    tyre, hub = dice.grey(0.03, 0.15), dice.grey(0.2, 0.75)
    size = dice.between(0.4, 0.65)
    parts = []
    for x, there in places:
        parts += [Piece(disc(x, radius, radius), tyre, there), Piece(disc(x, radius, radius * size), hub, there)]
    return parts


def _lights(dice: Dice, x: Number, y: Number) -> list[Piece]:
    """Headlight at x, rear light at -x."""
    return [
        Piece(box(x - 0.04, x, y, y + 0.04), dice.colour((0.0, 0.4), (0.7, 1.0), hue=0.13)),
        Piece(box(-x, -x + 0.025, y, y + 0.06), dice.colour((0.6, 0.9), (0.4, 0.9), hue=0.0)),
    ]


def _sill(dice: Dice, colour: Batch) -> Piece:
    """The dark lower edge."""
    return Piece(box(-0.49, 0.49, _CLEARANCE - 0.03, _CLEARANCE + dice.between(0.02, 0.05)), colour * 0.4)


def car_side(dice: Dice) -> Sketch:
    """Saloon, hatchback or SUV."""
    paint, glass = dice.coat(), _glass(dice)
    belt, roof = dice.between(0.23, 0.30), dice.between(0.37, 0.50)
    left, right = dice.between(-0.48, -0.28), dice.between(0.14, 0.32)
    cabin_left, cabin_right = left + dice.between(0.02, 0.14), right - dice.between(0.08, 0.18)
    pillar = dice.between(-0.12, 0.0)
    window = quad(belt, roof - 0.03, (left + 0.05, right - 0.03), (cabin_left + 0.03, cabin_right - 0.01))
    parts = [
        Piece(quad(_CLEARANCE, belt + 0.01, (-0.5, 0.5), (-0.49, dice.between(0.42, 0.49))), paint),
        Piece(quad(belt, roof, (left, right), (cabin_left, cabin_right)), paint * 0.95),
        Piece(window, glass),
        Piece(both(window, box(pillar - 0.012, pillar + 0.012, belt, roof)), paint * 0.7),
        _sill(dice, paint),
        *_lights(dice, 0.48, 0.19),
        *_wheels(dice, [(dice.between(-0.34, -0.28), 1.0), (dice.between(0.28, 0.34), 1.0)], dice.between(0.08, 0.105)),
    ]
    return Sketch(1.0, roof, parts)


def van_side(dice: Dice) -> Sketch:
    """Panel van, minibus or something between."""
    paint, glass = dice.coat(), _glass(dice)
    belt, roof = dice.between(0.26, 0.32), dice.between(0.40, 0.60)
    nose, slope = dice.between(0.34, 0.48), dice.between(0.05, 0.2)
    front = nose - slope
    windows, rear_end = dice.chance(0.45), dice.between(-0.46, -0.2)
    top = roof - dice.between(0.04, 0.08)
    row = quad(belt, top, (rear_end, front - 0.16), (rear_end, front - 0.18))
    door = dice.between(front - 0.2, front - 0.12)
    parts = [
        Piece(quad(_CLEARANCE, belt + 0.01, (-0.5, 0.5), (-0.5, dice.between(nose, 0.49))), paint),
        Piece(quad(belt, roof, (-0.5, nose), (dice.between(-0.5, -0.46), front)), paint * 0.97),
        Piece(quad(belt, top, (front - 0.12, nose - 0.02), (front - 0.12, front - 0.01)), glass),
        Piece(row, glass, windows),
        Piece(stripes(row, dice.between(0.14, 0.24), 0.025), paint * 0.7, windows),
        Piece(box(door - 0.006, door + 0.006, _CLEARANCE, roof - 0.03), paint * 0.6, dice.chance(0.6)),
        Piece(box(-0.5, 0.48, belt - 0.06, belt - 0.02), dice.coat(), dice.chance(0.25)),
        _sill(dice, paint),
        *_lights(dice, 0.49, 0.2),
        *_wheels(dice, [(dice.between(-0.34, -0.26), 1.0), (dice.between(0.28, 0.34), 1.0)], dice.between(0.075, 0.1)),
    ]
    return Sketch(1.0, roof, parts)


def truck_side(dice: Dice) -> Sketch:
    """A cab and a load: box, flatbed, tank or tipper."""
    paint, glass = dice.coat(), _glass(dice)
    cargo = np.where(dice.chance(0.45) > 0, paint, np.where(dice.chance(0.6) > 0, dice.grey(0.6, 0.95), dice.coat()))
    cab_left, cab_top = dice.between(0.16, 0.32), dice.between(0.36, 0.54)
    slope, belt = dice.between(0.0, 0.12), dice.between(0.26, 0.33)
    back, top = cab_left - dice.between(0.0, 0.04), dice.between(0.40, 0.60)
    floor = dice.between(0.13, 0.18)
    boxed, flat, tank, tipper = dice.pick(0.62, 0.14, 0.1, 0.14)
    load_left, load_right = dice.between(-0.45, -0.2), dice.between(-0.1, 0.1)
    middle, half = (floor + top) * 0.5, (top - floor) * 0.46
    ribs = dice.between(0.05, 0.15)
    body = box(-0.5, back, floor, top)
    long = dice.chance(0.5)
    parts = [
        Piece(box(-0.49, 0.46, _CLEARANCE, floor + 0.02), dice.grey(0.05, 0.25)),
        Piece(body, cargo, boxed),
        Piece(stripes(body, ribs, 0.012), cargo * 0.8, boxed * dice.chance(0.4)),
        Piece(box(-0.5, back, floor, floor + 0.05), cargo * 0.7, flat),
        Piece(box(load_left, load_right, floor + 0.05, top - 0.05), dice.coat(), flat),
        Piece(line(-0.5 + half, middle, back - half, middle, half), cargo, tank),
        Piece(quad(floor, top - 0.08, (-0.42, back - 0.03), (-0.5, back)), cargo, tipper),
        Piece(quad(_CLEARANCE, belt + 0.01, (cab_left, 0.5), (cab_left, 0.49)), paint),
        Piece(quad(belt, cab_top, (cab_left, 0.49), (cab_left, 0.49 - slope)), paint * 0.97),
        Piece(quad(belt, cab_top - 0.05, (cab_left + 0.07, 0.47), (cab_left + 0.07, 0.47 - slope)), glass),
        *_lights(dice, 0.49, 0.17),
        *_wheels(
            dice,
            [
                (dice.between(0.3, 0.38), 1.0),
                (dice.between(-0.36, -0.28), 1.0),
                (dice.between(-0.2, -0.12), long),
                (dice.between(0.06, 0.12), long * dice.chance(0.4)),
            ],
            dice.between(0.07, 0.095),
        ),
    ]
    return Sketch(1.0, np.maximum(cab_top, top), parts)


def bus_side(dice: Dice) -> Sketch:
    """City bus, coach or minibus."""
    paint, glass = dice.coat(), _glass(dice)
    roof, nose = dice.between(0.34, 0.54), dice.between(0.44, 0.5)
    sill = roof - dice.between(0.16, 0.24)
    top = roof - dice.between(0.03, 0.08)
    row_left, row_right = dice.between(-0.48, -0.38), dice.between(0.3, nose - 0.01)
    row = box(row_left, row_right, sill, top)
    door = dice.between(0.28, 0.38)
    parts = [
        Piece(quad(_CLEARANCE, roof, (-0.5, 0.5), (dice.between(-0.5, -0.47), nose)), paint),
        Piece(box(-0.5, 0.49, dice.between(0.12, 0.16), dice.between(0.17, 0.22)), dice.coat(), dice.chance(0.45)),
        Piece(row, glass),
        Piece(stripes(row, dice.between(0.09, 0.2), dice.between(0.012, 0.03)), paint * 0.7),
        Piece(quad(sill, top, (nose - 0.05, 0.49), (nose - 0.06, nose)), glass),
        Piece(box(door, door + 0.08, _CLEARANCE + 0.01, top), glass * 0.8, dice.chance(0.6)),
        Piece(
            box(0.3, nose, roof - 0.05, roof - 0.015), dice.colour((0.5, 0.9), (0.5, 1.0), hue=0.12), dice.chance(0.3)
        ),
        Piece(box(-0.3, 0.2, roof - 0.01, roof + 0.03), dice.grey(0.4, 0.9), dice.chance(0.35)),
        _sill(dice, paint),
        *_lights(dice, 0.49, 0.15),
        *_wheels(
            dice,
            [
                (dice.between(0.24, 0.33), 1.0),
                (dice.between(-0.34, -0.22), 1.0),
                (dice.between(-0.2, -0.14), dice.chance(0.2)),
            ],
            dice.between(0.065, 0.09),
        ),
    ]
    return Sketch(1.0, roof, parts)


def _end_wheels(dice: Dice, half: Number) -> list[Piece]:
    """Two wheels as seen from the end of a vehicle."""
    tyre, wide = dice.grey(0.03, 0.12), dice.between(0.1, 0.18)
    return [Piece(box(side[0], side[1], 0.0, 0.2), tyre) for side in ((-half, -half + wide), (half - wide, half))]


def _end_lights(dice: Dice, rear: Batch, half: Number, y: Number) -> list[Piece]:
    """Two lights, red at the rear."""
    red = dice.colour((0.6, 0.95), (0.4, 0.95), hue=0.0)
    white = dice.colour((0.0, 0.3), (0.7, 1.0), hue=0.13)
    colour = np.where(rear > 0, red, white)
    wide, tall = dice.between(0.08, 0.16), dice.between(0.06, 0.14)
    return [
        Piece(box(-half + 0.03, -half + 0.03 + wide, y, y + tall), colour),
        Piece(box(half - 0.03 - wide, half - 0.03, y, y + tall), colour),
    ]


def _end_details(dice: Dice, rear: Batch, half: Number, y: Number) -> list[Piece]:
    """Grille, bumper and number plate."""
    dark = dice.grey(0.05, 0.3)
    return [
        Piece(box(-half * 0.55, half * 0.55, y, y + 0.1), dark, (1.0 - rear) * dice.chance(0.7)),
        Piece(box(-half, half, 0.12, dice.between(0.17, 0.24)), dark, dice.chance(0.6)),
        Piece(box(-0.12, 0.12, y - 0.1, y - 0.03), dice.grey(0.7, 0.95), dice.chance(0.7)),
    ]


def car_end(dice: Dice) -> Sketch:
    """A car's front or rear."""
    paint, glass, rear = dice.coat(), _glass(dice), dice.chance(0.5)
    belt, roof = dice.between(0.44, 0.54), dice.between(0.72, 0.92)
    inner = dice.between(0.3, 0.42)
    parts = [
        *_end_wheels(dice, 0.46),
        Piece(quad(0.13, belt + 0.01, (-0.5, 0.5), (-0.48, 0.48)), paint),
        Piece(quad(belt, roof, (-0.46, 0.46), (-inner, inner)), paint * 0.95),
        Piece(quad(belt + 0.02, roof - 0.06, (-0.41, 0.41), (0.04 - inner, inner - 0.04)), glass),
        *_end_lights(dice, rear, 0.48, dice.between(0.28, 0.36)),
        *_end_details(dice, rear, 0.48, 0.27),
    ]
    return Sketch(1.0, roof, parts)


def _tall_end(
    dice: Dice, half: Number, roof: Number, inner: Number, screen: tuple[Number, Number], window: Batch
) -> list[Piece]:
    """The front or rear of a van, truck or bus; `window` says where the rear has one."""
    paint, glass, rear = dice.coat(), _glass(dice), dice.chance(0.5)
    pane = quad(screen[0], screen[1], (-half + 0.05, half - 0.05), (0.05 - inner, inner - 0.05))
    parting: Outline = box(-0.012, 0.012, 0.15, roof - 0.04)
    return [
        *_end_wheels(dice, half - 0.03),
        Piece(quad(0.13, roof, (-half, half), (-inner, inner)), paint),
        Piece(pane, glass, np.maximum(1.0 - rear, window)),
        Piece(parting, paint * 0.5, rear * dice.chance(0.7)),
        *_end_lights(dice, rear, half, dice.between(0.22, 0.36)),
        *_end_details(dice, rear, half, dice.between(0.26, 0.36)),
    ]


def van_end(dice: Dice) -> Sketch:
    """A van's front or rear."""
    half, roof = dice.between(0.42, 0.5), dice.between(0.88, 1.16)
    inner = half - dice.between(0.03, 0.1)
    screen = (dice.between(0.48, 0.58), roof - dice.between(0.08, 0.2))
    return Sketch(half * 2.0, roof, _tall_end(dice, half, roof, inner, screen, dice.chance(0.7)))


def truck_end(dice: Dice) -> Sketch:
    """A truck's cab with the load behind it, or its rear doors."""
    half, cab = dice.between(0.40, 0.5), dice.between(0.88, 1.2)
    top, wide = cab + dice.between(-0.05, 0.3), half + dice.between(-0.02, 0.07)
    inner = half - dice.between(0.0, 0.06)
    screen = (dice.between(0.52, 0.66), cab - dice.between(0.06, 0.16))
    load = [Piece(box(-wide, wide, 0.3, top), np.where(dice.chance(0.5) > 0, dice.grey(0.5, 0.95), dice.coat()))]
    parts = load + _tall_end(dice, half, cab, inner, screen, dice.chance(0.1))
    return Sketch(np.maximum(half, wide) * 2.0, np.maximum(cab, top), parts)


def bus_end(dice: Dice) -> Sketch:
    """A bus's front or rear: more glass, a sign above it."""
    half, roof = dice.between(0.42, 0.5), dice.between(1.0, 1.34)
    inner = half - dice.between(0.0, 0.05)
    screen = (dice.between(0.42, 0.6), roof - dice.between(0.1, 0.22))
    sign = box(-half * 0.7, half * 0.7, roof - 0.1, roof - 0.03)
    parts = _tall_end(dice, half, roof, inner, screen, dice.chance(0.8))
    sign_colour = dice.colour((0.5, 0.9), (0.5, 1.0), hue=0.12)
    mirrors = [
        Piece(
            box(side * (half + 0.03) - 0.03, side * (half + 0.03) + 0.03, roof - 0.45, roof - 0.25),
            dice.grey(0.05, 0.3),
        )
        for side in (-1.0, 1.0)
    ]
    return Sketch(half * 2.0, roof, [*parts, Piece(sign, sign_colour, dice.chance(0.5)), *mirrors])
