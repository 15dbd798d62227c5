"""What `mpt.simulate` gives, as a person at a notebook meets it."""

import io
import re
from base64 import b64decode
from xml.etree import ElementTree

import pytest

for package in ("torch", "rich"):
    pytest.importorskip(package, reason="the extra sim is not installed")

from rich.console import Console

import mpt
from mpt.cli import render
from mpt.cli.render import summary
from mpt.runs.compare import CompareError
from mpt.runs.errors import RunError

SETTINGS = {
    "dataset": "digits", "rare": "8", "per_class": 30, "vehicles": 3, "rounds": 4, "depart_at": 2, "epochs": 1,
    "eval_every": 1, "seeds": 2,
}  # fmt: skip


@pytest.fixture(scope="module")
def result():
    return mpt.simulate(mpt.RunConfig(**SETTINGS, methods=("frozen", "mpt", "oracle-train")))


def test_it_prints_in_a_line(result):
    assert len(repr(result)) < 160
    assert str(result) == repr(result)


def test_a_notebook_shows_the_summary_and_a_picture(result):
    page = result._repr_html_()
    assert len(page) < 60_000
    rows = re.findall(r'<th scope="row">(.*?)</th>', page)
    assert sorted(rows) == ["frozen", "mpt", "oracle-train"]
    f1 = {row.series.method: row.last_f1.mean for row in result.figures.summaries}
    assert f"{f1['mpt']:.3f}".lstrip("0") in page
    (picture,) = re.findall(r"base64,([^\"]+)", page)
    drawn = ElementTree.fromstring(b64decode(picture))
    assert drawn.tag.endswith("svg")
    assert "8 departs after round 2" in "".join(drawn.itertext())


def test_two_methods_are_compared_over_seeds(result):
    pair = result.compare("mpt", "frozen")
    by_hand = [
        sum(m["f1"] * sign for m in result.tables.metrics
            if (m["seed"], m["method"], m["round"], m["class"]) == (seed, name, 4, "8"))
        for seed in (0, 1) for name, sign in (("mpt", 1), ("frozen", -1))
    ]  # fmt: skip
    assert pair.last_f1.difference.mean == pytest.approx(sum(by_hand) / 2)
    assert pair.rounds == (3, 4)
    assert repr(pair).startswith("<F1 of mpt less frozen, 2 seeds: mean after the departure +")
    assert result.compare("frozen", "mpt").mean_f1.difference.mean == -pair.mean_f1.difference.mean


def test_what_is_not_there_is_said(result):
    with pytest.raises(CompareError, match="no mpt-x, it has frozen, mpt, oracle-train"):
        result.compare("mpt-x", "mpt")
    with pytest.raises(RunError, match="table: 'metric', should be one of metrics, diagnostics, confusion, summary"):
        result.to_pandas("metric")
    with pytest.raises(CompareError, match="'mpt' and 'mpt' are one row, should be two methods"):
        result.compare("mpt", "mpt")
    with pytest.raises(CompareError, match="mpt has no readout 'cosine', it has mahalanobis"):
        result.compare("mpt", "frozen", "cosine")


def test_two_readouts_are_told_apart():
    config = mpt.RunConfig(**SETTINGS | {"seeds": 1}, methods=("frozen", "mpt"), readout=("mahalanobis", "cosine"))
    made = mpt.simulate(config)
    f1 = {row.series: row.last_f1.mean for row in made.figures.summaries}
    for (method, readout), value in f1.items():
        assert f"{method} · {readout} {value:.3f}" in repr(made)
    first, second = (made.compare("mpt", "frozen", readout) for readout in ("mahalanobis", "cosine"))
    assert [[row.readout for row in pair.rows] for pair in (first, second)] == [["mahalanobis"] * 2, ["cosine"] * 2]
    assert second.last_f1.difference.mean == pytest.approx(f1["mpt", "cosine"] - f1["frozen", "cosine"])


def test_its_tables_are_data_frames(result):
    pytest.importorskip("pandas")
    assert result.to_pandas().equals(result.metrics)
    assert result.to_pandas("summary").equals(result.summary)
    assert set(result.to_pandas("confusion").columns) >= {"label", "predicted"}


def test_f1_is_plotted(result):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    axes = result.plot_f1()
    assert [line.get_label() for line in axes.get_lines()][:3] == ["frozen", "mpt", "oracle-train"]
    assert axes.get_ylabel() == "F1 of 8"
    assert result.plot_f1(axes) is axes


def test_the_terminals_tables_of_several_seeds_fit_80_columns(result, monkeypatch):
    shown = Console(width=80, record=True, force_terminal=True, file=io.StringIO())
    monkeypatch.setattr(render, "console", shown)
    summary.print_summary(result.figures, "digits")
    lines = [line.rstrip() for line in shown.export_text().splitlines()]
    rows = [line for line in lines if re.match(r"(frozen|mpt|oracle-train) +mahalanobis ", line)]
    assert len(rows) == 2 * 3
    assert sum(" ± " in line for line in rows) == 3
    assert max(map(len, lines)) <= 80
    assert not [line for line in lines if line.startswith(" ") and "±" in line], "no row is two lines"
