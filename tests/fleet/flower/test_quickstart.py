"""examples/flower_quickstart runs, and its README shows the change that it is."""

import os
import re
import subprocess
import sys
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


@pytest.mark.slow
def test_a_simulation_on_ray_in_which_a_vehicle_leaves(tmp_path):
    for package in ("torch", "sklearn", "flwr", "ray"):
        pytest.importorskip(package, reason="the extra fleet-sim is not installed")
    env = {**os.environ, **QUIET, "PYTHONPATH": str(EXAMPLE), "FLWR_HOME": str(tmp_path)}
    command = [sys.executable, EXAMPLE / "simulate.py"]
    done = subprocess.run(command, capture_output=True, text=True, env=env, cwd=tmp_path, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert len(re.findall(r"mpt: round 2: vehicle \d+ class 9 (departed|deposited|held-out)", done.stderr)) == 3
    last = done.stderr.split("[ROUND 3/3]")[1].split("MetricRecord: ")[2].splitlines()[0]
    scores = {name: float(value) for name, value in re.findall(r"'([\w-]+)': ([\d.e+-]+)", last)}
    assert (scores["mpt-answered"], scores["mpt-class-9-remaining"]) == (3, 6)
    assert 0 < scores["mpt-class-9-alpha"] < 1
    assert scores["mpt-rare-accuracy"] > max(scores["rare-accuracy"], 0.2)
