"""The server's app as an operator meets it: its state folder, its logs, its second start."""

import json
from datetime import datetime

import pytest

torch = pytest.importorskip("torch", reason="the extra sim is not installed")
pytest.importorskip("flwr", reason="the extra fleet is not installed")

from mpt.fleet.flower.config import AppConfig
from mpt.fleet.flower.server_app import serve
from mpt.fleet.flower.vehicle_app import vehicle_app
from mpt.fleet.status import read_status
from mpt.fleet.store import open_store
from tests.fleet.flower.grids import DirectGrid, identified

SETTINGS = {"dataset": "road?train=12&test=4", "image_size": 28, "num_rounds": 2, "wait": 1.0}

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(autouse=True)
def _identity(monkeypatch):
    identified(monkeypatch)


def run(state, **changed):
    """All rounds of two vehicles."""
    grid = DirectGrid(vehicle_app(**SETTINGS), 2, {p: {"num-partitions": 2} for p in range(2)})
    serve(AppConfig(**{**SETTINGS, "state": str(state), **changed}), grid)


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_round_says_when_it_ended(tmp_path):
    run(tmp_path)
    found = lines(tmp_path / "rounds.jsonl")
    assert [line["round"] for line in found] == [1, 2]
    times = [datetime.fromisoformat(line["time"]) for line in found]
    assert times == sorted(times)
    assert times[-1] <= datetime.fromisoformat(read_status(open_store(tmp_path)).time)
