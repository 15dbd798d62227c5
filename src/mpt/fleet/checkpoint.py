"""A checkpoint as bytes, and what of it is right.

    magic   "MPT store 1\\n"
    digest  32 bytes, SHA-256 of all that follows
    header  uint64 length, JSON: {"round": ..., "time": ..., "parts": [[name, size], ...]}
    parts   one after the other

The digest tells that the bytes are those that were written, not that they were right: a header is checked like any
other input, and whoever reads a part does it through `read_part`.
"""

import hashlib
import json
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from mpt.base.errors import MptError
from mpt.tracking.errors import FleetError
from mpt.tracking.roster import printable

_VERSION = 1
_MAGIC = b"MPT store %d\n" % _VERSION
_ANY_VERSION = re.compile(rb"MPT store ([0-9]{1,9})\n")
_LENGTH = struct.Struct("<Q")
_FIRST_TIME, _LAST_TIME = -6e10, 2.5e11
"""In seconds since 1970: what `datetime` can show."""
MOST_ROUNDS = 10**9
"""A round is below it, so that nine digits are enough for a file's name."""
HEAD = len(_MAGIC) + hashlib.sha256().digest_size
"""So many bytes at the beginning tell one checkpoint from all others."""
_BACK = "mpt fleet rollback goes back to the checkpoint before it"

T = TypeVar("T")


class StoreError(FleetError):
    """A checkpoint cannot be written or read; the message says where and why."""


class OtherReleaseError(StoreError):
    """A checkpoint is of another version of the store. It is not damaged: nobody passes over it, or removes it."""


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


def encode(checkpoint: Checkpoint) -> bytes:
    """A checkpoint as bytes."""
    parts = sorted(checkpoint.payload.items())
    about = {"round": checkpoint.round, "time": checkpoint.time, "parts": [[name, len(data)] for name, data in parts]}
    header = json.dumps(about).encode()
    content = b"".join([_LENGTH.pack(len(header)), header, *(data for _, data in parts)])
    return _MAGIC + hashlib.sha256(content).digest() + content


def decode(data: bytes) -> Checkpoint:
    """What `encode` was given.

    Raises:
        OtherReleaseError: the bytes are of another version of the store.
        StoreError: they are not as they were written, or were written wrong.
    """
    refuse_other_release(data[:HEAD], "it")
    if not data.startswith(_MAGIC):
        raise StoreError("it does not begin as a checkpoint of this release")
    content = memoryview(data)[HEAD:]
    if hashlib.sha256(content).digest() != data[len(_MAGIC) : HEAD]:
        raise StoreError("it is not as it was written")
    header, at = _header(content)
    payload = dict[str, bytes]()
    for name, size in _sizes(header.get("parts"), len(content) - at).items():
        payload[name] = bytes(content[at : at + size])
        at += size
    return Checkpoint(header["round"], payload, header.get("time"))


def refuse_other_release(head: bytes, where: str) -> None:
    """Raise `OtherReleaseError` where a checkpoint that begins with `head` is of another version than ours."""
    found = _ANY_VERSION.match(head)
    if found is None or (number := int(found[1])) == _VERSION:
        return
    release, remedy = ("a newer", "update mpt, or ") if number > _VERSION else ("an older", "")
    versions = f"(store {number}, this one reads {_VERSION})"
    raise OtherReleaseError(f"{where} was written by {release} release of mpt {versions}; {remedy}give another place")


def is_round(value: object) -> bool:
    """Whether it can be the number of a checkpoint's round."""
    return type(value) is int and 0 <= value < MOST_ROUNDS


def _header(content: memoryview) -> tuple[dict[str, Any], int]:
    """The header, its round and time checked, and where it ends."""
    there = len(content) - _LENGTH.size
    size = _LENGTH.unpack_from(content)[0] if there >= 0 else 0
    if not 0 < size <= there:
        raise StoreError(f"its header should have {size} bytes, and {max(there, 0)} are there")
    at = _LENGTH.size + size
    try:
        header = json_object(bytes(content[_LENGTH.size : at]))
    except FleetError as error:
        raise StoreError(f"its header is {error}") from None
    number, time = header.get("round"), header.get("time")
    if not is_round(number):
        raise StoreError(f"its header has the round {_shown(number)}, should be a number from 0 to {MOST_ROUNDS - 1}")
    if time is not None and (type(time) not in {int, float} or not _FIRST_TIME < time < _LAST_TIME):
        raise StoreError(f"its header has the time {_shown(time)}, should be in seconds since 1970")
    return header, at


def _sizes(parts: object, there: int) -> dict[str, int]:
    """The sizes of a header's parts by name, which fill exactly what is there."""
    if not isinstance(parts, list):
        raise StoreError(f"its header has the parts {_shown(parts)}, should be a list of names and sizes")
    sizes = dict[str, int]()
    for part in parts:
        match part:
            case [str(name), int(size)] if size >= 0 and type(size) is int and name not in sizes:
                sizes[name] = size
            case _:
                raise StoreError(f"its header has the part {_shown(part)}, should be a name of its own and a size")
    if sum(sizes.values()) != there:
        raise StoreError(f"its parts should have {sum(sizes.values())} bytes, and {there} are there")
    return sizes


def _shown(value: object) -> str:
    return ascii(value)[:40]


def read_part(checkpoint: Checkpoint, name: str, read: Callable[[bytes], T]) -> T:
    """What `read` makes of a part.

    Raises:
        StoreError: it is not there, or cannot be read, whatever `read` raises over it; the sentence says which part of
            which round, why, and what would do.
    """
    if name not in checkpoint.payload:
        raise StoreError(f"store: round {checkpoint.round} has no part {name!r}; {_BACK}")
    try:
        return read(checkpoint.payload[name])
    except Exception as error:
        why = str(error) if isinstance(error, MptError) else f"{type(error).__name__}: {printable(str(error))[:200]}"
        raise StoreError(f"store: the part {name!r} of round {checkpoint.round} is wrong ({why}); {_BACK}") from error


def json_object(data: bytes) -> dict[str, Any]:
    """A part that is a JSON object; `FleetError` where it is something else."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        raise FleetError("no JSON, should be a JSON object") from None
    if not isinstance(found, dict):
        raise FleetError(f"the JSON {_shown(found)}, should be an object")
    return found


def json_texts(data: bytes) -> dict[str, str]:
    """A part that is a JSON object of texts; `FleetError` where it is something else."""
    found = json_object(data)
    for name, value in found.items():
        if not isinstance(value, str):
            raise FleetError(f"a JSON object in which {_shown(name)} is {_shown(value)}, should be a text")
    return found
