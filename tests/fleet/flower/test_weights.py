"""A fleet whose first model has the weights of a file on the server, and whose vehicles train the head alone."""

import pytest

torch = pytest.importorskip("torch", reason="the extra sim is not installed")
pytest.importorskip("flwr", reason="the extra fleet is not installed")

from mpt.fleet import FleetError
from mpt.fleet.flower.check import check
from mpt.fleet.flower.config import AppConfig
from mpt.fleet.flower.server_app import prepare, serve
from mpt.fleet.flower.vehicle_app import vehicle_app
from mpt.learning import LearningError, build
from tests.fleet.flower.grids import DirectGrid, identified

SETTINGS = {"dataset": "road?train=12&test=4", "image_size": 28, "num_rounds": 2, "timeout": 1.0, "lr": 0.1}

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(autouse=True)
def _identity(monkeypatch):
    identified(monkeypatch)


@pytest.fixture
def weights(tmp_path):
    made = build("cnn3", num_classes=3, in_channels=3, image_size=28, seed=5)
    torch.save(made.state_dict(), tmp_path / "w.pt")
    return str(tmp_path / "w.pt")


def run(state, **changed):
    """The global model after every round of two vehicles, which have no file of weights."""
    settings, models = {**SETTINGS, **changed}, []
    grid = DirectGrid(vehicle_app(**{**settings, "weights": ""}), 2, {p: {"num-partitions": 2} for p in range(2)})
    serve(AppConfig(**settings, state=str(state)), grid, lambda finished: models.append(finished.model))
    return models


def test_the_backbone_is_the_servers_file_in_every_round(tmp_path, weights, capsys):
    file = torch.load(weights, weights_only=True)
    models = run(tmp_path / "state", weights=weights, freeze=True)
    assert len(models) == 2
    for model in models:
        backbone = [name for name in file if name.startswith("backbone.")]
        assert all(torch.equal(torch.from_numpy(model[name]), file[name]) for name in backbone)
    assert not (models[0]["head.weight"] == models[1]["head.weight"]).all()
    assert f"weights: head.* of {weights} is passed over" in capsys.readouterr().err
    with pytest.raises(FleetError, match="it holds a fleet with freeze True, not False"):
        run(tmp_path / "state", weights=weights, num_rounds=3)


def test_without_freeze_the_backbone_begins_there_and_is_trained(tmp_path, weights):
    file = torch.load(weights, weights_only=True)
    first = torch.from_numpy(run(tmp_path / "state", weights=weights, num_rounds=1)[0]["backbone.layers.0.weight"])
    moved = (first - file["backbone.layers.0.weight"]).norm()
    fresh = prepare(AppConfig(**SETTINGS)).model.backbone.layers[0].weight
    assert 0 < moved < (first - fresh).norm()


def test_a_wrong_file_is_said_by_the_check_and_by_the_server(weights):
    config = 'classes="car,van,truck" image-size=28'
    found = check([f'{config} weights="{weights}" freeze=true'])
    assert f"weights: head.* of {weights} is passed over, the head begins as the seed says" in found.notes
    assert "freeze: vehicles train the head alone, the backbone stays as it is" in found.notes
    (wrong,) = check([f'{config} weights="none.pt"']).problems
    assert wrong.startswith("weights: there is no file none.pt")
    with pytest.raises(
        LearningError, match=r"layers\.0\.weight of .* has shape \(32, 3, 3, 3\), should have \(32, 1, 3, 3\)"
    ):
        prepare(AppConfig(classes="car,van", image_size=28, channels=1, weights=weights))
