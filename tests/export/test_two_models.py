"""A readout of two models as two files and their rule: they give the decisions of the run's last readout."""

import json

import numpy as np
import pytest

for package in ("pandas", "torch", "typer"):
    pytest.importorskip(package, reason="the extra sim is not installed")

import torch
from typer.testing import CliRunner

from mpt.cli.main import app
from mpt.core.two_views import JoinedViews
from mpt.data import load
from mpt.export import write_model
from mpt.export.formats import METADATA, second_file
from mpt.learning.augmentation import normalise
from mpt.report.simulate import simulate
from mpt.runs.config import make_config
from mpt.runs.errors import RunError
from mpt.runs.export import deployable

SETTINGS = {
    "dataset": "road?train=24&test=12",
    "image_size": 28,
    "vehicles": 4,
    "remaining": 0.1,
    "rounds": 4,
    "depart_at": 2,
    "eval_every": 2,
    "epochs": 1,
    "batch_size": 16,
    "methods": ("mpt-x", "mpt-duo"),
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run: its folder, and the last row of mpt-duo."""
    folder, rows = tmp_path_factory.mktemp("run"), []
    simulate(make_config(SETTINGS), out=folder, progress=lambda _, __, some: rows.extend(some))
    return folder, next(row for row in rows if (row.round, row.method) == (4, "mpt-duo"))


@pytest.fixture(scope="module")
def images():
    return load(SETTINGS["dataset"], image_size=28).test.images


def call(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


def middle(folder, images):
    """A hesitation up to which some of the images are asked, and some are not."""
    model = deployable(folder, "mpt-duo", hesitation=1.0)
    current = deployable(folder, "mpt-x").logits(images)
    gone = list(model.departed)
    gap = np.abs(current[:, gone].max(axis=1) - np.delete(current, gone, axis=1).max(axis=1))
    return float(np.median(gap) / model.ask_below)


def by_the_rule(first, second, images):
    """The class of each image, by two files: callables from arrays to arrays."""
    logits, partial, ask = first(images)
    predicted = logits.argmax(axis=1)
    if ask.any():
        predicted[ask] = second(images[ask], partial[ask]).argmax(axis=1)
    return predicted, ask


def test_without_a_limit_every_image_goes_through_both_models(run, images):
    folder, row = run
    assert isinstance(row.applied, JoinedViews)
    model = deployable(folder, "mpt-duo")
    assert model.asked(deployable(folder, "mpt-x").logits(images)).all()
    assert (model.metadata.method, model.metadata.earlier_round, model.metadata.round) == ("mpt-duo", 2, 4)


def test_with_a_limit_it_is_the_cascade(run, images):
    folder, row = run
    limit = middle(folder, images)
    model = deployable(folder, "mpt-duo", hesitation=limit)
    batch = torch.from_numpy(np.moveaxis(images, 3, 1).copy())
    with torch.no_grad():
        features = [one.backbone(normalise(batch)) for one in (model.model, model.earlier)]
    both = np.concatenate([one.double().numpy() for one in features], axis=1)
    expected, asked = row.applied.cascade(both, limit)
    assert 0 < asked.mean() < 1
    assert np.mean(model.logits(images).argmax(axis=1) == expected) > 0.98


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
@pytest.mark.parametrize("kind", ["torchscript", pytest.param("onnx", marks=pytest.mark.slow)])
def test_the_two_files_and_their_rule_give_the_decisions(run, images, tmp_path, kind):
    folder, _ = run
    model = deployable(folder, "mpt-duo", hesitation=middle(folder, images))
    path = tmp_path / ("model.onnx" if kind == "onnx" else "model.pt")
    about = write_model(model, kind, path)
    assert second_file(path).exists()
    batch = np.moveaxis(images, 3, 1).copy()
    if kind == "onnx":
        runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
        current, earlier = (runtime.InferenceSession(str(one)) for one in (path, second_file(path)))
        assert earlier.get_modelmeta().custom_metadata_map["part"] == "earlier"
        files = (
            lambda x: current.run(["logits", "partial", "ask"], {"images": x}),
            lambda x, p: earlier.run(None, {"images": x, "partial": p})[0],
        )
    else:
        extra = {METADATA: ""}
        first, second = torch.jit.load(path, _extra_files=extra), torch.jit.load(second_file(path))
        assert json.loads(extra[METADATA])["rule"] == about.rule
        files = (
            lambda x: [one.detach().numpy() for one in first(torch.from_numpy(x))],
            lambda x, p: second(torch.from_numpy(x), torch.from_numpy(p)).detach().numpy(),
        )
    predicted, asked = by_the_rule(*files, batch)
    assert 0 < asked.mean() < 1
    expected = model.logits(images).argmax(axis=1)
    assert np.mean(predicted == expected) > 0.98, "in float32 a tie may go the other way"
    one, _ = by_the_rule(*files, batch[:1])
    assert one[0] == predicted[0]


def test_commands_say_what_there_is(run, tmp_path):
    folder, _ = run
    out = tmp_path / "model.pt"
    done = call("export", folder, "--method", "mpt-duo", "--hesitation", "0.3", "--out", out)
    assert done.exit_code == 0, done.output
    assert "model.earlier.pt" in done.output.replace("\n", "")
    assert call("export", folder, "--method", "mpt-x", "--hesitation", "0.3", "--out", out).exit_code != 0
    with pytest.raises(RunError, match="mpt-x reads one model, should be left out"):
        deployable(folder, "mpt-x", hesitation=0.3)
    with pytest.raises(RunError, match="hesitation: -1, should be 0 or more"):
        deployable(folder, "mpt-duo", hesitation=-1)
