"""A fleet's status over HTTP."""

import json
import threading
import urllib.error
import urllib.request

import pytest

from mpt.fleet import open_store
from mpt.fleet.health import answer, serving
from mpt.fleet.store import TRACKER
from tests.tracking.fleets import paper_fleet, tracker


@pytest.fixture
def store(tmp_path):
    place, fleet, server = open_store(tmp_path / "state"), paper_fleet(), tracker()
    server.close(fleet.answers(server.request()))
    place.save(server.round, {TRACKER: server.to_bytes()})
    return place


def get(url):
    try:
        with urllib.request.urlopen(url, timeout=30) as found:
            return found.status, found.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_over_http(store, tmp_path):
    with serving(store, "127.0.0.1", 0, 3600) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            root = f"http://127.0.0.1:{server.server_address[1]}"
            status, text = get(f"{root}/healthz")
            assert (status, text.startswith("ok: round 1, ")) == (200, True)
            assert "mpt_fleet_round 1\n" in get(f"{root}/metrics")[1]
            assert json.loads(get(f"{root}/status")[1])["round"] == 1
            status, text = get(f"{root}/secret")
            assert (status, "should be /healthz, /metrics or /status" in text) == (404, True)
        finally:
            server.shutdown()


def test_a_fleet_that_finishes_no_round_is_not_well(store, tmp_path):
    found = answer("/healthz", store, 60, lambda: store.latest().time + 61)
    assert (found.status, found.body) == (503, "round 1 finished 61 s ago and none since, should be at most 60 s\n")
    nothing = answer("/healthz", open_store(tmp_path / "none"), 60)
    assert (nothing.status, "no round has finished here yet" in nothing.body) == (503, True)
