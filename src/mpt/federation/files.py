"""Files that are whole or not there, whenever the process is killed."""

import os
from pathlib import Path


def write_atomically(path: Path, data: bytes) -> None:
    """Write beside `path`, to the disk, and then put in its place."""
    partial = path.with_name(f".{path.name}.partial")
    with partial.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)
