"""`parquet:PREFIX`: PREFIX-train.parquet and PREFIX-test.parquet in the layout that Hugging Face `datasets` writes.

Or one file, `parquet:PATH`.
"""

import json
from pathlib import Path
from typing import Any

from mpt.base.text import installs
from mpt.data.arrow import _Features, from_tables
from mpt.data.dataset import Dataset
from mpt.data.folder import TESTS
from mpt.data.request import DatasetSpec


def load_parquet(request: DatasetSpec) -> Dataset:
    """Images from the column `image`, labels from `label` (or `?label=COLUMN`), class names from the metadata."""
    paths = _paths(request)
    try:
        import pyarrow.parquet
    except ImportError:
        raise request.error(f"needs pyarrow, which is not installed; {installs('data')} brings it") from None
    tables = {}
    for which, path in paths.items():
        try:
            tables[which] = pyarrow.parquet.ParquetFile(path).read()
        except Exception as error:
            raise request.error(f"{path} cannot be read, should be a whole Parquet file") from error
    features = {which: _features(request, paths[which], table) for which, table in tables.items()}
    for column, feature in features["train"].items():
        theirs = features.get("test", {}).get(column, {}).get("names")
        if feature.get("names") != theirs and theirs is not None:
            raise request.error(f"the class names of {column!r} differ between train and test, should be the same")
    name = paths["train"].name.removesuffix(".parquet").removesuffix("-train")
    return from_tables(request, name, features["train"], *tables.values())


def candidates(request: DatasetSpec) -> list[Path]:
    """The files that may be read: PREFIX-train.parquet, those for the test, and PREFIX as a file."""
    prefix = str(request.path).removesuffix("-train.parquet")
    return [*(Path(f"{prefix}-{which}.parquet") for which in ("train", *TESTS)), request.path]


def _paths(request: DatasetSpec) -> dict[str, Path]:
    """Of train and, where there is one, of test."""
    train, *tests, alone = candidates(request)
    if not train.is_file():
        if alone.is_file():
            return {"train": alone}
        raise request.error(f"no file {train}, should be there")
    test = next((path for path in tests if path.is_file()), None)
    return {"train": train} if test is None else {"train": train, "test": test}


def _features(request: DatasetSpec, path: Path, table: Any) -> _Features:
    """The features that the schema's metadata holds; empty where it holds none."""
    stored = (table.schema.metadata or {}).get(b"huggingface")
    if stored is None:
        return {}
    try:
        features = json.loads(stored)["info"]["features"]
        return {name: feature for name, feature in features.items() if isinstance(feature, dict)}
    except (ValueError, KeyError, TypeError, AttributeError):
        raise request.error(
            f"{path} has metadata 'huggingface' without info.features, should be as datasets writes it"
        ) from None
