"""Where the server's state is kept between rounds: a folder or an SQLite file, behind one small interface.

A checkpoint (`mpt.fleet.checkpoint`) is a round and some named bytes (the tracker, the model, ...), written whole or
not at all, and read back only where it is right; else the one before is taken. Where there are some and none can be
read, that is an error: nobody begins anew over them unasked. So is one of another release, which is left as it is.

A store has one writer. An object remembers what it has read and written, and does not save over anything else.
"""

import os
import re
import sqlite3
import sys
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeVar

from mpt.base.files import private_folder, write_atomically
from mpt.fleet.checkpoint import (
    HEAD,
    MOST_ROUNDS,
    Checkpoint,
    OtherReleaseError,
    StoreError,
    decode,
    encode,
    is_round,
)
from mpt.fleet.keeping import LAST, REMEDY, Say, Seen, There, kept, refuse_later

__all__ = [
    "SCORES",
    "TRACKER",
    "Checkpoint",
    "FileStore",
    "OtherReleaseError",
    "SqliteStore",
    "Store",
    "StoreError",
    "decode",
    "encode",
    "existing_store",
    "kept",
    "open_store",
    "refuse_if_ahead",
]

_NAME = re.compile(r"([0-9]{9})\.checkpoint")
_TABLE = "CREATE TABLE IF NOT EXISTS checkpoints (round INTEGER PRIMARY KEY, data BLOB NOT NULL)"
_ASIDE = "CREATE TABLE IF NOT EXISTS rolled_back (round INTEGER NOT NULL, time TEXT NOT NULL, data BLOB NOT NULL)"
_SQLITE = b"SQLite format 3\x00"

T = TypeVar("T")


TRACKER = "tracker"
"""The part of a payload in which `mpt fleet status` looks for `Tracker.to_bytes()`."""
SCORES = "scores"
"""The part that has accuracy and F1 of the last round, as JSON, where the server has test samples."""


def _to_stderr(sentence: str) -> None:
    print(f"mpt: {sentence}", file=sys.stderr)


class Store(Protocol):
    """Keeps the last checkpoints."""

    def save(self, round: int, payload: Mapping[str, bytes]) -> None:
        """Keep a checkpoint, whole or not at all; those that are too old, or later and damaged, are removed.

        Raises:
            StoreError: a later one is whole, or none of those that are there; another server writes here; or one is of
                another release.
        """
        ...

    def latest(self) -> Checkpoint | None:
        """The last one that is whole; None where there is no checkpoint.

        Raises:
            StoreError: there are some, and none can be read, or one is of another release.
        """
        ...


@dataclass(frozen=True)
class FileStore:
    """One file a round in a folder, made where it is missing; what is made is for its owner's eyes only.

    Files of other names than a round in nine digits and ".checkpoint" are left alone.

    Attributes:
        folder: the folder.
        keep: how many of the last checkpoints are kept; `kept` has which older ones besides.
        say: takes a sentence about every one that is damaged.
    """

    folder: Path
    keep: int = LAST
    say: Say = _to_stderr
    _seen: Seen = field(default_factory=Seen, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "folder", Path(self.folder))
        _check_keep(self.keep)

    @property
    def home(self) -> Path:
        """The folder that a server locks, and in which its logs are."""
        return self.folder

    def save(self, round: int, payload: Mapping[str, bytes]) -> None:
        """Write beside, to the disk, then in place."""
        data = encode(Checkpoint(_number(round), payload, time.time()))
        try:
            private_folder(self.folder)
            there = self._there()
            self._seen.refuse(round, there)
            write_atomically(self._path(round), data, private=True)
            heads = {**there.heads, round: data[:HEAD]}
            self._seen.note(round, heads)
            _to_disk(self.folder)
            for number in heads.keys() - kept([n for n in heads if n <= round], self.keep):
                self._path(number).unlink(missing_ok=True)
        except OSError as error:
            raise StoreError(f"store: {error.filename or self.folder} cannot be written ({error.strerror})") from error

    def latest(self) -> Checkpoint | None:
        """From the newest file that is whole."""
        found, heads = self._there().newest()
        self._seen.note(None if found is None else found.round, heads)
        return found

    def rounds(self) -> tuple[int, ...]:
        """The rounds of which there is a checkpoint, whole or not."""
        try:
            names = os.listdir(self.folder)
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise StoreError(f"store: {self.folder} cannot be read ({error.strerror})") from error
        return tuple(sorted(int(found[1]) for found in map(_NAME.fullmatch, names) if found))

    def whole(self) -> tuple[int, ...]:
        """Those of which it is whole."""
        return self._there().whole()

    def put_aside(self, rounds: Collection[int], when: str) -> None:
        """Give checkpoints other names, the newest first, so that they no longer count."""
        try:
            for number in sorted(rounds, reverse=True):
                path = self._path(number)
                path.rename(path.with_name(f"{path.name}.rolled-back-{when}"))
            _to_disk(self.folder)
        except OSError as error:
            why = f"({error.strerror}), should be called as the server's user"
            raise StoreError(f"store: {error.filename or self.folder} cannot be renamed {why}") from error

    def _path(self, round: int) -> Path:
        return self.folder / f"{round:09d}.checkpoint"

    def _there(self) -> There:
        heads = dict[int, bytes]()
        for number in self.rounds():
            try:
                with self._path(number).open("rb") as file:
                    heads[number] = file.read(HEAD)
            except OSError:
                heads[number] = b""
        path = self._path
        return There(self.folder, heads, lambda n: path(n).read_bytes(), lambda n: str(path(n)), self.say)


@dataclass(frozen=True)
class SqliteStore:
    """One row a round in an SQLite file, made where it is missing, for its owner's eyes only.

    Attributes:
        path: the file.
        keep: how many of the last checkpoints are kept; `kept` has which older ones besides.
        say: takes a sentence about every one that is damaged.
    """

    path: Path
    keep: int = LAST
    say: Say = _to_stderr
    _seen: Seen = field(default_factory=Seen, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", Path(self.path))
        _check_keep(self.keep)

    @property
    def home(self) -> Path:
        """The folder that a server locks, and in which its logs are."""
        return self.path.parent

    def save(self, round: int, payload: Mapping[str, bytes]) -> None:
        """Insert, remove the old ones, and commit, in one transaction."""
        data = encode(Checkpoint(_number(round), payload, time.time()))
        try:
            private_folder(self.path.parent)
            if not self.path.exists():
                write_atomically(self.path, _fresh_database(), private=True)
            with closing(sqlite3.connect(self.path)) as database, database:
                database.execute("PRAGMA synchronous = FULL")
                database.execute("BEGIN IMMEDIATE")
                database.execute(_TABLE)
                there = self._there(database)
                self._seen.refuse(round, there)
                database.execute("INSERT OR REPLACE INTO checkpoints VALUES (?, ?)", (round, data))
                heads = {**there.heads, round: data[:HEAD]}
                old = heads.keys() - kept([n for n in heads if n <= round], self.keep)
                database.executemany("DELETE FROM checkpoints WHERE round = ?", [(n,) for n in old])
            self._seen.note(round, heads)
        except (sqlite3.Error, OSError) as error:
            raise StoreError(f"store: {self.path} cannot be written ({error})") from error

    def latest(self) -> Checkpoint | None:
        """From the newest row that is whole."""
        nothing: tuple[Checkpoint | None, dict[int, bytes]] = (None, {})
        found, heads = self._reading(lambda database: self._there(database).newest(), nothing)
        self._seen.note(None if found is None else found.round, heads)
        return found

    def rounds(self) -> tuple[int, ...]:
        """The rounds of which there is a checkpoint, whole or not."""
        return self._reading(_numbers, ())

    def whole(self) -> tuple[int, ...]:
        """Those of which it is whole."""
        return self._reading(lambda database: self._there(database).whole(), ())

    def put_aside(self, rounds: Collection[int], when: str) -> None:
        """Move checkpoints to the table `rolled_back`, so that they no longer count."""
        try:
            with closing(sqlite3.connect(self.path)) as database, database:
                database.execute("PRAGMA synchronous = FULL")
                database.execute("BEGIN IMMEDIATE")
                database.execute(_ASIDE)
                for number in rounds:
                    moved = "INSERT INTO rolled_back SELECT round, ?, data FROM checkpoints WHERE round = ?"
                    database.execute(moved, (when, number))
                    database.execute("DELETE FROM checkpoints WHERE round = ?", (number,))
        except sqlite3.Error as error:
            why = f"({error}), should be called as the server's user"
            raise StoreError(f"store: {self.path} cannot be written {why}") from error

    def _reading(self, look: Callable[[sqlite3.Connection], T], nothing: T) -> T:
        """What `look` finds, at one moment; `nothing` where there is no file."""
        if not self.path.is_file():
            return nothing
        try:
            with closing(sqlite3.connect(f"{self.path.resolve().as_uri()}?mode=rw", uri=True)) as database:
                if not self.path.stat().st_size:
                    raise StoreError(f"store: {self.path} is empty, {REMEDY}")
                database.execute("BEGIN")
                return look(database)
        except sqlite3.Error as error:
            raise StoreError(f"store: {self.path} cannot be read ({error})") from error

    def _there(self, database: sqlite3.Connection) -> There:
        heads = dict[int, bytes]()
        for number in _numbers(database):
            try:
                with database.blobopen("checkpoints", "data", number, readonly=True) as blob:
                    heads[number] = blob.read(HEAD)
            except sqlite3.DatabaseError:
                heads[number] = b""
        return There(self.path, heads, _rows(database), lambda n: f"{self.path}, round {n}", self.say)


def _numbers(database: sqlite3.Connection) -> tuple[int, ...]:
    if not database.execute("SELECT 1 FROM sqlite_master WHERE name = 'checkpoints'").fetchone():
        return ()
    query = "SELECT round FROM checkpoints WHERE round >= 0 AND round < ? ORDER BY round"
    return tuple(number for (number,) in database.execute(query, (MOST_ROUNDS,)))


def _rows(database: sqlite3.Connection) -> Callable[[int], bytes]:
    def read(round: int) -> bytes:
        (data,) = database.execute("SELECT data FROM checkpoints WHERE round = ?", (round,)).fetchone()
        if not isinstance(data, bytes):
            raise StoreError("it is no blob")
        return data

    return read


def open_store(where: str | Path, *, keep: int = LAST, say: Say = _to_stderr) -> FileStore | SqliteStore:
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
    if isinstance(store, FileStore | SqliteStore) and max(store.rounds(), default=0) <= round:
        return
    found = store.latest()
    if found is not None:
        refuse_later(found.round, round)


def _fresh_database() -> bytes:
    """With the table, so that a file that is empty has been damaged."""
    with closing(sqlite3.connect(":memory:")) as database:
        database.execute(_TABLE)
        return database.serialize()


def _number(round: int) -> int:
    if not is_round(round):
        raise StoreError(f"round: {round!r}, should be a number from 0 to {MOST_ROUNDS - 1}")
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
