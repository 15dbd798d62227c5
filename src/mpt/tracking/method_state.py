"""What a method keeps of a departed class, as bytes: no pickle, so what may be kept is what is named here.

None, numbers, texts, bytes, arrays, lists, tuples, dicts, deposits and statistics, and dataclasses of these that are
defined in the method's own file. A method gets what is read from the bytes in every round, so that one that is
resumed from a checkpoint gets the same.
"""

import dataclasses
import io
import json
import sys
from typing import Any

import numpy as np

from mpt.core import ClassStatistics, CrossStatistics, Deposit, StatisticsError
from mpt.core.wire import Reader, Writer
from mpt.tracking.errors import FleetError

_KIND = b"K"
_VALUES: dict[str, Any] = {"deposit": Deposit, "statistics": ClassStatistics, "cross": CrossStatistics}


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


def stored(value: object, method: object) -> bytes:
    """The bytes of what a method keeps; `FleetError` where what is read from them would not be the same."""
    data = to_bytes(value, method)
    try:
        same = to_bytes(from_bytes(data, method), method) == data
    except Exception as error:
        raise FleetError(f"what it keeps cannot be read again ({type(error).__name__}: {error})") from error
    if not same:
        raise FleetError("what it keeps is another once it is read again, should stay as it was written")
    return data


def _written(value: Any, blocks: list[bytes], module: Any) -> Any:
    """As JSON has it, with arrays and other bytes in `blocks`."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    name, block = _block(value)
    if block is not None:
        blocks.append(block)
        return {name: len(blocks) - 1}
    if type(value) in (list, tuple):
        return {type(value).__name__: [_written(part, blocks, module) for part in value]}
    if type(value) is dict:
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
    plain = type(value) is np.ndarray or isinstance(value, np.generic)
    if plain and not value.dtype.hasobject:
        buffer = io.BytesIO()
        np.save(buffer, np.asarray(value), allow_pickle=False)
        return "array" if isinstance(value, np.ndarray) else "scalar", buffer.getvalue()
    return "bytes", value if type(value) is bytes else None


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
        made = object.__new__(kind)
        for field, one in fields.items():
            object.__setattr__(made, field, _read(one, blocks, module))
        return made
    if name == "dict":
        return {_read(key, blocks, module): _read(value, blocks, module) for key, value in part}
    parts = [_read(one, blocks, module) for one in part]
    return tuple(parts) if name == "tuple" else parts


def _from_block(name: str, block: bytes) -> Any:
    if name in _VALUES:
        return _VALUES[name].from_bytes(block)
    if name == "bytes":
        return block
    array = np.load(io.BytesIO(block), allow_pickle=False)
    return array if name == "array" else array[()]
