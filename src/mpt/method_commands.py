"""The command line for those who write methods: `mpt replay`, `mpt check-method` and `mpt compare`."""

import csv
import io
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click
import typer
from rich.markup import escape
from rich.table import Column, Table

if TYPE_CHECKING:
    from mpt.comparing import Comparison, Figure, Pair


def add_to(app: typer.Typer) -> None:
    """Add these commands to `mpt`."""
    app.command()(replay)
    app.command()(check_method)
    app.command()(compare)


def replay(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="folder of a run made with --record")],
    methods: Annotated[str, typer.Option(help="names as in `mpt methods`, or path.py:Class, with commas between")],
    overwrite: Annotated[bool, typer.Option("--overwrite", help="replace an earlier method of the same name")] = False,
) -> None:
    """Score methods on a recorded run, without training, and put them into its report."""
    from mpt.commands import note, print_summary
    from mpt.config import ConfigError
    from mpt.core import StatisticsError
    from mpt.methods import MethodError
    from mpt.record import RecordError
    from mpt.replay import replay as replayed
    from mpt.report import ReportError

    start = time.perf_counter()
    try:
        names = [name.strip() for name in methods.split(",") if name.strip()]
        if not names:
            raise ConfigError("methods: none, should be at least one")
        found = replayed(folder, names, overwrite=overwrite)
    except (ConfigError, MethodError, RecordError, ReportError, StatisticsError) as error:
        raise click.UsageError(str(error)) from error
    except OSError as error:
        raise click.UsageError(
            f"replay: {error.filename or folder} cannot be written or read ({error.strerror})"
        ) from error
    print_summary(found.config, found.tables)
    click.echo()
    for name, again in found.again.items():
        if again.differ:
            note(
                f"{name}: {again.differ} of the run's {again.rows} rows differ, in F1 by up to {again.largest:.6f}; "
                "the run's own are shown"
            )
        else:
            note(f"{name}: the run's own numbers again, in all {again.rows} rows")
    if found.new:
        note(f"{', '.join(found.new)}: replayed in {time.perf_counter() - start:.1f} s, in {folder / 'replay'}")
    click.echo(str(found.report))


def check_method(
    method: Annotated[str, typer.Argument(metavar="METHOD", help="path.py:Class, or a name as in `mpt methods`")],
) -> None:
    """Whether a method keeps the protocol: bytes counted, no data of single samples, deterministic."""
    from mpt.checking import check_method as checks_of
    from mpt.methods import MethodError

    try:
        checks = checks_of(method)
    except MethodError as error:
        raise click.UsageError(str(error)) from error
    for check in checks:
        word = {True: "ok", False: "FAILED", None: "-"}[check.passed]
        click.echo(f"{word:7} {check.name}{': ' if check.said else ''}{check.said}")
    failed = sum(check.passed is False for check in checks)
    click.echo(f"{method} keeps the protocol" if not failed else f"{method}: {failed} of {len(checks)} checks failed")
    if failed:
        raise typer.Exit(1)


def compare(
    a: Annotated[Path, typer.Argument(metavar="A", help="a run's folder, or one with several runs in it")],
    b: Annotated[Path | None, typer.Argument(metavar="[B]", help="another one; default: A, with --against")] = None,
    method: Annotated[str, typer.Option(help="methods of A, with commas between; default: all")] = "",
    against: Annotated[str | None, typer.Option(help="the method of B to compare with; default: the same")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="as JSON")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="as CSV")] = False,
) -> None:
    """Paired differences over seeds, A less B, with 95% intervals, cell by cell."""
    from mpt.commands import note, show
    from mpt.comparing import CompareError, records
    from mpt.comparing import compare as compared
    from mpt.report import ReportError

    try:
        names = [name.strip() for name in method.split(",") if name.strip()]
        found = compared(a, b, methods=names, against=against)
    except (CompareError, ReportError) as error:
        raise click.UsageError(str(error)) from error
    if as_json:
        what = {"pairs": records(found), "differ": found.differ, "unpaired": found.unpaired}
        click.echo(json.dumps(what, indent=2))
        return
    if as_csv:
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, list(records(found)[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(records(found))
        click.echo(text.getvalue(), nl=False)
    else:
        show(_table(found))
    for name, (here, there) in found.differ.items():
        note(f"{name} is {', '.join(map(str, here))} in A and {', '.join(map(str, there))} in B")
    for sentence in found.unpaired:
        note(f"not paired: {sentence}")


def _table(found: "Comparison") -> Table:
    from mpt.report.words import score, signed

    def text(figure: "Figure") -> str:
        gap = figure.difference
        return signed(gap.mean) + ("" if gap.half is None else f" ± {score(gap.half)}{' *' if gap.clear else ''}")

    def where(pair: "Pair") -> str:
        return " - ".join(dict.fromkeys(str(path) for path in pair.cells))

    cells = {where(pair) for pair in found.pairs}
    columns = ["cell"] if len(cells) > 1 else []
    columns += [
        "method",
        "seeds",
        "F1,\nlast round",
        "F1,\nmean after",
        "balanced\naccuracy",
        "mean after\nof A",
        "of B",
    ]
    table = Table(
        *(Column(name, overflow="fold", vertical="bottom") for name in columns),
        title=None if columns[0] == "cell" else escape(cells.pop()),
        caption="A less B ± half of the 95% interval over paired seeds; * leaves out zero",
        title_justify="left",
        caption_justify="left",
        box=None,
        pad_edge=False,
        padding=(0, 2, 0, 0),
    )
    for pair in found.pairs:
        one, other = (row.method if row.readout in ("mahalanobis", "own") else " ".join(row) for row in pair.rows)
        figures = [text(figure) for figure in (pair.last_f1, pair.mean_f1, pair.balanced)]
        line = [one if pair.rows[0] == pair.rows[1] else f"{one} - {other}", str(len(pair.seeds)), *figures]
        line += [score(pair.mean_f1.one), score(pair.mean_f1.other)]
        table.add_row(*map(escape, line if columns[0] == "method" else [where(pair), *line]))
    return table
