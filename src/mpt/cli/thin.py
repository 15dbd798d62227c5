"""`mpt thin`: a small copy of a recorded run, to be committed or sent."""

import re
from pathlib import Path
from typing import Annotated

import typer

from mpt.base.extensions import split
from mpt.base.text import quantity
from mpt.cli.render import note, say, show
from mpt.runs.config import ConfigError

_UNITS = {"": 1, "B": 1, "KB": 1_000, "MB": 1_000_000, "GB": 1_000_000_000}


def add_to(app: typer.Typer) -> None:
    """Add it to `mpt`."""
    app.command()(thin)


def thin(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="folder of a finished run of mpt run --record")],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="folder for the copy, new or empty")],
    rounds: Annotated[
        str, typer.Option(help="rounds kept besides the departure's and the last, with commas; default: two between")
    ] = "",
    methods: Annotated[
        str, typer.Option(help="the run's methods that are kept, and the trainings they read; default: all")
    ] = "",
    seeds: Annotated[int | None, typer.Option(help="keep the first so many; default: all")] = None,
    step: Annotated[
        float | None, typer.Option(help="to which features are rounded, in deviations; default: what fits")
    ] = None,
    train: Annotated[
        int | None, typer.Option(help="training samples of a class, of the rare one all; default: what fits")
    ] = None,
    test: Annotated[int | None, typer.Option(help="test samples of a class; default: what fits")] = None,
    most: Annotated[str, typer.Option(help="bytes of all files together")] = "5MB",
) -> None:
    """Write a small copy of a recorded run, in which mpt replay scores methods as in the run.

    The run's own methods are scored on the copy, so that new ones compare like for like; their rows in the run are in
    OUT/original.
    """
    from mpt.cli.render.thinned import cost_table
    from mpt.runs.thin import thin as thinned

    made = thinned(
        folder, out, rounds=_whole(rounds), methods=split(methods), seeds=seeds, step=step, train=train, test=test,
        most=_bytes(most),
    )  # fmt: skip
    show(cost_table(made))
    kept, said = made.about, made.about["f1_differs_by_up_to"]
    say()
    note(f"F1 on the copy differs from the run's by up to {said:.3f}; the run's own rows are in {out / 'original'}")
    note(
        f"kept: rounds {', '.join(map(str, kept['rounds']))}, {', '.join(kept['trainings'])}, "
        f"steps of {kept['step']:g}, {kept['train']} training and {kept['test']} test samples of the largest class"
    )
    say(f"{out}: {quantity(made.size)}, of a record of {quantity(made.source)}")


def _whole(text: str) -> tuple[int, ...]:
    """15,30 as numbers."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    for part in parts:
        if not part.isdecimal():
            raise ConfigError(f"rounds: {part!r}, should be whole numbers with commas between, such as 15,30")
    return tuple(map(int, parts))


def _bytes(text: str) -> int:
    """5MB, 800 kB or 5000000 as a number."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*", text)
    if found is None or found[2].upper() not in _UNITS:
        raise ConfigError(f"most: {text!r}, should be a size such as 5MB or 800kB")
    return int(float(found[1]) * _UNITS[found[2].upper()])
