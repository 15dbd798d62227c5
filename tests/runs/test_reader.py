"""The files of a run: read as the format says, and one sentence for whatever is wrong with them."""

import csv
import json
import re

import numpy as np
import pytest

from mpt.base.seeds import Series
from mpt.report import write_report
from mpt.report.image import image_uri
from mpt.runs.errors import RunError
from mpt.runs.reader import read_run
from tests.report.samples import CONFUSION, DIAGNOSTICS, METRICS, ROAD, encoded, write, write_run


@pytest.fixture
def folder(tmp_path):
    return write_run(tmp_path / "run", seeds=2, rounds=20, methods=("fedavg", "mpt", "oracle-train"))


def replace(path, old, new):
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


def without(path, unwanted):
    """The table without some of its lines."""
    with path.open(newline="", encoding="utf-8") as file:
        header, *lines = csv.reader(file)
    kept = [line for line in lines if not unwanted(dict(zip(header, line, strict=True)))]
    assert len(kept) < len(lines)
    write(path, header, kept)


def test_what_is_read(folder):
    run = read_run(folder)
    figures = run.figures
    rows = (Series("fedavg", "own"), Series("mpt", "mahalanobis"), Series("oracle-train", "mahalanobis"))
    assert figures.series == rows
    assert (run.rare_name, run.depart_at, run.rounds, figures.seeds, run.finished) == ("truck", 15, 20, (0, 1), True)
    assert run.path == folder
    assert {m["round"] for m in figures.metrics} == {5, 10, 15, 20}
    assert {m["class"] for m in figures.metrics} == {"truck"}
    assert all((m["prototype_distance"] is None) == (m["method"] == "fedavg") for m in figures.metrics)
    assert {number for _, number in run.confusion} == {15, 20}
    assert run.confusion[Series("mpt", "mahalanobis"), 20].sum() == 2 * 8 * 100  # two seeds of 100 test samples a class
    assert {d["method"] for d in run.diagnostics} == {"", "mpt"}
    assert {d["class"] for d in run.diagnostics} == {"truck"}
    image = image_uri(folder / "samples.png")
    assert image is not None
    assert image.startswith("data:image/png;base64,")
    assert [run.training_of(name) for name in ("fedavg", "mpt", "sdc")] == ["continued", "held-out", ""]


def test_every_class_has_its_lines_and_figures_are_those_of_the_class_that_departs(folder):
    run = read_run(folder)
    assert len(run.tables.metrics) == 8 * len(run.figures.metrics)
    lines = {}
    for record in run.tables.metrics:
        lines.setdefault((record["seed"], record["round"], record["method"]), []).append(record)
    assert all([r["class"] for r in mine] == ["truck", *(c for c in ROAD if c != "truck")] for mine in lines.values())
    others = [r for r in run.tables.metrics if r["class"] != "truck"]
    figures = ("f1", "precision", "recall")
    assert all(0 <= r[name] <= 1 for r in others for name in figures)
    assert {r[name] for r in others for name in METRICS[METRICS.index("accuracy") :]} == {None}
    assert {r["departed"] for r in others} == {0}
    assert {(r["round"], r["departed"]) for r in run.figures.metrics} == {(5, 0), (10, 0), (15, 0), (20, 1)}
    without(folder / "metrics.csv", lambda line: line["class"] != "truck")
    assert read_run(folder).figures.metrics == run.figures.metrics
    assert str(read_run(folder).figures.summaries) == str(run.figures.summaries)


def replayed(folder, label="truck", number=20):
    """A method of one's own in DIR/replay, read out in one round, beside one that is not in methods.json."""
    path = folder / "replay"
    path.mkdir()
    key = (0, number, "mine", "mahalanobis")
    scores = ("0.6",) * 3
    line = (*key, "truck", 1, *scores, "0.5", "0.5", "0.5", "", "", "", 1, 10, 20, 0, 0, "0.1", "0.1")
    other = (*key, "car", 0, *scores, *[""] * 13)
    gone = (0, number, "gone", *line[3:])
    write(path / "metrics.csv", METRICS, [line, other, gone])
    write(path / "diagnostics.csv", DIAGNOSTICS, [(0, number, "mine", "truck", "0.5", *[""] * 12)])
    write(path / "confusion.csv", CONFUSION, [(*key, label, "car", 3)])
    (path / "methods.json").write_text('{"mine": {"training": "continued"}}')


def test_what_was_replayed_is_read_with_it(folder):
    before = read_run(folder)
    replayed(folder)
    run = read_run(folder)
    assert run.figures.series == (*before.figures.series, Series("mine", "mahalanobis"))
    assert run.tables.metrics[: len(before.tables.metrics)] == before.tables.metrics
    assert [m["class"] for m in run.tables.metrics[len(before.tables.metrics) :]] == ["truck", "car"]
    assert run.confusion[Series("mine", "mahalanobis"), 20][2, 0] == 3
    assert run.diagnostics[-1]["alpha"] == 0.5
    assert run.replayed == {"mine": "continued"}
    assert run.training_of("mine") == "continued"
    assert "Replayed on what the run has recorded, after it: mine." in write_report(folder).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("other", "sentence"),
    [
        ({"label": "lorry"}, r"replay/confusion.csv, line 2: label is 'lorry', should be one of car, van, truck, "),
        ({"number": 21}, r"replay/metrics.csv, line 2: round is 21, should be from 1 to 20"),
    ],
)
def test_what_is_wrong_with_what_was_replayed_is_one_sentence(folder, other, sentence):
    replayed(folder, **other)
    with pytest.raises(RunError, match=sentence):
        write_report(folder)


def test_columns_may_be_more_and_in_another_order(folder):
    lines = (folder / "metrics.csv").read_text(encoding="utf-8").splitlines()
    before = read_run(folder).tables.metrics
    turned = [",".join([*reversed(line.split(",")), "new" if i == 0 else "1"]) for i, line in enumerate(lines)]
    (folder / "metrics.csv").write_text("\n".join(turned) + "\n", encoding="utf-8")
    again = read_run(folder).tables.metrics
    assert [{column: record[column] for column in METRICS} for record in again] == list(before)


def test_what_may_be_missing(folder):
    (folder / "samples.png").unlink()
    write(folder / "diagnostics.csv", DIAGNOSTICS, [])
    write(folder / "confusion.csv", CONFUSION, [])
    page = write_report(folder).read_text(encoding="utf-8")
    assert "Cost against F1" in page
    assert "is taken for" not in page
    assert "Drift of" not in page
    assert "<img" not in page


def set_cells(path, column, value, of_class=None):
    """A value in a column of every line, or of those of a class."""
    with path.open(newline="", encoding="utf-8") as file:
        header, *lines = csv.reader(file)
    for line in lines:
        if of_class in (None, line[header.index("class")]):
            line[header.index(column)] = value
    write(path, header, lines)


def test_an_empty_cell_is_no_distance(folder):
    set_cells(folder / "metrics.csv", "prototype_distance", "")
    assert "Distance to the prototype" not in write_report(folder).read_text(encoding="utf-8")
    set_cells(folder / "metrics.csv", "prototype_distance", "nan", "truck")
    with pytest.raises(RunError, match=r"metrics.csv, line 2: prototype_distance is nan, should be a finite number"):
        write_report(folder)


@pytest.mark.parametrize("column", METRICS[METRICS.index("f1") :])
def test_the_class_that_departs_has_all_figures(folder, column):
    may_be_empty = {"others_accuracy", "prototype_distance", "in_span_error", "out_of_span_error"}
    set_cells(folder / "metrics.csv", column, "", "truck")
    if column in may_be_empty:
        assert write_report(folder).exists()
    else:
        with pytest.raises(RunError, match=rf"metrics.csv, line 2: {column} is '', should be a (whole )?number"):
            write_report(folder)


def test_what_a_method_of_ones_own_notes_does_not_stop_the_page(folder):
    replace(folder / "diagnostics.csv", "0,20,mpt,truck,0", "0,20,mpt,truck,-7")
    replace(
        folder / "manifest.json", '"mpt": "0.1.0"', '"mpt": "0.1.0", "method_files": {"a.py:A": "12ab"}, "none": {}'
    )
    page = write_report(folder).read_text(encoding="utf-8")
    assert "Trust in the remaining" not in page
    assert "<dd>a.py:A: 12ab</dd>" in page


def test_accuracies_of_no_other_class_are_dashes(folder):
    set_cells(folder / "metrics.csv", "others_accuracy", "")
    assert '<td data-v="">\N{EN DASH}</td>' in write_report(folder).read_text(encoding="utf-8")


def test_a_large_image_gets_fewer_colours(folder):
    pytest.importorskip("PIL")
    noise = np.random.default_rng(0).integers(0, 255, (200, 200, 3), dtype=np.uint8)
    (folder / "samples.png").write_bytes(encoded(noise))
    before = len((folder / "samples.png").read_bytes())
    assert before > 100_000
    assert len(image_uri(folder / "samples.png")) < 0.7 * before


@pytest.mark.parametrize("name", ["metrics.csv", "diagnostics.csv", "confusion.csv", "config.toml", "manifest.json"])
def test_a_file_that_must_be_there(folder, name):
    (folder / name).unlink()
    with pytest.raises(RunError, match=name):
        write_report(folder)


def test_a_folder_that_is_none(tmp_path):
    with pytest.raises(RunError, match=r"there is no such folder, should be one that mpt run --out has written"):
        write_report(tmp_path / "nowhere")
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match=r"file: is no folder"):
        write_report(tmp_path / "file")


CLASSES = re.escape(", ".join(ROAD))
FIRST = "0,5,fedavg,own,truck,0,"
BROKEN = {
    "a cell that is no number": ("metrics.csv", f"{FIRST}0.", f"{FIRST}x", r"line 2: f1 is 'x"),
    "an F1 above 1": ("metrics.csv", f"{FIRST}0.", f"{FIRST}7.", r"line 2: f1 is 7.* from 0 to 1"),
    "an F1 that is not there": ("metrics.csv", f"{FIRST}0.", f"{FIRST}nan#0.", r"line 2: f1 is 'nan#"),
    "another class's F1": (
        "metrics.csv",
        "0,5,fedavg,own,car,0,0.",
        "0,5,fedavg,own,car,0,7.",
        r"line 3: f1 is 7.* from 0 to 1",
    ),
    "a negative round": ("metrics.csv", "0,5,fedavg", "0,-5,fedavg", r"line 2: round is -5, should be at least 1"),
    "a round after the last": (
        "metrics.csv",
        "0,5,fedavg",
        "0,21,fedavg",
        r"line 2: round is 21, should be from 1 to 20",
    ),
    "no method": ("metrics.csv", "0,5,fedavg", "0,5,", r"line 2: method is empty"),
    "a row twice": ("metrics.csv", "0,5,mpt,", "0,5,fedavg,", r""),
    "a cell too few": ("metrics.csv", "0,5,mpt,", "0,mpt,", r"line 10: 21 cells, should be 22"),
    "no such column": ("metrics.csv", ",recall,", ",rare_recall,", r"line 1: there is no column recall"),
    "no column of classes": ("metrics.csv", ",class,", ",kind,", r"line 1: there is no column class"),
    "an open quote": ("metrics.csv", "0,5,mpt,", '0,5,"mpt,', r"line \d+: "),
    "more than departed": ("metrics.csv", FIRST, FIRST[:-2] + "2,", r"line 2: departed is 2, should be from 0 to 1"),
    "costs of text": ("metrics.csv", ",0,0,0,0,0,", ",0,0,0,x,0,", r"line 2: readout_bytes_up is 'x'"),
    "a class that is none": (
        "metrics.csv",
        "0,5,fedavg,own,car,",
        "0,5,fedavg,own,lorry,",
        rf"line 3: class is 'lorry', should be one of {CLASSES}",
    ),
    "a label that is none": (
        "confusion.csv",
        ",own,car,car,",
        ",own,lorry,car,",
        rf"line 2: label is 'lorry', should be one of {CLASSES}",
    ),
    "a prediction that is none": (
        "confusion.csv",
        ",own,car,car,",
        ",own,car,0,",
        rf"line 2: predicted is '0', should be one of {CLASSES}",
    ),
    "a negative count": ("confusion.csv", ",own,car,car,", ",own,car,car,-", r"count is -\d+, should be at least 0"),
    "no method of a confusion": ("confusion.csv", ",fedavg,own,", ",,own,", r"line 2: method is empty"),
    "an endless drift": (
        "diagnostics.csv",
        "0,5,,truck,,,,,,,,,",
        "0,5,,truck,,,,,,,,,inf#",
        r"line 2: drift is 'inf#",
    ),
    "a note on a class that is none": (
        "diagnostics.csv",
        "0,5,,truck,",
        "0,5,,lorry,",
        rf"line 2: class is 'lorry', should be one of {CLASSES}",
    ),
    "no TOML": ("config.toml", "rounds = ", "rounds == ", r"config.toml: is no TOML"),
    "no rounds": ("config.toml", "rounds = ", "loops = ", r"config.toml: rounds is None, should be a whole number"),
    "a departure of text": ("config.toml", "depart_at = 15", 'depart_at = "x"', r"depart_at is 'x'"),
    "no JSON": ("manifest.json", '"rare"', "rare", r"manifest.json: is no JSON"),
    "a rare class that is none": ("manifest.json", '"rare": 2', '"rare": 8', r"rare is 8, .* from 0 to 7"),
    "the format before": (
        "manifest.json",
        '"format": 2',
        '"format": 1',
        r"manifest.json: the run has format 1, this release of mpt reads 2; run it again$",
    ),
    "no format": ("manifest.json", '"format": 2,', "", r"manifest.json: the run has format 1, this release"),
    "a format to come": ("manifest.json", '"format": 2', '"format": 3', r"the run has format 3, this release"),
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
    with pytest.raises(RunError, match=sentence) as caught:
        write_report(folder)
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)
    assert (folder / "report.html").read_text() == "old"
    assert not list(folder.glob("*.tmp"))


@pytest.mark.parametrize("name", ["metrics.csv", "diagnostics.csv", "confusion.csv"])
def test_a_truncated_table(folder, name):
    path = folder / name
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(RunError, match=rf"{name}: breaks off in line \d+, should end with a whole line"):
        write_report(folder)
    path.write_bytes(b"")
    with pytest.raises(RunError, match=rf"{name}: is empty"):
        write_report(folder)
    path.write_bytes(b"\xff\xfe\n")
    with pytest.raises(RunError, match=rf"{name}: byte 0 is no UTF-8"):
        write_report(folder)


def test_metrics_with_a_header_alone(folder):
    (folder / "metrics.csv").write_text(",".join(METRICS) + "\n")
    with pytest.raises(RunError, match=r"has a header and no more"):
        write_report(folder)


def test_metrics_of_other_classes_alone(folder):
    without(folder / "metrics.csv", lambda line: line["class"] == "truck")
    with pytest.raises(RunError, match=r"metrics.csv: has no line of truck, the class that departs$"):
        write_report(folder)


def test_a_truncated_image(folder):
    path = folder / "samples.png"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(RunError, match=r"samples.png: is no whole PNG image"):
        write_report(folder)


def test_an_unfinished_run_says_so(folder):
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**manifest, "finished": False}))
    page = write_report(folder).read_text(encoding="utf-8")
    assert re.search(
        r'class="warning"[^>]*>This run is unfinished: evaluated up to round 20 of 20, with 2 of 2 seeds', page
    )
