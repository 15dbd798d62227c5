"""Devices with labelled samples, some of which leave: what the trackers of labels and of numbers are tried on."""

import numpy as np

DIM = 5
NAMES = ("saw", "idle", "drill", "mill", "press")
ORDER = tuple(sorted(NAMES))  # in which a first round numbers them


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def samples(device, counts, seed=0):
    """(N, d) and (N,) labels; the classes lie apart."""
    rng = np.random.default_rng((seed, *device.encode()))
    labels = np.repeat(list(counts), list(counts.values()))
    centres = {name: 3 * np.random.default_rng((7, *name.encode())).standard_normal(DIM) for name in counts}
    rows = [centres[label] for label in labels]
    return np.reshape(rows, (-1, DIM)) + rng.standard_normal((len(labels), DIM)), labels


def drifted(features, round):
    turn = np.eye(DIM) + 0.02 * round * np.random.default_rng(3).standard_normal((DIM, DIM))
    return features @ turn + 0.1 * round


USUAL = {"saw": 20, "idle": 20, "drill": 20, "mill": 20, "press": 1}


def fleet(round):
    """Who is there with what: most of press is d's, which vanishes after round 4; e comes in round 3."""
    held = dict.fromkeys("abc", USUAL)
    if round <= 4:
        held["d"] = {"idle": 10, "press": 60}
    if round >= 3:
        held["e"] = USUAL
    return held


def growing(round):
    """The same, in which press is not there before round 2, and mill not before round 7."""
    held = {}
    for device, counts in fleet(round).items():
        held[device] = {k: n for k, n in counts.items() if (k, round) != ("press", 1) and (k != "mill" or round >= 7)}
    return held


def in_numbers(held, round, question, place):
    answers = {}
    for device, counts in held.items():
        features, labels = samples(device, counts)
        earlier = {r: drifted(features, r) for r in question.references}
        classes = np.array([place[label] for label in labels])
        answers[device] = question.answer(drifted(features, round), classes, earlier)
    return answers


def by_label(held, round, question):
    answers = {}
    for device, counts in held.items():
        features, labels = samples(device, counts)
        earlier = {r: drifted(features, r) for r in question.references}
        answers[device] = question.answer(drifted(features, round), labels, earlier)
    return answers
