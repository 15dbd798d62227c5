"""A run's kept models: exported and asked, they give the decisions of its last readout."""

import json
from dataclasses import replace

import numpy as np
import pytest

for package in ("pandas", "torch", "typer"):
    pytest.importorskip(package, reason="the extra sim is not installed")

import torch
from PIL import Image
from typer.testing import CliRunner

from mpt.base.seeds import Series
from mpt.cli.main import app
from mpt.core.health import VERDICTS
from mpt.data import load
from mpt.export import read_release, write_model
from mpt.federation.metrics import confusion_matrix
from mpt.report.simulate import simulate
from mpt.runs.config import make_config
from mpt.runs.errors import RunError
from mpt.runs.export import deployable, releasable
from mpt.runs.models import ModelFolder
from mpt.runs.reader import read_run

METHODS = (
    *("fedavg", "ccvr", "icarl", "frozen", "dpcr", "stop-at-departure"),
    *("mpt", "mpt-lite", "mpt-x", "mpt-duo", "oracle-train"),
)
SETTINGS = {
    "dataset": "road?train=30&test=12",
    "image_size": 28,
    "vehicles": 4,
    "remaining": 0.1,
    "rounds": 5,
    "depart_at": 2,
    "eval_every": 2,
    "epochs": 2,
    "batch_size": 16,
    "seeds": 2,
    "methods": METHODS,
    "readout": ("mahalanobis", "cosine"),
}


def call(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)), catch_exceptions=False)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of two seeds: settings, folder, rows of all rounds."""
    config, folder, rows = make_config(SETTINGS), tmp_path_factory.mktemp("run"), []
    simulate(config, out=folder, progress=lambda _, __, some: rows.extend(some))
    return config, folder, rows


@pytest.fixture(scope="module")
def dataset():
    return load(SETTINGS["dataset"], image_size=28)


@pytest.mark.parametrize("seed", [0, 1])
def test_the_kept_model_gives_the_decisions_of_every_rows_last_readout(run, dataset, seed):
    config, folder, rows = run
    last = [row for row in rows if (row.seed, row.round) == (seed, config.rounds)]
    assert {row.method for row in last} == set(METHODS)
    for row in last:
        model = deployable(folder, row.method, row.readout, seed)
        predicted = model.logits(dataset.test.images).argmax(axis=1)
        assert np.array_equal(confusion_matrix(predicted, dataset.test.labels, 8), row.scores.confusion), row.method
        assert [one.name for one in model.predict(dataset.test.images)] == [dataset.classes[c] for c in predicted]


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
@pytest.mark.parametrize("kind", ["torchscript", pytest.param("onnx", marks=pytest.mark.slow)])
def test_the_exported_file_gives_them_too(run, dataset, tmp_path, kind):
    """In float32, so a tie may go the other way; here none does."""
    _, folder, rows = run
    (row,) = [r for r in rows if (r.seed, r.round, r.method, r.readout) == (0, 5, "mpt", "mahalanobis")]
    path = tmp_path / "model"
    about = write_model(deployable(folder, "mpt"), kind, path)
    assert (about.method, about.readout, about.round, about.tracked) == ("mpt", "mahalanobis", 5, ("truck",))
    images = np.moveaxis(dataset.test.images, 3, 1).copy()
    if kind == "onnx":
        runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
        session = runtime.InferenceSession(str(path))
        logits = session.run(None, {"images": images})[0]
        assert session.get_modelmeta().custom_metadata_map["method"] == "mpt"
    else:
        logits = torch.jit.load(path)(torch.from_numpy(images)).detach().numpy()
    assert np.array_equal(confusion_matrix(logits.argmax(axis=1), dataset.test.labels, 8), row.scores.confusion)


def test_the_commands(run, dataset, tmp_path):
    folder = run[1]
    paths = []
    for i in range(0, len(dataset.test.labels), 7):
        paths.append(tmp_path / f"{i}.png")
        Image.fromarray(dataset.test.images[i]).save(paths[-1])
    expected = deployable(folder, "mpt").predict(dataset.test.images[::7])
    done = call("predict", folder, *paths, "--method", "mpt", "--json")
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    assert [(one["image"], one["name"]) for one in found] == [
        (str(path), one.name) for path, one in zip(paths, expected, strict=True)
    ]
    lines = call("predict", folder, paths[0]).stdout.splitlines()
    by_default = deployable(folder, "mpt-x").predict(dataset.test.images[:1])[0]
    assert lines[0].split() == ["image", "class", "ahead", "of", "by"]
    assert lines[1].split()[:2] == [str(paths[0]), by_default.name.split()[0]]
    done = call("export", folder, "--out", tmp_path / "own.pt")
    first, second, third = done.stdout.splitlines()
    assert first == f"{tmp_path / 'own.pt'}: cnn3 with 8 classes after round 5, mpt-x by its mahalanobis readout"
    made = read_release(tmp_path / "own.pt")
    assert second == f"{tmp_path / 'own.pt.manifest.json'}: SHA-256 {made.sha256[:12]}..."
    (truck,) = [one for one in made.origin.classes if one.state != "measured"]
    assert third == f"truck is {truck.verdict}, an error of {truck.expected_error:.2g} is expected"
    assert call("export", folder, "--format", "torchscript", "--method", "fedavg").exit_code == 0
    for name in ("model.pt", "model.pt.manifest.json"):
        (folder / name).unlink()


def test_images_of_another_size_and_kind_are_made_like_the_datasets(run, dataset, tmp_path):
    image = Image.fromarray(dataset.test.images[0])
    image.resize((84, 84)).save(tmp_path / "large.jpg", quality=95)
    image.convert("L").save(tmp_path / "grey.png")
    done = call("predict", run[1], tmp_path / "large.jpg", tmp_path / "grey.png", "--json")
    assert done.exit_code == 0
    assert {one["name"] for one in json.loads(done.stdout)} <= set(dataset.classes)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--method", "mtp"], "method: 'mtp' is none of the run, did you mean mpt?"),
        (["--method", "sdc"], "method: 'sdc' is none of the run, should be one of fedavg, ccvr"),
        (
            ["--readout", "euclidean"],
            "readout: mpt-x has no linear readout 'euclidean', should be one of mahalanobis, cos",
        ),
        (["--seed", "2"], "seed: 2, but {run} has 2, should be from 0 to 1"),
    ],
)
def test_what_is_not_there_is_one_sentence(run, tmp_path, arguments, message):
    done = call("export", run[1], *arguments, "--out", tmp_path / "model.pt")
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert f"mpt: {message.format(run=run[1])}" in done.stderr


def test_nonsense_is_one_sentence(run, tmp_path):
    (tmp_path / "text.png").write_text("no image")
    for arguments, message in (
        (["predict", run[1], tmp_path / "none.png"], "none.png: there is no such file, should be a JPEG or PNG image"),
        (["predict", run[1], tmp_path / "text.png"], "text.png: cannot be decoded, should be a whole JPEG or PNG"),
        (["predict", run[1]], "Missing argument 'IMAGE...': JPEG or PNG files"),
        (
            ["predict", tmp_path / "nowhere", tmp_path / "text.png"],
            "no such folder, should be a run's, or",
        ),
        (["export", run[1], "--format", "tflite"], "format: 'tflite', should be onnx or torchscript"),
        (["export", tmp_path], "no whole checkpoint of a fleet's server is there"),
    ):
        done = call(*arguments)
        assert (done.exit_code, done.stderr.count("\n")) == (2, 1), done.stderr
        assert message in done.stderr


@pytest.mark.parametrize("seed", [0, 1])
def test_a_release_has_what_the_method_noted_in_the_last_round(run, seed):
    _, folder, rows = run
    last = {row.method: row.notes for row in rows if (row.seed, row.round) == (seed, 5)}
    for method in ("mpt", "mpt-x"):
        (one,) = [c for c in releasable(folder, method, seed=seed).origin.classes if c.state != "measured"]
        assert (one.name, one.state, one.verdict) == ("truck", "reconstructed", VERDICTS[int(last[method]["verdict"])])
        assert one.expected_error == pytest.approx(last[method]["expected_error"], abs=1e-6)
    states = {m: releasable(folder, m).origin.classes[read_run(folder).rare] for m in ("mpt-lite", "frozen", "fedavg")}
    assert {m: (one.state, one.verdict) for m, one in states.items()} == {
        "mpt-lite": ("reconstructed", None), "frozen": ("departed", None), "fedavg": ("departed", None)
    }  # fmt: skip
    assert states["mpt-lite"].expected_error > 0


def test_a_release_below_what_is_required_is_refused_and_nothing_is_written(run, tmp_path):
    folder = run[1]
    out = tmp_path / "deep" / "model.pt"
    verdict = releasable(folder, "mpt").origin.classes[read_run(folder).rare].verdict
    meets = {"good": ("good",), "unconfirmed": ("good", "unconfirmed"), "degraded": ("good", "unconfirmed", "degraded")}
    for level, enough in meets.items():
        done = call("export", folder, "--method", "mpt", "--require", level, "--out", out)
        assert done.exit_code == (0 if verdict in enough else 2)
        assert out.parent.exists() == (done.exit_code == 0)
        if done.exit_code:
            assert f"require: truck is {verdict}; every class that is not measured should be" in done.stderr
        else:
            assert read_release(out).required == level
            break
    for method in ("frozen", "mpt-lite"):
        done = call("export", folder, "--method", method, "--require", "degraded", "--out", tmp_path / "no" / "m.pt")
        assert (done.exit_code, (tmp_path / "no").exists()) == (2, False)
        assert "without a verdict" in done.stderr or "gives no verdict" in done.stderr
    done = call("export", folder, "--require", "perfect")
    assert "require: 'perfect', should be good, unconfirmed or degraded" in done.stderr
    assert not (folder / "model.pt").exists()


def test_models_can_be_left_out(run, tmp_path):
    config = replace(run[0], models=False, seeds=1, methods=("mpt",), readout=("mahalanobis",))
    simulate(config, out=tmp_path / "without")
    assert not (tmp_path / "without" / "models").exists()
    with pytest.raises(RunError, match=r"--no-models.*; mpt run --overwrite makes it anew"):
        deployable(tmp_path / "without")
    again = simulate(replace(config, models=True), out=tmp_path / "without")
    assert not again.computed, "whether models are kept changes no number"
    done = call(
        "run", "--dataset", SETTINGS["dataset"], "--image-size", 28, "--rounds", 2, "--depart-at", 1, "--epochs", 1,
        "--methods", "mpt", "--no-models", "--out", tmp_path / "command",
    )  # fmt: skip
    assert done.exit_code == 0
    assert "models (" not in done.stdout
    assert not (tmp_path / "command" / "models").exists()


def test_they_are_kept_once_and_take_what_was_expected(run):
    """Before the departure held-out, continued and stopped training are one model."""
    _, folder, _ = run
    kept = ModelFolder.of(folder)
    assert sorted(path.name for path in kept.path.iterdir()) == [
        f"000{seed}-00000{number}.pt" for seed in (0, 1) for number in (2, 5)
    ]
    first, last = kept.read(0, 2), kept.read(0, 5)
    assert first.models["held-out"] is first.models["continued"]
    assert last.models["held-out"] is not last.models["continued"]
    assert last.trainings["fedavg"] == "continued"
    size = read_run(folder).manifest["model_bytes"]
    readouts = sum(8 * (w.numel() + b.numel()) for w, b in last.readouts.values())
    assert 2 * 4 * size < kept.size < 2 * 4 * size + 4 * readouts + 200_000
    assert set(last.readouts) == {Series(m, r) for m in METHODS for r in _readouts(m)}


def _readouts(method):
    return ("own",) if method in ("fedavg", "ccvr", "icarl", "dpcr", "mpt-duo") else ("mahalanobis", "cosine")


def test_a_folder_from_elsewhere_runs_no_code(run, tmp_path):
    class Evil:
        def __reduce__(self):
            return (print, ("run",))

    folder = tmp_path / "run"
    (folder / "models").mkdir(parents=True)
    for name in ("config.toml", "manifest.json"):
        (folder / name).write_text((run[1] / name).read_text())
    torch.save({"version": 1, "evil": Evil()}, folder / "models" / "0000-000005.pt")
    with pytest.raises(RunError, match=r"0000-000005\.pt: cannot be read"):
        deployable(folder)
