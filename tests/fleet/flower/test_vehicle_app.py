"""What a vehicle makes of the run's configuration and its own."""

import numpy as np
import pytest

for package in ("torch", "flwr", "PIL"):
    pytest.importorskip(package, reason="the extra fleet is not installed")

import torch
from PIL import Image

from mpt.data import load
from mpt.fleet import FleetError
from mpt.fleet.flower.config import AppConfig
from mpt.fleet.flower.vehicle_app import min_samples, vehicle_of


def test_a_vehicle_of_one_class_and_train_alone(tmp_path):
    """As docs/deployment.md has it: train/CLASS/*.png, of one class, one of them broken."""
    folder = tmp_path / "train" / "truck"
    folder.mkdir(parents=True)
    for i in range(2):
        Image.fromarray(np.full((40, 30, 3), i, np.uint8)).save(folder / f"{i}.png")
    (folder / "2.png").write_bytes((folder / "1.png").read_bytes()[:50])
    config = AppConfig(classes="car,van,truck", image_size=28)
    vehicle = vehicle_of(config, None, None, f"folder:{tmp_path}", "anna")
    assert vehicle.samples.labels.tolist() == [2, 2]
    assert vehicle.samples.images.shape == (2, 3, 28, 28)
    assert vehicle.samples.images.amax((1, 2, 3)).tolist() == [0, 1]
    assert vehicle.model.head.weight.shape[0] == 3
    with pytest.raises(FleetError, match="classes is empty, should name the fleet's"):
        vehicle_of(AppConfig(image_size=28), None, None, f"folder:{tmp_path}", "anna")


def test_grey_images_are_colour_in_a_fleet_of_colour(tmp_path):
    folder = tmp_path / "train" / "van"
    folder.mkdir(parents=True)
    Image.fromarray(np.arange(900, dtype=np.uint8).reshape(30, 30)).save(folder / "0.png")
    for channels in (1, 3):
        config = AppConfig(classes="car,van", image_size=30, channels=channels)
        vehicle = vehicle_of(config, None, None, f"folder:{tmp_path}", "anna")
        assert vehicle.model.in_channels == vehicle.samples.images.shape[1] == channels
        assert (vehicle.samples.images == vehicle.samples.images[:, :1]).all()


def test_shared_labels_follow_the_names_in_whatever_order_the_fleet_has_them():
    road = load("road?train=20&test=2", image_size=28).classes
    turned = road[::-1]
    given = {"dataset": "road?train=20&test=2", "image_size": 28, "rare": "truck", "remaining": 0.1}
    for partition in (0, 1):
        plain = vehicle_of(AppConfig(**given), partition, 2, None, None).samples
        other = vehicle_of(AppConfig(**given, classes=",".join(turned)), partition, 2, None, None).samples
        assert torch.equal(plain.images, other.images)
        assert [turned[label] for label in other.labels] == [road[label] for label in plain.labels]
    with pytest.raises(FleetError, match=f"class '{road[0]}' of .* is none of the fleet's, {road[1]}"):
        vehicle_of(AppConfig(**given, classes=",".join(road[1:])), 0, 2, None, None)


def test_min_samples_is_the_vehicles_own_and_a_number():
    assert (min_samples({}), min_samples({"min-samples": 5})) == (1, 5)
    for wrong in (0, "5", 1.5):
        with pytest.raises(FleetError, match=r"node config: min-samples = .*, should be a whole number of at least 1"):
            min_samples({"min-samples": wrong})
