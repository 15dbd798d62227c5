"""`mpt export` and `mpt predict`: a run's or a fleet's model as a file, and what it says about images."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click
import typer
from rich.table import Table

from mpt.base.errors import MptError
from mpt.cli.render import say, show

if TYPE_CHECKING:
    from mpt.export import DeployableModel

_Where = Annotated[
    str, typer.Argument(metavar="RUN", help="a run's folder, or a fleet server's store: a folder, or sqlite:PATH")
]
_Method = Annotated[
    str | None, typer.Option(help="of a run: whose readout; default: mpt-x, mpt, or else the run's first")
]
_Readout = Annotated[str | None, typer.Option(help="of a run: where the method has several; default: its first")]
_Hesitation = Annotated[
    float | None,
    typer.Option(help="of two models (mpt-duo): ask the departure-time one only up to this; default: always"),
]
_Seed = Annotated[int | None, typer.Option(help="of a run: whose model; default: its first")]


def add_to(app: typer.Typer) -> None:
    """Add these commands to `mpt`."""
    app.command()(export)
    app.command()(predict)


def export(
    where: _Where,
    kind: Annotated[
        str | None,
        typer.Option(
            "--format", help="onnx or torchscript; default: by the file's name, or onnx where it is installed"
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="the file; default: model.onnx or model.pt beside the run")] = None,
    method: _Method = None,
    readout: _Readout = None,
    seed: _Seed = None,
    hesitation: _Hesitation = None,
) -> None:
    """The backbone with the last readout as its last linear layer: uint8 images (N, C, H, W) to logits."""
    from mpt.export.formats import kind_of, second_file, write_model
    from mpt.export.two_models import TwoModelMetadata
    from mpt.fleet.export import default_name

    chosen = kind_of(kind, out)
    path = out or default_name(where, chosen)
    about = write_model(_model(where, method, readout, seed, hesitation), chosen, path)
    by = f", {about.method} by its {about.readout} readout" if about.method else ""
    say(f"{path}: {about.backbone} with {len(about.class_names)} classes after round {about.round}{by}")
    if isinstance(about, TwoModelMetadata):
        say(f"{second_file(path)}: the model of round {about.earlier_round}; {about.rule}")
    for name in about.missing:
        say(f"{name} has no prototype and is never predicted")


def predict(
    where: _Where,
    images: Annotated[list[Path], typer.Argument(metavar="IMAGE...", help="JPEG or PNG files")],
    method: _Method = None,
    readout: _Readout = None,
    seed: _Seed = None,
    hesitation: _Hesitation = None,
    as_json: Annotated[bool, typer.Option("--json", help="as JSON")] = False,
) -> None:
    """What images are taken for, by a run's or a fleet's last readout."""
    import numpy as np

    from mpt.data.encoded import read_image

    model = _model(where, method, readout, seed, hesitation)
    about = model.metadata
    pixels = np.stack([read_image(path, about.image_size, about.in_channels) for path in images])
    found = model.predict(pixels)
    if as_json:
        lines = [{"image": str(path), **one._asdict()} for path, one in zip(images, found, strict=True)]
        click.echo(json.dumps(lines, indent=2))
        return
    table = Table("image", "class", "ahead of", "by", box=None, pad_edge=False)
    for path, one in zip(images, found, strict=True):
        table.add_row(str(path), one.name, one.runner_up, f"{one.margin:.3g}")
    show(table)


def _model(
    where: str, method: str | None, readout: str | None, seed: int | None, hesitation: float | None
) -> "DeployableModel":
    """Of a run's folder, or of a fleet's state."""
    from mpt.fleet.export import deployable as of_fleet
    from mpt.fleet.store import existing_store
    from mpt.runs.export import deployable as of_run
    from mpt.runs.reader import is_run

    if is_run(Path(where)):
        return of_run(Path(where), method, readout, seed, hesitation)
    for name, value in (("method", method), ("readout", readout), ("hesitation", hesitation)):
        if value is not None:
            raise click.UsageError(f"{name}: {value!r}, but {where} is a fleet's state, which has one of its own")
    if not where.startswith("sqlite:") and not Path(where).exists():
        raise click.UsageError(f"{where}: there is no such folder, should be a run's, or a fleet server's store")
    try:
        return of_fleet(existing_store(where))
    except MptError as error:
        raise click.UsageError(f"{where}: {error}") from error
