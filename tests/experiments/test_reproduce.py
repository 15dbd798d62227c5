"""`mpt reproduce` at a scale of seconds, end to end, and its page in a real browser."""

import csv
import io
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET

import pytest

for package in ("typer", "rich", "torch"):
    pytest.importorskip(package, reason="the extra sim is not installed")

from rich.console import Console
from typer.testing import CliRunner

from mpt.cli.main import app
from mpt.experiments import plans
from mpt.experiments.beyond import within
from mpt.experiments.cells import CellStore
from mpt.experiments.claims import CLAIMS
from mpt.experiments.exhibits import EXHIBITS
from mpt.experiments.plans import PAPER, QUICK, CellSpec, Grid, Scale
from mpt.experiments.reproduce import in_order, reproduce
from mpt.experiments.results import Results
from mpt.experiments.sets import SETS, parse_sources
from mpt.experiments.tables import table2_wanted
from mpt.report.health import stated
from mpt.runs.config import ConfigError
from mpt.runs.reader import read_run
from tests.report import browser

TINY = Scale(
    name="tiny", rounds=4, depart_at=2, epochs=1, batch_size=8, per_class=12, image_size=28, remaining=(0.02, 0.2),
    budgets=(0.02, 0.2), few=0.004, fractions=(0.004, 0.2), classes=2, window=2, departures=(1, 2),
    backbone_remaining=(0.2,), eval_every=2, slow_every=2, seeds=2,
    backbones={"cnn3": {}, "vit-tiny": {"rounds": 2, "depart_at": 1}},
    regimes=("cnn3", "embedding"), regime_sets=("nuimages",), many=None,
)  # fmt: skip
DATA = ("nuimages=road?train=12&test=6:truck/bus", "car1000-coarse=road?train=12&test=6&seed=1:van",
        "car1000-fine=road?train=12&test=6&seed=2:bus")  # fmt: skip


def quiet():
    return Console(file=io.StringIO())


def test_the_papers_exhibits_are_all_there():
    assert set(EXHIBITS) == {
        "table1", "table2", "table3", "fig2a", "fig2b", "fig2c", "fig2d", "fig4", "fig5", "fig6", "fig7", "departure",
        "augmentation", "beyond", "regimes", "table2-regime", "table2-network", "gaps-regime", "claims-regime",
        "uneven",
    }  # fmt: skip


def test_the_papers_scale_is_that_of_the_paper(tmp_path):
    sources = parse_sources(["nuimages=road?train=12&test=6:truck"], stand_ins=False)
    results = Results(Grid(PAPER, sources, PAPER.seeds), CellStore(tmp_path))
    config = results.grid.cell(CellSpec()).config
    assert (config.rounds, config.depart_at, config.epochs, config.remaining) == (100, 15, 5, 0.02)
    assert (config.per_class, config.vehicles, config.seeds, config.backbone) == (1000, None, 3, "cnn3")
    assert {w.remaining for w in table2_wanted(results)} == {0.01, 0.02, 0.05, 0.1}
    assert {w.set for w in table2_wanted(results)} == set(SETS)
    preliminary = results.grid.cell(EXHIBITS["fig2a"].wanted(results)[0]).config
    assert (preliminary.remaining, preliminary.depart_at, preliminary.rounds) == (0.004, 15, 40)
    assert preliminary.eval_every == results.grid.cell(CellSpec()).config.eval_every == 1
    assert len(EXHIBITS["fig2d"].wanted(results)) == 8 * 4
    assert {w.backbone for w in EXHIBITS["table3"].wanted(results)} == {"cnn3", "resnet18", "mobilenetv3", "vit-tiny"}
    assert [w.remaining for w in EXHIBITS["fig7"].wanted(results)] == [0.02, 0.2]


def test_exhibits_share_cells(tmp_path):
    sources = parse_sources(["nuimages=road?train=12&test=6:truck"], stand_ins=False)
    results = Results(Grid(QUICK, sources, 1), CellStore(tmp_path))
    keys = {name: {c.key for c in results.cells(e.wanted(results))} for name, e in EXHIBITS.items()}
    assert keys["fig6"] < keys["fig4"] < keys["table2"]
    assert keys["fig5"] <= keys["table2"]
    assert keys["fig4"] - keys["fig6"] < keys["beyond"] < keys["table2"]
    assert keys["fig6"] < keys["departure"]
    assert keys["fig6"] < keys["fig7"]
    assert keys["fig2a"] == keys["fig2b"] == keys["fig2c"] < keys["fig2d"]


def test_one_process_computes_in_the_order_of_importance_several_the_longest_first(tmp_path):
    assert in_order(["fig7", "beyond", "table2", "fig7"]) == ["table2", "fig7", "beyond"]
    assert in_order(["fig7", "all"])[:3] == ["table2", "fig7", "table1"]
    assert set(in_order(["all"])) == set(EXHIBITS)
    sources = parse_sources(["nuimages=road?train=12&test=6:truck"], stand_ins=False)
    results = Results(Grid(PAPER, sources, 1), CellStore(tmp_path))
    wanted = [CellSpec(study="loss", rare=0), CellSpec(), CellSpec(backbone="resnet18")]
    one, several = ([c.config for c in results.cells(wanted, jobs)] for jobs in (1, 2))
    assert [(c.backbone, c.rounds) for c in one] == [("cnn3", 40), ("cnn3", 100), ("resnet18", 100)]
    assert [(c.backbone, c.rounds) for c in several] == [("resnet18", 100), ("cnn3", 100), ("cnn3", 40)]


def test_after_its_seconds_it_begins_nothing_and_shows_the_rest_as_missing(tmp_path):
    console = quiet()
    made = reproduce(["table2"], tmp_path, data=DATA, jobs=1, device="cpu", seconds=1e-9, console=console)
    assert made.swept.computed == ()
    assert made.swept.failed == {}
    assert len(made.missing) == 6 + 6
    table = (tmp_path / "table2.md").read_text()
    assert "| missing |" in table
    assert "too small to set the paper's numbers beside" in table
    assert "missing (" not in table
    assert "the time is over, 12 of 12 cells were not begun" in console.file.getvalue()


def test_what_is_missing_is_shown_as_missing_with_the_command_that_would_make_it(tmp_path):
    made = reproduce(
        ["table2", "fig4"], tmp_path, scale="paper", data=["nuimages=road?train=12&test=6:truck"], compute=False
    )
    table = (tmp_path / "table2.md").read_text()
    assert table.count("missing (") == 8 * 12  # the paper's numbers stand there all the same
    assert "no data was named for Car-1000, coarse" in table
    assert "mpt reproduce table2 --scale paper --seeds 3 --data 'nuimages=road?train=12&test=6:truck'" in table
    assert "--data car1000-fine=DATASET:CLASS" in table
    assert "(stand-in for nuImages)" in table
    assert "| stand-in road (truck) 1% |" in table  # never the paper's set in a heading
    assert "| no data for Car-1000, fine 10% |" in table
    assert not (tmp_path / "fig4.svg").exists()
    page = (tmp_path / "index.html").read_text()
    assert '<p class="warning">missing</p>' in page
    assert '<td class="missing">missing<small>' in page
    assert len(made.missing) == 4 + 4 + 2
    assert {row["here"] for row in claims(tmp_path)} == {"not run"}


def claims(folder):
    lines = csv.DictReader(io.StringIO((folder / "claims.csv").read_text()))
    found = {}
    for line in lines:
        found.setdefault(line["row"], {})[line["column"]] = line["ours"]
    return list(found.values())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fig3"], "exhibit: 'fig3', should be one of table1"),
        (["table1", "--scale", "huge"], "scale: 'huge', should be one of paper, quick"),
        (["table2", "--data", "nuimages"], "data: 'nuimages', should be like"),
        (["table2", "--data", "nuimages=nowhere:truck"], "dataset: 'nowhere' is none that is known"),
        (["table2", "--data", "nuimages=road?train=12&test=6:lorry"], "class: no 'lorry' in road"),
        (["table2", "--seeds", "0"], "seeds: 0, should be at least 1"),
        (["table2", "--seconds", "0"], "seconds: 0, should be above 0"),
        (["beyond", "--data", "nuimages=road?train=12&test=6:truck,lorry"], "class: no 'lorry' in road"),
        (["beyond", "--data", "nuimages=road?train=12&test=6:truck,truck"], "class 'truck' of nuimages is there twice"),
    ],
)
def test_what_is_wrong_is_one_sentence(tmp_path, arguments, message):
    result = CliRunner().invoke(app, ["reproduce", *arguments, "--show", "--out", str(tmp_path / "out")])
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    plans.SCALES["tiny"] = TINY
    folder = tmp_path_factory.mktemp("reproduced")
    console = quiet()
    yield folder, reproduce(["all"], folder, scale="tiny", data=DATA, jobs=1, device="cpu", console=console), console
    del plans.SCALES["tiny"]


@pytest.mark.slow
def test_all_exhibits_from_end_to_end(whole):
    folder, made, console = whole
    assert made.missing == ()
    assert made.swept.failed == {}
    for name in ("table1", "table2", "table3", "departure", "claims", *EXHIBITS):
        assert (folder / f"{name}.md").exists()
        assert (folder / f"{name}.tex").exists()
        assert name == "table1" or "stand-in for nuImages" in (folder / f"{name}.md").read_text()
    drawings = {path.stem for path in folder.glob("*.svg")}
    assert drawings == {
        "fig2a-f1", "fig2a-accuracy", "fig2b", "fig2c", "fig2d", "fig4", "fig5a", "fig5b", "fig6a", "fig6b",
        "fig7a", "fig7b", "fig7c", "beyond", "regimes",
    }  # fmt: skip
    for path in folder.glob("*.svg"):
        ET.parse(path)
        assert "var(" not in path.read_text()  # plain colours, for programs that know no variables
        told = "stand-in road (truck); stand-in road (van); stand-in road (bus)"
        assert (told if path.stem == "beyond" else "stand-in for nuImages") in path.read_text()
    assert len(claims(folder)) == len(CLAIMS)
    assert {row["here"] for row in claims(folder)} <= {"agrees", "does not", "in part"}
    assert re.search(r"\[\d+/\d+\] stand-in road truck 2% cnn3, \d+ s", console.file.getvalue())


@pytest.mark.slow
def test_table_2_has_the_cells_own_numbers(whole):
    folder, _, _ = whole
    results = Results(Grid(TINY, parse_sources(DATA, stand_ins=False), 2), CellStore(folder / "cells"))
    lines = list(csv.DictReader(io.StringIO((folder / "table2.csv").read_text())))
    for wanted in table2_wanted(results):
        run = (results.store.folder(results.grid.cell(wanted)) / "metrics.csv").read_text()
        rare = results.grid.sources[wanted.set].rare
        mine = [r for r in csv.DictReader(io.StringIO(run)) if r["method"] == "mpt" and r["class"] == rare]
        mean = sum(float(r["f1"]) for r in mine if r["round"] == "4") / 2
        group = f"stand-in road ({results.grid.sources[wanted.set].rare})"
        column = f"{100 * wanted.remaining:g}%"
        (line,) = [x for x in lines if (x["row"], x["group"], x["column"]) == ("MPT", group, column)]
        assert float(line["ours"]) == pytest.approx(mean, abs=1e-6)
        assert (line["paper"] != "") is (wanted.remaining == 0.02)


@pytest.mark.slow
def test_how_often_an_error_was_within_what_was_stated_is_what_the_cells_reports_say(whole):
    folder, _, _ = whole
    results = Results(Grid(TINY, parse_sources(DATA, stand_ins=False), 2), CellStore(folder / "cells"))
    for wanted in EXHIBITS["beyond"].wanted(results):
        told = {s.method: s.within for s in stated(read_run(results.store.folder(results.grid.cell(wanted))))}
        for method in ("mpt-x", "mpt"):
            held = within(results.of(wanted), method)
            assert sum(held) / len(held) == pytest.approx(told[method])


@pytest.mark.slow
def test_started_again_it_computes_nothing_and_says_the_same(whole):
    folder, _, _ = whole
    before = {path.name: path.read_bytes() for path in folder.glob("*.*")}
    again = reproduce(["all"], folder, scale="tiny", data=DATA, jobs=2, device="cpu", console=quiet())
    assert again.swept.computed == ()
    assert {path.name: path.read_bytes() for path in folder.glob("*.*")} == before


@pytest.mark.slow
def test_a_method_of_ones_own_is_a_row_of_tables_figures_and_claims(whole, tmp_path):
    """In cells of its own: those of the paper's methods are read, not computed again."""
    folder = tmp_path / "own"
    shutil.copytree(whole[0], folder)
    (tmp_path / "mine.py").write_text(
        "class Mine:\n    name, training, needs_departure = 'mine', 'held-out', True\n"
        "    def __init__(self, by=0.0): self.by = by\n    def depart(self, context): return context.prototype()\n"
        "    def track(self, state, context): return state, state + self.by\n"
    )
    own = f"{tmp_path / 'mine.py'}:Mine(by=0.5)"
    names = ["table1", "table2", "fig4", "fig5"]
    made = reproduce(names, folder, scale="tiny", data=DATA, jobs=1, device="cpu", methods=[own], console=quiet())
    assert len(made.swept.computed) == 6, "Table 2's settings, once each"
    assert made.missing == ()
    row = next(line for line in (folder / "table2.md").read_text().splitlines() if line.startswith("| mine(by=0.5) |"))
    assert "missing" not in row
    for name in names:
        assert "mine(by=0.5)" in (folder / f"{name}.md").read_text(), name
    assert "mine(by=0.5)" in (folder / "fig4.svg").read_text()
    judged = (folder / "claims.md").read_text()
    assert "| mine(by=0.5) beats every baseline |" in judged
    assert "| mine(by=0.5) beats MPT |" in judged
    page = (folder / "index.html").read_text()
    assert "mine(by=0.5)" in page
    before, after = ((path / "table2.csv").read_text().splitlines() for path in (whole[0], folder))
    assert [line for line in after if not line.startswith("mine(by=0.5)")] == before
    results = Results(Grid(TINY, parse_sources(DATA, stand_ins=False), 2, (own,)), CellStore(folder / "cells"))
    assert results.of(CellSpec(remaining=0.2)).last("mine(by=0.5)")
    with pytest.raises(ConfigError, match="'mpt' is a row of the exhibits already"):
        reproduce(["table2"], folder, data=DATA, methods=["mpt"], compute=False)


@pytest.mark.slow
@pytest.mark.skipif(browser.CHROMIUM is None, reason="no Chromium is installed")
@pytest.mark.parametrize("width", browser.WIDTHS)
def test_the_page_in_a_browser(whole, width):
    result = browser.look(
        whole[0] / "index.html",
        browser.FITS
        + """
        result.links = all("a").map((n) => n.getAttribute("href"));
        result.judged = all(".claims .by a").map((n) => n.getAttribute("href").slice(1));
        result.sections = all("section[id]").map((n) => n.id);
        const key = all("button.key").find((b) => b.textContent === "MPT");
        const mine = () => all(`svg [data-s=${key.dataset.s}]`).filter(seen).length;
        result.before = mine();
        key.click();
        result.after = mine();
        const chart = all("svg.lines").find(seen);
        chart.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowLeft" }));
        result.tip = document.querySelector(".tip").textContent;
        """,
        width=width,
    )
    assert result["wrong"] == []
    assert result["requests"] == []
    assert result["wide"] <= result["window"] == width
    assert result["charts"] == 15
    assert result["cut"] == result["covered"] == []
    assert result["scrolls"] == [] or width < 1440
    assert result["sections"] == ["claims", *EXHIBITS]
    assert len(result["judged"]) == len(CLAIMS)
    assert set(result["judged"]) <= set(EXHIBITS)
    files = [link for link in result["links"] if not link.startswith("#")]
    assert [name for name in files if not (whole[0] / name).exists()] == []
    assert {path.name for path in whole[0].glob("*.svg")} <= set(files)
    assert result["before"] > 0
    assert result["after"] == 0
    assert result["tip"].startswith("round ")


def test_a_later_command_in_the_folder_shows_what_is_there_already(tmp_path):
    for name in ("table1", "fig4"):
        reproduce([name], tmp_path, scale="quick", data=DATA, compute=False)
    page = (tmp_path / "index.html").read_text()
    assert [f'<section id="{name}">' in page for name in ("table1", "fig4", "fig5")] == [True, True, False]


@pytest.mark.slow
@pytest.mark.skipif(browser.CHROMIUM is None, reason="no Chromium is installed")
def test_figures_as_png(whole, tmp_path):
    folder, _, _ = whole
    made = reproduce(["fig4"], folder, scale="tiny", data=DATA, compute=False, png=True)
    (picture,) = [path for path in made.files if path.suffix == ".png"]
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_the_quick_scale_as_a_user_starts_it(tmp_path):
    """A command of the README, in several processes, on the embedded stand-ins."""
    line = [sys.executable, "-m", "mpt", "reproduce", "table2", "--out", str(tmp_path / "two"), "--device", "cpu"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=1800, check=False)
    assert done.returncode == 0, done.stderr
    assert "missing" not in (tmp_path / "two" / "table2.md").read_text()
    said = {row["here"] for row in claims(tmp_path / "two")}
    assert said <= {"agrees", "does not", "in part", "not run"}
    assert said != {"not run"}
