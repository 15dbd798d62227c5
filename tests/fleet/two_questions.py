"""A method of a test's own, as a user would write one: its second question follows from the answers to the first."""

from dataclasses import dataclass

import numpy as np

from mpt.protocol import on_vehicle


@dataclass(frozen=True)
class Kept:
    """A prototype, and the round it is from."""

    prototype: np.ndarray
    round: int


class Shrunk:
    """The prototype, moved by how far the samples nearest to the middle of all have moved away from it."""

    name, training, needs_departure = "shrunk", "held-out", True

    def depart(self, context):
        """Keep the prototype and how far samples are from the middle."""
        return Kept(context.prototype(), context.round)

    def track(self, state, context):
        """First the middle, then what is around it."""
        middle = context.report(context.request(scatter=False)).overall_mean
        told = context.total(self.around, middle=middle)
        return state, state.prototype + told["gaps"] / told["samples"]

    @on_vehicle(gaps=("d",), samples=())
    def around(self, asked, local):
        """On a vehicle: how far its samples are from the middle, absolutely."""
        return {"gaps": np.abs(local.features - asked["middle"]).sum(axis=0), "samples": float(len(local.labels))}


class Compared(Shrunk):
    """Its second question needs the departure-time model."""

    name = "compared"

    def track(self, state, context):
        """First the middle, then how far samples have moved."""
        middle = context.report(context.request(scatter=False)).overall_mean
        told = context.total(self.moved, middle=middle)
        return state, state.prototype + told["gaps"] / told["samples"]

    @on_vehicle(earlier=True, gaps=("d",), samples=())
    def moved(self, asked, local):
        """On a vehicle: the way of its samples."""
        return {"gaps": (local.features - local.earlier()).sum(axis=0), "samples": float(len(local.labels))}
