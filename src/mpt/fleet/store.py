"""Where the server's state is kept between rounds: a folder or an SQLite file, behind one small interface.

A checkpoint is a round and some named bytes (the tracker, the model, ...), written whole or not at all, and read back
only where its checksum fits; else the one before is taken. Where there are some and none can be read, that is an error:
nobody begins anew over them unasked.

    magic   "MPT store 1\\n"
    digest  32 bytes, SHA-256 of all that follows
    header  uint64 length, JSON: {"round": ..., "time": ..., "parts": [[name, size], ...]}
    parts   one after the other
"""

import fnmatch
import hashlib
import json
import os
import sqlite3
import struct
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from mpt.base.files import private_folder, write_atomically
from mpt.tracking.errors import FleetError

_MAGIC = b"MPT store 1\n"
_LENGTH = struct.Struct("<Q")
_KEPT = 3
_TABLE = "CREATE TABLE IF NOT EXISTS checkpoints (round INTEGER PRIMARY KEY, data BLOB NOT NULL)"
_SQLITE = b"SQLite format 3\x00"
_REMEDY = "restore it from a backup, or give another place to begin anew"

Say = Callable[[str], None]


TRACKER = "tracker"
"""The part of a payload in which `mpt fleet status` looks for `Tracker.to_bytes()`."""
SCORES = "scores"
"""The part that has accuracy and F1 of the last round, as JSON, where the server has test samples."""


def _to_stderr(sentence: str) -> None:
    print(f"mpt: {sentence}", file=sys.stderr)


class StoreError(FleetError):
    """A checkpoint cannot be written or read; the message says where and why."""


@dataclass(frozen=True)
class Checkpoint:
    """What a server resumes from.

    Attributes:
        round: the last round that was finished.
        payload: bytes by name.
        time: when it was saved, in seconds since 1970; None where the store did not write that yet.
    """

    round: int
    payload: Mapping[str, bytes]
    time: float | None = field(default=None, compare=False)


class Store(Protocol):
    """Keeps the last checkpoints."""

    def save(self, round: int, payload: Mapping[str, bytes]) -> None:
        """Keep a checkpoint, whole or not at all; those that are too old, or later and damaged, are removed.

        Raises:
            StoreError: a later one is whole, or none of those that are there.
        """
        ...

    def latest(self) -> Checkpoint | None:
        """The last one that is whole; None where there is no checkpoint.

        Raises:
            StoreError: there are some, and none can be read.
        """
        ...


def encode(checkpoint: Checkpoint) -> bytes:
    """A checkpoint as bytes."""
    parts = sorted(checkpoint.payload.items())
    about = {"round": checkpoint.round, "time": checkpoint.time, "parts": [[name, len(data)] for name, data in parts]}
    header = json.dumps(about).encode()
    content = b"".join([_LENGTH.pack(len(header)), header, *(data for _, data in parts)])
    return _MAGIC + hashlib.sha256(content).digest() + content


def decode(data: bytes) -> Checkpoint:
    """What `encode` was given; `StoreError` where the bytes are not as they were written."""
    start = len(_MAGIC) + hashlib.sha256().digest_size
    if not data.startswith(_MAGIC):
        raise StoreError("it does not begin as a checkpoint of this release")
    content = memoryview(data)[start:]
    if hashlib.sha256(content).digest() != data[len(_MAGIC) : start]:
        raise StoreError("it is not as it was written")
    (size,) = _LENGTH.unpack_from(content)
    at = _LENGTH.size + size
    header = json.loads(bytes(content[_LENGTH.size : at]))
    payload = {}
    for name, length in header["parts"]:
        payload[name] = bytes(content[at : at + length])
        at += length
    return Checkpoint(header["round"], payload, header.get("time"))


@dataclass(frozen=True)
class FileStore:
    """One file a round in a folder, made where it is missing; what is made is for its owner's eyes only.

    Attributes:
        folder: the folder.
        keep: how many checkpoints are kept.
        say: takes a sentence about every one that is damaged.
    """

    folder: Path
    keep: int = _KEPT
    say: Say = _to_stderr

    def __post_init__(self) -> None:
        object.__setattr__(self, "folder", Path(self.folder))
        _check_keep(self.keep)

    def save(self, round: int, payload: Mapping[str, bytes]) -> None:
        """Write beside, to the disk, then in place."""
        name = f"{_number(round):09d}.checkpoint"
        try:
            private_folder(self.folder)
            later = [path for path in self._files() if path.name > name]
            if later:
                refuse_if_ahead(self, round)
            write_atomically(self.folder / name, encode(Checkpoint(round, payload, time.time())), private=True)
            _to_disk(self.folder)
            for damaged in later:
                damaged.unlink(missing_ok=True)
            for old in self._files()[: -self.keep]:
                old.unlink(missing_ok=True)
        except OSError as error:
            raise StoreError(f"store: {error.filename or self.folder} cannot be written ({error.strerror})") from error

    def latest(self) -> Checkpoint | None:
        """From the newest file that is whole."""
        try:
            files = self._files()
        except OSError as error:
            raise StoreError(f"store: {self.folder} cannot be read ({error.strerror})") from error
        return _first_whole(((str(p), p.read_bytes) for p in reversed(files)), self.say)

    def _files(self) -> list[Path]:
        try:
            return [self.folder / name for name in sorted(fnmatch.filter(os.listdir(self.folder), "[0-9]*.checkpoint"))]
        except FileNotFoundError:
            return []


@dataclass(frozen=True)
class SqliteStore:
    """One row a round in an SQLite file, made where it is missing, for its owner's eyes only.

    Attributes:
        path: the file.
        keep: how many checkpoints are kept.
        say: takes a sentence about every one that is damaged.
    """

    path: Path
    keep: int = _KEPT
    say: Say = _to_stderr

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", Path(self.path))
        _check_keep(self.keep)

    def save(self, round: int, payload: Mapping[str, bytes]) -> None:
        """Insert, remove the old ones, and commit, in one transaction."""
        data = encode(Checkpoint(_number(round), payload, time.time()))
        try:
            private_folder(self.path.parent)
            if not self.path.exists():
                write_atomically(self.path, _fresh_database(), private=True)
            with closing(sqlite3.connect(self.path)) as database, database:
                database.execute("PRAGMA synchronous = FULL")
                database.execute(_TABLE)
                if database.execute("SELECT 1 FROM checkpoints WHERE round > ?", (round,)).fetchone():
                    refuse_if_ahead(self, round)
                database.execute("INSERT OR REPLACE INTO checkpoints VALUES (?, ?)", (round, data))
                database.execute("DELETE FROM checkpoints WHERE round > ?", (round,))
                kept = "SELECT round FROM checkpoints ORDER BY round DESC LIMIT ?"
                database.execute(f"DELETE FROM checkpoints WHERE round NOT IN ({kept})", (self.keep,))
        except (sqlite3.Error, OSError) as error:
            raise StoreError(f"store: {self.path} cannot be written ({error})") from error

    def latest(self) -> Checkpoint | None:
        """From the newest row that is whole."""
        if not self.path.is_file():
            return None
        try:
            with closing(sqlite3.connect(f"{self.path.resolve().as_uri()}?mode=rw", uri=True)) as database:
                if not self.path.stat().st_size:
                    raise StoreError(f"store: {self.path} is empty, {_REMEDY}")
                if not database.execute("SELECT 1 FROM sqlite_master WHERE name = 'checkpoints'").fetchone():
                    return None
                rounds = database.execute("SELECT round FROM checkpoints ORDER BY round DESC").fetchall()

                def row(number: int) -> Callable[[], bytes]:
                    query = "SELECT data FROM checkpoints WHERE round = ?"
                    return lambda: bytes(database.execute(query, (number,)).fetchone()[0])

                return _first_whole(((f"{self.path}, round {n}", row(n)) for (n,) in rounds), self.say)
        except sqlite3.Error as error:
            raise StoreError(f"store: {self.path} cannot be read ({error})") from error


def open_store(where: str | Path, *, keep: int = _KEPT, say: Say = _to_stderr) -> FileStore | SqliteStore:
    """The store at `where`: "sqlite:PATH" or an SQLite file, else a folder.

    Example:
        >>> open_store("sqlite:state/fleet.db").path.name
        'fleet.db'
    """
    text = str(where)
    if text.startswith("sqlite:"):
        if not text.removeprefix("sqlite:"):
            raise StoreError("store: 'sqlite:' without a path, should be like sqlite:fleet.db")
        return SqliteStore(Path(text.removeprefix("sqlite:")), keep, say)
    path = Path(where)
    if path.is_file():
        with path.open("rb") as file:
            if file.read(len(_SQLITE)) != _SQLITE:
                raise StoreError(f"store: {path} is a file but no SQLite database, should be one or a folder")
        return SqliteStore(path, keep, say)
    return FileStore(path, keep, say)


def existing_store(where: str | Path) -> FileStore | SqliteStore:
    """The same, unless there is nothing of that name."""
    store = open_store(where)
    place = store.path if isinstance(store, SqliteStore) else store.folder
    if not place.exists():
        raise StoreError(f"store: there is no {place}, should be where a fleet's server keeps its state")
    return store


def refuse_if_ahead(store: Store, round: int) -> None:
    """Raise `StoreError` where a store's last checkpoint is of a later round than one that would be saved."""
    found = store.latest()
    if found is not None and found.round > round:
        raise StoreError(
            f"store: it holds round {found.round}, so one that is at round {round} would undo it; resume from its last "
            "checkpoint, or give another place"
        )


def _first_whole(found: Iterator[tuple[str, Callable[[], bytes]]], say: Say) -> Checkpoint | None:
    passed: list[str] = []
    for name, read in found:
        try:
            whole = decode(read())
        except OSError as error:
            passed.append(f"{name} cannot be read ({error.strerror})")
        except (StoreError, sqlite3.DatabaseError) as error:
            passed.append(f"{name} is damaged ({error})")
        else:
            for sentence in passed:
                say(f"{sentence}, so the one before it is taken")
            return whole
    if passed:
        raise StoreError(f"store: no checkpoint can be read: {'; '.join(passed)}; {_REMEDY}")
    return None


def _fresh_database() -> bytes:
    """With the table, so that a file that is empty has been damaged."""
    with closing(sqlite3.connect(":memory:")) as database:
        database.execute(_TABLE)
        return database.serialize()


def _number(round: int) -> int:
    if isinstance(round, bool) or not isinstance(round, int) or not 0 <= round < 10**9:
        raise StoreError(f"round: {round!r}, should be a number from 0 to 999999999")
    return round


def _check_keep(keep: int) -> None:
    if keep < 1:
        raise StoreError(f"keep: {keep}, should be at least 1")


def _to_disk(folder: Path) -> None:
    """So that the file's new name outlives a loss of power."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
