"""A run's summary in the terminal: a line a method and readout, and what its columns are."""

from collections.abc import Sequence

from rich.table import Column, Table

from mpt.base.seeds import Stat
from mpt.base.text import quantity
from mpt.cli.render import note, prose, say, show
from mpt.runs.summary import Figures

_F1 = ("before", "last round", "mean after", "bal. acc.")
_BYTES = ("bytes up", "bytes down", "readout up")


def print_summary(figures: Figures, dataset: str) -> None:
    """The table, over how many rounds its means are, and what bytes are: beside deviations, a table of their own."""
    title, several = f"F1 of {figures.departing!r} on {dataset}", len(figures.seeds) > 1
    show(summary_table(figures, title, _F1 if several else (*_F1, *_BYTES)))
    if figures.mean_over:
        prose(f"mean after: F1 over {figures.mean_over}")
    if several:
        prose(f"±: standard deviation over {len(figures.seeds)} seeds")
        say()
        show(summary_table(figures, "bytes of a round", _BYTES))
    prose(f"bytes: {figures.costs_over}")
    for sentence in missing_prototypes(figures):
        note(sentence)


def summary_table(figures: Figures, title: str, columns: Sequence[str]) -> Table:
    """Some columns of it, rows in the order of their mean F1."""
    table = Table(
        Column("method", no_wrap=True),
        Column("readout", no_wrap=True),
        title=title,
        title_justify="left",
        box=None,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    for column in columns:
        table.add_column(column.replace(" ", "\n"), justify="right", vertical="bottom")
    for row in sorted(figures.summaries, key=lambda s: (s.mean_f1 is not None, s.f1)):
        cells = {
            "before": "" if row.departure_f1 is None else f"{row.departure_f1:.3f}",
            "last round": _with_deviation(row.last_f1),
            "mean after": _with_deviation(row.mean_f1),
            "bal. acc.": f"{row.balanced.mean:.3f}",
            "bytes up": quantity(row.bytes_up),
            "bytes down": quantity(row.bytes_down),
            "readout up": quantity(row.readout_bytes_up),
        }
        table.add_row(*row.series, *(cells[column] for column in columns))
    return table


def missing_prototypes(figures: Figures) -> list[str]:
    """A sentence for each method that had no prototype in some rounds."""
    found = []
    for series, lines in figures.by_series.items():
        after = [line["prototype_distance"] for line in lines if line["round"] > figures.depart_at]
        if series.readout != "own" and None in after:
            found.append(
                f"{series.method}: no prototype (NaN) in {after.count(None)} of {len(after)} rows: the class is not "
                "predicted there"
            )
    return list(dict.fromkeys(found))


def _with_deviation(value: Stat | None) -> str:
    if value is None:
        return ""
    return f"{value.mean:.3f}" if value.deviation is None else f"{value.mean:.3f} ± {value.deviation:.3f}"
