"""`mpt fleet`: what a fleet's server knows, and what it would do."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import click
import typer

from mpt.base.errors import MptError
from mpt.cli.render import say, show
from mpt.cli.render.status import add_row, plain_table, print_status
from mpt.fleet import operate
from mpt.fleet.health import serving
from mpt.fleet.metrics import prometheus
from mpt.fleet.rollback import rollback as rolled_back
from mpt.fleet.status import read_status
from mpt.fleet.store import FileStore, SqliteStore, existing_store

_ROWS = 20
_Json = Annotated[bool, typer.Option("--json", help="as JSON")]
_Store = Annotated[str, typer.Argument(metavar="DIR", help="the server's store: a folder, or sqlite:PATH")]

app = typer.Typer(suggest_commands=False)


@app.callback(invoke_without_command=True)
def start(context: typer.Context) -> None:
    """What a fleet's server knows."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@app.command()
def status(
    where: _Store,
    as_json: _Json = False,
    as_prometheus: Annotated[bool, typer.Option("--prometheus", help="as Prometheus text")] = False,
    everything: Annotated[bool, typer.Option("--all", help="list all vehicles and problems")] = False,
) -> None:
    """Who is there, which classes hang on one vehicle, which are tracked, and the last round's problems."""
    if as_json and as_prometheus:
        raise click.UsageError("json, prometheus: both are given, should be one of the two")
    try:
        found = read_status(existing_store(where))
    except MptError as error:
        raise click.UsageError(f"{where}: {error}") from error
    if as_json:
        click.echo(json.dumps(found.as_json(), indent=2))
    elif as_prometheus:
        click.echo(prometheus(found), nl=False)
    else:
        print_status(found, None if everything else _ROWS)


@app.command()
def serve(
    where: _Store,
    host: Annotated[
        str, typer.Option(help="address to listen on; others than loopback show it to whoever can reach it")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: a free one")] = 9464,
    stale: Annotated[
        float, typer.Option(min=1, metavar="SECONDS", help="without a finished round for so long /healthz says 503")
    ] = 3600.0,
) -> None:
    """Serve /healthz, /metrics and /status over HTTP until it is stopped; it only reads the state."""
    try:
        server = serving(existing_store(where), host, port, stale)
    except MptError as error:
        raise click.UsageError(f"{where}: {error}") from error
    except OSError as error:
        raise click.UsageError(f"{host}:{port}: {error.strerror}, should be a free port") from error
    say(f"http://{host}:{server.server_address[1]}/healthz, /metrics and /status")
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        pass
    finally:
        server.server_close()


_State = Annotated[str, typer.Option("--state", help="the server's store: a folder, or sqlite:PATH")]
_Vehicle = Annotated[str, typer.Argument(metavar="VEHICLE", help="by id or name")]


def _order(where: str, give: Callable[[FileStore | SqliteStore], Sequence[str]]) -> None:
    """Give an order, and say what comes of it."""
    try:
        for sentence in give(existing_store(where)):
            say(sentence)
    except MptError as error:
        raise click.UsageError(f"{where}: {error}") from error


@app.command()
def approve(
    classes: Annotated[list[str], typer.Argument(metavar="CLASS...", help="by name or number")], where: _State
) -> None:
    """In shadow mode: let the remaining samples of these classes be held out of training once they have departed."""
    _order(where, lambda store: operate.approve(store, classes))


@app.command()
def ban(
    vehicle: _Vehicle,
    where: _State,
    why: Annotated[str, typer.Option("--why", help="for the log")] = "",
) -> None:
    """Ask a vehicle nothing more, and forget what it has reported; deposits that were made of it stay."""
    _order(where, lambda store: operate.ban(store, vehicle, why))


@app.command()
def unban(vehicle: _Vehicle, where: _State) -> None:
    """Let a banned or quarantined vehicle back: its next right answer counts."""
    _order(where, lambda store: operate.unban(store, vehicle))


@app.command()
def drop(
    one: Annotated[str, typer.Argument(metavar="CLASS", help="by name or number")],
    where: _State,
) -> None:
    """Remove a class's deposit: its samples are trained on again, and measured where there are any."""
    _order(where, lambda store: operate.drop(store, one))


@app.command()
def forget(vehicle: _Vehicle, where: _State) -> None:
    """Remove what is kept of a vehicle: counts, remembered sums, deposits of its own; says what cannot be removed."""
    _order(where, lambda store: operate.forget(store, vehicle))


@app.command()
def rollback(
    where: _Store,
    to: Annotated[
        int | None, typer.Option(metavar="ROUND", help="the round to go back to; default: the one before the last")
    ] = None,
) -> None:
    """Put later checkpoints aside, so that the next server resumes from an earlier one; nothing is removed."""
    try:
        say(rolled_back(existing_store(where), to))
    except MptError as error:
        raise click.UsageError(f"{where}: {error}") from error


@app.command()
def check(
    config: Annotated[
        list[str], typer.Option("--config", "-c", help="as for flwr run: 'key=value ...', or a TOML file")
    ],
    app_folder: Annotated[
        Path, typer.Option("--app", metavar="FOLDER", help="where files of your own are: the app's folder")
    ] = Path(),
) -> None:
    """Say what flwr run would do with these settings, and what would go wrong; nothing is started.

    Where it is run, the server's data and state folder should be, as the server's user. Exit code 1 where something is
    wrong, 3 where only another server writes to the state folder.
    """
    from mpt.fleet.flower.check import check as checked

    found = checked(config, app_folder)
    for note in found.notes:
        click.echo(note)
    for problem in found.problems:
        click.echo(f"wrong: {problem}", err=True)
    if found.problems:
        count = len(found.problems)
        click.echo(f"{count} {'thing is' if count == 1 else 'things are'} wrong: flwr run would fail", err=True)
        raise typer.Exit(3 if found.taken else 1)
    click.echo("nothing is wrong: flwr run can start")


@app.command()
def settings(as_json: _Json = False) -> None:
    """All settings of a fleet's run, as `flwr run -c` takes them: what they mean, and what they may be."""
    from mpt.fleet.flower.config import settings as all_settings

    if as_json:
        click.echo(json.dumps([one._asdict() for one in all_settings()], indent=2))
        return
    table = plain_table("setting", "default", "what it is")
    for one in all_settings():
        add_row(table, one.key, one.default, f"{one.about} ({one.should or one.kind})")
    show(table)
