import csv
import io
import shutil
import subprocess

import pytest

from mpt.experiments.table import Entry, Table, TableRow, tex
from mpt.runs.summary import Stat
from mpt.version import ENGINE, __version__

TABLE = Table(
    "some",
    "A title with 100% & more_or_less {braces}",
    "Method",
    (("Set_1 (truck)", "2%"), ("Set_1 (truck)", "10%"), ("other", "2%")),
    (
        TableRow(
            "a|b_c", (Entry(Stat(0.5161, 0.009), Stat(0.51, 0.018), best=True), Entry(None, Stat(0.1)), Entry("✓"))
        ),
        TableRow("ref", (Entry(Stat(-0.02)), Entry(Stat(1.0, 0.0)), Entry("<x> $5 ~ ^ \\ #")), apart=True),
    ),
    ("Data: a_b (stand-in for nuImages).",),
)


def test_markdown_has_the_papers_number_in_brackets_and_says_what_is_missing():
    lines = TABLE.markdown().splitlines()
    assert lines[2] == "| Method | Set_1 (truck) 2% | Set_1 (truck) 10% | other 2% |"
    assert lines[4] == "| a\\|b_c | **.516 ± .009** (.510 ± .018) | missing (.100) | ✓ |"
    assert lines[5].startswith("| ref | \N{MINUS SIGN}.020 | 1.000 ± .000 |")
    assert lines[-3] == "Data: a_b (stand-in for nuImages)."
    assert lines[-1] == f"Made by mpt {__version__}, benchmark engine {ENGINE}."


def test_csv_has_a_line_an_entry():
    lines = list(csv.DictReader(io.StringIO(TABLE.csv())))
    assert len(lines) == 6
    assert lines[0] == {
        "row": "a|b_c", "group": "Set_1 (truck)", "column": "2%", "ours": "0.516100", "deviation": "0.009000",
        "paper": "0.510000", "paper_deviation": "0.018000", "mpt": __version__, "bench": str(ENGINE),
    }  # fmt: skip
    assert lines[1]["ours"] == ""
    assert lines[1]["paper_deviation"] == ""


@pytest.mark.parametrize(
    ("plain", "escaped"),
    [
        ("100% & a_b", r"100\% \& a\_b"),
        ("#1 {x} $5", r"\#1 \{x\} \$5"),
        ("a\\b~c^d", r"a\textbackslash{}b\textasciitilde{}c\textasciicircum{}d"),
        ("± ✓ ✗ <>", r"$\pm$ \checkmark{} $\times$ \textless{}\textgreater{}"),
    ],
)
def test_latex_escapes(plain, escaped):
    assert tex(plain) == escaped


def test_latex_has_as_many_cells_in_every_row_and_balanced_braces():
    text = TABLE.latex()
    assert text.startswith(f"% Made by mpt {__version__}, benchmark engine {ENGINE}.\n\\begin{{table*}}")
    body = text.split(r"\midrule", 1)[1].split(r"\bottomrule")[0]
    rows = [line for line in body.splitlines() if line.endswith(r"\\")]
    assert len(rows) == 3  # two rows, and the paper's below the first
    assert {row.replace(r"\&", "").count("&") for row in rows} == {3}
    bare = text.replace(r"\{", "").replace(r"\}", "")
    assert bare.count("{") == bare.count("}")
    assert r"\multicolumn{2}{c}{Set\_1 (truck)}" in text
    assert r"\cmidrule(lr){2-3}\cmidrule(lr){4-4}" in text
    assert r"\textit{missing}" in text


@pytest.mark.skipif(not shutil.which("pdflatex"), reason="LaTeX is not installed")
def test_latex_compiles(tmp_path):
    page = "\\documentclass{article}\\usepackage{booktabs,amssymb,xcolor}\\begin{document}\n"
    (tmp_path / "t.tex").write_text(page + TABLE.latex() + "\\end{document}\n", encoding="utf-8")
    done = subprocess.run(
        ["pdflatex", "-interaction=nonstopmode", "t.tex"], cwd=tmp_path, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:]
