"""What an operator sees."""

import hashlib
import json
import re
import shutil
import subprocess

import numpy as np
import pytest

from mpt.core.health import VERDICTS
from mpt.fleet.metrics import prometheus
from mpt.fleet.status import read_status, status_of
from mpt.fleet.store import TRACKER, Checkpoint, FileStore, StoreError, decode, open_store
from tests.tracking.fleets import RARE, Fleet, paper_fleet, tracker


@pytest.fixture(params=["mpt", "lite"])
def server(request):
    """The rare class's vehicle is gone since round 4, "b" is missing, "c" talks nonsense in the last round, 7."""
    fleet, server = paper_fleet(), tracker(grace=1, variant=request.param)
    for there in ["abcd"] * 3 + ["bcd"] * 3 + ["d"]:
        answers = fleet.answers(server.request(), there)
        server.close(answers if there != "d" else {**answers, "c": b"nonsense"})
    return server


def test_it_says_who_is_there_and_what_hangs_on_one(server):
    status = status_of(server.state)
    assert status.round == 7
    assert [(v.vehicle, v.state, v.since, v.seen) for v in status.vehicles] == [
        ("d", "present", 1, 7),
        ("c", "refused", 7, 6),
        ("b", "suspected", 7, 6),
        ("a", "departed", 5, 3),
    ]
    assert "truncated" in status.vehicles[1].why
    assert status.refusals == {"format": 1}
    rare = status.classes[RARE]
    assert (rare.samples, rare.watched_since, rare.hangs) == (6, 2, False)
    assert (rare.tracked.state, rare.tracked.since, rare.tracked.deposit_round) == ("departed", 4, 3)
    assert (rare.tracked.owners, rare.tracked.samples_then, rare.tracked.prototype_round) == (("a",), 106, 7)
    assert (rare.tracked.remaining, rare.tracked.stale) == (2, 2)
    assert "vehicle c: " in status.problems[0]
    assert "class 2: 2 of 4 remaining samples are remembered from round 6" in status.problems
    written = json.loads(json.dumps(status.as_json(), allow_nan=False))
    assert (written["round"], written["classes"][RARE]["tracked"]["stale"]) == (7, 2)


def test_how_far_the_prototype_has_moved(server):
    state = server.state
    tracked = status_of(state).classes[RARE].tracked
    step = state.prototypes[RARE] - state.tracked[RARE].deposit.prototype
    assert tracked.moved == pytest.approx(np.linalg.norm(step))
    if not state.settings.asks.scatter:
        assert tracked.moved_mahalanobis is None
        return
    s = state.snapshot.everybody.covariance()
    regular = s + 0.1 * np.trace(s) / len(s) * np.eye(len(s))
    assert tracked.moved_mahalanobis == pytest.approx(np.sqrt(step @ np.linalg.solve(regular, step)))


SAMPLE = re.compile(
    r'[a-z0-9_]+(\{[a-z]+="(?:[^"\\\n]|\\["\\n])*"(,[a-z]+="(?:[^"\\\n]|\\["\\n])*")*\})? (-?[0-9.e+-]+|NaN)'
)


def test_prometheus_text(server):
    text = prometheus(status_of(server.state))
    assert text.endswith("\n")
    seen = []
    for line in text.splitlines():
        if line.startswith("# "):
            _, kind, name, *words = line.split()
            assert kind in ("HELP", "TYPE")
            counter = name.endswith("_total")
            assert words == ["counter" if counter else "gauge"] if kind == "TYPE" else words
            seen.append((kind, name))
        else:
            assert SAMPLE.fullmatch(line), line
            assert line.startswith(seen[-1][1])
    assert len(set(seen)) == len(seen)
    assert 'mpt_fleet_vehicles{state="suspected"} 1' in text
    assert 'mpt_fleet_vehicle_since_round{vehicle="a"} 5' in text
    assert 'mpt_fleet_vehicle_state{vehicle="a",state="departed"} 1' in text
    assert 'mpt_fleet_vehicle_state{vehicle="a",state="present"} 0' in text
    assert f'mpt_fleet_class_deposited_round{{class="{RARE}"}} 4' in text
    assert f'mpt_fleet_class_state{{class="{RARE}",state="departed"}} 1' in text
    assert 'mpt_fleet_class_state{class="0",state="trained"} 1' in text
    assert 'mpt_fleet_class_expected_error{class="0"} NaN' in text
    assert f'mpt_fleet_class_remaining_samples{{class="{RARE}",known="stale"}} 2' in text
    assert f'mpt_fleet_prototype_moved{{class="{RARE}",metric="euclidean"}}' in text
    assert f"mpt_fleet_problems {len(server.state.problems)}\n" in text
    assert 'mpt_fleet_refusals_total{reason="format"} 1\n' in text
    assert 'mpt_fleet_refusals_total{reason="impossible"} 0\n' in text


def series(text):
    """The series of a text, without their values."""
    return {line.rpartition(" ")[0] for line in text.splitlines() if not line.startswith("#")}


@pytest.mark.parametrize("variant", ["mpt", "lite"])
def test_series_stay_the_same_whatever_happens_to_vehicles_and_classes(variant):
    """A vehicle leaves, its class is deposited, held out, and recovers when it is back: nothing is renamed."""
    fleet, server = paper_fleet(), tracker(grace=1, variant=variant, watch=(RARE,))
    seen = []
    for there in ["abcd"] * 3 + ["bcd"] * 3 + ["abcd"] * 2:
        server.close(fleet.answers(server.request(), there))
        seen.append(series(prometheus(status_of(server.state, scores={"accuracy": 0.5, "f1": {str(RARE): 0.25}}))))
    assert all(found == seen[0] for found in seen)
    states = [line for line in seen[0] if "state=" in line]
    assert len(states) == 7 + 7 * 4 + 3 * server.settings.num_classes


def test_scores_stand_where_the_server_has_test_samples(server):
    status = status_of(server.state, scores={"accuracy": 0.5, "f1": {str(RARE): 0.25, "0": None}})
    assert status.accuracy == 0.5
    assert [c.f1 for c in status.classes][:3] == [None, None, 0.25]
    text = prometheus(status)
    assert f'mpt_fleet_class_f1{{class="{RARE}"}} 0.25\n' in text
    assert 'mpt_fleet_class_f1{class="0"} NaN\n' in text
    assert "mpt_fleet_accuracy 0.5\n" in text
    assert "f1" not in prometheus(status_of(server.state))


@pytest.mark.parametrize(
    "scores", [b"null", b"[]", b"not JSON", b"{}", b'{"f1": 3, "accuracy": NaN}', b'{"f1": {"0": NaN, "1": "x"}}']
)
def test_scores_that_are_none_do_not_hide_the_fleet(server, scores, tmp_path):
    store = FileStore(tmp_path)
    store.save(server.round, {"tracker": server.to_bytes(), "scores": scores})
    status = read_status(store)
    assert status.accuracy is None
    assert {c.f1 for c in status.classes} == {None}


def test_names_of_vehicles_and_classes():
    fleet = paper_fleet()
    server = tracker(class_names=("car", "van", "truck", "bus", "bike", "tram"))
    outcome = server.close(fleet.answers(server.request()), names={"a": "vehicle-7"})
    assert "round 1: vehicle vehicle-7 (a) class truck watched: the vehicle holds" in "\n".join(
        map(str, outcome.decisions)
    )
    status = status_of(server.state)
    assert [(v.vehicle, v.name) for v in status.vehicles][:2] == [("a", "vehicle-7"), ("b", "")]
    assert (status.classes[RARE].name, status.classes[RARE].holder_name) == ("truck", "vehicle-7")
    assert 'mpt_fleet_vehicle_info{vehicle="a",name="vehicle-7"} 1' in prometheus(status)
    for there in ("abcd", "bcd"):
        outcome = server.close(
            fleet.answers(server.request(), there), absent={"a": "report: error 5: Node Unavailable"}
        )
    said = "\n".join(map(str, outcome.decisions))
    assert "vehicle vehicle-7 (a) class truck suspected: report: error 5: Node Unavailable" in said
    assert "vehicle vehicle-7 (a) class truck deposited: made from" in said
    again = type(server).from_bytes(server.to_bytes())
    assert again.state.decisions == server.state.decisions
    assert again.settings == server.settings
    assert again.roster == server.roster


@pytest.fixture
def promtool():
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("promtool is not installed (Debian's package prometheus)")
    return found


def test_promtool_finds_nothing_wrong(server, promtool):
    text = prometheus(status_of(server.state, time=1.5e9, scores={"accuracy": 0.5, "f1": {str(RARE): 0.25}}))
    done = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.fixture
def crossed():
    """The rare class is tracked by cross moments, and since the last round "b" to "d" have them."""
    fleet, server = paper_fleet(), tracker(grace=1, variant="cross", watch=(RARE,))
    for there in ["abcd"] * 3 + ["bcd"] * 3:
        outcome = server.close(fleet.cross_answers(server.question(), there))
    return server, outcome.reconstructions[RARE]


def test_how_far_a_tracked_prototype_can_be_trusted(crossed):
    server, made = crossed
    tracked = status_of(server.state).classes[RARE].tracked
    assert (tracked.reference_round, tracked.verdict) == (3, made.verdict)
    assert tracked.expected_error == made.expected_error > 0
    text = prometheus(status_of(server.state))
    assert f'mpt_fleet_class_expected_error{{class="{RARE}"}} {made.expected_error!r}\n' in text
    given = dict(re.findall(rf'mpt_fleet_class_verdict{{class="{RARE}",verdict="(\w+)"}} (\d)', text))
    assert given == dict.fromkeys(VERDICTS, "0") | {made.verdict: "1"}
    assert all(SAMPLE.fullmatch(line) for line in text.splitlines() if not line.startswith("#"))


def test_without_cross_moments_in_the_last_round_the_error_is_that_of_mpt(crossed):
    server, before = crossed
    outcome = server.close(paper_fleet().cross_answers(server.question(), "bcd", lacking="bcd"))
    made, tracked = outcome.reconstructions[RARE], status_of(server.state).classes[RARE].tracked
    assert (tracked.reference_round, tracked.verdict, tracked.expected_error) == (3, made.verdict, made.expected_error)
    assert made.expected_error > 2 * before.expected_error


def test_labels_are_escaped():
    server = tracker()
    fleet = Fleet({'a"b\\c\nd': {0: 9, 1: 9, 2: 9}})
    server.close(fleet.answers(server.request()))
    text = prometheus(status_of(server.state))
    assert r'vehicle="a\"b\\c\nd"' in text
    assert all(SAMPLE.fullmatch(line) for line in text.splitlines() if not line.startswith("#"))


def test_a_store_without_a_tracker(tmp_path):
    store = FileStore(tmp_path)
    with pytest.raises(StoreError, match="no round has finished here yet"):
        read_status(store)
    store.save(3, {"model": b""})
    with pytest.raises(StoreError, match="round 3 has model, should have 'tracker'"):
        read_status(store)


@pytest.mark.parametrize("place", ["folder", "sqlite:fleet.db"])
def test_when_the_last_round_was_is_the_checkpoints_own_record(place, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store, server = open_store(place), tracker()
    for seconds in (1763208000.25, 1763208060.5):
        monkeypatch.setattr("mpt.fleet.store.time.time", lambda now=seconds: now)
        server.close(paper_fleet().answers(server.request()))
        store.save(server.round, {TRACKER: server.to_bytes()})
    status = read_status(open_store(place))
    assert status.time == "2025-11-15T12:01:00.500000+00:00"
    assert "\nmpt_fleet_last_round_timestamp_seconds 1763208060.5\n" in prometheus(status)
    without = prometheus(status_of(server.state))
    assert re.search("^mpt_fleet_last_round", without, flags=re.MULTILINE) is None


def test_a_checkpoint_from_before_times_were_written():
    header = json.dumps({"round": 3, "parts": [["x", 2]]}).encode()
    content = len(header).to_bytes(8, "little") + header + b"ab"
    old = b"MPT store 1\n" + hashlib.sha256(content).digest() + content
    assert decode(old) == Checkpoint(3, {"x": b"ab"})
    assert decode(old).time is None


def test_a_fleet_that_nobody_has_joined(tmp_path):
    store = FileStore(tmp_path)
    store.save(0, {TRACKER: tracker().to_bytes()})
    status = read_status(store)
    assert status.vehicles == ()
    assert "mpt_fleet_round 0" in prometheus(status)
