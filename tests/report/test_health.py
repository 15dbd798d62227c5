import csv

import pytest

from mpt.methods import METHODS, Traits, find_method
from mpt.report import write_report
from mpt.report.health import health_table, stated
from mpt.runs.reader import read_run
from tests.report.samples import write_run


def state_errors(folder, expected, verdict, method="mpt"):
    """Add what a method stated to a run's diagnostics, under its name in the place of mpt."""
    path = folder / "diagnostics.csv"
    with path.open() as file:
        lines = list(csv.DictReader(file))
    for line in lines:
        mine = line["method"] == "mpt"
        line["method"] = method if mine else line["method"]
        line["expected_error"], line["verdict"] = (expected, verdict) if mine else ("", "")
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(lines[0]))
        writer.writeheader()
        writer.writerows(lines)


def test_a_run_without_statements_shows_none(tmp_path):
    folder = write_run(tmp_path / "run")
    assert stated(read_run(folder)) == []
    assert health_table(read_run(folder), []) == ""
    assert "What the methods expected" not in write_report(folder).read_text()


def test_statements_are_compared_with_the_true_distance(tmp_path):
    folder = write_run(tmp_path / "run")
    run = read_run(folder)
    after = [m for m in run.figures.metrics if m["method"] == "mpt" and m["round"] > run.depart_at]
    distances = sorted(m["prototype_distance"] for m in after)
    middle = (distances[0] + distances[-1]) / 2
    state_errors(folder, middle, 1)
    (one,) = stated(read_run(folder))
    assert (one.method, one.expected) == ("mpt", pytest.approx(middle))
    assert one.within == pytest.approx(sum(d <= middle for d in distances) / len(distances))
    assert one.verdicts == (0, len(distances), 0, 0, 0)


def test_who_says_that_its_expectation_holds():
    """Not mpt-lite, whose error says too little of F1, nor what is read of MPT in part or blended."""
    calibrated = {name for name in METHODS if Traits.of(find_method(name)).calibrated}
    assert calibrated == {"mpt", "mpt:trained", "mpt:outward", "mpt-x", "mpt-x:in-place"}


@pytest.mark.parametrize(
    ("method", "shown"),
    [
        ("mpt", True),
        ("mpt-lite", False),
        ("mine", False),
        ("mpt-x", True),
        ("mpt-x:in-place", True),
        ("mpt-x(cov_ridge=0.3)", True),
    ],
)
def test_a_verdict_is_shown_only_where_what_was_expected_holds(tmp_path, method, shown):
    folder = write_run(tmp_path / "run", methods=("frozen", "mpt", method) if method != "mpt" else ("frozen", "mpt"))
    state_errors(folder, 1.0, 2, method)
    assert [one.method for one in stated(read_run(folder))] == [method]
    page = write_report(folder).read_text()
    assert ("What the methods expected" in page) is shown
    assert ('<th scope="col">degraded</th>' in page) is shown
    assert (f'<tr><th scope="row">{method}</th><td>1.00</td>' in page) is shown
