"""Files that are whole or not there, whenever the process is killed."""

import fcntl
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path


def write_atomically(path: Path, data: bytes, *, private: bool = False, several: bool = False) -> None:
    """Write beside `path`, to the disk, and then put in its place.

    Args:
        path: the file.
        data: its content.
        private: for its owner's eyes only.
        several: processes may write it at the same time; else what one leaves that is killed, the next writes over.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial" if several else f".{path.name}.partial")
    if private:
        partial.unlink(missing_ok=True)
    try:
        with open(partial, "wb", opener=owners if private else None) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise


def owners(path: str, flags: int) -> int:
    """An `opener` for `open`: a file that is made is for its owner's eyes only."""
    return os.open(path, flags, 0o600)


def private_folder(path: Path) -> None:
    """Make a folder for its owner's eyes only; one that is there stays as it is."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)


def remove_files(folder: Path, files: Iterable[Path]) -> None:
    """Remove these, and the folder where nothing else is in it."""
    for file in files:
        file.unlink(missing_ok=True)
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


class LockedError(OSError):
    """Another process holds the folder."""


@contextmanager
def exclusive_lock(folder: Path) -> Iterator[None]:
    """Inside, no other process is in here; the operating system ends that with the process, however it ends.

    Raises:
        LockedError: another one is.
        OSError: the folder cannot be locked, on some network file systems.
    """
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise LockedError(error.errno, error.strerror, str(folder)) from None
        yield
    finally:
        os.close(handle)


@contextmanager
def importable(*folders: Path) -> Iterator[None]:
    """Inside, modules are looked for in these folders first, and then in the current one.

    Afterwards the entries that it has added are gone, and only these: another thread may have added its own.
    """
    added = [_Entry(folder) for folder in (*folders, os.getcwd())]
    sys.path[:0] = added
    try:
        yield
    finally:
        sys.path[:] = [entry for entry in sys.path if not any(entry is mine for mine in added)]


class _Entry(str):
    """An entry of `sys.path` that is known by what it is, not by what it says: the same folder may be there twice."""

    __slots__ = ()
