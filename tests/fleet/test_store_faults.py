"""A store with something in it that is not its own, or not right."""

import hashlib
import io
import json
import sqlite3
import zipfile
from dataclasses import replace

import numpy as np
import pytest

from mpt.fleet import FleetError, Tracker
from mpt.fleet.checkpoint import Checkpoint, OtherReleaseError, StoreError, decode, json_object, json_texts, read_part
from mpt.fleet.reference_models import model_in, models_in, packed, unpacked
from mpt.fleet.status import read_status
from mpt.fleet.store import TRACKER, FileStore
from tests.fleet.test_store import KINDS, contents, damage, make
from tests.tracking.fleets import paper_fleet, tracker

BACK = "; mpt fleet rollback goes back to the checkpoint before it"
NEWER = r"written by a newer release of mpt \(store 2, this one reads 1\); update mpt, or give another place"


def saved(kind, folder, rounds, **options):
    store = make(kind, folder, **options)
    for number in rounds:
        store.save(number, {"x": b"y" * 50})
    return store


def put(store, round, data):
    """Bytes in the place of a round's checkpoint."""
    if isinstance(store, FileStore):
        (store.folder / f"{round:09d}.checkpoint").write_bytes(data)
        return
    with sqlite3.connect(store.path) as database:
        database.execute("INSERT OR REPLACE INTO checkpoints VALUES (?, ?)", (round, data))


def signed(header, rest=b""):
    """Bytes with a right SHA-256, whatever they say."""
    header = header if isinstance(header, bytes) else json.dumps(header).encode()
    content = len(header).to_bytes(8, "little") + header + rest
    return b"MPT store 1\n" + hashlib.sha256(content).digest() + content


# another release


@pytest.mark.parametrize("newer", [1, 12, 13, 20])
@pytest.mark.parametrize("kind", KINDS)
def test_one_of_a_newer_release_is_neither_passed_over_nor_removed(kind, newer, tmp_path):
    said = []
    store = saved(kind, tmp_path, range(1, 14), say=said.append)
    put(store, newer, b"MPT store 2\n" + b"whatever it has" * 10)
    before = contents(store)
    for one in (store, make(kind, tmp_path)):
        for call in (one.latest, one.whole, lambda one=one: one.save(14, {}), lambda one=one: one.save(1, {})):
            with pytest.raises(OtherReleaseError, match=NEWER) as caught:
                call()
            assert str(caught.value).startswith(f"store: {tmp_path}")
    assert (contents(store), said) == (before, [])


def test_any_other_number_is_refused_and_none_is_damage():
    for number in (0, 3, 999):
        with pytest.raises(OtherReleaseError, match=rf"\(store {number}, this one reads 1\)"):
            decode(b"MPT store %d\n" % number)
    with pytest.raises(StoreError, match="does not begin as a checkpoint"):
        decode(b"MPT store x\n")


# names


def test_stray_names_do_not_count_and_are_left_alone(tmp_path):
    store = saved("files", tmp_path, (10, 11))
    strays = ["9.checkpoint", "5-old.checkpoint", "0000000099.checkpoint", "000000099.checkpoint.rolled-back-x", "99"]
    for name in strays:
        (store.folder / name).write_bytes((store.folder / "000000010.checkpoint").read_bytes())
    again = FileStore(store.folder)
    assert (again.rounds(), again.latest().round) == ((10, 11), 11)
    for number in range(12, 18):
        again.save(number, {})
    assert again.latest().round == 17
    assert sorted(contents(store)) == sorted([*strays, *(f"{n:09d}.checkpoint" for n in (10, 15, 16, 17))])


@pytest.mark.parametrize("kind", KINDS)
def test_a_copy_under_another_round_is_damaged(kind, tmp_path):
    said = []
    store = saved(kind, tmp_path, (4, 5), say=said.append)
    copy = contents(store)
    put(store, 9, copy["000000005.checkpoint" if kind == "files" else 5])
    assert store.latest().round == 5
    assert "is damaged (it says that it is of round 5)" in said[0]


# two writers


def refused(store, round):
    with pytest.raises(StoreError, match="another server writes to") as caught:
        store.save(round, {"x": b"mine"})
    return str(caught.value)


@pytest.mark.parametrize("kind", KINDS)
def test_the_second_of_two_writers_is_refused(kind, tmp_path):
    first, second = make(kind, tmp_path), make(kind, tmp_path)
    assert first.latest() is second.latest() is None
    first.save(1, {"x": b"first"})
    before = contents(first)
    for number in (1, 2):
        assert refused(second, number).endswith(
            "round 1 there is not what this one has read or written; stop one of the two, or give another place"
        )
    assert contents(first) == before
    first.save(2, {"x": b"first"})
    refused(second, 3)


@pytest.mark.parametrize("kind", KINDS)
def test_whoever_was_overwritten_or_overtaken_is_refused_too(kind, tmp_path):
    first, second = saved(kind, tmp_path, (1, 2)), make(kind, tmp_path)
    assert second.latest().round == 2
    second.save(2, {"x": b"second"})
    refused(first, 3)
    second.save(3, {"x": b"second"})
    refused(first, 3)
    refused(first, 4)
    assert second.latest() == Checkpoint(3, {"x": b"second"})
    assert first.latest().round == 3
    first.save(4, {})


@pytest.mark.parametrize("kind", KINDS)
def test_one_that_has_not_looked_may_only_go_on(kind, tmp_path):
    saved(kind, tmp_path, (5, 6))
    refused(make(kind, tmp_path), 6)
    with pytest.raises(StoreError, match="it holds round 6, so one that is at round 5 would undo it"):
        make(kind, tmp_path).save(5, {})
    later = make(kind, tmp_path)
    later.save(7, {})
    later.save(7, {"x": b"again"})
    later.save(8, {})
    assert make(kind, tmp_path) == later


@pytest.mark.parametrize("kind", KINDS)
def test_damage_since_is_not_another_writer(kind, tmp_path):
    store = saved(kind, tmp_path, (1, 2), say=lambda _: None)
    put(store, 2, b"nonsense")
    store.save(3, {"x": b"y"})
    damage(store, 3)
    store.save(4, {})
    assert make(kind, tmp_path).latest().round == 4


@pytest.mark.parametrize("kind", KINDS)
def test_an_older_one_that_is_put_back_is_no_other_writer(kind, tmp_path):
    old = next(iter(contents(saved(kind, tmp_path / "backup", (2,))).values()))
    store = saved(kind, tmp_path, (3, 4))
    put(store, 2, old)
    store.save(5, {})
    assert store.rounds() == (2, 3, 4, 5)


@pytest.mark.parametrize("kind", KINDS)
def test_later_ones_that_are_damaged_go_with_the_next_save(kind, tmp_path):
    store = saved(kind, tmp_path, (3, 4, 5, 6), say=lambda _: None)
    damage(store, 5)
    damage(store, 6)
    assert store.latest().round == 4
    store.save(5, {})
    assert store.rounds() == (3, 4, 5)


@pytest.mark.parametrize("kind", KINDS)
def test_a_writer_whose_last_round_is_gone_is_refused_but_where_nothing_is_left(kind, tmp_path):
    store, other = saved(kind, tmp_path, (1, 2, 3)), make(kind, tmp_path)
    other.put_aside([3], "now")
    with pytest.raises(StoreError, match=r"round 3, which this server .* is no longer in .*: it was rolled back"):
        store.save(4, {})
    assert store.latest().round == 2
    store.save(3, {})
    other.put_aside([1, 2, 3], "later")
    store.save(4, {})
    assert store.rounds() == (4,)


# what is wrong inside


WRONG = {
    "no JSON": signed(b"{nonsense"),
    "deep": signed(b"[" * 100_000),
    "no UTF-8": signed(b"\xff\xfe"),
    "a list": signed([1, 2]),
    "no header": signed(b""),
    "nothing": b"MPT store 1\n" + hashlib.sha256(b"").digest(),
    "short": b"MPT store 1\n" + hashlib.sha256(b"abc").digest() + b"abc",
    "long header": b"MPT store 1\n" + hashlib.sha256(b"\xff" * 9).digest() + b"\xff" * 9,
    "no round": signed({"parts": []}),
    "round a text": signed({"round": "3", "parts": []}),
    "round true": signed({"round": True, "parts": []}),
    "round below 0": signed({"round": -1, "parts": []}),
    "time a text": signed({"round": 9, "time": "noon", "parts": []}),
    "time not finite": signed(b'{"round": 9, "time": NaN, "parts": []}'),
    "time without end": signed(b'{"round": 9, "time": 1%s, "parts": []}' % (b"0" * 400)),
    "no parts": signed({"round": 9}),
    "parts a number": signed({"round": 9, "parts": 3}),
    "part a text": signed({"round": 9, "parts": ["ab"]}, b"ab"),
    "part's name": signed({"round": 9, "parts": [[3, 2]]}, b"ab"),
    "part's size": signed({"round": 9, "parts": [["x", "2"]]}, b"ab"),
    "below 0": signed({"round": 9, "parts": [["x", -2], ["y", 4]]}, b"ab"),
    "beyond": signed({"round": 9, "parts": [["x", 2], ["y", 4]]}, b"ab"),
    "left": signed({"round": 9, "parts": [["x", 1]]}, b"ab"),
    "twice": signed({"round": 9, "parts": [["x", 1], ["x", 1]]}, b"ab"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_header_under_a_right_digest_is_damage(wrong, tmp_path):
    said = []
    store = saved("files", tmp_path, (7, 8), say=said.append)
    put(store, 9, WRONG[wrong])
    assert store.latest().round == 8
    assert "is damaged (its " in said[0]
    store.save(9, {"x": b"right"})
    assert make("files", tmp_path).latest() == Checkpoint(9, {"x": b"right"})


@pytest.mark.parametrize("data", ["text", 3])
def test_a_row_that_is_no_blob_is_damage(data, tmp_path):
    store = saved("sqlite", tmp_path, (7, 8), say=lambda _: None)
    put(store, 9, data)
    put(store, -3, b"stray")
    assert store.latest().round == 8
    store.save(9, {})
    assert store.rounds() == (7, 8, 9)


def test_a_part_that_is_wrong_is_one_sentence():
    found = Checkpoint(7, {"key": b"[1]", "nodes": b'{"a": 3}', TRACKER: b"junk"})
    for name, read, why in (
        ("key", json_object, r"the JSON \[1\], should be an object"),
        ("nodes", json_texts, "a JSON object in which 'a' is 3, should be a text"),
        (TRACKER, Tracker.from_bytes, "Tracker bytes: .*"),
        ("key", lambda data: [][len(data)], "IndexError: list index out of range"),
        ("key", lambda data: 1 // 0, "ZeroDivisionError: .*"),
    ):
        with pytest.raises(StoreError, match=rf"^store: the part '{name}' of round 7 is wrong \({why}\){BACK}$"):
            read_part(found, name, read)
    with pytest.raises(StoreError, match=f"^store: round 7 has no part 'model'{BACK}$"):
        read_part(found, "model", unpacked)
    assert json_texts(b'{"a": "b"}') == {"a": "b"}


MODEL = {"w": np.ones((2, 3), np.float32), "n": np.array(4)}


def zipped(method=zipfile.ZIP_STORED, name="w.npy", content=b""):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as file:
        file.writestr(name, content)
    return buffer.getvalue()


def bare(array, **options):
    buffer = io.BytesIO()
    np.save(buffer, array, **options)
    return buffer.getvalue()


HUGE = bare(np.zeros(3)).replace(b"(3,), }" + b" " * 12, b"(3000000000000,), }")

BAD_MODELS = {
    "nothing": (b"", "no .npz file"),
    "nonsense": (b"nonsense" * 9, "no .npz file"),
    "cut": (packed(MODEL)[:-30], "no .npz file"),
    "one array": (bare(np.ones(3)), "no .npz file"),
    "pickle": (zipped(content=bare(np.array([{}], object), allow_pickle=True)), "Object arrays cannot be loaded"),
    "no array": (zipped(content=b"text"), "no array"),
    "another name": (zipped(name="readme.txt", content=b"text"), "no array"),
    "header": (zipped(content=b"\x93NUMPY\x01\x00\x09\x00{nonsense"), "no .npz file"),
    "bomb": (zipped(zipfile.ZIP_DEFLATED, content=bare(np.zeros(10**6))), "bytes that stand for 8000128"),
    "empty lie": (zipped(content=HUGE), "no .npz file"),
}


@pytest.mark.parametrize("wrong", BAD_MODELS)
def test_a_model_that_is_none_is_refused_and_not_inflated(wrong):
    data, why = BAD_MODELS[wrong]
    with pytest.raises(FleetError, match=why):
        unpacked(data)
    found = Checkpoint(7, {"model": data, "model of round 4": data})
    with pytest.raises(StoreError, match=rf"^store: the part 'model' of round 7 is wrong \(.*\){BACK}$"):
        model_in(found, MODEL)
    with pytest.raises(StoreError, match=rf"^store: the part 'model of round 4' of round 7 is wrong \(.*\){BACK}$"):
        models_in(found)


def test_a_model_of_other_arrays_is_refused():
    right = Checkpoint(7, {"model": packed(MODEL), "model of round 4": packed(MODEL)})
    assert np.array_equal(model_in(right, MODEL)["w"], MODEL["w"])
    assert list(models_in(right)) == [4]
    for like, why in (
        ({"w": MODEL["w"]}, r"its array 'n' is int \(\), should be none"),
        ({**MODEL, "b": MODEL["w"]}, r"its array 'b' is none, should be float \(2, 3\)"),
        ({**MODEL, "w": MODEL["w"].T}, r"its array 'w' is float \(2, 3\), should be float \(3, 2\)"),
        ({**MODEL, "n": np.array(True)}, r"its array 'n' is int \(\), should be bool \(\)"),
    ):
        with pytest.raises(StoreError, match=why):
            model_in(right, like)
    with pytest.raises(StoreError, match="its name is 'model of round x', should be 'model of round ' and a number"):
        models_in(replace(right, payload={"model of round x": packed(MODEL)}))


@pytest.mark.parametrize("kind", KINDS)
def test_the_status_of_a_wrong_tracker_is_one_sentence(kind, tmp_path):
    store, server = make(kind, tmp_path), tracker()
    server.close(paper_fleet().answers(server.request()))
    store.save(1, {TRACKER: server.to_bytes()})
    store.save(2, {TRACKER: b"junk"})
    with pytest.raises(StoreError, match=rf"the part 'tracker' of round 2 is wrong \(.*\){BACK}$"):
        read_status(store)


@pytest.mark.parametrize(
    ("part", "data"),
    [("key", b"{"), ("key", b"[]"), ("model", b"no zip"), ("nodes", b"[1]"), ("nodes", b"{"), (TRACKER, b"junk")],
)
def test_a_server_does_not_resume_from_a_wrong_part(part, data, dataset, tmp_path):
    pytest.importorskip("torch", reason="the extra sim is not installed")
    from tests.fleet.served import server

    fresh = server(dataset, {}, store=FileStore(tmp_path))
    fresh.store.save(5, {**fresh.checkpoint(), part: data})
    with pytest.raises(FleetError, match=rf"the part '{part}' of round 5 is wrong \(.*\){BACK}$"):
        fresh.resume()
