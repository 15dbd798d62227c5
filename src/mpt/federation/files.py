"""Files that are whole or not there, whenever the process is killed."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def write_atomically(path: Path, data: bytes) -> None:
    """Write beside `path`, to the disk, and then put in its place."""
    partial = path.with_name(f".{path.name}.partial")
    with partial.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)


class TakenError(OSError):
    """Another process holds the folder."""


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Inside, no other process is in here; the operating system ends that with the process, however it ends.

    Raises:
        TakenError: another one is.
        OSError: the folder cannot be locked, on some network file systems.
    """
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise TakenError(error.errno, error.strerror, str(folder)) from None
        yield
    finally:
        os.close(handle)
