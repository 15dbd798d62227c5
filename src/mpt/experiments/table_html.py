"""Tables as HTML: cut where they are too wide, the paper's numbers small below ours, verdicts in colour."""

import math
from collections.abc import Sequence
from itertools import groupby

from mpt.base.seeds import Stat
from mpt.base.text import score
from mpt.experiments.claims import ClaimStatus
from mpt.experiments.table import MISSING, Entry, Table, TableRow
from mpt.pages.html import badge
from mpt.pages.svg import esc

MOST_COLUMNS = 12
"""That a laptop's screen has room for; a wider table is cut between its groups of columns."""

LONG = 24
"""Characters of a text that is set as a sentence."""

MARKS: dict[ClaimStatus, str] = {
    "agrees": "✓",
    "agrees so far": "✓",
    "in part": "◐",
    "does not": "✗",
    "not run": "\N{EN DASH}",
}
"""Of each verdict, the best first."""


def verdict(status: ClaimStatus) -> str:
    """A claim's status: a colour, a mark and the word."""
    return badge(status, MARKS[status], status.replace(" ", "-"))


def table_html(table: Table) -> str:
    """The table, cut into several where it is too wide."""
    return "".join(_block(table, columns) for columns in _pieces([group for group, _ in table.columns]))


def _pieces(groups: Sequence[str]) -> list[list[int]]:
    """The numbers of columns in as few pieces as will do, each of whole groups and about as wide as the others.

    Example:
        >>> _pieces(["a"] * 6 + ["b"] * 6 + ["c"] * 6 + ["d"] * 3)
        [[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11], [12, 13, 14, 15, 16, 17, 18, 19, 20]]
    """
    least = math.ceil(len(groups) / max(math.ceil(len(groups) / MOST_COLUMNS), 1))
    pieces: list[list[int]] = [[]]
    for _, some in groupby(range(len(groups)), lambda i: groups[i]):
        group = list(some)
        if pieces[-1] and (len(pieces[-1]) >= least or len(pieces[-1]) + len(group) > MOST_COLUMNS):
            pieces.append([])
        pieces[-1] += group
    return pieces


def _block(table: Table, columns: Sequence[int]) -> str:
    """Some of the columns, in a box that scrolls where a screen is too narrow for them."""
    texts = {i for i in columns if any(_is_text(row.entries[i]) for row in table.rows)}
    kinds = [_kind(table, i, columns, i in texts) for i in columns]
    rows, apart = [], False
    for row in table.rows:
        rule = " first" if row.apart and not apart else ""
        apart = row.apart
        below = f' class="apart{rule}"' if row.apart else ""
        cells = "".join(_cell(row.entries[i], kind) for i, kind in zip(columns, kinds, strict=True))
        rows.append(f"<tr{below}>{_label(row)}{cells}</tr>")
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{esc(table.title)}">'
        f'<table class="exhibit{" texts" if texts else ""}"><thead>{_heads(table, columns, kinds)}</thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _kind(table: Table, column: int, columns: Sequence[int], text: bool) -> list[str]:
    """The classes of a column's cells: it holds texts, it begins a group."""
    begins = column > columns[0] and table.columns[column - 1][0] != table.columns[column][0]
    return ["text"] * text + ["begins"] * begins


def _heads(table: Table, columns: Sequence[int], kinds: Sequence[Sequence[str]]) -> str:
    """A line of groups, where there are any, over the columns' names."""
    groups = [(name, len(list(some))) for name, some in groupby(table.columns[i][0] for i in columns)]
    one = len(groups) == 1
    over = "".join(
        f'<th class="group" colspan="{size + one}" scope="colgroup"><span>{esc(name)}</span></th>'
        for name, size in groups
    )
    named = "".join(
        f'<th scope="col"{_classes(kind)}>{esc(table.columns[i][1])}</th>'
        for i, kind in zip(columns, kinds, strict=True)
    )
    corner = f'<th class="left" scope="col">{esc(table.corner)}</th>'
    line = f"<tr>{'' if one else '<td></td>'}{over}</tr>" if any(name for name, _ in groups) else ""
    return f"{line}<tr>{corner}{named}</tr>"


def _label(row: TableRow) -> str:
    """The row's name; where the paper has numbers, a word that says which of the two lines are its."""
    paper = "<small>paper</small>" if any(entry.paper is not None for entry in row.entries) else ""
    return f'<th class="left" scope="row">{esc(row.label)}{paper}</th>'


def _cell(entry: Entry, kind: Sequence[str]) -> str:
    paper = "" if entry.paper is None else f"<small>{_value(entry.paper)}</small>"
    if entry.ours is None:
        return f"<td{_classes([*kind, 'missing'])}>{MISSING}{paper}</td>"
    return f"<td{_classes([*kind, *['main'] * entry.best])}>{_value(entry.ours)}{paper}</td>"


def _classes(names: Sequence[str]) -> str:
    return f' class="{" ".join(names)}"' if names else ""


def _is_text(entry: Entry) -> bool:
    return isinstance(entry.ours, str) and (len(entry.ours) > LONG or status_of(entry.ours) is not None)


def status_of(text: str) -> ClaimStatus | None:
    """The verdict that a text begins with."""
    return next((status for status in MARKS if status == text.partition(":")[0]), None)


def _value(value: Stat | str) -> str:
    if isinstance(value, str):
        status = status_of(value)
        if status is None:
            return esc(value)
        figures = esc(value[len(status) :].removeprefix(": "))
        return f"{verdict(status)} {f'<small>{figures}</small>' if len(figures) > LONG else figures}"
    deviation = "" if value.deviation is None else f' <span class="sd">±{score(value.deviation)}</span>'
    return score(value.mean) + deviation
