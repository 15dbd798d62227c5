"""The command line: `mpt run`, `mpt report`, `mpt methods`, `mpt datasets`."""

import inspect
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import click
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column, Table
from typer.core import TyperGroup

from mpt.config import ConfigError, RunConfig, make_config, read_toml

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


def _run(config: Path | None, out: Path | None, **options: Any) -> None:
    """Simulate a federation that a vehicle leaves, and read out every method."""
    from mpt.core import StatisticsError
    from mpt.data import DataError
    from mpt.federation.partition import PartitionError
    from mpt.federation.scenario import PlanError
    from mpt.learning import LearningError
    from mpt.methods import MethodError
    from mpt.simulation import save, simulate

    try:
        settings = {**(read_toml(config) if config else {}), **{k: v for k, v in options.items() if v is not None}}
        chosen = make_config(settings)
        if out is not None:
            _prepare(out)
        with _Reporter(chosen) as reporter:
            result = simulate(chosen, progress=reporter)
    except (ConfigError, DataError, LearningError, MethodError, PartitionError, PlanError, StatisticsError) as error:
        raise click.UsageError(str(error)) from error
    _print_summary(result)
    if out is not None:
        save(result, out)
        console.print(f"\nwritten to {out}: config.toml, manifest.json, metrics.csv", highlight=False)


def _prepare(out: Path) -> None:
    """Make the folder for the results before the work begins."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"out: {out} cannot be made a folder ({error.strerror})") from None


def _signature() -> inspect.Signature:
    """`mpt run`'s options are the fields of `RunConfig`."""
    path = Annotated[Path | None, typer.Option("--config", help="TOML file with the same settings")]
    out = Annotated[Path | None, typer.Option("--out", help="folder for the results")]
    parameters = [
        inspect.Parameter("config", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=path),
        inspect.Parameter("out", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=out),
    ]
    for name, field in RunConfig.model_fields.items():
        default = ", ".join(field.default) if isinstance(field.default, tuple) else field.default
        kind: Any = field.annotation
        kind = kind if kind in (int, float) else {int | None: int, float | None: float}.get(kind, str)
        note = "" if field.default is None else f" (default: {default})"
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


class _Reporter:
    """A progress bar on a terminal, a plain line a round elsewhere."""

    def __init__(self, config: RunConfig) -> None:
        self.rounds = config.rounds
        self.total = config.seeds * config.rounds
        self.f1 = ""
        self.started = time.perf_counter()
        self.bar = Progress(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), console=console
        )
        self.task = self.bar.add_task("starting", total=self.total)

    def __enter__(self) -> "_Reporter":
        if console.is_terminal:
            self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar.live.is_started:
            self.bar.stop()

    def __call__(self, seed: int, number: int, rows: Sequence[Any]) -> None:
        if number == 1:
            self.f1 = ""
        best = [r for r in rows if r.method == "mpt"] or list(rows)
        if best:
            self.f1 = f"  {best[0].method} F1 {best[0].scores.rare_f1:.3f}"
        text = f"seed {seed}  round {number}/{self.rounds}{self.f1}"
        if console.is_terminal:
            self.bar.update(self.task, advance=1, description=text)
        elif rows:
            print(f"{time.perf_counter() - self.started:7.1f} s  {text}", file=sys.stderr, flush=True)


def _print_summary(result: Any) -> None:
    config, summary = result.config, result.summary()
    table = Table(
        "method", "readout", title=f"F1 of {config.rare!r} on {config.dataset}", title_justify="left", box=None
    )
    for column in ("last round", "mean after departure", "balanced acc.", "bytes up", "bytes down"):
        table.add_column(column, justify="right")

    def with_deviation(value: float, deviation: float | None) -> str:
        return f"{value:.3f}" if deviation is None else f"{value:.3f} ± {deviation:.3f}"

    for row in sorted(summary, key=lambda r: r["mean_f1"]):
        table.add_row(
            row["method"],
            row["readout"],
            with_deviation(row["last_f1"], row["last_f1_sd"]),
            with_deviation(row["mean_f1"], row["mean_f1_sd"]),
            f"{row['balanced_accuracy']:.3f}",
            f"{row['bytes_up']:,.0f}",
            f"{row['bytes_down']:,.0f}",
        )
    show(table)
