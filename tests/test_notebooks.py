"""The notebooks of examples/notebooks run in a Jupyter kernel, and show there what they say they show."""

import importlib.util
import re
from pathlib import Path

import pytest

NEEDED = ("torch", "pandas", "matplotlib", "ipykernel", "mlflow", "sqlalchemy")
for package in NEEDED:  # the kernel imports them, this process does not
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed, the extras dev and track bring it", allow_module_level=True)
nbclient = pytest.importorskip("nbclient", reason="the extra dev is not installed")
nbformat = pytest.importorskip("nbformat", reason="the extra dev is not installed")

ROOT = Path(__file__).parents[1]
FILES = {path.stem: path for path in sorted((ROOT / "examples" / "notebooks").glob("*.py"))}
MINE = "%reset -f"
pytestmark = pytest.mark.filterwarnings("ignore")


def cells(text):
    """The code between `# %%` lines; what is a comment there is a page's text."""
    found = []
    for part in re.split(r"(?m)^# %%\n", text.split('"""\n', 2)[-1]):
        code = re.sub(r"\A(?:#.*\n)*", "", part).strip()
        found += [code] if code else []
    return found


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """By notebook, the outputs of its cells. One kernel runs all, one after the other: torch is imported once."""
    home = tmp_path_factory.mktemp("jupyter")
    book, whose = nbformat.v4.new_notebook(), []
    for name, path in FILES.items():
        for code in (MINE, *cells(path.read_text())):
            book.cells.append(nbformat.v4.new_code_cell(code))
            whose.append(name)
    env = {"JUPYTER_RUNTIME_DIR": str(home), "IPYTHONDIR": str(home), "MLFLOW_DISABLE_TELEMETRY": "true"}
    with pytest.MonkeyPatch.context() as patch:
        for variable, value in env.items():
            patch.setenv(variable, value)
        nbclient.NotebookClient(book, timeout=300, kernel_name="python3").execute(cwd=str(home))
    found = {name: [] for name in FILES}
    for name, cell in zip(whose, book.cells, strict=True):
        found[name] += cell.outputs
    return found


def texts(outputs, kind):
    return [one.data[kind] for one in outputs if "data" in one and kind in one.data]


def printed(outputs):
    return "".join(one.text for one in outputs if one.output_type == "stream" and one.name == "stdout")


def test_there_are_four_and_each_says_what_it_needs_and_where_to_read_on():
    assert list(FILES) == ["release", "result", "scikit_learn", "your_data"]
    for path in FILES.values():
        title, line, *words = path.read_text().removeprefix('"""\n').split('"""')[0].strip().splitlines()
        assert line == "=" * len(title)
        assert "needs" in " ".join(words)
        assert "# Read on: :doc:`/" in path.read_text().split("# %%\n")[-1]
        for page in re.findall(r":doc:`/([\w/-]+)`", path.read_text()):
            assert (ROOT / "docs" / f"{page}.md").is_file(), page


def test_a_result_shows_itself_its_picture_and_its_tables(shown):
    html = texts(shown["result"], "text/html")
    assert any("F1 of" in one and "on digits" in one and "data:image/svg+xml" in one for one in html)
    assert texts(shown["result"], "image/png"), "plot_f1"
    assert any("mpt-x" in one and "dataframe" in one for one in html)
    assert any("mpt-x" in one and "mpt" in one for one in texts(shown["result"], "text/plain")), "compare"


@pytest.mark.parametrize(("name", "rounds"), [("result", 6), ("release", 4), ("your_data", 4)])
def test_a_run_shows_how_far_it_is_and_the_bar_ends(shown, name, rounds):
    (bar,) = [one for one in texts(shown[name], "text/html") if "<progress" in one]
    seeds = 2 if name == "result" else 1
    assert f'value="{seeds * rounds}" max="{seeds * rounds}"' in bar
    assert re.search(r": done after \d+ s", bar)
    assert re.search(r"F1: .*mpt-x \d\.\d{3}", bar)


def test_the_classifier_keeps_the_class_that_is_gone(shown):
    said = printed(shown["scikit_learn"])
    frozen, kept = (int(one) for one in re.findall(r": (\d+)% of the eights", said))
    assert (frozen < 20, kept > 70) == (True, True)
    assert any("<table>" in one for one in texts(shown["scikit_learn"], "text/html"))


def test_a_release_is_refused_registered_and_fetched(shown):
    said = printed(shown["release"])
    assert re.search(
        r"require: 8 is \w+; every class that is not measured should be good, nothing was written\nFalse", said
    )
    assert "in MLflow's registry as version 1 of eights, which 'candidate' means from now on" in said
    assert said.endswith("True\n")


def test_three_kinds_of_data_are_read(shown):
    kinds = [one for one in texts(shown["your_data"], "text/plain") if "classes" in one]
    assert len(kinds) == 3
