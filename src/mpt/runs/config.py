"""One run, as options, as a TOML file and as a Python object: the fields of one dataclass."""

import tomllib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mpt.base.errors import ConfigError, MptError
from mpt.base.settings import check, default_of, rules_of, setting, to_toml, unknown
from mpt.data.features import versions_in
from mpt.federation.plan import FederationSettings, early
from mpt.scenario import PlanError

__all__ = ["READ_OUT", "ConfigError", "DataSettings", "RunConfig", "for_features", "make_config", "read_toml"]


READ_OUT = ("methods", "readout", "eval_every", "slow_every", "ridge", "cov_ridge", "models", "record")
"""Settings that training does not depend on."""


@dataclass(frozen=True, kw_only=True)
class DataSettings:
    """What is learned from, and what departs."""

    dataset: str = setting(
        "road",
        "road, digits, parquet:PREFIX, folder:PATH, nuimages:ROOT, ..., as in `mpt datasets`, or path.py:function",
    )
    rare: str = setting("truck", "the class that departs, by name or index")
    image_size: int | None = setting(None, "pixels a side; default: as in the dataset", least=28, most=224)
    per_class: int = setting(1000, "training samples of a class, at most", least=10)


@dataclass(frozen=True, kw_only=True)
class RunConfig(FederationSettings, DataSettings):
    """What `mpt run` does. Every field is an option of the command, a key of the TOML file, an argument in Python."""

    seeds: int = setting(1, "how many seeds, 0 to N - 1", least=1)
    first_seed: int = setting(0, "the first of them, where it is not 0", least=0)
    device: str = setting("auto", "auto, cpu, cuda, cuda:1, ...")
    record: bool = setting(False, "keep the evaluated rounds' features in DIR/record, for mpt replay")
    models: bool = setting(True, "keep the models of the departure and of the last round in DIR/models")

    def __post_init__(self) -> None:
        if isinstance(self.rare, int) and not isinstance(self.rare, bool):
            object.__setattr__(self, "rare", str(self.rare))
        check(self)
        try:
            super().__post_init__()
        except PlanError as error:
            raise ConfigError(str(error)) from None

    @property
    def seed_numbers(self) -> range:
        """The seeds themselves."""
        return range(self.first_seed, self.first_seed + self.seeds)

    @property
    def only_training(self) -> "RunConfig":
        """The same but for what training does not depend on: runs of which it is equal train the same models."""
        return replace(self, **{name: default_of(RunConfig, name) for name in (*READ_OUT, "seeds")})

    def to_toml(self) -> str:
        """The resolved settings, for `read_toml`; what is not set is left out."""
        return to_toml(self)


def for_features(settings: dict[str, Any], say: Callable[[str], None]) -> dict[str, Any]:
    """The user's settings, and of a run on `features:` what nobody has said: its rounds are the file's versions.

    Every round is read out, and the vehicle departs after the share of the rounds after which it does by default.
    """
    dataset = settings.get("dataset")
    versions = versions_in(dataset) if isinstance(dataset, str) else 0
    if versions < 2:
        return settings
    rounds = settings.get("rounds", versions)
    chosen = {"rounds": versions, "depart_at": early(rounds) if isinstance(rounds, int) else 1, "eval_every": 1}
    if unsaid := {name: value for name, value in chosen.items() if name not in settings}:
        told = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in unsaid.items())
        say(f"{dataset} has {versions} versions of a model: {told}, where nothing else is said")
    return {**settings, **unsaid}


def make_config(settings: dict[str, Any]) -> RunConfig:
    """A `RunConfig`, or `ConfigError` with one sentence about the first thing that is wrong."""
    for name in settings:
        if name not in rules_of(RunConfig):
            raise ConfigError(unknown(RunConfig, name))
    try:
        return RunConfig(**settings)
    except MptError as error:
        raise ConfigError(str(error)) from None


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
