"""`mpt compare` as a person reads it: in 80 columns, as LaTeX and as a page."""

import re

import pytest

for package in ("torch", "typer"):
    pytest.importorskip(package, reason="the extra sim is not installed")

from mpt.cli.render.comparison import comparison_table, pooled_table
from mpt.cli.render.comparison_latex import as_latex
from mpt.cli.render.comparison_page import as_page
from mpt.runs.compare import compare
from tests.report import browser
from tests.report.samples import write_run
from tests.runs.test_compare import call, changed

HOSTILE = ('<b>&"x', "50%_a\\b{c}", "truck")


@pytest.fixture(scope="module")
def cells(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cells")
    for number, remaining in enumerate((0.01, 0.02, 0.1)):
        few = {"methods": ("frozen", "mpt", "a-method-of-a-rather-long-name(lam=0.3)"), "seeds": 3, "image": False}
        changed(write_run(folder / f"c{number}", **few), {"remaining": remaining}, number, 0.05)
    return folder


@pytest.mark.parametrize("methods", [["frozen"], []])
def test_80_columns_hold_every_figure(cells, methods):
    found = compare(cells, methods=methods, against="mpt")
    for made in (comparison_table(found, 80), pooled_table(found, 80)):
        assert max(map(len, made.splitlines())) <= 80
    wide, narrow = comparison_table(found), comparison_table(found, 80)
    figures = re.compile(r"\.\d{3}")
    assert figures.findall(wide) == figures.findall(narrow)
    assert len(figures.findall(wide)) >= 8 * len(found.pairs)


def test_one_method_is_listed_by_cell_and_several_by_method(cells):
    by_cell = comparison_table(compare(cells, methods=["frozen"], against="mpt")).splitlines()
    assert by_cell[1].split()[0] == "cell"
    assert [line.split()[0] for line in by_cell[2:]] == ["road", "1%", "2%", "10%"]
    by_method = comparison_table(compare(cells, against="mpt")).splitlines()
    assert by_method[2] == "road truck 1% cnn3"
    assert by_method[3].startswith("  frozen ")


def test_latex_has_a_row_a_line_and_escapes_names(tmp_path):
    for number, remaining in enumerate((0.01, 0.02)):
        run = write_run(tmp_path / f"c_{number}", methods=("a_b", "mpt"), classes=HOSTILE, rare=1, seeds=3, image=False)
        changed(run, {"remaining": remaining}, number, 0.05)
    made = as_latex(compare(tmp_path, methods=["a_b"], against="mpt"))
    assert made.count(r"\begin{tabular}") == made.count(r"\end{tabular}") == 2
    assert made.count(r"\toprule") == made.count(r"\bottomrule") == 2
    cells, pooled = (re.search(r"\\begin{tabular}{(l?c+)}(.*?)\\end", part, re.DOTALL) for part in made.split("\n\n"))
    for table, lines in ((cells, 3), (pooled, 4)):
        rows = [line for line in table[2].splitlines() if line.endswith(r"\\")]
        assert len(rows) == lines
        assert {len(re.findall(r"(?<!\\)&", row)) for row in rows} == {len(table[1]) - 1}
    assert r"road 50\%\_a\textbackslash{}b\{c\} 1\% cnn3" in made
    assert r"a\_b (A) less mpt (B)" in made
    assert not re.search(r"(?<!\\)[%_#]", re.sub(r"(?m)^% Made by .*$", "", made))
    assert made.isascii()


def test_a_page_is_whole_and_escaped(tmp_path, cells):
    run = write_run(tmp_path / "run", methods=("<i>x</i>", "mpt"), classes=HOSTILE, rare=0, seeds=1, image=False)
    page = as_page(compare(run, methods=["<i>x</i>"], against="mpt"))
    assert "<i>" not in page
    assert "<b>" not in page
    assert "n/a" in page
    assert "Pooled over cells" not in page
    assert "http" not in page.replace("http-equiv", "")
    found = compare(cells, against="mpt")
    page = as_page(found)
    assert page == as_page(found)
    assert page.count('class="strip"') == len(found.pairs) + len(found.pooled) == 12
    assert "Pooled over cells" in page


@pytest.mark.skipif(browser.CHROMIUM is None, reason="no Chromium is installed")
@pytest.mark.parametrize("phone", [False, True])
def test_a_page_fits_a_laptop_and_a_phone(tmp_path, cells, phone):
    page = tmp_path / "page.html"
    page.write_text(as_page(compare(cells, against="mpt")), encoding="utf-8")
    result = browser.look(page, 'result.rows = all("table.compared tbody tr").filter(seen).length;', phone=phone)
    assert result["wrong"] == result["requests"] == []
    assert result["wide"] <= result["window"]
    assert result["rows"] == 6 + 3 + 6 + 2  # lines and headings


def test_files_are_written_beside_what_is_printed(cells, tmp_path):
    tex, html = tmp_path / "t.tex", tmp_path / "t.html"
    done = call(cells, "--methods", "frozen", "--against", "mpt", "--csv", "--latex", tex, "--html", html)
    assert done.exit_code == 0
    assert done.stdout.count("\n") == 4
    assert done.stderr.splitlines() == [f"mpt: written: {tex}", f"mpt: written: {html}"]
    found = compare(cells, methods=["frozen"], against="mpt")
    assert (tex.read_text(), html.read_text()) == (as_latex(found), as_page(found))


def test_many_that_are_not_paired_are_counted(tmp_path):
    for number in range(8):
        changed(write_run(tmp_path / f"c{number}", methods=("mpt",), image=False), {"lr": number})
    write_run(tmp_path / "both", methods=("mpt", "frozen"), image=False)
    done = call(tmp_path, "--methods", "frozen", "--against", "mpt")
    said = [line for line in done.stderr.splitlines() if line.startswith("mpt: not paired: ")]
    assert len(said) == 6
    assert said[-1] == "mpt: not paired: 3 more, which --json lists"
