"""Tables as Markdown, CSV and LaTeX: our numbers, the paper's beside them, and what they were made from."""

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from mpt.base.seeds import Stat
from mpt.version import ENGINE, MADE_BY, __version__

MISSING = "missing"
_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "±": r"$\pm$",
    "✓": r"\checkmark{}",
    "✗": r"$\times$",
    "\N{MINUS SIGN}": "$-$",
    "\N{EN DASH}": "--",
    "…": r"\dots{}",
}


@dataclass(frozen=True)
class Entry:
    """A cell of a table.

    Attributes:
        ours: mean and deviation over seeds, a text, or None where the cell is missing.
        paper: what the paper states; None where it states nothing.
        best: whether it is the highest of its column, references apart.
    """

    ours: Stat | str | None
    paper: Stat | str | None = None
    best: bool = False


@dataclass(frozen=True)
class TableRow:
    """A row.

    Attributes:
        label: what it is.
        entries: its cells.
        apart: whether it stands below a rule.
        judged_by: the name of the exhibit that has what a claim was judged by; only the page has it.
    """

    label: str
    entries: tuple[Entry, ...]
    apart: bool = False
    judged_by: str = ""


@dataclass(frozen=True)
class Table:
    """A table as data.

    Attributes:
        name: of its files.
        title: what it shows.
        corner: over the rows' labels.
        columns: (group, column) of each, groups adjacent.
        rows: those that are `apart` come last.
        notes: the data's names and what else must be said.
    """

    name: str
    title: str
    corner: str
    columns: tuple[tuple[str, str], ...]
    rows: tuple[TableRow, ...]
    notes: tuple[str, ...] = ()

    def markdown(self) -> str:
        """With the paper's numbers in brackets."""
        heads = [f"{group} {column}".strip() for group, column in self.columns]
        lines = [f"## {self.title}", "", _line([self.corner, *heads]), "|---" * (len(heads) + 1) + "|"]
        for row in self.rows:
            lines.append(_line([row.label, *(_markdown(entry) for entry in row.entries)]))
        return "\n".join(lines) + "\n" + "".join(f"\n{note}\n" for note in (*self.notes, f"Made by {MADE_BY}."))

    def csv(self) -> str:
        """A line an entry."""
        text = io.StringIO(newline="")
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["row", "group", "column", "ours", "deviation", "paper", "paper_deviation", "mpt", "bench"])
        for row in self.rows:
            for (group, column), entry in zip(self.columns, row.entries, strict=True):
                cells = (*_cells(entry.ours), *_cells(entry.paper))
                writer.writerow([row.label, group, column, *cells, __version__, ENGINE])
        return text.getvalue()

    def latex(self) -> str:
        r"""For \usepackage{booktabs,amssymb,xcolor}; the paper's numbers in grey below ours."""
        groups = [(group, len(list(some))) for group, some in groupby(self.columns, key=lambda c: c[0])]
        lines = [
            f"% Made by {MADE_BY}.", r"\begin{table*}[t]", r"\centering\small",
            r"\begin{tabular}{l" + "c" * len(self.columns) + "}", r"\toprule",
        ]  # fmt: skip
        if any(group for group, _ in groups):
            lines.append(" & ".join(["", *(rf"\multicolumn{{{n}}}{{c}}{{{tex(g)}}}" for g, n in groups)]) + r" \\")
            lines.append("".join(_rules(n for _, n in groups)))
        lines.append(" & ".join([tex(self.corner), *(tex(column) for _, column in self.columns)]) + r" \\")
        lines.append(r"\midrule")
        apart = False
        for row in self.rows:
            if row.apart and not apart:
                apart = True
                lines.append(r"\midrule")
            lines.append(" & ".join([tex(row.label), *(_latex(entry) for entry in row.entries)]) + r" \\")
            if any(entry.paper is not None for entry in row.entries):
                papers = [rf"\textcolor{{gray}}{{\scriptsize {tex(_plain(e.paper))}}}" for e in row.entries]
                lines.append(" & ".join([r"\textcolor{gray}{\scriptsize paper}", *papers]) + r" \\")
        notes = " ".join(tex(note) for note in self.notes)
        lines += [r"\bottomrule", r"\end{tabular}", rf"\caption{{{tex(self.title)}. {notes}}}"]
        return "\n".join([*lines, rf"\label{{tab:{self.name}}}", r"\end{table*}", ""])


def tex(text: str) -> str:
    """Plain text, escaped for LaTeX."""
    return "".join(_LATEX.get(character, character) for character in text)


def number(value: float, digits: int = 3) -> str:
    """.405, as the paper writes fractions; 12.3 where it is no fraction."""
    text = f"{abs(value):.{digits}f}"
    return ("\N{MINUS SIGN}" if value < 0 and float(text) else "") + text.removeprefix("0")


def _plain(value: Stat | str | None) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    return number(value.mean) + ("" if value.deviation is None else f" ± {number(value.deviation)}")


def _markdown(entry: Entry) -> str:
    ours = MISSING if entry.ours is None else _plain(entry.ours)
    ours = f"**{ours}**" if entry.best else ours
    return ours + (f" ({_plain(entry.paper)})" if entry.paper is not None else "")


def _latex(entry: Entry) -> str:
    ours = r"\textit{missing}" if entry.ours is None else tex(_plain(entry.ours))
    return rf"\textbf{{{ours}}}" if entry.best else ours


def _cells(value: Stat | str | None) -> tuple[str, str]:
    if value is None or isinstance(value, str):
        return value or "", ""
    return f"{value.mean:.6f}", "" if value.deviation is None else f"{value.deviation:.6f}"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _rules(sizes: Iterator[int]) -> Iterator[str]:
    start = 2
    for size in sizes:
        yield rf"\cmidrule(lr){{{start}-{start + size - 1}}}"
        start += size
