"""MPT: missing prototype tracking for federated learning in which participants leave for good.

Every round, on each vehicle, sums per class of its features under the current model:

    report = mpt.ClassStatistics.from_features(features, labels, num_classes, watched=[truck])

On the server, once, when the vehicle that holds the trucks leaves:

    deposit = mpt.deposit(sum(reports), truck, staying=sum(reports_of_those_who_stay))

On the server, every round after:

    now = sum(reports)
    prototypes = now.means
    prototypes[truck] = mpt.reconstruct(deposit, now).prototype
    readout = mpt.NearestClassMean(prototypes, now.covariance())
"""

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
