"""Extension points: what is built in by its name, what is a user's own by where it is, both with arguments."""

import sys
import types

import pytest

from mpt.base.errors import MptError
from mpt.base.extensions import Builtin, Extensions, files_of, split


class ThingError(MptError):
    pass


class Plain:
    def __init__(self, size=1, *, colour="red"):
        self.size, self.colour = size, colour


POINT = Extensions(
    "thing", {"plain": Builtin(Plain, "a plain one", ("colour",)), "plain:big": Builtin(Plain, "a big one")}, ThingError
)
FUNCTIONS = Extensions("function", {"plain": Builtin(Plain, "no function")}, ThingError, own="path.py:f", bound=True)
OWN = """
calls = []

class Mine:
    name = "mine"
    def __init__(self, *given, lam=0.5, names=()):
        self.given, self.lam, self.names = given, lam, names
    class Inner:
        pass

def scale(x, by=2):
    return x * by

instance = Mine()
broken = 3

class Refusing:
    def __init__(self):
        raise ValueError("not\\n  today")
"""


@pytest.fixture
def own(tmp_path):
    path = tmp_path / "folder (1)" / "mine.py"
    path.parent.mkdir()
    path.write_text(OWN)
    return path


def test_what_is_built_in_is_made_with_its_arguments_and_the_settings_it_takes():
    made = POINT.find("plain", colour="blue", weight=3)
    assert (made.size, made.colour) == (1, "blue")
    made = POINT.find("plain(4, colour='green')", colour="blue")
    assert (made.size, made.colour) == (4, "green")
    assert POINT.find("plain:big").colour == "red"
    assert list(POINT) == ["plain", "plain:big"]
    assert "plain" in POINT
    assert POINT.listed() == [("plain", "a plain one"), ("plain:big", "a big one"), ("path.py:Class", "your own")]
    assert POINT.about("plain(3)") == "a plain one"


def test_a_users_own_is_found_in_a_file_with_arguments(own):
    made = POINT.find(f"{own}:Mine(lam=0.3, names=['a, b', '(c'])")
    assert (made.lam, made.names, type(made).__name__) == (0.3, ["a, b", "(c"], "Mine")
    assert POINT.find(f"{own}:Mine", "given", colour="blue").given == ("given",)
    assert POINT.find(f"{own}:instance") is POINT.find(f"{own}:instance"), "a file is read once"
    assert type(POINT.find(f"{own}:Mine.Inner")).__name__ == "Inner"
    assert POINT.find(f"{own}:scale(3)", 2) == 6
    assert FUNCTIONS.find(f"{own}:scale(by=5)")(2) == 10
    assert FUNCTIONS.find(f"{own}:scale")(2) == 4


def test_a_users_own_is_found_in_a_module_that_can_be_imported(own, monkeypatch):
    monkeypatch.chdir(own.parent)
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    assert POINT.find("mine:Mine(lam=2)").lam == 2
    assert POINT.find("mine.py:Mine(lam=2)").lam == 2
    assert POINT.file_of("mine:Mine") == own
    assert POINT.file_of("collections:OrderedDict").name == "__init__.py"
    monkeypatch.delitem(sys.modules, "mine")


def test_a_file_that_has_changed_is_another_module(own):
    first = POINT.find(f"{own}:Mine")
    own.write_text(OWN.replace("lam=0.5", "lam=0.7"))
    assert (first.lam, POINT.find(f"{own}:Mine").lam) == (0.5, 0.7)


def test_a_file_is_looked_for_where_python_imports_from(own, monkeypatch):
    """As in a Flower app, whose files are bundled."""
    monkeypatch.syspath_prepend(str(own.parent))
    assert POINT.find("mine.py:Mine").lam == 0.5


def test_files_are_known_by_their_content(own):
    pairs = [(POINT, "plain"), (POINT, f"{own}:Mine(lam=2)"), (FUNCTIONS, f"{own}:scale")]
    known = files_of(pairs)
    assert list(known) == [f"{own}:Mine(lam=2)", f"{own}:scale"]
    assert len(set(known.values())) == 1
    own.write_text(OWN + "\n")
    assert files_of(pairs)[f"{own}:scale"] != known[f"{own}:scale"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("plian", "thing: 'plian' is none, did you mean plain?"),
        ("x", "thing: 'x' is none, should be one of plain, plain:big, or path.py:Class of your own"),
        ("plain:bog", "thing: 'plain:bog' is none, did you mean plain:big?"),
        ("nowhere.py:Mine", "thing: there is no file nowhere.py"),
        (
            "no.such.module:Mine",
            "thing: 'no.such.module:Mine' is none, no module 'no.such.module' can be imported from ",
        ),
        ("{own}:Other", "thing: {own} has no 'Other', should be one of its functions or classes"),
        ("{own}:", "thing: '{own}:' has nothing after the colon, should be like path.py:Class"),
        ("{own}:Refusing", "thing: {own}:Refusing cannot be made (ValueError: not today)"),
        ("{own}:Mine(lam=x)", "thing: '{own}:Mine(lam=x)', arguments should be literals: numbers, texts in quotes"),
        ("{own}:Mine(lam=__import__('os'))", "arguments should be literals"),
        ("{own}:Mine(size=3)", "thing: {own}:Mine has no argument size; it has lam"),
        ("{own}:broken(3)", "thing: {own}:broken is no class and no function, should have no arguments"),
        ("plain(3", "thing: 'plain(3' has brackets that do not match, should be like path.py:Class(size=3)"),
        ("{own}:Mine(**{{'lam': 3}})", "arguments should be literals"),
        ("plain(weight=3)", "thing: plain has no argument weight; it has "),
    ],
)
def test_what_is_wrong_is_one_sentence(own, text, message):
    with pytest.raises(ThingError) as caught:
        POINT.find(text.format(own=own))
    assert message.format(own=own) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_does_not_import_is_said_and_tried_again_once_it_does(own):
    own.write_text("import nothing_of_that_name")
    with pytest.raises(ThingError, match=r"mine\.py does not import \(ModuleNotFoundError: "):
        POINT.find(f"{own}:Mine")
    own.write_text("raise SystemExit(3)")
    with pytest.raises(ThingError, match=r"does not import \(SystemExit: 3\)"):
        POINT.find(f"{own}:Mine")
    own.write_text(OWN)
    assert POINT.find(f"{own}:Mine").lam == 0.5


def test_what_lies_beside_a_file_can_be_imported_by_it(own, monkeypatch):
    (own.parent / "my_helper_of_things.py").write_text("SIZE = 7")
    own.write_text(OWN + "\nfrom my_helper_of_things import SIZE\n\ndef sized():\n    return SIZE\n")
    assert POINT.find(f"{own}:sized") == 7
    monkeypatch.delitem(sys.modules, "my_helper_of_things")


def test_a_package_that_raises_is_one_sentence(tmp_path, monkeypatch):
    (tmp_path / "my_broken_things").mkdir()
    (tmp_path / "my_broken_things" / "__init__.py").write_text("raise RuntimeError('no')")
    monkeypatch.chdir(tmp_path)
    for text in ("my_broken_things:f", "my_broken_things.inner:f"):
        with pytest.raises(ThingError, match=r"cannot be imported \(RuntimeError: no\), should import cleanly"):
            POINT.find(text)


def test_what_is_defined_in_a_script_or_notebook_is_found(monkeypatch):
    module = types.ModuleType("my_notebook")
    module.Mine = Plain
    monkeypatch.setitem(sys.modules, "my_notebook", module)
    assert POINT.find("my_notebook:Mine(5)").size == 5
    assert POINT.file_of("my_notebook:Mine") is None
    assert files_of([(POINT, "my_notebook:Mine")]) == {}


def test_lists_are_split_at_commas_outside_brackets_and_quotes():
    assert split("a, b(c=1, d=(2, 3)), it's/x.py:Y, e.py:F(g=\"h, )\")") == (
        "a", "b(c=1, d=(2, 3))", "it's/x.py:Y", 'e.py:F(g="h, )")'
    )  # fmt: skip
    assert split(" , ") == ()
