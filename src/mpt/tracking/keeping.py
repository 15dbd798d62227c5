"""What a method keeps of a departed class, as bytes: no pickle, so what may be kept is what is named here.

None, numbers, texts, bytes, arrays, lists, tuples, dicts, deposits and statistics, and dataclasses of these that are
defined in the method's own file.
"""

import dataclasses
import io
import json
import sys
from typing import Any

import numpy as np

from mpt.core import ClassStatistics, Deposit, StatisticsError
from mpt.core.wire import Reader, Writer
from mpt.tracking.errors import FleetError

_KIND = b"K"
_VALUES: dict[str, Any] = {"deposit": Deposit, "statistics": ClassStatistics}


def to_bytes(value: object, method: object) -> bytes:
    """What a method keeps, as bytes for `from_bytes`; `FleetError` where it has something in it that is not named."""
    blocks = list[bytes]()
    form = json.dumps(_written(value, blocks, _module(method)))
    writer = Writer(_KIND, 0, "float64")
    writer.block(form.encode())
    for block in blocks:
        writer.block(block)
    return writer.finish()


def from_bytes(data: bytes, method: object) -> Any:
    """What `to_bytes` was given."""
    reader = Reader(data, _KIND, 0)
    form = json.loads(reader.block())
    blocks = list[bytes]()
    while reader.left:
        blocks.append(reader.block())
    reader.finish()
    return _read(form, blocks, _module(method))


def _module(method: object) -> Any:
    return sys.modules[type(method).__module__]


def _written(value: Any, blocks: list[bytes], module: Any) -> Any:
    """As JSON has it, with arrays and other bytes in `blocks`."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    name, block = _block(value)
    if block is not None:
        blocks.append(block)
        return {name: len(blocks) - 1}
    if isinstance(value, list | tuple):
        return {type(value).__name__: [_written(part, blocks, module) for part in value]}
    if isinstance(value, dict):
        return {"dict": [[_written(part, blocks, module) for part in pair] for pair in value.items()]}
    if not dataclasses.is_dataclass(value) or getattr(module, type(value).__name__, None) is not type(value):
        raise FleetError(
            f"it keeps a {type(value).__name__}, which cannot be stored; should be arrays, numbers, texts, or lists, "
            "tuples, dicts and dataclasses of its own file with these"
        )
    fields = {f.name: _written(getattr(value, f.name), blocks, module) for f in dataclasses.fields(value)}
    return {"dataclass": [type(value).__name__, fields]}


def _block(value: Any) -> tuple[str, bytes | None]:
    """What is written as bytes, and what as; None where it is not."""
    for name, kind in _VALUES.items():
        if isinstance(value, kind):
            return name, value.to_bytes()
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        buffer = io.BytesIO()
        np.save(buffer, value, allow_pickle=False)
        return "array", buffer.getvalue()
    return "bytes", value if isinstance(value, bytes) else None


def _read(form: Any, blocks: list[bytes], module: Any) -> Any:
    if not isinstance(form, dict):
        return form
    ((name, part),) = form.items()
    if isinstance(part, int):
        return _from_block(name, blocks[part])
    if name == "dataclass":
        kind, fields = getattr(module, part[0], None), part[1]
        if not dataclasses.is_dataclass(kind) or not isinstance(kind, type):
            raise StatisticsError(f"kept: {part[0]} is not in the method's file any more")
        return kind(**{field: _read(one, blocks, module) for field, one in fields.items()})
    if name == "dict":
        return {_read(key, blocks, module): _read(value, blocks, module) for key, value in part}
    parts = [_read(one, blocks, module) for one in part]
    return tuple(parts) if name == "tuple" else parts


def _from_block(name: str, block: bytes) -> Any:
    if name in _VALUES:
        return _VALUES[name].from_bytes(block)
    return np.load(io.BytesIO(block), allow_pickle=False) if name == "array" else block
