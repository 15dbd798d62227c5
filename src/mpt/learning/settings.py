"""How a vehicle trains in one round, as settings. No torch."""

from dataclasses import dataclass

from mpt.base.errors import MptError
from mpt.base.settings import check, setting

AUGMENTATIONS = {
    "none": "images as they are",
    "flip": "half of the images mirrored left to right, drawn anew every epoch",
    "crop-flip": "the same, and shifted by up to an eighth of the size each way, the edge repeated where nothing was",
}


class LearningError(MptError):
    """An input to `mpt.learning` is wrong; the message says what, where, and what would be right.

    Raised before anything changes: models and arrays stay as they were.
    """


@dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """Local training by SGD, from fresh optimiser state every round; with 0 epochs the model stays as it is."""

    epochs: int = setting(5, "of a vehicle's training in a round", least=0)
    lr: float = setting(0.01, "learning rate of SGD", above=0)
    momentum: float = setting(0.9, "of SGD, from fresh state every round", least=0, below=1)
    weight_decay: float = setting(5e-4, "on all parameters", least=0)
    batch_size: int = setting(64, "of a vehicle's training; BatchNorm cannot train on one sample", least=2)
    augment: str = setting("none", "of training images: none, flip, crop-flip", choices=tuple(AUGMENTATIONS))

    def __post_init__(self) -> None:
        check(self, LearningError)
