"""Files of weights: safetensors as its specification has them, torch's with tensors alone."""

import contextlib
import hashlib
import json
import pickle
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="mpt.learning needs torch, which is not installed")

from mpt.learning import LearningError
from mpt.learning.weights_file import known_by, read

ARRAYS = {
    "F64": np.arange(6, dtype="<f8").reshape(2, 3) / 7,
    "F32": np.arange(6, dtype="<f4").reshape(3, 1, 2) / 7,
    "F16": np.arange(3, dtype="<f2") / 7,
    "I64": np.array(-(2**40), dtype="<i8"),
    "I32": np.arange(-2, 2, dtype="<i4"),
    "I16": np.arange(-2, 2, dtype="<i2"),
    "I8": np.arange(-2, 2, dtype="i1"),
    "U8": np.arange(250, 255, dtype="u1"),
    "BOOL": np.array([True, False, True]),
}


def header_of(arrays):
    header, at = {}, 0
    for name, (dtype, array) in arrays.items():
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    return header


def packed(header, data=b"", *, length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def read_bytes(tmp_path, data):
    path = tmp_path / "w.safetensors"
    path.write_bytes(data)
    return read(str(path))


def test_safetensors_of_every_dtype(tmp_path):
    arrays = {f"a {dtype}": (dtype, array) for dtype, array in ARRAYS.items()}
    arrays["none"] = ("F32", np.zeros((0, 3), "<f4"))
    header = {"__metadata__": {"format": "pt"}, **header_of(arrays)}
    found = read_bytes(tmp_path, packed(header, b"".join(a.tobytes() for _, a in arrays.values())))
    assert list(found) == list(arrays)
    for name, (_, array) in arrays.items():
        assert np.array_equal(found[name].numpy(), array)
        assert found[name].numpy().dtype == array.dtype
    numbers = torch.tensor([[1.5, -3.0]], dtype=torch.bfloat16)
    entry = {"dtype": "BF16", "shape": [1, 2], "data_offsets": [0, 4]}
    halves = read_bytes(tmp_path, packed({"h": entry}, numbers.view(torch.int16).numpy().tobytes()))["h"]
    assert halves.dtype is torch.bfloat16
    assert torch.equal(halves, numbers)


ENTRY = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "its header is said to have 0 bytes, the file has 0"),
        (b"abc", "the file has 3"),
        (packed({}, length=2**60), f"its header is said to have {2**60} bytes, the file has 10"),
        (packed(b"[" * 100_000), "its header is no JSON"),
        (packed(b"\xff\xfe"), "its header is no JSON"),
        (packed([1]), "its header is no JSON object"),
        (packed({"a": 3}), "of 'a' it does not say shape and data_offsets"),
        (packed({"a": {"dtype": "F32", "shape": [2]}}), "does not say shape and data_offsets"),
        (packed({"a": ENTRY | {"shape": [-2]}}, bytes(8)), "does not say shape and data_offsets"),
        (packed({"a": ENTRY | {"shape": [True]}}, bytes(8)), "does not say shape and data_offsets"),
        (packed({"a": ENTRY | {"shape": [2**70, 0]}}, bytes(8)), "does not say shape and data_offsets"),
        (packed({"a": ENTRY | {"dtype": "F8_E4M3"}}, bytes(8)), "'a' is of dtype 'F8_E4M3', should be of F64, F32"),
        (packed({"a": ENTRY | {"dtype": ["F32"]}}, bytes(8)), "is of dtype"),
        (packed({"a": ENTRY}, bytes(7)), r"'a' lies at \[0, 8\], outside the file's 7 bytes"),
        (packed({"a": ENTRY | {"data_offsets": [8, 0]}}, bytes(8)), "outside the file's 8 bytes"),
        (packed({"a": ENTRY | {"data_offsets": [0, 4, 8]}}, bytes(8)), "outside the file's 8 bytes"),
        (packed({"a": ENTRY | {"shape": [3]}}, bytes(8)), r"'a' has 8 bytes, which are no \[3\] of F32"),
        (packed({"a": ENTRY, "b": ENTRY}, bytes(8)), "its tensors have more bytes than the file, at 'b'"),
    ],
)
def test_a_broken_or_hostile_safetensors_file_is_a_sentence(tmp_path, data, message):
    with pytest.raises(LearningError, match=rf"weights: .*w\.safetensors is no safetensors file .*{message}"):
        read_bytes(tmp_path, data)


@given(st.binary(max_size=40), st.integers(0, 60))
def test_whatever_is_in_the_file_tensors_or_a_sentence(tmp_path_factory, noise, at):
    data = bytearray(packed({"a": ENTRY}, np.array([1, 2], "<f4").tobytes()))
    data[at : at + len(noise)] = noise
    found = {}
    with contextlib.suppress(LearningError):
        found = read_bytes(tmp_path_factory.getbasetemp(), bytes(data))
    assert sum(tensor.numel() * tensor.element_size() for tensor in found.values()) <= len(data)


def test_torchs_own_files_new_and_old(tmp_path):
    state = {"a": torch.arange(3.0)}
    for old in (True, False):
        torch.save(state, tmp_path / "w.pth", _use_new_zipfile_serialization=not old)
        assert torch.equal(read(str(tmp_path / "w.pth"))["a"], state["a"])


class Bomb:
    def __reduce__(self):
        return (pytest.fail, ("code of the file was run",))


NO_TENSORS = r"weights: .*w\.pt holds something else than tensors, or is broken"


def test_no_code_of_a_file_is_run(tmp_path):
    torch.save({"a": Bomb()}, tmp_path / "w.pt")
    with pytest.raises(LearningError, match=rf"{NO_TENSORS} \(UnpicklingError\), should be"):
        read(str(tmp_path / "w.pt"))
    (tmp_path / "w.pt").write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(LearningError, match=NO_TENSORS):
        read(str(tmp_path / "w.pt"))


@pytest.mark.parametrize("data", [b"", b"not a pickle", b"PK\x03\x04 no archive"])
def test_nonsense_in_a_torch_file_is_a_sentence(tmp_path, data):
    (tmp_path / "w.pt").write_bytes(data)
    with pytest.raises(LearningError, match=rf"{NO_TENSORS} \(") as raised:
        read(str(tmp_path / "w.pt"))
    assert "\n" not in str(raised.value)


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_torchscript_is_refused(tmp_path):
    torch.jit.save(torch.jit.trace(torch.nn.Linear(2, 2), torch.zeros(1, 2)), tmp_path / "w.pt")
    with pytest.raises(LearningError, match=NO_TENSORS):
        read(str(tmp_path / "w.pt"))


def test_a_file_that_is_not_there(tmp_path):
    for path in (tmp_path / "none.pt", tmp_path):
        for ask in (read, known_by):
            with pytest.raises(LearningError, match=f"weights: there is no file {path}, should be a path from "):
                ask(str(path))


def test_a_file_is_known_by_its_content(tmp_path):
    (tmp_path / "a.pt").write_bytes(b"some")
    (tmp_path / "b.pt").write_bytes(b"some")
    assert (
        known_by(str(tmp_path / "a.pt")) == known_by(str(tmp_path / "b.pt")) == hashlib.sha256(b"some").hexdigest()[:16]
    )
