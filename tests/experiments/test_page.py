"""The page of exhibits: claims first and linked, files beside it, and nothing that does not fit a screen."""

import re
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="mpt.experiments needs torch, which is not installed")

from mpt.base.seeds import Stat, curve
from mpt.experiments.claims import CLAIMS
from mpt.experiments.exhibits import EXHIBITS
from mpt.experiments.figures import Figure, Panel, drawn, looks
from mpt.experiments.page import page
from mpt.experiments.plots import Bars, Plane, Point
from mpt.experiments.table import Entry, Table, TableRow
from mpt.experiments.table_html import MARKS, table_html
from mpt.pages.lines import Chart, Line
from mpt.pages.standalone import standalone
from tests.report import browser
from tests.report.test_page import parsed

COMMITTED = Path(__file__).parents[2] / "results/paper/index.html"
in_a_browser = pytest.mark.skipif(browser.CHROMIUM is None, reason="no Chromium is installed")
at_every_width = pytest.mark.parametrize("width", browser.WIDTHS)
METHODS = ("fedavg", "ccvr", "icarl", "sdc", "ldc", "frozen", "mpt-lite", "mpt", "mpt-x", "oracle-train")


def numbers(name, groups, columns=4):
    """A table of groups of columns, as Table 2 is, with the paper's numbers."""
    heads = tuple((f"stand-in cars-sedansize ({i})", f"{j}%") for i in range(groups) for j in range(columns))
    cells = tuple(Entry(Stat(0.512, 0.034), Stat(0.498, 0.012)) for _ in heads)
    rows = [TableRow(label, cells) for label in ("CCVR", "Frozen prototype", "mine.py:Mine(by=0.5)")]
    last = TableRow("LDC, all samples, tuned", tuple(Entry(Stat(0.4, 0.01)) for _ in heads), apart=True)
    title = f"Table {name[-1]}: rare-class F1"
    return Table(name, title, "Method", heads, (*rows, last), ("A note.",))


def texts():
    """A table of verdicts with their figures."""
    told = "in 8 of 12 settings; the least lead: -.169 over CCVR on stand-in cars-bodytype (van) 10% cnn3"
    heads = tuple((f"another network, tuned {i}", "embedding, lr .03, step") for i in range(6))
    rows = tuple(TableRow(f"It is {s}", tuple(Entry(f"{s}: {told}") for _ in heads)) for s in MARKS)
    return Table("claims-regime", "The paper's claims by regime", "Claim", heads, rows)


def figures():
    """A figure of each kind of drawing, crowded."""
    styles = looks()
    lines = tuple(
        Line.of(styles[m], curve((seed, n, 0.05 * i + 0.01 * seed) for seed in (0, 1) for n in range(1, 41)))
        for i, m in enumerate(METHODS)
    )
    chart = Chart("fig4", "F1 of the rare class", lines, 15, 40, "departure after round 15", 1.0)
    close = tuple(Point(styles[m], 10 + i, 0.5 + 0.01 * i, 0.3, 0.7, m) for i, m in enumerate(METHODS))
    cloud = tuple(Point(styles[m], 0.1 + i / 5, 0.9 - 0.01 * i) for m in METHODS for i in range(40))
    label = "drift a round: mean way of the reference prototypes, in deviations"
    planes = (
        Plane("fig5a", "kB a round, all vehicles", "F1 at the last round", close, log=True),
        Plane("fig5b", label, "share of oracle-train's F1", cloud, True, False, marked=(5, "nearest to the paper")),
    )
    groups = tuple((f"a rather long class {i}", (80.0, 40.0, None)) for i in range(10))
    bars = Bars("fig2d", "mean decrease of F1, %, by remaining fraction", groups, ("1%", "2%", "5%"))
    return {
        "fig2d": Figure("fig2d", "Figure 2 (d): loss of F1", (Panel("fig2d", "", bars),)),
        "fig4": Figure("fig4", "Figure 4: F1 by round", (Panel("fig4", "", chart),), numbers("fig4", 1)),
        "fig5": Figure(
            "fig5",
            "Figure 5: overhead",
            (*(Panel(p.name, "(a) Some", p) for p in planes), Panel("fig5c", "(c) Not there", None)),
            numbers("fig5", 1),
        ),
    }


def claims():
    """A claim of each verdict, one of them judged by an exhibit that is not on the page."""
    rows = [
        TableRow(f"It is {status}", (Entry("612"), Entry(status), Entry("in 8 of 12")), judged_by=name)
        for status, name in zip(MARKS, ("table2", "table3", "fig4", "fig5", "departure"), strict=True)
    ]
    heads = (("", "section of the paper"), ("", "here"), ("", "figures"))
    return Table("claims", "The paper's claims", "Claim", heads, tuple(rows), ("Scale paper.",))


@pytest.fixture(scope="module")
def exhibits():
    return {"table2": numbers("table2", 3), "table3": numbers("table3", 4), **figures(), "claims-regime": texts()}


@pytest.fixture(scope="module")
def made(exhibits, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "index.html"
    path.write_text(page(exhibits, claims(), ["a set"], "paper", list(looks().values())), encoding="utf-8")
    return path


def identifiers(tags):
    return [attrs["id"] for _, attrs in tags if "id" in attrs]


def links(tags):
    return [attrs["href"] for tag, attrs in tags if tag == "a"]


def test_every_claim_has_the_exhibit_that_judges_it():
    assert {claim.exhibit for claim in CLAIMS} <= set(EXHIBITS)


def test_claims_come_first_each_with_a_word_and_linked_to_its_exhibit(made):
    text = made.read_text()
    tags = parsed(text)
    ids = identifiers(tags)
    assert len(ids) == len(set(ids))
    sections = [attrs["id"] for tag, attrs in tags if tag == "section"]
    assert sections == ["claims", "table2", "table3", "fig2d", "fig4", "fig5", "claims-regime"]
    rows = re.findall(r"<li><span class=\"badge.*?</li>", text.partition('<ul class="claims">')[2])
    assert len(rows) == len(MARKS)
    for row, (status, mark) in zip(rows, MARKS.items(), strict=True):
        assert f'<span aria-hidden="true">{mark}</span> {status}</span>' in row
    targets = [re.findall(r'href="#(.*?)"', row) for row in rows]
    assert targets == [["table2"], ["table3"], ["fig4"], ["fig5"], []]
    assert rows[-1].endswith('<div class="by">departure</div></li>')
    assert {link[1:] for link in links(tags) if link.startswith("#")} <= set(ids)


def test_each_exhibit_links_to_its_files(made):
    files = [link for link in links(parsed(made.read_text())) if not link.startswith("#")]
    tables = ("claims", "table2", "table3", "fig4", "fig5", "claims-regime")
    expected = {f"{name}.{end}" for name in tables for end in ("csv", "tex", "md")}
    assert len(files) == len(set(files))
    assert set(files) == expected | {"fig2d.svg", "fig4.svg", "fig5a.svg", "fig5b.svg"}


def test_a_wide_table_is_cut_between_its_groups_and_keeps_every_number():
    for groups, pieces in ((3, 1), (4, 2), (7, 3)):
        text = table_html(numbers("table2", groups))
        assert text.count("<table") == pieces
        assert text.count(".512 ") == 3 * 4 * groups
        assert [text.count(f"cars-sedansize ({i})") for i in range(groups)] == [1] * groups


def test_a_scale_that_decides_nothing_says_so_before_the_verdicts(exhibits):
    for scale, told in (("quick", True), ("paper", False)):
        text = page(exhibits, claims(), [], scale, list(looks().values()))
        assert ("it decides nothing" in text.partition('<section id="claims">')[0]) is told


def fits(path, width):
    """Whatever is on the page, it is inside the window, and no drawing's text is cut or covered."""
    result = browser.look(path, browser.FITS, width=width)
    assert result["window"] == width
    assert result["wrong"] == result["requests"] == []
    assert result["wide"] <= width
    assert result["cut"] == []
    assert result["covered"] == []
    if width >= 1440:
        assert result["scrolls"] == []
    return result


@in_a_browser
@at_every_width
def test_it_fits(made, width):
    result = fits(made, width)
    assert result["charts"] == 4
    assert ("table2" in result["scrolls"]) is (width < 1440)  # a box that scrolls is seen to


@in_a_browser
def test_what_does_not_fit_is_found(tmp_path):
    """The measure itself: a text that leaves its drawing, a name under a mark, a table in too small a box."""
    drawing = (
        '<svg class="chart scatter" viewBox="0 0 300 100" width="300"><text class="end" x="280" y="50">cut off</text>'
        '<text class="end" x="100" y="50">covered</text><circle class="mark" cx="120" cy="46" r="5"/></svg>'
    )
    box = (
        '<section id="t"><div class="scroll" style="overflow:auto"><div style="width:2000px">wide</div></div></section>'
    )
    path = tmp_path / "bad.html"
    path.write_text(f'<!doctype html><head><meta charset="utf-8"></head><body>{drawing}{box}</body>', encoding="utf-8")
    result = browser.look(path, browser.FITS, width=768)
    assert (result["cut"], result["covered"], result["scrolls"]) == (["cut off"], ["covered"], ["t"])


@in_a_browser
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_verdicts_differ_in_colour_and_can_be_read(made, dark):
    result = browser.look(
        made,
        """
        result.colours = all(".claims .badge").map((n) => {
          const style = getComputedStyle(n);
          return [style.color, style.backgroundColor].map((c) => c.match(/[0-9]+/g).slice(0, 3).map(Number));
        });
        """,
        dark=dark,
    )
    seen = [tuple(map(tuple, pair)) for pair in result["colours"]]
    assert len(set(seen)) == len(MARKS)
    for ink, paper in seen:
        light, low = sorted((luminance(ink), luminance(paper)), reverse=True)
        assert (light + 0.05) / (low + 0.05) >= 4.5  # WCAG's contrast for text


def luminance(colour):
    """Relative luminance of an sRGB colour, as WCAG 2 defines it."""
    parts = [c / 255 for c in colour]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@in_a_browser
def test_drawings_as_files_have_all_their_text_inside(exhibits, tmp_path):
    styles = list(looks().values())
    panels = [p for thing in exhibits.values() if isinstance(thing, Figure) for p in thing.panels if p.drawing]
    caption = "; ".join(["stand-in cars-bodytype (van, pickup)"] * 5)
    files = [standalone(drawn(p.drawing, 720, 380), styles, caption) for p in panels]
    for text in files:
        assert len(re.findall('viewBox="0 0 720 ', text)) == 1
    cloud = files[-1]
    assert [f">{looks()[m].label}</text>" in cloud for m in METHODS] == [True] * len(METHODS)
    path = tmp_path / "files.html"
    head = '<!doctype html><head><meta charset="utf-8"></head>'
    path.write_text(f"{head}<body>{''.join(files)}</body>", encoding="utf-8")
    result = browser.look(path, browser.FITS, width=1440)
    assert result["charts"] == 4
    assert result["cut"] == result["covered"] == []


def test_the_committed_page_links_to_what_is_there():
    tags = parsed(COMMITTED.read_text(encoding="utf-8"))
    ids = identifiers(tags)
    assert {"claims", *EXHIBITS} <= set(ids)
    inside = [link for link in links(tags) if link.startswith("#")]
    files = [link for link in links(tags) if not link.startswith("#")]
    assert {link[1:] for link in inside} <= set(ids)
    assert len(files) > len(EXHIBITS)
    assert [name for name in files if not (COMMITTED.parent / name).is_file()] == []
    by_claim = re.findall(r'<div class="by">(.*?)</div>', COMMITTED.read_text(encoding="utf-8"))
    assert len(by_claim) == len(CLAIMS)
    assert all(re.fullmatch(r'<a href="#([\w-]+)">[^<]+</a>', link) for link in by_claim)


@in_a_browser
@at_every_width
def test_the_committed_page_fits(width):
    assert fits(COMMITTED, width)["charts"] == 15
