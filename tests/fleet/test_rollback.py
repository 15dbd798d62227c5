"""Going back to an earlier checkpoint, and which of them there are to go back to."""

import json
import sqlite3
from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpt.base.files import exclusive_lock
from mpt.fleet import FleetError, Tracker
from mpt.fleet.rollback import rollback
from mpt.fleet.store import TRACKER, FileStore, StoreError, kept, open_store
from tests.fleet.test_store import KINDS, damage, make

NOON = datetime(2026, 11, 15, 12, 0, 0, 123456, UTC)
STAMP = "20261115T120000.123456Z"


def saved(kind, folder, rounds, **options):
    store = make(kind, folder, **options)
    for number in rounds:
        store.save(number, {TRACKER: b"%d" % number})
    return store


def aside(store):
    """What was put aside, as (round, time, data)."""
    if isinstance(store, FileStore):
        paths = sorted(store.folder.glob("*.rolled-back-*"))
        parts = [(path.name.split(".checkpoint.rolled-back-"), path.read_bytes()) for path in paths]
        return [(int(name), time, data) for (name, time), data in parts]
    with sqlite3.connect(store.path) as database:
        if not database.execute("SELECT 1 FROM sqlite_master WHERE name = 'rolled_back'").fetchone():
            return []
        return database.execute("SELECT round, time, data FROM rolled_back ORDER BY round").fetchall()


def logged(store):
    path = store.home / "decisions.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_which_are_kept():
    assert kept([]) == set()
    assert kept([3]) == {3}
    assert kept(range(1, 5)) == {1, 2, 3, 4}
    assert kept(range(1, 24)) == {1, 10, 20, 21, 22, 23}
    assert kept(range(1, 1000)) == {800, 900, 980, 990, 997, 998, 999}
    assert kept(range(1, 1000, 2), 1) == {801, 901, 981, 991, 999}


@given(st.integers(1, 600), st.integers(1, 5), st.integers(1, 30))
def test_what_is_kept_is_bounded_and_always_leads_back(last, keep, stride):
    """As rounds come and others go: an older one is dropped only where one before it, or near it, stays."""
    there = set()
    for number in range(1, last + 1, stride):
        there = kept({*there, number}, keep)
        assert len(there) <= keep + 4
        assert there == kept(there, keep)
        assert set(range(1, number + 1, stride)[-keep:]) <= {*there}
        for step in (10, 100):
            if number > 2 * step + (keep + 1) * stride:
                assert any(step <= number - n <= 2 * step + (keep + 2) * stride for n in there)


@pytest.mark.parametrize("kind", KINDS)
def test_a_store_keeps_these(kind, tmp_path):
    assert saved(kind, tmp_path, range(1, 36)).rounds() == (1, 20, 30, 33, 34, 35)


@pytest.mark.parametrize("kind", KINDS)
def test_the_newest_is_put_aside_and_the_one_before_is_latest(kind, tmp_path):
    store = saved(kind, tmp_path, (1, 2, 3))
    said = rollback(make(kind, tmp_path), clock=lambda: NOON)
    assert said == "round 3 is put aside, the next server resumes from round 2"
    again = make(kind, tmp_path)
    assert (again.rounds(), again.latest().payload) == ((1, 2), {TRACKER: b"2"})
    ((number, time, data),) = aside(store)
    assert (number, time, data[-1:]) == (3, STAMP, b"3")
    (line,) = logged(store)
    assert (line["time"], line["round"], line["event"], line["why"]) == (NOON.isoformat(), 2, "rolled-back", said)
    again.save(3, {TRACKER: b"new"})
    assert len(aside(store)) == 1
    rollback(make(kind, tmp_path))
    assert [number for number, _, _ in aside(store)] == [3, 3]


@pytest.mark.parametrize("kind", KINDS)
def test_to_a_round(kind, tmp_path):
    store = saved(kind, tmp_path, range(1, 26))
    said = rollback(store, 20)
    assert said == "rounds 23, 24 and 25 are put aside, the next server resumes from round 20"
    assert store.latest().round == 20
    assert [number for number, _, _ in aside(store)] == [23, 24, 25]
    store.save(21, {})


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_ones_are_no_place_to_go_back_to_and_go_along(kind, tmp_path):
    store = saved(kind, tmp_path, range(1, 7), keep=6, say=lambda _: None)
    for number in (3, 4, 6):
        damage(store, number)
    assert store.latest().round == 5
    with pytest.raises(StoreError, match="there is no whole checkpoint of round 4, whole are: 1, 2, 5"):
        rollback(store, 4)
    assert rollback(store) == "rounds 3, 4, 5 and 6 are put aside, the next server resumes from round 2"
    assert store.latest().round == 2


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_refused_changes_nothing(kind, tmp_path):
    store = saved(kind, tmp_path, (4, 5))
    for to, why in (
        (3, "of round 3, whole are: 4, 5"),
        (5, "round 5 is the last one already"),
        (-1, "round -1, whole"),
    ):
        with pytest.raises(StoreError, match=why):
            rollback(store, to)
    with exclusive_lock(store.home), pytest.raises(FleetError, match=r"state: a server writes to .*; stop it first"):
        rollback(store)
    damage(store, 4)
    with pytest.raises(StoreError, match="there is no earlier checkpoint to go back to, whole are: 5; restore"):
        rollback(store)
    assert (store.rounds(), aside(store), logged(store)) == ((4, 5), [], [])


@pytest.mark.parametrize("kind", KINDS)
def test_of_nothing(kind, tmp_path):
    store = make(kind, tmp_path / "none")
    with pytest.raises(FleetError, match="cannot be locked"):
        rollback(store)
    store.home.mkdir(parents=True)
    with pytest.raises(StoreError, match="no earlier checkpoint to go back to, whole are: none"):
        rollback(store)


def test_what_cannot_be_logged_is_said(tmp_path):
    store = saved("files", tmp_path, (1, 2))
    (store.folder / "decisions.jsonl").mkdir()
    assert "; but this is not logged: log: " in rollback(store)
    assert store.latest().round == 1


@pytest.mark.parametrize("place", ["", "sqlite:"])
def test_the_command(place, tmp_path):
    for package in ("typer", "rich"):
        pytest.importorskip(package, reason="the extra sim is not installed")
    from typer.testing import CliRunner

    from mpt.cli.main import app

    where, store = f"{place}{tmp_path / 'store'}", open_store(f"{place}{tmp_path / 'store'}")

    def call(*arguments):
        return CliRunner().invoke(app, ["fleet", "rollback", *map(str, arguments)], catch_exceptions=False)

    for number in (1, 2, 3):
        store.save(number, {})
    done = call(where, "--to", "7")
    assert done.exit_code == 2
    assert "there is no whole checkpoint of round 7, whole are: 1, 2, 3" in " ".join(done.stderr.split())
    done = call(where, "--to", "1")
    assert (done.exit_code, " ".join(done.output.split())) == (
        0,
        "rounds 2 and 3 are put aside, the next server resumes from round 1",
    )
    assert store.latest().round == 1
    assert call(tmp_path / "none").exit_code == 2


def test_a_server_goes_on_from_there(dataset, tmp_path):
    """With the same vehicles, which have seen the later rounds."""
    pytest.importorskip("torch", reason="the extra sim is not installed")
    from tests.fleet.served import everybody, new_vehicles, server

    vehicles = new_vehicles(dataset)
    whole = list(server(dataset, everybody(vehicles), store=FileStore(tmp_path)).rounds(4))
    rollback(FileStore(tmp_path), 2)
    again = server(dataset, everybody(vehicles), store=FileStore(tmp_path))
    assert again.resume() == 2
    for left, right in zip(again.rounds(4), whole[2:], strict=True):
        np.testing.assert_array_equal(left.outcome.prototypes, right.outcome.prototypes)
    assert Tracker.from_bytes(FileStore(tmp_path).latest().payload[TRACKER]).round == 4
