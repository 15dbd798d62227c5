"""`csv:PATH`: a table with a row for every image: its path, its label and, where there is a column, its split."""

import csv
import io
import os
from collections.abc import Sequence

import numpy as np

from mpt.data.dataset import Dataset
from mpt.data.encoded import Encoded, decoded
from mpt.data.folder import TESTS, TRAINS
from mpt.data.left_out import SPLIT_HERE, LeftOut, alone, last_fifth
from mpt.data.request import DatasetSpec

COLUMNS = {
    "image": ("image", "path", "file", "filename"),
    "label": ("label", "class"),
    "split": ("split", "part"),
}
"""What columns may be called; options of these names name others."""
SEPARATORS = ",;\t|"
"""What may stand between columns: the one that the header has most of, a comma where there is none."""
LEAST = 2

Row = dict[str, str]
Rows = list[tuple[int, Row]]
"""With the line of each."""


def load_csv(request: DatasetSpec) -> Dataset:
    """Paths are relative to the file's folder. Where no row is for the test, the last fifth of a class is."""
    path, left_out = request.file("a CSV file with a row for every image"), LeftOut()
    columns, rows = _table(request)
    image, label, split = (_column(request, columns, option) for option in COLUMNS)
    if not rows:
        raise request.error(f"has the columns {', '.join(columns)} and no row, should have a row for every image")
    for number, row in rows:
        if not row[image] or not row[label]:
            raise request.error(f"line {number} has no {image if not row[image] else label}, should have both")
    rows = _once(request, rows, image, label, left_out)
    tested = [bool(split) and _tests(request, number, row[split]) for number, row in rows]
    parts: dict[str, tuple[list[str], list[str]]] = {}
    for (_, row), part in zip(rows, tested, strict=True):
        parts.setdefault(row[label], ([], []))[part].append(row[image])
    if len(parts) < LEAST:
        raise request.error(f"all rows are of class {next(iter(parts))!r}, should have at least {LEAST} classes")
    if not any(tested):
        left_out.lack("split here", SPLIT_HERE)
    for name, (train, test) in parts.items():
        if not any(tested):
            if len(train) < 2:
                raise request.error(alone(f"class {name!r}", "image", "a column split"))
            test.extend(train[-last_fifth(len(train)) :])
            del train[-len(test) :]
        if not train or not test:
            raise request.error(f"class {name!r} has no image for {'test' if train else 'train'}, should have one")
    if not any(os.path.exists(path.parent / row[image]) for _, row in rows):
        first = rows[0][1][image]
        raise request.error(f"no file {first} in {path.parent}, nor any other, paths should be relative to it")
    classes, lots = sorted(parts), []
    for which in range(2):
        files = [parts[name][which] for name in classes]
        labels = np.repeat(np.arange(len(classes)), [len(f) for f in files])
        lots.append(([Encoded(path.parent / file, file) for group in files for file in group], labels))
    return decoded(request, path.stem, classes, lots[0], lots[1], left_out)


def _once(request: DatasetSpec, rows: Rows, image: str, label: str, left_out: LeftOut) -> Rows:
    """The first row of every image: one that is there twice would be trained on and tested on."""
    first: dict[str, tuple[int, Row]] = {}
    for number, row in rows:
        before, known = first.setdefault(os.path.normpath(row[image]), (number, row))
        if known[label] != row[label]:
            told = f"line {number} has {row[image]} as {row[label]}, line {before} as {known[label]}"
            raise request.error(f"{told}, should be of one class")
        if before != number:
            left_out.add("images that are there twice", row[image])
    return list(first.values())


def _table(request: DatasetSpec) -> tuple[list[str], Rows]:
    """The columns, and every row with its line; white space around names and values does not count."""
    try:
        with request.path.open(newline="", encoding="utf-8-sig") as file:
            text = file.read()
        head = next((line for line in text.splitlines() if line.strip()), "")
        separator = max(SEPARATORS, key=head.count)
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, skipinitialspace=True)
        lines = [(reader.line_num, [cell.strip() for cell in cells]) for cells in reader if any(map(str.strip, cells))]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise request.error(f"cannot be read ({error}), should be a CSV file in UTF-8") from None
    if not lines:
        raise request.error("is empty, should begin with a header such as image,label and have a row for every image")
    columns = lines[0][1]
    if twice := next((name for name in columns if name and columns.count(name) > 1), ""):
        raise request.error(f"has {columns.count(twice)} columns {twice}, should have one of each name")
    return columns, [
        (number, dict(zip(columns, [*cells, *[""] * len(columns)], strict=False))) for number, cells in lines[1:]
    ]


def _column(request: DatasetSpec, columns: Sequence[str], option: str) -> str:
    """Its name; empty where there is no split and none was asked for. Capitals count where names differ by them."""
    wanted = [request.options[option]] if option in request.options else list(COLUMNS[option])
    lower = {name.lower(): name for name in columns}
    found = next((there for name in wanted if (there := name if name in columns else lower.get(name.lower(), ""))), "")
    if found or (option == "split" and option not in request.options):
        return found
    if any(name and os.path.isfile(request.path.parent / name) for name in columns):
        raise request.error(f"begins with {', '.join(columns)}, should begin with a header such as image,label")
    told = f"no column {' or '.join(wanted)}, should be one of {', '.join(columns)}"
    if option in request.options:
        raise request.error(f"{told}, named by ?{option}=")
    taken = {*request.options.values(), *(name for other in COLUMNS if other != option for name in COLUMNS[other])}
    free = next((name for name in columns if name and name not in taken), "")
    if not free:
        raise request.error(f"no column {' or '.join(wanted)} beside {', '.join(columns)}, should have one")
    raise request.error(f"{told}; add {'&' if request.options else '?'}{option}={free}")


def _tests(request: DatasetSpec, number: int, text: str) -> bool:
    """Whether a row is for the test."""
    word = text.lower()
    if word not in (*TRAINS, *TESTS):
        raise request.error(f"line {number} has split {text!r}, should be train or one of {', '.join(TESTS)}")
    return word in TESTS
