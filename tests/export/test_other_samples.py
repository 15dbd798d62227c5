"""Runs of series and of vectors: their exported files give the run's decisions. Runs of features have no model."""

import json

import numpy as np
import pytest

for package in ("pandas", "torch", "typer"):
    pytest.importorskip(package, reason="the extra sim is not installed")

import torch
from typer.testing import CliRunner

from mpt.cli.main import app
from mpt.data import load, save_features
from mpt.export import read_release, write_model
from mpt.export.formats import METADATA, second_file
from mpt.federation.metrics import confusion_matrix
from mpt.learning import LearningError
from mpt.report.simulate import simulate
from mpt.runs.config import make_config
from mpt.runs.export import deployable

SETTINGS = {
    "vehicles": 4, "remaining": 0.1, "rounds": 3, "depart_at": 1, "eval_every": 1, "epochs": 1, "batch_size": 16,
    "methods": ("fedavg", "mpt", "mpt-x", "mpt-duo"),
}  # fmt: skip
BACKBONES = {"series": "cnn1d", "vectors": "mlp"}
SHAPES = {"series": (9, 128), "vectors": (12,)}
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")


def call(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)), catch_exceptions=False)


def vectors(path):
    """Four classes of twelve numbers in a file as people have them."""
    rng, labels = np.random.default_rng(0), np.arange(400) % 4
    x = rng.normal(size=(4, 12))[labels] + 0.7 * rng.normal(size=(400, 12))
    np.savez(path, x_train=x[:300], y_train=labels[:300], x_test=x[300:], y_test=labels[300:])
    return f"npz:{path}"


@pytest.fixture(scope="module", params=list(BACKBONES))
def run(request, tmp_path_factory):
    """What the samples are, the run's folder, the rows of its last round by method, and its data."""
    where, rows = tmp_path_factory.mktemp(request.param), []
    spec = "motion?each=2" if request.param == "series" else vectors(where / "vectors.npz")
    rare = "laying" if request.param == "series" else "1"
    settings = {**SETTINGS, "dataset": spec, "rare": rare, "backbone": BACKBONES[request.param]}
    simulate(make_config(settings), out=where / "run", progress=lambda _, __, some: rows.extend(some))
    return request.param, where / "run", {row.method: row for row in rows if row.round == 3}, load(spec)


def confusion(logits, test, classes):
    return confusion_matrix(logits.argmax(axis=1), test.labels, classes)


def file_of(kind, path):
    """A callable from arrays to arrays, and the metadata."""
    if kind == "onnx":
        session = pytest.importorskip("onnxruntime").InferenceSession(str(path))
        names = [one.name for one in session.get_inputs()]
        return lambda *x: session.run(
            None, dict(zip(names, x, strict=True))
        ), session.get_modelmeta().custom_metadata_map
    extra = {METADATA: ""}
    loaded = torch.jit.load(path, _extra_files=extra)

    def ask(*arrays):
        found = loaded(*map(torch.tensor, arrays))
        return [one.detach().numpy() for one in (found if isinstance(found, tuple) else (found,))]

    return ask, {name: json.dumps(value) for name, value in json.loads(extra[METADATA]).items()}


def test_the_kept_model_gives_the_decisions_of_every_row(run):
    _, folder, rows, data = run
    for method, row in rows.items():
        model = deployable(folder, method)
        found = confusion(model.logits(data.test.images), data.test, data.num_classes)
        assert np.array_equal(found, row.scores.confusion), method
        names = [one.name for one in model.predict(data.test.images.astype(np.float64))]
        assert names == [data.classes[c] for c in model.logits(data.test.images).argmax(axis=1)]
    with pytest.raises(LearningError, match=r"shape is \(3, 5\), should be \(N, "):
        model.predict(np.zeros((3, 5)))


@pytest.mark.parametrize("kind", ["torchscript", "onnx"])
def test_the_exported_file_gives_them_too(run, tmp_path, kind):
    if kind == "onnx":
        pytest.importorskip("onnxscript", reason="the extra export is not installed")
    what, folder, rows, data = run
    path = tmp_path / "model"
    done = call("export", folder, "--method", "mpt-x", "--format", kind, "--out", path)
    assert done.exit_code == 0, done.stderr
    shape = " x ".join(map(str, SHAPES[what]))
    assert done.stdout.startswith(f"{path}: {BACKBONES[what]} for {what} of {shape} with {data.num_classes} classes")
    ask, about = file_of(kind, path)
    assert tuple(json.loads(about["input_shape"])) == read_release(path).input_shape == SHAPES[what]
    (logits,) = ask(data.test.images)
    assert np.array_equal(confusion(logits, data.test, data.num_classes), rows["mpt-x"].scores.confusion)
    (one,) = ask(data.test.images[:1])
    assert np.allclose(one, logits[:1], atol=1e-3)
    if kind == "onnx":
        (given,) = pytest.importorskip("onnxruntime").InferenceSession(str(path)).get_inputs()
        assert (given.name, given.type, given.shape) == (what, "tensor(float)", ["batch", *SHAPES[what]])


@pytest.mark.parametrize("kind", ["torchscript", pytest.param("onnx", marks=pytest.mark.slow)])
def test_two_models_give_theirs_by_their_rule(run, tmp_path, kind):
    if kind == "onnx":
        pytest.importorskip("onnxscript", reason="the extra export is not installed")
    what, folder, rows, data = run
    path = tmp_path / "model"
    assert write_model(deployable(folder, "mpt-duo"), kind, path).kind == what
    current, earlier = (file_of(kind, one)[0] for one in (path, second_file(path)))
    logits, partial, asked = current(data.test.images)
    assert asked.all(), "without a hesitation the earlier one is always asked"
    assert logits.shape == partial.shape
    (both,) = earlier(data.test.images, partial)
    assert np.array_equal(confusion(both, data.test, data.num_classes), rows["mpt-duo"].scores.confusion)


def test_images_cannot_be_asked_about(run, tmp_path):
    what, folder, _, _ = run
    done = call("predict", folder, tmp_path / "a.png")
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.startswith(
        f"mpt: predict: {folder} is a run of {what}, should be of images; mpt export {folder}"
    )


def test_a_run_of_features_has_no_model(tmp_path):
    rng, labels = np.random.default_rng(0), np.arange(240) % 4
    versions = [rng.normal(size=(4, 8))[labels] + rng.normal(size=(240, 8)) for _ in range(3)]
    save_features(tmp_path / "embeddings.npz", labels, versions)
    settings = {
        "dataset": f"features:{tmp_path / 'embeddings.npz'}",
        "rare": "1",
        "vehicles": 4,
        "rounds": 3,
        "depart_at": 1,
    }
    simulate(make_config({**settings, "methods": ("frozen", "mpt")}), out=tmp_path / "run")
    for command, arguments in (("export", ()), ("predict", ("a.png",))):
        done = call(command, tmp_path / "run", *arguments)
        assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
        assert done.stderr == (
            f"mpt: {command}: {tmp_path / 'run'} is a run of precomputed features, in which no backbone was trained, "
            "so there is no model; should be a run of images, series or vectors\n"
        )
