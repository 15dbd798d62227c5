"""A model is released: its file, and the manifest beside it."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mpt.base.files import write_atomically
from mpt.export.formats import ExportError, second_file, write_model
from mpt.export.manifest import Origin, ReleaseManifest, check_required, manifest_path, parse
from mpt.export.model import DeployableModel
from mpt.export.two_models import TwoModels
from mpt.version import __version__


@dataclass(frozen=True, eq=False)
class Release:
    """A model, and where it comes from."""

    model: DeployableModel
    origin: Origin


def write_release(release: Release, kind: str, out: Path | str, require: str | None = None) -> ReleaseManifest:
    """Write the model and its manifest.

    Args:
        release: what is released.
        kind: "onnx" or "torchscript".
        out: the model's file.
        require: the least verdict of every class that is not measured, of `mpt.export.manifest.LEVELS`.

    Raises:
        ExportError: a class does not meet what is required, and nothing was written; or the model cannot be exported.
    """
    check_required(release.origin.classes, require)
    out = Path(out)
    about = write_model(release.model, kind, out)
    path = manifest_path(out)
    data = out.read_bytes()
    earlier = second_file(out).read_bytes() if isinstance(release.model, TwoModels) else None
    made = ReleaseManifest(
        file=out.name,
        format=kind,
        sha256=hashlib.sha256(data).hexdigest(),
        bytes=len(data),
        earlier_sha256=None if earlier is None else hashlib.sha256(earlier).hexdigest(),
        round=about.round,
        backbone=about.backbone,
        in_channels=about.in_channels,
        image_size=about.image_size,
        input_shape=about.input_shape,
        exported_by=__version__,
        required=require,
        origin=release.origin,
    )
    parse(made.to_json(), str(path))
    try:
        write_atomically(path, made.to_json().encode(), private=True)
    except OSError as error:
        raise ExportError(f"out: {path} cannot be written ({error.strerror})") from None
    return made


def settings_hash(settings: Mapping[str, Any]) -> str:
    """SHA-256 of settings, whatever their order.

    Example:
        >>> settings_hash({"a": 1, "b": 2}) == settings_hash({"b": 2, "a": 1})
        True
    """
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()
