"""examples/flower_quickstart runs, and its README shows the change that it is."""

import os
import random
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[3] / "examples" / "flower_quickstart"
QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "OMP_NUM_THREADS": "1"}


def test_the_readme_shows_every_added_line():
    shown = re.findall(r"^\+(.*)$", (EXAMPLE / "README.md").read_text(), flags=re.MULTILINE)
    there = []
    for name in ("client_app", "server_app"):
        lines = (EXAMPLE / "quickstart" / f"{name}.py").read_text().splitlines()
        there += [line for line in lines if re.search(r"# MPT(: .*)?$", line)]
    assert shown == there


@pytest.fixture
def quickstart(monkeypatch, one_thread):
    """A function that trains the example in this process: its global model after every round, all bits of it."""
    for package in ("torch", "sklearn", "flwr"):
        pytest.importorskip(package, reason="the extra fleet is not installed")
    from flwr.app import Context, RecordDict
    from flwr.serverapp.strategy import FedAvg

    from tests.fleet.flower.grids import DirectGrid, identified

    identified(monkeypatch)
    monkeypatch.syspath_prepend(str(EXAMPLE))
    for name in [name for name in sys.modules if name.partition(".")[0] == "quickstart"]:
        monkeypatch.delitem(sys.modules, name)

    results, start = [], FedAvg.start
    monkeypatch.setattr(FedAvg, "start", lambda *given, **named: results.append(start(*given, **named)))

    def run(app, seed=0, **config):
        client, server = app("client_app"), app("server_app")
        random.seed(seed)
        config = {"seed": seed, "num-server-rounds": 8, "leaves-after": 4, "local-epochs": 1, **config}
        grid = DirectGrid(client, 4, {p: {"num-partitions": 4} for p in range(4)}, config)
        server(grid, Context(1, 1, {}, RecordDict(), config))
        sent = [message for message in grid.sent if message.metadata.message_type == "train"]
        models = {number: message.content["arrays"] for number, message in enumerate(sent[:: len(grid.contexts)])}
        models[config["num-server-rounds"]] = results.pop().arrays
        return {number: {name: array.data for name, array in model.items()} for number, model in models.items()}

    return run


def as_it_is(name):
    """The app of the example."""
    return import_module(f"quickstart.{name}").app


def without_mpt(name):
    """The app of Flower's quickstart: the example without its lines that are marked."""
    lines = (EXAMPLE / "quickstart" / f"{name}.py").read_text().splitlines()
    kept = [
        line.replace("tracking,  # MPT: was evaluate", "evaluate,")
        for line in lines
        if not re.search(r"# MPT$", line)
    ]  # fmt: skip
    code = "\n".join(kept)
    assert "tracking" not in code
    assert "import mpt" not in code
    assert "from mpt" not in code
    names = {}
    exec(code, names)
    return names["app"]


@pytest.mark.parametrize("seed", range(3))
def test_a_vehicle_that_leaves_later_is_not_lost_to_a_dead_unit(seed, quickstart, capsys):
    """`-c "num-server-rounds=8 leaves-after=4"`: by then some of the network's ReLU units are dead."""
    quickstart(as_it_is, seed)
    said = capsys.readouterr().err
    assert "round 5: vehicle vehicle-0 (10) class 9 departed: error 0: this vehicle has left; 1 round missed" in said
    assert "round 5: vehicle vehicle-0 (10) class 9 deposited: made from" in said
    assert "class 9 held-out" in said
    assert "lost: " not in said


def test_in_shadow_mode_it_trains_the_same_bits_as_without_mpt(quickstart, capsys):
    plain = quickstart(without_mpt)
    assert "mpt: " not in capsys.readouterr().err
    shadowed = quickstart(as_it_is, shadow=True)
    said = capsys.readouterr().err
    assert "round 5: vehicle vehicle-0 (10) class 9 deposited: made from" in said
    assert "class 9 shadowed: departed, but this is shadow mode: its 6 remaining samples are trained on until" in said
    assert "held-out" not in said
    assert list(plain) == list(range(9))
    assert [number for number in plain if shadowed[number] != plain[number]] == []
    held_out = quickstart(as_it_is)
    assert [number for number in plain if held_out[number] != plain[number]] == [6, 7, 8]


@pytest.mark.slow
def test_a_simulation_on_ray_in_which_a_vehicle_leaves(tmp_path):
    for package in ("torch", "sklearn", "flwr", "ray"):
        pytest.importorskip(package, reason="the extra fleet-sim is not installed")
    env = {**os.environ, **QUIET, "PYTHONPATH": str(EXAMPLE), "FLWR_HOME": str(tmp_path)}
    command = [sys.executable, EXAMPLE / "simulate.py"]
    done = subprocess.run(command, capture_output=True, text=True, env=env, cwd=tmp_path, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert len(re.findall(r"mpt: round 2: vehicle .* class 9 (departed|deposited|held-out)", done.stderr)) == 3
    last = done.stderr.split("[ROUND 3/3]")[1].split("MetricRecord: ")[2].splitlines()[0]
    scores = {name: float(value) for name, value in re.findall(r"'([\w-]+)': ([\d.e+-]+)", last)}
    assert (scores["mpt-answered"], scores["mpt-class-9-remaining"]) == (3, 6)
    assert 0 < scores["mpt-class-9-alpha"] < 1
    assert scores["mpt-rare-accuracy"] > max(scores["rare-accuracy"], 0.2)
