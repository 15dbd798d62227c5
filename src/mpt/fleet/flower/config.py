"""The run configuration of the Flower apps: `[tool.flwr.app.config]`, changed by `flwr run -c`.

Every setting says here what it means and what it may be, or is the one of `mpt run`, of the tracker or of a round's
policy; `mpt fleet settings` prints that, `docs/reference/fleet-settings.md` has it as a table, and `mpt fleet check`
holds a configuration against it.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

from mpt.base.settings import KINDS, coerced, kinds_of, like, problem, rules_of, setting
from mpt.base.text import did_you_mean
from mpt.federation.plan import FederationSettings
from mpt.fleet.policy import RoundPolicy
from mpt.learning import TrainingSettings
from mpt.tracking.errors import FleetError
from mpt.tracking.settings import TrackerSettings

RENAMED = {"least": "min-vehicles", "wait": "timeout", "tries": "max-attempts"}
"""Settings that were called otherwise in an earlier release."""


@dataclass(frozen=True, kw_only=True)
class AppConfig:
    """All settings of a fleet on Flower; in the configuration with "-" for "_"."""

    dataset: str = setting("road", "any dataset name of mpt run; a vehicle's own, in its node config, goes before it")
    per_class: int = setting(0, "at most so many training samples a class on a vehicle; 0: all", least=0)
    image_size: int = setting(
        0,
        "of the images, pixels a side; 0: as the dataset has them",
        should="0, or 8 to 1024",
        fits=lambda v: v == 0 or 8 <= v <= 1024,
    )
    channels: int = setting(3, "of the images, where classes are given", should="1 or 3", fits=lambda v: v in (1, 3))
    classes: str = setting("", "names, with commas between; empty: those of dataset, which the server then loads")
    test: str = setting(
        "",
        "test samples on the server, any dataset name; of folder:PATH those in PATH/test; empty: dataset's",
    )
    rare: str = setting("truck", "where vehicles share one dataset: the class that the last of them holds")
    remaining: float = like(FederationSettings, "remaining", about="likewise: the fraction of it that the others hold")
    backbone: str = setting("cnn3", "as in mpt run")
    weights: str = setting(
        "", "a file of the first model's weights, on the server; as in mpt run; empty: from the seed"
    )
    freeze: bool = like(FederationSettings, "freeze")
    epochs: int = like(TrainingSettings, "epochs", 1)
    lr: float = like(TrainingSettings, "lr")
    batch_size: int = like(TrainingSettings, "batch_size")
    augment: str = like(TrainingSettings, "augment", about="of training images")
    momentum: float = like(TrainingSettings, "momentum")
    weight_decay: float = like(TrainingSettings, "weight_decay")
    prox: float = like(TrainingSettings, "prox")
    loss: str = like(
        FederationSettings, "loss", about="what vehicles minimise: as in mpt run; a file is bundled with the app"
    )
    seed: int = setting(
        0, "of the first model and of all training", should="from 0 to below 2^63", fits=lambda v: 0 <= v < 2**63
    )
    num_rounds: int = setting(5, "to train", least=1)
    state: str = setting("", "the server's state: a folder, or sqlite:PATH; empty: nothing survives the server")
    deadline: float = like(RoundPolicy, "deadline")
    quorum: float = like(RoundPolicy, "quorum")
    tail: float = like(RoundPolicy, "tail")
    tail_seconds: float = like(RoundPolicy, "tail_seconds")
    min_vehicles: int = like(RoundPolicy, "min_vehicles")
    timeout: float = like(RoundPolicy, "timeout")
    max_attempts: int = like(RoundPolicy, "max_attempts")
    aggregation: str = like(RoundPolicy, "aggregation")
    train_share: float = like(RoundPolicy, "train_share")
    report_share: float = like(RoundPolicy, "report_share")
    evaluate_every: int = like(RoundPolicy, "evaluate_every")
    validation: float = like(RoundPolicy, "validation")
    method: str = like(
        TrackerSettings,
        "method",
        about="how departed classes are tracked; mpt-x measures how features move, mpt-duo reads two models",
        should="one of mpt methods but the rows to compare with, or path.py:Class of your own, bundled with the app",
    )
    grace: int = like(TrackerSettings, "grace")
    returns: str = like(TrackerSettings, "returns")
    return_chance: float = like(TrackerSettings, "return_chance")
    most_missed: int = setting(
        0, "after so many missed rounds in a row it is departed anyway; 0: 10 times as many as grace and one", least=0
    )
    retention: int = like(TrackerSettings, "retention")
    watch_share: float = like(TrackerSettings, "watch_share")
    release_share: float = setting(
        0.0,
        "it is released once no vehicle has held this share for patience rounds; 0: 0.8 of watch-share",
        should="0, or a share from 0.05 to watch-share",
        fits=lambda v: v == 0 or 0.05 <= v <= 1,
    )
    patience: int = like(TrackerSettings, "patience", about="see release-share")
    carry_share: float = like(TrackerSettings, "carry_share")
    remember: bool = like(TrackerSettings, "remember")
    most_watched: int = setting(-1, "so many classes may be watched; -1: half of them", least=-1)
    most_per_vehicle: int = setting(
        0, "of these, so many for the sake of one vehicle; 0: half of most-watched, rounded up", least=0
    )
    probation: int = like(TrackerSettings, "probation")
    most_references: int = like(TrackerSettings, "most_references")
    watch: str = setting("", "classes watched from the first round on, names with commas between")
    gate: bool = like(TrackerSettings, "gate")
    shadow: bool = like(TrackerSettings, "shadow")
    ridge: float = like(TrackerSettings, "ridge")
    cov_ridge: float = like(TrackerSettings, "cov_ridge")
    vehicle_ids: str = setting(
        "node",
        "by what vehicles are known: Flower's node id, or what they say, for simulations",
        choices=("node", "partition"),
    )
    events: str = setting(
        "", "for simulations, as in mpt run --events: leave 3 after 5, join 3 at 9; or a presence as a .csv file"
    )
    fail: float = setting(
        0.0, "for simulations: the probability with which a vehicle does not answer in a round", least=0, below=1
    )

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> "AppConfig":
        """From a run configuration.

        Raises:
            FleetError: with the first thing that is wrong.
        """
        chosen, problems = examined(given)
        if problems:
            more = f" (and {len(problems) - 1} more: mpt fleet check)" if len(problems) > 1 else ""
            raise FleetError(f"config: {problems[0]}{more}")
        return cls(**chosen)

    @property
    def training(self) -> TrainingSettings:
        """Of a vehicle's training."""
        return TrainingSettings(**_shared(self, TrainingSettings))

    @property
    def policy(self) -> RoundPolicy:
        """When a round ends."""
        return RoundPolicy(**_shared(self, RoundPolicy))

    def tracker(self, classes: tuple[str, ...], dim: int) -> TrackerSettings:
        """Of the tracker, for the fleet's classes and the backbone's feature dimension."""
        chosen = _shared(self, TrackerSettings) | {
            "release_share": self.release_share or None,
            "most_missed": self.most_missed or None,
            "most_watched": None if self.most_watched < 0 else self.most_watched,
            "most_per_vehicle": self.most_per_vehicle or None,
            "watch": tuple(classes.index(name) for name in names(self.watch)),
        }
        return TrackerSettings(num_classes=len(classes), dim=dim, class_names=classes, **chosen)

    @property
    def class_names(self) -> tuple[str, ...]:
        """As given; empty where the dataset's are meant."""
        return names(self.classes)


def _shared(config: AppConfig, other: type) -> dict[str, Any]:
    """The settings that the configuration has in common with another class."""
    mine = {f.name for f in fields(AppConfig)}
    return {f.name: getattr(config, f.name) for f in fields(other) if f.name in mine}


class SettingRow(NamedTuple):
    """A setting for people: its key, kind, default, what it means and what it should be."""

    key: str
    kind: str
    default: str
    about: str
    should: str


def settings() -> tuple[SettingRow, ...]:
    """All settings, in their order."""

    def shown(value: Any) -> str:
        if isinstance(value, bool):
            return str(value).lower()
        return f"{value:g}" if isinstance(value, int | float) else f'"{value}"'

    rules, kinds = rules_of(AppConfig), kinds_of(AppConfig)
    return tuple(
        SettingRow(
            f.name.replace("_", "-"),
            KINDS[kinds[f.name][0]].removeprefix("a "),
            shown(f.default),
            rules[f.name].about,
            rules[f.name].expected,
        )
        for f in fields(AppConfig)
    )


def examined(given: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """What of a run configuration is right, by field, and a sentence on everything that is wrong."""
    rules, chosen, problems = rules_of(AppConfig), dict[str, Any](), list[str]()
    for key, value in given.items():
        name = key.replace("-", "_")
        if name not in rules or "_" in key:
            problems.append(f"unknown key {key!r}, {_meant(key)}")
            continue
        made = coerced(AppConfig, name, value)
        if problem(AppConfig, name, made):
            should = rules[name].expected if type(made) is kinds_of(AppConfig)[name][0] else ""
            problems.append(f"{key} = {made!r}, should be {should or problem(AppConfig, name, made)}")
        else:
            chosen[name] = made
    problems += _together(chosen, {key.replace("-", "_") for key in given} - chosen.keys())
    return chosen, problems


def known(given: Mapping[str, Any]) -> dict[str, Any]:
    """Of a run configuration, the settings that this release knows: a newer server may have more."""
    keys = {f.name.replace("_", "-") for f in fields(AppConfig)}
    return {key: value for key, value in given.items() if key in keys}


def _together(chosen: Mapping[str, Any], wrong: Collection[str] = ()) -> list[str]:
    """What is wrong with settings beside each other; of those that are wrong by themselves nothing more is said."""
    config = AppConfig(**chosen)
    problems = [
        f"classes has {name!r} more than once, should have every name once"
        for name, times in Counter(config.class_names).items()
        if times > 1
    ]
    if len(config.class_names) == 1:
        problems.append(f"classes = {config.classes!r}, should be two or more")
    if config.class_names and not config.image_size and "image_size" not in wrong:
        problems.append("image-size = 0, should be given where classes are")
    if config.release_share > config.watch_share:
        problems.append(f"release-share = {config.release_share}, should be at most watch-share, {config.watch_share}")
    if config.evaluate_every and not config.validation and "validation" not in wrong:
        problems.append("validation = 0.0, should be above 0 where evaluate-every is")
    if 0 < config.most_missed <= config.grace:
        problems.append(f"most-missed = {config.most_missed}, should be 0, or above grace, {config.grace}")
    if config.class_names:
        for name in names(config.watch):
            if name not in config.class_names:
                known = did_you_mean(name, config.class_names, f"should be of {', '.join(config.class_names)}")
                problems.append(f"watch names {name!r}, {known}")
        if len(set(names(config.watch))) >= len(config.class_names):
            problems.append("watch has all classes, should leave at least one as reference class")
    return problems


def _meant(key: str) -> str:
    keys = [f.name.replace("_", "-") for f in fields(AppConfig)]
    if key in RENAMED:
        return f"it is called {RENAMED[key]} now"
    return did_you_mean(key.lower().replace("_", "-"), keys, f"known are {', '.join(sorted(keys))}", 0.7)


def dashed(chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Fields as the configuration has them, with "-" for "_"."""
    return {name.replace("_", "-"): value for name, value in chosen.items()}


def names(text: str) -> tuple[str, ...]:
    """The parts between commas.

    Example:
        >>> names("car, truck")
        ('car', 'truck')
    """
    return tuple(part.strip() for part in text.split(",") if part.strip())
