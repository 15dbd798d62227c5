"""MPT: missing prototype tracking for federated learning in which participants leave for good."""

from mpt.core import (
    ClassStatistics,
    Deposit,
    NearestClassMean,
    Reconstruction,
    StatisticsError,
    deposit,
    reconstruct,
)

__version__ = "0.1.0"

__all__ = [
    "ClassStatistics",
    "Deposit",
    "NearestClassMean",
    "Reconstruction",
    "StatisticsError",
    "deposit",
    "reconstruct",
]
