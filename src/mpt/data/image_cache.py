"""A vehicle's samples, decoded once and kept in one file for the processes that come after.

    magic      8 bytes    b"MPTKEPT" and a zero byte
    known by   32 bytes   SHA-256 of all that the samples depend on, see `known_by`
    checksum   32 bytes   SHA-256 of the body
    body                  uint64, the description's length; the description: name, classes, notes, the images' shape,
                          the width of the vehicles' names or null, as JSON; labels int64, vehicles UTF-32, images uint8

Little-endian, no pickle. A body is parsed only where both digests are right. Its arrays are views of the bytes that
were read, so that no number in it says how much memory is taken.
"""

import hashlib
import json
import logging
import math
import os
import stat
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpt.data.dataset import LocalData, Split
from mpt.data.errors import DataError
from mpt.data.folder import SUFFIXES, TRAINS, called
from mpt.data.parquet import candidates
from mpt.data.registry import load_local
from mpt.data.request import DatasetSpec, split_options
from mpt.version import __version__

VERSION = 3
"""Of this layout and of what `load_local` makes of a file; to be raised with either."""
_MAGIC = b"MPTKEPT\0"
_LENGTH = struct.Struct("<Q")
_LOG = logging.getLogger("mpt")


def load_local_cached(
    spec: str,
    *,
    path: Path,
    image_size: int | None = None,
    per_class: int | None = None,
    say: Callable[[str], None] = _LOG.warning,
) -> LocalData:
    """What `load_local` gives, from the file at `path` where an earlier call has left it there and it still holds.

    It holds as long as it is whole and what it is `known_by` is the same. Otherwise the samples are loaded anew and the
    file is replaced; it is for its owner's eyes only. Where it cannot be written, a note says so. Sets that are not in
    `FILES` are loaded as always and not kept.

    Not noticed is a source file that was replaced by another one with the same size and the same times. An image that
    could not be read for a passing reason (a failing disk, no memory left) stays left out until some file changes.
    """
    known = known_by(spec, image_size, per_class)
    if known is None:
        return load_local(spec, image_size=image_size, per_class=per_class, say=say)
    kept = _read(path, known)
    if kept is not None:
        for note in kept.notes:
            say(f"{spec}: {note}")
        return kept
    held = load_local(spec, image_size=image_size, per_class=per_class, say=say)
    try:
        _write(path, known, held)
    except OSError as error:
        note = f"not kept in {path.parent} for the next time ({error.strerror or error})"
        say(f"{spec}: {note}")
        return replace(held, notes=(*held.notes, note))
    return held


def known_by(spec: str, image_size: int | None = None, per_class: int | None = None) -> bytes | None:
    """A digest of all that `load_local` depends on, files' sizes and times among it; None where that cannot be told.

    The time of the last change of a file's status is one of them: it tells of new permissions, and cannot be set back.
    """
    word = str(spec).partition(":")[0]
    if word not in FILES:
        return None
    head, options = split_options(spec)
    request = DatasetSpec(spec, head.partition(":")[2], options)
    try:
        place = os.path.realpath(request.path)
        files = sorted((file, _stamp(file)) for file in FILES[word](request))
    except (OSError, ValueError):
        return None
    everything = (VERSION, __version__, _pillow(), spec, image_size, per_class, place, files)
    return hashlib.sha256(repr(everything).encode()).digest()


def _folder_files(request: DatasetSpec) -> list[str]:
    """The class folders in train/, which are said where they are empty, and the images in them."""
    with os.scandir(next(iter(called(request.path, TRAINS)), request.path / "train")) as entries:
        classes = [entry.path for entry in entries if entry.is_dir() and not entry.name.startswith(".")]
    return classes + [
        os.path.join(folder, name)
        for top in classes
        for folder, folders, names in os.walk(top)
        for name in (*folders, *names)
        if name.lower().endswith(SUFFIXES) and not name.startswith(".")
    ]


def _parquet_files(request: DatasetSpec) -> list[str]:
    return [str(path) for path in candidates(request)]


def _npz_files(request: DatasetSpec) -> list[str]:
    return [str(request.path)]


FILES: dict[str, Callable[[DatasetSpec], Iterable[str]]] = {
    "folder": _folder_files,
    "parquet": _parquet_files,
    "npz": _npz_files,
}
"""By the first word of a spec, the files that `load_local` reads; `nuimages` and `car1000` have caches of their own."""


def _stamp(path: str) -> tuple[int, ...]:
    """Size and times of a file; nothing of a folder but that it is there, and of what is not there."""
    try:
        found = os.stat(path)
    except OSError:
        return ()
    if stat.S_ISDIR(found.st_mode):
        return (0,)
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _pillow() -> str:
    """Pillow's version; empty where it is not installed."""
    try:
        import PIL
    except ImportError:
        return ""
    return str(PIL.__version__)


def _read(path: Path, known: bytes) -> LocalData | None:
    """What the file holds if it is known by that and whole."""
    try:
        if not path.is_file():
            return None
        with path.open("rb") as file:
            if file.read(len(_MAGIC + known)) != _MAGIC + known:
                return None
            checksum, body = file.read(hashlib.sha256().digest_size), file.read()
        return _holding(body) if hashlib.sha256(body).digest() == checksum else None
    except (OSError, ValueError, LookupError, TypeError, OverflowError, RecursionError, struct.error):
        return None


def _holding(body: bytes) -> LocalData:
    (length,) = _LENGTH.unpack_from(body)
    start = _LENGTH.size + length
    described: Mapping[str, Any] = json.loads(body[_LENGTH.size : start])
    shape, width = described["images"], described["vehicles"]

    def array(dtype: str, *shape: int) -> NDArray[Any]:
        nonlocal start
        taken = np.frombuffer(body, dtype, math.prod(shape), start).reshape(shape)
        start += taken.nbytes
        return taken

    labels = array("<i8", shape[0])
    vehicles = None if width is None else array(f"<U{width}", shape[0])
    split = Split(array("|u1", *shape), labels, vehicles)
    classes = tuple(described["classes"])
    if start != len(body) or split.labels.max() >= len(classes):
        raise DataError("body: not what its description says, should be as it was written")
    return LocalData(described["name"], classes, split, tuple(described["notes"]))


def _body(held: LocalData) -> list[bytes | memoryview]:
    split = held.train
    vehicles = None if split.vehicles is None else split.vehicles.astype(split.vehicles.dtype.newbyteorder("<"))
    description = json.dumps(
        {
            "name": held.name,
            "classes": held.classes,
            "notes": held.notes,
            "images": split.images.shape,
            "vehicles": None if vehicles is None else vehicles.dtype.itemsize // 4,
        }
    ).encode()
    labels = split.labels.astype("<i8").tobytes()
    names = b"" if vehicles is None else vehicles.tobytes()
    return [_LENGTH.pack(len(description)), description, labels, names, split.images.data]


def _write(path: Path, known: bytes, held: LocalData) -> None:
    """Write beside `path` and then put in its place; where another process does that just now, leave it to it.

    What a process that was killed has left there is written over. Nothing waits for the disk: a file that is not whole
    after a loss of power is found out when it is read.
    """
    import fcntl  # not on Windows, where the rest of mpt.data works

    body, checksum = _body(held), hashlib.sha256()
    for part in body:
        checksum.update(part)
    partial = path.with_name(f".{path.name}.partial")
    with open(partial, "ab", opener=_owners) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        if not _is_at(file.fileno(), partial):
            return
        try:
            os.fchmod(file.fileno(), 0o600)
            file.truncate(0)
            file.writelines([_MAGIC, known, checksum.digest(), *body])
            file.flush()
            os.replace(partial, path)
        except OSError:
            partial.unlink(missing_ok=True)
            raise


def _owners(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


def _is_at(number: int, path: Path) -> bool:
    """Whether the open file is still there: another process may have put it in its place since it was opened."""
    try:
        return os.path.samestat(os.fstat(number), os.stat(path))
    except FileNotFoundError:
        return False
