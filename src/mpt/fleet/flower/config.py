"""The run configuration of the Flower apps: `[tool.flwr.app.config]`, changed by `flwr run -c`.

Every setting says here what it means and what it may be; `mpt fleet settings` prints that, `docs/settings.md` has it as
a table, and `mpt fleet check` holds a configuration against it.
"""

import difflib
import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

from mpt.fleet.server import Rules
from mpt.learning import Settings
from mpt.learning.augmentation import AUGMENTATIONS
from mpt.tracking.errors import FleetError
from mpt.tracking.settings import Settings as TrackerSettings

_KINDS = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}


def _setting(default: Any, about: str, should: str = "", fits: Callable[[Any], bool] = lambda _: True) -> Any:
    """A field with what it means, and what it should be where its type does not say."""
    return field(default=default, metadata={"about": about, "should": should, "fits": fits})


def _least(default: int, about: str, least: int) -> Any:
    return _setting(default, about, f"at least {least}", lambda value: value >= least)


def _seconds(default: float, about: str) -> Any:
    return _setting(default, about, "a number of seconds above 0", lambda v: math.isfinite(v) and v > 0)


def _share(default: float, about: str) -> Any:
    return _setting(default, about, "a share from 0.05 to 1", lambda value: 0.05 <= value <= 1)


def _ridge(default: float, about: str) -> Any:
    return _setting(default, about, "finite and not negative", lambda v: math.isfinite(v) and v >= 0)


def _one_of(default: str, about: str, *choices: str) -> Any:
    said = f"{', '.join(choices[:-1])} or {choices[-1]}"
    return _setting(default, about, said, lambda value: value in choices)


@dataclass(frozen=True, kw_only=True)
class AppConfig:
    """All settings of a fleet on Flower; in the configuration with "-" for "_"."""

    dataset: str = _setting("road", "any dataset name of mpt run; a vehicle's own, in its node config, goes before it")
    per_class: int = _least(0, "at most so many training samples a class on a vehicle; 0: all", 0)
    image_size: int = _setting(
        0,
        "of the images, pixels a side; 0: as the dataset has them",
        "0, or 8 to 1024",
        lambda v: v == 0 or 8 <= v <= 1024,
    )
    channels: int = _setting(3, "of the images, where classes are given", "1 or 3", lambda value: value in (1, 3))
    classes: str = _setting("", "names, with commas between; empty: those of dataset, which the server then loads")
    test: str = _setting(
        "",
        "test samples on the server, any dataset name; folder:PATH has them in PATH/test/CLASS; empty: dataset's",
    )
    rare: str = _setting("truck", "where vehicles share one dataset: the class that the last of them holds")
    remaining: float = _setting(
        0.02, "likewise: the fraction of it that the others hold", "from 0 to below 1", lambda value: 0 <= value < 1
    )
    backbone: str = _setting("cnn3", "as in mpt run")
    epochs: int = _least(1, "of a vehicle's training in a round", 0)
    lr: float = _setting(0.01, "learning rate of SGD", "above 0", lambda value: math.isfinite(value) and value > 0)
    batch_size: int = _least(64, "of a vehicle's training", 2)
    augment: str = _one_of("none", "of training images", *AUGMENTATIONS)
    seed: int = _setting(
        0, "of the first model and of all training", "from 0 to below 2^63", lambda value: 0 <= value < 2**63
    )
    num_rounds: int = _least(5, "to train", 1)
    state: str = _setting("", "the server's state: a folder, or sqlite:PATH; empty: nothing survives the server")
    deadline: float = _seconds(600.0, "seconds that vehicles have to reply, to train and to each question")
    quorum: float = _setting(
        0.5, "share of the vehicles asked whose update is needed", "above 0 and at most 1", lambda value: 0 < value <= 1
    )
    least: int = _least(2, "so many vehicles must be reachable for a round to begin", 1)
    wait: float = _seconds(600.0, "seconds to wait for them")
    tries: int = _least(3, "of a round that is short of updates, before the server stops", 1)
    method: str = _setting(
        "mpt",
        "how departed classes are tracked; mpt-x measures how features move; see docs/fleet.md",
        "one of mpt methods but the rows to compare with, or path.py:Class of your own, bundled with the app",
    )
    grace: int = _least(3, "rounds that a vehicle may miss in a row before it is departed", 0)
    watch_share: float = _share(0.5, "a class is watched once one vehicle holds this share of it")
    release_share: float = _setting(
        0.0,
        "it is released once no vehicle has held this share for patience rounds; 0: 0.8 of watch-share",
        "0, or a share from 0.05 to watch-share",
        lambda value: value == 0 or 0.05 <= value <= 1,
    )
    patience: int = _least(5, "see release-share", 1)
    carry_share: float = _share(
        0.25, "more than this share of the samples that a departed class had carry it by themselves"
    )
    remember: bool = _setting(True, "whether remaining samples of suspected vehicles count as they were")
    most_watched: int = _least(-1, "so many classes may be watched; -1: half of them", -1)
    most_references: int = _least(2, "of methods that read departure-time models, as mpt-x: so many are kept", 1)
    watch: str = _setting("", "classes watched from the first round on, names with commas between")
    shadow: bool = _setting(
        False, "whether nothing changes in training: departed classes are held out of it once mpt fleet approve says so"
    )
    ridge: float = _ridge(TrackerSettings.ridge, "lambda of Eq. (1), relative")
    cov_ridge: float = _ridge(TrackerSettings.cov_ridge, "lambda_Sigma of Eq. (3)")
    vehicle_ids: str = _one_of(
        "node", "by what vehicles are known: Flower's node id, or what they say, for simulations", "node", "partition"
    )
    events: str = _setting("", "for simulations, as in mpt run --events: leave 3 after 5, join 3 at 9")
    fail: float = _setting(
        0.0,
        "for simulations: the probability with which a vehicle does not answer in a round",
        "at least 0 and below 1",
        lambda value: 0 <= value < 1,
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
    def training(self) -> Settings:
        """Of a vehicle's training."""
        return Settings(epochs=self.epochs, lr=self.lr, batch_size=self.batch_size, augment=self.augment)

    @property
    def rules(self) -> Rules:
        """When a round ends."""
        return Rules(deadline=self.deadline, quorum=self.quorum, least=self.least, wait=self.wait, tries=self.tries)

    def tracker(self, classes: tuple[str, ...], dim: int) -> TrackerSettings:
        """Of the tracker, for the fleet's classes and the backbone's feature dimension."""
        return TrackerSettings(
            num_classes=len(classes),
            dim=dim,
            method=self.method,
            grace=self.grace,
            watch_share=self.watch_share,
            release_share=self.release_share or None,
            patience=self.patience,
            carry_share=self.carry_share,
            most_watched=None if self.most_watched < 0 else self.most_watched,
            remember=self.remember,
            most_references=self.most_references,
            watch=tuple(classes.index(name) for name in names(self.watch)),
            shadow=self.shadow,
            seed=self.seed,
            ridge=self.ridge,
            cov_ridge=self.cov_ridge,
            class_names=classes,
        )

    @property
    def class_names(self) -> tuple[str, ...]:
        """As given; empty where the dataset's are meant."""
        return names(self.classes)


class Setting(NamedTuple):
    """A setting for people: its key, kind, default, what it means and what it should be."""

    key: str
    kind: str
    default: str
    about: str
    should: str


def settings() -> tuple[Setting, ...]:
    """All settings, in their order."""

    def shown(value: Any) -> str:
        if isinstance(value, bool):
            return str(value).lower()
        return f"{value:g}" if isinstance(value, int | float) else f'"{value}"'

    return tuple(
        Setting(
            f.name.replace("_", "-"),
            _KINDS[type(f.default)].removeprefix("a "),
            shown(f.default),
            f.metadata["about"],
            f.metadata["should"],
        )
        for f in fields(AppConfig)
    )


def examined(given: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """What of a run configuration is right, by field, and a sentence on everything that is wrong."""
    by_name, chosen, problems = {f.name: f for f in fields(AppConfig)}, dict[str, Any](), list[str]()
    for key, value in given.items():
        name = key.replace("-", "_")
        if name not in by_name or "_" in key:
            problems.append(f"unknown key {key!r}, {_meant(key)}")
            continue
        kind, about = type(by_name[name].default), by_name[name].metadata
        whole = isinstance(value, int) and not isinstance(value, bool)
        made = float(value) if kind is float and whole else value
        if type(made) is not kind:
            problems.append(f"{key} = {value!r}, should be {_KINDS[kind]}")
        elif not about["fits"](made):
            problems.append(f"{key} = {made!r}, should be {about['should']}")
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
    if config.class_names:
        for name in names(config.watch):
            if name not in config.class_names:
                near = difflib.get_close_matches(name, config.class_names, 1)
                hint = f", should it be {near[0]!r}?" if near else f", should be of {', '.join(config.class_names)}"
                problems.append(f"watch names {name!r}{hint}")
        if len(set(names(config.watch))) >= len(config.class_names):
            problems.append("watch has all classes, should leave at least one as reference class")
    return problems


def _meant(key: str) -> str:
    keys = [f.name.replace("_", "-") for f in fields(AppConfig)]
    near = difflib.get_close_matches(key.lower().replace("_", "-"), keys, 1, 0.7)
    return f"should it be {near[0]!r}?" if near else f"known are {', '.join(sorted(keys))}"


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
