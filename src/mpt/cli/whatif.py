"""`mpt whatif`: what would be lost if vehicles left."""

from pathlib import Path
from typing import Annotated

import click
import typer

from mpt.cli.render.whatif import dumped, print_whatif
from mpt.fleet import whatif as tables
from mpt.tracking.errors import FleetError


def add_to(app: typer.Typer) -> None:
    """Add it to `mpt`."""
    app.command()(whatif)


def whatif(
    counts: Annotated[
        Path, typer.Argument(metavar="COUNTS.CSV", help="a table with the columns vehicle, class, count")
    ],
    watch_share: Annotated[
        float, typer.Option(help="a class is rare without the vehicles that hold this share of it")
    ] = 0.5,
    group: Annotated[int, typer.Option(help="look for groups of up to so many vehicles")] = 3,
    most: Annotated[int, typer.Option(help="print at most so many rows of each table")] = 20,
    everything: Annotated[bool, typer.Option("--all", help="print all rows, with all names in full")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="as JSON, with all vehicles and classes")] = False,
) -> None:
    """What would be lost if vehicles left, before any training, and what to name in `watch`.

    COUNTS.CSV has the columns vehicle, class, count, and a row for each class that a vehicle has.
    """
    if most < 1:
        raise FleetError(f"most: {most}, should be at least 1")
    coverage, names = tables.read_counts(counts)
    held = tables.smallest_groups(coverage, names, watch_share, group)
    if as_json:
        click.echo(dumped(tables.as_json(coverage, names, watch_share, group)))
        return
    print_whatif(coverage, names, held, watch_share, None if everything else most)
