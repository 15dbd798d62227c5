"""The page's numbers, computed by hand, and its sentences."""

import re
from dataclasses import replace

import pytest

from mpt.report.numbers import difference, summarize
from mpt.report.page import render
from mpt.report.reader import read_run
from mpt.report.rows import looks
from mpt.report.words import notes, quantity, score, signed, title, verdict
from tests.report.samples import COSTS, METRICS, write, write_run

F1 = {  # by method and seed: F1 at rounds 10, 15 (the departure), 20 and 25
    "fedavg": [(0.5, 0.5, 0.0, 0.0), (0.5, 0.5, 0.02, 0.0)],
    "mpt": [(0.5, 0.6, 0.4, 0.3), (0.5, 0.6, 0.5, 0.4)],
    "ldc": [(0.5, 0.6, 0.2, 0.2), (0.5, 0.6, 0.3, 0.2)],
    "oracle-train": [(0.5, 0.6, 0.5, 0.5), (0.5, 0.6, 0.5, 0.5)],
}


def run_of(folder, f1=F1):
    seeds = len(next(iter(f1.values())))
    write_run(folder, methods=tuple(f1), seeds=seeds, rounds=25)
    metrics, costs = [], []
    for seed in range(seeds):
        for i, number in enumerate((10, 15, 20, 25)):
            for method, values in f1.items():
                if seed < len(values) and i < len(values[seed]):
                    after = int(number > 15)
                    scores = (values[seed][i], 0.25 + seed / 2, 0.5, 0.6, 0.6, 0.7)
                    metrics.append(
                        (seed, number, method, "mahalanobis", *scores, "", 100 * after * i, after, 1, 0.002 * i)
                    )
                    costs.append((seed, number, method, "mahalanobis", 1, 0, 0, 1000 * after, 24 * after, 0.0, 0.0))
    write(folder / "metrics.csv", METRICS, metrics)
    write(folder / "costs.csv", COSTS, costs)
    return read_run(folder)


def sentences(run):
    return " ".join(verdict(run, summarize(run), list(looks(run.rows).values())))


def test_a_summary_by_hand(tmp_path):
    mpt = summarize(run_of(tmp_path))[1]
    assert mpt.row.method == "mpt"
    assert mpt.mean_by_seed == pytest.approx({0: 0.35, 1: 0.45})
    assert mpt.mean_f1 == pytest.approx((0.4, 0.005**0.5))  # deviation of .35 and .45: .1 / sqrt(2)
    assert mpt.last_f1 == pytest.approx((0.35, 0.005**0.5))
    assert mpt.precision.mean == pytest.approx(0.5)
    assert (mpt.bytes_up, mpt.bytes_down) == (250, 1)  # 200 and 300 in the two rounds after
    assert mpt.readout_bytes == 1024
    assert mpt.milliseconds == pytest.approx(5)


def test_paired_differences_by_hand(tmp_path):
    _, mpt, ldc, oracle = summarize(run_of(tmp_path))
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
    lower = tuple(m._replace(others_accuracy=0.1) if m.row.method == "fedlc" else m for m in run.metrics)
    assert "not mpt but fedlc (.500), ahead of it by .100" in sentences(replace(run, metrics=lower))
    assert "their mean recall is .100 against .700 with mpt at the last round." in sentences(
        replace(run, metrics=lower)
    )


def test_a_verdict_on_one_seed(tmp_path):
    run = run_of(tmp_path, {name: values[:1] for name, values in F1.items()} | {"ldc": [(0.5, 0.6, 0.4, 0.28)]})
    assert "ahead of ldc (.340) by .010 (one seed; between seeds F1 often moves by .02 to .05)." in sentences(run)
    assert any("One seed" in note for note in notes(run, summarize(run)))


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
    run = run_of(tmp_path, {**F1, "ldc": [(0.5, 0.6, 0.2)]})
    assert any("Not all rows have the same seeds and rounds" in note for note in notes(run, summarize(run)))


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
