"""The files of a run: read as the format says, and one sentence for whatever is wrong with them."""

import json
import math
import re

import numpy as np
import pytest

from mpt.report import ReportError, write_report
from mpt.report.reader import Row, read_run
from tests.report.samples import METRICS, encoded, write_run


@pytest.fixture
def folder(tmp_path):
    return write_run(tmp_path / "run", seeds=2, rounds=20, methods=("fedavg", "mpt", "oracle-train"))


def replace(path, old, new):
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


def test_what_is_read(folder):
    run = read_run(folder)
    assert run.rows == (Row("fedavg", "own"), Row("mpt", "mahalanobis"), Row("oracle-train", "mahalanobis"))
    assert (run.rare_name, run.depart_at, run.rounds, run.seeds, run.finished) == ("truck", 15, 20, (0, 1), True)
    assert {m.round for m in run.metrics} == {5, 10, 15, 20}
    assert all(math.isnan(m.prototype_distance) == (m.row.method == "fedavg") for m in run.metrics)
    assert {number for _, number in run.confusion} == {15, 20}
    assert run.confusion[Row("mpt", "mahalanobis"), 20].sum() == 2 * 8 * 100  # two seeds of 100 test samples a class
    assert {d.method for d in run.diagnostics} == {"", "mpt"}
    assert run.image is not None
    assert run.image.startswith("data:image/png;base64,")


def test_columns_may_be_more_and_in_another_order(folder):
    lines = (folder / "metrics.csv").read_text(encoding="utf-8").splitlines()
    before = read_run(folder).metrics
    turned = [",".join([*reversed(line.split(",")), "new" if i == 0 else "1"]) for i, line in enumerate(lines)]
    (folder / "metrics.csv").write_text("\n".join(turned) + "\n", encoding="utf-8")
    assert str(read_run(folder).metrics) == str(before)


def test_files_that_may_be_missing(folder):
    for name in ("costs.csv", "diagnostics.csv", "confusion.csv", "samples.png"):
        (folder / name).unlink()
    page = write_report(folder).read_text(encoding="utf-8")
    assert "Cost against F1" in page
    assert "is taken for" not in page
    assert "Drift of" not in page
    assert "<img" not in page


def test_an_empty_cell_and_nan_are_no_distance(folder):
    path = folder / "metrics.csv"
    lines = path.read_text(encoding="utf-8").splitlines()
    column = METRICS.index("prototype_distance")
    for i, line in enumerate(lines[1:], 1):
        cells = line.split(",")
        cells[column] = "nan" if i % 2 else ""
        lines[i] = ",".join(cells)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert "Distance to the prototype" not in write_report(folder).read_text(encoding="utf-8")


def test_what_a_method_of_ones_own_notes_does_not_stop_the_page(folder):
    replace(folder / "diagnostics.csv", "0,20,mpt,0", "0,20,mpt,-7")
    replace(
        folder / "manifest.json", '"mpt": "0.1.0"', '"mpt": "0.1.0", "method_files": {"a.py:A": "12ab"}, "none": {}'
    )
    page = write_report(folder).read_text(encoding="utf-8")
    assert "Trust in the remaining" not in page
    assert "<dd>a.py:A: 12ab</dd>" in page


def test_accuracies_of_no_other_class_are_dashes(folder):
    path = folder / "metrics.csv"
    lines = path.read_text(encoding="utf-8").splitlines()
    column = METRICS.index("others_accuracy")
    cells = [line.split(",") for line in lines[1:]]
    path.write_text("\n".join([lines[0], *(",".join([*c[:column], "", *c[column + 1 :]]) for c in cells)]) + "\n")
    assert '<td data-v="">\N{EN DASH}</td>' in write_report(folder).read_text(encoding="utf-8")


def test_a_large_image_gets_fewer_colours(folder):
    pytest.importorskip("PIL")
    noise = np.random.default_rng(0).integers(0, 255, (200, 200, 3), dtype=np.uint8)
    (folder / "samples.png").write_bytes(encoded(noise))
    before = len((folder / "samples.png").read_bytes())
    assert before > 100_000
    assert len(read_run(folder).image) < 0.7 * before


@pytest.mark.parametrize("name", ["metrics.csv", "config.toml", "manifest.json"])
def test_a_file_that_must_be_there(folder, name):
    (folder / name).unlink()
    with pytest.raises(ReportError, match=name):
        write_report(folder)


def test_a_folder_that_is_none(tmp_path):
    with pytest.raises(ReportError, match=r"there is no such folder, should be one that mpt run --out has written"):
        write_report(tmp_path / "nowhere")
    (tmp_path / "file").write_text("")
    with pytest.raises(ReportError, match=r"file: is no folder"):
        write_report(tmp_path / "file")


BROKEN = {
    "a cell that is no number": ("metrics.csv", "0,5,fedavg,own,0.", "0,5,fedavg,own,x", r"line 2: rare_f1 is 'x"),
    "an F1 above 1": ("metrics.csv", "0,5,fedavg,own,0.", "0,5,fedavg,own,7.", r"line 2: rare_f1 is 7.* from 0 to 1"),
    "an F1 that is not there": (
        "metrics.csv",
        "0,5,fedavg,own,0.",
        "0,5,fedavg,own,nan#0.",
        r"line 2: rare_f1 is 'nan#",
    ),
    "a negative round": ("metrics.csv", "0,5,fedavg", "0,-5,fedavg", r"line 2: round is -5, should be from 1 to 20"),
    "a round after the last": ("metrics.csv", "0,5,fedavg", "0,21,fedavg", r"round is 21, should be from 1 to 20"),
    "no method": ("metrics.csv", "0,5,fedavg", "0,5,", r"line 2: method is empty"),
    "a row twice": ("metrics.csv", "0,5,mpt,", "0,5,fedavg,", r""),
    "a cell too few": ("metrics.csv", "0,5,mpt,", "0,mpt,", r"line 3: 14 cells, should be 15"),
    "no such column": ("metrics.csv", "rare_recall", "recall", r"line 1: there is no column rare_recall"),
    "an open quote": ("metrics.csv", "0,5,mpt,", '0,5,"mpt,', r"line \d+: "),
    "a class out of range": ("confusion.csv", ",own,0,0,", ",own,8,0,", r"label is 8, should be from 0 to 7"),
    "a negative count": ("confusion.csv", ",own,0,0,", ",own,0,0,-", r"count is -\d+, should be at least 0"),
    "an endless drift": ("diagnostics.csv", "0,5,,,,,,,,,,", "0,5,,,,,,,,,,inf#", r"drift is 'inf#"),
    "costs of text": ("costs.csv", ",0,0,0,0,0,", ",0,0,0,x,0,", r"readout_bytes_up is 'x'"),
    "no TOML": ("config.toml", "rounds = ", "rounds == ", r"config.toml: is no TOML"),
    "no rounds": ("config.toml", "rounds = ", "loops = ", r"config.toml: rounds is None, should be a whole number"),
    "a departure of text": ("config.toml", "depart_at = 15", 'depart_at = "x"', r"depart_at is 'x'"),
    "no JSON": ("manifest.json", '"rare"', "rare", r"manifest.json: is no JSON"),
    "a rare class that is none": ("manifest.json", '"rare": 2', '"rare": 8', r"rare is 8, .* from 0 to 7"),
    "no classes": ("manifest.json", '"classes"', '"names"', r"classes should be a list of two names or more"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_file_is_named_in_one_sentence_and_the_old_page_stays(folder, case):
    (folder / "report.html").write_text("old")
    name, old, new, sentence = BROKEN[case]
    if case == "a row twice":
        path = folder / name
        lines = path.read_text(encoding="utf-8").splitlines()
        path.write_text("\n".join([*lines, lines[-1]]) + "\n", encoding="utf-8")
        sentence = r"oracle-train is there twice in round 20 of seed 1"
    else:
        replace(folder / name, old, new)
    with pytest.raises(ReportError, match=sentence) as caught:
        write_report(folder)
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)
    assert (folder / "report.html").read_text() == "old"
    assert not list(folder.glob("*.tmp"))


@pytest.mark.parametrize("name", ["metrics.csv", "costs.csv", "diagnostics.csv", "confusion.csv"])
def test_a_truncated_table(folder, name):
    path = folder / name
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(ReportError, match=rf"{name}: breaks off in line \d+, should end with a whole line"):
        write_report(folder)
    path.write_bytes(b"")
    with pytest.raises(ReportError, match=rf"{name}: is empty"):
        write_report(folder)
    path.write_bytes(b"\xff\xfe\n")
    with pytest.raises(ReportError, match=rf"{name}: byte 0 is no UTF-8"):
        write_report(folder)


def test_metrics_with_a_header_alone(folder):
    (folder / "metrics.csv").write_text(",".join(METRICS) + "\n")
    with pytest.raises(ReportError, match=r"has a header and no more"):
        write_report(folder)


def test_a_truncated_image(folder):
    path = folder / "samples.png"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ReportError, match=r"samples.png: is no whole PNG image"):
        write_report(folder)


def test_an_unfinished_run_says_so(folder):
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**manifest, "finished": False}))
    page = write_report(folder).read_text(encoding="utf-8")
    assert re.search(
        r'class="warning"[^>]*>This run is unfinished: evaluated up to round 20 of 20, with 2 of 2 seeds', page
    )
