"""What a vehicle computes, in torch: backbones, local training, features; and the average of the vehicles' models.

Torch is imported when one of these names is first asked for, so that settings can be read without it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mpt.learning.settings import AUGMENTATIONS, DivergedError, LearningError, TrainingSettings

if TYPE_CHECKING:
    from mpt.learning.augmentation import normalise
    from mpt.learning.averaging import RunningAverage, batchnorm_prefixes
    from mpt.learning.backbones import BACKBONES, Classifier, build
    from mpt.learning.losses import FedLC, Loss, cross_entropy
    from mpt.learning.randomness import derive_seed, generator, numpy_generator
    from mpt.learning.samples import Samples
    from mpt.learning.training import TrainingResult, embed, train

__all__ = [
    "AUGMENTATIONS",
    "BACKBONES",
    "Classifier",
    "DivergedError",
    "FedLC",
    "LearningError",
    "Loss",
    "RunningAverage",
    "Samples",
    "TrainingResult",
    "TrainingSettings",
    "batchnorm_prefixes",
    "build",
    "cross_entropy",
    "derive_seed",
    "embed",
    "generator",
    "normalise",
    "numpy_generator",
    "train",
]

_MODULES = {
    "augmentation": ("normalise",),
    "averaging": ("RunningAverage", "batchnorm_prefixes"),
    "backbones": ("BACKBONES", "Classifier", "build"),
    "losses": ("FedLC", "Loss", "cross_entropy"),
    "randomness": ("derive_seed", "generator", "numpy_generator"),
    "samples": ("Samples",),
    "training": ("TrainingResult", "embed", "train"),
}


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
