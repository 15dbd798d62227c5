"""The exported file predicts what the server's readout predicts."""

import json

import numpy as np
import pytest

for package in ("torch", "typer", "rich"):
    pytest.importorskip(package, reason="the extra sim is not installed")

import torch
from typer.testing import CliRunner

from mpt.cli.main import app
from mpt.data import load as load_dataset
from mpt.export import formats, read_release, write_model
from mpt.export.formats import METADATA
from mpt.export.model import Deployed
from mpt.fleet import Tracker, open_store
from mpt.fleet.export import default_name, deployable, releasable
from mpt.fleet.local_data import samples
from mpt.fleet.reference_models import packed
from mpt.fleet.store import TRACKER
from mpt.fleet.vehicle import arrays
from mpt.learning import TrainingSettings, build, embed, generator, train
from mpt.tracking.prototypes import readout_of

SIZE, RARE, GONE = 28, 2, 5
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.load` is deprecated:DeprecationWarning")


@pytest.fixture(scope="module")
def road():
    return load_dataset("road", image_size=SIZE, seed=0).limited(40)


def payload(road, backbone, *, epochs=1, method="mpt", rounds=3):
    """A short federation with a made-up departure of class 2 after the second round; class 5 has no samples at all."""
    held = samples(road.train)
    channels, classes = held.images.shape[1], road.classes
    model = build(backbone, num_classes=len(classes), in_channels=channels, image_size=SIZE, seed=3)
    tracker = Tracker(num_classes=len(classes), dim=model.dim, watch=(RARE,), grace=0, method=method)
    labels = held.labels.numpy()
    owner = np.where(labels == RARE, np.where(np.arange(len(labels)) % 10 == 0, 1, 0), 1 + np.arange(len(labels)) % 2)
    owner[labels == GONE] = -1
    outcome = None
    for number in range(1, rounds + 1):
        train(
            model, held.images, held.labels, TrainingSettings(epochs=epochs), generator=generator(0, "training", number)
        )
        features, request = embed(model, held.images).double().numpy(), tracker.request()
        there = (0, 1, 2) if number < 3 else (1, 2)
        outcome = tracker.close({str(v): request.answer(features[owner == v], labels[owner == v]) for v in there})
    key = {"backbone": backbone, "class_names": list(classes), "in_channels": channels, "image_size_used": SIZE}
    parts = {"model": packed(arrays(model.state_dict())), TRACKER: tracker.to_bytes(), "key": json.dumps(key).encode()}
    return parts, model, outcome


@pytest.fixture(scope="module")
def trained(road, tmp_path_factory):
    parts, model, outcome = payload(road, "cnn3")
    where = tmp_path_factory.mktemp("state")
    open_store(where).save(3, parts)
    return where, model, outcome


@pytest.fixture(scope="module")
def test_images(road):
    return samples(road.test).images


def call(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False)


def test_the_store_gives_the_servers_readout(trained):
    where, _, outcome = trained
    assert list(outcome.reconstructions) == [RARE]
    found = deployable(open_store(where))
    weight, bias = outcome.readout.to_linear()
    assert np.array_equal(found.weight, weight)
    assert np.array_equal(found.bias, bias)
    readout = readout_of(Tracker.from_bytes(open_store(where).latest().payload[TRACKER]).state)
    assert np.array_equal(readout.prototypes, outcome.readout.prototypes, equal_nan=True)
    assert np.array_equal(readout.covariance, outcome.readout.covariance)
    assert readout.cov_ridge == outcome.readout.cov_ridge


def test_torchscript_predicts_what_the_readout_predicts(trained, test_images, tmp_path):
    where, model, outcome = trained
    out = tmp_path / "deep" / "model.pt"
    done = call("export", where, "--format", "torchscript", "--out", out)
    assert done.exit_code == 0
    assert f"{out}: cnn3 with 8 classes after round 3" in done.output
    extra = {METADATA: ""}
    loaded = torch.jit.load(out, _extra_files=extra)
    about = json.loads(extra[METADATA])
    assert about["class_names"][RARE] in about["tracked"]
    assert about["missing"] == [about["class_names"][GONE]]
    expected = outcome.readout.predict(embed(model, test_images).double().numpy())
    for n in (1, 7, len(test_images)):
        logits = loaded(test_images[:n])
        assert logits.shape == (n, len(about["class_names"]))
        assert torch.equal(logits.argmax(1), torch.from_numpy(expected[:n]))
    assert len(set(expected.tolist())) > 3
    assert torch.isneginf(loaded(test_images)[:, GONE]).all()


def test_onnx_predicts_what_the_readout_predicts(trained, test_images, tmp_path):
    for package in ("onnx", "onnxscript"):
        pytest.importorskip(package, reason="the extra export is not installed")
    runtime = pytest.importorskip("onnxruntime")
    where, model, outcome = trained
    out = tmp_path / "model.onnx"
    assert call("export", where, "--format", "onnx", "--out", out).exit_code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.onnx", "model.onnx.manifest.json"]
    session = runtime.InferenceSession(out)
    (images,), (logits,) = session.get_inputs(), session.get_outputs()
    assert (images.name, images.type, images.shape) == ("images", "tensor(uint8)", ["batch", 3, SIZE, SIZE])
    assert (logits.name, logits.shape[0]) == ("logits", "batch")
    assert out.stat().st_mode & 0o777 == 0o600
    about = session.get_modelmeta().custom_metadata_map
    assert json.loads(about["class_names"])[RARE] == json.loads(about["tracked"])[0]
    assert (about["backbone"], about["round"]) == ("cnn3", "3")
    expected = outcome.readout.predict(embed(model, test_images).double().numpy())
    for n in (1, 7, len(test_images)):
        (found,) = session.run(None, {"images": test_images[:n].numpy()})
        assert np.array_equal(found.argmax(1), expected[:n])
    assert np.isneginf(found[:, GONE]).all()


@pytest.mark.slow
@pytest.mark.parametrize("backbone", ["resnet18", "mobilenetv3", "vit-tiny"])
def test_every_backbone_in_both_formats(backbone, road, test_images, tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    parts, model, outcome = payload(road, backbone, epochs=0, method="mpt-lite:one-message", rounds=1)
    store, some = open_store(tmp_path / "state"), test_images[:50]
    store.save(3, parts)
    expected = outcome.readout.predict(embed(model, some).double().numpy())
    for kind in ("onnx", "torchscript"):
        write_model(deployable(store), kind, tmp_path / kind)
    session = runtime.InferenceSession(tmp_path / "onnx")
    assert np.array_equal(session.run(None, {"images": some.numpy()})[0].argmax(1), expected)
    assert np.array_equal(torch.jit.load(tmp_path / "torchscript")(some).argmax(1).numpy(), expected)


class Fixed(torch.nn.Module):
    """A backbone whose number of images is fixed by whoever traces it, because of `len`."""

    dim = 4

    def forward(self, images):
        return images.flatten(1)[:, :4] * torch.ones(len(images), 1)


def fixed(in_channels, image_size):
    return Fixed()


@pytest.mark.parametrize("kind", ["onnx", "torchscript"])
def test_a_backbone_with_a_fixed_batch_is_refused(kind, tmp_path):
    if kind == "onnx":
        pytest.importorskip("onnxscript", reason="the extra export is not installed")
    model = build(f"{__name__}:fixed", num_classes=2, in_channels=1, image_size=SIZE, seed=0)
    tracker = Tracker(num_classes=2, dim=4)
    rng = np.random.default_rng(0)
    tracker.close({"a": tracker.request().answer(rng.standard_normal((20, 4)), np.arange(20) % 2)})
    key = {"backbone": f"{__name__}:fixed", "class_names": ["a", "b"], "in_channels": 1, "image_size_used": SIZE}
    parts = {"model": packed(arrays(model.state_dict())), TRACKER: tracker.to_bytes(), "key": json.dumps(key).encode()}
    open_store(tmp_path / "state").save(1, parts)
    done = call("export", tmp_path / "state", "--format", kind)
    assert done.exit_code == 2
    assert "cannot be exported for any number of images" in done.stderr
    assert len(list((tmp_path / "state").iterdir())) == 1


def test_the_file_lies_beside_the_store(trained, tmp_path):
    assert default_name(str(tmp_path), "onnx") == tmp_path / "model.onnx"
    assert default_name(f"sqlite:{tmp_path / 'fleet.db'}", "torchscript") == tmp_path / "fleet.pt"
    open_store(f"sqlite:{tmp_path / 'fleet.db'}").save(3, open_store(trained[0]).latest().payload)
    assert call("export", tmp_path / "fleet.db", "--format", "torchscript").exit_code == 0
    assert (tmp_path / "fleet.pt").exists()
    assert read_release(tmp_path / "fleet.pt").file == "fleet.pt"


def test_what_is_wrong_is_said_in_a_sentence(trained, tmp_path, monkeypatch):
    where, _, _ = trained

    def refused(*arguments):
        done = call("export", *arguments)
        assert done.exit_code == 2
        assert not list(tmp_path.rglob("*.pt"))
        return done.stderr

    assert "should be onnx or torchscript" in refused(where, "--format", "tflite")
    (tmp_path / "config.toml").write_text("")
    said = refused(tmp_path, "--format", "torchscript")
    assert f"{tmp_path}: no whole checkpoint of a fleet's server is there" in said
    parts = dict(open_store(where).latest().payload)
    for part, sentence in (("model", "no part 'model'"), (TRACKER, "no part 'tracker'")):
        open_store(tmp_path / part).save(1, {name: data for name, data in parts.items() if name != part})
        assert sentence in refused(tmp_path / part, "--format", "torchscript")
    empty = Tracker(num_classes=8, dim=128).to_bytes()
    open_store(tmp_path / "empty").save(0, {**parts, TRACKER: empty})
    assert "no class has a prototype" in refused(tmp_path / "empty", "--format", "torchscript")
    old = json.dumps({"backbone": "cnn3"}).encode()
    open_store(tmp_path / "old").save(0, {**parts, "key": old})
    assert "has no 'class_names'" in refused(tmp_path / "old", "--format", "torchscript")
    (tmp_path / "file").write_text("")
    unwritable = tmp_path / "file" / "model.pt"
    assert "cannot be written" in refused(where, "--format", "torchscript", "--out", unwritable)
    monkeypatch.setattr(formats.importlib.util, "find_spec", lambda name: None)
    how = "pip install -c constraints.txt '.[export]' in the repository brings it"
    assert f"onnx is not installed, {how}" in refused(where, "--format", "onnx")


def test_from_the_checkpoint_of_the_server_app(tmp_path):
    pytest.importorskip("flwr", reason="the extra fleet is not installed")
    from mpt.fleet.flower.config import AppConfig
    from mpt.fleet.flower.server_app import prepare, server_of

    config = AppConfig(classes="a,b,c", image_size=32, channels=1, state=str(tmp_path))
    server = server_of(config, prepare(config), None)
    rng = np.random.default_rng(0)
    images = torch.from_numpy(rng.integers(0, 256, (30, 1, 32, 32), dtype=np.uint8))
    features = embed(server.architecture, images).double().numpy()
    outcome = server.tracker.close({"x": server.tracker.request().answer(features, np.arange(30) % 3)})
    server.store.save(1, server.checkpoint())
    assert call("export", tmp_path, "--format", "torchscript").exit_code == 0
    found = torch.jit.load(tmp_path / "model.pt")(images).argmax(1)
    assert np.array_equal(found, outcome.readout.predict(features))


def test_the_manifest_says_what_the_server_knows_and_require_refuses(trained, tmp_path):
    where, _, outcome = trained
    (made,) = outcome.reconstructions.values()
    call("export", where, "--format", "torchscript", "--out", tmp_path / "model.pt")
    found = read_release(tmp_path / "model.pt")
    assert (found.round, found.origin.kind, found.origin.method, found.origin.dataset) == (3, "fleet", "mpt", None)
    by_state = {}
    for c, one in enumerate(found.origin.classes):
        by_state.setdefault(one.state, []).append(c)
    assert by_state == {"measured": [0, 1, 3, 4, 6, 7], "reconstructed": [RARE], "missing": [GONE]}
    tracked = found.origin.classes[RARE]
    assert (tracked.verdict, tracked.expected_error) == (made.verdict, pytest.approx(made.expected_error))
    for level in ("good", "degraded"):
        done = call(
            "export", where, "--format", "torchscript", "--require", level, "--out", tmp_path / "deep" / "model.pt"
        )
        assert done.exit_code == 2
        assert f"{found.origin.classes[GONE].name} is never predicted" in done.stderr
        assert not (tmp_path / "deep").exists()


def test_what_is_older_than_the_model_or_measured_is_said_as_such(trained, road, tmp_path):
    """A round in which the vehicle with the rare class is back, and one in which nobody answers."""
    where, model, _ = trained
    parts = dict(open_store(where).latest().payload)
    tracker, held = Tracker.from_bytes(parts[TRACKER]), samples(road.train)
    labels, features = held.labels.numpy(), embed(model, held.images).double().numpy()
    owner = np.where(labels == RARE, 0, np.where(labels == GONE, -1, 1 + np.arange(len(labels)) % 2))
    request = tracker.request()
    tracker.close({str(v): request.answer(features[owner == v], labels[owner == v]) for v in (0, 1, 2)})
    for number, state in ((4, "measured"), (5, "kept")):
        store = open_store(tmp_path / state)
        store.save(number, {**parts, TRACKER: tracker.to_bytes()})
        found = [one.state for one in releasable(store).origin.classes]
        assert found == ["missing" if c == GONE else state for c in range(8)]
        tracker.close({})


def test_a_class_without_a_prototype_is_never_predicted(trained):
    _, model, outcome = trained
    deployed = Deployed(model.backbone, *outcome.readout.to_linear()).eval()
    noise = torch.randint(0, 256, (64, 3, SIZE, SIZE), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert GONE not in deployed(noise).argmax(1)
    assert readout_of(Tracker(num_classes=2, dim=2).state) is None
