"""Checkpoints are whole or not there."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpt.fleet import Tracker
from mpt.fleet.store import TRACKER, Checkpoint, FileStore, SqliteStore, StoreError, decode, encode, open_store
from tests.fleet.fleets import paper_fleet, tracker

KINDS = ["files", "sqlite"]


def make(kind, folder, **options):
    return FileStore(folder / "store", **options) if kind == "files" else SqliteStore(folder / "a.db", **options)


def damage(store, round):
    """Change a byte in the middle of a checkpoint."""
    if isinstance(store, FileStore):
        path = store.folder / f"{round:09d}.checkpoint"
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
        return
    with sqlite3.connect(store.path) as database:
        (data,) = database.execute("SELECT data FROM checkpoints WHERE round = ?", (round,)).fetchone()
        database.execute("UPDATE checkpoints SET data = ? WHERE round = ?", (data[:-3] + b"abc", round))


@given(st.integers(0, 10**6), st.dictionaries(st.text(), st.binary(max_size=50), max_size=4), st.data())
def test_what_is_decoded_was_encoded_and_nothing_else_is(round, payload, data):
    encoded = encode(Checkpoint(round, payload))
    assert decode(encoded) == Checkpoint(round, payload)
    at = data.draw(st.integers(0, len(encoded) - 1))
    with pytest.raises(StoreError):
        decode(encoded[:at] + bytes([encoded[at] ^ 1]) + encoded[at + 1 :])
    with pytest.raises(StoreError):
        decode(encoded[:at])


@pytest.mark.parametrize("kind", KINDS)
def test_the_last_ones_are_kept_and_the_latest_is_found(kind, tmp_path):
    store = make(kind, tmp_path, keep=2)
    assert store.latest() is None
    for number in range(1, 6):
        store.save(number, {"model": bytes([number]) * 1000, "tracker": b""})
    assert store.latest() == Checkpoint(5, {"model": b"\5" * 1000, "tracker": b""})
    kept = len(list(store.folder.iterdir())) if kind == "files" else count(store)
    assert kept == 2


def count(store):
    with sqlite3.connect(store.path) as database:
        return database.execute("SELECT count(*) FROM checkpoints").fetchone()[0]


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_one_is_said_and_the_one_before_is_taken(kind, tmp_path):
    said = []
    store = make(kind, tmp_path, say=said.append)
    for number in (7, 8, 9):
        store.save(number, {"x": b"y" * 100})
    damage(store, 9)
    assert store.latest().round == 8
    assert len(said) == 1
    assert "9" in said[0]
    assert "not as it was written" in said[0]
    damage(store, 8)
    damage(store, 7)
    assert store.latest() is None
    store.save(8, {"x": b"again"})
    assert store.latest() == Checkpoint(8, {"x": b"again"})


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_that_began_anew_finds_what_it_saved_last(kind, tmp_path):
    store = make(kind, tmp_path)
    for number in (98, 99, 100, 1):
        store.save(number, {"x": b""})
    assert store.latest().round == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_that_is_killed_while_saving_leaves_a_whole_checkpoint(kind, tmp_path):
    code = f"""
from pathlib import Path
from tests.fleet.test_store import make
store = make({kind!r}, Path({str(tmp_path)!r}))
number = 0
while True:
    number += 1
    store.save(number, {{"x": number.to_bytes(4, "big") * 100_000}})
    print(number, flush=True)
"""
    root = Path(__file__).parents[2]
    server = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=root)
    for _ in range(5):
        finished = int(server.stdout.readline())
    time.sleep(0.003)
    server.send_signal(signal.SIGKILL)
    finished = max([finished, *map(int, server.stdout.read().split())])
    server.wait()
    server.stdout.close()
    found = make(kind, tmp_path).latest()
    assert found.round in (finished, finished + 1)
    assert found.payload == {"x": found.round.to_bytes(4, "big") * 100_000}


def test_a_store_is_named_by_its_place(tmp_path):
    assert open_store(tmp_path / "new") == FileStore(tmp_path / "new")
    store = open_store(f"sqlite:{tmp_path}/deep/fleet.db")
    assert store == SqliteStore(tmp_path / "deep" / "fleet.db")
    store.save(1, {"x": b""})
    assert open_store(tmp_path / "deep" / "fleet.db") == store
    (tmp_path / "text").write_text("no database")
    with pytest.raises(StoreError, match="no SQLite database"):
        open_store(tmp_path / "text")
    with pytest.raises(StoreError, match="without a path"):
        open_store("sqlite:")


def test_wrong_calls_and_places_are_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be written"):
        FileStore(tmp_path / "file").save(1, {})
    (tmp_path / "bad.db").write_bytes(b"SQLite format 3\x00" + os.urandom(5000))
    for call in (SqliteStore(tmp_path / "bad.db").latest, lambda: SqliteStore(tmp_path / "bad.db").save(1, {})):
        with pytest.raises(StoreError, match="cannot be"):
            call()
    with pytest.raises(StoreError, match="keep"):
        FileStore(tmp_path, keep=0)
    for wrong in (-1, "3", 1.5, True):
        with pytest.raises(StoreError, match="round"):
            FileStore(tmp_path).save(wrong, {})


@pytest.mark.parametrize("kind", KINDS)
def test_a_tracker_goes_on_from_a_store(kind, tmp_path):
    fleet, server, store = paper_fleet(), tracker(), make(kind, tmp_path)
    for _ in range(3):
        server.close(fleet.answers(server.request()))
        store.save(server.round, {TRACKER: server.to_bytes()})
    again = Tracker.from_bytes(store.latest().payload[TRACKER])
    assert again.to_bytes() == server.to_bytes()
