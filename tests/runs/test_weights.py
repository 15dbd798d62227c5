"""A run whose backbone begins with the weights of a file, and stays as it is where it is frozen."""

import json
from dataclasses import replace

import pytest

for package in ("pandas", "torch", "typer"):
    pytest.importorskip(package, reason="the extra sim is not installed")

import torch
from typer.testing import CliRunner

from mpt.cli.main import app
from mpt.learning import build
from mpt.learning.weights_file import known_by
from mpt.report.simulate import simulate
from mpt.runs.config import ConfigError, make_config
from mpt.runs.errors import OtherRunError
from mpt.runs.export import deployable
from mpt.runs.replay import replay

SETTINGS = {
    "dataset": "digits", "rare": "8", "per_class": 20, "vehicles": 3, "remaining": 0.1, "rounds": 2, "depart_at": 1,
    "eval_every": 1, "epochs": 1, "device": "cpu",
}  # fmt: skip
OPTIONS = [part for name, value in SETTINGS.items() for part in (f"--{name.replace('_', '-')}", str(value))]


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """A run of one training, and the file of its last model."""
    folder = tmp_path_factory.mktemp("first")
    simulate(make_config({**SETTINGS, "methods": "fedavg"}), out=folder)
    return folder / "models" / "0000-000002.pt"


@pytest.fixture(scope="module")
def second(first, tmp_path_factory):
    """A run with that backbone, frozen: its settings, folder, and what was said."""
    file, folder, said = tmp_path_factory.mktemp("weights") / "w.pt", tmp_path_factory.mktemp("second"), []
    file.write_bytes(first.read_bytes())
    config = make_config(
        {**SETTINGS, "methods": "frozen,oracle-train", "weights": str(file), "freeze": True, "seeds": 2}
    )
    simulate(config, out=folder, say=said.append)
    return config, folder, said


def test_a_model_that_a_run_has_kept_is_the_backbone_of_another(first, second):
    config, folder, said = second
    theirs = torch.load(first, weights_only=True)["models"][0]
    for seed in (0, 1):
        ours = torch.load(folder / "models" / f"000{seed}-000002.pt", weights_only=True)["models"][0]
        assert all(torch.equal(ours[k], theirs[k]) for k in theirs if k.startswith("backbone."))
        assert not torch.equal(ours["head.weight"], theirs["head.weight"])
    assert said == [f"weights: head.* of {config.weights} is passed over, the head begins as the seed says"]


def test_the_files_hash_is_in_the_manifest_and_the_settings_in_the_toml(second):
    config, folder, _ = second
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["files"] == {config.weights: known_by(config.weights)}
    text = (folder / "config.toml").read_text()
    assert f'weights = "{config.weights}"\n' in text
    assert "freeze = true\n" in text


def test_another_file_is_another_run_and_replay_and_export_need_none(second, tmp_path):
    config, folder, _ = second
    moved = tmp_path / "kept.pt"
    with open(config.weights, "rb") as opened:
        moved.write_bytes(opened.read())
    model = build("cnn3", num_classes=10, in_channels=1, image_size=28, seed=9)
    torch.save(model.state_dict(), config.weights)
    with pytest.raises(OtherRunError, match=r"w\.pt has changed since the run in"):
        simulate(config, out=folder)
    torch.save([1], config.weights)
    again = replay(folder, device="cpu").again
    assert {one.differ for one in again.values()} == {0}
    assert deployable(folder, "frozen").metadata.backbone == "cnn3"
    with open(config.weights, "wb") as opened:
        opened.write(moved.read_bytes())
    assert not simulate(config, out=folder, say=lambda _: None).computed


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--weights", "none.pt"], "weights: there is no file none.pt, should be a path from"),
        (["--weights", ""], "weights: '', should be the path of a file"),
        (["--weights", "other.pt"], "weights: other.pt has a and nothing of cnn3 for images of 1 x 32 x 32"),
        (["--weights", "broken.safetensors"], "weights: broken.safetensors is no safetensors file"),
    ],
)
def test_a_wrong_file_is_said_before_the_first_round(tmp_path, monkeypatch, options, message):
    monkeypatch.chdir(tmp_path)
    torch.save({"a": torch.zeros(1)}, "other.pt")
    (tmp_path / "broken.safetensors").write_bytes(b"nothing of the kind")
    made = CliRunner().invoke(app, ["run", *OPTIONS, "--methods", "frozen", "--out", "run", *options])
    assert made.exit_code != 0
    assert message in " ".join(made.output.split())
    assert "Traceback" not in made.output
    assert not (tmp_path / "run").exists()


def test_the_settings_are_checked():
    with pytest.raises(ConfigError, match="freeze: 'yes', should be true or false"):
        make_config({**SETTINGS, "freeze": "yes"})
    plain = make_config(SETTINGS)
    assert (plain.weights, plain.freeze) == (None, False)
    assert replace(plain, freeze=True).freeze
