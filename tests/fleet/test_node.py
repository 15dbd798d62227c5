"""A vehicle's own settings are checked before anything runs with them."""

from pathlib import Path

import pytest

from mpt.fleet import FleetError
from mpt.fleet.node import KEYS, NodeConfig, min_samples


def test_what_is_right_is_taken():
    node = NodeConfig.of({"dataset": "folder:/data", "min-samples": 5, "leave-file": "/run/mpt/leave"})
    assert (node.dataset, node.min_samples, node.leave_file) == ("folder:/data", 5, Path("/run/mpt/leave"))
    assert NodeConfig.of({}) == NodeConfig()
    assert NodeConfig.of({"partition-id": 3, "num-partitions": 4}).vehicle == "3"
    assert NodeConfig.of({"name": "anna"}).vehicle == "anna"
    assert NodeConfig.of({"camera": 2, "dataset": "road", "own-settings": "lens, camera"}).dataset == "road"
    assert set(KEYS) - {"own-settings"} == {name.replace("_", "-") for name in NodeConfig.__dataclass_fields__}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"min_samples": 5000}, "unknown key 'min_samples', should it be 'min-samples'?"),
        ({"datset": "folder:/data"}, "unknown key 'datset', should it be 'dataset'?"),
        ({"camera": 2}, "unknown key 'camera', known are dataset, partition-id"),
        ({"min-samples": "five"}, "min-samples = 'five', should be a whole number of at least 1"),
        ({"min-samples": 0}, "min-samples = 0, should be a whole number of at least 1"),
        ({"min-samples": True}, "min-samples = True, should be"),
        ({"min-samples": 1.5}, "min-samples = 1.5, should be"),
        ({"dataset": 5}, "dataset = 5, should be a text in quotes"),
        ({"dataset": ""}, "dataset = '', should be a text"),
        ({"partition-id": 4, "num-partitions": 4}, "partition-id = 4, should be from 0 to 3"),
        ({"partition-id": -1, "num-partitions": 4}, "partition-id = -1, should be a whole number of at least 0"),
        ({"partition-id": 1}, "num-partitions is missing, should be given with the other of the two"),
        (
            {"num-partitions": 4, "dataset": "road"},
            "partition-id is missing, should be given with the other of the two",
        ),
        ({"name": "two\nlines"}, "should be one line of at most 200"),
        ({"name": "anna, berta"}, "name = 'anna, berta', should be one line of at most 200, without commas"),
    ],
)
def test_what_is_wrong_is_named(given, message):
    with pytest.raises(FleetError) as raised:
        NodeConfig.of(given)
    assert message in str(raised.value)
    assert str(raised.value).startswith("node config: ")


def test_min_samples_alone_for_an_app_with_settings_of_its_own():
    assert (min_samples({"camera": 2}), min_samples({"min-samples": 5})) == (1, 5)
    with pytest.raises(FleetError, match="min-samples = 'five'"):
        min_samples({"min-samples": "five"})
