"""Datasets behind one small protocol: `load` a spec, get a `Dataset`.

The package imports NumPy alone; a loader imports what else it needs when it is called.
"""

from mpt.data.dataset import Dataset, Holding, Split
from mpt.data.errors import DataError
from mpt.data.kept import hold_kept
from mpt.data.npz import save_npz
from mpt.data.registry import LOADERS, Loader, hold, hold_test, load, usages

__all__ = [
    "LOADERS",
    "DataError",
    "Dataset",
    "Holding",
    "Loader",
    "Split",
    "hold",
    "hold_kept",
    "hold_test",
    "load",
    "save_npz",
    "usages",
]
