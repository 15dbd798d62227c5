"""Every vehicle of a state as bytes: a line of JSON each, compressed as it is written.

A fleet's state has one line for each of perhaps 100,000 vehicles; written one by one they cost a few bytes each, where
one JSON document of them all would need more memory than the round.
"""

import json
import zlib
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from mpt.core.validation import Ints
from mpt.tracking.errors import FleetError
from mpt.tracking.roster import Member


def to_bytes(members: Mapping[str, Member], counts: Mapping[str, Ints]) -> bytes:
    """The vehicles in the order of their ids: what they are, and (C,) what each reported last, where that is known.

    A vehicle's own absences, where they are kept, stand behind the rest of what it is.
    """
    squeeze, out = zlib.compressobj(1), bytearray()
    for vehicle in sorted(members.keys() | counts.keys()):
        m, mine = members.get(vehicle), counts.get(vehicle)
        about = None if m is None else (m.state, m.since, m.seen, m.missed, m.name, m.joined, m.why, *m.own)
        row = (vehicle, about, None if mine is None else mine.tolist())
        out += squeeze.compress(json.dumps(row, separators=(",", ":")).encode() + b"\n")
    return bytes(out + squeeze.flush())


def from_bytes(data: bytes, num_classes: int) -> tuple[dict[str, Member], dict[str, Ints]]:
    """What `to_bytes` was given; counts have `num_classes` entries."""
    members, counts = dict[str, Member](), dict[str, Ints]()
    try:
        text = zlib.decompress(data)
    except zlib.error as error:
        raise FleetError(f"Tracker bytes: the vehicles cannot be unpacked ({error})") from None
    for row in text.splitlines():
        vehicle, about, mine = json.loads(row)
        if about is not None:
            members[vehicle] = replace(Member(*about[:7]), own=tuple((length, ended) for length, ended in about[7:]))
        if mine is not None:
            counts[vehicle] = np.array(mine, dtype=np.int64).reshape(num_classes)
    return members, counts
