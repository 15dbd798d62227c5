"""Datasets behind one small protocol: `load` a spec, get a `Dataset`.

The package imports NumPy alone; a loader imports what else it needs when it is called.
"""

from mpt.data.dataset import Dataset, LocalData, Split
from mpt.data.errors import DataError
from mpt.data.features import save_features
from mpt.data.image_cache import load_local_cached
from mpt.data.npz import save_npz
from mpt.data.registry import DATASETS, LOADERS, Loader, load, load_local, load_test, usages

__all__ = [
    "DATASETS",
    "LOADERS",
    "DataError",
    "Dataset",
    "Loader",
    "LocalData",
    "Split",
    "load",
    "load_local",
    "load_local_cached",
    "load_test",
    "save_features",
    "save_npz",
    "usages",
]
