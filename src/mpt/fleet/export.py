"""A fleet's model for deployment: the backbone with the current readout as its last linear layer, in one file.

What is exported takes uint8 images (N, C, H, W), any N, and gives logits (N, num_classes); the class is the largest.
Normalisation is inside, and the classes' names are in the metadata, so that a vehicle needs nothing else.
"""

import importlib.util
import io
import json
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from mpt.core import NearestClassMean
from mpt.files import write_atomically
from mpt.fleet.kept import unpacked
from mpt.fleet.store import TRACKER, Checkpoint, Store, StoreError
from mpt.fleet.vehicle import load
from mpt.learning import Classifier, build
from mpt.learning.augmentation import normalise
from mpt.methods.simple import Linear
from mpt.tracking import state as states
from mpt.tracking.errors import FleetError
from mpt.tracking.prototypes import readout_of

EXTENSIONS = {"onnx": ".onnx", "torchscript": ".pt"}
METADATA = "mpt.json"
"""The extra file of a TorchScript archive that holds the metadata."""
_OPSET = 18


@dataclass(frozen=True)
class Metadata:
    """What a user of the exported file may want to know.

    Attributes:
        class_names: one a logit.
        missing: the names of those that have no prototype; their logit is minus infinity.
        tracked: the names of those with a deposit.
        round: of the model and the prototypes.
        backbone: its name.
        in_channels, image_size: of the images.
        mpt: the release that trained it.
    """

    class_names: tuple[str, ...]
    missing: tuple[str, ...]
    tracked: tuple[str, ...]
    round: int
    backbone: str
    in_channels: int
    image_size: int
    mpt: str


class Deployed(nn.Module):
    """uint8 images (N, C, H, W) to logits (N, num_classes)."""

    def __init__(self, backbone: nn.Module, readout: NearestClassMean | Linear) -> None:
        super().__init__()
        weight, bias = (torch.from_numpy(a.astype(np.float32)) for a in readout.to_linear())
        self.backbone = backbone
        self.readout = nn.Linear(weight.shape[1], weight.shape[0])
        with torch.no_grad():
            self.readout.weight.copy_(weight)
            self.readout.bias.copy_(bias)

    def forward(self, images: Tensor) -> Tensor:
        """The class of an image is the largest logit; it is minus infinity for a class without a prototype."""
        logits: Tensor = self.readout(self.backbone(normalise(images)))
        return logits


@dataclass(frozen=True, eq=False)
class Snapshot:
    """A fleet's model as its server's last checkpoint has it.

    Attributes:
        model: the global model, in evaluation mode.
        readout: the server's.
        metadata: of the exported file.
    """

    model: Classifier
    readout: NearestClassMean | Linear
    metadata: Metadata

    def deployed(self) -> Deployed:
        """What is exported."""
        return Deployed(self.model.backbone, self.readout).eval()


def read(store: Store) -> Snapshot:
    """The model and the readout of a store's last checkpoint.

    Raises:
        FleetError: where there is none, or it holds no model.
    """
    found = store.latest()
    if found is None:
        raise StoreError(
            "no whole checkpoint of a fleet's server is there (the folders of mpt run keep no model; export those of a "
            "fleet's state)"
        )
    for part in (TRACKER, "model", "key"):
        if part not in found.payload:
            raise StoreError(f"the checkpoint of round {found.round} has no part {part!r}, so it holds no whole model")
    return _snapshot(found)


def export(store: Store, kind: str, out: Path) -> Metadata:
    """Write the file.

    Args:
        store: the server's.
        kind: "onnx" or "torchscript".
        out: the file.
    """
    if kind not in _WRITERS:
        raise FleetError(f"format: {kind!r}, should be {' or '.join(_WRITERS)}")
    if kind == "onnx":
        _need("onnx", "onnxscript")
    snapshot = read(store)
    about = snapshot.metadata
    example = torch.zeros((2, about.in_channels, about.image_size, about.image_size), dtype=torch.uint8)
    with torch.no_grad(), _quiet():
        data = _WRITERS[kind](snapshot.deployed(), example, about)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(out, data, private=True)
    except OSError as error:
        raise FleetError(f"out: {out} cannot be written ({error.strerror})") from None
    return about


def _snapshot(found: Checkpoint) -> Snapshot:
    key, state = json.loads(found.payload["key"]), states.from_bytes(found.payload[TRACKER])
    for name in ("class_names", "backbone", "in_channels", "image_size_used"):
        if name not in key:
            raise StoreError(f"the key of round {found.round} has no {name!r}; it is of an older release")
    readout = readout_of(state)
    if readout is None:
        raise StoreError(f"no class has a prototype in round {found.round}, so there is no readout to export")
    classes = tuple(key["class_names"])
    channels, size = key["in_channels"], key["image_size_used"]
    model = build(key["backbone"], num_classes=len(classes), in_channels=channels, image_size=size, seed=0)
    load(model, unpacked(found.payload["model"]))
    missing = np.isneginf(readout.to_linear()[1])
    about = Metadata(
        class_names=classes,
        missing=tuple(name for name, gone in zip(classes, missing, strict=True) if gone),
        tracked=tuple(classes[c] for c in sorted(state.tracked)),
        round=found.round,
        backbone=key["backbone"],
        in_channels=channels,
        image_size=size,
        mpt=key.get("mpt", ""),
    )
    return Snapshot(model.eval(), readout, about)


def _onnx(model: Deployed, example: Tensor, about: Metadata) -> bytes:
    try:
        exported = torch.export.export(model, (example,), dynamic_shapes=({0: torch.export.Dim("batch")},))
    except Exception as error:  # the backbone's code, and torch's many errors about it
        raise _not_exportable(about, str(error).strip().split("\n")[0]) from error
    program = torch.onnx.export(
        exported,
        input_names=["images"],
        output_names=["logits"],
        opset_version=_OPSET,
        dynamo=True,
        verbose=False,
    )
    assert program is not None
    proto = program.model_proto
    _name_batch(proto)
    for name, value in asdict(about).items():
        entry = proto.metadata_props.add()
        entry.key, entry.value = name, value if isinstance(value, str) else json.dumps(value)
    data: bytes = proto.SerializeToString()
    return data


def _name_batch(proto: Any) -> None:
    """Call the number of images "batch", which torch calls by a number of its own, such as s34."""
    graph = proto.graph
    axis = graph.input[0].type.tensor_type.shape.dim[0].dim_param
    for value in (*graph.input, *graph.output, *graph.value_info):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param:
                dim.dim_param = dim.dim_param.replace(axis, "batch")


def _torchscript(model: Deployed, example: Tensor, about: Metadata) -> bytes:
    traced = torch.jit.trace(model, example)  # type: ignore[no-untyped-call]
    more = torch.cat([example, example + 128, example + 255])
    try:
        same = torch.allclose(traced(more), model(more), rtol=1e-3)
    except RuntimeError:
        same = False
    if not same:
        raise _not_exportable(about, f"traced with {len(example)} images it gives other logits for {len(more)}")
    buffer = io.BytesIO()
    torch.jit.save(traced, buffer, _extra_files={METADATA: json.dumps(asdict(about)).encode()})
    return buffer.getvalue()


def _not_exportable(about: Metadata, why: str) -> FleetError:
    return FleetError(f"backbone: {about.backbone} cannot be exported for any number of images ({why})")


_WRITERS: dict[str, Callable[[Deployed, Tensor, Metadata], bytes]] = {"onnx": _onnx, "torchscript": _torchscript}


def _need(*packages: str) -> None:
    for package in packages:
        if importlib.util.find_spec(package) is None:
            raise FleetError(f"{package} is not installed, pip install 'mpt-fl[export]' brings it")


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


def default_name(where: str, kind: str) -> Path:
    """The file that is written where none is named: beside the state.

    Example:
        >>> default_name("sqlite:state/fleet.db", "onnx").as_posix()
        'state/fleet.onnx'
        >>> default_name("state", "torchscript").as_posix()
        'state/model.pt'
    """
    path = Path(where.removeprefix("sqlite:"))
    in_file = where.startswith("sqlite:") or path.is_file()
    return path.with_suffix(EXTENSIONS[kind]) if in_file else path / f"model{EXTENSIONS[kind]}"
