"""Bytes: one versioned envelope for everything that travels or is kept. Little-endian, no pickle.

    magic      4 bytes    b"MPT" and the kind: "S" ClassStatistics, "X" CrossStatistics, "D" Deposit,
                          "R" StatisticsRequest, "Q" CrossRequest, "A" arrays of a method, "T" the state of a
                          fleet's Tracker, "F" the Question of a fleet's server, "B" an answer to it,
                          "P" a question to a part of a method, "M" further requests, "O" an answer to them,
                          "K" what a method keeps, "V" an EvaluationRequest, "E" Evidence, the answer to it,
                          "L" a LabelledQuestion, "N" a LabelledAnswer, "Y" a LabelledReadout, "U" the state of a
                          LabelledTracker
    version    uint16     of the protocol, the first in which such a message was written: 1 or 2
    flags      uint16     which optional parts follow; bit 15: real numbers are float32, else float64
    length     uint64     of the whole message
    body                  the kind's own fields, in a fixed order, without names or padding
    checksum   uint32     CRC-32 of everything before it

The checksum catches accidents, not attackers: authenticity is the transport's business (TLS). A message is parsed only
after its length and checksum are right, and what it holds is then checked like any other input.
"""

import math
import struct
import zlib
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mpt.core.errors import StatisticsError
from mpt.core.validation import Floats, Ints

WireType = Literal["float32", "float64"]

VERSION = 2
"""Of the protocol. This release reads messages of it and of the one before, and refuses others."""
_FIRST = {kind.encode(): 2 for kind in "PMOKVELNYU"}
"""The version in which a kind came, or was changed last; 1 where it is not here. A message is written as that one, so
that whoever is a version behind can read all that it could be asked then."""
_HEADER = struct.Struct("<3s1sHHQ")
_CHECKSUM = struct.Struct("<I")
_FLOAT32 = 1 << 15
_LEAST_FLOAT32, _MOST_FLOAT32 = 1e-30, float(np.finfo(np.float32).max)
_MAX_EXPANDED = 1 << 25
_SMALL_EXPANDED, _EXPANDED_BY = 1 << 20, 1 << 12
"""Numbers that any message may stand for, and how many more for each of its bytes, up to the maximum."""
_MOST_KEPT = 1536
"""Feature dimension up to which the places of a triangle are kept between messages, for the last two: 28 MB each."""

_KINDS = {
    b"S": "ClassStatistics",
    b"X": "CrossStatistics",
    b"D": "Deposit",
    b"R": "StatisticsRequest",
    b"Q": "CrossRequest",
    b"A": "Arrays",
    b"T": "Tracker",
    b"F": "Question",
    b"B": "Answer",
    b"P": "PartRequest",
    b"M": "Further",
    b"O": "further answer",
    b"K": "Kept",
    b"V": "EvaluationRequest",
    b"E": "Evidence",
    b"L": "LabelledQuestion",
    b"N": "LabelledAnswer",
    b"Y": "LabelledReadout",
    b"U": "LabelledTracker",
}


def kind_of(message: bytes | bytearray | memoryview) -> bytes:
    """The kind that a message says it is of."""
    return bytes(message[3:4])


def fits_float32(array: Floats) -> bool:
    """Whether `Writer.reals` takes it as float32: finite there, and the largest not lost."""
    largest = float(np.abs(array).max(initial=0))
    return largest == 0 or _LEAST_FLOAT32 <= largest <= _MOST_FLOAT32


class Writer:
    """Collects the fields of one message in order; `finish` gives the bytes."""

    def __init__(self, kind: bytes, flags: int, dtype: WireType, version: int | None = None) -> None:
        """A message of `kind`, written as `version`; default: the first that has its kind."""
        name = getattr(dtype, "name", getattr(dtype, "__name__", dtype))
        if name not in ("float32", "float64"):
            raise StatisticsError(f"dtype: {dtype!r}, should be 'float32' or 'float64'")
        self._version = _FIRST.get(kind, 1) if version is None else version
        self._kind, self._real = kind, np.dtype(name).newbyteorder("<")
        self.narrow = name == "float32"
        self._flags = flags | _FLOAT32 * self.narrow
        self._parts: list[bytes] = []

    def raw(self, data: bytes) -> None:
        """Bytes as they are."""
        self._parts.append(data)

    def block(self, data: bytes) -> None:
        """Bytes with their length before them."""
        self.numbers("Q", len(data))
        self.raw(data)

    def numbers(self, layout: str, *values: float) -> None:
        """Scalars, by a `struct` layout."""
        self._parts.append(struct.pack("<" + layout, *values))

    def integers(self, array: Ints) -> None:
        """Integers, as int64."""
        self._parts.append(array.astype("<i8").tobytes())

    def exact(self, array: Floats) -> None:
        """Real numbers that stay float64 on any wire."""
        self._parts.append(array.astype("<f8").tobytes())

    def reals(self, array: Floats, name: str) -> None:
        """Real numbers in the message's dtype."""
        largest = float(np.abs(array).max(initial=0))
        if not math.isfinite(largest):
            raise StatisticsError(f"{name}: not finite, should be")
        if self.narrow and largest > _MOST_FLOAT32:
            raise StatisticsError(f"{name}: too large for float32; send float64, or choose an origin near the features")
        if self.narrow and 0 < largest < _LEAST_FLOAT32:
            raise StatisticsError(f"{name}: too small for float32; send float64, or scale the features up")
        self._parts.append(array.astype(self._real).tobytes())

    def halves(self, array: Floats, name: str) -> None:
        """Real numbers as float16, three digits each, after their largest as float64, by which they are divided."""
        size = float(np.abs(array).max(initial=0)) or 1.0
        if not math.isfinite(size):
            raise StatisticsError(f"{name}: not finite, should be")
        self.numbers("d", size)
        self._parts.append((array / size).astype("<f2").tobytes())

    def symmetric(self, matrix: Floats, name: str) -> None:
        """The lower triangle of a symmetric matrix, row by row: d (d + 1) / 2 numbers."""
        if len(matrix) <= _MOST_KEPT:
            self.reals(matrix.take(_places(len(matrix))[0]), name)
        else:
            self.reals(np.concatenate([row[: i + 1] for i, row in enumerate(matrix)]), name)

    def finish(self) -> bytes:
        """The whole message."""
        length = _HEADER.size + sum(map(len, self._parts)) + _CHECKSUM.size
        parts = [_HEADER.pack(b"MPT", self._kind, self._version, self._flags, length), *self._parts]
        checksum = 0
        for part in parts:
            checksum = zlib.crc32(part, checksum)
        return b"".join([*parts, _CHECKSUM.pack(checksum)])


class Reader:
    """Takes the fields of one message in order; refuses what is truncated, altered, or of another kind or version."""

    def __init__(self, data: bytes | bytearray | memoryview, kind: bytes, flags: int) -> None:
        """Open `data`, a message of `kind` that may have any of `flags` set."""
        what = _KINDS[kind]
        try:
            view = memoryview(data).cast("B")
        except (TypeError, ValueError):
            raise StatisticsError(f"{what} bytes: got {type(data).__name__}, should be bytes") from None
        if len(view) < _HEADER.size + _CHECKSUM.size:
            raise StatisticsError(f"{what} bytes: truncated, {len(view)} bytes are less than an empty message")
        magic, found, version, found_flags, length = _HEADER.unpack_from(view)
        if magic != b"MPT":
            raise StatisticsError(f"{what} bytes: do not begin with 'MPT', not made by to_bytes")
        if found != kind:
            raise StatisticsError(f"{what} bytes: these are {_KINDS.get(found, 'unknown')} bytes")
        if version not in (VERSION - 1, VERSION):
            raise StatisticsError(
                f"{what} bytes: version {version} of the protocol, this release of mpt reads {VERSION - 1} and "
                f"{VERSION}; update the {'sender' if version < VERSION else 'receiver'}"
            )
        if length != len(view):
            raise StatisticsError(f"{what} bytes: truncated or extended, {len(view)} bytes of {length}")
        end = len(view) - _CHECKSUM.size
        if _CHECKSUM.unpack_from(view, end)[0] != zlib.crc32(view[:end]):
            raise StatisticsError(f"{what} bytes: altered, the checksum does not match")
        self.flags = found_flags & ~_FLOAT32
        if self.flags & ~flags:
            raise StatisticsError(f"{what} bytes: a part that version {version} does not know is flagged")
        self._what, self._view, self._at = what, view[:end], _HEADER.size
        self.narrow = bool(found_flags & _FLOAT32)
        self._real = "<f4" if self.narrow else "<f8"

    def raw(self, size: int) -> bytes:
        """Bytes as they are."""
        return bytes(self._take(size))

    def block(self) -> bytes:
        """What `Writer.block` was given."""
        (size,) = self.numbers("Q")
        return self.raw(size)

    def numbers(self, layout: str) -> tuple[Any, ...]:
        """Scalars, by a `struct` layout."""
        packing = struct.Struct("<" + layout)
        return packing.unpack(self._take(packing.size))

    def integers(self, count: int) -> Ints:
        """Integers."""
        return self._array("<i8", count).astype(np.int64)

    def exact(self, *shape: int) -> Floats:
        """Real numbers that are float64 on any wire."""
        return self._array("<f8", *shape).astype(np.float64)

    def reals(self, *shape: int) -> Floats:
        """Real numbers in the message's dtype, as float64."""
        with np.errstate(invalid="ignore"):
            return self._array(self._real, *shape).astype(np.float64)

    def halves(self, *shape: int) -> Floats:
        """Real numbers that `Writer.halves` wrote, as float64."""
        (size,) = self.numbers("d")
        if not math.isfinite(size):
            raise StatisticsError(f"{self._what} bytes: a scale of {size}, should be finite")
        array: Floats = self._array("<f2", *shape).astype(np.float64) * size
        return array

    def symmetric(self, d: int) -> Floats:
        """A symmetric (d, d) matrix from its lower triangle."""
        packed = self.reals(d * (d + 1) // 2)
        if d <= _MOST_KEPT:
            return packed.take(_places(d)[1])
        matrix, at = np.empty((d, d)), 0
        for i in range(d):
            matrix[i, : i + 1] = matrix[: i + 1, i] = packed[at : at + i + 1]
            at += i + 1
        return matrix

    def expanded(self, *shape: int) -> Floats:
        """Zeros to be filled in part from the message, unless a forged header asks for an absurd amount of memory."""
        most = min(_MAX_EXPANDED, max(_SMALL_EXPANDED, _EXPANDED_BY * len(self._view)))
        if math.prod(max(n, 1) for n in shape) > most:
            raise StatisticsError(f"{self._what} bytes: an array of shape {shape} is more than this reader accepts")
        return np.zeros(shape)

    @property
    def left(self) -> int:
        """Bytes that have not been taken yet."""
        return len(self._view) - self._at

    def finish(self) -> None:
        """To be called after the last field."""
        if self._at != len(self._view):
            raise StatisticsError(f"{self._what} bytes: {len(self._view) - self._at} bytes left over")

    def _array(self, dtype: str, *shape: int) -> NDArray[Any]:
        taken = self._take(np.dtype(dtype).itemsize * math.prod(shape))
        try:
            return np.frombuffer(taken, dtype).reshape(shape)
        except ValueError:
            raise StatisticsError(f"{self._what} bytes: an array of shape {shape}, which cannot be") from None

    def _take(self, size: int) -> memoryview:
        if size > len(self._view) - self._at:
            raise StatisticsError(f"{self._what} bytes: a field is longer than the message")
        part = self._view[self._at : self._at + size]
        self._at += size
        return part


@lru_cache(maxsize=2)
def _places(d: int) -> tuple[Ints, Ints]:
    """Where the lower triangle of a (d, d) matrix is in it, row by row, and where all its entries are in that."""
    rows, columns = np.tril_indices(d)
    whole = np.empty((d, d), dtype=np.int64)
    whole[rows, columns] = whole[columns, rows] = np.arange(len(rows))
    return rows * d + columns, whole
