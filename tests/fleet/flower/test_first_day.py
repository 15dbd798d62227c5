"""The first day of a fleet whose vehicles have folders of their own: scores, unknown classes, `mpt fleet check`."""

import json
from pathlib import Path

import numpy as np
import pytest

for package in ("torch", "flwr", "PIL"):
    pytest.importorskip(package, reason="the extra fleet is not installed")

from PIL import Image
from typer.testing import CliRunner

from mpt.base.files import exclusive_lock
from mpt.cli.main import app
from mpt.data import load
from mpt.fleet.flower.check import check
from mpt.fleet.flower.config import AppConfig, settings
from mpt.fleet.flower.server_app import serve
from mpt.fleet.flower.vehicle_app import vehicle_app
from mpt.fleet.metrics import prometheus
from mpt.fleet.status import read_status
from mpt.fleet.store import open_store
from tests.fleet.flower.grids import DirectGrid, identified

CLASSES = ("car", "van", "truck")
pytestmark = pytest.mark.usefixtures("one_thread")


def call(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def write(images, folder):
    folder.mkdir(parents=True)
    for i, image in enumerate(images):
        Image.fromarray(image).save(folder / f"{i}.png")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Three vehicles' folders, the first of which has lorries too, and the server's test samples."""
    root, road = tmp_path_factory.mktemp("images"), load("road?train=24&test=8", image_size=28)
    for vehicle in range(3):
        for name in CLASSES:
            mine = road.train.images[road.train.labels == road.class_index(name)][vehicle::3]
            write(mine, root / f"v{vehicle}" / "train" / name)
    write(road.train.images[road.train.labels == road.class_index("bus")][:5], root / "v0" / "train" / "lorry")
    for name in ("car", "truck", "bus"):
        write(road.test.images[road.test.labels == road.class_index(name)], root / "server" / "test" / name)
    return root


def given(folders, **more):
    return {
        "classes": ",".join(CLASSES), "image_size": 28, "num_rounds": 2, "timeout": 1.0,
        "test": f"folder:{folders / 'server'}", **more,
    }  # fmt: skip


@pytest.fixture(scope="module")
def state(folders, tmp_path_factory):
    """The state folder after two rounds, and what the server has said."""
    where = tmp_path_factory.mktemp("state")
    chosen = given(folders, state=str(where))
    run = {name.replace("_", "-"): value for name, value in chosen.items()}
    nodes = {v: {"dataset": f"folder:{folders / f'v{v}'}", "min-samples": 2} for v in range(3)}
    with pytest.MonkeyPatch.context() as patch:
        identified(patch)
        grid = DirectGrid(vehicle_app(), 3, nodes, run)
        for context in grid.contexts.values():
            del context.node_config["partition-id"]
        serve(AppConfig(**chosen), grid)
    return where


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_f1_of_every_class_that_the_server_has_test_samples_of(state):
    last = lines(state / "rounds.jsonl")[-1]
    assert list(last["f1"]) == list(CLASSES)
    assert 0 <= last["f1"]["car"] <= 1
    assert 0 <= last["f1"]["truck"] <= 1
    assert last["f1"]["van"] is None
    assert 0 < last["accuracy"] <= 1
    status = read_status(open_store(state))
    assert status.accuracy == last["accuracy"]
    assert {c.name: c.f1 for c in status.classes} == last["f1"]
    assert f'mpt_fleet_class_f1{{class="car"}} {last["f1"]["car"]!r}\n' in prometheus(status)
    done = call("fleet", "status", state)
    assert done.exit_code == 0
    assert f"accuracy {last['accuracy']:.3f}" in done.output
    assert "vehicle-0" in done.output
    (row,) = [line for line in done.output.splitlines() if line.split()[:1] == ["car"]]
    assert row.split()[1] == f"{last['f1']['car']:.3f}"


def test_a_class_that_the_fleet_does_not_know_is_left_out_and_said(state):
    decided = lines(state / "decisions.jsonl")
    left_out = [d for d in decided if d["event"] == "left-out"]
    assert [(d["round"], d["name"], d["why"]) for d in left_out] == [
        (1, "vehicle-0", "samples of classes that the fleet does not know: lorry (5)")
    ]
    assert not [d for d in decided if d["event"] in ("refused", "failed", "suspected", "departed")]
    assert [v.samples for v in read_status(open_store(state)).vehicles] == [24, 24, 24]


def test_it_resumes_with_other_test_samples_but_not_with_other_classes(state, folders):
    found = check([_text(given(folders, state=str(state), test="", num_rounds=5))])
    assert found.problems == ()
    assert f"state: {state} holds round 2: the fleet resumes with round 3" in found.notes
    wrong = check([_text(given(folders, state=str(state), backbone="resnet18", grace=7))]).problems
    assert wrong == (
        "store: it holds a fleet with backbone 'cnn3', not 'resnet18'; grace 3, not 7: give another state folder, "
        "or the same settings",
    )


def _text(chosen):
    def shown(value):
        return f'"{value}"' if isinstance(value, str) else str(value)

    return " ".join(f"{name.replace('_', '-')}={shown(value)}" for name, value in chosen.items())


def test_check_says_what_would_be_done(folders, tmp_path):
    done = call("fleet", "check", "-c", _text(given(folders, state=str(tmp_path / "new"), watch="truck")))
    assert done.exit_code == 0, done.output
    assert "cnn3: 3 classes, d = 128" in done.output
    assert "test samples: car 8, van 0, truck 8" in done.output
    assert "no test samples, hence no F1: van" in done.output
    assert "none of the fleet's: bus 8" in done.output
    assert "watched from the first round on: truck; no others" in done.output
    assert done.output.rstrip().endswith("nothing is wrong: flwr run can start")
    assert not (tmp_path / "new").exists()


WRONG = {
    "num-rounds": ("0", "num-rounds = 0, should be at least 1"),
    "watch_share": ("0.5", "unknown key 'watch_share', did you mean watch-share?"),
    "lr": ('"fast"', "lr = 'fast', should be a number"),
    "method": ('"ldc:al"', "method: 'ldc:al' is none, did you mean ldc:all?"),
    "quorum": ("2", "quorum = 2.0, should be above 0 and at most 1"),
    "deadline": ("-1", "deadline = -1.0, should be a number of seconds above 0"),
    "grace": ("-1", "grace = -1, should be at least 0"),
    "watch": ('"trukc"', "watch names 'trukc', did you mean truck?"),
    "loss": ('"fedcl"', "loss: 'fedcl' is none, did you mean fedlc?"),
    "weights": ('"/nowhere.pt"', "weights: there is no file /nowhere.pt, should be a path from"),
    "backbone": ('"cnn4"', "backbone: 'cnn4' is none, did you mean cnn3?"),
    "test": ('"folder:/nowhere"', "folder:/nowhere: there is no folder /nowhere, should be one with test/"),
    "patience": ("0", "patience = 0, should be at least 1"),
    "carry-share": ("7", "carry-share = 7.0, should be a share from 0.05 to 1"),
    "remember": ('"yes"', "remember = 'yes', should be true or false"),
}


def test_check_says_everything_that_is_wrong_at_once():
    text = 'classes="car,van,truck" image-size=28 ' + " ".join(f"{key}={value}" for key, (value, _) in WRONG.items())
    done = call("fleet", "check", "-c", text)
    assert done.exit_code == 1
    for _, said in WRONG.values():
        assert f"wrong: {said}" in done.stderr
    assert f"{len(WRONG)} things are wrong: flwr run would fail" in done.stderr


@pytest.mark.parametrize("key", sorted(WRONG))
def test_check_says_what_is_wrong_alone(key):
    value, said = WRONG[key]
    (problem,) = check([f'classes="car,van,truck" image-size=28 {key}={value}']).problems
    assert problem.startswith(said)


def test_check_names_the_methods_that_a_fleet_takes():
    (problem,) = check(['classes="car,van,truck" image-size=28 method="magic"']).problems
    assert problem.startswith("method: 'magic' is none, should be one of fedavg, ")
    assert "mpt-x" in problem
    assert not {"oracle", "oracle-train", "live", "stop-at-departure"} & set(problem.replace(",", " ").split())


def test_check_finds_files_of_ones_own_in_the_apps_folder(tmp_path, monkeypatch):
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "mine.py").write_text(
        "from torch import nn\n\n\ndef small(in_channels, image_size):\n"
        "    made = nn.Sequential(nn.Flatten(), nn.LazyLinear(4))\n    made.dim = 4\n"
        "    made(__import__('torch').zeros(1, in_channels, image_size, image_size))\n    return made\n"
    )
    monkeypatch.chdir(tmp_path)
    settings = ['classes="car,van,truck" image-size=28 backbone="mine.py:small"']
    assert "there is no file mine.py" in check(settings).problems[0]
    assert check(settings, Path("app")).problems == ()
    assert check(settings, Path("nowhere")).problems[0].startswith("app: there is no folder nowhere")


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="there is no /proc")
def test_check_tries_whether_the_state_can_be_made():
    (problem,) = check(['classes="car,van,truck" image-size=28 state="/proc/mpt/state"']).problems
    assert problem == "state: /proc/mpt/state cannot be made, this user cannot write to /proc"


def test_every_setting_can_be_set_and_is_listed():
    done = call("fleet", "settings", "--json")
    listed = json.loads(done.output)
    assert [one["key"] for one in listed] == [one.key for one in settings()]
    assert {"patience", "carry-share", "remember", "release-share", "most-watched"} <= {one["key"] for one in listed}
    assert "watch-share" in call("fleet", "settings").output
    config = AppConfig.of(
        {"patience": 9, "carry-share": 0.5, "remember": False, "most-watched": 1, "release-share": 0.3}
    )
    chosen = config.tracker(CLASSES, 8)
    assert (chosen.patience, chosen.carry_share, chosen.remember, chosen.capacity) == (9, 0.5, False, 1)
    assert (chosen.release, chosen.class_names) == (0.3, CLASSES)
    assert AppConfig().tracker(CLASSES, 8).release == pytest.approx(0.4)


def test_settings_that_do_not_go_together():
    def problems(text):
        return " | ".join(check([text]).problems)

    assert "image-size = 0, should be given where classes are" in problems('classes="car,van"')
    assert problems('classes="car,van" image-size=4') == "image-size = 4, should be 0, or 8 to 1024"
    assert "classes has 'car' more than once" in problems('classes="car,van,car" image-size=28')
    assert "should be two or more" in problems('classes="car" image-size=28')
    assert "watch has all classes" in problems('classes="car,van" watch="car,van" image-size=28')
    assert "release-share = 0.9, should be at most watch-share, 0.5" in problems("release-share=0.9")
    assert "should be like 'leave 3 after 20'" in problems('events="leave"')
    assert "rare = 'lorry', should be of car, van, truck" in problems('dataset="road" per-class=4 rare="lorry"')
    assert "seed = 9223372036854775808, should be from 0 to below 2^63" in problems(f"seed={2**63}")


def test_a_state_folder_that_is_taken_has_an_exit_code_of_its_own(folders, tmp_path):
    text = _text(given(folders, state=str(tmp_path)))
    with exclusive_lock(tmp_path):
        done = call("fleet", "check", "-c", text)
        worse = call("fleet", "check", "-c", f"{text} fail=2.0")
    assert (done.exit_code, worse.exit_code) == (3, 1)
    assert f"wrong: state: another server writes to {tmp_path}" in done.stderr


def test_a_server_whose_test_samples_are_of_other_classes(folders):
    (problem,) = check([_text(given(folders, classes="tram,bike"))]).problems
    assert problem.startswith("test: folder:")
    assert problem.endswith("has no samples of the fleet's classes, tram, bike")


def test_test_samples_may_lie_in_class_folders_alone(tmp_path, folders):
    write([np.zeros((30, 30, 3), np.uint8)] * 2, tmp_path / "car")
    found = check([_text(given(folders, test=f"folder:{tmp_path}"))])
    assert "test samples: car 2, van 0, truck 0" in found.notes
