"""The server's app as an operator meets it: its state folder, its logs, its second start."""

import json
import os
from datetime import datetime

import pytest

torch = pytest.importorskip("torch", reason="the extra sim is not installed")
pytest.importorskip("flwr", reason="the extra fleet is not installed")

import mpt
from mpt.fleet import FleetError, Tracker
from mpt.fleet.flower.config import AppConfig
from mpt.fleet.flower.server_app import loss_of, serve
from mpt.fleet.flower.tracking import Tracking
from mpt.fleet.flower.vehicle_app import vehicle_app
from mpt.fleet.status import read_status
from mpt.fleet.store import open_store
from tests.fleet.flower.grids import DirectGrid, identified

SETTINGS = {"dataset": "road?train=12&test=4", "image_size": 28, "num_rounds": 2, "timeout": 1.0}

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(autouse=True)
def _identity(monkeypatch):
    identified(monkeypatch)


def run(state, **changed):
    """All rounds of two vehicles."""
    grid = DirectGrid(vehicle_app(**SETTINGS), 2, {p: {"num-partitions": 2} for p in range(2)})
    serve(AppConfig(**{**SETTINGS, "state": str(state), **changed}), grid)


def resumed(state):
    (said,) = [line["why"] for line in lines(state / "decisions.jsonl") if line["event"] == "resumed"]
    return said


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_round_says_when_it_ended(tmp_path):
    run(tmp_path)
    found = lines(tmp_path / "rounds.jsonl")
    assert [line["round"] for line in found] == [1, 2]
    times = [datetime.fromisoformat(line["time"]) for line in found]
    assert times == sorted(times)
    assert times[-1] <= datetime.fromisoformat(read_status(open_store(tmp_path)).time)


def test_a_new_release_resumes_and_says_so(tmp_path, monkeypatch):
    before = mpt.__version__
    run(tmp_path, num_rounds=1)
    monkeypatch.setattr("mpt.fleet.flower.server_app.__version__", "99.1")
    run(tmp_path)
    assert f"which mpt {before} has written; this is mpt 99.1" in resumed(tmp_path)
    assert read_status(open_store(tmp_path)).round == 2
    assert json.loads(open_store(tmp_path).latest().payload["key"])["mpt"] == "99.1"


def test_a_setting_that_an_older_release_did_not_have_is_said(tmp_path):
    run(tmp_path, num_rounds=1)
    store = open_store(tmp_path)
    payload = dict(store.latest().payload)
    key = json.loads(payload["key"])
    del key["ridge"]
    store.save(1, {**payload, "key": json.dumps(key).encode()})
    run(tmp_path)
    assert resumed(tmp_path).endswith("; settings that only one of both knows: ridge")
    with pytest.raises(FleetError, match=r"it holds a fleet with lr 0\.01, not 0\.5"):
        run(tmp_path, num_rounds=3, lr=0.5)


@pytest.mark.parametrize("kind", ["", "sqlite:"])
def test_what_it_writes_is_for_its_owner_only(tmp_path, kind):
    before = os.umask(0o022)
    try:
        folder = tmp_path / "state"
        run(f"{kind}{folder}{'/fleet.db' if kind else ''}", num_rounds=1)
    finally:
        os.umask(before)
    checkpoint = "fleet.db" if kind else "000000001.checkpoint"
    modes = {path.name: path.stat().st_mode & 0o777 for path in [folder, *folder.iterdir()]}
    assert modes == {"state": 0o700, checkpoint: 0o600, "decisions.jsonl": 0o600, "rounds.jsonl": 0o600}


def test_an_sqlite_file_may_be_named_as_such(tmp_path):
    run(f"sqlite:{tmp_path}/fleet.db", num_rounds=1)
    run(tmp_path / "fleet.db")
    assert read_status(open_store(tmp_path / "fleet.db")).round == 2
    assert [line["round"] for line in lines(tmp_path / "rounds.jsonl")] == [1, 2]
    with pytest.raises(FleetError, match="is a file but no SQLite database, should be one or a folder"):
        run(tmp_path / "rounds.jsonl")
    with pytest.raises(
        FleetError, match=r"state: .* cannot be made \(Not a directory\), should be a folder or sqlite:PATH"
    ):
        run(tmp_path / "rounds.jsonl" / "state")


def test_vehicles_minimise_what_the_method_says_or_else_the_configuration():
    assert loss_of(AppConfig()) == "cross-entropy"
    assert loss_of(AppConfig(loss="fedlc(tau=0.3)")) == "fedlc(tau=0.3)"
    assert loss_of(AppConfig(method="fedlc")) == "fedlc"
    with pytest.raises(FleetError, match=r"loss: 'fedcl' is none, did you mean fedlc\?"):
        loss_of(AppConfig(loss="fedcl"))


def test_a_deployment_does_not_believe_vehicles_who_they_are(tmp_path):
    from flwr.superlink.grid import HttpGrid
    from flwr.superlink.grid.inmemory_grid import InMemoryGrid

    def attempt(grid, ids):
        serve(AppConfig(**{**SETTINGS, "dataset": "no such"}, vehicle_ids=ids, state=str(tmp_path / "state")), grid)

    said = r'^config: vehicle-ids = "partition" in a deployment, where any .* another; it is .*, should be "node"$'
    with pytest.raises(FleetError, match=said):
        attempt(HttpGrid(token="a token"), "partition")
    with pytest.raises(FleetError, match=r'^ids = "partition" in a deployment'):
        Tracking(HttpGrid(token="a token"), Tracker(num_classes=3, dim=4), ids="partition")
    assert not (tmp_path / "state").exists()
    for grid, ids in ((HttpGrid(token="a token"), "node"), (object.__new__(InMemoryGrid), "partition")):
        with pytest.raises(mpt.MptError, match="no such"):
            attempt(grid, ids)
