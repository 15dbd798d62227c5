"""What thinning a run costs, in the terminal: a line a method and readout."""

from rich.table import Column, Table

from mpt.base.seeds import Stat
from mpt.runs.thin import Thinned


def cost_table(made: Thinned) -> Table:
    """F1 in the run and on the copy, over the rounds that the copy has."""
    table = Table(
        Column("method", no_wrap=True),
        Column("readout", no_wrap=True),
        title=f"F1 of {made.figures.departing!r} in the run and on its thinned copy",
        title_justify="left",
        box=None,
        pad_edge=False,
        padding=(0, 2, 0, 0),
    )
    for column in ("last round\nrun", "\ncopy", "mean after\nrun", "\ncopy"):
        table.add_column(column, justify="right", vertical="bottom")
    before = {row.series: row for row in made.original.summaries}
    for row in sorted(made.figures.summaries, key=lambda row: row.f1):
        mine = before[row.series]
        values = (mine.last_f1, row.last_f1, mine.mean_f1, row.mean_f1)
        table.add_row(*row.series, *map(_text, values))
    return table


def _text(value: Stat | None) -> str:
    return "" if value is None else f"{value.mean:.3f}"
