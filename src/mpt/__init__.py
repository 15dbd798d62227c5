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

A tracker that does all of it, for devices with labels of their own:

    tracker = mpt.LabelledTracker()

A whole federation on one machine, with the extra `sim`:

    result = mpt.simulate(mpt.RunConfig(dataset="digits", rare="8"))
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mpt.base.errors import MptError
from mpt.base.text import installs
from mpt.core import (
    ClassStatistics,
    CrossStatistics,
    Deposit,
    NearestClassMean,
    Reconstruction,
    StatisticsError,
    class_weights,
    deposit,
    reconstruct,
)
from mpt.version import __version__

if TYPE_CHECKING:
    from mpt.protocol.labelled import LabelledQuestion as LabelledQuestion
    from mpt.report.simulate import simulate as simulate
    from mpt.runs.config import RunConfig as RunConfig
    from mpt.tracking.labelled import LabelledTracker as LabelledTracker
    from mpt.tracking.labelled_outcome import LabelledReadout as LabelledReadout
    from mpt.tracking.tracker import Tracker as Tracker

__all__ = [
    "ClassStatistics",
    "CrossStatistics",
    "Deposit",
    "MptError",
    "NearestClassMean",
    "Reconstruction",
    "StatisticsError",
    "__version__",
    "class_weights",
    "deposit",
    "reconstruct",
]

_LAZY = {
    "LabelledQuestion": "mpt.protocol.labelled",
    "LabelledReadout": "mpt.tracking.labelled_outcome",
    "LabelledTracker": "mpt.tracking.labelled",
    "RunConfig": "mpt.runs.config",
    "Tracker": "mpt.tracking.tracker",
    "simulate": "mpt.report.simulate",
}
"""Names, and the modules that have them; imported when first asked for. `simulate` needs the extra `sim`."""

_ROOMS = {
    *("checking", "data", "export", "federation", "fleet", "learning", "methods", "protocol", "report", "runs"),
    *("sklearn", "tracking"),
}
"""Packages that are imported when first asked for, as in `mpt.data.load`."""


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return import_module(f"mpt.{name}")
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(_LAZY[name]), name)
    except ImportError as error:
        raise AttributeError(f"mpt.{name}: {error}; {installs('sim')} brings what it needs") from error


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY, *_ROOMS})
