"""What commands print: tables as wide as the terminal, notes and errors on standard error."""

from rich.console import Console
from rich.table import Table

WIDEST = 1000
"""Columns of a table that is no terminal's: other programs read it."""


def plain_console(*, stderr: bool = False, width: int | None = None) -> Console:
    """One that prints texts as they are: a class may be called [b], and `folder:car:` is no picture of a car."""
    return Console(stderr=stderr, width=width, markup=False, emoji=False, highlight=False)


console = plain_console()


def show(table: Table) -> None:
    """Print a table as wide as the terminal; elsewhere as wide as it is, for other programs to read."""
    (console if console.is_terminal else plain_console(width=WIDEST)).print(table)


def say(line: str = "") -> None:
    """A line on standard output, as it is."""
    console.print(line, soft_wrap=True)


def prose(sentence: str) -> None:
    """A sentence on standard output, folded at the terminal's width; elsewhere on one line."""
    console.print(sentence, soft_wrap=not console.is_terminal)


def note(sentence: str) -> None:
    """A sentence that is no error, on standard error."""
    plain_console(stderr=True).print(f"mpt: {sentence}", soft_wrap=True)


def fail(sentence: str) -> int:
    """What is wrong, on standard error, on one line; the exit code."""
    message = " ".join(sentence.split())
    plain_console(stderr=True).print(f"mpt: {message}", style="red", soft_wrap=True)
    return 2
