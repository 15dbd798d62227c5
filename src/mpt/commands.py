"""The command line: `mpt run`, `mpt report`, `mpt methods`, `mpt datasets`, and those of other modules."""

import inspect
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import click
import typer
from rich.console import Console
from rich.table import Column, Table
from typer.core import TyperGroup

from mpt.config import ConfigError, RunConfig, make_config, read_toml
from mpt.experiments.commands import add_to as add_experiment_commands
from mpt.fleet.commands import add_to as add_fleet_commands
from mpt.fleet.flower.commands import vehicle
from mpt.method_commands import add_to as add_method_commands
from mpt.progress import Reporter

WIDEST = 1000
console = Console()


class OneSentence(TyperGroup):
    """Commands that say in one sentence on standard error what is wrong, and leave with exit code 2."""

    def main(  # as TyperGroup has it
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run a command; what it raises for the user is printed here."""
        try:
            code = super().main(args, prog_name, complete_var, False, windows_expand_args, **extra)
        except click.ClickException as error:
            message = " ".join(error.format_message().split())
            Console(stderr=True).print(f"mpt: {message}", style="red", markup=False, highlight=False, soft_wrap=True)
            code = 2
        except (KeyboardInterrupt, click.Abort):
            note("stopped")
            code = 130
        if standalone_mode:
            sys.exit(code or 0)
        return code


app = typer.Typer(cls=OneSentence, add_completion=False, pretty_exceptions_enable=False)


@app.callback(invoke_without_command=True)
def start(context: typer.Context) -> None:
    """Keep recognising a class after its vehicle has left."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


def show(table: Table) -> None:
    """Print a table as wide as the terminal; elsewhere as wide as it is, for other programs to read."""
    (console if console.is_terminal else Console(width=WIDEST)).print(table)


def _run(config: Path | None, out: Path | None, overwrite: bool, track: str | None, **options: Any) -> None:
    """Simulate a federation that a vehicle leaves, and read out every method."""
    from mpt.core import StatisticsError
    from mpt.data import DataError
    from mpt.federation.partition import PartitionError
    from mpt.learning import LearningError
    from mpt.logbook import track as tracker_of
    from mpt.methods import MethodError
    from mpt.record import Record
    from mpt.report.words import quantity
    from mpt.scenario import PlanError
    from mpt.simulation import Stopped, simulate

    try:
        settings = {**(read_toml(config) if config else {}), **{k: v for k, v in options.items() if v is not None}}
        chosen = make_config(settings)
        if overwrite and out is None:
            raise ConfigError("overwrite: there is no folder to overwrite, should come with --out DIR")
        tracker = None if track is None else tracker_of(track, chosen, out)
        with Reporter(chosen, console, tracker) as reporter:
            result = simulate(chosen, out=out, overwrite=overwrite, progress=reporter, say=note)
    except (ConfigError, DataError, LearningError, MethodError, PartitionError, PlanError, StatisticsError) as error:
        raise click.UsageError(str(error)) from error
    except OSError as error:
        if out is None:
            raise
        raise click.UsageError(f"out: {error.filename or out} cannot be written or read ({error.strerror})") from error
    except Stopped as stopped:
        note(str(stopped))
        raise typer.Exit(130) from None
    if not result.computed:
        note(f"{out} holds the finished run of these settings: nothing was computed")
    print_summary(result.config, result.tables)
    if out is not None:
        files = "config.toml, manifest.json, samples.png, metrics.csv, costs.csv, diagnostics.csv, confusion.csv"
        record = f", record ({quantity(Record.of(out).size)})" if chosen.record else ""
        console.print(f"\nin {out}: {files}{record}", highlight=False, soft_wrap=True)
        if result.report is not None:
            console.print(str(result.report), highlight=False, soft_wrap=True)


def note(sentence: str) -> None:
    """A sentence that is no error, on standard error."""
    Console(stderr=True).print(f"mpt: {sentence}", markup=False, highlight=False, soft_wrap=True)


def _signature() -> inspect.Signature:
    """`mpt run`'s options are the fields of `RunConfig`."""
    path = Annotated[Path | None, typer.Option("--config", help="TOML file with the same settings")]
    out = Annotated[Path | None, typer.Option("--out", help="folder for the results; a killed run goes on from there")]
    overwrite = Annotated[bool, typer.Option("--overwrite", help="begin anew, whatever run is in that folder")]
    track = Annotated[str | None, typer.Option("--track", help="log every round to tensorboard or mlflow as well")]
    given: list[tuple[str, Any, Any]] = [
        ("config", None, path),
        ("out", None, out),
        ("overwrite", False, overwrite),
        ("track", None, track),
    ]
    parameters = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, default, annotation in given
    ]
    for name, field in RunConfig.model_fields.items():
        default = ", ".join(field.default) if isinstance(field.default, tuple) else field.default
        kind: Any = field.annotation
        kind = kind if kind in (int, float, bool) else {int | None: int, float | None: float}.get(kind, str)
        note = "" if field.default in (None, "", False) else f" (default: {default})"
        option = typer.Option(f"--{name.replace('_', '-')}", help=f"{field.description}{note}", show_default=False)
        annotation = Annotated[kind | None, option]
        parameters.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation))
    return inspect.Signature(parameters)


_run.__signature__ = _signature()  # type: ignore[attr-defined]
app.command("run")(_run)


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="folder that mpt run --out has written")],
    show_it: Annotated[bool, typer.Option("--open", help="open the page in a browser")] = False,
) -> None:
    """Make DIR/report.html, one page that needs no network."""
    from mpt.report import ReportError, write_report

    try:
        page = write_report(folder)
    except ReportError as error:
        raise click.UsageError(str(error)) from error
    click.echo(f"written: {page}")
    if show_it:
        typer.launch(page.resolve().as_uri())


@app.command()
def methods() -> None:
    """List the methods."""
    from mpt.methods import METHODS, find_method

    table = Table(Column("method", overflow="fold"), "training", "what it does", box=None)
    for name, (_, description) in METHODS.items():
        table.add_row(name, find_method(name).training, description)
    table.add_row("path.py:Class", "", "your own")
    show(table)


@app.command()
def datasets() -> None:
    """List the datasets."""
    from mpt.data import usages

    table = Table(Column("dataset", overflow="fold"), "what it is", box=None)
    for usage, description in usages().items():
        table.add_row(usage, description)
    show(table)


add_method_commands(app)
add_experiment_commands(app)
add_fleet_commands(app)
app.add_typer(vehicle, name="vehicle")


def print_summary(config: RunConfig, tables: Any) -> None:
    """A line a method and readout."""
    from mpt.report.words import quantity
    from mpt.simulation import summarize

    summary = summarize(tables, config.depart_at)
    table = Table(
        Column("method", no_wrap=True),
        Column("readout", no_wrap=True),
        title=f"F1 of {config.rare!r} on {config.dataset}",
        title_justify="left",
        box=None,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    for column in ("before", "last round", "mean after", "bal. acc.", "bytes up", "bytes down", "readout up"):
        table.add_column(column.replace(" ", "\n"), justify="right", vertical="bottom")

    def with_deviation(value: float, deviation: float | None) -> str:
        return f"{value:.3f}" if deviation is None else f"{value:.3f} ± {deviation:.3f}"

    for row in sorted(summary, key=lambda r: r["mean_f1"]):
        table.add_row(
            row["method"],
            row["readout"],
            "" if row["departure_f1"] is None else f"{row['departure_f1']:.3f}",
            with_deviation(row["last_f1"], row["last_f1_sd"]),
            with_deviation(row["mean_f1"], row["mean_f1_sd"]),
            f"{row['balanced_accuracy']:.3f}",
            quantity(row["bytes_up"]),
            quantity(row["bytes_down"]),
            quantity(row["readout_bytes_up"]),
        )
    show(table)
    after = [r for r in tables.metrics if r["round"] > config.depart_at and r["readout"] != "own"]
    for method in dict.fromkeys(r["method"] for r in after if r["prototype_distance"] is None):
        mine = [r["prototype_distance"] for r in after if r["method"] == method]
        note(
            f"{method}: no prototype (NaN) in {mine.count(None)} of {len(mine)} rows: the class is not predicted there"
        )
