"""A file of weights as it comes: torch's, read with `weights_only`, and safetensors, read here.

A safetensors file is eight bytes with the length n of its header, n bytes of JSON, which say of every tensor its dtype,
its shape and where it lies, and then the tensors' bytes. Neither kind runs code.
"""

import hashlib
import json
import math
import warnings
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

from mpt.base.extensions import located
from mpt.learning.settings import LearningError

_LONGEST_HEADER = 100_000_000
_DTYPES = {
    **{"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16},
    **{"I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8},
    "BOOL": torch.bool,
}


def known_by(path: str) -> str:
    """What a file of weights is known by: its content."""
    try:
        with _file(path).open("rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest()[:16]
    except OSError as error:
        raise LearningError(f"weights: {path} cannot be read ({error.strerror})") from None


def read(path: str) -> Any:
    """What is in the file, on the CPU: of safetensors its tensors by name, of torch whatever was saved."""
    file = _file(path)
    try:
        if file.suffix == ".safetensors":
            with file.open("rb") as opened:
                return _safetensors(path, opened, file.stat().st_size)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torch.load(file, map_location="cpu", weights_only=True)
    except LearningError:
        raise
    except OSError as error:
        raise LearningError(f"weights: {path} cannot be read ({error.strerror or error})") from None
    except Exception as error:  # unpickling raises whatever it likes
        raise LearningError(
            f"weights: {path} holds something else than tensors, or is broken ({type(error).__name__}), should be as "
            "torch.save(model.state_dict(), ...) or safetensors write it"
        ) from None


def _file(path: str) -> Path:
    file = located(Path(path).expanduser())
    if not file.is_file():
        raise LearningError(f"weights: there is no file {path}, should be a path from {Path.cwd()}")
    return file


def _safetensors(path: str, opened: BinaryIO, size: int) -> dict[str, Tensor]:
    """The tensors by name; nothing is read that the file does not have, however its header lies."""
    length = int.from_bytes(opened.read(8), "little")
    if size < 8 or length > min(size - 8, _LONGEST_HEADER):
        raise _broken(path, f"its header is said to have {length} bytes, the file has {size}")
    try:
        header = json.loads(opened.read(length))
    except (ValueError, RecursionError):
        raise _broken(path, "its header is no JSON") from None
    if not isinstance(header, dict):
        raise _broken(path, "its header is no JSON object")
    entries = {name: entry for name, entry in header.items() if name != "__metadata__"}
    start, left, tensors = 8 + length, size - 8 - length, {}
    for name, entry in entries.items():
        dtype, shape, first, last = _entry(path, name, entry, size - start)
        left -= last - first
        if left < 0:
            raise _broken(path, f"its tensors have more bytes than the file, at {name[:80]!r}")
        opened.seek(start + first)
        flat = torch.frombuffer(bytearray(opened.read(last - first)), dtype=dtype) if last > first else torch.empty(0)
        tensors[name] = flat.to(dtype).reshape(shape)
    return tensors


def _entry(path: str, name: str, entry: Any, size: int) -> tuple[torch.dtype, list[int], int, int]:
    """A tensor's dtype, shape and place among `size` bytes, if they agree with each other."""
    said = entry if isinstance(entry, dict) else {}
    shape, place = said.get("shape"), said.get("data_offsets")
    for numbers in (shape, place):
        if not isinstance(numbers, list) or not all(type(n) is int and 0 <= n < 2**63 for n in numbers):
            raise _broken(path, f"of {name[:80]!r} it does not say shape and data_offsets")
    assert isinstance(shape, list)
    assert isinstance(place, list)
    dtype = _DTYPES.get(str(said.get("dtype")))
    if dtype is None:
        raise _broken(path, f"{name[:80]!r} is of dtype {said.get('dtype')!r:.20}, should be of {', '.join(_DTYPES)}")
    if len(place) != 2 or not place[0] <= place[1] <= size:
        raise _broken(path, f"{name[:80]!r} lies at {str(place)[:60]}, outside the file's {size} bytes of tensors")
    if place[1] - place[0] != math.prod(shape) * dtype.itemsize:
        raise _broken(
            path, f"{name[:80]!r} has {place[1] - place[0]} bytes, which are no {str(shape)[:60]} of {said['dtype']}"
        )
    return dtype, shape, place[0], place[1]


def _broken(path: str, why: str) -> LearningError:
    return LearningError(f"weights: {path} is no safetensors file that can be read: {why}")
