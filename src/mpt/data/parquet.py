"""`parquet:PREFIX`: PREFIX-train.parquet and PREFIX-test.parquet in the layout that Hugging Face `datasets` writes."""

import json
from pathlib import Path
from typing import Any

from mpt.base.text import installs
from mpt.data.arrow import _Features, from_tables
from mpt.data.dataset import SPLITS, Dataset
from mpt.data.request import DatasetSpec


def load_parquet(request: DatasetSpec) -> Dataset:
    """Images from the column `image`, labels from `label` (or `?label=COLUMN`), class names from the metadata."""
    paths = {which: Path(f"{request.path}-{which}.parquet") for which in SPLITS}
    for path in paths.values():
        if not path.is_file():
            raise request.error(f"no file {path}, should be there")
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
    features = {which: _features(request, paths[which], tables[which]) for which in SPLITS}
    for column, feature in features["train"].items():
        theirs = features["test"].get(column, {}).get("names")
        if feature.get("names") != theirs and theirs is not None:
            raise request.error(f"the class names of {column!r} differ between train and test, should be the same")
    return from_tables(request, paths["train"].name.removesuffix("-train.parquet"), features["train"], *tables.values())


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
