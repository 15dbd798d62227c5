"""A run's settings: as options, in TOML, in Python."""

import dataclasses
import tomllib

import pytest

pytest.importorskip("pydantic", reason="the extra sim is not installed")

from mpt.config import ConfigError, RunConfig, make_config, read_toml
from mpt.scenario import Event


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
        ({"rounds": "many"}, "rounds: 'many', should be a valid integer"),
        ({"remaining": 2}, "remaining: 2, should be below 1"),
        ({"participation": 1.5}, "participation: 1.5, should be at most 1"),
        ({"lr": 0}, "lr: 0, should be above 0"),
        ({"lr": float("inf")}, "lr: inf, should be a finite number"),
        ({"vehicles": 1}, "vehicles: 1, should be at least 2"),
        ({"depart_at": 100}, "depart_at: 100, should be below 100, the number of rounds"),
        ({"events": "leave 3"}, "events: 'leave 3', should be like 'leave 3 after 20' or 'join 4 at 30'"),
        ({"events": "leave 3 after 100"}, "events: 'leave 3 after 100', should be a round from 1 to 99"),
        ({"events": 3}, "events: 3, should be a valid string"),
        ({"partition": "log"}, "partition: 'log', should be 'concentrate' or 'vehicle'"),
        ({"partition": "vehicle", "vehicles": 5}, "vehicles: 5, should be left out with partition vehicle"),
        ({"partition": "vehicle", "remaining": 0.1}, "remaining: 0.1, should be left out with partition vehicle"),
        ({"partition": "vehicle", "dirichlet": 0.1}, "dirichlet: 0.1, should be left out with partition vehicle"),
        ({"methods": ""}, "methods: none, should be at least one"),
        ({"methods": "mpt,ccvr,mpt"}, "methods: 'mpt' is there twice"),
        ({"readout": "mahalanobis,nearest"}, "readout: 'nearest', should be 'mahalanobis', 'diagonal'"),
        ({"augment": "rotate"}, "augment: 'rotate', should be 'none', 'flip' or 'crop-flip'"),
        ({"round": 3}, "round: there is no such setting, should be one of dataset, rare, "),
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
    assert set(RunConfig.model_fields) - set(tomllib.loads(config.to_toml())) == {
        name for name in RunConfig.model_fields if getattr(config, name) is None
    }


def test_a_file_that_cannot_be_read_is_one_sentence(tmp_path):
    (tmp_path / "broken.toml").write_text("rounds = [")
    (tmp_path / "latin.toml").write_bytes(b'rare = "\xfc"')
    for name, message in (("no.toml", "there is no file"), (".", "Is a directory"), ("broken.toml", "Invalid value"),
                          ("latin.toml", "utf-8")):  # fmt: skip
        with pytest.raises(ConfigError, match=message):
            read_toml(tmp_path / name)


def test_the_defaults_are_the_plans():
    """What is not set means the same on the command line and in the engine."""
    pytest.importorskip("torch", reason="the extra sim is not installed")
    from mpt.federation.plan import Plan  # noqa: PLC0415
    from mpt.simulation import plan_of  # noqa: PLC0415

    config = RunConfig()
    made = plan_of(config, rare=2, seed=0)
    expected = Plan(rare=2, methods=config.methods)
    for field in dataclasses.fields(Plan):
        assert getattr(made, field.name) == getattr(expected, field.name), field.name


def test_every_setting_reaches_the_plan():
    pytest.importorskip("torch", reason="the extra sim is not installed")
    from mpt.simulation import plan_of  # noqa: PLC0415

    changed = {
        "events": "leave 3 after 20, join 4 at 30",
        "methods": ("mpt",),
        "backbone": "resnet18",
        "vehicles": 5,
        "remaining": 0.3,
        "dirichlet": 0.7,
        "participation": 0.4,
        "rounds": 50,
        "depart_at": 9,
        "eval_every": 3,
        "epochs": 2,
        "lr": 0.2,
        "batch_size": 7,
        "augment": "flip",
        "readout": ("cosine",),
        "ridge": 0.3,
        "cov_ridge": 0.4,
    }
    assert plan_of(make_config({"partition": "vehicle"}), rare=1, seed=6).partition == "vehicle"
    plan = plan_of(make_config(changed), rare=1, seed=6)
    assert (plan.rare, plan.seed, plan.readouts) == (1, 6, changed.pop("readout"))
    assert plan.events == (Event(20, 3, "leave"), Event(30, 4, "join"))
    del changed["events"]
    for name, value in changed.items():
        assert getattr(plan if hasattr(plan, name) else plan.settings, name) == value, name
