"""The numbers of a run, computed by hand, and the sentences on them."""

import csv
import re
from dataclasses import replace

import pytest

from mpt.base.seeds import Series
from mpt.base.text import listed, quantity, score, signed
from mpt.pages.styles import styles_of
from mpt.report.page import render
from mpt.report.words import notes, title, verdict
from mpt.runs.reader import read_run
from mpt.runs.summary import Figures, curves, difference, over, records
from tests.report.samples import METRICS, NOTHING, write, write_run

F1 = {  # by method and seed: F1 at rounds 10, 15 (the departure), 20 and 25
    "fedavg": [(0.5, 0.5, 0.0, 0.0), (0.5, 0.5, 0.02, 0.0)],
    "mpt": [(0.5, 0.6, 0.4, 0.3), (0.5, 0.6, 0.5, 0.4)],
    "ldc": [(0.5, 0.6, 0.2, 0.2), (0.5, 0.6, 0.3, 0.2)],
    "oracle-train": [(0.5, 0.6, 0.5, 0.5), (0.5, 0.6, 0.5, 0.5)],
}


def run_of(folder, f1=F1):
    seeds = len(next(iter(f1.values())))
    write_run(folder, methods=tuple(f1), seeds=seeds, rounds=25)
    metrics = []
    for seed in range(seeds):
        for i, number in enumerate((10, 15, 20, 25)):
            for method, values in f1.items():
                if seed < len(values) and i < len(values[seed]) and values[seed][i] is not None:
                    after = int(number > 15)
                    scores = (values[seed][i], 0.25 + seed / 2, 0.5, 0.6, 0.6, 0.7)
                    cost = (1, 100 * after * i, after, 1000 * after, 24 * after, 0.0005 * i, 0.0015 * i)
                    key = (seed, number, method, "mahalanobis")
                    metrics.append((*key, "truck", after, *scores, "", "", "", *cost))
                    metrics.append((*key, "car", 0, 0.9, 0.9, 0.9, *NOTHING))
    write(folder / "metrics.csv", METRICS, metrics)
    return read_run(folder)


def sentences(run):
    return " ".join(verdict(run, run.figures.summaries, list(styles_of(run.figures.series).values())))


def test_a_summary_by_hand(tmp_path):
    mpt = run_of(tmp_path).figures.summaries[1]
    assert mpt.series == Series("mpt", "mahalanobis")
    assert (mpt.seeds, mpt.last_round, mpt.rounds, mpt.cost_rounds) == (2, 25, (20, 25), 2)
    assert mpt.departure_f1 == pytest.approx(0.6)
    assert mpt.mean_by_seed == pytest.approx({0: 0.35, 1: 0.45})
    assert mpt.mean_f1 == pytest.approx((0.4, 0.005**0.5))  # deviation of .35 and .45: .1 / sqrt(2)
    assert mpt.last_f1 == pytest.approx((0.35, 0.005**0.5))
    assert mpt.precision.mean == pytest.approx(0.5)
    assert (mpt.bytes_up, mpt.bytes_down) == (250, 1)  # 200 and 300 in the two rounds after
    assert (mpt.readout_bytes_up, mpt.readout_bytes_down, mpt.readout_bytes) == (1000, 24, 1024)
    assert mpt.milliseconds == pytest.approx(5)  # 4 and 6, a quarter of them on vehicles


def test_a_summary_as_a_record(tmp_path):
    record = records(run_of(tmp_path).figures.summaries)[1]
    assert (record["method"], record["readout"], record["seeds"]) == ("mpt", "mahalanobis", 2)
    assert (record["mean_f1"], record["mean_f1_sd"]) == pytest.approx((0.4, 0.005**0.5))
    assert (record["last_f1"], record["departure_f1"]) == pytest.approx((0.35, 0.6))
    assert (record["mean_rounds"], record["cost_rounds"]) == (2, 2)
    assert (record["balanced_accuracy"], record["others_accuracy"]) == pytest.approx((0.6, 0.7))
    sent = [record[name] for name in ("bytes_up", "bytes_down", "readout_bytes_up", "readout_bytes_down")]
    assert sent == [250, 1, 1000, 24]


def test_before_a_round_lies_after_the_departure_costs_are_of_all_rounds(tmp_path):
    figures = run_of(tmp_path, {"mpt": [(0.5, 0.6), (0.4, 0.5)]}).figures
    (mpt,) = figures.summaries
    assert (mpt.mean_f1, mpt.rounds, mpt.mean_by_seed) == (None, (), {})
    assert mpt.f1 == mpt.last_f1.mean == pytest.approx(0.55)
    assert mpt.cost_rounds == 2
    assert mpt.milliseconds == pytest.approx(1)  # 0 and 2
    assert figures.cost(mpt.series, "bytes_up") is None
    assert figures.mean_over == ""
    assert figures.costs_over == "of a round, all vehicles together: mean over all evaluated rounds"


def test_curves_and_figures_of_a_row(tmp_path):
    run = run_of(tmp_path)
    mpt = Series("mpt", "mahalanobis")
    curve = run.figures.curve(mpt)
    assert {number: point.mean for number, point in curve.points.items()} == pytest.approx(
        {10: 0.5, 15: 0.6, 20: 0.45, 25: 0.35}
    )
    assert curve.seeds[1] == pytest.approx({10: 0.5, 15: 0.6, 20: 0.5, 25: 0.4})
    assert run.figures.curve(mpt, "prototype_distance").points == {}
    assert run.figures.curve(Series("mpt", "cosine")).points == {}
    assert curves(run.figures, "f1") == {series: run.figures.curve(series) for series in run.figures.series}
    sums = curves(run.figures, lambda r: r["readout_bytes_up"] + r["readout_bytes_down"])[mpt]
    assert {number: point.mean for number, point in sums.points.items()} == {10: 0, 15: 0, 20: 1024, 25: 1024}
    assert run.figures.last(mpt) == pytest.approx({0: 0.3, 1: 0.4})
    assert run.figures.last(mpt, "precision", round=20) == pytest.approx({0: 0.25, 1: 0.75})
    assert run.figures.mean(mpt) == pytest.approx({0: 0.35, 1: 0.45})
    assert run.figures.mean(mpt, rounds=[20]) == pytest.approx({0: 0.4, 1: 0.5})
    assert over(run.figures.mean(mpt)) == pytest.approx((0.4, 0.005**0.5))
    assert over({}) is None
    assert run.figures.cost(mpt, "bytes_up", "bytes_down") == 251
    assert run.figures.first("mpt") == mpt


def test_another_class_has_its_f1_and_nothing_else(tmp_path):
    run = run_of(tmp_path)
    car = Figures.of(run.tables.metrics, "car", run.depart_at)
    assert car.series == run.figures.series
    assert car.mean(Series("mpt", "mahalanobis")) == pytest.approx({0: 0.9, 1: 0.9})
    assert car.last(Series("mpt", "mahalanobis"), "balanced_accuracy") == {}
    assert Figures.of(run.tables.metrics, "van", run.depart_at).metrics == ()


def test_paired_differences_by_hand(tmp_path):
    _, mpt, ldc, oracle = run_of(tmp_path).figures.summaries
    gap = difference(mpt, ldc)  # .35 - .2 and .45 - .25: .15 and .2
    assert gap.mean == pytest.approx(0.175)
    assert gap.half == pytest.approx(12.7062 * 0.0353553 / 2**0.5, rel=1e-4)  # Student's t, one degree of freedom
    assert not gap.clear
    assert difference(oracle, oracle).mean == 0


def test_the_table_has_them(tmp_path):
    page = render(run_of(tmp_path))
    row = re.search(r'<tr class="series kind-mpt is-mpt".*?</tr>', page, flags=re.DOTALL)[0]
    cells = [re.sub(r"<[^>]+>", "", cell) for cell in re.findall(r"<td.*?</td>", row)]
    assert cells[:2] == [".400 ± .071", ".350 ± .071"]
    assert cells[3:] == [".500", ".500", ".600", ".700", "250 B", "1 B", "1.0 kB", "5.0"]
    assert "mahalanobis readout, held-out" in row
    ldc = page[page.index('data-v="ldc"') :]
    assert "\N{MINUS SIGN}.175" in ldc[: ldc.index("</tr>")]


def test_a_verdict_in_favour(tmp_path):
    text = sentences(run_of(tmp_path))
    assert text == (
        "After the departure, the softmax head (fedavg) recognises truck with F1 .005 on average, mpt with .400, which "
        "is 80% of oracle-train\N{RIGHT SINGLE QUOTATION MARK}s .500. Of the 3 methods that need no oracle, mpt has "
        "the highest mean F1, ahead of ldc (.225) by .175 ± .318 (95% interval, 2 paired seeds), which does not tell "
        "them apart."
    )


def test_a_verdict_against(tmp_path):
    text = sentences(run_of(tmp_path, {**F1, "ldc": [(0.5, 0.6, 0.5, 0.4), (0.5, 0.6, 0.6, 0.5)]}))
    assert "the best is not mpt but ldc (.500), ahead of it by .100 ± .000 (95% interval, 2 paired seeds)." in text


def test_a_verdict_names_what_the_other_classes_pay(tmp_path):
    run = run_of(tmp_path, {**F1, "fedlc": [(0.5, 0.6, 0.5, 0.4), (0.5, 0.6, 0.6, 0.5)]})
    assert "pay for it" not in sentences(run)
    lower = tuple({**m, "others_accuracy": 0.1} if m["method"] == "fedlc" else m for m in run.tables.metrics)
    paid = sentences(replace(run, tables=replace(run.tables, metrics=lower)))
    assert "not mpt but fedlc (.500), ahead of it by .100" in paid
    assert "their mean recall is .100 against .700 with mpt at the last round." in paid


def test_a_verdict_on_one_seed(tmp_path):
    run = run_of(tmp_path, {name: values[:1] for name, values in F1.items()} | {"ldc": [(0.5, 0.6, 0.4, 0.28)]})
    assert "ahead of ldc (.340) by .010 (one seed; between seeds F1 often moves by .02 to .05)." in sentences(run)
    assert any("One seed" in note for note in notes(run, run.figures.summaries))


def test_verdicts_of_other_kinds(tmp_path):
    level = sentences(run_of(tmp_path / "level", {**F1, "ldc": F1["mpt"]}))
    assert "are level at .400" in level
    nothing = {name: [(0.5, 0.5, 0.0, 0.0)] for name in ("fedavg", "mpt", "ldc")}
    assert "None of the 3 methods that need no oracle recognises truck" in sentences(run_of(tmp_path / "zero", nothing))
    alone = sentences(run_of(tmp_path / "alone", {"mpt": F1["mpt"]}))
    assert alone == "After the departure, mpt recognises truck with F1 .400 on average."
    own = sentences(run_of(tmp_path / "own", {"mine": F1["mpt"]}))
    assert own == "mine recognises truck with F1 .400 on average after the departure."
    reference = sentences(run_of(tmp_path / "reference", {"oracle": F1["mpt"]}))
    assert reference.startswith("Only references are here")
    before = run_of(tmp_path / "before", {"mpt": [(0.5, 0.6)]})
    assert sentences(before).startswith("No evaluated round lies after the departure")


def test_rows_over_different_rounds_are_told(tmp_path):
    assert not run_of(tmp_path / "even").figures.uneven
    run = run_of(tmp_path / "uneven", {**F1, "ldc": [(0.5, 0.6, 0.2)]})
    assert run.figures.uneven
    assert any("Not all rows have the same seeds and rounds" in note for note in notes(run, run.figures.summaries))


def test_a_row_that_was_read_out_in_one_round_has_no_say_where_others_have_several(tmp_path):
    run = run_of(tmp_path / "one", {**F1, "ldc": [(0.5, 0.6, None, 0.2), (0.5, 0.6, None, 0.3)]})
    assert run.figures.shared_rounds() == {20, 25}
    _, mpt, ldc, _ = run.figures.summaries
    assert mpt.mean_f1.mean == pytest.approx(0.4)
    assert (ldc.mean_f1, ldc.mean_by_seed) == (None, {})
    assert ldc.last_f1.mean == pytest.approx(0.25)
    assert (ldc.rounds, ldc.cost_rounds) == ((20, 25), 1)
    assert difference(mpt, ldc) is None
    assert run.figures.mean_over == "all 2 rounds that were read out after the departure"
    assert run.figures.shared_rounds([ldc.series]) == run.figures.shared_rounds([ldc.series, ldc.series]) == {25}
    alone = run_of(tmp_path / "all of them", {name: [(0.5, 0.6, None, 0.2)] for name in ("mpt", "ldc")})
    assert alone.figures.shared_rounds() == {25}
    assert [s.mean_f1.mean for s in alone.figures.summaries] == pytest.approx([0.2, 0.2])


def test_means_are_over_the_rounds_in_which_all_rows_were_read_out(tmp_path):
    folder = write_run(tmp_path, methods=("fedavg", "mpt", "ldc"), seeds=2, rounds=30)
    with (folder / "metrics.csv").open(newline="") as file:
        header, *lines = csv.reader(file)
    write(folder / "metrics.csv", header, [line for line in lines if (line[1], line[2]) != ("25", "ldc")])
    run = read_run(folder)
    assert run.figures.shared_rounds() == {20, 30}
    truck = [m for m in run.tables.metrics if m["class"] == "truck"]
    for summary in run.figures.summaries:
        for seed in (0, 1):
            mine = {m["round"]: m["f1"] for m in truck if (m["seed"], m["method"]) == (seed, summary.series.method)}
            assert summary.mean_by_seed[seed] == pytest.approx((mine[20] + mine[30]) / 2)
        assert summary.rounds == (20, 30)
    assert [summary.cost_rounds for summary in run.figures.summaries] == [3, 3, 2]
    assert run.figures.mean_over == (
        "2 of 3 rounds that were read out after the departure, those in which every row was (20, 30)"
    )
    assert any(run.figures.mean_over in note for note in notes(run, run.figures.summaries))
    assert run.figures.mean_over in render(run)


def test_titles(tmp_path):
    for name, expected in {
        "truck": "Truck",
        "8": "Class 8",
        "traffic cone": "Traffic cone",
        "<b>": "Class <b>",
    }.items():
        run = read_run(write_run(tmp_path, classes=("car", name), rare=1, methods=("mpt",), rounds=20))
        assert title(run) == f"{expected} departed after round 15"


def test_numbers_as_the_paper_writes_them():
    assert [score(v) for v in (0, 0.4054, 1, -0.02, -0.0001)] == [".000", ".405", "1.000", "\N{MINUS SIGN}.020", ".000"]
    assert [signed(v, 2) for v in (0.1, -0.1, 0.001)] == ["+.10", "\N{MINUS SIGN}.10", ".00"]
    shown = [quantity(v) for v in (0, 364, 999.4, 3864, 260416, 999_990, 1_907_880, 5e9)]
    assert shown == ["0 B", "364 B", "999 B", "3.9 kB", "260 kB", "1.0 MB", "1.9 MB", "5.0 GB"]
    assert [listed(list(names)) for names in ("a", "ab", "abc")] == ["a", "a and b", "a, b and c"]
