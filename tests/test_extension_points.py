"""A method, a training, a loss, a partition, a readout, a dataset and a backbone from files of their own.

Nothing of the package is touched. They are found by `path.py:Name(arguments)`, run, exported, and part of a run's and a
cell's key.
"""

import csv
import json
import re
import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

for package in ("pandas", "torch", "typer"):
    pytest.importorskip(package, reason="the extra sim is not installed")

from typer.testing import CliRunner

from mpt.base.errors import MptError
from mpt.cli.main import app
from mpt.experiments.cells import Cell
from mpt.report.simulate import simulate
from mpt.runs.config import ConfigError, RunConfig, make_config
from mpt.runs.export import deployable
from mpt.runs.replay import replay

ROOT = Path(__file__).parents[1]
FILES = {
    "method.py": """
class Shifted:
    needs_departure = True

    def __init__(self, by=0.0, training="held-out"):
        self.name, self.by, self.training = "shifted", by, training

    def depart(self, context):
        return context.prototype()

    def track(self, state, context):
        return state, state + self.by
""",
    "training.py": """
from mpt.methods import Training

def gentle(share=1.0):
    return Training("gentle", holds_out=False, loss=f"loss.py:scaled(by={share})")

plain = Training("plain")
""",
    "loss.py": """
from torch.nn import functional

def scaled(logits, labels, counts, by=1.0):
    assert counts.sum() >= len(labels) and len(counts) == logits.shape[1]
    return by * functional.cross_entropy(logits, labels)
""",
    "partition.py": """
import numpy as np

def by_turns(request, vehicles=3):
    '''All in turn, but the rare class on vehicle 1 but for some samples.'''
    places = np.arange(len(request.labels)) % vehicles
    rare = request.rng.permutation(np.flatnonzero(request.labels == request.rare))
    places[rare] = 1
    places[rare[:4]] = 0
    return {v: np.flatnonzero(places == v) for v in range(vehicles)}
""",
    "readout.py": """
import numpy as np

class Manhattan:
    '''Nearest prototype in the sum of absolute differences, each feature divided by its deviation where asked for.'''

    def __init__(self, weighted=False):
        self.needs_covariance = weighted

    def fit(self, prototypes, covariance, cov_ridge):
        weights = 1.0 if covariance is None else 1 / np.sqrt(covariance.diagonal() + 1e-9)
        return Fitted(prototypes * weights, weights)


class Fitted:
    def __init__(self, prototypes, weights):
        self.prototypes, self.weights = prototypes, weights

    def predict(self, features):
        gaps = np.abs((features * self.weights)[:, None] - self.prototypes[None]).sum(axis=2)
        return np.argmin(np.where(np.isnan(gaps), np.inf, gaps), axis=1)
""",
    "dataset.py": """
import numpy as np
from mpt.data import Dataset, Split

def blobs(train=20, test=8):
    '''Three classes of grey images, each brighter in another third.'''
    def split(many, seed):
        rng, labels = np.random.default_rng(seed), np.repeat([0, 1, 2], many)
        images = rng.integers(0, 120, (3 * many, 30, 30, 1))
        for image, label in zip(images, labels):
            image[10 * label : 10 * label + 10] += 60
        return Split(images.astype(np.uint8), labels)
    return Dataset("blobs", ("low", "middle", "high"), split(train, 0), split(test, 1))
""",
    "backbone.py": """
from torch import nn

def small(in_channels, image_size, width=8):
    made = nn.Sequential(nn.Conv2d(in_channels, width, 3, 2), nn.BatchNorm2d(width), nn.ReLU(),
                         nn.AdaptiveAvgPool2d((2, 1)), nn.Flatten())
    made.dim = 2 * width
    return made
""",
}
SETTINGS = {
    "dataset": "dataset.py:blobs(train=24)",
    "rare": "high",
    "methods": "frozen,method.py:Shifted(by=0.25),method.py:Shifted(by=0.5, training='training.py:gentle(share=0.5)')",
    "loss": "loss.py:scaled(by=2.0)",
    "partition": "partition.py:by_turns(vehicles=4)",
    "readout": "mahalanobis,readout.py:Manhattan(weighted=True)",
    "backbone": "backbone.py:small(width=6)",
    "rounds": 4,
    "depart_at": 2,
    "eval_every": 1,
    "epochs": 1,
    "batch_size": 8,
}


@pytest.fixture
def files(tmp_path, monkeypatch):
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def options(**changes):
    return [word for k, v in {**SETTINGS, **changes}.items() for word in (f"--{k.replace('_', '-')}", str(v))]


def call(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)), catch_exceptions=False)


def test_all_of_them_run_together_from_the_command_line(files):
    done = call("run", *options(), "--out", "out")
    assert done.exit_code == 0, done.stderr
    names = {"frozen", "shifted(by=0.25)", "shifted(by=0.5, training='training.py:gentle(share=0.5)')"}
    with (files / "out" / "metrics.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert {line["method"] for line in lines} == names
    assert {line["readout"] for line in lines} == {"mahalanobis", "Manhattan(weighted=True)"}
    assert {line["class"] for line in lines} == {"low", "middle", "high"}
    manifest = json.loads((files / "out" / "manifest.json").read_text())
    assert manifest["vehicles"] == 4
    assert manifest["remaining_samples"] == [4]
    assert manifest["feature_dim"] == 12
    assert manifest["counts"]["train"] == [24, 24, 24]
    assert set(manifest["files"]) == {
        "method.py:Shifted(by=0.25)", "method.py:Shifted(by=0.5, training='training.py:gentle(share=0.5)')",
        "training.py:gentle(share=0.5)", "loss.py:scaled(by=0.5)", SETTINGS["loss"], SETTINGS["partition"],
        "readout.py:Manhattan(weighted=True)", SETTINGS["backbone"], SETTINGS["dataset"],
    }  # fmt: skip
    assert "shifted(by=0.25)" in (files / "out" / "report.html").read_text()
    shown = call("run", "--config", "out/config.toml", "--out", "out")
    assert "nothing was computed" in shown.stderr
    assert call("export", "out", "--method", "shifted(by=0.25)", "--format", "torchscript").exit_code == 0
    refused = call("export", "out", "--method", "shifted(by=0.25)", "--readout", "Manhattan(weighted=True)")
    assert "has no linear readout 'Manhattan(weighted=True)', should be one of mahalanobis" in refused.stderr, (
        "it is no linear layer"
    )


def test_the_page_on_things_of_ones_own_says_what_works(tmp_path, monkeypatch):
    """Its code in one file, and its first command, at a scale of seconds."""
    text = (ROOT / "docs" / "how-to" / "extend.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) == 9
    method = FILES["method.py"].replace("class Shifted", "class Mine").replace("by=0.0", "lam=0.0, by=0.0")
    (tmp_path / "mine.py").write_text("\n".join([*blocks, method]))
    monkeypatch.chdir(tmp_path)
    (command,) = re.findall(r"^\$ mpt (run --methods 'mpt,mine(?:.*\\\n)*.*)$", text, re.MULTILINE)
    given = shlex.split(command.replace("\\\n", " ").replace("train=200", "train=24"))
    short = ["--rounds", "3", "--depart-at", "2", "--epochs", "1", "--batch-size", "8", "--eval-every", "1"]
    done = call(*given, *short)
    assert done.exit_code == 0, done.stderr
    assert {line.split()[0] for line in done.stdout.splitlines()} >= {"mpt", "shifted(lam=0.3)"}
    (divided,) = re.findall(r"--partition ('mine.py:label_dirichlet.*?') --vehicles 6", text)
    spread = ["--partition", *shlex.split(divided), "--vehicles", "3", "--out", "out"]
    done = call("run", "--methods", "frozen", "--dataset", "mine.py:blobs", "--rare", "high", *spread, *short)
    assert done.exit_code == 0, done.stderr
    manifest = json.loads(Path("out/manifest.json").read_text())
    (remain,), number = manifest["remaining_samples"], manifest["counts"]["train"][manifest["rare"]]
    assert f"{100 * float(f'{remain / number:.2g}'):g}% of high remain, {remain} sample" in Path(
        "out/report.html"
    ).read_text(encoding="utf-8"), "by the counts, not by the setting, which this partition does not read"
    (second,) = re.findall(r"^\$ mpt run --methods (\"mpt,fedavg.*?\")$", text, re.MULTILINE)
    done = call("run", "--methods", *shlex.split(second), "--dataset", "mine.py:blobs", "--rare", "high", *short)
    assert done.exit_code == 0, done.stderr


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"loss": "odd.py:logits_themselves"}, "loss: gave a tensor of shape (8, 3), should be the batch's mean loss"),
        ({"loss": "odd.py:text"}, "loss: gave 'x', should be the batch's mean loss, a tensor of shape ()"),
        ({"readout": "odd.py:Three"}, "readout: Three gave int, should have predict()"),
        ({"methods": "odd.py:Odd"}, "method: odd.track gave int, should be its state and a prototype"),
    ],
)
def test_what_ones_own_gives_is_looked_at(files, setting, message):
    (files / "odd.py").write_text(
        "def logits_themselves(logits, labels, counts): return logits\ndef text(logits, labels, counts): return 'x'\n"
        "class Three:\n    needs_covariance = False\n    def fit(self, *given): return 3\n"
        "class Odd:\n    name, training = 'odd', 'held-out'\n    def depart(self, context): pass\n"
        "    def track(self, state, context): return 7\n"
    )
    small = {
        "dataset": SETTINGS["dataset"],
        "rare": "high",
        "methods": "frozen",
        "rounds": 3,
        "depart_at": 1,
        "epochs": 1,
    }
    with pytest.raises(MptError) as caught:
        simulate(make_config({**small, "epochs": 1, "batch_size": 8, "eval_every": 1, **setting}))
    assert message in str(caught.value)


@pytest.mark.parametrize("name", FILES)
def test_each_file_is_part_of_a_runs_and_of_a_cells_key(files, name):
    config = RunConfig(**SETTINGS)
    before = Cell(config, "samples", 2).key
    if name == "backbone.py":
        simulate(replace(config, rounds=3), out="out")
    (files / name).write_text(FILES[name] + "\n# another one\n")
    after = Cell(config, "samples", 2).key
    assert (before == after) == (name == "dataset.py"), "samples have a fingerprint of their own"
    if name == "backbone.py":
        with pytest.raises(ConfigError, match=r"backbone.py.* has changed since the run in out"):
            simulate(replace(config, rounds=3), out="out")


def numbers(result, method="frozen"):
    table = result.metrics
    mine = table[(table["method"] == method) & (table["readout"] == "mahalanobis")]
    return mine[["f1", "recall", "prototype_distance"]].to_numpy(dtype=float)


def test_a_loss_is_what_vehicles_minimise(files):
    """One that is cross-entropy by another name changes nothing; twice as much of it is another training."""
    config = RunConfig(**{**SETTINGS, "methods": "frozen", "readout": "mahalanobis"})
    plain = simulate(replace(config, loss="cross-entropy"))
    assert np.array_equal(numbers(plain), numbers(simulate(replace(config, loss="loss.py:scaled"))), equal_nan=True)
    assert not np.array_equal(numbers(plain), numbers(simulate(config)), equal_nan=True)
    by_engine = [simulate(replace(config, engine=engine)) for engine in ("fast", "plain")]
    np.testing.assert_allclose(*map(numbers, by_engine), atol=1e-3)


def test_a_training_says_what_is_held_out_and_with_which_loss(files):
    config = RunConfig(**{**SETTINGS, "readout": "mahalanobis", "loss": "cross-entropy"})
    both = simulate(replace(config, methods=("frozen(training='training.py:plain')", "frozen")))
    one, other = (numbers(both, name) for name in ("frozen(training='training.py:plain')", "frozen"))
    assert np.array_equal(one[:, :2], other[:, :2]), "it holds the same out with the same loss"
    half = "fedavg(training='training.py:gentle(share=0.5)')"
    trained = simulate(replace(config, methods=("fedavg", half)))
    assert trained.manifest["trainings"] == {"fedavg": "continued", half: "training.py:gentle(share=0.5)"}
    frame = trained.metrics
    f1 = [frame[frame["method"] == name]["recall"].to_numpy() for name in ("fedavg", half)]
    assert not np.array_equal(*f1)


def test_a_readout_costs_the_covariance_only_where_it_says_so(files):
    readouts = ("readout.py:Manhattan", "readout.py:Manhattan(weighted=True)")
    config = RunConfig(**{**SETTINGS, "methods": "frozen", "readout": readouts})
    frame = simulate(config).metrics
    up = frame[frame["class"] == "high"].groupby("readout")["readout_bytes_up"].max()
    assert up["Manhattan"] < up["Manhattan(weighted=True)"] / 2


def test_a_readout_is_scored_later_without_training(files):
    config = RunConfig(**{**SETTINGS, "methods": "frozen,oracle-train", "readout": "mahalanobis"})
    simulate(config, out="out")
    found = replay(files / "out", readouts=["readout.py:Manhattan"])
    assert {(s.method, s.readout) for s in found.new} == {("frozen", "Manhattan"), ("oracle-train", "Manhattan")}
    whole = simulate(replace(config, readout=("readout.py:Manhattan",))).metrics
    theirs = whole[whole["round"].isin([2, 4])].sort_values(["round", "method", "class"])["f1"].tolist()
    mine = [r for r in found.tables.metrics if r["readout"] == "Manhattan"]
    mine.sort(key=lambda r: (r["round"], r["method"], r["class"]))
    assert [r["f1"] for r in mine] == theirs


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"methods": "method.py:Shifted(to=1)"}, "method: method.py:Shifted has no argument to; it has by, training"),
        (
            {"methods": "mpt(training='training.py:gentler')"},
            "training: training.py has no 'gentler', did you mean gentle?",
        ),
        ({"methods": "mpt(training='loss.py:scaled')"}, "training: loss.py:scaled cannot be made (TypeError: "),
        ({"methods": "mpt(training='method.py:Shifted')"}, "training: method.py:Shifted gave a Shifted, should be"),
        ({"loss": "loss.py:scale"}, "loss: loss.py has no 'scale', did you mean scaled?"),
        ({"partition": "partition.py:by_turns(vehicles=1)"}, "partition: vehicles [0], should be two or more"),
        ({"partition": "loss.py:functional"}, "partition: loss.py:functional is a module, should be a function"),
        ({"partition": "partition.py:by_turns(cities=2)"}, "partition: partition.py:by_turns(cities=2) failed (TypeE"),
        ({"readout": "readout.py:Fitted(1, 2)"}, "readout: readout.py:Fitted(1, 2) has no fit, should be a class with"),
        ({"readout": "readout.py:Manhattan,readout.py:Manhattan()"}, "readout: two are called 'Manhattan'"),
        ({"dataset": "dataset.py:blob"}, "dataset.py:blob: dataset.py has no 'blob', did you mean blobs?"),
        ({"dataset": "dataset.py:blobs(train='x')"}, "dataset.py:blobs(train='x'): the function failed (ValueError: "),
        (
            {"backbone": "backbone.py:tiny"},
            "backbone: backbone.py has no 'tiny', should be one of its functions or classes",
        ),
        (
            {"backbone": "backbone.py:small(height=3)"},
            "backbone: backbone.py:small has no argument height; it has width",
        ),
        (
            {"backbone": "method.py:Shifted"},
            "backbone: method.py:Shifted returned a Shifted, should be a torch.nn.Module",
        ),
    ],
)
def test_what_is_wrong_with_one_is_one_sentence(files, changes, message):
    done = call("run", *options(**changes))
    assert done.exit_code == 2
    *_, said = lines = [line for line in done.stderr.splitlines() if not line.startswith("mpt: reading ")]
    assert said.startswith(f"mpt: {message}"), done.stderr
    assert len(lines) == 1


def test_what_one_raises_in_a_run_is_said_with_its_line(files):
    (files / "readout.py").write_text(FILES["readout.py"].replace("return Fitted(", "return Fitted(1 / 0, "))
    done = call("run", *options(methods="frozen"))
    assert done.exit_code == 2
    assert "readout: Manhattan(weighted=True): ZeroDivisionError: division by zero (readout.py, line 12)" in done.stderr
    (files / "readout.py").write_text(FILES["readout.py"].replace("return np.argmin(", "return 1 / 0 + np.argmin("))
    done = call("run", *options(methods="frozen"))
    assert done.exit_code == 2
    assert "ZeroDivisionError: division by zero (readout.py, line 21)" in done.stderr
    (files / "loss.py").write_text(FILES["loss.py"].replace("return by *", "return 1 / 0 *"))
    done = call("run", *options(methods="frozen", readout="mahalanobis"))
    assert done.exit_code == 2
    assert "training: ZeroDivisionError: division by zero (loss.py, line 6)" in done.stderr


def test_a_model_of_a_backbone_of_ones_own_is_exported(files):
    config = RunConfig(**{**SETTINGS, "methods": "mpt", "readout": "mahalanobis"})
    simulate(config, out="out")
    model = deployable(files / "out")
    assert model.metadata.backbone == SETTINGS["backbone"]
    assert model.weight.shape == (3, 12)
