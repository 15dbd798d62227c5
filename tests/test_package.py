"""The package as others meet it: imports, the wheel, the README, the demo, the benchmarks."""

import csv
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import mpt

ROOT = Path(__file__).parents[1]


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=300, check=False, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_importing_mpt_imports_numpy_scipy_and_nothing_else():
    code = "import mpt, sys; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    loaded = set(run(sys.executable, "-c", code).split())
    assert {"numpy", "scipy"} <= loaded
    outsiders = {"torch", "flwr", "ray", "sklearn", "pandas", "ot", "typer", "rich", "pydantic", "matplotlib", "plotly"}
    assert not loaded & outsiders


def test_importing_mpt_imports_the_core_and_of_scipy_what_linear_algebra_needs():
    """So that it takes hardly longer than NumPy and SciPy by themselves; `benchmarks/import_time.py` measures it."""
    code = "import numpy, scipy.linalg, sys; before = set(sys.modules); import mpt; print(*sys.modules.keys() - before)"
    own = set(run(sys.executable, "-c", code).split())
    assert own >= {"mpt", "mpt.core.statistics"}
    assert {name for name in own if not name.startswith(("mpt.core", "mpt.base"))} == {"mpt", "mpt.version"}
    assert len(own) < 32


def test_rooms_come_when_asked_for():
    code = "import mpt, sys; print('mpt.data' in sys.modules, mpt.data.load.__name__, mpt.fleet.Tracker.__name__)"
    assert run(sys.executable, "-c", code).split() == ["False", "load", "Tracker"]
    assert {"data", "fleet", "methods"} <= set(dir(mpt))


def test_the_core_works_where_only_numpy_and_scipy_can_be_imported(tmp_path):
    """A finder that refuses every other distribution, then a departure."""
    code = """
import importlib.metadata, sys
allowed = {"numpy", "scipy", "mpt"}
installed = {m for ms in (importlib.metadata.packages_distributions(),) for m in ms}
class Refuse:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top in installed - allowed:
            raise ImportError(f"{name} is not NumPy or SciPy")
sys.meta_path.insert(0, Refuse())
import runpy
runpy.run_path("examples/core_tour.py", run_name="__main__")
import mpt
assert mpt.RunConfig(rounds=20).rounds == 20
try:
    mpt.simulate
except AttributeError as error:
    assert "pip install -c constraints.txt '.[sim]'" in str(error)
else:
    raise AssertionError("simulate is there without torch")
try:
    mpt.RunConfig(rounds=1)
except mpt.MptError as error:
    assert str(error) == "rounds: 1, should be at least 2"
"""
    assert "oracle-train" in run(sys.executable, "-c", code)


def test_the_version_is_the_changelogs():
    assert f"## {mpt.__version__}" in (ROOT / "CHANGELOG.md").read_text()


@pytest.mark.slow
def test_a_wheel_builds_and_imports(tmp_path):
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path))
    (wheel,) = tmp_path.glob("mpt_fl-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        archive.extractall(tmp_path / "site")
    assert "mpt/py.typed" in names
    assert "mpt/core/equations.py" in names
    assert all(n.startswith(("mpt/", "mpt_fl-")) for n in names)
    code = "import mpt; print(mpt.__file__, mpt.__version__)"
    where, version = run(sys.executable, "-c", code, env={**os.environ, "PYTHONPATH": str(tmp_path / "site")}).split()
    assert Path(where).is_relative_to(tmp_path)
    assert f"mpt_fl-{version}-" in wheel.name


def test_the_readmes_code_runs_as_it_stands_and_prints_what_stands_there():
    readme = (ROOT / "README.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", readme, flags=re.DOTALL)
    printed = run(sys.executable, "-c", code).splitlines()
    assert len(printed) == 2
    assert all(f"    {line}\n" in readme for line in printed)


def test_the_readmes_result_is_that_of_the_exhibit():
    with (ROOT / "results/paper/table2.csv").open() as file:
        found = {r["row"]: r for r in csv.DictReader(file) if r["group"].endswith("(truck)") and r["column"] == "2%"}

    def told(row):
        mean, deviation = (f"{float(found[row][c]):.3f}".removeprefix("0") for c in ("ours", "deviation"))
        return f"{mean} ± {deviation}"

    for page in ("README.md", "docs/index.md"):
        text = (ROOT / page).read_text()
        assert all(f"| {told(row)} |" in text for row in ("MPT", "MPT-X", "oracle-train"))
    assert told("iCaRL") in (ROOT / "README.md").read_text()


def test_the_tour_shows_the_frozen_prototype_failing_and_mpt_near_the_oracle():
    printed = run(sys.executable, "examples/core_tour.py")
    rows = [line.split() for line in printed.splitlines() if re.match(r"\s+\d+ +\d\.\d\d +0\.\d", line)]
    first, last = (
        dict(zip(("round", "drift", "frozen", "mean", "lite", "mpt", "oracle"), r, strict=False))
        for r in (rows[0], rows[-1])
    )
    assert first["round"] == "15"
    assert last["round"] == "100"
    assert first["frozen"] == first["oracle"]
    assert float(last["frozen"]) < 0.7 * float(last["oracle"])
    for name in ("mpt", "lite"):
        assert float(last[name]) > 0.9 * float(last["oracle"])
        assert float(last[name]) > float(last["mean"])


def test_the_benchmark_of_imports_runs():
    lines = run(sys.executable, "benchmarks/import_time.py", "--repeats", "1").splitlines()
    ratios = [float(re.fullmatch(r".+ ms, ([0-9.]+) times NumPy and SciPy", line)[1]) for line in lines]
    assert [line.partition("  ")[0] for line in lines] == ["numpy, scipy.linalg", "mpt", "mpt.LabelledTracker"]
    assert len(ratios) == 3


@pytest.mark.slow
def test_the_benchmark_of_failing_vehicles_runs():
    options = ["--vehicles", "6", "--rounds", "3", "--seeds", "1"]
    lines = run(sys.executable, "benchmarks/failures.py", *options).splitlines()
    f1, apart = r"([01]\.\d+)", r"([+-][01]\.\d+)"
    (seed,) = re.findall(rf" +8 +0 +{f1} +{f1} +{apart} \d+ of 16", lines[2])
    calm, rough = (re.findall(rf"{f1} \({apart} \+- nan\)", line) for line in lines[-2:])
    assert len(calm) == len(rough) == 3
    assert calm[0] == (seed[0], "+0.000")
    assert rough[1] == (seed[1], seed[2])


@pytest.mark.slow
def test_the_soak_survives_its_kills(tmp_path):
    pytest.importorskip("flwr", reason="the extra fleet is not installed")
    options = ["--nodes", "12", "--rounds", "6", "--kill-every", "3", "--seed", "2"]
    printed = run(sys.executable, "benchmarks/soak.py", *options, "--out", str(tmp_path / "soak.csv"))
    with open(tmp_path / "soak.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["round"]) for row in rows] == [1, 2, 3, 4, 5, 6]
    assert sum(int(row["start"]) for row in rows) == 2
    assert int(rows[-1]["present"]) > 0
    assert re.search(r"server: [12] restarts: killed with SIGKILL 1", printed)  # another may come too late
    assert re.search(r"nodes: .*(errors|offline|joined)", printed)


@pytest.mark.slow
def test_the_benchmarks_run():
    lines = run(sys.executable, "benchmarks/reconstruction.py", "--dims", "512", "--repeats", "1").splitlines()
    krylov = [line.split() for line in lines if re.match(r" +512 .* Krylov ", line)]
    assert len(krylov) == 2
    assert all(float(line[-1]) < 1e-6 for line in krylov)
    assert any(re.match(r" +512 .* eigh ", line) for line in lines)
    assert "mpt-lite" in run(sys.executable, "benchmarks/merging.py", "--vehicles", "200")
