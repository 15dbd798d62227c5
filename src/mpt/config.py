"""One run, as options, as a TOML file and as a Python object: one pydantic model."""

import json
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from mpt.core.equations import DEFAULT_COV_RIDGE, DEFAULT_RIDGE
from mpt.scenario import check_rounds, parse_events

DEFAULT_METHODS = (
    "fedavg",
    "ccvr",
    "icarl",
    "sdc",
    "ldc",
    "frozen",
    "remaining-mean",
    "mpt",
    "mpt-lite",
    "oracle-train",
)


class ConfigError(ValueError):
    """A setting is unknown or out of range; the message names it and what is allowed."""


class RunConfig(BaseModel):
    """What `mpt run` does. Every field is an option of the command, a key of the TOML file, an argument in Python."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    dataset: Annotated[
        str, Field(description="road, digits, parquet:PREFIX, folder:PATH, nuimages:ROOT, ..., as in `mpt datasets`")
    ] = "road"
    rare: Annotated[str, Field(description="the class that departs, by name or index")] = "truck"
    methods: Annotated[
        tuple[str, ...], Field(min_length=1, description="names as in `mpt methods`, or path.py:Class")
    ] = DEFAULT_METHODS
    backbone: Annotated[
        str, Field(description="cnn3, resnet18, mobilenetv3, vit-tiny, timm:NAME, torchvision:NAME or file.py:function")
    ] = "cnn3"
    image_size: Annotated[int | None, Field(ge=28, le=224, description="pixels a side; default: as in the dataset")] = (
        None
    )
    per_class: Annotated[int, Field(ge=10, description="training samples of a class, at most")] = 1000
    partition: Annotated[
        Literal["concentrate", "vehicle"],
        Field(description="who holds what: concentrate, or vehicle: who recorded it, as nuimages says"),
    ] = "concentrate"
    vehicles: Annotated[int | None, Field(ge=2, description="default: as many as classes")] = None
    remaining: Annotated[float, Field(ge=0, lt=1, description="fraction of the rare class that stays behind")] = 0.02
    dirichlet: Annotated[float | None, Field(gt=0, description="uneven split of the other classes; default: even")] = (
        None
    )
    participation: Annotated[float, Field(gt=0, le=1, description="share of the vehicles that train in a round")] = 1.0
    rounds: Annotated[int, Field(ge=2, description="of training and averaging")] = 100
    depart_at: Annotated[int, Field(ge=1, description="the last round with the departing vehicle")] = 15
    events: Annotated[
        str, Field(description="vehicles that join or leave besides, such as 'leave 3 after 20, join 4 at 30'")
    ] = ""
    eval_every: Annotated[int, Field(ge=1, description="read the methods out in every so many rounds")] = 5
    slow_every: Annotated[int | None, Field(ge=1, description="the same for ccvr and ldc; default: as the others")] = (
        None
    )
    epochs: Annotated[int, Field(ge=1, description="of a vehicle's training in a round")] = 5
    lr: Annotated[float, Field(gt=0, description="learning rate of SGD")] = 0.01
    batch_size: Annotated[int, Field(ge=2, description="of a vehicle's training")] = 64
    augment: Annotated[
        Literal["none", "flip", "crop-flip"], Field(description="of training images: none, flip, crop-flip")
    ] = "none"
    readout: Annotated[
        tuple[Literal["mahalanobis", "diagonal", "euclidean", "cosine"], ...],
        Field(min_length=1, description="where a method gives a prototype: mahalanobis, diagonal, euclidean, cosine"),
    ] = ("mahalanobis",)
    ridge: Annotated[float, Field(ge=0, description="lambda of Eq. (1), relative")] = DEFAULT_RIDGE
    cov_ridge: Annotated[float, Field(ge=0, description="lambda_Sigma of Eq. (3)")] = DEFAULT_COV_RIDGE
    seeds: Annotated[int, Field(ge=1, description="how many seeds, 0 to N - 1")] = 1
    device: Annotated[str, Field(description="auto, cpu, cuda, cuda:1, ...")] = "auto"
    engine: Annotated[Literal["fast", "plain"], Field(description="fast, or plain: the reference loop")] = "fast"
    precision: Annotated[
        Literal["auto", "float32", "tf32", "bfloat16"],
        Field(description="of the fast engine on a GPU: auto (bfloat16), bfloat16, tf32, float32"),
    ] = "auto"
    record: Annotated[bool, Field(description="keep the evaluated rounds' features in DIR/record, for mpt replay")] = (
        False
    )

    @field_validator("methods", "readout", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value

    @field_validator("methods", "readout")
    @classmethod
    def _each_once(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        twice = [name for name in value if value.count(name) > 1]
        if twice:
            raise ValueError(f"{twice[0]!r} is there twice, should differ from each other")
        return value

    @field_validator("rare", mode="before")
    @classmethod
    def _index_as_text(cls, value: Any) -> Any:
        return str(value) if isinstance(value, int) and not isinstance(value, bool) else value

    @model_validator(mode="after")
    def _departs_in_time(self) -> "RunConfig":
        if self.slow_every is not None and self.slow_every % self.eval_every:
            raise ValueError(f"slow_every: {self.slow_every}, should be a multiple of eval_every, {self.eval_every}")
        if self.depart_at >= self.rounds:
            raise ValueError(f"depart_at: {self.depart_at}, should be below {self.rounds}, the number of rounds")
        check_rounds(parse_events(self.events), self.rounds)
        for name in ("vehicles", "remaining", "dirichlet") if self.partition == "vehicle" else ():
            if getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(f"{name}: {getattr(self, name)}, should be left out with partition vehicle")
        return self

    def to_toml(self) -> str:
        """The resolved settings, for `read_toml`; what is not set is left out."""
        lines = [f"{key} = {_toml(value)}" for key, value in self.model_dump().items() if value is not None]
        return "\n".join(lines) + "\n"


def make_config(settings: dict[str, Any]) -> RunConfig:
    """A `RunConfig`, or `ConfigError` with one sentence about the first thing that is wrong."""
    try:
        return RunConfig(**settings)
    except ValidationError as error:
        raise ConfigError(_sentence(error)) from None


def read_toml(path: Path) -> dict[str, Any]:
    """The settings in a file; `ConfigError` where it is missing or no TOML."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"config: there is no file {path}") from None
    except OSError as error:
        raise ConfigError(f"config: {path} cannot be read ({error.strerror})") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"config: {path} cannot be read ({error})") from None


def _sentence(error: ValidationError) -> str:
    """What is wrong with the first setting that is, in the words of the other packages' errors."""
    first = error.errors()[0]
    name = str(first["loc"][0]) if first["loc"] else ""
    if first["type"] == "extra_forbidden":
        return f"{name}: there is no such setting, should be one of {', '.join(RunConfig.model_fields)}"
    if first["type"] == "value_error":
        return f"{name}: {first['ctx']['error']}" if name else str(first["ctx"]["error"])
    if first["type"] == "too_short":
        return f"{name}: none, should be at least one"
    what = first["msg"].removeprefix("Input ")
    for long, short in (("greater than or equal to", "at least"), ("less than or equal to", "at most")):
        what = what.replace(long, short)
    return f"{name}: {first['input']!r}, {what.replace('greater than', 'above').replace('less than', 'below')}"


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)  # TOML's basic strings have JSON's escapes
    return repr(value)
