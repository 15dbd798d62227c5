"""What is released with a model: a file beside it that says what it is, where it comes from, and how far to trust it.

`model.onnx.manifest.json` stands beside `model.onnx`. It has the model's SHA-256, and for every class whether its
prototype is measured or reconstructed, with the verdict and the error that are to be expected of it.
"""

import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from mpt.base.text import listed
from mpt.core.health import VERDICTS, Verdict
from mpt.export.formats import EXTENSIONS, ExportError, second_file

FORMAT = 1
"""Of the file; raised when a key is new or changes its meaning."""
ENDING = ".manifest.json"

State = Literal["measured", "reconstructed", "departed", "kept", "missing"]
"""Of a class:

- measured: its prototype, or what else recognises it, comes from samples that are there.
- reconstructed: its vehicle is gone, and the method says what error to expect.
- departed: its vehicle is gone, and the method says nothing of its error.
- kept: its prototype is of an earlier round than the model.
- missing: it is never predicted.
"""

LEVELS: dict[str, tuple[Verdict, ...]] = {
    "good": ("good",),
    "unconfirmed": ("good", "unconfirmed"),
    "degraded": ("good", "unconfirmed", "degraded"),
}
"""What may be required of every class that is not measured, and the verdicts that meet it."""


@dataclass(frozen=True)
class ClassStanding:
    """A class of a released model.

    Attributes:
        name: of the class.
        state: how its prototype came about.
        verdict: of a reconstruction; None where there is none, or the method's was not measured to hold.
        expected_error: the Mahalanobis distance of its prototype from the true one that is to be expected, or None.
    """

    name: str
    state: State
    verdict: Verdict | None = None
    expected_error: float | None = None

    def __str__(self) -> str:
        if self.state == "reconstructed":
            return f"{self.name} is {self.verdict or 'reconstructed without a verdict'}"
        said = {
            "measured": "is measured",
            "departed": "has departed, and its method gives no verdict",
            "kept": "has a prototype of an earlier round",
            "missing": "is never predicted",
        }
        return f"{self.name} {said[self.state]}"


@dataclass(frozen=True)
class Origin:
    """Where a model comes from.

    Attributes:
        kind: "run" or "fleet".
        method, readout: the row; the readout is empty where a fleet's server decides.
        settings: SHA-256 of the settings that the model was trained with.
        dataset: as in the settings; None where every vehicle has its own.
        dataset_fingerprint: of the samples; None where nobody has seen all of them.
        seed: of the run, or of the fleet.
        mpt: the release that trained it.
        commit: of the source that trained it, where that is known.
        classes: one a logit.
    """

    kind: Literal["run", "fleet"]
    method: str
    readout: str
    settings: str
    dataset: str | None
    dataset_fingerprint: str | None
    seed: int | None
    mpt: str
    commit: str | None
    classes: tuple[ClassStanding, ...]


@dataclass(frozen=True)
class ReleaseManifest:
    """What stands in the file.

    Attributes:
        file: the model's name.
        format: "onnx" or "torchscript".
        sha256: of the model.
        bytes: its size.
        earlier_sha256: of the earlier model's file, `second_file`; None where there is one model.
        round: of the model and the prototypes.
        backbone, in_channels, image_size, input_shape: of the model, as in `mpt.export.Metadata`.
        exported_by: the release of mpt that wrote it.
        required: what was required of its classes, one of `LEVELS`; None where nothing was.
        origin: where it comes from, and its classes.
    """

    file: str
    format: str
    sha256: str
    bytes: int
    earlier_sha256: str | None
    round: int
    backbone: str
    in_channels: int
    image_size: int
    input_shape: tuple[int, ...]
    exported_by: str
    required: str | None
    origin: Origin

    def files(self, model: Path | str) -> tuple[Path, ...]:
        """All that is released: the model, where there is one the earlier one, and this."""
        model = Path(model)
        earlier = () if self.earlier_sha256 is None else (second_file(model),)
        return (model, *earlier, manifest_path(model))

    def to_json(self) -> str:
        """As the file has it."""
        return json.dumps({"mpt_release": FORMAT, **asdict(self)}, indent=2) + "\n"


def manifest_path(model: Path) -> Path:
    """Where a model's manifest is.

    Example:
        >>> manifest_path(Path("runs/eight/model.onnx")).as_posix()
        'runs/eight/model.onnx.manifest.json'
    """
    return model.parent / (model.name + ENDING)


def check_level(level: str | None) -> None:
    """`ExportError` where no such thing can be required."""
    if level is not None and level not in LEVELS:
        raise ExportError(f"require: {level!r}, should be {listed(list(LEVELS), 'or')}")


def check_required(classes: Sequence[ClassStanding], level: str | None) -> None:
    """`ExportError` with every class that does not meet what is required."""
    check_level(level)
    if level is None:
        return
    short = [one for one in classes if one.state != "measured" and one.verdict not in LEVELS[level]]
    if short:
        told = "; ".join(map(str, short))
        least = "good" if level == "good" else f"{level} or better"
        raise ExportError(f"require: {told}; every class that is not measured should be {least}, nothing was written")


def read_release(model: Path | str) -> ReleaseManifest:
    """The manifest beside a model, checked: its shape, and that the model is the one it was written for.

    Raises:
        ExportError: it is missing or broken, or the model is another.
    """
    model = Path(model)
    path = manifest_path(model)
    try:
        text, data = path.read_text(encoding="utf-8"), model.read_bytes()
    except OSError as error:
        raise ExportError(f"{error.filename}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise ExportError(f"{path}: is no text, should be as mpt export writes it") from None
    found = parse(text, str(path))
    check_hash(model, data, found.sha256, path)
    if found.earlier_sha256 is not None:
        second = second_file(model)
        try:
            check_hash(second, second.read_bytes(), found.earlier_sha256, path)
        except OSError as error:
            raise ExportError(f"{second}: cannot be read ({error.strerror})") from None
    return found


def check_hash(file: Path, data: bytes, sha256: str, manifest: Path) -> None:
    """`ExportError` where a file is not the one that a manifest was written for."""
    if sha256 != hashlib.sha256(data).hexdigest():
        raise ExportError(f"{file}: is not the file that {manifest.name} was written for, their SHA-256 differ")


def parse(text: str, where: str) -> ReleaseManifest:
    """A manifest from its text; `ExportError` with the first thing that is wrong, at `where`."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:  # also numbers of thousands of digits, and thousands of brackets
        raise ExportError(f"{where}: is no JSON ({error})") from None
    top = _Keys(found, where)
    version = top.take("mpt_release", int)
    if version != FORMAT:
        raise ExportError(f"{where}: mpt_release is {version}, this release of mpt reads {FORMAT}")
    made = ReleaseManifest(
        file=top.take("file", str),
        format=top.one_of("format", tuple(EXTENSIONS)),
        sha256=top.hash("sha256"),
        bytes=top.whole("bytes"),
        earlier_sha256=top.hash("earlier_sha256", None),
        round=top.whole("round"),
        backbone=top.take("backbone", str),
        in_channels=top.whole("in_channels"),
        image_size=top.whole("image_size"),
        input_shape=top.shape("input_shape"),
        exported_by=top.take("exported_by", str),
        required=top.one_of("required", (*LEVELS, None)),
        origin=_origin(_Keys(top.take("origin", dict), f"{where}: origin")),
    )
    top.no_more()
    return made


def _origin(keys: "_Keys") -> Origin:
    lines = keys.take("classes", list)
    made = Origin(
        kind=keys.one_of("kind", ("run", "fleet")),
        method=keys.take("method", str),
        readout=keys.take("readout", str),
        settings=keys.hash("settings"),
        dataset=keys.take("dataset", str, None),
        dataset_fingerprint=keys.take("dataset_fingerprint", str, None),
        seed=keys.take("seed", int, None),
        mpt=keys.take("mpt", str),
        commit=keys.take("commit", str, None),
        classes=tuple(_standing(_Keys(one, f"{keys.where}: classes[{i}]")) for i, one in enumerate(lines)),
    )
    keys.no_more()
    return made


def _standing(keys: "_Keys") -> ClassStanding:
    made = ClassStanding(
        keys.take("name", str),
        keys.one_of("state", get_args(State)),
        keys.one_of("verdict", (*VERDICTS, None)),
        keys.take("expected_error", float, int, None),
    )
    keys.no_more()
    if made.expected_error is not None and not 0 <= made.expected_error <= sys.float_info.max:
        raise ExportError(f"{keys.where}: expected_error is {made.expected_error}, should be a number of at least 0")
    if made.state != "reconstructed" and made.verdict is not None:
        raise ExportError(f"{keys.where}: a class that is {made.state} has the verdict {made.verdict}, should be null")
    return made


class _Keys:
    """An object of JSON that is taken apart key by key."""

    def __init__(self, found: Any, where: str) -> None:
        if not isinstance(found, dict):
            raise ExportError(f"{where}: is {_said(found)}, should be an object")
        self.left: dict[str, Any] = dict(found)
        self.where = where

    def take(self, key: str, *kinds: type | None) -> Any:
        """The value of a key that is of one of these types."""
        if key not in self.left:
            raise ExportError(f"{self.where}: has no {key}")
        value = self.left.pop(key)
        if not any(value is None if kind is None else type(value) is kind for kind in kinds):
            should = " or ".join(_WORDS[kind] for kind in kinds)
            raise ExportError(f"{self.where}: {key} is {_said(value)}, should be {should}")
        return value

    def whole(self, key: str) -> int:
        """A number of at least 0."""
        value: int = self.take(key, int)
        if value < 0:
            raise ExportError(f"{self.where}: {key} is {value}, should be at least 0")
        return value

    def shape(self, key: str) -> tuple[int, ...]:
        """One to three numbers of at least 1: of a vector, a series or an image."""
        value: list[Any] = self.take(key, list)
        if len(value) not in (1, 2, 3) or any(type(one) is not int or one < 1 for one in value):
            raise ExportError(f"{self.where}: {key} is {_said(value)}, should be one to three numbers of at least 1")
        return tuple(value)

    def hash(self, key: str, *besides: None) -> Any:
        """A SHA-256, or None where that may be."""
        value = self.take(key, str, *besides)
        if value is not None and (len(value) != 64 or set(value) - set("0123456789abcdef")):
            raise ExportError(f"{self.where}: {key} is {_said(value)}, should be a SHA-256 as 64 hexadecimal digits")
        return value

    def one_of(self, key: str, known: tuple[Any, ...]) -> Any:
        """One of these words."""
        value = self.take(key, str, None)
        if value not in known:
            should = " or ".join("null" if word is None else word for word in known)
            raise ExportError(f"{self.where}: {key} is {_said(value)}, should be {should}")
        return value

    def no_more(self) -> None:
        """Nothing that nobody reads."""
        if self.left:
            raise ExportError(f"{self.where}: has {next(iter(self.left))[:60]!r}, which no manifest has")


_WORDS: Mapping[type | None, str] = {
    None: "null", str: "a text", int: "a whole number", float: "a number", dict: "an object", list: "a list"
}  # fmt: skip


def _said(value: Any) -> str:
    return "null" if value is None else repr(value)[:60]
