"""A run between two rounds as a file, whole or not there; the two latest of a folder are kept."""

import hashlib
import io
import pickle
import zlib
from collections.abc import Callable
from dataclasses import dataclass, fields
from itertools import chain
from pathlib import Path

import torch

from mpt.base.errors import MptError
from mpt.base.files import remove_files, write_atomically
from mpt.federation.state import FederationState
from mpt.runs.tables import Tables

_NAME, _FORMAT = b"MPT checkpoint ", b"5"
_MAGIC = _NAME + _FORMAT + b"\n"
_KEPT = 2


class CheckpointError(MptError):
    """A checkpoint cannot be written or read; the message says why."""


@dataclass(frozen=True, eq=False)
class RunCheckpoint:
    """What a run resumes from.

    Attributes:
        key: stands for everything that determines the numbers; another key's checkpoint is none of this run.
        seed: the one that is under way.
        state: of its federation; None where it has not begun.
        measured: what has been measured so far, of earlier seeds too, packed piece by piece: writing a checkpoint
            takes as long after many rounds as after few.
    """

    key: str
    seed: int
    state: FederationState | None
    measured: tuple[bytes, ...] = ()

    @property
    def round(self) -> int:
        """The last round that is done."""
        return 0 if self.state is None else self.state.round

    @property
    def tables(self) -> Tables:
        """What has been measured so far."""
        pieces = [pickle.loads(zlib.decompress(piece)) for piece in self.measured]
        return Tables(*(tuple(chain.from_iterable(getattr(p, f.name) for p in pieces)) for f in fields(Tables)))

    def then(self, seed: int, state: FederationState | None, tables: Tables) -> "RunCheckpoint":
        """The next one, with what has been measured since."""
        piece = zlib.compress(pickle.dumps(tables, protocol=5), level=1)
        return RunCheckpoint(self.key, seed, state, (*self.measured, piece) if tables != Tables() else self.measured)


def save(folder: Path, checkpoint: RunCheckpoint) -> None:
    """Write it, and remove those that are no longer needed.

    Raises:
        CheckpointError: where a method keeps something that cannot be pickled.
    """
    content = io.BytesIO()
    try:
        torch.save(vars(checkpoint), content)
    except Exception as error:  # pickle raises whatever the object raises
        raise CheckpointError(f"what a method keeps cannot be pickled ({error})") from error
    data = content.getvalue()
    folder.mkdir(exist_ok=True)
    path = folder / f"{checkpoint.seed:04d}-{checkpoint.round:06d}.checkpoint"
    write_atomically(path, _MAGIC + hashlib.sha256(data).digest() + data)
    for old in _files(folder)[:-_KEPT]:
        old.unlink()


def load(folder: Path, key: str, *, device: str, say: Callable[[str], None]) -> RunCheckpoint | None:
    """The latest whole checkpoint with this key; None where there is none. What cannot be used is said."""
    for path in reversed(_files(folder)):
        try:
            found = _read(path, device)
        except CheckpointError as error:
            say(f"{path} cannot be used ({error}), so the run resumes from before it")
            continue
        if found.key == key:
            return found
    return None


def remove(folder: Path) -> None:
    """Remove the checkpoints of a folder, and the folder where nothing else is in it."""
    remove_files(folder, [*_files(folder), *folder.glob(".*.checkpoint.partial")])


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.checkpoint"), key=lambda path: [part.zfill(20) for part in path.stem.split("-")])


def _read(path: Path, device: str) -> RunCheckpoint:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"it cannot be read: {error.strerror}") from None
    start = len(_MAGIC) + hashlib.sha256().digest_size
    if data.startswith(_NAME) and not data.startswith(_MAGIC):
        written = data[len(_NAME) :].partition(b"\n")[0][:8].decode(errors="replace")
        raise CheckpointError(f"it has format {written}, should be {_FORMAT.decode()}")
    if not data.startswith(_MAGIC):
        raise CheckpointError("it does not begin as one")
    if hashlib.sha256(data[start:]).digest() != data[len(_MAGIC) : start]:
        raise CheckpointError("it is not as it was written")
    try:
        return RunCheckpoint(**torch.load(io.BytesIO(data[start:]), map_location=device, weights_only=False))
    except Exception as error:  # unpickling raises whatever a class raises
        raise CheckpointError(f"{type(error).__name__}: {error}") from error
