"""The paper's numbers against its source, where that is at hand, and against each other."""

import re
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="mpt.experiments needs torch, which is not installed")

from mpt.experiments import paper
from mpt.experiments.claims import CLAIMS

SOURCE = Path(__file__).parents[3] / "shared" / "paper" / "mpt.tex"
ROWS = {
    "CCVR": "ccvr",
    "iCaRL": "icarl",
    "SDC": "sdc",
    "LDC": "ldc",
    "Frozen prototype": "frozen",
    "Frozen": "frozen",
    r"\system{}-lite": "mpt-lite",
    r"\textbf{\system{}}": "mpt",
    r"\textcolor{gray}{Oracle prototype}": "oracle",
    r"\textcolor{gray}{Oracle}": "oracle",
}
needs_source = pytest.mark.skipif(not SOURCE.exists(), reason="the paper's source is not at hand")


def rows_from(line):
    """Method and numbers of the eight rows that begin at a line of the source."""
    found = {}
    for text in SOURCE.read_text(encoding="utf-8").splitlines()[line - 1 : line + 9]:
        name = text.partition(" & ")[0].strip()
        if name in ROWS:
            found[ROWS[name]] = [
                (float("0" + mean), float("0" + deviation))
                for mean, deviation in re.findall(r"(\.\d+)\{\\scriptsize\$\\pm\$(\.\d+)\}", text)
            ]
    return found


@needs_source
@pytest.mark.parametrize(
    ("line", "table"), [(paper.TABLE2_LINE, paper.TABLE2), (paper.TABLE3_LINE, paper.TABLE3)], ids=["table2", "table3"]
)
def test_every_number_is_that_of_the_source(line, table):
    rows = rows_from(line)
    assert set(rows) == {"ccvr", "icarl", "sdc", "ldc", "frozen", "mpt-lite", "mpt", "oracle"}
    for method, numbers in rows.items():
        ours = [(s.mean, s.deviation) for group in table.values() for s in group[method]]
        assert ours == numbers, method


@needs_source
def test_the_marks_of_table_1_are_those_of_the_source():
    text = "\n".join(SOURCE.read_text(encoding="utf-8").splitlines()[paper.TABLE1_LINE : paper.TABLE1_LINE + 64])
    marks = [tuple(m == "cmark" for m in some) for some in
             (re.findall(r"\\(cmark|xmark)", row) for row in text.split(r"\\"+"\n")) if len(some) == 4]  # fmt: skip
    assert marks == list(paper.TABLE1.values())


WORDS = {
    133: "exceeds the 50.5", 189: "reaches high rare-class F1 earlier", 194: "smaller and more stable distance",
    196: "mismatch grows steadily", 198: "Loss persists across all classes", 488: "no effect on the results",
    558: "FedAvg fails to learn", 573: "CCVR incurs a further increase", 575: "nearly identical overhead",
    612: "achieve the highest F1 in all configurations", 614: "achieve the highest F1 in all configurations",
    616: "remains competitive", 634: "closer to the oracle achieve higher F1", 635: "moves steadily farther",
    647: "lower error than either source alone", 650: "gradually loses rare-class F1",
}  # fmt: skip


@needs_source
def test_claims_name_the_line_that_makes_them():
    lines = SOURCE.read_text(encoding="utf-8").splitlines()
    assert {claim.line for claim in CLAIMS} == set(WORDS)
    for number, words in WORDS.items():
        assert words in lines[number - 1], number


def test_a_number_is_stated_for_the_papers_fractions_only():
    assert paper.stated(paper.TABLE2, "nuimages", "mpt", 0.01).mean == 0.516
    assert paper.stated(paper.TABLE2, "nuimages", "mpt", 0.2) is None
    assert paper.stated(paper.TABLE2, "nuimages", "mpt-x", 0.01) is None
