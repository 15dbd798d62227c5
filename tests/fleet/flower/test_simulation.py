"""Flower's simulation gives what the one-machine engine gives."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

for package in ("torch", "flwr", "ray"):
    pytest.importorskip(package, reason="the extra fleet-sim is not installed")

from mpt.fleet.status import read_status
from mpt.fleet.store import open_store


@pytest.mark.slow
@pytest.mark.parametrize("method", ["mpt", "mpt-x", "icarl", "ldc:all"])
def test_eight_vehicles_have_the_engines_prototypes_for_three_rounds(tmp_path, method):
    script = Path(__file__).with_name("simulated.py")
    quiet = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path), method],
        env={**os.environ, **quiet, "FLWR_HOME": str(tmp_path / "flower")},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert len(found["apart"]) == 3
    assert found["apart"][0] < 1e-6
    assert max(found["apart"]) < 1e-3  # updates are averaged as they arrive: a last bit of float32 grows in training
    assert found["updated"] == [8, 8, 7]
    decided = [what for number, what in found["decisions"] if number == 2]
    referenced = method in ("mpt-x", "ldc:all")
    assert decided == ["departed", "deposited", *["referenced"] * referenced, "held-out"]
    status = read_status(open_store(tmp_path))
    assert status.round == 3
    (tracked,) = [c.tracked for c in status.classes if c.tracked is not None]
    assert tracked.reference_round == (2 if referenced else None)
    assert (tracked.verdict is not None) == method.startswith("mpt")
    lines = [json.loads(line) for line in (tmp_path / "rounds.jsonl").read_text().splitlines()]
    assert [line["round"] for line in lines] == [1, 2, 3]
    assert lines[0]["time"] < lines[1]["time"] < lines[2]["time"] < status.time
