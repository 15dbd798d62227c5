"""`mpt export` and `mpt predict`: a run's or a fleet's model as a file, and what it says about images."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import click
import typer
from rich.table import Table

from mpt.base.errors import MptError
from mpt.cli.render import note, say, show

if TYPE_CHECKING:
    from mpt.export import DeployableModel, Release, ReleaseManifest
    from mpt.fleet.store import Store

T = TypeVar("T")

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
    require: Annotated[
        str | None,
        typer.Option(
            help="the least verdict of every class that is not measured: good, unconfirmed or degraded; else nothing "
            "is written"
        ),
    ] = None,
    track: Annotated[
        str | None, typer.Option(help="put model and manifest into mlflow[:URI] or wandb[:PROJECT] too")
    ] = None,
    register: Annotated[
        str | None, typer.Option(metavar="NAME[@ALIAS]", help="with --track: as a version of this name in its registry")
    ] = None,
    hesitation: _Hesitation = None,
) -> None:
    """The backbone with the last readout as its last linear layer: uint8 images (N, C, H, W) to logits.

    Of a run of series it takes them (N, channels, length) in float32, of vectors (N, d).

    Beside it stands its manifest: its SHA-256, where it comes from, and how far each class can be trusted.
    """
    from mpt.export.formats import kind_of, second_file
    from mpt.export.manifest import check_level, manifest_path
    from mpt.export.release import write_release
    from mpt.export.two_models import TwoModelMetadata
    from mpt.fleet.export import default_name
    from mpt.learning.backbones.classifier import samples_in_words
    from mpt.runs.publish import publication
    from mpt.runs.reader import is_run

    chosen = kind_of(kind, out)
    check_level(require)
    path = out or default_name(where, chosen)
    publish = publication(track, register, Path(where) if is_run(Path(where)) else None, note)
    release = _release(where, method, readout, seed, hesitation)
    made, about = write_release(release, chosen, path, require), release.model.metadata
    by = f", {about.method} by its {about.readout} readout" if about.method else ""
    takes = "" if about.kind == "images" else f" for {samples_in_words(about.input_shape)}"
    say(f"{path}: {about.backbone}{takes} with {len(about.class_names)} classes after round {about.round}{by}")
    if isinstance(about, TwoModelMetadata):
        say(f"{second_file(path)}: the model of round {about.earlier_round}; {about.rule}")
    say(f"{manifest_path(path)}: SHA-256 {made.sha256[:12]}...")
    _say_classes(made)
    if publish is not None:
        say(f"{path}: {publish(path, made)}")


def _say_classes(made: "ReleaseManifest") -> None:
    """Each class that is not measured, a line."""
    for one in made.origin.classes:
        if one.state == "missing":
            say(f"{one.name} has no prototype and is never predicted")
        elif one.state != "measured":
            error = "" if one.expected_error is None else f", an error of {one.expected_error:.2g} is expected"
            say(f"{one}{error}")


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
    from mpt.runs.export import check_images
    from mpt.runs.export import deployable as of_run

    if _is_run(where, method, readout):
        check_images(Path(where))
        return of_run(Path(where), method, readout, seed, hesitation)
    return _of_store(where, partial(of_fleet, hesitation=hesitation))


def _release(
    where: str, method: str | None, readout: str | None, seed: int | None, hesitation: float | None
) -> "Release":
    """The same, with where it comes from."""
    from mpt.fleet.export import releasable as of_fleet
    from mpt.runs.export import releasable as of_run

    if _is_run(where, method, readout):
        return of_run(Path(where), method, readout, seed, hesitation)
    return _of_store(where, partial(of_fleet, hesitation=hesitation))


def _is_run(where: str, method: str | None, readout: str | None) -> bool:
    """Whether it is a run's folder; a fleet's state has no rows to choose from."""
    from mpt.runs.reader import is_run

    if is_run(Path(where)):
        return True
    for name, value in (("method", method), ("readout", readout)):
        if value is not None:
            raise click.UsageError(f"{name}: {value!r}, but {where} is a fleet's state, which has one of its own")
    if not where.startswith("sqlite:") and not Path(where).exists():
        raise click.UsageError(f"{where}: there is no such folder, should be a run's, or a fleet server's store")
    return False


def _of_store(where: str, made: Callable[["Store"], T]) -> T:
    from mpt.fleet.store import existing_store

    try:
        return made(existing_store(where))
    except MptError as error:
        raise click.UsageError(f"{where}: {error}") from error
