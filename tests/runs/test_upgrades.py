"""`mpt run` on features under several versions of a model, on series and on vectors."""

import re
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="the extra sim is not installed")

from mpt.base.errors import MptError
from mpt.data import save_features
from mpt.methods import METHODS
from mpt.runs.config import RunConfig, for_features, make_config
from mpt.runs.export import deployable
from mpt.runs.replay import replay
from mpt.runs.simulate import simulate, simulate_together

CLASSES = tuple("abcdef")
LEFT_OUT = {"fedavg", "fedlc", "ccvr", "mpt:trained", "live", "live:duo", "fedavg:live"}
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "model-upgrades.md"


@pytest.fixture(scope="module")
def versions(tmp_path_factory):
    """Five versions: each of the later ones bends the first one's space another way."""
    rng = np.random.default_rng(0)
    labels = rng.integers(6, size=600)
    first = 1.2 * rng.normal(size=(6, 12))[labels] + rng.normal(size=(600, 12))
    later = [np.tanh(first @ rng.normal(size=(12, 12)) / 4) + 0.05 * rng.normal(size=first.shape) for _ in range(4)]
    path = tmp_path_factory.mktemp("versions") / "five.npz"
    devices = np.where(labels == 5, rng.integers(2, size=600), rng.integers(8, size=600))
    return save_features(path, labels, [first, *later], devices=devices, classes=CLASSES)


def settings(path, **others):
    told = {"dataset": f"features:{path}", "rare": "f", "rounds": 5, "depart_at": 1, "eval_every": 1, "device": "cpu"}
    return make_config({**told, **others})


def test_five_versions_with_every_method_that_applies(versions, tmp_path):
    said = []
    methods = tuple(METHODS)
    result = simulate(settings(versions, methods=methods, record=True), out=tmp_path / "run", say=said.append)
    ran = {row["method"] for row in result.tables.metrics}
    assert ran == set(methods) - LEFT_OUT
    assert ran >= {"mpt", "mpt-lite", "mpt-x", "frozen", "remaining-mean", "icarl", "sdc", "ldc", "dpcr", "oracle"}
    reasons = {line.partition(" is left out: ")[0]: line for line in said if "left out: it reads" in line}
    assert set(reasons) == LEFT_OUT
    assert "last layer" in reasons["fedavg"]
    assert "as if nobody had left" in reasons["live"]
    assert "remaining samples" in reasons["mpt:trained"]
    assert set(result.config.methods) == ran

    f1 = {
        (row["method"], row["round"]): row["f1"]
        for row in result.tables.metrics
        if row["class"] == "f" and row["readout"] in ("mahalanobis", "own")
    }
    later = {name: np.mean([f1[name, t] for t in range(2, 6)]) for name in ran}
    assert later["frozen"] < 0.3
    assert later["mpt-x"] > 0.85
    assert later["mpt-x"] > later["oracle-train"] - 0.05
    assert f1["stop-at-departure", 5] == f1["stop-at-departure", 1] > 0.9

    assert not (tmp_path / "run" / "models").exists()
    again = replay(tmp_path / "run", ("mpt-x", "frozen"))
    assert all(one.differ == 0 for one in again.again.values())
    with pytest.raises(MptError, match="fedavg reads the training 'continued'"):
        replay(tmp_path / "run", ("fedavg",))
    with pytest.raises(MptError, match="does not know the model's last layer"):
        replay(tmp_path / "run", ("fedavg(training='held-out')",))


def test_devices_of_a_file_and_a_run_that_is_taken_up_again(versions, tmp_path):
    said = []
    chosen = settings(versions, methods=("mpt-x", "fedavg"), partition="vehicle", rounds=3)
    first = simulate(chosen, out=tmp_path, say=said.append)
    assert first.manifest["vehicle_names"] == [str(v) for v in range(8)]
    assert any("leaves with" in line for line in said)
    assert not simulate(chosen, out=tmp_path, say=said.append).computed


@pytest.mark.parametrize(
    ("others", "message"),
    [
        ({"rounds": 6}, "rounds: 6, but five has 5 versions"),
        ({"epochs": 2}, "epochs: 2, should be left out with five: nothing is trained"),
        ({"backbone": "mlp"}, "backbone: mlp, should be left out"),
        ({"attack": ("shift@1",)}, "attack: .*should be left out"),
        ({"methods": ("fedavg", "live")}, "none can be read out of features alone; fedavg: it reads the model's last"),
        ({"image_size": 32}, "should be left out: these are no images"),
    ],
)
def test_what_makes_no_sense_with_features_is_refused(versions, others, message):
    with pytest.raises(MptError, match=message) as raised:
        simulate(settings(versions, **{"methods": ("mpt",), **others}))
    assert "\n" not in str(raised.value)


def test_a_first_run_on_features_needs_no_more_than_the_class(versions):
    said = []
    told = {"dataset": f"features:{versions}", "rare": "f"}
    assert for_features(told, said.append) == {**told, "rounds": 5, "depart_at": 1, "eval_every": 1}
    chosen = "--rounds 5 --depart-at 1 --eval-every 1"
    assert said == [f"features:{versions} has 5 versions of a model: {chosen}, where nothing else is said"]
    mine = {**told, "rounds": 4, "depart_at": 3, "eval_every": 2}
    assert for_features(mine, said.append) == mine
    assert len(said) == 1
    for dataset in ("road", "features:none.npz", 3):
        assert for_features({"dataset": dataset}, said.append) == {"dataset": dataset}
    assert for_features({}, said.append) == {}


def test_in_python_the_sentence_names_settings_that_work(versions):
    with pytest.raises(MptError, match="as in --rounds 5 --depart-at 1 --eval-every 1; --depart-at is the last") as e:
        simulate(RunConfig(dataset=f"features:{versions}", rare="f", device="cpu", methods=("mpt",)))
    assert "\n" not in str(e.value)
    with pytest.raises(MptError, match=r"depart_at: 15, should be below 5, .*; 15 is the default, say --depart-at 1"):
        RunConfig(rounds=5)


def test_where_nobody_says_which_class_departs_the_classes_are_named(versions):
    with pytest.raises(MptError, match=r"rare: 'truck', the default, is no class of five, .* as in --rare a") as raised:
        simulate(settings(versions, rare="truck", methods=("mpt",)))
    assert "should be one of a, b, c, d, e, f" in str(raised.value)
    with pytest.raises(MptError, match="class: no 'lorry' in five, should be one of a, b"):
        simulate(settings(versions, rare="lorry", methods=("mpt",)))


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((8, 8), "image_size: 8, should be from 28 to 224 .*; --image-size 32 makes images 32 x 32"),
        ((28, 40), "images: 28 x 40 pixels, should be square; --image-size 28 makes them 28 x 28"),
        ((300, 250), "images: 300 x 250 pixels, should be square; --image-size 224 makes them 224 x 224"),
    ],
)
def test_images_that_no_backbone_takes_name_a_size_that_it_does(shape, message, tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (60, *shape), dtype=np.uint8)
    np.savez(tmp_path / "x.npz", x=images, y=np.arange(60) % 3)
    chosen = {"dataset": f"npz:{tmp_path / 'x.npz'}", "rare": "1", "rounds": 2, "depart_at": 1, "device": "cpu"}
    with pytest.raises(MptError, match=message):
        simulate(RunConfig(**chosen, methods=("mpt",)))


SMALL = {"rare": "walking", "rounds": 2, "depart_at": 1, "epochs": 1, "eval_every": 1, "device": "cpu"}


def small(dataset, **others):
    return RunConfig(dataset=dataset, **{**SMALL, "methods": ("fedavg", "mpt-x"), **others})


@pytest.mark.parametrize("engine", ["fast", "plain"])
def test_series_through_a_run(engine, tmp_path):
    result = simulate(small("motion?each=2", backbone="cnn1d", engine=engine), out=tmp_path)
    assert {row["method"] for row in result.tables.metrics} == {"fedavg", "mpt-x"}
    assert (result.manifest["image_shape"], result.manifest["feature_dim"]) == ([9, 128], 64)
    assert not (tmp_path / "samples.png").exists()
    assert (tmp_path / "models").exists()
    assert deployable(tmp_path).metadata.input_shape == (9, 128)


def test_vectors_through_a_run_with_their_subjects(tmp_path):
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(4), 60)
    vectors = 2 * rng.normal(size=(4, 7))[labels] + rng.normal(size=(240, 7))
    np.savez(tmp_path / "v.npz", x=vectors, y=labels, subjects=rng.integers(5, size=240))
    chosen = small(
        f"npz:{tmp_path / 'v.npz'}", backbone="mlp(dim=16)", rare="3", partition="vehicle", rounds=3, epochs=3
    )
    result = simulate(chosen, say=lambda _: None)
    assert (result.manifest["vehicles"], result.manifest["feature_dim"]) == (5, 16)
    last = {row["method"]: row["f1"] for row in result.tables.metrics if row["round"] == 3 and row["class"] == "3"}
    assert last["mpt-x"] > 0.8


@pytest.mark.parametrize(
    ("dataset", "others", "message"),
    [
        ("motion?each=2", {}, "cnn3 takes images, but these samples are series of 9 x 128, should be cnn1d or path.py"),
        ("motion?each=2", {"backbone": "mlp"}, "mlp takes vectors, but these samples are series"),
        ("motion?each=2", {"backbone": "timm:resnet18"}, "timm:resnet18 takes images"),
        (
            "road?train=10&test=5",
            {"backbone": "cnn1d", "rare": "truck"},
            "cnn1d takes series, .* images of 3 x 32 x 32",
        ),
        ("motion?each=2", {"backbone": "cnn1d", "augment": "crop-flip"}, "crop-flip is for images, should be none"),
        ("motion?each=2", {"backbone": "cnn1d", "augment": "flip"}, "flip is for images, should be none for series"),
    ],
)
def test_a_backbone_for_other_samples_is_refused(dataset, others, message):
    with pytest.raises(MptError, match=message) as raised:
        simulate(small(dataset, **others))
    assert "\n" not in str(raised.value)


def test_the_code_of_the_guide_prints_what_stands_there(tmp_path, monkeypatch, capsys):
    text = PAGE.read_text()
    first, second = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(compile(first, "the guide", "exec"), names)
    printed = capsys.readouterr().out
    assert "\n".join(f"    {line}" for line in printed.splitlines()) in text
    exec(compile(second, "the guide", "exec"), names)
    chosen = settings(tmp_path / "versions.npz", rounds=2, remaining=0.0, methods=("fedavg", "frozen", "mpt-x"))
    last = {r["method"]: r["f1"] for r in simulate(chosen, say=lambda _: None).tables.metrics if r["class"] == "f"}
    assert last["mpt-x"] > last["frozen"] + 0.3


def test_runs_of_versions_go_together_as_each_does_by_itself(versions, tmp_path):
    configs = [settings(versions, methods=methods) for methods in (("mpt", "frozen"), ("mpt-x",))]
    outs, nobody, silent = [tmp_path / "a", tmp_path / "b"], [None, None], [lambda _: None] * 2
    for both, config in zip(simulate_together(configs, outs, progress=nobody, say=silent), configs, strict=True):
        alone = simulate(config).tables
        assert [r["f1"] for r in both.tables.metrics] == [r["f1"] for r in alone.metrics]


def test_runs_that_train_different_models_do_not_go_together(versions, tmp_path):
    one, other = settings(versions, methods=("mpt",)), settings(versions, methods=("frozen",), remaining=0.3)
    with pytest.raises(MptError, match="they train different models"):
        simulate_together([one, other], [tmp_path / "a", tmp_path / "b"], progress=[None] * 2, say=[print] * 2)
    assert not list(tmp_path.iterdir())
