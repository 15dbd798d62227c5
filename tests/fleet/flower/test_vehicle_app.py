"""What a vehicle makes of the run's configuration and its own."""

from types import SimpleNamespace

import numpy as np
import pytest

for package in ("torch", "flwr", "PIL"):
    pytest.importorskip(package, reason="the extra fleet is not installed")

import torch
from PIL import Image

from mpt.data import load
from mpt.fleet import FleetError
from mpt.fleet.exchange import Ask
from mpt.fleet.flower.config import AppConfig, known
from mpt.fleet.flower.vehicle_app import role, vehicle_of
from mpt.fleet.node import NodeConfig
from mpt.fleet.vehicle import arrays
from mpt.protocol.request import StatisticsRequest
from mpt.scenario import parking_lot, with_goodbyes, write_presence


def test_a_vehicle_of_one_class_and_train_alone(tmp_path):
    """As docs/how-to/deploy.md has it: train/CLASS/*.png, of one class, one of them broken."""
    folder = tmp_path / "train" / "truck"
    folder.mkdir(parents=True)
    for i in range(2):
        Image.fromarray(np.full((40, 30, 3), i, np.uint8)).save(folder / f"{i}.png")
    (folder / "2.png").write_bytes((folder / "1.png").read_bytes()[:50])
    config = AppConfig(classes="car,van,truck", image_size=28)
    vehicle = vehicle_of(config, NodeConfig(dataset=f"folder:{tmp_path}", name="anna"))
    assert vehicle.samples.labels.tolist() == [2, 2]
    assert vehicle.samples.images.shape == (2, 3, 28, 28)
    assert vehicle.samples.images.amax((1, 2, 3)).tolist() == [0, 1]
    assert vehicle.model.head.weight.shape[0] == 3
    with pytest.raises(FleetError, match="classes is empty, should name the fleet's"):
        vehicle_of(AppConfig(image_size=28), NodeConfig(dataset=f"folder:{tmp_path}"))


@pytest.mark.parametrize(
    ("node", "message"),
    [
        (NodeConfig(), "should have a dataset, or partition-id and num-partitions"),
        (NodeConfig(partition_id=1), "num-partitions is missing, should be given with the other of the two"),
        (NodeConfig(dataset="road", num_partitions=4), "partition-id is missing"),
    ],
)
def test_a_vehicle_needs_samples(node, message):
    with pytest.raises(FleetError, match=f"node config: {message}"):
        vehicle_of(AppConfig(classes="car,van", image_size=28), node)


def test_grey_images_are_colour_in_a_fleet_of_colour(tmp_path):
    folder = tmp_path / "train" / "van"
    folder.mkdir(parents=True)
    Image.fromarray(np.arange(900, dtype=np.uint8).reshape(30, 30)).save(folder / "0.png")
    for channels in (1, 3):
        config = AppConfig(classes="car,van", image_size=30, channels=channels)
        vehicle = vehicle_of(config, NodeConfig(dataset=f"folder:{tmp_path}", name="anna"))
        assert vehicle.model.in_channels == vehicle.samples.images.shape[1] == channels
        assert (vehicle.samples.images == vehicle.samples.images[:, :1]).all()


def test_shared_labels_follow_the_names_in_whatever_order_the_fleet_has_them():
    road = load("road?train=20&test=2", image_size=28).classes
    turned = road[::-1]
    given = {"dataset": "road?train=20&test=2", "image_size": 28, "rare": "truck", "remaining": 0.1}
    for partition in (0, 1):
        node = NodeConfig(partition_id=partition, num_partitions=2)
        plain = vehicle_of(AppConfig(**given), node).samples
        other = vehicle_of(AppConfig(**given, classes=",".join(turned)), node).samples
        assert torch.equal(plain.images, other.images)
        assert [turned[label] for label in other.labels] == [road[label] for label in plain.labels]
    fewer = vehicle_of(AppConfig(**given, classes=",".join(road[1:])), NodeConfig(partition_id=0, num_partitions=2))
    whole = vehicle_of(AppConfig(**given), NodeConfig(partition_id=0, num_partitions=2))
    assert fewer.unknown == {road[0]: int((whole.samples.labels == 0).sum())}
    assert len(fewer.samples.labels) == int((whole.samples.labels > 0).sum())


def test_a_folder_that_the_fleet_does_not_know_is_left_out(tmp_path):
    for name in ("truck", "lorry"):
        folder = tmp_path / "train" / name
        folder.mkdir(parents=True)
        Image.fromarray(np.full((40, 30, 3), 9, np.uint8)).save(folder / "0.png")
    vehicle = vehicle_of(AppConfig(classes="car,truck", image_size=28), NodeConfig(dataset=f"folder:{tmp_path}"))
    assert vehicle.samples.labels.tolist() == [1]
    assert vehicle.unknown == {"lorry": 1}


def test_a_vehicle_without_any_class_of_the_fleet_reports_nothing(tmp_path):
    folder = tmp_path / "train" / "lorry"
    folder.mkdir(parents=True)
    Image.fromarray(np.full((40, 30, 3), 9, np.uint8)).save(folder / "0.png")
    vehicle = vehicle_of(AppConfig(classes="car,truck", image_size=28), NodeConfig(dataset=f"folder:{tmp_path}"))
    model = arrays(vehicle.model.state_dict())
    assert vehicle.answer(Ask("train", 1, model)).model is None
    request = StatisticsRequest(1, 2)
    reply = vehicle.answer(Ask("report", 1, model, request=request.to_bytes()))
    assert request.read(reply.answer).counts.tolist() == [0, 0]
    assert reply.unknown == {"lorry": 1}


def test_images_are_decoded_once_and_kept_beside_the_key(tmp_path, monkeypatch):
    folder = tmp_path / "train" / "truck"
    folder.mkdir(parents=True)
    Image.fromarray(np.full((400, 300, 3), 7, np.uint8)).save(folder / "0.png")
    config = AppConfig(classes="car,truck", image_size=28)
    node = NodeConfig(dataset=f"folder:{tmp_path}", images_file=tmp_path / "vehicle.key.images")
    first = vehicle_of(config, node).samples
    assert (node.images_file.stat().st_mode & 0o777) == 0o600
    vehicle_of.cache_clear()  # as in the process of the next message
    monkeypatch.setattr("mpt.data.folder.pixels", None)
    second = vehicle_of(config, node).samples
    assert torch.equal(first.images, second.images)
    assert torch.equal(first.labels, second.labels)


def test_settings_of_a_newer_server_are_passed_over():
    """A fleet is not updated in one night; the server and `mpt fleet check` refuse what they do not know."""
    given = {"lr": 0.5, "newest-idea": 7}
    assert AppConfig.of(known(given)).lr == 0.5
    with pytest.raises(FleetError, match="unknown key 'newest-idea'"):
        AppConfig.of(given)


def test_a_presence_says_who_is_there(tmp_path):
    there = with_goodbyes(parking_lot(2, 6, {1: 2}, {1: 5}), 1.0, np.random.default_rng(0))
    write_presence(there, tmp_path / "presence.csv")
    config = AppConfig(classes="car,van", image_size=28, events=str(tmp_path / "presence.csv"))

    def roles(name, kind):
        vehicle = SimpleNamespace(name=name)
        return [role(config, vehicle, Ask(kind, number, {})) for number in range(1, 8)]

    assert roles("0", "report") == ["present"] * 6 + ["absent"]
    assert roles("1", "report") == ["present", "leaving", "absent", "absent", "present", "present", "absent"]
    assert roles("1", "train")[1] == "present"


def test_events_are_about_vehicles_with_numbers():
    config = AppConfig(classes="car,van", image_size=28, events="leave 3 after 5")
    with pytest.raises(FleetError, match="partition-id is missing, should be given where the run has events"):
        role(config, SimpleNamespace(name="anna"), Ask("train", 1, {}))
    assert role(config, SimpleNamespace(name="3"), Ask("train", 1, {})) == "present"
    assert role(config, SimpleNamespace(name="3"), Ask("train", 6, {})) == "absent"
