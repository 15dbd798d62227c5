"""What a spec should have been that is a path alone."""

import os
from pathlib import Path

from mpt.data.archive import BROKEN, names_in

_WORDS = {".npz": "npz", ".csv": "csv", ".tsv": "csv", ".parquet": "parquet"}


def path_meant(spec: str) -> str:
    """The spec that reads this path, by its ending and by what is there; empty where it looks like none."""
    head, mark, options = spec.partition("?")
    path = os.path.expanduser(head)
    suffix = os.path.splitext(head)[1].lower()
    if os.path.isdir(path) and head:
        word = "features" if _has_features(path) else "folder"
    elif suffix in _WORDS:
        word = "features" if suffix == ".npz" and _has_features(path) else _WORDS[suffix]
    else:
        return f"{head}:function" if suffix == ".py" and os.path.isfile(path) else ""
    if word == "parquet":
        head = head.removesuffix("-train.parquet").removesuffix("-test.parquet")
    return f"{word}:{head}{mark}{options}"


def _has_features(path: str) -> bool:
    try:
        return "features_1" in names_in(Path(path))
    except BROKEN:
        return False
