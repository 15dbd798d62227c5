"""Arrow tables in the Hugging Face layout: encoded images in a struct column, integer labels, names in the features."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpt.data.dataset import Dataset
from mpt.data.encoded import Encoded, decoded
from mpt.data.errors import DataError
from mpt.data.left_out import SPLIT_HERE, LeftOut, last_fifths
from mpt.data.plain import one_each
from mpt.data.request import DatasetSpec

_Features = Mapping[str, Mapping[str, Any]]
_IMAGE_NAMES = ("image", "img")
_LABEL_NAMES = ("label", "labels")


def from_tables(request: DatasetSpec, name: str, features: _Features, train: Any, test: Any = None) -> Dataset:
    """A dataset from one or two pyarrow tables.

    Args:
        request: what was asked for; its options `image` and `label` name columns.
        name: of the dataset.
        features: the Hugging Face features as a dict, `{"label": {"_type": "ClassLabel", "names": [...]}, ...}`; may
            be empty.
        train: a table with an image column (struct of bytes and path) and a label column (texts or numbers).
        test: likewise; None: the last fifth of every class in `train` is for the test.
    """
    tables = {"train": train} if test is None else {"train": train, "test": test}
    for which, table in tables.items():
        if table.num_rows == 0:
            raise request.error(f"no rows in {which}, should have at least one")
    image = _column(request, "image", features, train.column_names, "Image", _IMAGE_NAMES)
    label = _column(request, "label", features, train.column_names, "ClassLabel", _LABEL_NAMES)
    for column in (image, label):
        if not all(column in table.column_names for table in tables.values()):
            raise request.error(f"no column {column!r} in test, should be there as in train")
    values = {which: _labels(request, which, table, label) for which, table in tables.items()}
    names = features.get(label, {}).get("names")
    classes, labels = _with_names(request, names, values) if names else _with_values(request, values)
    images = [_images(request, which, table, image) for which, table in tables.items()]
    lots, left_out = list(zip(images, labels, strict=True)), LeftOut()
    if test is None:
        lots = _divided(request, classes, *lots[0])
        left_out.lack("split here", SPLIT_HERE)
    return decoded(request, name, classes, lots[0], lots[1], left_out)


def _divided(
    request: DatasetSpec, classes: Sequence[str], images: Sequence[Encoded], labels: NDArray[np.int64]
) -> list[tuple[list[Encoded], NDArray[np.int64]]]:
    """What is for training, and what is for the test."""
    try:
        tested = last_fifths(labels, classes, "rows for the test")
    except DataError as error:
        raise request.error(str(error)) from None
    return [([images[int(i)] for i in np.flatnonzero(part)], labels[part]) for part in (~tested, tested)]


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
    """(N,) texts or numbers."""
    try:
        return one_each(f"column {column!r} of {which}", table.column(column).to_pylist())
    except DataError as error:
        raise request.error(str(error)) from None


def _with_names(
    request: DatasetSpec, names: Sequence[str], values: Mapping[str, NDArray[Any]]
) -> tuple[list[str], list[NDArray[np.int64]]]:
    """Labels that are indices into `names`."""
    for which, mine in values.items():
        wrong = mine.dtype.kind not in "iu" or (mine < 0) | (mine >= len(names))
        if np.any(wrong):
            row = int(np.argmax(wrong))
            raise request.error(
                f"row {row} of {which} has label {mine[row]}, should be 0 to {len(names) - 1} "
                f"for the {len(names)} class names"
            )
    return list(names), [mine.astype(np.int64) for mine in values.values()]


def _with_values(request: DatasetSpec, values: Mapping[str, NDArray[Any]]) -> tuple[list[str], list[NDArray[np.int64]]]:
    """Labels without names: every value in the training rows is a class, in sorted order."""
    if len({mine.dtype.kind == "U" for mine in values.values()}) > 1:
        raise request.error("labels are numbers in one of train and test and text in the other, should be alike")
    known = np.unique(values["train"])
    for which, mine in values.items():
        if (strange := ~np.isin(mine, known)).any():
            row = int(np.argmax(strange))
            raise request.error(f"row {row} of {which} has label {mine[row]}, should be one of those in train")
    return [str(v) for v in known], [np.searchsorted(known, mine).astype(np.int64) for mine in values.values()]


def _images(request: DatasetSpec, which: str, table: Any, column: str) -> list[Encoded]:
    """The encoded images of a column of structs with `bytes` or `path`, or of plain binary.

    A row that has neither is a broken image. Paths are relative to the spec's folder; `datasets` has whole ones.
    """
    encoded = []
    for i, row in enumerate(table.column(column).to_pylist()):
        data, path = (row.get("bytes"), row.get("path")) if isinstance(row, dict) else (row, None)
        if not isinstance(data, bytes | None):
            raise request.error(
                f"row {i} of {which} has no image in column {column!r}, should be a struct with the bytes of a JPEG or "
                "PNG image"
            )
        source = request.path.parent / path if data is None and path else data or b""
        encoded.append(Encoded(source, f"row {i} of {which}"))
    return encoded
