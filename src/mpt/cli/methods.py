"""`mpt check-method`, for those who write methods."""

from typing import Annotated

import typer

from mpt.cli.render import say


def add_to(app: typer.Typer) -> None:
    """Add it to `mpt`."""
    app.command("check-method")(check_method)


def check_method(
    method: Annotated[str, typer.Argument(metavar="METHOD", help="path.py:Class, or a name as in `mpt methods`")],
) -> None:
    """Whether a method keeps the protocol: bytes counted, no data of single samples, deterministic."""
    from mpt.checking import check_method as checks_of

    checks = checks_of(method)
    for check in checks:
        word = {True: "ok", False: "FAILED", None: "-"}[check.passed]
        say(f"{word:7} {check.name}{': ' if check.said else ''}{check.said}")
    failed = sum(check.passed is False for check in checks)
    say(f"{method} keeps the protocol" if not failed else f"{method}: {failed} of {len(checks)} checks failed")
    if failed:
        raise typer.Exit(1)
