"""The files: ONNX and TorchScript.

What is exported takes uint8 images (N, C, H, W), any N, and gives logits (N, num_classes); the class is the largest.
Of a model of series it takes them (N, channels, length) in float32, of vectors (N, d); the input is called what it is.
Normalisation is inside, and the classes' names are in the metadata, so that a vehicle needs nothing else.
"""

import importlib.util
import io
import json
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mpt.base.errors import MptError
from mpt.base.files import write_atomically
from mpt.base.text import installs
from mpt.export.model import DeployableModel, Metadata
from mpt.export.two_models import TwoModelMetadata, TwoModels

EXTENSIONS = {"onnx": ".onnx", "torchscript": ".pt"}
METADATA = "mpt.json"
"""The extra file of a TorchScript archive that holds the metadata."""
_OPSET = 18


class ExportError(MptError):
    """A model cannot be exported; the message says why."""


def kind_of(kind: str | None, out: Path | None) -> str:
    """The format: as asked for, or as the file's name says, or ONNX where it is installed, else TorchScript."""
    if kind is None:
        by_name = {ending: name for name, ending in EXTENSIONS.items()}
        kind = by_name.get("" if out is None else out.suffix) or ("onnx" if _lacking("onnx") is None else "torchscript")
    if kind not in EXTENSIONS:
        raise ExportError(f"format: {kind!r}, should be {' or '.join(EXTENSIONS)}")
    return kind


def write_model(model: DeployableModel, kind: str, out: Path | str) -> Metadata:
    """Write the file.

    Args:
        model: what is exported.
        kind: "onnx" or "torchscript".
        out: the file.
    """
    lacking = _lacking(kind_of(kind, None))
    if lacking is not None:
        raise ExportError(f"{lacking} is not installed, {installs('export')} brings it")
    about, out = model.metadata, Path(out)
    samples = torch.zeros((2, *about.input_shape), dtype=torch.uint8 if about.kind == "images" else torch.float32)
    files: dict[Path, tuple[Any, dict[str, Tensor], Metadata]] = {out: (model.deployed(), {about.kind: samples}, about)}
    if isinstance(model, TwoModels) and isinstance(about, TwoModelMetadata):
        partial = torch.zeros((2, len(about.class_names)))
        both = {about.kind: samples, "partial": partial}
        files[second_file(out)] = model.second(), both, replace(about, part="earlier")
    with torch.no_grad(), _quiet():
        made = {path: _WRITERS[kind](*file) for path, file in files.items()}
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        for path, data in made.items():
            write_atomically(path, data, private=True)
    except OSError as error:
        raise ExportError(f"out: {out} cannot be written ({error.strerror})") from None
    return about


def second_file(out: Path) -> Path:
    """Where the earlier model of two is written.

    Example:
        >>> second_file(Path("runs/model.onnx")).name
        'model.earlier.onnx'
    """
    return out.parent / f"{out.stem}.earlier{out.suffix}"


def _onnx(model: Any, example: dict[str, Tensor], about: Metadata) -> bytes:
    batch = torch.export.Dim("batch")
    try:
        exported = torch.export.export(
            model, tuple(example.values()), dynamic_shapes=tuple({0: batch} for _ in example)
        )
        program = torch.onnx.export(
            exported,
            input_names=list(example),
            output_names=list(model.outputs),
            opset_version=_OPSET,
            dynamo=True,
            verbose=False,
        )
    except Exception as error:  # the backbone's code, and torch's many errors about it
        raise _not_exportable(about, str(error).strip().split("\n")[0]) from error
    assert program is not None
    proto = program.model_proto
    _name_batch(proto)
    for name, value in asdict(about).items():
        entry = proto.metadata_props.add()
        entry.key, entry.value = name, value if isinstance(value, str) else json.dumps(value)
    data: bytes = proto.SerializeToString()
    return data


def _name_batch(proto: Any) -> None:
    """Call the number of samples "batch", which torch calls by a number of its own, such as s34."""
    graph = proto.graph
    axis = graph.input[0].type.tensor_type.shape.dim[0].dim_param
    for value in (*graph.input, *graph.output, *graph.value_info):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param:
                dim.dim_param = dim.dim_param.replace(axis, "batch")


def _torchscript(model: Any, example: dict[str, Tensor], about: Metadata) -> bytes:
    try:
        traced = torch.jit.trace(model, tuple(example.values()))  # type: ignore[no-untyped-call]
    except Exception as error:
        raise _not_exportable(about, str(error).strip().split("\n")[0]) from error
    samples, *rest = example.values()
    more = (torch.cat([samples, samples + 128, samples + 255]), *(torch.cat([one, one, one]) for one in rest))
    try:
        same = all(map(_close, _several(traced(*more)), _several(model(*more))))
    except RuntimeError:
        same = False
    if not same:
        raise _not_exportable(
            about, f"traced with {len(samples)} {about.kind} it gives other logits for {len(more[0])}"
        )
    buffer = io.BytesIO()
    torch.jit.save(traced, buffer, _extra_files={METADATA: json.dumps(asdict(about)).encode()})
    return buffer.getvalue()


def _several(given: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return given if isinstance(given, tuple) else (given,)


def _close(one: Tensor, other: Tensor) -> bool:
    return torch.allclose(one.float(), other.float(), rtol=1e-3)


def _not_exportable(about: Metadata, why: str) -> ExportError:
    return ExportError(f"backbone: {about.backbone} cannot be exported for any number of {about.kind} ({why})")


_WRITERS: dict[str, Callable[[Any, dict[str, Tensor], Metadata], bytes]] = {"onnx": _onnx, "torchscript": _torchscript}


def _lacking(kind: str) -> str | None:
    """A package that a format needs and that is not installed."""
    needed = ("onnx", "onnxscript") if kind == "onnx" else ()
    return next((package for package in needed if importlib.util.find_spec(package) is None), None)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without torch's advice on its own exporters."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
