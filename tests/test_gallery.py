"""The examples of the gallery, without running them: `make docs` does that."""

import ast
import re
from dataclasses import fields
from importlib import import_module
from pathlib import Path

import pytest

from mpt.base.seeds import Series
from mpt.pages.styles import styles_of

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples" / "gallery").glob("*.py"))


@pytest.fixture(params=EXAMPLES, ids=[path.stem for path in EXAMPLES])
def text(request):
    return request.param.read_text()


@pytest.fixture
def tree(text):
    compile(text, "an example", "exec")
    return ast.parse(text)


def test_there_are_seven():
    assert len(EXAMPLES) == 7
    assert all(path.stem.startswith("plot_") for path in EXAMPLES)


def test_each_begins_with_a_title_and_says_what_it_needs(tree):
    title, line, nothing, *words = ast.get_docstring(tree).splitlines()
    assert line == "=" * len(title)
    assert nothing == ""
    assert len(words) >= 2
    assert "needs" in " ".join(words)


def test_each_draws_one_picture_and_ends_with_what_it_shows_and_where_to_read_on(text):
    assert len(re.findall(r"plt\.(subplots|figure)\(", text)) == 1
    last = text.split("# %%\n")[-1]
    assert last.startswith("# The picture shows ")
    assert "# Read on: :doc:`/" in last
    for page in re.findall(r":doc:`/([\w/-]+)`", text):
        assert (ROOT / "docs" / f"{page}.md").is_file(), page


def test_the_names_that_each_takes_from_mpt_exist(tree):
    pytest.importorskip("torch", reason="the extra sim is not installed")
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module.partition(".")[0] == "mpt":
            if "flower" in node.module:
                pytest.importorskip("flwr", reason="the extra fleet is not installed")
            module = import_module(node.module)
            assert [alias.name for alias in node.names if not hasattr(module, alias.name)] == []
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "mpt":
            assert hasattr(import_module("mpt"), node.attr), node.attr


def test_the_settings_and_commands_that_each_uses_exist(text, tree):
    pytest.importorskip("typer", reason="the extra sim is not installed")
    from mpt.cli.main import app  # noqa: PLC0415
    from mpt.runs.config import RunConfig  # noqa: PLC0415

    known = {field.name for field in fields(RunConfig)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "mpt.RunConfig":
            assert {keyword.arg for keyword in node.keywords} <= known
    commands = {command.name or command.callback.__name__ for command in app.registered_commands}
    assert set(re.findall(r'command\(\s*"([\w-]+)"', text)) <= commands


def test_a_method_has_the_colour_that_it_has_everywhere(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "COLOURS":
            colours = ast.literal_eval(node.value)
            house = styles_of([Series(name, "") for name in colours])
            assert colours == {row.method: style.light for row, style in house.items()}
