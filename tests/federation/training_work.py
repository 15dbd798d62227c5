"""What trainers are compared on: drawn samples, two jobs that share a start, and how far two models are apart."""

import torch

from mpt.federation.jobs import Job
from mpt.learning import FedLC, Samples, cross_entropy

CLASSES = 4


def samples(n, side):
    drawn = torch.Generator().manual_seed(1000 + n)
    images = torch.randint(0, 256, (n, 3, side, side), dtype=torch.uint8, generator=drawn)
    return Samples(images, torch.randint(0, CLASSES, (n,), generator=drawn))


def two_jobs(start, settings, side, held):
    """All vehicles with so many samples each; and 3 and 5 with FedLC's loss."""
    there = {v: samples(n, side) for v, n in held.items()}
    return [
        Job(start, there, settings, 0, 1, cross_entropy),
        Job(start, {v: there[v] for v in (3, 5)}, settings, 1, 1, FedLC()),
    ]


def furthest(left, right, start):
    """The largest difference between two states, relative to how far training went."""
    apart = [(left[k].double() - right[k].double()).norm() for k in start if start[k].is_floating_point()]
    moved = [(right[k].double() - start[k].double()).norm() for k in start if start[k].is_floating_point()]
    return float(torch.stack(apart).norm() / torch.stack(moved).norm())
