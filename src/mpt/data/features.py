"""`features:PATH`: what each version of a model makes of the same samples, where neither samples nor models are there.

A .npz file, or a folder of .npy files, with these arrays:

    labels       (N,)    the class of each sample: numbers or texts
    features_1   (N, d)  the samples under version 1; features_2 and so on under the later ones, in the same order
    test         (N,)    optional: whether a sample is for the test; else the last fifth of every class is
    devices      (N,)    optional: who has each sample, texts or whole numbers, for the partition vehicle
    classes      (C,)    optional: names, where labels are 0 to C - 1
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mpt.data.archive import BROKEN, names_in, read_folder, read_npz, write_arrays
from mpt.data.dataset import Dataset, Split
from mpt.data.errors import DataError
from mpt.data.left_out import SPLIT_HERE, last_fifths
from mpt.data.others import DEVICES
from mpt.data.plain import one_each, plain
from mpt.data.request import DatasetSpec, split_options
from mpt.data.sample_kinds import as_names

_VERSION = re.compile(r"features_([1-9][0-9]*)")
_WANTED = "a .npz file or a folder of .npy files with labels, features_1, features_2 and so on"
_OPTIONAL = ("test", "classes", *DEVICES)

Arrays = Mapping[str, NDArray[Any]]


def load_features(request: DatasetSpec) -> Dataset:
    """The features of every version, split into train and test alike."""
    if request.image_size is not None:
        raise request.error(f"image_size is {request.image_size}, should be left out: these are no images")
    path = request.path
    if not path.exists():
        raise request.error(f"there is no {path}, should be {_WANTED}")
    read = read_folder if path.is_dir() else read_npz
    arrays = read(request, f"{_WANTED}, all of them whole", _chosen)
    try:
        return _dataset(path.stem or "features", arrays)
    except DataError as error:
        raise request.error(str(error)) from None


def save_features(
    path: str | Path,
    labels: ArrayLike,
    versions: Sequence[ArrayLike],
    *,
    test: ArrayLike | None = None,
    devices: ArrayLike | None = None,
    classes: Sequence[str] | None = None,
) -> Path:
    """Write a file that `features:PATH` reads: labels (N,), and (N, d) features under each version of a model.

    Arrays may be columns of pandas. What `features:PATH` would refuse is not written, and a file that is there is
    replaced once the new one is whole.
    """
    several = isinstance(versions, list | tuple) or (isinstance(versions, np.ndarray) and versions.ndim == 3)
    if not several or len(versions) < 2:
        told = f"of type {type(versions).__name__}" if not several else f"{len(versions)}"
        raise DataError(f"save_features: versions: {told}, should be a list of two or more arrays (N, d)")
    if isinstance(classes, str):
        raise DataError(f"save_features: classes: {classes!r}, should be several names")
    given: dict[str, object] = {"labels": labels}
    given |= {f"features_{n}": one for n, one in enumerate(versions, start=1)}
    said = {"test": test, "devices": devices, "classes": None if classes is None else list(classes)}
    given |= {name: one for name, one in said.items() if one is not None}
    try:
        arrays = {name: plain(name, one) for name, one in given.items()}
        _dataset("features", arrays)
    except DataError as error:
        raise DataError(f"save_features: {error}") from None
    return write_arrays(Path(path), arrays, np.savez)


def versions_in(spec: str) -> int:
    """How many versions a spec `features:PATH` has, told by the names of its arrays; 0 where that cannot be told."""
    try:
        word, _, target = split_options(spec)[0].partition(":")
        path = DatasetSpec(spec, target).path
        return len(_numbers(names_in(path))) if word == "features" and target else 0
    except BROKEN:
        return 0


def _numbers(names: Sequence[str]) -> list[int]:
    return sorted(int(found[1]) for name in names if (found := _VERSION.fullmatch(name)))


def _chosen(names: Sequence[str]) -> list[str]:
    """The arrays that are read; others may be there."""
    numbers = _numbers(names)
    if "labels" not in names or not numbers:
        raise DataError(f"has no {'features_1' if 'labels' in names else 'labels'}, should be {_WANTED}")
    if numbers != list(range(1, len(numbers) + 1)) or len(numbers) < 2:
        told = ", ".join(f"features_{n}" for n in numbers)
        raise DataError(f"has {told}, should be features_1, features_2 and so on, two or more and none left out")
    return ["labels", *(f"features_{n}" for n in numbers), *(name for name in _OPTIONAL if name in names)]


def _dataset(name: str, arrays: Arrays) -> Dataset:
    """The dataset of these arrays; `DataError` says what is wrong with them."""
    classes, labels = _labels(arrays)
    versions = [_version(f"features_{n}", arrays, len(labels)) for n in _numbers(list(arrays))]
    for n, one in enumerate(versions, start=1):
        if one.shape[1] != versions[0].shape[1]:
            raise DataError(
                f"features_{n} has {one.shape[1]} numbers a sample and features_1 has {versions[0].shape[1]}, "
                "should be as many"
            )
    tested, notes = _tested(arrays, classes, labels)
    who = _devices(arrays, len(labels))
    splits = [
        Split(versions[0][part], labels[part], None if who is None else who[part], tuple(v[part] for v in versions))
        for part in (~tested, tested)
    ]
    return Dataset(name, classes, *splits, notes=notes)


def _labels(arrays: Arrays) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    labels = one_each("labels", arrays["labels"])
    if not len(labels):
        raise DataError("labels are none, should be one for each sample")
    if "classes" not in arrays:
        names, index = np.unique(labels, return_inverse=True)
        return tuple(str(name) for name in names), index.astype(np.int64)
    if labels.dtype.kind not in "iu":
        raise DataError(
            f"classes are named and labels are {labels.dtype}, should have classes only where they are numbers"
        )
    names = arrays["classes"].ravel()
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= len(names):
        raise DataError(
            f"classes are {len(names)} names and labels go from {low} to {high}, should be a name for each label from 0"
        )
    return tuple(str(name) for name in names), labels.astype(np.int64)


def _version(name: str, arrays: Arrays, n: int) -> NDArray[np.float64]:
    found = arrays[name]
    if found.dtype.kind not in "fiu" or found.ndim != 2 or len(found) != n or found.shape[1] < 1:
        told = f"{found.dtype} of shape {found.shape}"
        raise DataError(f"{name} is {told}, should be numbers of shape ({n}, d), a row for each label")
    made = found.astype(np.float64)
    finite = np.isfinite(made).all(axis=1)
    if not finite.all():
        raise DataError(f"{name}: sample {int(np.argmin(finite))} is NaN or infinite, should be finite")
    return made


def _tested(
    arrays: Arrays, classes: Sequence[str], labels: NDArray[np.int64]
) -> tuple[NDArray[np.bool_], tuple[str, ...]]:
    if "test" not in arrays:
        otherwise = "an array test that says which samples are for the test"
        return last_fifths(labels, classes, otherwise), (f"split here: {SPLIT_HERE}",)
    said = arrays["test"].ravel()
    if said.shape != labels.shape or not np.isin(said, (0, 1)).all() or said.all() or not said.any():
        raise DataError(
            f"test is {said.dtype} of shape {said.shape}, should be True for some labels, not all, of shape "
            f"{labels.shape}"
        )
    tested = said.astype(bool)
    if strange := sorted(set(labels[tested].tolist()) - set(labels[~tested].tolist())):
        raise DataError(f"class {classes[strange[0]]!r} is in test but not in train, should be in both")
    return tested, ()


def _devices(arrays: Arrays, n: int) -> NDArray[np.str_] | None:
    name = next((word for word in DEVICES if word in arrays), None)
    if name is None:
        return None
    found = as_names(name, arrays[name])
    if found.shape != (n,):
        raise DataError(f"{name} is {arrays[name].dtype} of shape {arrays[name].shape}, should be {n} names or numbers")
    return found
