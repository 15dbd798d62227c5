"""`mpt whatif`: what would be lost if vehicles left."""

from pathlib import Path
from typing import Annotated

import click
import typer

from mpt.cli.render.whatif import dumped, print_whatif
from mpt.cli.render.whatif_scenario import print_forecast
from mpt.fleet import whatif as tables
from mpt.fleet.whatif_scenario import forecast, parse_classes
from mpt.scenario import find_scenario
from mpt.tracking.errors import FleetError
from mpt.tracking.settings import TrackerSettings


def add_to(app: typer.Typer) -> None:
    """Add it to `mpt`."""
    app.command()(whatif)


def whatif(
    context: typer.Context,
    counts: Annotated[
        Path | None, typer.Argument(metavar="COUNTS.CSV", help="a table with the columns vehicle, class, count")
    ] = None,
    watch_share: Annotated[
        float, typer.Option(help="a class is rare without the vehicles that hold this share of it")
    ] = 0.5,
    group: Annotated[int, typer.Option(help="look for groups of up to so many vehicles")] = 3,
    most: Annotated[int, typer.Option(help="print at most so many rows of each table")] = 20,
    everything: Annotated[bool, typer.Option("--all", help="print all rows, with all names in full")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="as JSON, with all vehicles and classes")] = False,
    scenario: Annotated[
        str | None, typer.Option(metavar="NAME|FILE.toml", help="what this scenario would lose, and when")
    ] = None,
    classes: Annotated[
        str | None, typer.Option(help="with --scenario: the classes' names with commas, or how many; 10 if not said")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="with --scenario: of its draws; 0 if not said")] = None,
    carry_share: Annotated[
        float | None, typer.Option(help="with --scenario: more than this share of a class carries it; 0.25 if not said")
    ] = None,
) -> None:
    """What would be lost if vehicles left, before any training, and what to name in `watch`.

    COUNTS.CSV has the columns vehicle, class, count, and a row for each class that a vehicle has.

    With --scenario it may be left out: who holds what, and who is there when, is then the scenario's.
    """
    if most < 1:
        raise FleetError(f"most: {most}, should be at least 1")
    rows = None if everything else most
    if scenario is not None:
        found = forecast(
            find_scenario(scenario),
            seed=seed or 0,
            classes=None if classes is None else parse_classes(classes),
            counts=counts,
            watch_share=watch_share,
            carry_share=TrackerSettings.carry_share if carry_share is None else carry_share,
        )
        if as_json:
            click.echo(dumped(found.as_json()))
        else:
            print_forecast(found, rows)
        return
    for name, value in (("classes", classes), ("seed", seed), ("carry-share", carry_share)):
        if value is not None:
            raise FleetError(f"{name}: is for a scenario, should be left out without --scenario")
    if counts is None:
        wanted = next(one for one in context.command.params if one.name == "counts")
        raise click.MissingParameter(ctx=context, param=wanted, param_hint="'COUNTS.CSV'")
    _whatif(counts, watch_share, group, rows, as_json)


def _whatif(counts: Path, watch_share: float, group: int, rows: int | None, as_json: bool) -> None:
    coverage, names = tables.read_counts(counts)
    held = tables.smallest_groups(coverage, names, watch_share, group)
    if as_json:
        click.echo(dumped(tables.as_json(coverage, names, watch_share, group)))
        return
    print_whatif(coverage, names, held, watch_share, rows)
