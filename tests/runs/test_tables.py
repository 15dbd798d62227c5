import csv
import math
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch", reason="the extra sim is not installed")

from mpt.federation.measurement import Drift, Measurement, Step
from mpt.federation.metrics import score
from mpt.methods import Cost
from mpt.runs.errors import RunError
from mpt.runs.tables import COLUMNS, Tables, tables_of
from tests.report.samples import CONFUSION, DIAGNOSTICS, METRICS

CLASSES = ("car", 'a, "b"\n', "truck", "nowhere")  # the last has no test samples
MATRIX = np.array([[3, 1, 0, 0], [0, 2, 2, 0], [1, 0, 1, 2], [0, 0, 0, 0]])  # labels by predictions
COST = Cost(messages=2, bytes_up=364, bytes_down=12, vehicle_seconds=0.25, server_seconds=1 / 3)


def measured(number=20, method="mpt", **other):
    row = Measurement(
        1,
        number,
        method,
        "mahalanobis",
        2,
        True,
        score(MATRIX, [2]),
        1 / 3,
        COST,
        Cost(bytes_up=5, bytes_down=6),
        {"alpha": 0.25, "remaining": 4.0, "odd one": -1.5},
        Drift(1.25, 0.5),
        (3.0, 4.0),
        step=Step(0.75, 0.25, 5),
    )
    return replace(row, **other)


def test_the_columns_of_each_table():
    assert tuple(COLUMNS["metrics"]) == METRICS
    assert tuple(COLUMNS["diagnostics"]) == DIAGNOSTICS
    assert tuple(COLUMNS["confusion"]) == CONFUSION


def test_what_is_written_is_read_again_the_same(tmp_path):
    noted = {"seed": 0, "round": 3, "method": "mine", "class": "truck", "alpha": 0.25, "remaining": 4, "odd one": -1.5}
    drift = {"seed": 0, "round": 3, "method": "", "class": "truck", "drift": 1.25, "rare_drift": 0.0}
    drift |= {"step_references": 0.5, "step_rare": 2.0, "step_rounds": 5}
    tables = Tables(diagnostics=(drift, noted))
    tables.write(tmp_path)
    again = Tables.read(tmp_path)
    assert [{k: v for k, v in r.items() if v is not None} for r in again.diagnostics] == [drift, noted]
    again.write(tmp_path / "..")
    assert (tmp_path / ".." / "diagnostics.csv").read_bytes() == (tmp_path / "diagnostics.csv").read_bytes()
    header, first, second = (tmp_path / "diagnostics.csv").read_text().splitlines()
    assert header.endswith("drift,rare_drift,step_references,step_rare,step_rounds,odd one")
    assert first == "0,3,,truck,,,,,,,,,1.250000,0.000000,0.500000,2.000000,5,"
    assert second == "0,3,mine,truck,0.250000,,,4,,,,,,,,,,-1.500000"
    frame = again.frame("diagnostics")
    assert frame["remaining"].dtype == "Int64"
    assert frame["alpha"].isna().tolist() == [True, False]
    assert frame["method"].tolist() == ["", "mine"]
    assert len(again.frame("metrics")) == 0


def test_the_class_that_departs_has_all_figures_and_the_others_their_own():
    departing, *others = tables_of([measured()], (), CLASSES).metrics
    assert departing == {
        "seed": 1,
        "round": 20,
        "method": "mpt",
        "readout": "mahalanobis",
        "class": "truck",
        "departed": 1,
        "f1": round(2 * 1 / (3 + 4), 6),
        "precision": round(1 / 3, 6),
        "recall": 0.25,
        "accuracy": 0.5,
        "balanced_accuracy": 0.5,
        "others_accuracy": round((3 / 4 + 2 / 4) / 2, 6),
        "prototype_distance": 0.333333,
        "in_span_error": 3.0,
        "out_of_span_error": 4.0,
        "messages": 2,
        "bytes_up": 364,
        "bytes_down": 12,
        "readout_bytes_up": 5,
        "readout_bytes_down": 6,
        "vehicle_seconds": 0.25,
        "server_seconds": 0.333333,
    }
    assert [record["class"] for record in others] == [CLASSES[0], CLASSES[1]]
    assert [(r["f1"], r["precision"], r["recall"]) for r in others] == [(0.75, 0.75, 0.75), (0.571429, 0.666667, 0.5)]
    for record in others:
        assert list(record) == list(METRICS)
        assert record["departed"] == 0
        assert {record[column] for column in METRICS[METRICS.index("accuracy") :]} == {None}


def test_rows_of_all_classes_are_read_again_as_they_were_written(tmp_path):
    rows = [measured(), measured(method="fedavg", prototype_distance=None, span_errors=None, notes={}, gone=False)]
    tables = tables_of(rows, (20,), CLASSES)
    tables.write(tmp_path)
    again = Tables.read(tmp_path)
    assert again == tables
    assert [record["class"] for record in again.metrics] == 2 * [CLASSES[2], CLASSES[0], CLASSES[1]]
    (tmp_path / "again").mkdir()
    again.write(tmp_path / "again")
    for name in COLUMNS:
        assert (tmp_path / "again" / f"{name}.csv").read_bytes() == (tmp_path / f"{name}.csv").read_bytes()
    frame = again.frame("metrics")
    assert frame["bytes_up"].isna().tolist() == 2 * [False, True, True]
    assert frame["departed"].tolist() == [1, 0, 0, 0, 0, 0]
    assert frame["departed"].dtype == "int64"


def test_confusion_has_names_and_only_the_rounds_that_are_asked_for():
    rows = [measured(20), measured(25)]
    found = tables_of(rows, (25,), CLASSES).confusion
    assert {record["round"] for record in found} == {25}
    counts = {(record["label"], record["predicted"]): record["count"] for record in found}
    assert counts == {(CLASSES[i], CLASSES[j]): n for (i, j), n in np.ndenumerate(MATRIX) if n}


def test_notes_are_once_a_method_and_the_drift_once_a_round():
    cosine = measured(readout="cosine")
    space, noted = tables_of([measured(), cosine, measured(method="frozen", notes={})], (), CLASSES).diagnostics
    assert (space["method"], space["class"], space["drift"], space["rare_drift"]) == ("", "truck", 1.25, 0.5)
    assert (noted["method"], noted["class"], noted["alpha"], noted["odd one"]) == ("mpt", "truck", 0.25, -1.5)
    assert noted["remaining"] == 4
    assert isinstance(noted["remaining"], int)
    assert noted["drift"] is None
    assert [space[c] for c in ("step_references", "step_rare", "step_rounds")] == [0.75, 0.25, 5]
    assert noted["step_rounds"] is None
    without = measured(step=Step(math.nan, 0.25, 1))
    assert tables_of([without], (), CLASSES).diagnostics[0]["step_references"] is None


def test_a_file_from_before_the_steps_is_read_without_them(tmp_path):
    tables_of([measured()], (), CLASSES).write(tmp_path)
    path = tmp_path / "diagnostics.csv"
    header, *lines = csv.reader(path.read_text().splitlines())
    kept = [i for i, column in enumerate(header) if not column.startswith("step_")]
    path.write_text("".join(",".join(line[i] for i in kept) + "\n" for line in (header, *lines)))
    space, _ = Tables.read(tmp_path).diagnostics
    assert (space["drift"], space["step_references"], space["step_rare"], space["step_rounds"]) == (1.25, *[None] * 3)
    path.write_text(path.read_text().replace("drift", "shift"))
    with pytest.raises(RunError, match="there is no column drift"):
        Tables.read(tmp_path)


def test_some_methods_and_seeds():
    rows = [measured(), measured(method="frozen"), measured(seed=0)]
    tables = sum((tables_of([row], (20,), CLASSES) for row in rows), Tables())
    assert tables.seeds == (0, 1)
    assert len(tables.metrics) == 3 * 3
    assert {r["method"] for r in tables.only({"frozen"}).metrics} == {"frozen"}
    assert tables.only({"frozen"}, {0}) == Tables()
    assert tables.of_seeds(range(1)) == tables_of(rows[2:], (20,), CLASSES)


@pytest.mark.parametrize("name", list(COLUMNS))
def test_a_table_that_is_not_there_is_named(tmp_path, name):
    Tables().write(tmp_path)
    assert Tables.read(tmp_path) == Tables()
    (tmp_path / f"{name}.csv").unlink()
    with pytest.raises(RunError, match=rf"{name}.csv: there is no such file, should be one of those that mpt run"):
        Tables.read(tmp_path)
