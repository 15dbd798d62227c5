"""The run configuration of the Flower apps: `[tool.flwr.app.config]`, changed by `flwr run -c`."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from mpt.fleet.errors import FleetError
from mpt.fleet.server import Rules
from mpt.fleet.settings import Settings as TrackerSettings
from mpt.learning import Settings


@dataclass(frozen=True, kw_only=True)
class AppConfig:
    """All settings of a fleet on Flower; in the configuration with "-" for "_".

    Attributes:
        dataset: any dataset name of `mpt run`; a vehicle's own `dataset` in its node config goes before it.
        per_class: at most so many training samples a class; 0: all.
        image_size: of the images; 0: as the dataset has them.
        channels: 1 or 3, where `classes` is given.
        classes: names, with commas between; empty: those of `dataset`, which the server then loads, with its test
            samples to evaluate on.
        rare, remaining: where vehicles share one dataset by their partition ids, as `mpt run` spreads it.
        backbone, epochs, lr, batch_size, augment, seed: as in `mpt run`.
        num_rounds: to train.
        state: the folder, or "sqlite:PATH", of the server's state; empty: nothing is kept.
        deadline, quorum, least, wait, tries: see `mpt.fleet.server.Rules`.
        variant, grace, watch_share, watch, ridge, cov_ridge: see `mpt.fleet.Settings`; `watch` names classes.
        vehicle_ids: "node" or "partition"; see `FlowerTransport`.
        events: for simulations, as in `mpt run --events`: "leave 3 after 5, join 3 at 9".
        fail: for simulations: the probability with which a vehicle does not answer in a round.
    """

    dataset: str = "road"
    per_class: int = 0
    image_size: int = 0
    channels: int = 3
    classes: str = ""
    rare: str = "truck"
    remaining: float = 0.02
    backbone: str = "cnn3"
    epochs: int = 1
    lr: float = 0.01
    batch_size: int = 64
    augment: str = "none"
    seed: int = 0
    num_rounds: int = 5
    state: str = ""
    deadline: float = 600.0
    quorum: float = 0.5
    least: int = 2
    wait: float = 600.0
    tries: int = 3
    variant: str = "mpt"
    grace: int = 3
    watch_share: float = 0.5
    watch: str = ""
    ridge: float = TrackerSettings.ridge
    cov_ridge: float = TrackerSettings.cov_ridge
    vehicle_ids: str = "node"
    events: str = ""
    fail: float = 0.0

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> "AppConfig":
        """From a run configuration; an unknown key or a wrong type is named."""
        known = {f.name: type(f.default) for f in fields(cls)}
        chosen: dict[str, Any] = {}
        for key, value in given.items():
            name = key.replace("-", "_")
            if name not in known:
                raise FleetError(f"config: unknown key {key!r}, known are {', '.join(sorted(known)).replace('_', '-')}")
            whole = isinstance(value, int) and not isinstance(value, bool)
            chosen[name] = float(value) if known[name] is float and whole else value
            if type(chosen[name]) is not known[name]:
                raise FleetError(f"config: {key} = {value!r}, should be of type {known[name].__name__}")
        config = cls(**chosen)
        if config.vehicle_ids not in ("node", "partition"):
            raise FleetError(f"config: vehicle-ids = {config.vehicle_ids!r}, should be node or partition")
        twice = [name for name, times in Counter(config.class_names).items() if times > 1]
        if twice:
            raise FleetError(f"config: classes has {twice[0]!r} more than once, should have every name once")
        if config.num_rounds < 1:
            raise FleetError(f"config: num-rounds = {config.num_rounds}, should be at least 1")
        if not 0 <= config.fail < 1:
            raise FleetError(f"config: fail = {config.fail}, should be at least 0 and below 1")
        return config

    @property
    def training(self) -> Settings:
        """Of a vehicle's training."""
        return Settings(epochs=self.epochs, lr=self.lr, batch_size=self.batch_size, augment=self.augment)

    @property
    def rules(self) -> Rules:
        """When a round ends."""
        return Rules(deadline=self.deadline, quorum=self.quorum, least=self.least, wait=self.wait, tries=self.tries)

    @property
    def class_names(self) -> tuple[str, ...]:
        """As given; empty where the dataset's are meant."""
        return names(self.classes)


def names(text: str) -> tuple[str, ...]:
    """The parts between commas.

    Example:
        >>> names("car, truck")
        ('car', 'truck')
    """
    return tuple(part.strip() for part in text.split(",") if part.strip())
