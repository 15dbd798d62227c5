"""`npz:PATH`: images, series or vectors in one NumPy file, for machines that have neither pyarrow nor Pillow."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpt.data.archive import read_npz, write_arrays
from mpt.data.dataset import SPLITS, Dataset, Split
from mpt.data.errors import DataError
from mpt.data.others import Lot, lots_of, of_others
from mpt.data.request import DatasetSpec
from mpt.data.resize import resized

VERSION = 1
_FIELDS = ("version", "name", "classes", "train_images", "train_labels", "test_images", "test_labels")
_OPTIONAL = ("train_vehicles", "test_vehicles", "notes")
_WHOLE = "a whole file that mpt.data.save_npz or np.savez wrote"
_NAMES = "x_train, y_train, x_test and y_test, or images and labels"


def save_npz(dataset: Dataset, path: str | Path) -> Path:
    """Write `dataset` to `path`, compressed; `load("npz:PATH")` reads it, on any machine with NumPy.

    A file that is there is replaced once the new one is whole.
    """
    if not isinstance(dataset, Dataset):
        raise DataError(
            f"save_npz: dataset is of type {type(dataset).__name__}, should be a Dataset; np.savez writes arrays, and "
            f"npz: reads {_NAMES}"
        )
    if dataset.versions:
        raise DataError(
            f"save_npz: {dataset.name} has features under {dataset.versions} versions of a model, should be samples; "
            "save_features writes features"
        )
    arrays = {"version": np.array(VERSION), "name": np.array(dataset.name), "classes": np.array(dataset.classes)}
    if dataset.notes:
        arrays["notes"] = np.array(dataset.notes)
    for which in SPLITS:
        arrays[f"{which}_images"] = dataset.split(which).images
        arrays[f"{which}_labels"] = dataset.split(which).labels
        vehicles = dataset.split(which).vehicles
        if vehicles is not None:
            arrays[f"{which}_vehicles"] = vehicles
    return write_arrays(Path(path), arrays, np.savez_compressed)


def load_npz(request: DatasetSpec) -> Dataset:
    """What `save_npz` wrote, or arrays by the names that others use: `others.SPLIT` and `others.UNSPLIT`."""
    path = request.file(_WHOLE)
    lots: tuple[Lot, ...] = ()

    def choose(files: list[str]) -> list[str]:
        nonlocal lots
        if "version" not in files:
            lots = lots_of(files)
        if lots:
            return [name for lot in lots for name in lot if name]
        if "features_1" in files:
            raise DataError(f"has features_1, should be given as features:{request.target}")
        if missing := [name for name in _FIELDS if name not in files]:
            raise DataError(
                f"has no {missing[0]}, should be a file that mpt.data.save_npz wrote, or have {_NAMES}"
                if "version" in files
                else f"has {', '.join(files[:9]) or 'no arrays'}, should have {_NAMES}"
            )
        return [name for name in (*_FIELDS, *_OPTIONAL) if name in files]

    arrays = read_npz(request, _WHOLE, choose)
    try:
        return of_others(request, lots, arrays, path.stem) if lots else _own(request, arrays)
    except DataError as error:
        raise request.error(str(error)) from None


def _own(request: DatasetSpec, fields: Mapping[str, NDArray[Any]]) -> Dataset:
    """What `save_npz` wrote."""
    version = fields["version"]
    if version.dtype.kind not in "iu" or version.shape != () or version != VERSION:
        raise DataError(f"version is {version}, should be {VERSION}")
    if request.options:
        option = next(iter(request.options))
        raise DataError(f"{option} is given, should be left out: save_npz has written what the samples are")
    dataset = Dataset(
        str(fields["name"]),
        tuple(str(c) for c in fields["classes"].ravel()),
        Split(fields["train_images"], fields["train_labels"], fields.get("train_vehicles")),
        Split(fields["test_images"], fields["test_labels"], fields.get("test_vehicles")),
        notes=tuple(str(note) for note in fields.get("notes", np.array(())).ravel()),
    )
    return resized(dataset, request.image_size)
