"""The page in a real browser: it renders, switches, sorts, and fits a laptop and a phone."""

import pytest

from mpt.report import write_report
from tests.report import browser
from tests.report.samples import DEFAULT, LEVELS, write_run

pytestmark = pytest.mark.skipif(browser.CHROMIUM is None, reason="no Chromium is installed")
HOSTILE = ('<b>&"x', "</script><script>window.pwned = 1</script>", "größe 名前", "a" * 70)
OVERLAPS = """
    const boxes = (s) => all(s).filter(seen).map((n) => n.getBoundingClientRect());
    const meet = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 &&
      Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 4;
    const overlaps = (list) => list.some((a, i) => list.some((b, j) => i < j && meet(a, b)));
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    return write_report(write_run(tmp_path_factory.mktemp("run"), seeds=3))


@pytest.fixture(scope="module")
def crowded(tmp_path_factory):
    methods = (*LEVELS, *(f"mine{i}" for i in range(6)))
    classes = [f"class {i}" for i in range(100)]
    return write_report(write_run(tmp_path_factory.mktemp("crowd"), seeds=5, methods=methods, classes=classes))


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hostile")
    return write_report(write_run(folder, methods=(*HOSTILE, "mpt"), classes=HOSTILE, rare=0, seeds=2))


def fine(result):
    assert result["wrong"] == []
    assert result["requests"] == []
    assert result["wide"] <= result["window"]


@pytest.mark.parametrize("width", browser.WIDTHS)
@pytest.mark.parametrize("which", ["page", "crowded", "hostile"])
def test_it_fits_a_phone_a_tablet_and_a_laptop(request, which, width):
    result = browser.look(request.getfixturevalue(which), browser.FITS, width=width)
    fine(result)
    assert result["window"] == width
    assert result["charts"] == 5
    assert result["cut"] == []
    assert result["covered"] == []
    assert bool(result["scrolls"]) is (width < 1440)


def test_a_laptop(page):
    result = browser.look(
        page,
        OVERLAPS
        + """
        result.charts = all("svg.chart").filter(seen).map((n) => [n.dataset.chart ?? "scatter", n.clientWidth]);
        result.ends = ["f1", "distance"].map((c) => overlaps(boxes(`.wide [data-chart=${c}] .end`)));
        result.points = overlaps(boxes(".wide .scatter .end"));
        result.image = document.querySelector("img.samples").naturalWidth;
        result.rows = all(".summary tr.series").map((n) => n.querySelector("th span").textContent);
        """,
    )
    fine(result)
    assert result["window"] == 1366
    assert [name for name, _ in result["charts"]] == ["f1", "distance", "drift", "alpha", "scatter"]
    assert all(width > 400 for _, width in result["charts"])
    assert result["ends"] == [False, False]
    assert not result["points"]
    assert result["image"] == 200
    assert sorted(result["rows"]) == sorted(DEFAULT)


def test_a_phone(page):
    result = browser.look(
        page,
        """
        result.charts = all("svg.chart").filter(seen).map((n) => n.clientWidth);
        result.letters = Math.min(...all("svg.chart text").filter(seen).map((n) => n.getBoundingClientRect().height));
        result.scrolls = all(".scroll").filter(seen).map((n) => n.scrollWidth > n.clientWidth);
        """,
        phone=True,
    )
    fine(result)
    assert result["window"] == 360
    assert len(result["charts"]) == 5
    assert all(300 < width <= 360 for width in result["charts"])
    assert result["letters"] > 11
    assert any(result["scrolls"])  # tables, inside their own container


def test_a_name_switches_its_row_off_and_on_everywhere(page):
    result = browser.look(
        page,
        """
        const key = all(".legend .key").find((n) => n.textContent === "ccvr");
        const state = () => ({
          lines: all(`svg g[data-s=${key.dataset.s}]`).filter(seen).length,
          others: all("svg g.series").filter(seen).length,
          pressed: [...new Set(all(`button[data-s=${key.dataset.s}]`).map((n) => n.getAttribute("aria-pressed")))],
          row: all(`tr[data-s=${key.dataset.s}]`).map((n) => n.classList.contains("off")),
        });
        result.states = [state()];
        for (let i = 0; i < 2; i++) { key.click(); result.states.push(state()); }
        result.all = ["off", "on"].map((name) => {
          document.querySelector(`[data-all=${name}]`).click();
          return all("svg g.series[data-s^=s]").filter(seen).length;
        });
        result.reached = key.tagName === "BUTTON" && key.tabIndex === 0;
        """,
    )
    fine(result)
    first, off, again = result["states"]
    assert first["lines"] == 2  # its curve, and its point in cost against F1
    assert first["pressed"] == ["true"]
    assert (off["lines"], off["others"]) == (0, first["others"] - 2)
    assert off["pressed"] == ["false"]
    assert off["row"] == [True, True]
    assert again == first
    assert result["all"][0] == 0
    assert result["all"][1] > 20
    assert result["reached"]


def test_sorting_single_seeds_and_the_values_of_a_round(page):
    result = browser.look(
        page,
        """
        const rows = () => all(".summary tbody.methods tr.series th span").map((n) => n.textContent);
        const head = (name) => all(".summary thead button").find((n) => n.textContent.startsWith(name));
        result.first = rows();
        head("F1, mean").click();
        result.turned = rows();
        head("method").click();
        result.names = rows();
        result.references = all(".summary tbody.references tr.series").length;
        result.sorted = all(".summary [aria-sort]").map((n) => n.textContent);
        result.seeds = [all(".seeds").filter(seen).length];
        document.querySelector("button.singles").click();
        result.seeds.push(all(".seeds").filter(seen).length);
        const chart = document.querySelector(".wide [data-chart=f1]");
        const box = chart.getBoundingClientRect();
        const { left, right, last } = chart.dataset;
        const x = box.left + (+left + (right - left) * 16 / last) / chart.viewBox.baseVal.width * box.width;
        chart.dispatchEvent(new PointerEvent("pointermove", { clientX: x, clientY: box.top + 50 }));
        const tip = document.querySelector(".tip");
        result.tip = [seen(tip), tip.querySelector("b").textContent, tip.querySelectorAll("div").length];
        chart.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight" }));
        result.next = tip.querySelector("b").textContent;
        chart.dispatchEvent(new PointerEvent("pointerleave"));
        result.gone = seen(tip);
        """,
    )
    fine(result)
    assert result["first"][0] == "mpt"
    assert result["turned"] == result["first"][::-1]
    assert result["names"] == sorted(result["first"])
    assert result["references"] == 1
    assert result["sorted"] == ["method"]
    assert result["seeds"][0] == 0
    assert result["seeds"][1] > 10
    assert result["tip"] == [True, "round 15", len(DEFAULT)]
    assert result["next"] == "round 20"
    assert not result["gone"]


def test_names_that_look_like_html_stay_text(hostile):
    script = """
        result.bold = all("b").filter((n) => !n.closest(".tip")).length;
        result.pwned = window.pwned === 1;
        result.title = document.querySelector("h1").textContent;
        result.keys = all(".legend")[0].querySelectorAll(".key").length;
        result.names = all(".legend")[0].textContent;
        """
    for phone in (False, True):
        result = browser.look(hostile, script, phone=phone)
        fine(result)
        assert result["bold"] == 0
        assert not result["pwned"]
        assert result["title"] == 'Class <b>&"x departed after round 15'
        assert result["keys"] == len(HOSTILE) + 1
        assert all(name in result["names"] for name in HOSTILE)


def test_twenty_five_methods_and_a_hundred_classes(crowded):
    script = OVERLAPS + 'result.ends = overlaps(boxes(".wide [data-chart=f1] .end"));'
    for phone in (False, True):
        result = browser.look(crowded, script, phone=phone)
        fine(result)
        assert not result["ends"]


def test_without_scripts_in_the_dark(page):
    result = browser.look(
        page,
        """
        result.charts = all("svg.chart").filter(seen).length;
        result.rows = all(".summary tr.series").filter(seen).length;
        result.switches = all(".switches").filter(seen).length;
        result.paper = getComputedStyle(document.body).backgroundColor;
        """,
        scripts=False,
        dark=True,
    )
    fine(result)
    assert result["charts"] == 5
    assert result["rows"] == len(DEFAULT)
    assert result["switches"] == 0
    assert result["paper"] == "rgb(19, 22, 27)"


@pytest.mark.parametrize("phone", [False, True])
def test_a_run_without_a_round_after_the_departure(tmp_path, phone):
    folder = write_run(
        tmp_path, classes=("no", "yes"), rare=1, methods=("mpt",), distances=False, rounds=20, depart_at=20
    )
    fine(browser.look(write_report(folder), phone=phone))
