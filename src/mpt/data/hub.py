"""`hf:NAME`: a dataset of the Hugging Face hub (or a local folder), where the package `datasets` is installed."""

from typing import Any

from mpt.data.arrow import from_tables
from mpt.data.dataset import SPLITS, Dataset
from mpt.data.folder import TESTS
from mpt.data.request import DatasetSpec


def load_hub(request: DatasetSpec) -> Dataset:
    """Splits `train` and `test` or one of `TESTS` (or `?train=NAME&test=NAME`); columns as for `parquet:`."""
    try:
        import datasets
    except ImportError:
        raise request.error("needs the package datasets, which is not installed; pip install datasets") from None
    try:
        found = datasets.load_dataset(request.target, request.options.get("config"))
    except Exception as error:
        told = " ".join(str(error).split())[:200]
        raise request.error(
            f"cannot be loaded ({type(error).__name__}: {told}), should be a dataset's name and the network be there"
        ) from error
    return from_splits(request, found)


def from_splits(request: DatasetSpec, found: Any) -> Dataset:
    """A dataset from what `datasets.load_dataset` returns, a mapping from split names to `datasets.Dataset`."""
    usual = {"train": "train", "test": next((name for name in TESTS if name in found), "")}
    names = {which: request.options.get(which, usual[which]) for which in SPLITS}
    splits = [found[_there(request, which, names[which], found)] for which in SPLITS if names[which]]
    tables = [split.with_format("arrow")[:] for split in splits]
    return from_tables(request, request.target.rpartition("/")[2], splits[0].features.to_dict(), *tables)


def _there(request: DatasetSpec, which: str, name: str, found: Any) -> str:
    """The name of a split, where it is one."""
    if name not in found:
        raise request.error(f"no split {name!r}, should be named by ?{which}= as one of {', '.join(found)}")
    return name
