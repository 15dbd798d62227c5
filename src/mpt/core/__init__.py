"""The paper's mathematics on NumPy arrays: pure functions on frozen dataclasses, float64, no I/O."""

from mpt.core.cross import CrossStatistics
from mpt.core.departure import Deposit, deposit
from mpt.core.errors import StatisticsError
from mpt.core.mapped import class_weights
from mpt.core.readout import NearestClassMean
from mpt.core.reconstruction import Reconstruction, reconstruct
from mpt.core.statistics import ClassStatistics

__all__ = [
    "ClassStatistics",
    "CrossStatistics",
    "Deposit",
    "NearestClassMean",
    "Reconstruction",
    "StatisticsError",
    "class_weights",
    "deposit",
    "reconstruct",
]
