"""The command line for operators: `mpt whatif`, `mpt fleet status` and `mpt export`."""

import json
from pathlib import Path
from typing import Annotated

import click
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from mpt.fleet.approve import approve as approved
from mpt.fleet.metrics import prometheus
from mpt.fleet.status import Status, read_status
from mpt.fleet.store import FileStore, SqliteStore, open_store
from mpt.fleet.whatif_command import whatif
from mpt.tracking.errors import FleetError
from mpt.tracking.roster import STATES, printable

_WIDEST = 1000
_ROWS = 20
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
        about = files.export(_there(where), kind, path)
    except (FleetError, LearningError) as error:
        raise click.UsageError(f"{where}: {error}") from error
    click.echo(f"{path}: {about.backbone} with {len(about.class_names)} classes after round {about.round}")
    for name in about.missing:
        click.echo(f"{name} has no prototype and is never predicted")


def _there(where: str) -> FileStore | SqliteStore:
    """The store, unless there is nothing of that name."""
    store = open_store(where)
    place = store.path if isinstance(store, SqliteStore) else store.folder
    if not place.exists():
        raise FleetError(f"store: there is no {place}, should be where a fleet's server keeps its state")
    return store


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
    everything: Annotated[bool, typer.Option("--all", help="list all vehicles and problems")] = False,
) -> None:
    """Who is there, which classes hang on one vehicle, which are tracked, and the last round's problems."""
    if as_json and as_prometheus:
        raise click.UsageError("json, prometheus: both are given, should be one of the two")
    try:
        found = read_status(_there(where))
    except FleetError as error:
        raise click.UsageError(f"{where}: {error}") from error
    if as_json:
        click.echo(json.dumps(found.as_json(), indent=2))
    elif as_prometheus:
        click.echo(prometheus(found), nl=False)
    else:
        _print_status(found, None if everything else _ROWS)


@fleet.command()
def approve(
    classes: Annotated[list[str], typer.Argument(metavar="CLASS...", help="by name or number")],
    where: Annotated[str, typer.Option("--state", help="the server's store: a folder, or sqlite:PATH")],
) -> None:
    """In shadow mode: let the remaining samples of these classes be held out of training once they have departed."""
    try:
        for sentence in approved(_there(where), classes):
            click.echo(sentence)
    except FleetError as error:
        raise click.UsageError(f"{where}: {error}") from error


@fleet.command()
def check(
    config: Annotated[
        list[str], typer.Option("--config", "-c", help="as for flwr run: 'key=value ...', or a TOML file")
    ],
) -> None:
    """Say what flwr run would do with these settings, and what would go wrong; nothing is started.

    Where it is run, the server's data and state folder should be, as the server's user. Exit code 1 where something is
    wrong, 3 where only another server writes to the state folder.
    """
    from mpt.fleet.flower.check import check as checked  # noqa: PLC0415 - torch and Flower where they are needed

    found = checked(config)
    for note in found.notes:
        click.echo(note)
    for problem in found.problems:
        click.echo(f"wrong: {problem}", err=True)
    if found.problems:
        count = len(found.problems)
        click.echo(f"{count} {'thing is' if count == 1 else 'things are'} wrong: flwr run would fail", err=True)
        raise typer.Exit(3 if found.taken else 1)
    click.echo("nothing is wrong: flwr run can start")


@fleet.command()
def settings(as_json: _Json = False) -> None:
    """All settings of a fleet's run, as `flwr run -c` takes them: what they mean, and what they may be."""
    from mpt.fleet.flower.config import settings as all_settings  # noqa: PLC0415

    if as_json:
        click.echo(json.dumps([one._asdict() for one in all_settings()], indent=2))
        return
    table = _table("setting", "default", "what it is")
    for one in all_settings():
        _add(table, one.key, one.default, f"{one.about} ({one.should or one.kind})")
    _show(table)


def _print_status(found: Status, most: int | None) -> None:
    when = f"after round {found.round}{f', {found.time}' if found.time else ''}"
    scored = "" if found.accuracy is None else f", accuracy {found.accuracy:.3f}"
    states = [v.state for v in found.vehicles]
    counted = ", ".join(f"{states.count(state):,} {state}" for state in STATES)
    named = any(v.name for v in found.vehicles)
    rows = sorted(found.vehicles, key=lambda v: v.state == "present")
    columns = ["vehicle", *(["id"] if named else []), "state", "since round", "seen in round", "samples"]
    click.echo(f"{when}{scored}\n{len(states):,} vehicles: {counted}\n")
    vehicles = _table(*columns)
    for v in rows[:most]:
        who = (v.name or v.vehicle, v.vehicle) if named else (v.vehicle,)
        _add(vehicles, *who, v.state, v.since, v.seen, "" if v.samples is None else v.samples)
    _show(vehicles)
    _left_out(len(rows), most, "vehicles")
    scores = found.accuracy is not None
    classes = _table(
        "class", *(["F1"] if scores else []), "samples", "largest share", "on vehicle", "watched since", title=" "
    )
    for c in found.classes:
        share = f"{c.share:.0%}{' hangs on it' if c.hangs else ''}"
        f1 = ["" if c.f1 is None else f"{c.f1:.3f}"] if scores else []
        _add(classes, c.name, *f1, c.samples, share, c.holder_name or c.holder or "", c.watched_since or "")
    _show(classes)
    _print_tracked(found)
    _print_shadow(found)
    if found.problems:
        problems = _table("problems of the last round", title=" ")
        for problem in found.problems[:most]:
            _add(problems, problem)
        _show(problems)
        _left_out(len(found.problems), most, "problems")


def _print_shadow(found: Status) -> None:
    """That nothing changes in training without approval, and what waits for it."""
    if found.shadow:
        waiting = ", ".join(found.unapproved) or "none"
        approved = ", ".join(c.name for c in found.classes if c.approved) or "none"
        click.echo(f"\nshadow mode: departed and not approved, so trained on: {printable(waiting)}")
        click.echo(f"approved, so not trained on once departed: {printable(approved)}")


def _left_out(rows: int, most: int | None, of: str) -> None:
    if most is not None and rows > most:
        click.echo(f" and {rows - most:,} more {of}: --all lists them, --json has them")


def _print_tracked(found: Status) -> None:
    """The classes with a deposit."""
    names = {v.vehicle: v.name or v.vehicle for v in found.vehicles}
    table = _table("tracked", "state", "deposit", "of", "remain", "has moved", "verdict", title=" ")
    for c in found.classes:
        if c.tracked is not None:
            t = c.tracked
            owners = ", ".join(names.get(v, v) for v in t.owners)
            moved = t.moved if t.moved_mahalanobis is None else t.moved_mahalanobis
            verdict = "" if t.verdict is None else f"{t.verdict}, error {t.expected_error:.2g}"
            deposit = f"round {t.deposit_round}, {t.samples_then} samples"
            remain = f"{t.remaining}" + (f" and {t.remembered}" if t.remembered else "")
            _add(table, c.name, t.state, deposit, owners, remain, "" if moved is None else f"{moved:.3g}", verdict)
    if table.row_count:
        _show(table)


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
