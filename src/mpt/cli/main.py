"""`mpt`: all commands, and the one place where errors become a sentence."""

import errno
import sys
from collections.abc import Sequence
from typing import Annotated, Any, get_args, get_type_hints

import click
import typer
from typer.core import TyperArgument, TyperGroup
from typer.models import ArgumentInfo

from mpt.base.errors import MptError
from mpt.cli import fleet, lists, methods, models, reproduce, results, run, thin, vehicle, whatif
from mpt.cli.render import fail, note
from mpt.version import MADE_BY


class OneSentence(TyperGroup):
    """Commands that say in one sentence on standard error what is wrong, and leave with exit code 2."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        _describe(self)

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
        except MptError as error:
            code = fail(str(error))
        except click.ClickException as error:
            code = fail(_told(error))
        except OSError as error:
            if error.filename is None and error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            code = fail(f"{error.filename or 'a file'}: cannot be read or written ({error.strerror})")
        except click.Abort:
            note("stopped")
            code = 130
        if standalone_mode:
            sys.exit(code or 0)
        return code

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; what it says about Ctrl-C is printed here, for typer's `main` would drop it."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as stopped:
            note(str(stopped) or "stopped")
            return 130


def _describe(group: click.Group) -> None:
    """Give every positional argument its line back, which typer 0.20 loses beside click 8.5."""
    for command in group.commands.values():
        if isinstance(command, click.Group):
            _describe(command)
        hints = get_type_hints(command.callback, include_extras=True) if command.callback else {}
        for param in command.params:
            said = [one for one in get_args(hints.get(str(param.name))) if isinstance(one, ArgumentInfo)]
            if isinstance(param, TyperArgument) and said:
                param.help = said[0].help


def _told(error: click.ClickException) -> str:
    """What is wrong with the command line; of a missing argument also what it is."""
    sentence = error.format_message()
    about = getattr(error.param, "help", None) if isinstance(error, click.MissingParameter) else None
    return f"{sentence.removesuffix('.')}: {about}" if about else sentence


app = typer.Typer(
    cls=OneSentence,
    add_completion=False,
    pretty_exceptions_enable=False,
    suggest_commands=False,  # click suggests one itself
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        click.echo(MADE_BY)
        raise typer.Exit


@app.callback(invoke_without_command=True)
def start(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="print release and bench, and leave"),
    ] = False,
) -> None:
    """Keep recognising a class after its vehicle has left."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


for group in (run, results, thin, models, methods, lists, reproduce, whatif):
    group.add_to(app)
app.add_typer(fleet.app, name="fleet")
app.add_typer(vehicle.app, name="vehicle")
