"""The trainings that methods read: whether the vehicle leaves, what is trained on then, if anything, and the loss.

A training of one's own is a `Training` in a file, or a function that makes one: `training = "mine.py:gentle"` in a
method, or `mpt(training='mine.py:gentle')` for one that is built in. No torch: a loss is named, or is a function.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

from mpt.base.errors import MptError
from mpt.base.extensions import Builtin, Extensions


class MethodError(MptError):
    """A method cannot be found or does not keep the protocol; the message says which and what would be right."""


@dataclass(frozen=True)
class Training:
    """What sets a training apart.

    Attributes:
        name: what it is called.
        departs: whether the vehicle leaves at all.
        holds_out: whether the remaining samples are kept out of training once it has left.
        loss: what vehicles minimise, by name as in `mpt losses` or `path.py:function`, or a function of logits, labels
            and the vehicle's counts; None: what the run says (`mpt run --loss`).
        stops: whether training ends with the departure: the model stays as it was then, and nothing is held out.
    """

    name: str
    departs: bool = True
    holds_out: bool = True
    loss: str | Callable[..., Any] | None = None
    stops: bool = False

    def __post_init__(self) -> None:
        if self.stops and not self.departs:
            raise MethodError(f"training: {self.name} stops at the departure, should depart")
        if self.holds_out and (self.stops or not self.departs):
            object.__setattr__(self, "holds_out", False)


TRAININGS: Extensions[Training] = Extensions(
    "training",
    {
        "held-out": Builtin(partial(Training, "held-out"), "the remaining samples are kept out after the departure"),
        "continued": Builtin(partial(Training, "continued", holds_out=False), "the remaining samples are trained on"),
        "fedlc": Builtin(partial(Training, "fedlc", holds_out=False, loss="fedlc"), "likewise, with FedLC's loss"),
        "live": Builtin(partial(Training, "live", departs=False), "no departure"),
        "stopped": Builtin(partial(Training, "stopped", stops=True), "nothing is trained after the departure"),
    },
    MethodError,
    own="path.py:name",
)


def find_training(text: str) -> Training:
    """The training that a text names, the same object as long as the file is."""
    return _found(text, TRAININGS.known_by(text))


@cache
def _found(text: str, file: str) -> Training:
    made = TRAININGS.find(text)
    if not isinstance(made, Training):
        raise MethodError(f"training: {text} gave a {type(made).__name__}, should be a mpt.methods.Training")
    return replace(made, name=text) if made.name != text else made
