"""Arrow tables in the Hugging Face layout: encoded images in a struct column, integer labels, names in the features."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpt.data.dataset import Dataset
from mpt.data.encoded import Encoded, decoded
from mpt.data.request import DatasetSpec

_Features = Mapping[str, Mapping[str, Any]]
_IMAGE_NAMES = ("image", "img")
_LABEL_NAMES = ("label", "labels")


def from_tables(request: DatasetSpec, name: str, features: _Features, train: Any, test: Any) -> Dataset:
    """A dataset from two pyarrow tables.

    Args:
        request: what was asked for; its options `image` and `label` name columns.
        name: of the dataset.
        features: the Hugging Face features as a dict, `{"label": {"_type": "ClassLabel", "names": [...]}, ...}`; may
            be empty.
        train: a table with an image column (struct of bytes and path) and a label column (integers or text).
        test: likewise.
    """
    for which, table in (("train", train), ("test", test)):
        if table.num_rows == 0:
            raise request.error(f"no rows in {which}, should have at least one")
    image = _column(request, "image", features, train.column_names, "Image", _IMAGE_NAMES)
    label = _column(request, "label", features, train.column_names, "ClassLabel", _LABEL_NAMES)
    for column in (image, label):
        if column not in test.column_names:
            raise request.error(f"no column {column!r} in test, should be there as in train")
    values = [_labels(request, which, table, label) for which, table in (("train", train), ("test", test))]
    names = features.get(label, {}).get("names")
    classes, labels = _with_names(request, names, *values) if names else _with_values(request, *values)
    images = [_images(request, which, table, image) for which, table in (("train", train), ("test", test))]
    return decoded(request, name, classes, (images[0], labels[0]), (images[1], labels[1]))


def _column(
    request: DatasetSpec, role: str, features: _Features, columns: Sequence[str], kind: str, usual: Sequence[str]
) -> str:
    """The column asked for by option, else a usual name, else the only one of that kind of feature."""
    there = ", ".join(columns)
    if role in request.options:
        column: str = request.options[role]
        if column not in columns:
            raise request.error(f"no column {column!r}, should be one of {there}")
        return column
    of_kind = [c for c in columns if features.get(c, {}).get("_type") == kind]
    for column in (*usual, *(of_kind if len(of_kind) == 1 else ())):
        if column in columns:
            return column
    raise request.error(f"no column {usual[0]!r}, should be there or be named by ?{role}= as one of {there}")


def _labels(request: DatasetSpec, which: str, table: Any, column: str) -> NDArray[Any]:
    """(N,) integers or texts."""
    kind = str(table.schema.field(column).type)
    if not kind.startswith(("int", "uint", "string", "large_string")):
        raise request.error(f"column {column!r} is {kind} in {which}, should be integers or text")
    if table.column(column).null_count:
        raise request.error(f"column {column!r} has rows without a value in {which}, should have a label in every row")
    return np.array(table.column(column).to_pylist())


def _with_names(
    request: DatasetSpec, names: Sequence[str], train: NDArray[Any], test: NDArray[Any]
) -> tuple[list[str], list[NDArray[np.int64]]]:
    """Labels that are indices into `names`."""
    for which, values in (("train", train), ("test", test)):
        wrong = values.dtype.kind not in "iu" or (values < 0) | (values >= len(names))
        if np.any(wrong):
            row = int(np.argmax(wrong))
            raise request.error(
                f"row {row} of {which} has label {values[row]}, should be 0 to {len(names) - 1} "
                f"for the {len(names)} class names"
            )
    return list(names), [train.astype(np.int64), test.astype(np.int64)]


def _with_values(
    request: DatasetSpec, train: NDArray[Any], test: NDArray[Any]
) -> tuple[list[str], list[NDArray[np.int64]]]:
    """Labels without names: every value in the training rows is a class, in sorted order."""
    if train.dtype.kind != test.dtype.kind:
        raise request.error("labels are numbers in one of train and test and text in the other, should be alike")
    values = np.unique(train)
    strange = ~np.isin(test, values)
    if strange.any():
        row = int(np.argmax(strange))
        raise request.error(f"row {row} of test has label {test[row]}, should be one of those in train")
    return [str(v) for v in values], [np.searchsorted(values, labels).astype(np.int64) for labels in (train, test)]


def _images(request: DatasetSpec, which: str, table: Any, column: str) -> list[Encoded]:
    """The encoded images of a column of structs with `bytes`, or of plain binary."""
    rows = table.column(column).to_pylist()
    encoded = []
    for i, row in enumerate(rows):
        data = row.get("bytes") if isinstance(row, dict) else row
        if not isinstance(data, bytes):
            raise request.error(
                f"row {i} of {which} has no image bytes in column {column!r}, should be a struct with the bytes of a "
                "JPEG or PNG image"
            )
        encoded.append(Encoded(data, f"row {i} of {which}"))
    return encoded
