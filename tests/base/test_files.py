import os
import sys

from mpt.base.files import importable


def test_what_others_add_to_the_path_meanwhile_stays(tmp_path, monkeypatch):
    """Another thread imports Ray, say, which puts a folder of its own there."""
    monkeypatch.setattr(sys, "path", [*sys.path, os.getcwd()])
    before = list(sys.path)
    with importable(tmp_path):
        assert sys.path[:2] == [str(tmp_path), os.getcwd()]
        sys.path.append("theirs")
        sys.path.insert(0, str(tmp_path))
    assert sys.path == [str(tmp_path), *before, "theirs"]
