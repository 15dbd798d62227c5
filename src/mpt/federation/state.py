"""A federation between two rounds: its models, each known by a handle, and what methods keep."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torch import Tensor

from mpt.federation.measurement import Anchors
from mpt.learning.aggregation import Medians
from mpt.learning.losses import Loss


class Handle(NamedTuple):
    """What a global model is known by in its federation, also after it was written and read again.

    Attributes:
        round: the one that made it; 0 of the model that training begins with.
        number: how many the federation had made before; a round that is trained again gives models with other numbers.
    """

    round: int
    number: int


@dataclass(frozen=True)
class Model:
    """A global model; two are the same where their handles are.

    Attributes:
        handle: what it is known by.
        tensors: its state dict.
        moments: what the server's optimiser keeps with it.
        doubted: whether less than half of somebody's update has counted in it.
        medians: of the updates that it was made of.
    """

    handle: Handle
    tensors: dict[str, Tensor] = field(compare=False, repr=False)
    moments: dict[str, Tensor] = field(default_factory=dict, compare=False, repr=False)
    doubted: bool = field(default=False, compare=False, repr=False)
    medians: Medians | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, eq=False)
class FederationState:
    """A federation between two rounds; with the dataset and the plan, all that the next round depends on.

    Nothing in it is changed once it is made. Trainings that do not differ yet have the same model.

    Attributes:
        round: the last one that is done; 0 before the first.
        models: each training's global model.
        earlier: those in the round of the departure; empty before it.
        method_states: what the server keeps for each method, by its name.
        anchors: where the held-out training's prototypes were, at departure and in the latest evaluated round.
    """

    round: int
    models: dict[str, Model]
    earlier: dict[str, Model] = field(default_factory=dict)
    method_states: dict[str, Any] = field(default_factory=dict)
    anchors: Anchors = field(default_factory=Anchors)


class JobKey(NamedTuple):
    """What sets the jobs of a round apart.

    Attributes:
        start: of the global model they start from.
        who: the vehicles that take part.
        held_out: whether the remaining samples are held out.
        loss: what vehicles minimise.
    """

    start: Handle
    who: tuple[int, ...]
    held_out: bool
    loss: Loss


NewModels = Mapping[JobKey, Model]
"""The global models that a round has made."""
