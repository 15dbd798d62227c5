"""`mpt fleet`: what a fleet's server knows, and what it would do."""

import json
from typing import Annotated

import click
import typer

from mpt.base.errors import MptError
from mpt.cli.render import say, show
from mpt.cli.render.status import add_row, plain_table, print_status
from mpt.fleet.approve import approve as approved
from mpt.fleet.metrics import prometheus
from mpt.fleet.status import read_status
from mpt.fleet.store import existing_store

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
def approve(
    classes: Annotated[list[str], typer.Argument(metavar="CLASS...", help="by name or number")],
    where: Annotated[str, typer.Option("--state", help="the server's store: a folder, or sqlite:PATH")],
) -> None:
    """In shadow mode: let the remaining samples of these classes be held out of training once they have departed."""
    try:
        for sentence in approved(existing_store(where), classes):
            say(sentence)
    except MptError as error:
        raise click.UsageError(f"{where}: {error}") from error


@app.command()
def check(
    config: Annotated[
        list[str], typer.Option("--config", "-c", help="as for flwr run: 'key=value ...', or a TOML file")
    ],
) -> None:
    """Say what flwr run would do with these settings, and what would go wrong; nothing is started.

    Where it is run, the server's data and state folder should be, as the server's user. Exit code 1 where something is
    wrong, 3 where only another server writes to the state folder.
    """
    from mpt.fleet.flower.check import check as checked

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
