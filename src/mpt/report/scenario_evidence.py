"""Evidence without test data: how samples that vehicles have set aside were recognised, class by class."""

from pathlib import Path

from mpt.base.text import score
from mpt.pages.html import DASH, cell, figure
from mpt.pages.svg import esc
from mpt.runs.csvfile import CsvLine, read_lines

COLUMNS = ("seed", "round", "class", "right", "samples", "low", "high", "test_recall", "deposit")


def evidence_section(folder: Path) -> str:
    """The last round of the first seed, as a section; empty where vehicles have set nothing aside."""
    path = folder / "evidence.csv"
    if not path.exists():
        return ""
    lines = list(read_lines(path, COLUMNS))
    seed = min((line.whole("seed") for line in lines), default=0)
    mine = [line for line in lines if line.whole("seed") == seed]
    last = max((line.whole("round") for line in mine), default=0)
    rows = "".join(_row(line) for line in mine if line.whole("round") == last)
    head = "".join(
        f'<th scope="col"{" class=left" if i == 0 else ""}>{name}</th>'
        for i, name in enumerate(("class", "recognised", "recall", "95% interval", "on test samples"))
    )
    table = (
        '<div class="scroll" tabindex="0" role="region" aria-label="Recall of samples set aside"><table>'
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
    )
    told = (
        f"Recall in round {last}, over the samples that the vehicles which answered have set aside: they were neither "
        "trained on nor reported. The interval is Wilson&rsquo;s. A departed class is judged by what remains of it."
    )
    return f"<section><h2>Evidence without test data</h2>{figure(table, told)}</section>"


def _row(line: CsvLine) -> str:
    right, samples = line.whole("right"), line.whole("samples")
    departed = " (deposit)" if line.whole("deposit", below=2) else ""
    tested = line.text("test_recall") and line.number("test_recall", most=1.0)
    recall = right / samples if samples else None
    low, high = line.number("low", most=1.0), line.number("high", most=1.0)
    return (
        f'<tr><th scope="row">{esc(line.text("class"))}{departed}</th>{cell(f"{right} of {samples}", right)}'
        f"{cell(DASH if recall is None else score(recall, 2), recall)}"
        f"{cell(f'{score(low, 2)} to {score(high, 2)}', high - low)}"
        f"{cell(DASH if tested == '' else score(float(tested), 2), None if tested == '' else float(tested))}</tr>"
    )
