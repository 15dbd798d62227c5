"""Questions and replies as Flower's records, and back. Sizes are checked before anything is parsed."""

import io
from collections.abc import Mapping
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from numpy.typing import NDArray

from mpt.fleet.exchange import Arrays, Ask, Kind, Reply
from mpt.tracking.errors import FleetError
from mpt.tracking.roster import printable

MODEL, ASK, REPLY, REFERENCE, FEATURES = "model", "mpt.ask", "mpt.reply", "mpt.reference.", "mpt.features"
TYPES: dict[Kind, str] = {"train": "train", "report": "query.class_stats", "evaluate": "query.evaluation"}
"""Flower's message types."""
MOST_UNKNOWN, LONGEST_NAME = 20, 200
"""Of the classes that are left out on a vehicle, so many are said."""
_HEADER = 1024
"""Bytes that a .npy header may add to an array's data."""


class AbsentError(FleetError):
    """A simulated vehicle sends this in place of nothing."""


def ask_content(ask: Ask) -> RecordDict:
    """A question as the content of a message."""
    config: dict[str, Any] = {
        "round": ask.round,
        "held-out": list(ask.held_out),
        "calibrates": ask.loss == "fedlc",
        "loss": ask.loss,
        "may-follow": ask.may_follow,
        "request": ask.request,
        "keep": ask.keep,
        "references": list(ask.references),
        "fingerprints": list(ask.references.values()),
        **({"aside": True} if ask.aside else {}),
    }
    models = {f"{REFERENCE}{number}": array_record(model) for number, model in ask.models.items()}
    return RecordDict({MODEL: array_record(ask.model), ASK: ConfigRecord(config), **models})


def read_ask(content: RecordDict, kind: Kind) -> Ask:
    """On a vehicle: the question."""
    config = _config(content, ASK)
    held_out = config.get("held-out", [])
    if not isinstance(held_out, list):
        raise FleetError(f"held-out: {held_out!r}, should be a list of classes")
    request = config.get("request", b"")
    if not isinstance(request, bytes):
        raise FleetError("request: should be bytes")
    rounds, fingerprints = config.get("references", []), config.get("fingerprints", [])
    if not isinstance(rounds, list) or not isinstance(fingerprints, list) or len(rounds) != len(fingerprints):
        raise FleetError("references: should be as many rounds as fingerprints")
    return Ask(
        kind,
        _integer(config, "round"),
        arrays_of(_model(content)),
        tuple(int(c) for c in held_out),
        request,
        keep=bool(config.get("keep", False)),
        loss=_loss(config),
        may_follow=bool(config.get("may-follow", False)),
        aside=bool(config.get("aside", False)),
        references={int(str(number)): str(known) for number, known in zip(rounds, fingerprints, strict=True)},
        models={
            int(name.removeprefix(REFERENCE)): arrays_of(record)
            for name, record in content.array_records.items()
            if name.startswith(REFERENCE)
        },
    )


def _loss(config: Mapping[str, Any]) -> str:
    """What to minimise; a server of the release before says no more than whether it is FedLC's."""
    return str(config.get("loss", "fedlc" if config.get("calibrates", False) else "cross-entropy"))


def reply_content(reply: Reply) -> RecordDict:
    """A reply as the content of a message."""
    config: dict[str, Any] = {
        "vehicle": reply.vehicle,
        "round": reply.round,
        "leaving": reply.leaving,
        "samples": reply.samples,
    }
    if reply.answer is not None:
        config["answer"] = reply.answer
    if reply.unknown:
        most = sorted(reply.unknown.items(), key=lambda item: -item[1])[:MOST_UNKNOWN]
        config |= {
            "unknown": [printable(name)[:LONGEST_NAME] for name, _ in most],
            "unknown-samples": [n for _, n in most],
        }
    content = RecordDict({REPLY: ConfigRecord(config)})
    if reply.model is not None:
        content[MODEL] = array_record(reply.model)
    return content


def absence() -> RecordDict:
    """What a simulated vehicle sends in place of nothing: there everybody always answers."""
    return RecordDict({REPLY: ConfigRecord({"absent": True})})


def read_reply(content: RecordDict, like: Arrays, largest_answer: int, vehicle: str | None = None) -> Reply:
    """On the server: the reply.

    Args:
        content: of the message.
        like: the global model; an update must have its names, shapes and dtypes.
        largest_answer: bytes; a longer one is not looked at.
        vehicle: the id by which the server knows the sender; None: the one that the sender gives.
    """
    config = _config(content, REPLY)
    if config.get("absent"):
        raise AbsentError("a simulated vehicle that is absent")
    name = vehicle if vehicle is not None else config.get("vehicle")
    if not isinstance(name, str):
        raise FleetError(f"vehicle: {name!r}, should be a string")
    answer, leaving = config.get("answer"), config.get("leaving", False)
    if answer is not None and not isinstance(answer, bytes):
        raise FleetError(f"answer: {type(answer).__name__}, should be bytes")
    if answer is not None and len(answer) > largest_answer:
        raise FleetError(f"answer: {len(answer)} bytes, should be at most {largest_answer}")
    if not isinstance(leaving, bool):
        raise FleetError(f"leaving: {leaving!r}, should be true or false")
    model = _update(_model(content), like) if MODEL in content else None
    unknown = _unknown(config)
    return Reply(name, _integer(config, "round"), leaving, _integer(config, "samples"), model, answer, unknown)


def array_record(model: Arrays) -> ArrayRecord:
    """A model as Flower's arrays."""
    return ArrayRecord({name: Array(np.asarray(array)) for name, array in model.items()})


def arrays_of(record: ArrayRecord) -> dict[str, NDArray[Any]]:
    """Flower's arrays as NumPy's."""
    return {name: array.numpy() for name, array in record.items()}


def _update(record: ArrayRecord, like: Arrays) -> dict[str, NDArray[Any]]:
    if record.keys() != like.keys():
        name = min(set(record) ^ set(like))
        raise FleetError(f"model: {name} is {'missing' if name in like else 'not one of its entries'}")
    return {name: _array(record[name], name, expected) for name, expected in like.items()}


def _array(array: Array, name: str, expected: NDArray[Any]) -> NDArray[Any]:
    """One array of an update; what its header says is compared before anything is read, and nothing is unpickled."""
    data = array.data
    if not isinstance(data, bytes) or len(data) > expected.nbytes + _HEADER:
        raise FleetError(f"model: {name} has {len(data)} bytes, should have {expected.nbytes}")
    stream = io.BytesIO(data[: _HEADER + 128])
    try:
        version = np.lib.format.read_magic(stream)
        read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[version]
        shape, fortran, dtype = read(stream, max_header_size=_HEADER)
    except Exception as error:
        raise FleetError(f"model: {name} is no .npy array ({type(error).__name__}: {error})") from None
    if (shape, dtype) != (expected.shape, expected.dtype):
        raise FleetError(
            f"model: {name} is {dtype} of shape {shape}, should be {expected.dtype} of shape {expected.shape}"
        )
    if len(data) - stream.tell() != expected.nbytes:
        raise FleetError(f"model: {name} has {len(data) - stream.tell()} bytes, should have {expected.nbytes}")
    flat = np.frombuffer(data, dtype, offset=stream.tell())
    return flat.reshape(shape, order="F" if fortran else "C")


def _unknown(config: ConfigRecord) -> dict[str, int]:
    """The classes that are left out on a vehicle, and their samples."""
    names, samples = config.get("unknown", []), config.get("unknown-samples", [])
    if not isinstance(names, list) or not isinstance(samples, list) or len(names) != len(samples):
        raise FleetError("unknown: should be as many names as numbers of samples")
    for name, number in zip(names, samples, strict=True):
        fits = isinstance(name, str) and 0 < len(name) <= LONGEST_NAME
        if not fits or not isinstance(number, int) or isinstance(number, bool) or len(names) > MOST_UNKNOWN:
            raise FleetError(f"unknown: should be at most {MOST_UNKNOWN} names of classes with their samples")
    return {printable(str(name)): int(str(number)) for name, number in zip(names, samples, strict=True)}


def _config(content: RecordDict, name: str) -> ConfigRecord:
    record = content.get(name)
    if not isinstance(record, ConfigRecord):
        raise FleetError(f"message: it has no {name}, should be one of an MPT fleet")
    return record


def _model(content: RecordDict) -> ArrayRecord:
    record = content.get(MODEL)
    if not isinstance(record, ArrayRecord):
        raise FleetError(f"message: {MODEL} is not an array record")
    return record


def _integer(config: ConfigRecord, name: str) -> int:
    value = config.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise FleetError(f"{name}: {value!r}, should be an integer")
    return value
