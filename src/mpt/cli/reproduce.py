"""The command `mpt reproduce`."""

from pathlib import Path
from typing import Annotated

import click
import typer
from rich.console import Console

from mpt.base.extensions import split
from mpt.cli.render import note, say


def add_to(app: typer.Typer) -> None:
    """Add it to `mpt`."""
    app.command("reproduce")(reproduce_command)


def reproduce_command(
    exhibits: Annotated[
        list[str], typer.Argument(metavar="EXHIBIT...", help="table1 to table3, fig2a to fig2d, fig4 to fig7, "
                                  "departure, beyond, or all")
    ],
    data: Annotated[
        list[str] | None,
        typer.Option(help="what stands for a set of the paper, as nuimages=DATASET:CLASS; also car1000-coarse, "
                     "car1000-fine; once each; further classes for beyond as CLASS,CLASS"),
    ] = None,
    scale: Annotated[str, typer.Option(help="paper, or quick: minutes on two cores, to see that it runs")] = "quick",
    out: Annotated[Path | None, typer.Option(help="folder; default: runs/reproduce-SCALE")] = None,
    seeds: Annotated[int | None, typer.Option(help="how many; default: paper 3, quick 1, or what there is")] = None,
    jobs: Annotated[int | None, typer.Option(help="processes; default: one a GPU, or one a core")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, ...")] = "auto",
    seconds: Annotated[float | None, typer.Option(help="begin no further cell after these")] = None,
    show: Annotated[bool, typer.Option("--show", help="compute nothing, show what is there")] = False,
    png: Annotated[bool, typer.Option("--png", help="figures as PNG besides SVG")] = False,
    methods: Annotated[
        str, typer.Option(help="rows besides the paper's, as in mpt run --methods: path.py:Class, with commas between")
    ] = "",
    models: Annotated[bool, typer.Option("--models/--no-models", help="keep the models of every cell")] = True,
) -> None:  # fmt: skip
    """Make the paper's tables and figures from the data that you have; started again, it resumes."""
    from mpt.experiments.reproduce import reproduce

    folder = out or Path(f"runs/reproduce-{scale}")
    try:
        made = reproduce(
            exhibits, folder, scale=scale, data=data or (), seeds=seeds, jobs=jobs, device=device, seconds=seconds,
            compute=not show, png=png, methods=split(methods), models=models, console=Console(stderr=True), say=note,
        )  # fmt: skip
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"stopped; the same command resumes with the cells in {folder / 'cells'}") from None
    for path in made.files:
        if path.suffix == ".md" and (path.stem in exhibits or (path.stem == "claims" and "all" in exhibits)):
            click.echo(path.read_text(encoding="utf-8"))
    if made.missing:
        what = "1 cell is" if len(made.missing) == 1 else f"{len(made.missing)} cells are"
        note(f"{what} missing: {'; '.join(made.missing[:3])}{' ...' if made.missing[3:] else ''}")
    say(str(folder / "index.html"))
