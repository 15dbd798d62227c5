"""`mpt compare` as tables in the terminal, as JSON and as CSV."""

import csv
import io
import json
from collections.abc import Sequence
from itertools import groupby
from textwrap import wrap

from mpt.base.text import score
from mpt.cli.render import WIDEST, console, prose, say
from mpt.cli.render import comparison_lines as lines
from mpt.runs.compare import Comparison, pooled_records, records
from mpt.runs.pair import Pair
from mpt.runs.significance import LEVEL, POWER


def as_json(found: Comparison) -> str:
    """Pairs, the pooled tests, what the tests are, what differs, what is not paired."""
    tests = sum(pair.holm is not None for pair in found.pairs)
    content = {
        "pairs": records(found),
        "pooled": pooled_records(found),
        "tests": {"level": LEVEL, "power": POWER, "holm_figure": "mean_f1", "holm_tests": tests},
        "differ": found.differ,
        "unpaired": found.unpaired,
    }
    return json.dumps(content, indent=2)


def as_csv(found: Comparison) -> str:
    """A line a pair."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(records(found)[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(records(found))
    return text.getvalue()


def print_comparison(found: Comparison) -> None:
    """The cells' table, the pooled one where there are several cells, and what their columns are."""
    prose(lines.title(found))
    _print(comparison_table(found, _width()), lines.about(found))
    if found.pooled:
        _print(pooled_table(found, _width()), lines.about_pooled(found))


def comparison_table(found: Comparison, width: int = WIDEST) -> str:
    """A line a pair, under its task or its cell, in `width` columns."""
    heads = ("seeds", "F1\nof A", "F1\nof B", "A less B", "p", "Holm", "could\nshow", "last\nround", "bal.\nacc.")
    rows: list[_Row] = []
    for group in lines.groups(found):
        rows.append((group.heading, ()))
        rows += [(f"  {label}", _cells(pair)) for label, pair in group.lines]
    return _laid_out((lines.corner(found), *heads), rows, width)


def _cells(pair: Pair) -> tuple[str, ...]:
    test = pair.mean_f1.difference
    return (
        str(len(pair.seeds)),
        score(pair.mean_f1.one),
        score(pair.mean_f1.other),
        lines.difference(test),
        lines.p_value(test.p),
        lines.p_value(pair.holm),
        lines.smallest(test),
        lines.short_difference(pair.last_f1.difference),
        lines.short_difference(pair.balanced.difference),
    )


def pooled_table(found: Comparison, width: int = WIDEST) -> str:
    """A line a pooled test, under its two rows, in `width` columns."""
    rows: list[_Row] = []
    for method, mine in groupby(found.pooled, key=lambda one: one.rows):
        rows.append((lines.label_of(found, method), ()))
        for one in mine:
            figures = (lines.difference(one.test), lines.p_value(one.test.p), lines.p_value(one.holm))
            rows.append((f"  {lines.OVER[one.over]}", (str(one.test.n), *figures, lines.smallest(one.test))))
    return _laid_out(("pooled over", "n", "A less B", "p", "Holm", "could\nshow"), rows, width)


_Row = tuple[str, tuple[str, ...]]
"""A label and its cells; a heading has none."""


def _laid_out(heads: Sequence[str], rows: Sequence[_Row], width: int) -> str:
    """Columns as wide as they need; a heading goes over all of them, a label that is too long is folded."""
    split = [head.split("\n") for head in heads]
    tall = max(map(len, split))
    over = [[*[""] * (tall - len(parts)), *parts] for parts in split]
    cells = [row for _, row in rows if row]
    wide = [max(len(text) for text in (*over[i + 1], *(row[i] for row in cells))) for i in range(len(heads) - 1)]
    room = max(width - sum(wide) - len(wide), 12)
    first = min(max(len(heads[0]), *(len(label) for label, row in rows if row)), room)

    def line(label: str, row: Sequence[str]) -> str:
        texts = (f"{c:<{w}}" if h in _LEFT else f"{c:>{w}}" for h, c, w in zip(heads[1:], row, wide, strict=True))
        return " ".join([f"{label:<{first}}", *texts]).rstrip()

    made = [line(over[0][i], [parts[i] for parts in over[1:]]) for i in range(tall)]
    for label, row in rows:
        if not row:
            made += wrap(label, width) or [""]
            continue
        *above, last = wrap(label, first, subsequent_indent="    ") or [""]
        made += [*above, line(last, row)]
    return "\n".join(made)


_LEFT = ("A less B", "last\nround", "bal.\nacc.")
"""Columns whose texts begin with a sign."""


def _width() -> int:
    return console.width if console.is_terminal else WIDEST


def _print(table: str, about: Sequence[str]) -> None:
    say()
    say(table)
    say()
    for sentence in about:
        prose(sentence)
