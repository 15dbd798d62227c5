"""`npz:PATH`: a dataset in one NumPy file, for machines that have neither pyarrow nor Pillow."""

import zipfile
import zlib
from pathlib import Path

import numpy as np

from mpt.data.dataset import SPLITS, Dataset, Split
from mpt.data.errors import DataError
from mpt.data.request import DatasetSpec
from mpt.data.resize import resized

VERSION = 1
_FIELDS = ("version", "name", "classes", "train_images", "train_labels", "test_images", "test_labels")
_OPTIONAL = ("train_vehicles", "test_vehicles", "notes")


def save_npz(dataset: Dataset, path: str | Path) -> Path:
    """Write `dataset` to `path`, compressed; `load("npz:PATH")` reads it, on any machine with NumPy."""
    target = Path(path)
    arrays = {"version": np.array(VERSION), "name": np.array(dataset.name), "classes": np.array(dataset.classes)}
    if dataset.notes:
        arrays["notes"] = np.array(dataset.notes)
    for which in SPLITS:
        arrays[f"{which}_images"] = dataset.split(which).images
        arrays[f"{which}_labels"] = dataset.split(which).labels
        vehicles = dataset.split(which).vehicles
        if vehicles is not None:
            arrays[f"{which}_vehicles"] = vehicles
    try:
        with target.open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **arrays)
    except OSError as error:
        raise DataError(
            f"{target}: cannot be written ({error.strerror}), should be a file in a folder that exists"
        ) from error
    return target


def load_npz(request: DatasetSpec) -> Dataset:
    """What `save_npz` wrote."""
    path = request.path
    if not path.is_file():
        raise request.error(f"no file {path}, should be one that mpt.data.save_npz wrote")
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            missing = [f for f in _FIELDS if f not in stored]
            fields = {} if missing else {f: stored[f] for f in (*_FIELDS, *_OPTIONAL) if f in stored}
    except (
        OSError,
        ValueError,
        EOFError,
        AttributeError,
        KeyError,
        TypeError,
        zipfile.BadZipFile,
        zlib.error,
    ) as error:
        raise request.error("cannot be read, should be a whole file that mpt.data.save_npz wrote") from error
    if missing:
        raise request.error(f"has no {missing[0]}, should be a file that mpt.data.save_npz wrote")
    if fields["version"].dtype.kind not in "iu" or fields["version"].shape != () or fields["version"] != VERSION:
        raise request.error(f"version is {fields['version']}, should be {VERSION}")
    try:
        dataset = Dataset(
            str(fields["name"]),
            tuple(str(c) for c in fields["classes"].ravel()),
            Split(fields["train_images"], fields["train_labels"], fields.get("train_vehicles")),
            Split(fields["test_images"], fields["test_labels"], fields.get("test_vehicles")),
            notes=tuple(str(note) for note in fields.get("notes", np.array(())).ravel()),
        )
    except DataError as error:
        raise request.error(str(error)) from None
    return resized(dataset, request.image_size)
