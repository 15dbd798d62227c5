"""The settings of a scenario's run, as options, as a TOML file and as a Python object. No torch."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from mpt.base.errors import ConfigError, MptError
from mpt.base.settings import check, like, rules_of, setting, unknown
from mpt.federation.plan import FederationSettings, Plan
from mpt.runs.config import DataSettings, RunConfig
from mpt.tracking.settings import TrackerSettings

DEFAULT_METHODS = ("mpt", "mpt-lite", "mpt-x", "mpt:blend", "frozen", "remaining-mean", "oracle-train", "live")
_SERVER = ("grace", "watch_share", "carry_share", "most_watched", "most_references", "remember", "returns")
"""Settings of the tracker."""


@dataclass(frozen=True, kw_only=True)
class ScenarioConfig:
    """What `mpt run --scenario` does. Every field is an option of the command, a key of a TOML file.

    Fewer samples and epochs than `mpt run` takes by default: every round is read out, and up to three trainings run.
    """

    scenario: str = setting("parking-lot", "who is there when, and who holds what: a shipped one, or FILE.toml")
    dataset: str = like(DataSettings, "dataset")
    image_size: int | None = like(DataSettings, "image_size")
    per_class: int = like(DataSettings, "per_class", 150)
    methods: tuple[str, ...] = like(FederationSettings, "methods", DEFAULT_METHODS)
    backbone: str = like(FederationSettings, "backbone")
    weights: str | None = like(FederationSettings, "weights")
    freeze: bool = like(FederationSettings, "freeze")
    participation: float = like(FederationSettings, "participation")
    asked: float = setting(1.0, "share of the vehicles that are asked for statistics in a round", above=0, most=1)
    validation: float = setting(
        0.0, "share of each class that a vehicle sets aside, for evidence without test data", least=0, most=0.5
    )
    eval_every: int = like(FederationSettings, "eval_every", 1)
    epochs: int = like(FederationSettings, "epochs", 2)
    lr: float = like(FederationSettings, "lr")
    batch_size: int = like(FederationSettings, "batch_size")
    augment: str = like(FederationSettings, "augment")
    momentum: float = like(FederationSettings, "momentum")
    weight_decay: float = like(FederationSettings, "weight_decay")
    local_steps: int | None = like(FederationSettings, "local_steps")
    prox: float = like(FederationSettings, "prox")
    loss: str = like(FederationSettings, "loss")
    ridge: float = like(FederationSettings, "ridge")
    cov_ridge: float = like(FederationSettings, "cov_ridge")
    engine: str = like(FederationSettings, "engine")
    precision: str = like(FederationSettings, "precision")
    grace: int = like(TrackerSettings, "grace")
    watch_share: float = like(TrackerSettings, "watch_share")
    carry_share: float = like(TrackerSettings, "carry_share")
    most_watched: int | None = like(TrackerSettings, "most_watched")
    most_references: int = like(TrackerSettings, "most_references")
    remember: bool = like(TrackerSettings, "remember")
    returns: str = like(TrackerSettings, "returns")
    seeds: int = like(RunConfig, "seeds")
    first_seed: int = like(RunConfig, "first_seed")
    device: str = like(RunConfig, "device")

    def __post_init__(self) -> None:
        check(self)

    @property
    def seed_numbers(self) -> range:
        """The seeds themselves."""
        return range(self.first_seed, self.first_seed + self.seeds)

    def plan(self, seed: int, rounds: int) -> Plan:
        """The settings of training of a seed."""
        shared = {f.name for f in fields(Plan)} & {f.name for f in fields(self)}
        chosen: dict[str, Any] = {name: getattr(self, name) for name in shared}
        return Plan(**chosen, rounds=max(rounds, 2), depart_at=1, rare=0, seed=seed)

    @property
    def server(self) -> dict[str, Any]:
        """The settings of the tracker."""
        return {name: getattr(self, name) for name in _SERVER}


def make_scenario_config(settings: Mapping[str, Any]) -> ScenarioConfig:
    """A `ScenarioConfig`, or `ConfigError` with one sentence about the first thing that is wrong."""
    for name in settings:
        if name not in rules_of(ScenarioConfig):
            if name in rules_of(RunConfig):
                raise ConfigError(f"{name}: is for the paper's departure, should be left out with --scenario")
            raise ConfigError(unknown(ScenarioConfig, name))
    try:
        return ScenarioConfig(**settings)
    except MptError as error:
        raise ConfigError(str(error)) from None
