"""`mpt vehicle` and `mpt vehicle leave`."""

from pathlib import Path
from typing import Annotated

import click
import typer

from mpt.fleet.leave import LeaveFile

app = typer.Typer(suggest_commands=False)
_Key = Annotated[Path, typer.Option(help="the vehicle's private key, by which the server knows it")]
_LeaveFile = Annotated[
    Path | None, typer.Option(help="by which the vehicle is told to leave, where it may write (default: KEY.leave)")
]


@app.callback(invoke_without_command=True)
def run(
    context: typer.Context,
    superlink: Annotated[str, typer.Option(help="the SuperLink's address, host:port")] = "",
    key: _Key = Path("vehicle.key"),
    root_certificates: Annotated[Path | None, typer.Option(help="to check the SuperLink's certificate with")] = None,
    port: Annotated[int, typer.Option(help="of the vehicle's own runtime API, on loopback")] = 9094,
    node_config: Annotated[str, typer.Option(help="for the app: 'dataset=\"folder:/data\" min-samples=5'")] = "",
    leave_file: _LeaveFile = None,
    images_file: Annotated[
        Path | None, typer.Option(help="where its decoded images are kept between messages (default: KEY.images)")
    ] = None,
    leave_timeout: Annotated[float, typer.Option(help="seconds to wait for a message to say goodbye to")] = 600.0,
    insecure: Annotated[bool, typer.Option("--insecure", help="without TLS: for tests on one machine")] = False,
) -> None:
    """Run a vehicle's SuperNode. On SIGTERM it says goodbye to the server, with its last statistics, and stops."""
    if context.invoked_subcommand is not None:
        return
    from mpt.fleet.flower.supernode import SuperNode, keep

    if not superlink:
        raise click.UsageError("superlink: should be given, the SuperLink's address as host:port")
    if root_certificates is None and not insecure:
        raise click.UsageError("root-certificates: should be given; --insecure does without, on one machine only")
    node = SuperNode(
        superlink=superlink,
        key=key,
        root_certificates=None if insecure else root_certificates,
        port=port,
        node_config=node_config,
        leave_path=leave_file,
        images_path=images_file,
        leave_timeout=leave_timeout,
    )
    raise typer.Exit(keep(node))


@app.command()
def leave(key: _Key = Path("vehicle.key"), leave_file: _LeaveFile = None) -> None:
    """Tell the vehicle that runs with this key to leave; it stops once it has told the server."""
    from mpt.fleet.flower.supernode import leave_path, runs

    if not key.is_file():
        raise click.UsageError(f"key: {key} is no file, should be the private key of a vehicle that runs here")
    path = leave_file or leave_path(key)
    if not runs(key):
        raise click.UsageError(f"key: no vehicle runs with {key} on this machine")
    if not path.exists():
        raise click.UsageError(f"leave-file: there is no {path}, should be what the vehicle was started with")
    LeaveFile(path).ask()
    click.echo("the vehicle leaves with the next message", err=True)
