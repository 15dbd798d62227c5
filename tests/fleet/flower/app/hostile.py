"""The vehicle's app, with changed code on one vehicle.

A vehicle is honest but where its node config has another role for it: `plays="1 train npz, 3 report span"` is one in
the training of round 1 and one in the report of round 3. A silent one replies once the file `wake` is there.
"""

import io
import struct
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from flwr.app import Array, Context, Message
from flwr.clientapp import ClientApp
from numpy.typing import NDArray

from mpt.core import ClassStatistics
from mpt.fleet.flower.records import MODEL, REPLY, read_ask
from mpt.fleet.flower.vehicle_app import answer
from mpt.protocol.question import Question

ENTRY = "head.bias"
"""Of the update: the one that is spoiled, but for a weight that is too large, which is in the first layer."""
TEXT = 20 * 10**6
"""Characters."""

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    """A right update, or what is played instead."""
    role, reply = played(message, context, "train"), answer(message, context, "train", {})
    if role in BYTES:
        model = reply.content[MODEL]
        entry = next(iter(model)) if role == "large" else ENTRY
        known = model[entry].numpy()
        model[entry] = Array(str(known.dtype), known.shape, "numpy.ndarray", BYTES[role](known))
    return reply


@app.query("class_stats")
def class_stats(message: Message, context: Context) -> Message:
    """A right report, or what is played instead."""
    role, reply = played(message, context, "report"), answer(message, context, "report", {})
    config = reply.content[REPLY]
    if role in ("origin", "span"):
        config["answer"] = framed(role, read_ask(message.content, "report").request, config["answer"])
    if role == "text":
        config["samples"] = "no number" * (TEXT // 9)
    return reply


def played(message: Message, context: Context, kind: str) -> str:
    """The role in this message. Whoever is silent waits here; whoever raises does so here."""
    number = read_ask(message.content, kind).round
    plays = [part.split() for part in str(context.node_config.get("plays", "")).split(",")]
    role = next((part[2] for part in plays if part[:2] == [str(number), kind]), "")
    wake = context.node_config.get("wake")
    while role == "silent" and not Path(str(wake)).exists():
        time.sleep(0.2)
    if role == "raises":
        raise ValueError("a reason " * (TEXT // 9))
    return role


def framed(name: str, request: bytes, report: bytes) -> bytes:
    """The report about a span or an origin of the vehicle's own, which the bytes carry."""
    asked = Question.from_bytes(request).statistics
    stats = ClassStatistics.from_bytes(report, span=asked.span, origin=asked.origin)
    own = {"span": 1.0 + np.eye(2, stats.dim), "origin": np.full(stats.dim, 0.5)}
    return replace(stats, **{name: own[name]}).to_bytes("float32")


def npz(array: NDArray[np.float32]) -> bytes:
    """A zip, in which np.load reads only when asked, and gives no array."""
    stream = io.BytesIO()
    np.savez(stream, array)
    return stream.getvalue()


def bad_header(array: NDArray[np.float32]) -> bytes:
    """A header that ends in the middle, for which NumPy raises an error that is none of its own."""
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (8,\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + array.tobytes()


def huge(array: NDArray[np.float32]) -> bytes:
    """A header of 2^40 floats before a few."""
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": "<f4", "fortran_order": False, "shape": (2**40,)})
    return stream.getvalue() + array.tobytes()


def large(array: NDArray[np.float32]) -> bytes:
    """One finite weight, too large for anything."""
    stream, spoiled = io.BytesIO(), array.copy()
    spoiled.flat[0] = 3e38
    np.save(stream, spoiled)
    return stream.getvalue()


BYTES: dict[str, Callable[[NDArray[np.float32]], bytes]] = {
    "npz": npz,
    "header": bad_header,
    "huge": huge,
    "large": large,
}
"""Roles in training: the bytes of the array."""
