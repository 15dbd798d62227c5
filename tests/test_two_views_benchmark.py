"""`benchmarks/two_views.py`: what it reads off a record, and its ratio with an interval, on lines made up."""

import importlib.util
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("torch", reason="the extra sim is not installed")
pytest.importorskip("PIL", reason="the extra data is not installed")

HERE = Path(__file__).parents[1]
SHIP = HERE / "results" / "record-ship"


@pytest.fixture(scope="module")
def bench():
    sys.path.insert(0, str(HERE / "benchmarks"))
    spec = importlib.util.spec_from_file_location("two_views_benchmark", HERE / "benchmarks" / "two_views.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
        yield SimpleNamespace(**{**vars(sys.modules["two_views_table"]), **vars(module)})
    finally:
        sys.path.remove(str(HERE / "benchmarks"))
        del sys.modules[spec.name]


def made_up(bench, gains):
    """Cells in which oracle-train has .5, live .6, and mpt-duo a share of the way, with two seeds."""
    lines = []
    for i, gain in enumerate(gains):
        for seed in (0, 1):
            for method, f1 in {"oracle-train": 0.5, "live": 0.6, "mpt-duo": 0.5 + 0.1 * gain, "mpt-x": 0.5}.items():
                for number, off in ((20, -0.01), (30, 0.01)):
                    about = ["made", f"c{i}", "cnn3", "0.02", "15", str(seed), str(number), method, "1"]
                    lines.append([*about, f"{f1 + off:.4f}", "0.5", "0.5", "0"])
    return bench.figures(lines)


def test_the_ratio_is_of_sums_over_cells(bench):
    cells = made_up(bench, [0.2, 0.4, 0.9])
    assert bench.gained(cells, "mpt-duo", "oracle-train", "live") == pytest.approx(0.5)
    low, high, without = bench.bootstrapped(cells, "mpt-duo", "oracle-train", "live", draws=300)
    assert 0.2 <= low < 0.5 < high <= 0.9
    assert without == 0


def test_cells_of_other_settings_are_not_averaged(bench):
    """Both files have cifar10 deer with the seed 10, one with 300 images a class, the other with 75."""
    small, few = (bench.lines_in(HERE / "results" / f"two-views-{name}.csv") for name in ("small", "few"))
    assert len(bench.figures(small)) == 5
    with pytest.raises(SystemExit, match="mpt-duo: stands twice, files of other settings"):
        bench.figures([*small, *few])


def test_where_live_is_not_above_there_is_no_ratio(bench):
    cells = made_up(bench, [0.5])
    assert np.isnan(bench.gained(cells, "mpt-duo", "live", "oracle-train"))
    low, _, without = bench.bootstrapped(cells, "mpt-duo", "live", "oracle-train", draws=20)
    assert np.isnan(low)
    assert without == 1


def test_cells_in_which_a_gap_is_sure_are_counted(bench):
    falls = np.array([[-0.05, 0.01, 0.0], [-0.051, 0.05, 0.0], [-0.049, -0.03, 0.0]])
    text = bench.ahead({("made", "low", "cnn3", "0.02", "15"): falls, ("made", "high", "cnn3", "0.02", "15"): -falls})
    _, _, _, in_f1, balanced, worst = text.split(" | ")
    assert (in_f1, balanced) == ("1, 1 of 2", "1, 0 of 2")
    assert worst.startswith("-0.050 ± 0.002 (made low")


def test_a_cell_is_named_or_refused(bench):
    assert bench.Cell.of("cifar10:ship") == ("cifar10", "ship", "cnn3", 0.02)
    assert bench.Cell.of("cifar10:ship:resnet18:0.1") == ("cifar10", "ship", "resnet18", 0.1)
    for wrong in ("cifar10", "a:b:c:d", "a:b:c:0.1:5"):
        with pytest.raises(SystemExit, match="should be SET:CLASS"):
            bench.Cell.of(wrong)


def test_a_record_gives_the_rows_and_the_cascade(bench, tmp_path, capsys):
    if not SHIP.exists():
        pytest.skip("results/record-ship is not there")
    run = tmp_path / "ship"
    shutil.copytree(SHIP, run)
    bench.replay_runs(SimpleNamespace(results=[tmp_path / "out.csv"], runs=[run]))
    bench.table([tmp_path / "out.csv"])
    (found,) = bench.figures([row.split(",") for row in (tmp_path / "out.csv").read_text().splitlines()[1:]]).values()
    f1 = {method: float(values[:, 0].mean()) for method, values in found.items()}
    assert f1["mpt-duo"] > f1["oracle-train"] + 0.03
    assert f1["mpt-x"] <= f1["mpt-duo@1.05"] <= f1["mpt-duo@1.1"] + 0.01
    assert f1["mpt-duo@1.3"] > f1["mpt-x"] + 0.8 * (f1["mpt-duo"] - f1["mpt-x"])
    assert "| passes an image |" in capsys.readouterr().out


def test_the_committed_results_have_every_cell_that_the_docs_name(bench, capsys):
    folder = SHIP.parent
    if not (folder / "two-views-after15.csv").exists():
        pytest.skip("results/two-views-after15.csv is not there")
    for name, groups in (
        ("tuning", ["tuning"]),
        ("after15", ["untouched", "beyond", "embedding"]),
        ("after50", ["untouched", "beyond"]),
    ):
        path, cells = folder / f"two-views-{name}.csv", bench.named_cells(groups)
        found = bench.figures(bench.lines_in(path))
        assert {cell[:4] for cell in found} == {cell.columns for cell in cells}
        assert {len(values) for methods in found.values() for values in methods.values()} == {3}
    bench.table([folder / "two-views-after15.csv"], [cell.columns for cell in bench.named_cells(["beyond"])])
    shown = capsys.readouterr().out
    assert "0 of 4" in shown
    assert "cifar10 cat" in shown
    assert "suv" not in shown
    with pytest.raises(SystemExit, match=r"airplane cnn3-embedding 0\.02: not in these files"):
        bench.table([folder / "two-views-after50.csv"], [("cifar10", "airplane", "cnn3-embedding", "0.02")])
