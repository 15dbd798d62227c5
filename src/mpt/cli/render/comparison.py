"""`mpt compare` as a table, as JSON and as CSV."""

import csv
import io
import json

from rich.markup import escape
from rich.table import Column, Table

from mpt.base.text import score, signed
from mpt.runs.compare import Comparison, Pair, PairedFigure, records


def as_json(found: Comparison) -> str:
    """Pairs, what differs, what is not paired."""
    return json.dumps({"pairs": records(found), "differ": found.differ, "unpaired": found.unpaired}, indent=2)


def as_csv(found: Comparison) -> str:
    """A line a pair."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(records(found)[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(records(found))
    return text.getvalue()


def comparison_table(found: Comparison) -> Table:
    """A line a pair: A less B with half of its interval."""
    cells, rounds = {_where(pair) for pair in found.pairs}, {len(pair.rounds) for pair in found.pairs}
    several = len(rounds) > 1
    columns = ["cell"] if len(cells) > 1 else []
    columns += ["method", "seeds", *(["rounds"] if several else [])]
    columns += ["F1,\nlast round", "F1,\nmean after", "balanced\naccuracy", "mean after\nof A", "of B"]
    over = "rounds" if several else f"{rounds.pop()} rounds"
    table = Table(
        *(Column(name, overflow="fold", vertical="bottom") for name in columns),
        title=None if columns[0] == "cell" else escape(cells.pop()),
        caption="A less B ± half of the 95% interval over paired seeds; * leaves out zero;\n"
        f"means over the {over} after the departure that both have",
        title_justify="left",
        caption_justify="left",
        box=None,
        pad_edge=False,
        padding=(0, 2, 0, 0),
    )
    for pair in found.pairs:
        one, other = (row.method if row.readout in ("mahalanobis", "own") else " ".join(row) for row in pair.rows)
        figures = [_text(figure) for figure in (pair.last_f1, pair.mean_f1, pair.balanced)]
        name = one if pair.rows[0] == pair.rows[1] else f"{one} - {other}"
        line = [name, str(len(pair.seeds)), *([str(len(pair.rounds))] if several else []), *figures]
        line += [score(pair.mean_f1.one), score(pair.mean_f1.other)]
        table.add_row(*map(escape, line if columns[0] == "method" else [_where(pair), *line]))
    return table


def _text(figure: PairedFigure) -> str:
    gap = figure.difference
    return signed(gap.mean) + ("" if gap.half is None else f" ± {score(gap.half)}{' *' if gap.clear else ''}")


def _where(pair: Pair) -> str:
    return " - ".join(dict.fromkeys(str(path) for path in pair.cells))
