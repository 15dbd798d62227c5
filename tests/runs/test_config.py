"""A run's settings: as options, in TOML, in Python."""

import dataclasses
import tomllib

import numpy as np
import pytest

from mpt.base.settings import default_of, rules_of
from mpt.federation.plan import FederationSettings, Plan
from mpt.fleet.policy import RoundPolicy
from mpt.learning.settings import ServerSettings, TrainingSettings
from mpt.runs.config import ConfigError, RunConfig, make_config, read_toml
from mpt.scenario import Event
from mpt.tracking.settings import TrackerSettings


def test_text_with_commas_is_a_list_and_a_number_is_a_class():
    config = make_config({"methods": "mpt, frozen,", "readout": "euclidean", "rare": 8})
    assert config.methods == ("mpt", "frozen")
    assert config.readout == ("euclidean",)
    assert config.rare == "8"
    assert make_config({"methods": ["mpt"]}) == make_config({"methods": "mpt"})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rounds": 0}, "rounds: 0, should be at least 2"),
        ({"rounds": "many"}, "rounds: 'many', should be a whole number"),
        ({"remaining": 2}, "remaining: 2, should be below 1"),
        ({"participation": 1.5}, "participation: 1.5, should be at most 1"),
        ({"lr": 0}, "lr: 0, should be above 0"),
        ({"lr": float("inf")}, "lr: inf, should be a finite number"),
        ({"vehicles": 1}, "vehicles: 1, should be at least 2"),
        ({"depart_at": 100}, "depart_at: 100, should be below 100, the number of rounds"),
        ({"events": "leave 3"}, "events: 'leave 3', should be like 'leave 3 after 20' or 'join 4 at 30'"),
        ({"events": "leave 3 after 100"}, "events: 'leave 3 after 100', should be a round from 1 to 99"),
        ({"events": 3}, "events: 3, should be a text"),
        ({"partition": "vehicle", "vehicles": 5}, "vehicles: 5, should be left out with partition vehicle"),
        ({"partition": "vehicle", "remaining": 0.1}, "remaining: 0.1, should be left out with partition vehicle"),
        ({"partition": "vehicle", "dirichlet": 0.1}, "dirichlet: 0.1, should be left out with partition vehicle"),
        ({"methods": ""}, "methods: none, should be at least one"),
        ({"methods": "mpt,ccvr,mpt"}, "methods: 'mpt' is there twice"),
        ({"readout": ""}, "readout: none, should be at least one"),
        ({"models": 1}, "models: 1, should be true or false"),
        ({"methods": 3}, "methods: 3, should be a list of texts"),
        ({"augment": "rotate"}, "augment: 'rotate', should be none, flip or crop-flip"),
        ({"round": 3}, "round: there is no such setting, did you mean rounds?"),
        ({"xyzzy": 3}, "xyzzy: there is no such setting, should be one of dataset, rare, "),
    ],
)
def test_what_is_wrong_is_one_sentence(settings, message):
    with pytest.raises(ConfigError) as caught:
        make_config(settings)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"dataset": 'folder:C:\\images "new"\n\tü', "rare": "8", "image_size": 28, "dirichlet": 1e-05, "lr": 1e-12},
        {"partition": "vehicle"},
        {"methods": ("mpt", "my own.py:Mine"), "readout": ("cosine", "diagonal"), "vehicles": 3, "ridge": 0},
    ],
)
def test_toml_gives_the_same_settings_back(settings, tmp_path):
    config = make_config(settings)
    path = tmp_path / "config.toml"
    path.write_text(config.to_toml(), encoding="utf-8")
    assert make_config(read_toml(path)) == config
    names = {field.name for field in dataclasses.fields(RunConfig)}
    assert names - set(tomllib.loads(config.to_toml())) == {name for name in names if getattr(config, name) is None}


def test_a_file_that_cannot_be_read_is_one_sentence(tmp_path):
    (tmp_path / "broken.toml").write_text("rounds = [")
    (tmp_path / "latin.toml").write_bytes(b'rare = "\xfc"')
    for name, message in (("no.toml", "there is no file"), (".", "Is a directory"), ("broken.toml", "Invalid value"),
                          ("latin.toml", "utf-8")):  # fmt: skip
        with pytest.raises(ConfigError, match=message):
            read_toml(tmp_path / name)


def test_every_setting_reaches_the_plan():
    """A run's settings and those that the engine has are the same fields of one class."""
    changed = {
        "events": "leave 3 after 20, join 4 at 30",
        "methods": ("mpt",),
        "backbone": "resnet18",
        "weights": "mine.pt",
        "freeze": True,
        "vehicles": 5,
        "remaining": 0.3,
        "dirichlet": 0.7,
        "participation": 0.4,
        "rounds": 50,
        "depart_at": 9,
        "eval_every": 3,
        "slow_every": 6,
        "epochs": 2,
        "lr": 0.2,
        "batch_size": 7,
        "augment": "flip",
        "loss": "fedlc",
        "readout": ("cosine",),
        "ridge": 0.3,
        "cov_ridge": 0.4,
        "engine": "plain",
        "precision": "tf32",
        "momentum": 0.5,
        "weight_decay": 0.1,
        "local_steps": 4,
        "prox": 0.2,
        "schedule": "cosine",
        "server": "adam",
        "server_lr": 0.02,
        "server_momentum": 0.8,
        "aggregation": "krum(hostile=2)",
        "attack": ("shift@3", "zero@4"),
        "gate": "on",
    }
    unset = {field.name for field in dataclasses.fields(FederationSettings)} - set(changed)
    assert unset == {"partition"}
    assert Plan.of(make_config({"partition": "vehicle"}), rare=1, seed=6).partition == "vehicle"
    plan = Plan.of(make_config(changed), rare=1, seed=6)
    assert (plan.rare, plan.seed) == (1, 6)
    assert {name: getattr(plan, name) for name in changed} == changed
    assert plan.event_list == (Event(20, 3, "leave"), Event(30, 4, "join"))
    given = {"momentum": 0.5, "weight_decay": 0.1, "local_steps": 4, "prox": 0.2}
    assert plan.training == TrainingSettings(epochs=2, lr=0.2, batch_size=7, augment="flip", **given)
    assert plan.training_in(1) == plan.training
    assert plan.training_in(26).lr == pytest.approx(0.1)
    assert plan.serving == ServerSettings(server="adam", server_lr=0.02, server_momentum=0.8)
    assert Plan.of(make_config({}), rare=2, seed=0) == Plan(rare=2)


def test_a_setting_stands_once():
    """The run's, the fleet's and the tracker's defaults and bounds are those of the class that has the setting."""
    flower = pytest.importorskip("mpt.fleet.flower.config", reason="the extra fleet is not installed")
    run, app = rules_of(RunConfig), rules_of(flower.AppConfig)
    owners = (TrainingSettings, FederationSettings, TrackerSettings, RoundPolicy)
    own = {name: (rule, default_of(owner, name)) for owner in owners for name, rule in rules_of(owner).items()}
    same = [name for name in app if name in own and default_of(flower.AppConfig, name) == own[name][1]]
    assert set(same) == {
        *("lr", "batch_size", "augment", "loss", "remaining", "backbone", "method", "grace", "watch_share", "patience"),
        *("carry_share", "remember", "most_references", "shadow", "ridge", "cov_ridge", "seed", "events"),
        *(
            "momentum",
            "weight_decay",
            "prox",
            "freeze",
            "deadline",
            "quorum",
            "min_vehicles",
            "timeout",
            "max_attempts",
            "tail",
            "tail_seconds",
            "probation",
            "returns",
            "return_chance",
            "retention",
            "train_share",
            "report_share",
            "evaluate_every",
            "validation",
            "aggregation",
            "gate",
        ),
    }
    for name in set(same) - {"backbone", "seed", "events", "method"}:
        mine, theirs = app[name], own[name][0]
        assert (mine.least, mine.above, mine.most, mine.below) == (
            theirs.least,
            theirs.above,
            theirs.most,
            theirs.below,
        )
    assert run["lr"] == rules_of(TrainingSettings)["lr"]


def test_settings_that_a_script_gives_as_numpy_numbers_are_numbers():
    config = make_config({"rounds": np.int64(30), "lr": np.float32(0.5), "remaining": 0})
    assert (type(config.rounds), type(config.lr), type(config.remaining)) == (int, float, float)
