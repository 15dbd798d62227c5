"""What a comparison's table says in every form: its lines under their headings, its columns, and what these are."""

from dataclasses import dataclass

from mpt.base.seeds import Series
from mpt.base.text import score, signed
from mpt.runs.compare import Comparison
from mpt.runs.pair import Pair
from mpt.runs.pooling import Rows
from mpt.runs.significance import TTest

NONE = "n/a"
OVER = {"cells": "cells", "tasks": "tasks", "seeds": "seeds in cells"}
"""What a pooled test is over, in words."""


@dataclass(frozen=True)
class LineGroup:
    """Lines below one heading; each has a label and a pair."""

    heading: str
    lines: tuple[tuple[str, Pair], ...]


def groups(found: Comparison) -> list[LineGroup]:
    """Cells by task where all lines are of the same two rows; else rows by cell."""
    single = len({pair.rows for pair in found.pairs}) == 1
    made: dict[str, list[tuple[str, Pair]]] = {}
    for pair in found.pairs:
        name = found.names[pair.cells]
        heading, label = (name.task, name.rest) if single else (str(name), label_of(found, pair.rows))
        made.setdefault(heading, []).append((label or str(name), pair))
    return [LineGroup(heading, tuple(lines)) for heading, lines in made.items()]


def corner(found: Comparison) -> str:
    """What labels are."""
    return "cell" if len({pair.rows for pair in found.pairs}) == 1 else "method"


def row_name(row: Series) -> str:
    """A method's, with its readout where that is not the usual one."""
    return row.method if row.readout in ("mahalanobis", "own") else " ".join(row)


def label_of(found: Comparison, rows: Rows) -> str:
    """Two rows in a line; the second is left out where the title has it."""
    one, other = map(row_name, rows)
    return one if rows[0] == rows[1] or _counterpart(found) else f"{one} - {other}"


def title(found: Comparison) -> str:
    """What is compared: A less B."""
    a, b = found.folders
    ones = {row_name(pair.rows[0]) for pair in found.pairs}
    one, other = ones.pop() if len(ones) == 1 else "each method", _counterpart(found) or "its counterpart"
    if a == b:
        return f"{one} (A) less {other} (B), in {a}"
    same = all(pair.rows[0] == pair.rows[1] for pair in found.pairs)
    return f"{one} in {a} (A) less {'that' if same else other} in {b} (B)"


def _counterpart(found: Comparison) -> str:
    """The row that all are compared with, "" where these are several."""
    others = {pair.rows[1] for pair in found.pairs}
    return row_name(others.pop()) if len(others) == 1 else ""


def about(found: Comparison) -> list[str]:
    """What the columns of the cells' table are, in sentences."""
    tests = sum(pair.holm is not None for pair in found.pairs)
    rounds = sorted({len(pair.rounds) for pair in found.pairs})
    over = f"{rounds[0]}" if len(rounds) == 1 else f"{rounds[0]} to {rounds[-1]}"
    whose = "the class that departs" if found.of_class is None else found.of_class
    said = [
        f"F1 of {whose}, mean over the {over} rounds after the departure that both have. A less B ± half of its 95% "
        "interval over paired seeds; * p < .05.",
        "p: paired t-test over seeds. Holm: p corrected for "
        + ("the one test" if tests == 1 else f"all {tests} tests")
        + " of this column, Holm's way. could show: the smallest true difference that so many seeds find in 80% of all "
        "cases, at 5% and before the correction.",
        "last round, bal. acc.: F1 and balanced accuracy in the last of these rounds, A less B.",
    ]
    if any(pair.mean_f1.difference.smallest is None for pair in found.pairs):
        said.append(f"{NONE}: there is one seed, or the differences do not vary.")
    return said


def about_pooled(found: Comparison) -> list[str]:
    """What the pooled tests are, in sentences."""
    units = {one.over for one in found.pooled}
    methods = len({one.rows for one in found.pooled})
    words = {
        "cells": "cells (the primary test): each cell's mean is one observation.",
        "tasks": "tasks: one observation for each dataset and class. Cells of one task share images and seeds, so they "
        "are not independent and the p over cells is too small.",
        "seeds": "seeds in cells: these very cells, in which seeds alone vary (stratified); it says nothing of others.",
    }
    said = ["Mean over cells of A less B, by t-tests that differ in what one observation is."]
    said += [words[unit] for unit in OVER if unit in units]
    return [*said, f"Holm: corrected for the {methods} methods of each kind."] if methods > 1 else said


def difference(test: TTest) -> str:
    """+.047 ± .058, with a star where p < .05."""
    return signed(test.mean) + ("" if test.half is None else f" ± {score(test.half)}") + ("*" if test.clear else "")


def short_difference(test: TTest) -> str:
    """The same without its interval."""
    return signed(test.mean) + ("*" if test.clear else "")


def p_value(p: float | None) -> str:
    """.034, or <.001; n/a where there was no test.

    Example:
        >>> p_value(0.0342), p_value(1e-9), p_value(None)
        ('.034', '<.001', 'n/a')
    """
    return NONE if p is None else "<.001" if p < 0.0005 else score(p)


def smallest(test: TTest) -> str:
    """The smallest difference that the test could have shown."""
    return NONE if test.smallest is None else score(test.smallest)
