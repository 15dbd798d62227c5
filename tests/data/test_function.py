import sys
import textwrap

import numpy as np
import pytest

from mpt.data import DataError, load

from .samples import assert_one_sentence, make_dataset

MODULE = """
import numpy as np
from mpt.data import DataError, Dataset, Split

IMAGES, LABELS = np.arange(4 * 8 * 8 * 3).reshape(4, 8, 8, 3).astype(np.uint8), np.array([0, 1, 0, 1])
CLASSES = ("car", "truck")
number = 7

def arrays():
    return CLASSES, IMAGES, LABELS, IMAGES[:2], LABELS[:2]

def dataset():
    return Dataset("mine", CLASSES, Split(IMAGES, LABELS), Split(IMAGES, LABELS))

def lazy():
    import my_other_roads
    return my_other_roads.CLASSES, IMAGES, LABELS, IMAGES, LABELS

class Holder:
    @staticmethod
    def make():
        return dataset()

def nothing(): return None
def four(): return CLASSES, IMAGES, LABELS, IMAGES
def real(): return CLASSES, IMAGES / 255, LABELS, IMAGES, LABELS
def failing(): raise RuntimeError("the disk\\nis full")
def refusing(): raise DataError("sets: none today, should be tomorrow")
def demanding(path): return dataset()
"""


@pytest.fixture(autouse=True)
def folder_with_modules(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_roads.py").write_text(textwrap.dedent(MODULE))
    (tmp_path / "my_other_roads.py").write_text("CLASSES = ('a', 'b')\n")
    (tmp_path / "my_broken_roads.py").write_text("def oops(:\n")
    (tmp_path / "my_needy_roads.py").write_text("import no_such_package_at_all\n")
    yield
    for name in [name for name in sys.modules if name.startswith("my_")]:
        del sys.modules[name]


def test_a_function_in_the_current_folder_returns_arrays():
    before = list(sys.path)
    dataset = load("my_roads:arrays")
    assert sys.path == before
    assert (dataset.name, dataset.classes) == ("arrays", ("car", "truck"))
    assert (len(dataset.train), len(dataset.test)) == (4, 2)
    assert load("my_roads:arrays", image_size=16).image_shape == (16, 16, 3)


def test_a_function_returns_a_dataset():
    assert load("my_roads:dataset").name == "mine"
    assert load("my_roads:Holder.make").fingerprint() == load("my_roads:dataset").fingerprint()


def test_a_function_may_import_from_the_current_folder():
    assert load("my_roads:lazy").classes == ("a", "b")


def test_a_function_of_an_installed_package():
    assert np.array_equal(load("tests.data.samples:make_dataset").train.images, make_dataset().train.images)


CASES = {
    "no module": (
        "no_such_module:f",
        "no module 'no_such_module' can be imported from .*; a file is written as path.py:f",
    ),
    "no module in a package": ("mpt.none:f", "no module 'mpt.none' can be imported from"),
    "no package": ("none.at.all:f", "no module 'none.at.all' can be imported from"),
    "no function": (
        "my_roads:none",
        "my_roads:none: my_roads has no 'none', should be one of its functions or classes$",
    ),
    "no method": (
        "my_roads:Holder.none",
        "my_roads:Holder.none: my_roads has no 'none', should be one of its functions or",
    ),
    "a number": ("my_roads:number", "number is of type int, should be a function or a Dataset"),
    "a broken module": ("my_broken_roads:f", r"my_broken_roads cannot be imported \(SyntaxError: .*line 1\)"),
    "a module that needs another": (
        "my_needy_roads:f",
        r"my_needy_roads cannot be imported \(ModuleNotFoundError: No module named 'no_such_package_at_all'\)",
    ),
    "nothing returned": ("my_roads:nothing", "the function returned NoneType, should be a Dataset or"),
    "too little returned": ("my_roads:four", "the function returned tuple of 4, should be a Dataset or"),
    "real images returned": ("my_roads:real", "the function returned wrong images: dtype is float64, should be uint8"),
    "a function that fails": (
        "my_roads:failing",
        r"failed \(RuntimeError: the disk is full\), should return a Dataset",
    ),
    "a function with an argument": ("my_roads:demanding", r"failed \(TypeError: .*path.*\), should return a Dataset"),
    "a function that refuses": ("my_roads:refusing", "^sets: none today, should be tomorrow$"),
}
SAYS_WHY = {"no module", "no module in a package", "no package"}
"""What would be right is said without the word should."""


@pytest.mark.parametrize("case", CASES)
def test_bad_input_is_refused_with_a_sentence(case):
    spec, message = CASES[case]
    with pytest.raises(DataError, match=message) as raised:
        load(spec)
    text = str(raised.value)
    assert "\n" not in text
    assert text.startswith((spec, "sets", f"dataset: {spec!r} is none that is known"))
    if case not in SAYS_WHY:
        assert_one_sentence(raised)
