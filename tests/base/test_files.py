import os
import sys

import pytest

from mpt.base.files import importable, write_atomically


def test_what_cannot_be_put_in_its_place_leaves_nothing(tmp_path):
    (tmp_path / "model.onnx").mkdir()
    for private in (False, True):
        with pytest.raises(IsADirectoryError):
            write_atomically(tmp_path / "model.onnx", b"weights", private=private)
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]


def test_what_others_add_to_the_path_meanwhile_stays(tmp_path, monkeypatch):
    """Another thread imports Ray, say, which puts a folder of its own there."""
    monkeypatch.setattr(sys, "path", [*sys.path, os.getcwd()])
    before = list(sys.path)
    with importable(tmp_path):
        assert sys.path[:2] == [str(tmp_path), os.getcwd()]
        sys.path.append("theirs")
        sys.path.insert(0, str(tmp_path))
    assert sys.path == [str(tmp_path), *before, "theirs"]
