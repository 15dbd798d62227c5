import tomllib
from dataclasses import fields
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the extra sim is not installed")
pytest.importorskip("flwr", reason="the extra fleet is not installed")

from mpt.fleet import FleetError
from mpt.fleet.flower import demo
from mpt.fleet.flower.check import check
from mpt.fleet.flower.config import AppConfig, dashed
from mpt.fleet.flower.server_app import folder_of, prepare

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("folder", ["deploy/flower", "tests/fleet/flower/app"])
def test_the_apps_configuration_has_every_setting_with_its_default(folder):
    """`flwr run -c` can change only what is in there."""
    config = tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    assert config.keys() == {f.name.replace("_", "-") for f in fields(AppConfig)}
    assert AppConfig.of(config) == AppConfig()


def test_the_demos_settings_are_those_of_the_app():
    assert AppConfig.of(dashed(demo.SETTINGS)).min_vehicles == demo.VEHICLES - 1


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"round": 3}, "unknown key 'round', known are aggregation, augment, backbone"),
        ({"wait": 3.0}, "unknown key 'wait', it is called timeout now"),
        ({"num-rounds": "3"}, "num-rounds = '3', should be a whole number"),
        ({"lr": True}, "lr = True, should be a number"),
        ({"num-rounds": 0}, "num-rounds = 0, should be at least 1"),
        ({"vehicle-ids": "name"}, "vehicle-ids = 'name', should be node or partition"),
        ({"classes": "car, truck,car"}, "classes has 'car' more than once, should have every name once"),
        ({"fail": 1}, r"fail = 1\.0, should be at least 0 and below 1"),
    ],
)
def test_what_is_wrong_is_named(given, message):
    with pytest.raises(FleetError, match=message):
        AppConfig.of(given)


def test_whole_numbers_are_numbers():
    assert AppConfig.of({"lr": 1, "deadline": 30}).lr == 1.0


def test_classes_may_be_given_in_place_of_a_dataset():
    ready = prepare(AppConfig(classes="car, truck", image_size=28, channels=1))
    assert ready.classes == ("car", "truck")
    assert ready.test is None
    assert (ready.model.in_channels, ready.model.image_size) == (1, 28)
    with pytest.raises(FleetError, match="image-size is 0"):
        prepare(AppConfig(classes="car, truck"))


def test_where_logs_go(tmp_path):
    assert folder_of(AppConfig()) is None
    assert folder_of(AppConfig(state=str(tmp_path / "a"))) == tmp_path / "a"
    assert folder_of(AppConfig(state=f"sqlite:{tmp_path}/b/fleet.db")) == tmp_path / "b"


def test_shadow_mode_reaches_the_tracker_and_the_check_says_so():
    assert AppConfig.of({"shadow": True}).tracker(("car", "van"), 8).shadow
    assert not AppConfig().tracker(("car", "van"), 8).shadow
    found = check(['classes="car,van,truck" image-size=32 shadow=true'])
    assert "shadow mode: no class is held out of training before mpt fleet approve says so" in found.notes
