"""Arrays of others, known by their names: samples, labels and devices of train and test, or of one lot to be split."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mpt.data.array_kinds import as_samples
from mpt.data.dataset import Dataset, Split
from mpt.data.errors import DataError
from mpt.data.left_out import SPLIT_HERE, last_fifths
from mpt.data.plain import one_each
from mpt.data.request import DatasetSpec
from mpt.data.resize import resized
from mpt.data.sample_kinds import as_names, kind_of

SPLIT = tuple(
    form.format(test).split()
    for form in ("x_train y_train x_{0} y_{0}", "train_images train_labels {0}_images {0}_labels")
    for test in ("test", "val", "valid", "validation")
)
"""Names of samples and labels of train and of test; the first that are all there are read. Capitals do not count."""
UNSPLIT = tuple(
    names.split()
    for names in ("images labels", "x y", "data labels", "data target", "x_train y_train", "train_images train_labels")
)
"""And in files without a split."""
DEVICES = ("vehicles", "subjects", "subject", "devices")
"""Names of the arrays that say who recorded each sample: of train as `subject_train` or `train_subject`."""


class Lot(NamedTuple):
    """The names of one lot's arrays in a file; `devices` is empty where nobody says who recorded them."""

    samples: str
    labels: str
    devices: str = ""


def lots_of(files: Sequence[str]) -> tuple[Lot, ...]:
    """Train and test, or one lot that is to be split; none where the names say nothing.

    Raises:
        DataError: some of the names that belong together are there, and others are not.
    """
    for wanted in SPLIT:
        if all(found := [_find(files, name) for name in wanted]):
            last = wanted[2].removeprefix("x_").removesuffix("_images")
            x, y, tested_x, tested_y = found
            return Lot(x, y, _devices(files, "train")), Lot(tested_x, tested_y, _devices(files, last))
    for wanted in SPLIT:
        there = [name for name in wanted if _find(files, name)]
        if len(there) > 1 and any(name in there for name in wanted[2:]):
            lacks = next(name for name in wanted if name not in there)
            raise DataError(f"has {', '.join(there)} but no {lacks}, should have {', '.join(wanted)}")
    for wanted in UNSPLIT:
        if all(found := [_find(files, name) for name in wanted]):
            lot = "train" if "train" in wanted[0] else ""
            return (Lot(found[0], found[1], _devices(files, lot) or _devices(files, "")),)
    return ()


def _find(files: Sequence[str], name: str) -> str:
    """The array of that name, or else with other capitals; empty where there is none."""
    return name if name in files else next((file for file in files if file.lower() == name), "")


def _devices(files: Sequence[str], lot: str) -> str:
    forms = [form for word in DEVICES for form in ((f"{word}_{lot}", f"{lot}_{word}") if lot else (word,))]
    return next((found for form in forms if (found := _find(files, form))), "")


def of_others(request: DatasetSpec, lots: Sequence[Lot], arrays: Mapping[str, NDArray[Any]], name: str) -> Dataset:
    """The dataset of these arrays; `DataError` says what is wrong with them."""
    labels = [one_each(lot.labels, arrays[lot.labels]) for lot in lots]
    samples, notes = as_samples(request, {lot.samples: arrays[lot.samples] for lot in lots})
    devices = [as_names(lot.devices, arrays[lot.devices]) if lot.devices else None for lot in lots]
    for some, mine, who in zip(samples, labels, devices, strict=True):
        if len(some) != len(mine):
            raise DataError(f"{len(some)} {kind_of(some)} and {len(mine)} labels, should be as many")
        if who is not None and len(who) != len(mine):
            raise DataError(f"{len(who)} devices and {len(mine)} labels, should be as many")
    classes, numbers = _numbered(lots, labels)
    if len(lots) == 1:
        tested = last_fifths(numbers[0], classes, "test samples of their own in x_test and y_test")
        samples, numbers = ([lot[0][~tested], lot[0][tested]] for lot in (samples, numbers))
        devices = [None if devices[0] is None else devices[0][part] for part in (~tested, tested)]
        notes = (f"split here: {SPLIT_HERE}", *notes)
    splits = [Split(*lot) for lot in zip(samples, numbers, devices, strict=True)]
    return resized(Dataset(name, classes, *splits, notes=notes), request.image_size)


def _numbered(lots: Sequence[Lot], labels: Sequence[NDArray[Any]]) -> tuple[tuple[str, ...], list[NDArray[np.int64]]]:
    """The classes of the training labels, and every label as the number of its class."""
    texts = [mine.dtype.kind == "U" for mine in labels]
    if len(set(texts)) > 1:
        told = " and ".join(f"{lot.labels} is {mine.dtype}" for lot, mine in zip(lots, labels, strict=True))
        raise DataError(f"{told}, should both be texts or both be numbers")
    classes = np.unique(labels[0])
    if strange := sorted(set(np.unique(labels[-1]).tolist()) - set(classes.tolist())):
        raise DataError(f"label {strange[0]!r} is in test but not in train, should be in both")
    return tuple(str(c) for c in classes), [np.searchsorted(classes, mine).astype(np.int64) for mine in labels]
