"""The command line for those who write methods: `mpt replay` and `mpt check-method`."""

import time
from pathlib import Path
from typing import Annotated

import click
import typer


def add_to(app: typer.Typer) -> None:
    """Add these commands to `mpt`."""
    app.command()(replay)
    app.command()(check_method)


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
