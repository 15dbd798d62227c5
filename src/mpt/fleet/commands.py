"""The command line for operators: `mpt whatif`, `mpt fleet status` and `mpt export`."""

import json
from pathlib import Path
from typing import Annotated

import click
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from mpt.fleet.errors import FleetError
from mpt.fleet.roster import printable
from mpt.fleet.status import ClassStatus, Status, prometheus, read_status
from mpt.fleet.store import open_store
from mpt.fleet.whatif_command import whatif

_WIDEST = 1000
_Json = Annotated[bool, typer.Option("--json", help="as JSON")]

fleet = typer.Typer()


def add_to(app: typer.Typer) -> None:
    """Add the fleet's commands to `mpt`."""
    app.command()(whatif)
    app.command()(export)
    app.add_typer(fleet, name="fleet")


def export(
    where: Annotated[str, typer.Argument(metavar="DIR", help="the fleet server's store: a folder, or sqlite:PATH")],
    kind: Annotated[str, typer.Option("--format", help="onnx or torchscript")],
    out: Annotated[Path | None, typer.Option(help="the file; default: beside the store")] = None,
) -> None:
    """The backbone with the current readout as its last linear layer: uint8 images (N, C, H, W) to logits."""
    from mpt.fleet import export as files  # noqa: PLC0415 - `mpt --help` does not wait for torch
    from mpt.learning import LearningError  # noqa: PLC0415

    try:
        if kind not in files.EXTENSIONS:
            raise FleetError(f"format: {kind!r}, should be {' or '.join(files.EXTENSIONS)}")
        path = out or files.default_name(where, kind)
        about = files.export(open_store(where), kind, path)
    except (FleetError, LearningError) as error:
        raise click.UsageError(f"{where}: {error}") from error
    click.echo(f"{path}: {about.backbone} with {len(about.class_names)} classes after round {about.round}")
    for name in about.missing:
        click.echo(f"{name} has no prototype and is never predicted")


@fleet.callback(invoke_without_command=True)
def start(context: typer.Context) -> None:
    """What a fleet's server knows."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@fleet.command()
def status(
    where: Annotated[str, typer.Argument(metavar="DIR", help="the server's store: a folder, or sqlite:PATH")],
    as_json: _Json = False,
    as_prometheus: Annotated[bool, typer.Option("--prometheus", help="as Prometheus text")] = False,
) -> None:
    """Who is there, which classes hang on one vehicle, which are tracked, and the last round's problems."""
    if as_json and as_prometheus:
        raise click.UsageError("json, prometheus: both are given, should be one of the two")
    try:
        found = read_status(open_store(where))
    except FleetError as error:
        raise click.UsageError(f"{where}: {error}") from error
    if as_json:
        click.echo(json.dumps(found.as_json(), indent=2))
    elif as_prometheus:
        click.echo(prometheus(found), nl=False)
    else:
        _print_status(found)


def _print_status(found: Status) -> None:
    when = f"after round {found.round}{f', {found.time}' if found.time else ''}"
    vehicles = _table("vehicle", "state", "since round", "seen in round", "samples", title=when)
    for v in found.vehicles:
        _add(vehicles, v.vehicle, v.state, v.since, v.seen, "" if v.samples is None else v.samples)
    _show(vehicles)
    classes = _table(
        "class", "samples", "largest share", "on vehicle", "watched since", "tracked", "prototype has moved", "verdict",
        title=" ",
    )  # fmt: skip
    for c in found.classes:
        share = f"{c.share:.0%}{' hangs on it' if c.hangs else ''}"
        _add(classes, c.name, c.samples, share, c.holder or "", c.watched_since or "", *_tracking(c))
    _show(classes)
    if found.problems:
        problems = _table("problems of the last round", title=" ")
        for problem in found.problems:
            _add(problems, problem)
        _show(problems)


def _tracking(c: ClassStatus) -> tuple[str, str, str]:
    if c.tracked is None:
        return "", "", ""
    t = c.tracked
    since = f"{t.state}, deposit of round {t.deposit_round} made in {t.since}"
    moved = "" if t.moved is None else f"{t.moved:.3g}"
    moved = moved if t.moved_mahalanobis is None else f"{moved}, Mahalanobis {t.moved_mahalanobis:.3g}"
    known = t.verdict is not None and t.expected_error is not None
    return since, moved, f"{t.verdict}, expected error {t.expected_error:.2g}" if known else ""


def _table(*columns: str, title: str | None = None) -> Table:
    table = Table(title=title, title_justify="left", box=None)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _add(table: Table, *cells: object) -> None:
    table.add_row(*(escape(printable(str(cell))) for cell in cells))


def _show(table: Table) -> None:
    """As wide as the terminal; elsewhere as wide as it is, for other programs to read."""
    console = Console()
    (console if console.is_terminal else Console(width=_WIDEST)).print(table)
