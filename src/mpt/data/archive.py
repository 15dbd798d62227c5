"""NumPy files: read without pickle, and written beside and then put in their place."""

import contextlib
import os
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from operator import getitem
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpt.data.errors import DataError
from mpt.data.request import DatasetSpec

BROKEN = (OSError, ValueError, EOFError, AttributeError, KeyError, TypeError, zipfile.BadZipFile, zlib.error)
"""What NumPy raises where a file is broken."""
_PICKLED = "Object arrays cannot be loaded"
"""How NumPy begins to say that an array would have to be unpickled."""


def read_npz(
    request: DatasetSpec, wanted: str, choose: Callable[[list[str]], Iterable[str]]
) -> dict[str, NDArray[Any]]:
    """The arrays that `choose` takes of those in the request's file; `wanted` says what it should be."""
    try:
        with request.path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            return {name: _array(name, partial(getitem, stored, name)) for name in choose(stored.files)}
    except DataError as error:
        raise request.error(str(error)) from None
    except BROKEN as error:
        raise request.error(f"cannot be read, should be {wanted}") from error


def read_folder(
    request: DatasetSpec, wanted: str, choose: Callable[[list[str]], Iterable[str]]
) -> dict[str, NDArray[Any]]:
    """The same of the .npy files in a folder."""
    try:
        files = {file.stem: file for file in sorted(request.path.glob("*.npy"))}
        return {name: _array(name, partial(np.load, files[name], allow_pickle=False)) for name in choose(list(files))}
    except DataError as error:
        raise request.error(str(error)) from None
    except BROKEN as error:
        raise request.error(f"cannot be read, should be {wanted}") from error


def names_in(path: Path) -> list[str]:
    """The names of the arrays in a .npz file or in a folder of .npy files; one of `BROKEN` where it is neither."""
    if path.is_dir():
        return sorted(file.stem for file in path.glob("*.npy"))
    with zipfile.ZipFile(path) as file:
        return [name.removesuffix(".npy") for name in file.namelist()]


def _array(name: str, read: Callable[[], Any]) -> NDArray[Any]:
    """An array; `DataError` where it would have to be unpickled."""
    try:
        found = read()
    except ValueError as error:
        if not str(error).startswith(_PICKLED):
            raise
        raise DataError(
            f"{name} holds Python objects, should be texts or numbers: save it with .astype(str), or .astype(float) if "
            "it is numbers"
        ) from None
    if not isinstance(found, np.ndarray):
        raise DataError(f"{name} is no array, should be one that NumPy wrote")
    return found


def write_arrays(target: Path, arrays: Mapping[str, NDArray[Any]], save: Callable[..., None]) -> Path:
    """Write arrays as NumPy's `save` does, beside `target`, and then put them in its place."""
    if target.is_dir():
        raise DataError(f"{target}: is a folder, should be a file in it, such as {target / 'data.npz'}")
    place = Path(os.path.realpath(target))
    beside = place.with_name(f".{place.name}.{os.getpid()}.partial")
    try:
        with beside.open("wb") as file:
            save(file, allow_pickle=False, **arrays)
        os.replace(beside, place)
    except OSError as error:
        raise DataError(
            f"{target}: cannot be written ({error.strerror}), should be a file in a folder that exists"
        ) from error
    finally:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
    return target
