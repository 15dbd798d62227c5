"""`npz:PATH`: images, series or vectors in one NumPy file, for machines that have neither pyarrow nor Pillow."""

import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpt.data.dataset import SPLITS, Dataset, Split
from mpt.data.errors import DataError
from mpt.data.left_out import SPLIT_HERE, last_fifths
from mpt.data.request import DatasetSpec
from mpt.data.resize import resized
from mpt.data.sample_kinds import as_names, kind_of

VERSION = 1
_FIELDS = ("version", "name", "classes", "train_images", "train_labels", "test_images", "test_labels")
_OPTIONAL = ("train_vehicles", "test_vehicles", "notes")
OTHERS = tuple(
    names.split()
    for names in (
        "x_train y_train x_test y_test",
        "x_train y_train x_val y_val",
        "train_images train_labels test_images test_labels",
        "train_images train_labels val_images val_labels",
    )
)
"""Names of arrays that others write: images and labels of train and of test; the first that are all there are read."""
UNSPLIT = (("images", "labels"), ("x", "y"), ("X", "y"), ("data", "labels"), ("data", "target"))
"""And in files without a split."""
BROKEN = (OSError, ValueError, EOFError, AttributeError, KeyError, TypeError, zipfile.BadZipFile, zlib.error)
"""What NumPy raises where a file is broken."""
DEVICES = ("vehicles", "subjects", "subject", "devices")
"""Names of the arrays that say who recorded each sample: of train as `subject_train` or `train_subject`."""


def save_npz(dataset: Dataset, path: str | Path) -> Path:
    """Write `dataset` to `path`, compressed; `load("npz:PATH")` reads it, on any machine with NumPy."""
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


def write_arrays(target: Path, arrays: Mapping[str, NDArray[Any]], save: Callable[..., None]) -> Path:
    """Write arrays as NumPy's `save` does."""
    try:
        with target.open("wb") as file:
            save(file, allow_pickle=False, **arrays)
    except OSError as error:
        raise DataError(
            f"{target}: cannot be written ({error.strerror}), should be a file in a folder that exists"
        ) from error
    return target


def load_npz(request: DatasetSpec) -> Dataset:
    """What `save_npz` wrote, or arrays by the names that others use: `OTHERS` and `UNSPLIT`."""
    path = request.path
    if not path.is_file():
        raise request.error(f"no file {path}, should be one that mpt.data.save_npz wrote")
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            if "version" not in stored and (names := _known(stored.files)):
                return _of_others(request, [stored[name] for name in names], _devices(stored, names), path.stem)
            missing = [f for f in _FIELDS if f not in stored]
            fields = {} if missing else {f: stored[f] for f in (*_FIELDS, *_OPTIONAL) if f in stored}
    except DataError:
        raise
    except BROKEN as error:
        raise request.error("cannot be read, should be a whole file that mpt.data.save_npz wrote") from error
    if missing:
        raise request.error(
            f"has no {missing[0]}, should be a file that mpt.data.save_npz wrote, or have x_train, y_train, x_test and "
            "y_test, or images and labels"
        )
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


def _known(files: Sequence[str]) -> Sequence[str]:
    """The arrays to read, train before test; none where the names say nothing."""
    return next((names for names in (*OTHERS, *UNSPLIT) if set(names) <= set(files)), ())


def _devices(stored: Any, names: Sequence[str]) -> list[NDArray[np.str_] | None]:
    """Who recorded the samples of each lot; None where no array says so."""
    lots = ("",) if len(names) == 2 else ("train", "val" if any("val" in name for name in names) else "test")
    found = list[NDArray[np.str_] | None]()
    for lot in lots:
        forms = [name for word in DEVICES for name in ((f"{word}_{lot}", f"{lot}_{word}") if lot else (word,))]
        name = next((one for one in forms if one in stored.files), None)
        found.append(None if name is None else as_names(stored[name]))
    return found


def _of_others(
    request: DatasetSpec, arrays: Sequence[NDArray[Any]], devices: Sequence[NDArray[np.str_] | None], name: str
) -> Dataset:
    """Samples, labels and devices of train and test, or of one lot, which is split."""
    images = [_upright(request, one) for one in arrays[::2]]
    labels = [one.ravel() for one in arrays[1::2]]
    for some, mine, who in zip(images, labels, devices, strict=True):
        if len(some) != len(mine):
            raise request.error(f"{len(some)} {kind_of(some)} and {len(mine)} labels, should be as many")
        if who is not None and len(who) != len(mine):
            raise request.error(f"{len(who)} devices and {len(mine)} labels, should be as many")
    notes = (f"split here: {SPLIT_HERE}",) if len(images) == 1 else ()
    if len(images) == 1:
        tested = last_fifths(labels[0])
        images, labels = ([lot[0][~tested], lot[0][tested]] for lot in (images, labels))
        devices = [None if devices[0] is None else devices[0][part] for part in (~tested, tested)]
    classes = np.unique(labels[0])
    if strange := sorted(set(np.unique(labels[1]).tolist()) - set(classes.tolist())):
        raise request.error(f"label {strange[0]!r} is in test but not in train, should be in both")
    try:
        splits = [
            Split(some, np.searchsorted(classes, mine), who)
            for some, mine, who in zip(images, labels, devices, strict=True)
        ]
        return resized(Dataset(name, tuple(str(c) for c in classes), *splits, notes=notes), request.image_size)
    except DataError as error:
        raise request.error(str(error)) from None


def _upright(request: DatasetSpec, images: NDArray[Any]) -> NDArray[Any]:
    """(N, H, W), (N, C, H, W) or (N, H, W, C) -> (N, H, W, C); real numbers (N, d) and (N, channels, length) stay."""
    if images.dtype.kind == "f" and images.ndim in (2, 3):
        return images
    if images.ndim == 3:
        return images[..., None]
    if images.ndim != 4:
        raise request.error(
            f"images of shape {images.shape}, should be (N, H, W), (N, H, W, C) or (N, C, H, W), or real numbers of "
            "shape (N, d) or (N, channels, length)"
        )
    first = images.shape[1] in (1, 3) and images.shape[3] not in (1, 3)
    return np.ascontiguousarray(images.transpose(0, 2, 3, 1)) if first else images
