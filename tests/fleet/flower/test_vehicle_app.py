"""What a vehicle makes of the run's configuration and its own."""

import numpy as np
import pytest

for package in ("torch", "flwr", "PIL"):
    pytest.importorskip(package, reason="the extra fleet is not installed")

from PIL import Image

from mpt.fleet.flower.config import AppConfig
from mpt.fleet.flower.vehicle_app import vehicle_of


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
