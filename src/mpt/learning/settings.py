"""How a vehicle trains in one round, as settings. No torch."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from mpt.base.errors import MptError
from mpt.base.settings import check, setting

AUGMENTATIONS = {
    "none": "images as they are",
    "flip": "half of the images mirrored left to right, drawn anew every epoch",
    "crop-flip": "the same, and shifted by up to an eighth of the size each way, the edge repeated where nothing was",
}


@dataclass(frozen=True)
class RateSchedule:
    """How the learning rate goes over a run's rounds.

    Attributes:
        share: of the first round's, from the round, 1 to R, and R.
        about: the same in words.
    """

    share: Callable[[int, int], float]
    about: str


SCHEDULES = {
    "constant": RateSchedule(lambda round, rounds: 1.0, "the same in all rounds"),
    "cosine": RateSchedule(
        lambda round, rounds: 0.5 * (1 + math.cos(math.pi * (round - 1) / rounds)),
        "half a cosine, to about 0 at the end",
    ),
    "step": RateSchedule(
        lambda round, rounds: 0.1 ** ((2 * round > rounds) + (4 * round > 3 * rounds)),
        "a tenth of it after half of the rounds, a hundredth after three quarters",
    ),
}


class LearningError(MptError):
    """An input to `mpt.learning` is wrong; the message says what, where, and what would be right.

    Raised before anything changes: models and arrays stay as they were.
    """


class DivergedError(LearningError):
    """A model that has been trained is no longer finite."""


@dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """Local training by SGD, from fresh optimiser state every round; with 0 epochs the model stays as it is.

    With `prox` a vehicle minimises its loss plus mu / 2 |w - w_global|^2 (Li et al., FedProx, MLSys 2020).
    """

    epochs: int = setting(5, "of a vehicle's training in a round", least=0)
    lr: float = setting(0.01, "learning rate of SGD", above=0)
    momentum: float = setting(0.9, "of SGD, from fresh state every round", least=0, below=1)
    weight_decay: float = setting(5e-4, "on all parameters", least=0)
    batch_size: int = setting(64, "of a vehicle's training; BatchNorm cannot train on one sample", least=2)
    augment: str = setting("none", "of training images: none, flip, crop-flip", choices=tuple(AUGMENTATIONS))
    local_steps: int | None = setting(None, "batches of a vehicle in a round, in place of epochs", least=1)
    prox: float = setting(0.0, "FedProx's mu: the pull towards the round's global model", least=0)

    def __post_init__(self) -> None:
        check(self, LearningError)


SERVERS = {
    "average": "the mean of the vehicles' models (FedAvg)",
    "momentum": "the mean update, with momentum (FedAvgM)",
    "adam": "the mean update, scaled by its own past size (FedAdam)",
}
SERVER_LR = {"average": 1.0, "momentum": 1.0, "adam": 0.01}


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """What the server makes of the vehicles' mean model; BatchNorm's running statistics are always the pooled ones."""

    server: str = setting("average", "the server's optimiser: average, momentum, adam", choices=tuple(SERVERS))
    server_lr: float | None = setting(None, "its step; default: 1, for adam 0.01", above=0)
    server_momentum: float = setting(0.9, "of momentum and adam", least=0, below=1)

    def __post_init__(self) -> None:
        check(self, LearningError)

    @property
    def lr(self) -> float:
        """The step."""
        return SERVER_LR[self.server] if self.server_lr is None else self.server_lr
