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
from tests.tracking.fleets import paper_fleet, tracker

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
    assert store.rounds() == (1, 4, 5)
    assert len(contents(store)) == 3


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
    assert store.latest().round == 7
    store.save(8, {"x": b"again"})
    assert store.latest() == Checkpoint(8, {"x": b"again"})
    said.clear()
    store.save(9, {"x": b"again"})
    assert store.latest().round == 9
    assert said == []


@pytest.mark.parametrize("kind", KINDS)
def test_where_none_can_be_read_nobody_begins_anew(kind, tmp_path):
    store = make(kind, tmp_path)
    for number in (18, 19, 20):
        store.save(number, {"x": b"y" * 100})
        damage(store, number)
    before = contents(store)
    for call in (store.latest, lambda: store.save(1, {"x": b""})):
        with pytest.raises(StoreError, match=r"no checkpoint can be read: .*20.*19.*18.*; restore it from a backup"):
            call()
    assert contents(store) == before


@pytest.mark.parametrize("kind", KINDS)
def test_a_round_below_what_is_there_is_refused(kind, tmp_path):
    store = make(kind, tmp_path, say=lambda _: None)
    for number in (98, 99, 100):
        store.save(number, {"x": b""})
    damage(store, 100)
    before = contents(store)
    with pytest.raises(StoreError, match="it holds round 99, so one that is at round 1 would undo it"):
        store.save(1, {"x": b""})
    assert contents(store) == before


def contents(store):
    if isinstance(store, FileStore):
        return {path.name: path.read_bytes() for path in store.folder.iterdir()}
    with sqlite3.connect(store.path) as database:
        return dict(database.execute("SELECT round, data FROM checkpoints"))


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_file_is_no_new_place(kind, tmp_path):
    store = make(kind, tmp_path)
    store.save(3, {"x": b"y"})
    path = store.folder / "000000003.checkpoint" if kind == "files" else store.path
    path.write_bytes(b"")
    with pytest.raises(StoreError, match="restore it"):
        store.latest()
    path.unlink()
    assert store.latest() is None


def test_files_that_cannot_be_opened_are_no_new_place(tmp_path):
    (tmp_path / "000000003.checkpoint").mkdir()
    with pytest.raises(StoreError, match=r"cannot be read \(Is a directory\); restore it"):
        FileStore(tmp_path).latest()
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"cannot be read \(Not a directory\)"):
        FileStore(tmp_path / "file").latest()


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
