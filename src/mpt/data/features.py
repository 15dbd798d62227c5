"""`features:PATH`: what each version of a model makes of the same samples, where neither samples nor models are there.

A .npz file, or a folder of .npy files, with these arrays:

    labels       (N,)    the class of each sample: whole numbers or texts
    features_1   (N, d)  the samples under version 1; features_2 and so on under the later ones, in the same order
    test         (N,)    optional: whether a sample is for the test; else the last fifth of every class is
    devices      (N,)    optional: who has each sample, texts or whole numbers, for the partition vehicle
    classes      (C,)    optional: names, where labels are 0 to C - 1
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpt.data.dataset import Dataset, Split
from mpt.data.errors import DataError
from mpt.data.left_out import SPLIT_HERE, last_fifths
from mpt.data.npz import BROKEN, DEVICES, write_arrays
from mpt.data.request import DatasetSpec
from mpt.data.sample_kinds import as_names

_VERSION = re.compile(r"features_([1-9][0-9]*)")
_WANTED = "a .npz file or a folder of .npy files with labels, features_1, features_2 and so on"


def load_features(request: DatasetSpec) -> Dataset:
    """The features of every version, split into train and test alike."""
    if request.image_size is not None:
        raise request.error(f"image_size is {request.image_size}, should be left out: these are no images")
    arrays = _arrays(request)
    numbers = sorted(int(found[1]) for name in arrays if (found := _VERSION.fullmatch(name)))
    if "labels" not in arrays or not numbers:
        raise request.error(f"has no {'features_1' if 'labels' in arrays else 'labels'}, should be {_WANTED}")
    if numbers != list(range(1, len(numbers) + 1)) or len(numbers) < 2:
        told = ", ".join(f"features_{n}" for n in numbers)
        raise request.error(f"has {told}, should be features_1, features_2 and so on, two or more and none left out")
    classes, labels = _labels(request, arrays)
    versions = [_version(request, f"features_{n}", arrays, len(labels)) for n in numbers]
    for n, one in enumerate(versions, start=1):
        if one.shape[1] != versions[0].shape[1]:
            raise request.error(
                f"features_{n} has {one.shape[1]} numbers a sample and features_1 has {versions[0].shape[1]}, "
                "should be as many"
            )
    tested, notes = _tested(request, arrays, labels)
    who = _devices(request, arrays, len(labels))
    try:
        splits = [
            Split(versions[0][part], labels[part], None if who is None else who[part], tuple(v[part] for v in versions))
            for part in (~tested, tested)
        ]
        return Dataset(request.path.stem, classes, *splits, notes=notes)
    except DataError as error:
        raise request.error(str(error)) from None


def save_features(
    path: str | Path,
    labels: NDArray[Any],
    versions: list[NDArray[Any]],
    *,
    test: NDArray[Any] | None = None,
    devices: NDArray[Any] | None = None,
    classes: tuple[str, ...] | None = None,
) -> Path:
    """Write a file that `features:PATH` reads: labels (N,), and (N, d) features under each version of a model."""
    arrays = {"labels": np.asarray(labels)} | {f"features_{n}": one for n, one in enumerate(versions, start=1)}
    given = {"test": test, "devices": devices, "classes": None if classes is None else np.array(classes)}
    arrays |= {name: np.asarray(one) for name, one in given.items() if one is not None}
    return write_arrays(Path(path), arrays, np.savez)


def _arrays(request: DatasetSpec) -> Mapping[str, NDArray[Any]]:
    path = request.path
    if not path.exists():
        raise request.error(f"there is no {path}, should be {_WANTED}")
    try:
        if path.is_dir():
            return {file.stem: np.load(file, allow_pickle=False) for file in sorted(path.glob("*.npy"))}
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            return dict(stored)
    except BROKEN as error:
        raise request.error(f"cannot be read, should be {_WANTED}, all of them whole") from error


def _labels(request: DatasetSpec, arrays: Mapping[str, NDArray[Any]]) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    labels = arrays["labels"].ravel()
    if labels.dtype.kind not in "iuU" or not len(labels):
        raise request.error(f"labels are {labels.dtype} of shape {arrays['labels'].shape}, should be numbers or texts")
    if "classes" in arrays and labels.dtype.kind == "U":
        raise request.error("classes are named and labels are texts, should have classes only where labels are numbers")
    if "classes" in arrays:
        return tuple(str(name) for name in arrays["classes"].ravel()), labels.astype(np.int64)
    names, index = np.unique(labels, return_inverse=True)
    return tuple(str(name) for name in names), index.astype(np.int64)


def _version(request: DatasetSpec, name: str, arrays: Mapping[str, NDArray[Any]], n: int) -> NDArray[np.float64]:
    found = arrays[name]
    if found.dtype.kind not in "fiu" or found.ndim != 2 or len(found) != n or found.shape[1] < 1:
        told = f"{found.dtype} of shape {found.shape}"
        raise request.error(f"{name} is {told}, should be numbers of shape ({n}, d), a row for each label")
    made = found.astype(np.float64)
    finite = np.isfinite(made).all(axis=1)
    if not finite.all():
        raise request.error(f"{name}: sample {int(np.argmin(finite))} is NaN or infinite, should be finite")
    return made


def _tested(
    request: DatasetSpec, arrays: Mapping[str, NDArray[Any]], labels: NDArray[np.int64]
) -> tuple[NDArray[np.bool_], tuple[str, ...]]:
    if "test" in arrays:
        said = arrays["test"]
        if said.shape != labels.shape or not np.isin(said, (0, 1)).all() or said.all() or not said.any():
            raise request.error(f"test is {said.dtype} of shape {said.shape}, should be True for some labels, not all")
        return said.astype(bool), ()
    tested = last_fifths(labels)
    if tested.all():
        raise request.error("has one sample of every class, should have several, some of them for the test")
    return tested, (f"split here: {SPLIT_HERE}",)


def _devices(request: DatasetSpec, arrays: Mapping[str, NDArray[Any]], n: int) -> NDArray[np.str_] | None:
    name = next((word for word in DEVICES if word in arrays), None)
    if name is None:
        return None
    found = as_names(arrays[name])
    if found.shape != (n,) or found.dtype.kind != "U":
        raise request.error(f"{name} is {arrays[name].dtype} of shape {arrays[name].shape}, should be {n} texts")
    return found
