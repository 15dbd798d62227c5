"""Datasets that take long to read, kept as `.npz` files in a folder of the user's."""

import hashlib
import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from mpt.data.dataset import Dataset
from mpt.data.errors import DataError
from mpt.data.npz import load_npz, save_npz
from mpt.data.request import DatasetSpec


def cache_folder() -> Path:
    """`$MPT_CACHE`, else mpt/ in `$XDG_CACHE_HOME`, else `~/.cache/mpt`."""
    own, shared = os.environ.get("MPT_CACHE"), os.environ.get("XDG_CACHE_HOME")
    return Path(own).expanduser() if own else Path(shared or "~/.cache").expanduser() / "mpt"


def cached(name: str, determined_by: Iterable[str], read: Callable[[], Dataset]) -> Dataset:
    """What `read` gives, from the file that an earlier call with the same `determined_by` has left, if that is whole.

    A folder that cannot be written to is noted and does no harm.
    """
    digest = hashlib.sha256()
    for part in determined_by:
        digest.update(f"{len(part.encode())}:".encode() + part.encode())
    path = cache_folder() / f"{name}-{digest.hexdigest()[:24]}.npz"
    try:
        return load_npz(DatasetSpec(f"npz:{path}", str(path)))
    except DataError:
        pass  # not there, or not whole: made anew
    dataset = read()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        save_npz(dataset, path)
    except (OSError, DataError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        return replace(dataset, notes=(*dataset.notes, f"not kept in {path.parent} for the next time ({reason})"))
    return dataset


def stamp(path: str | Path) -> str:
    """Size and time of the last change of a file, as text; empty where there is none."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return ""
    return f"{found.st_size}:{found.st_mtime_ns}"
