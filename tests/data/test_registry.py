import subprocess
import sys

import numpy as np
import pytest

from mpt.data import LOADERS, DataError, load, usages

from .samples import assert_one_sentence

CASES = {
    "nothing": (lambda: load(""), "dataset: '' is none that is known, should be one of road"),
    "an unknown word": (
        lambda: load("street"),
        "dataset: 'street' is none that is known, .* hf:NAME.*path.py:function",
    ),
    "a wrong form of a function": (lambda: load("my module:f"), "is none that is known"),
    "something else": (lambda: load(7), "dataset: int, should be a text"),
    "a target where there is none": (lambda: load("road:3"), "dataset: 'road:3', should be road"),
    "a colon where there is none": (lambda: load("digits:"), "should be digits"),
    "no target": (lambda: load("parquet:"), "dataset: 'parquet:', should be parquet:PREFIX"),
    "no colon": (lambda: load("folder"), "dataset: 'folder', should be folder:PATH"),
    "an unknown option": (
        lambda: load("road?trian=3"),
        "no option 'trian' for road, should be one of train, test, seed",
    ),
    "an option where there is none": (lambda: load("folder:a?b=1"), "no option 'b' for folder, should be left out"),
    "an option without a value": (lambda: load("road?train"), "options are 'train', should be like a=1&b=2"),
    "an option twice": (lambda: load("road?train=1&train=2"), "should be like a=1&b=2, each name once"),
    "options of a function": (lambda: load("collections:abc?d=1"), r"brackets, should be like collections:abc\(d=1\)"),
    "no number": (lambda: load("road?train=many"), "train is 'many', should be an integer of at least 1"),
    "a number too low": (lambda: load("road?test=0"), "test is '0', should be an integer of at least 1"),
    "a negative seed in the spec": (lambda: load("road?seed=-1"), "seed is '-1', should be an integer of at least 0"),
    "a negative seed": (lambda: load("road", seed=-1), "seed: -1, should not be negative"),
    "no samples wanted": (lambda: load("road", per_class=0), "per_class: 0, should be at least 1"),
    "images too small": (lambda: load("road", image_size=4), "image_size: 4, should be 8 to 1024"),
    "images too large": (lambda: load("road", image_size=5000), "image_size: 5000, should be 8 to 1024"),
}


@pytest.mark.parametrize("case", CASES)
def test_bad_input_is_refused_with_a_sentence(case):
    call, message = CASES[case]
    with pytest.raises(DataError, match=message) as raised:
        call()
    assert_one_sentence(raised)


MEANT = {
    "a NumPy file": ("arr.npz", "npz:arr.npz"),
    "a NumPy file that is not there": ("none/arr.npz?kind=images", "npz:none/arr.npz?kind=images"),
    "a file of features": ("five.npz", "features:five.npz"),
    "a folder": ("png", "folder:png"),
    "a folder that is called like a public set": ("mnist", "folder:mnist"),
    "a table": ("list.csv", "csv:list.csv"),
    "Parquet": ("cars-train.parquet", "parquet:cars"),
    "one Parquet file": ("cars.parquet", "parquet:cars.parquet"),
    "a program": ("mine.py", "mine.py:function"),
}


@pytest.mark.parametrize("case", MEANT)
def test_of_a_path_alone_the_spec_is_named(case, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("arr.npz", x=np.zeros(3))
    np.savez("five.npz", features_1=np.zeros(3))
    for name in ("png", "mnist"):
        (tmp_path / name).mkdir()
    (tmp_path / "mine.py").write_text("")
    given, meant = MEANT[case]
    with pytest.raises(DataError) as raised:
        load(given)
    assert str(raised.value) == f"dataset: {given!r} is none that is known, did you mean {meant}?"


def test_every_loader_has_one_line():
    assert list(LOADERS) == [
        *("road", "digits", "motion", "parquet", "folder", "nuimages", "car1000", "npz", "features", "csv", "hf")
    ]
    lines = usages()
    assert next(iter(lines)) == "road?train=...&test=...&seed=..."
    assert list(lines)[-1] == "path.py:function"
    assert all(0 < len(text) < 100 and "\n" not in text for text in lines.values())


def test_the_package_and_what_needs_no_more_work_with_numpy_and_scipy_alone(tmp_path):
    """A finder that refuses every other distribution, then road, npz and a sentence where something is missing."""
    code = f"""
import importlib.metadata, sys
allowed = {{"numpy", "scipy", "mpt"}}
installed = set(importlib.metadata.packages_distributions())
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in (installed | {{"datasets"}}) - allowed:
            raise ImportError(f"{{name}} is refused")
sys.meta_path.insert(0, Refuse())
from pathlib import Path
import mpt.data
road = mpt.data.load("road?train=2&test=1")
path = mpt.data.save_npz(road, {str(tmp_path / "road.npz")!r})
assert mpt.data.load(f"npz:{{path}}").fingerprint() == road.fingerprint()
assert mpt.data.load(f"npz:{{path}}", image_size=16).image_shape == (16, 16, 3)
folder = Path({str(tmp_path / "set")!r})
for which in ("train", "test"):
    (folder / f"x-{{which}}.parquet").parent.mkdir(exist_ok=True)
    (folder / f"x-{{which}}.parquet").write_bytes(b"")
    for name in ("a", "b"):
        (folder / which / name).mkdir(parents=True)
        (folder / which / name / "1.png").write_bytes(b"")
for spec in ("digits", f"parquet:{{folder}}/x", f"folder:{{folder}}", "hf:cifar10"):
    try:
        mpt.data.load(spec)
    except mpt.data.DataError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    needs = ["scikit-learn", "pyarrow", "Pillow", "the package datasets"]
    assert [line.split(": needs ")[1].split(", which is not installed; pip install ")[0] for line in lines] == needs
