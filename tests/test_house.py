"""Which room may import which: `make lint` fails on a wrong-way import, late and TYPE_CHECKING ones included."""

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("importlinter", reason="import-linter is not installed")

HERE = Path(__file__).parents[1]
WRONG = {
    "methods/drift.py": "\n\ndef late() -> object:\n    from mpt.federation import engine\n\n    return engine\n",
    "core/sums.py": "\nfrom typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n    from mpt.tracking import Tracker\n",
    "protocol/local.py": "\nimport torch\n",
}


def lint(folder):
    program = Path(sys.executable).with_name("lint-imports")
    return subprocess.run(
        [program, "--no-cache"], cwd=folder, env={**os.environ, "PYTHONPATH": str(folder / "src")},
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip


@pytest.fixture
def house(tmp_path):
    shutil.copytree(HERE / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(HERE / "pyproject.toml", tmp_path)
    return tmp_path


def test_no_room_imports_one_above_it(house):
    done = lint(house)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_way_import_is_found(house, name):
    path = house / "src" / "mpt" / name
    path.write_text(path.read_text() + WRONG[name])
    done = lint(house)
    assert done.returncode == 1
    assert f"mpt.{name.removesuffix('.py').replace('/', '.')} ->" in done.stdout


def test_a_module_that_belongs_to_no_room_is_found(house):
    (house / "src" / "mpt" / "odds_and_ends.py").write_text('"""Nobody knows."""\n')
    assert "odds_and_ends" in lint(house).stdout


def test_the_files_that_the_docs_name_are_there():
    text = (HERE / "docs" / "explanation" / "architecture.md").read_text()
    named = set(re.findall(r"`((?:[a-z_]+/)*[a-z_0-9]+\.py)`", text))
    assert len(named) > 30
    assert [name for name in sorted(named) if not (HERE / "src" / "mpt" / name).is_file()] == []


def test_the_algorithm_is_called_by_methods_alone():
    """`deposit` and `reconstruct` of the core, by whatever name they are imported."""
    for path in sorted((HERE / "src" / "mpt").rglob("*.py")):
        room = path.relative_to(HERE / "src" / "mpt").parts[0]
        if room not in ("core", "methods", "__init__.py"):
            assert not _imports(path.read_text()) & {"deposit", "reconstruct"}, path


def test_the_house_is_tidy():
    """Few files beside the rooms; no function over 80 lines; no public class is defined twice."""
    package = HERE / "src" / "mpt"
    assert len([path for path in package.iterdir() if path.is_file()]) <= 6
    defined, long = {}, {}
    for path in sorted(package.rglob("*.py")):
        tree = ast.parse(path.read_text())
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                defined.setdefault(node.name, []).append(str(path.relative_to(package)))
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and node.end_lineno - node.lineno >= 80:
                long[f"{path.relative_to(package)}: {node.name}"] = node.end_lineno - node.lineno + 1
    assert long == {}
    assert {name: places for name, places in defined.items() if len(places) > 1} == {}


def test_every_error_is_one():
    """But for what is no user's fault, which says so by what it is derived from."""
    errors = {}
    for path in sorted((HERE / "src" / "mpt").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and node.name.endswith("Error"):
                errors[node.name] = [base.id for base in node.bases]
    roots = {name for name, (base, *_) in errors.items() if base not in errors}
    assert roots == {"MptError", "LockedError", "BrokenError", "UnansweredError"}
    assert errors["MptError"] == ["ValueError"]


def test_the_contributing_page_names_places_that_are_there():
    text = (HERE / "CONTRIBUTING.md").read_text()
    for name, path in re.findall(r"`([A-Z]+)` in `([a-z_/]+\.py)`", text):
        assert re.search(rf"^{name}\b", (HERE / "src" / "mpt" / path).read_text(), re.MULTILINE), (name, path)


def _imports(text):
    """The names that a file imports from the core."""
    nodes = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.ImportFrom)]
    return {a.name for n in nodes if n.module and n.module.split(".")[:2] == ["mpt", "core"] for a in n.names}
