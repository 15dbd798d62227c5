"""The entry of the command line, which says what to install where the extra `sim` is missing."""

import sys

from mpt.base.text import installs

NEEDED = {"click", "rich", "torch", "typer"}


def app() -> None:
    """`mpt`, as `mpt.cli.main` has it."""
    try:
        from mpt.cli.main import app as commands

        commands()
    except KeyboardInterrupt:  # while modules are imported
        print("mpt: stopped", file=sys.stderr)
        sys.exit(130)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in NEEDED:
            raise
        print(f"mpt: {missing} is not installed, {installs('sim')} brings it", file=sys.stderr)
        sys.exit(2)
