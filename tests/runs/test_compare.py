"""`mpt compare`: differences and tests over seeds, against SciPy's paired t-test, and what is said not to pair."""

import csv
import io
import json

import numpy as np
import pytest
from scipy.stats import ttest_rel

for package in ("torch", "typer"):
    pytest.importorskip(package, reason="the extra sim is not installed")

from typer.testing import CliRunner

from mpt.cli.main import app
from mpt.runs.compare import CompareError, compare
from mpt.runs.significance import holm, stratified_t_test, t_test
from tests.report.samples import ROAD, write_run

FEW = {"methods": ("fedavg", "frozen", "mpt"), "seeds": 4, "image": False}


def table(folder):
    with (folder / "metrics.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def changed(folder, settings, seed=None, noise=0.0, drop=lambda row: False):
    """The run with other settings, its F1 moved at random, and without some rows."""
    config = (folder / "config.toml").read_text()
    for name, value in settings.items():
        lines = [line for line in config.splitlines() if not line.startswith(f"{name} =")]
        config = "\n".join([*lines, f"{name} = {value}"]) + "\n"
    (folder / "config.toml").write_text(config)
    rng, rows = np.random.default_rng(seed), [row for row in table(folder) if not drop(row)]
    for row in rows:
        row["f1"] = f"{min(1.0, max(0.0, float(row['f1']) + noise * rng.standard_normal())):.6f}"
    with (folder / "metrics.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return folder


def by_seed(folder, method, column="f1", *, last, of_class="truck"):
    """A figure a seed, by definition."""
    rows = [r for r in table(folder) if (r["method"], r["class"]) == (method, of_class) and int(r["round"]) > 15]
    last_round = max(int(r["round"]) for r in rows)
    kept = [r for r in rows if int(r["round"]) == last_round] if last else rows
    seeds = sorted({r["seed"] for r in kept})
    return [np.mean([float(r[column]) for r in kept if r["seed"] == seed]) for seed in seeds]


def call(*arguments):
    return CliRunner().invoke(app, ["compare", *map(str, arguments)], catch_exceptions=False)


@pytest.fixture
def two(tmp_path):
    return write_run(tmp_path / "a", **FEW), changed(write_run(tmp_path / "b", **FEW), {"lr": 0.02}, 1, 0.05)


def agrees(figure, ours, others):
    test = ttest_rel(ours, others)
    interval = test.confidence_interval(0.95)
    assert figure.one == pytest.approx(np.mean(ours), abs=1e-9)
    assert figure.other == pytest.approx(np.mean(others), abs=1e-9)
    gap = figure.difference
    assert (gap.mean - gap.half, gap.mean + gap.half) == pytest.approx((interval.low, interval.high), abs=1e-9)
    assert gap.p == pytest.approx(test.pvalue, rel=1e-6)
    assert figure.by_seed == pytest.approx(np.subtract(ours, others), abs=1e-9)


def test_two_runs_are_compared_method_by_method_as_scipy_does(two):
    a, b = two
    found = compare(a, b)
    assert [pair.rows[0].method for pair in found.pairs] == ["fedavg", "frozen", "mpt"]
    assert found.differ == {"lr": ([0.01], [0.02])}
    assert found.unpaired == ()
    mpt = found.pairs[-1]
    assert mpt.seeds == (0, 1, 2, 3)
    assert mpt.rounds == tuple(range(20, 101, 5))
    agrees(mpt.mean_f1, *(by_seed(x, "mpt", last=False) for x in two))
    agrees(mpt.last_f1, *(by_seed(x, "mpt", last=True) for x in two))
    assert mpt.balanced.difference.mean == pytest.approx(0, abs=1e-9)


def test_two_methods_of_one_run_are_compared(two):
    a, _ = two
    (pair,) = compare(a, methods=["mpt"], against="frozen").pairs
    agrees(pair.last_f1, *(by_seed(a, m, last=True) for m in ("mpt", "frozen")))
    agrees(pair.balanced, *(by_seed(a, m, "balanced_accuracy", last=True) for m in ("mpt", "frozen")))
    assert pair.last_f1.difference.clear
    assert [(p.rows[0].method, p.rows[1].method) for p in compare(a, against="frozen").pairs] == [
        ("fedavg", "frozen"),
        ("mpt", "frozen"),
    ]


def test_cells_are_matched_by_their_settings_but_for_what_differs(tmp_path):
    for side, lr in (("a", 0.01), ("b", 0.02)):
        for remaining in (0.01, 0.02):
            changed(write_run(tmp_path / side / f"{side}{remaining}", **FEW), {"lr": lr, "remaining": remaining})
    changed(write_run(tmp_path / "a" / "alone", **FEW), {"remaining": 0.05})
    found = compare(tmp_path / "a", tmp_path / "b", methods=["mpt"])
    assert [tuple(path.name for path in pair.cells) for pair in found.pairs] == [
        ("a0.01", "b0.01"),
        ("a0.02", "b0.02"),
    ]
    assert found.unpaired == (f"{tmp_path / 'a' / 'alone'} has no counterpart with the same settings",)
    write_run(tmp_path / "b" / "twice" / "deep", **FEW)
    changed(tmp_path / "b" / "twice" / "deep", {"lr": 0.02, "remaining": 0.01})
    found = compare(tmp_path / "a", tmp_path / "b", methods=["mpt"])
    assert len(found.pairs) == 1
    assert any("have the same settings, so it is not clear which to pair" in said for said in found.unpaired)


@pytest.fixture
def cells(tmp_path):
    """Four cells of two tasks, and one of them again with other methods beside mpt and frozen."""
    for number, (remaining, backbone) in enumerate(((0.004, "cnn3"), (0.02, "cnn3"), (0.02, "resnet18"))):
        folder = changed(
            write_run(tmp_path / f"c{number}", **FEW),
            {"remaining": remaining, "backbone": f'"{backbone}"'},
            number,
            0.05,
        )
    other = write_run(tmp_path / "b", **FEW, rare=3)
    changed(other, {"dataset": '"/data/somewhere"'}, 9, 0.1)
    again = write_run(tmp_path / "z", methods=("frozen", "mpt", "mpt-lite"), seeds=3, image=False)
    changed(again, {"backbone": '"resnet18"', "dataset": '"/data/elsewhere"'}, 5, 0.05)
    assert folder.name == "c2"
    return tmp_path


def test_cells_have_short_names_in_an_order_that_reads(cells):
    found = compare(cells, methods=["mpt"], against="frozen")
    assert [str(found.names[pair.cells]) for pair in found.pairs] == [
        "road bus 2% cnn3",
        "road truck 0.4% cnn3",
        "road truck 2% cnn3",
        "road truck 2% resnet18",
    ]
    assert [pair.cells[0].name for pair in found.pairs] == ["b", "c0", "c1", "c2"]


def test_cells_of_one_name_are_told_apart_by_their_settings(tmp_path):
    for name, rounds in (("a", 100), ("b", 50)):
        write_run(tmp_path / name, **FEW, rounds=rounds)
    found = compare(tmp_path, methods=["mpt"], against="frozen")
    assert {str(name) for name in found.names.values()} == {
        "road truck 2% cnn3 rounds 100",
        "road truck 2% cnn3 rounds 50",
    }


def test_a_cell_that_is_there_twice_counts_once(cells):
    """Its data lay elsewhere; rows that only the second has stand under the same name."""
    found = compare(cells, against="frozen")
    twice = [pair for pair in found.pairs if str(found.names[pair.cells]) == "road truck 2% resnet18"]
    assert [(pair.rows[0].method, pair.cells[0].name) for pair in twice] == [
        ("fedavg", "c2"),
        ("mpt", "c2"),
        ("mpt-lite", "z"),
    ]
    assert found.unpaired == (f"{cells / 'z'} has mpt with the settings of {cells / 'c2'}, which is taken",)


def test_a_cell_from_before_a_setting_is_the_same_as_one_with_its_default(tmp_path):
    old = write_run(tmp_path / "old" / "cell", **FEW)
    now = {"momentum": 0.9, "schedule": '"constant"'}
    new = changed(write_run(tmp_path / "new" / "cell", **FEW), now, seed=1, noise=0.1)
    other = changed(write_run(tmp_path / "new" / "other", **FEW), {"momentum": 0.0}, seed=2, noise=0.1)
    assert compare(old, new).differ == {}
    paired = compare(tmp_path / "old", tmp_path / "new")
    assert {pair.cells for pair in paired.pairs} == {(old, new)}
    assert any(str(other) in sentence for sentence in paired.unpaired)


def test_holm_is_over_all_cells_and_methods_that_are_shown(cells):
    found = compare(cells, against="frozen")
    raw = [pair.mean_f1.difference.p for pair in found.pairs]
    assert len(raw) == 9
    assert [pair.holm for pair in found.pairs] == holm(raw)
    loaded = json.loads(call(cells, "--against", "frozen", "--json").stdout)
    assert loaded["tests"] == {"level": 0.05, "power": 0.8, "holm_figure": "mean_f1", "holm_tests": 9}
    assert [r["mean_f1_holm"] for r in loaded["pairs"]] == pytest.approx(holm(raw), rel=1e-5)
    assert [r["last_f1_p"] for r in loaded["pairs"]] == pytest.approx(
        [pair.last_f1.difference.p for pair in found.pairs], rel=1e-5
    )


def test_cells_are_pooled(cells):
    found = compare(cells, against="frozen")
    assert {one.rows[0].method for one in found.pooled} == {"fedavg", "mpt"}  # one cell alone has mpt-lite
    by_cell, by_task, by_seed = (one for one in found.pooled if one.rows[0].method == "mpt")
    mine = [pair.mean_f1 for pair in found.pairs if pair.rows[0].method == "mpt"]
    assert by_cell.test == t_test([figure.difference.mean for figure in mine])
    assert (by_task.test.n, by_seed.test.n) == (2, 16)
    assert by_seed.test == stratified_t_test([figure.by_seed for figure in mine])
    record = json.loads(call(cells, "--against", "frozen", "--json").stdout)["pooled"][3]
    assert (record["method_a"], record["over"], record["cells"], record["n"]) == ("mpt", "cells", 4, 4)
    assert record["mean_f1_difference"] == pytest.approx(by_cell.test.mean, abs=1e-6)
    assert record["mean_f1_p"] == pytest.approx(by_cell.test.p, rel=1e-5)


def test_what_has_no_counterpart_is_said(two):
    a, b = two
    changed(
        b, {}, drop=lambda r: r["seed"] == "3" or r["method"] == "frozen" or (r["method"], r["round"]) == ("mpt", "100")
    )
    found = compare(a, b)
    assert [pair.rows[0].method for pair in found.pairs] == ["fedavg", "mpt"]
    assert found.unpaired == (
        f"fedavg in {a} has seeds that its counterpart has not: 3",
        f"{b} has no frozen",
        f"mpt in {a} has seeds that its counterpart has not: 3",
    )
    assert [pair.rounds[-1] for pair in found.pairs] == [100, 95]
    assert compare(b, a, methods=["mpt", "sdc"]).unpaired[0].startswith(f"{b} has no sdc, it has ")


def test_one_seed_has_no_interval(tmp_path):
    few = {**FEW, "seeds": 1}
    a, b = write_run(tmp_path / "a", **few), changed(write_run(tmp_path / "b", **few), {"lr": 0.02}, 1, 0.05)
    assert {pair.mean_f1.difference.half for pair in compare(a, b).pairs} == {None}
    record = json.loads(call(a, b, "--json").stdout)["pairs"][-1]
    for name in ("low", "high", "p", "smallest", "holm"):
        assert record[f"mean_f1_{name}"] is None
    shown = call(a, b)
    assert shown.exit_code == 0
    line = next(line for line in shown.stdout.splitlines() if line.startswith("  mpt "))
    assert "±" not in line
    assert line.split()[5:8] == ["n/a"] * 3
    assert "n/a: there is one seed" in shown.stdout


def test_readouts_are_paired_with_the_same_or_the_only_one(tmp_path):
    a = write_run(tmp_path / "a", **FEW, readouts=("mahalanobis", "cosine"))
    found = compare(a, methods=["mpt"], against="fedavg")
    assert [(p.rows[0].readout, p.rows[1].readout) for p in found.pairs] == [("mahalanobis", "own"), ("cosine", "own")]
    found = compare(a, methods=["mpt"], against="frozen")
    assert [p.rows[1].readout for p in found.pairs] == ["mahalanobis", "cosine"]
    with pytest.raises(CompareError, match=r"fedavg in .* is read out by own, mpt in .* by none like it"):
        compare(a, methods=["fedavg"], against="mpt")


def test_the_command_prints_a_table_json_and_csv(two):
    a, b = two
    shown = call(a, b)
    assert shown.exit_code == 0
    assert shown.stderr == "mpt: lr is 0.01 in A and 0.02 in B\n"
    pair = compare(a, b, methods=["mpt"]).pairs[0]
    line = next(line for line in shown.stdout.splitlines() if line.startswith("  mpt "))
    levels = [f"{value:.3f}"[1:] for value in (pair.mean_f1.one, pair.mean_f1.other)]
    assert line.split()[:4] == ["mpt", "4", *levels]
    assert "mean over the 17 rounds after the departure" in " ".join(shown.stdout.split())  # from 20 to 100 by 5
    assert shown.stdout.startswith(f"each method in {a} (A) less that in {b} (B)\n")
    assert f"± {pair.mean_f1.difference.half:.3f}".replace("0.", ".") in line
    loaded = json.loads(call(a, b, "--method", "mpt", "--json").stdout)
    assert loaded["differ"] == {"lr": [[0.01], [0.02]]}
    (record,) = loaded["pairs"]
    assert record["mean_f1_difference"] == pytest.approx(pair.mean_f1.difference.mean, abs=1e-6)
    (row,) = csv.DictReader(io.StringIO(call(a, b, "--methods", "mpt", "--csv").stdout))
    assert float(row["mean_f1_low"]) == record["mean_f1_low"]
    assert row["method_b"] == "mpt"


def test_another_class_is_compared_by_its_f1(two):
    a, b = two
    (pair,) = compare(a, b, methods=["mpt"], of_class="bus").pairs
    agrees(pair.mean_f1, *(by_seed(x, "mpt", last=False, of_class="bus") for x in two))
    agrees(pair.last_f1, *(by_seed(x, "mpt", last=True, of_class="bus") for x in two))
    (usual,) = compare(a, b, methods=["mpt"]).pairs
    assert pair.mean_f1 != usual.mean_f1
    assert (pair.balanced, pair.seeds, pair.rounds) == (usual.balanced, usual.seeds, usual.rounds)
    assert compare(a, b, of_class="truck") == compare(a, b)
    (record,) = json.loads(call(a, b, "--method", "mpt", "--class", "bus", "--json").stdout)["pairs"]
    assert record["mean_f1_difference"] == pytest.approx(pair.mean_f1.difference.mean, abs=1e-6)
    shown = call(a, b, "--class", "bus").stdout
    assert "F1 of bus, mean over" in shown
    line = next(line for line in shown.splitlines() if line.startswith("  mpt "))
    assert line.split()[2:4] == [f"{value:.3f}"[1:] for value in (pair.mean_f1.one, pair.mean_f1.other)]


def test_a_class_that_is_none_or_has_no_lines_is_one_sentence(two):
    a, b = two
    changed(b, {}, drop=lambda r: r["class"] == "bus")
    for name, message in (
        ("lorry", f"class: 'lorry' is none of {a}, should be one of {', '.join(ROAD)}"),
        ("busses", f"class: 'busses' is none of {a}, did you mean bus?"),
        ("bus", f"class: {b} has no lines of 'bus', should be of a run with test samples of it"),
    ):
        done = call(a, b, "--class", name)
        assert (done.exit_code, done.stdout, done.stderr) == (2, "", f"mpt: {message}\n")


def test_runs_of_another_format_are_one_sentence(two):
    a, b = two
    manifest = json.loads((b / "manifest.json").read_text())
    (b / "manifest.json").write_text(json.dumps({**manifest, "format": 1}))
    done = call(a, b)
    message = f"mpt: {b / 'manifest.json'}: the run has format 1, this release of mpt reads 2; run it again\n"
    assert (done.exit_code, done.stdout, done.stderr) == (2, "", message)


def test_a_row_may_be_named_by_the_spec_that_made_it(two):
    a, _ = two
    names = list(FEW["methods"])
    specs = ["nearest.py:Blend(lam=0.3)" if name == "mpt" else name for name in names]
    changed(a, {"methods": json.dumps(specs)})
    manifest = json.loads((a / "manifest.json").read_text())
    assert list(manifest["trainings"]) == names
    (pair,) = compare(a, methods=["nearest.py:Blend(lam=0.3)"], against="frozen").pairs
    assert pair.rows[0].method == "mpt"


def test_nonsense_is_one_sentence(two, tmp_path):
    a, _ = two
    (tmp_path / "empty").mkdir()
    for arguments, message in (
        ((a,), "compare: one folder and no --against, should be two folders or a method to compare with"),
        ((a, tmp_path / "nowhere"), "compare: there is no folder "),
        ((a, tmp_path / "empty"), "compare: "),
        ((a, "--against", "sdc"), f"compare: nothing could be paired; {a} has no sdc, it has fedavg, "),
        ((a, "--method", "mtp", "--against", "frozen"), f"compare: nothing could be paired; {a} has no mtp"),
        ((a, "--against", "mpt", "--json", "--csv"), "compare: --json and --csv, should be one of them"),
        ((a, "--against", "mpt", "--html", tmp_path), f"{tmp_path}: cannot be written (Is a directory)"),
        ((a, "--against", "mpt", "--latex", tmp_path / "no" / "t.tex"), f"{tmp_path / 'no' / 't.tex'}: cannot be"),
        ((a, "--against", "mpt", "--latex", "t", "--html", "t"), "compare: --latex and --html are both t, should be"),
    ):
        done = call(*arguments)
        assert done.exit_code == 2
        assert done.stdout == ""
        assert done.stderr.startswith(f"mpt: {message}")
        assert done.stderr.count("\n") == 1
