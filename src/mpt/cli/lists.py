"""`mpt methods`, `mpt trainings`, ...: what there is at every extension point, one command each."""

import re
from collections.abc import Callable
from importlib import import_module
from typing import Any

import typer
from rich.table import Column, Table

from mpt.cli.render import console

POINTS = {
    "methods": ("mpt.methods", "METHODS", "how a departed class is kept alive"),
    "trainings": ("mpt.methods", "TRAININGS", "what is held out, and which loss; a method says whose model it reads"),
    "losses": ("mpt.learning.losses", "LOSSES", "what vehicles minimise"),
    "partitions": ("mpt.federation.partition", "PARTITIONS", "who holds what"),
    "readouts": ("mpt.federation.readouts", "READOUTS", "what recognises classes by prototypes"),
    "datasets": ("mpt.data", "DATASETS", "what is learned from"),
    "backbones": ("mpt.learning.backbones", "BACKBONES", "from images to features"),
    "aggregations": ("mpt.learning.aggregation", "AGGREGATIONS", "how updates become one model"),
    "attacks": ("mpt.federation.attacks", "ATTACKS", "what a hostile vehicle does; mpt run --attack NAME@VEHICLE"),
}
"""Where each extension point is, and what is listed."""

_WIDE = 38
"""Columns of a spec in a list."""


def add_to(app: typer.Typer) -> None:
    """Add a command for each extension point."""
    for name, (_, _, about) in POINTS.items():
        app.command(name, help=f"List the {name}: {about}.")(_command(name))
    app.command("scenarios", help="List the scenarios: who is there when, and who holds what.")(_scenarios)


def _scenarios() -> None:
    """Those that come with the package; `mpt run --scenario` takes the path of one of your own too."""
    from mpt.scenario import find_scenario, shipped_scenarios

    table = Table(Column("scenario", no_wrap=True), "rounds", "what happens", box=None)
    for name in shipped_scenarios():
        one = find_scenario(name)
        table.add_row(name, str(one.rounds), one.about)
    table.add_row("FILE.toml", "", "your own")
    console.print(table)


def _command(name: str) -> Callable[[], None]:
    def command() -> None:
        console.print(_table(name))

    return command


def _table(name: str) -> Table:
    module, point, _ = POINTS[name]
    found: Any = getattr(import_module(module), point)
    table = Table(Column(found.word, overflow="fold"), box=None)
    if name == "methods":
        table.add_column("training")
    table.add_column("what it is" if name != "methods" else "what it does")
    for spec, about in listed(name):
        training = [found.find(spec).training if spec in found else ""] if name == "methods" else []
        table.add_row(folded(spec), *training, about)
    return table


def folded(spec: str, width: int = _WIDE) -> str:
    """A spec on several lines where it is too long for one, cut before an option.

    Example:
        >>> print(folded("car1000:ROOT?level=...&test_per_class=...", 24))
        car1000:ROOT?level=...
        &test_per_class=...
    """
    lines = [""]
    for part in re.split(r"(?=[?&])", spec):
        if lines[-1] and len(lines[-1]) + len(part) > width:
            lines.append("")
        lines[-1] += part
    return "\n".join(lines)


def listed(name: str) -> list[tuple[str, str]]:
    """What there is at an extension point, and a line on each."""
    if name == "datasets":
        from mpt.data import usages

        return list(usages().items())
    module, point, _ = POINTS[name]
    lines: list[tuple[str, str]] = getattr(import_module(module), point).listed()
    return lines
