"""One run, as options, as a TOML file and as a Python object: one pydantic model."""

import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from mpt.core.equations import DEFAULT_COV_RIDGE, DEFAULT_RIDGE

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

    model_config = ConfigDict(extra="forbid", frozen=True)

    dataset: Annotated[
        str, Field(description="road, digits, parquet:PREFIX, folder:PATH, npz:PATH, hf:NAME, or yours")
    ] = "road"
    rare: Annotated[str, Field(description="the class that departs, by name or index")] = "truck"
    methods: Annotated[
        tuple[str, ...], Field(min_length=1, description="names as in `mpt methods`, or path.py:Class")
    ] = DEFAULT_METHODS
    backbone: Annotated[str, Field(description="cnn3, resnet18, mobilenetv3, vit-tiny, timm:NAME, or yours")] = "cnn3"
    image_size: Annotated[int | None, Field(ge=28, le=224, description="pixels a side; default: as in the dataset")] = (
        None
    )
    per_class: Annotated[int, Field(ge=10, description="training samples of a class, at most")] = 1000
    vehicles: Annotated[int | None, Field(ge=2, description="default: as many as classes")] = None
    remaining: Annotated[float, Field(ge=0, lt=1, description="fraction of the rare class that stays behind")] = 0.02
    dirichlet: Annotated[float | None, Field(gt=0, description="uneven split of the other classes; default: even")] = (
        None
    )
    participation: Annotated[float, Field(gt=0, le=1, description="share of the vehicles that train in a round")] = 1.0
    rounds: Annotated[int, Field(ge=1, description="of training and averaging")] = 100
    depart_at: Annotated[int, Field(ge=1, description="the last round with the departing vehicle")] = 15
    eval_every: Annotated[int, Field(ge=1, description="read the methods out in every so many rounds")] = 5
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

    @field_validator("methods", "readout", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _departs_in_time(self) -> "RunConfig":
        if self.depart_at > self.rounds:
            raise ValueError(f"depart_at is {self.depart_at}, should be at most {self.rounds}, the number of rounds")
        return self

    def to_toml(self) -> str:
        """The resolved settings, for `from_toml`; what is not set is left out."""
        lines = [f"{key} = {_toml(value)}" for key, value in self.model_dump().items() if value is not None]
        return "\n".join(lines) + "\n"


def make_config(settings: dict[str, Any]) -> RunConfig:
    """A `RunConfig`, or `ConfigError` with one sentence about the first thing that is wrong."""
    try:
        return RunConfig(**settings)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"][:1])
        if first["type"] == "extra_forbidden":
            raise ConfigError(f"{name}: no such setting; there are {', '.join(RunConfig.model_fields)}") from None
        if not name:
            raise ConfigError(first["msg"].removeprefix("Value error, ")) from None
        raise ConfigError(f"{name}: {first['input']!r}; {first['msg'][0].lower()}{first['msg'][1:]}") from None


def read_toml(path: Path) -> dict[str, Any]:
    """The settings in a file; `ConfigError` where it is missing or no TOML."""
    try:
        return tomllib.loads(path.read_text())
    except FileNotFoundError:
        raise ConfigError(f"config: there is no file {path}") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"config: {path} cannot be read ({error})") from None


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return repr(value)
