"""`hf:` without a network: the conversion of Arrow tables and, where it is installed, of what `datasets` makes."""

import importlib.util
import sys

import numpy as np
import pytest

from mpt.data import DataError, load
from mpt.data.arrow import from_tables
from mpt.data.hub import from_splits
from mpt.data.request import DatasetSpec

from .samples import CLASSES, FEATURES, assert_one_sentence, make_table, smooth_image


def test_without_the_package_there_is_a_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    message = r"^hf:uoft-cs/cifar10: needs the package datasets, which is not installed; pip install datasets$"
    with pytest.raises(DataError, match=message):
        load("hf:uoft-cs/cifar10")


def test_tables_and_features_become_a_dataset():
    pytest.importorskip("pyarrow")
    pytest.importorskip("PIL")
    train, test = make_table(3, "PNG", features=None), make_table(2, "PNG", features=None)
    dataset = from_tables(DatasetSpec("hf:some/roads"), "roads", FEATURES, train, test)
    assert (dataset.name, dataset.classes) == ("roads", CLASSES)
    assert np.array_equal(dataset.train.images[4], smooth_image(1, 1))


needs_datasets = pytest.mark.skipif(
    importlib.util.find_spec("datasets") is None, reason="the package datasets is not installed"
)


@pytest.fixture
def splits():
    datasets = pytest.importorskip("datasets")
    features = datasets.Features(
        {"img": datasets.Image(), "kind": datasets.ClassLabel(names=list(CLASSES)), "id": datasets.Value("string")}
    )

    def split(n):
        rows = make_table(n, "PNG")
        columns = {"img": rows["image"].to_pylist(), "kind": rows["label"].to_pylist(), "id": ["x"] * rows.num_rows}
        return datasets.Dataset.from_dict(columns, features=features)

    return datasets.DatasetDict({"train": split(3), "validation": split(2)})


@needs_datasets
def test_what_the_package_returns_becomes_a_dataset(splits):
    request = DatasetSpec("hf:some/roads?test=validation", "some/roads", {"test": "validation"})
    dataset = from_splits(request, splits)
    assert (dataset.name, dataset.classes) == ("roads", CLASSES)
    assert from_splits(DatasetSpec("hf:some/roads", "some/roads"), splits).fingerprint() == dataset.fingerprint()
    expected = np.stack([smooth_image(c, i) for c in range(3) for i in range(3)])
    assert np.array_equal(dataset.train.images, expected)
    shuffled = from_splits(request, type(splits)(train=splits["train"].select([8, 0]), validation=splits["validation"]))
    assert np.array_equal(shuffled.train.images, expected[[8, 0]])


class Table:
    """What `from_splits` uses of a `datasets.Dataset`."""

    def __init__(self, table):
        self.table, self.features = table, self

    def with_format(self, _):
        return self

    def __getitem__(self, _):
        return self.table

    def to_dict(self):
        return FEATURES


def tables(**counts):
    pytest.importorskip("pyarrow")
    return {name: Table(make_table(n, "PNG", features=None)) for name, n in counts.items()}


@pytest.mark.parametrize(
    ("counts", "sizes"),
    [
        ({"train": 5, "validation": 2, "test": 1}, (15, 3)),
        ({"train": 5, "validation": 2}, (15, 6)),
        ({"train": 5}, (12, 3)),
    ],
)
def test_what_is_for_the_test(counts, sizes):
    dataset = from_splits(DatasetSpec("hf:some/roads", "some/roads"), tables(**counts))
    assert (len(dataset.train), len(dataset.test)) == sizes
    assert bool(dataset.notes) == (len(counts) == 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"test": "dev"}, r"no split 'dev', should be named by \?test= as one of all, test"),
        ({}, r"no split 'train', should be named by \?train= as one of all, test"),
    ],
)
def test_no_such_split(options, message):
    with pytest.raises(DataError, match=message) as e:
        from_splits(
            DatasetSpec("hf:some/roads", "some/roads", {"train": "all"} | options if options else {}),
            tables(all=3, test=2),
        )
    assert_one_sentence(e)


@needs_datasets
def test_a_folder_of_parquet_files_is_a_hub_dataset(splits, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for name, split in splits.items():
        split.to_parquet(tmp_path / "data" / f"{name}-00000-of-00001.parquet")
    dataset = load(f"hf:{tmp_path}?test=validation&label=kind")
    assert dataset.classes == CLASSES
    assert len(dataset.train) == 9


@needs_datasets
def test_a_name_that_cannot_be_had_is_a_sentence():
    with pytest.raises(
        DataError, match=r"cannot be loaded \(.*\), should be a dataset's name and the network be there"
    ):
        load("hf:no-such-owner-x/no-such-dataset-y")
