"""What a vehicle computes, in torch: backbones, local training, features; and the average of the vehicles' models."""

from mpt.learning.augmentation import AUGMENTATIONS, normalise
from mpt.learning.averaging import RunningAverage, batchnorm_prefixes
from mpt.learning.backbones import BACKBONES, Classifier, build
from mpt.learning.errors import LearningError
from mpt.learning.losses import Loss, cross_entropy, fedlc
from mpt.learning.randomness import derive_seed, generator, numpy_generator
from mpt.learning.training import Settings, Trained, embed, train

__all__ = [
    "AUGMENTATIONS",
    "BACKBONES",
    "Classifier",
    "LearningError",
    "Loss",
    "RunningAverage",
    "Settings",
    "Trained",
    "batchnorm_prefixes",
    "build",
    "cross_entropy",
    "derive_seed",
    "embed",
    "fedlc",
    "generator",
    "normalise",
    "numpy_generator",
    "train",
]
