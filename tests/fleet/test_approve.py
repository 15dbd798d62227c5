"""Shadow mode: what is held out, what an operator approves, and what of it is shown."""

import json
from datetime import UTC, datetime

import pytest

for package in ("typer", "rich"):
    pytest.importorskip(package, reason="the extra sim is not installed")

from typer.testing import CliRunner

from mpt.cli.main import app
from mpt.fleet import FleetError, Tracker, open_store
from mpt.fleet.approvals import file_of, read_approvals, take_approvals
from mpt.fleet.approve import approve
from mpt.fleet.metrics import prometheus
from mpt.fleet.status import read_status
from mpt.fleet.store import TRACKER
from tests.tracking.fleets import RARE, paper_fleet, tracker

CLASSES = ("car", "van", "truck", "bus", "bike", "tram")
TRUCK = CLASSES[RARE]


def call(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False)


def rounds(store, server, *there):
    """So many rounds of the paper's fleet, as a server has them; all decisions."""
    fleet, decisions = paper_fleet(), []
    for vehicles in there:
        decisions += take_approvals(store, server)
        decisions += server.close(fleet.answers(server.request(), vehicles)).decisions
        store.save(server.round, {TRACKER: server.to_bytes()})
    return decisions


@pytest.fixture(params=["", "sqlite:"])
def where(request, tmp_path):
    """A fleet in shadow mode after round 6, whose trucks have departed in round 5."""
    place = f"{request.param}{tmp_path / 'store'}"
    server = tracker(grace=1, shadow=True, class_names=CLASSES)
    rounds(open_store(place), server, *["abcd"] * 3, *["bcd"] * 3)
    return place


def resumed(place):
    store = open_store(place)
    return store, Tracker.from_bytes(store.latest().payload[TRACKER])


def test_an_approved_class_is_held_out_from_the_round_that_was_said(where):
    store, server = resumed(where)
    assert server.held_out == ()
    done = call("fleet", "approve", TRUCK, "--state", where)
    assert (done.exit_code, done.output) == (
        0,
        "truck is approved: it has departed; the server reads this at the end of round 7, and from round 8 on its 6 "
        "remaining samples are not trained on\n",
    )
    (approval,) = read_approvals(store)
    decisions = rounds(store, server, "bcd")
    assert [(d.round, d.what) for d in decisions] == [(7, "approved"), (7, "held-out")]
    assert str(decisions[0]) == (
        f"round 7: class truck approved: at {approval.time}: its remaining samples are held out of training once it "
        "has departed"
    )
    assert server.held_out == server.request().held_out == (RARE,)
    assert rounds(store, server, "bcd") == []
    assert Tracker.from_bytes(server.to_bytes()).state.approved == (RARE,)


def test_the_same_prototypes_with_and_without_shadow_mode():
    """It asks and tracks as it would; only training would differ."""
    fleet, shadowed, plain = paper_fleet(), tracker(grace=1, shadow=True), tracker(grace=1)
    for there in ["abcd"] * 3 + ["bcd"] * 4:
        found = shadowed.close(fleet.answers(shadowed.request(), there))
        expected = plain.close(fleet.answers(plain.request(), there))
        assert found.prototypes.tobytes() == expected.prototypes.tobytes()
    assert (shadowed.held_out, plain.held_out) == ((), (RARE,))


def test_before_it_has_departed_and_by_number(tmp_path):
    store, server = open_store(tmp_path), tracker(grace=1, shadow=True)
    rounds(store, server, "abcd", "abcd", "abcd")
    (sentence,) = approve(store, ["2"], lambda: datetime(2026, 11, 15, 12, tzinfo=UTC))
    assert sentence == (
        "2 is approved: it has not departed; from the round after it has, its remaining samples are not trained on"
    )
    assert [d.what for d in rounds(store, server, "bcd", "bcd") if d.classes == (RARE,)] == [
        "approved",
        "suspected",
        "deposited",
        "departed",
        "held-out",
    ]
    assert json.loads(file_of(store).read_text()) == {
        "approvals": [{"class": 2, "name": "2", "time": "2026-11-15T12:00:00.000000+00:00"}]
    }
    assert file_of(store).stat().st_mode & 0o777 == 0o600


def test_what_cannot_be_approved(where, tmp_path):
    for classes, said in (
        (["trukc"], "class: 'trukc' is none of the fleet's, should it be 'truck'?"),
        (["6"], "class: '6' is none of the fleet's, should be of car, van, truck, bus, bike, tram"),
        ([TRUCK, "lorry"], "class: 'lorry' is none of the fleet's, should be of car"),
    ):
        done = call("fleet", "approve", *classes, "--state", where)
        assert done.exit_code == 2
        assert said in done.stderr
        assert not file_of(open_store(where)).exists()
    assert len(call("fleet", "approve", TRUCK, str(RARE), "bus", "--state", where).output.splitlines()) == 2
    again = call("fleet", "approve", "van", str(RARE), "--state", where)
    assert again.exit_code == 2
    assert "class: 'truck' is approved already, should be another" in again.stderr
    assert [one.name for one in read_approvals(open_store(where))] == [TRUCK, "bus"]
    none = call("fleet", "approve", TRUCK, "--state", tmp_path / "none")
    assert (none.exit_code, (tmp_path / "none").exists()) == (2, False)
    assert "store: there is no" in none.stderr
    (tmp_path / "empty").mkdir()
    assert "no round has finished here yet" in call("fleet", "approve", TRUCK, "--state", tmp_path / "empty").stderr


def test_not_in_shadow_mode(tmp_path):
    store, server = open_store(tmp_path), tracker()
    rounds(store, server, "abcd")
    done = call("fleet", "approve", "2", "--state", tmp_path)
    assert done.exit_code == 2
    assert "this fleet is not in shadow mode, departed classes are held out without approval" in done.stderr
    file_of(store).write_text("nonsense")
    assert rounds(store, server, "abcd") == []


def test_nobody_there_yet(tmp_path):
    store = open_store(tmp_path)
    rounds(store, tracker(shadow=True), "")
    with pytest.raises(FleetError, match="no vehicle has answered up to round 1, there is nothing to approve yet"):
        approve(store, ["2"])


@pytest.mark.parametrize(
    "content",
    [b"", b"{}", b"[]", b'{"approvals": 3}', b'{"approvals": [3]}', b'{"approvals": [{"class": 2, "name": "truck"}]}',
     b'{"approvals": [{"class": true, "name": "truck", "time": ""}]}', b"\xff",
     b'{"approvals": [{"class": 77, "name": "truck", "time": ""}]}'],
)  # fmt: skip
def test_a_file_that_is_not_right_is_said_and_stops_nothing(content, where):
    store, server = resumed(where)
    file_of(store).write_bytes(content)
    (decision,) = rounds(store, server, "bcd")
    assert decision.what == "ignored"
    assert "should be" in decision.why
    assert (server.round, server.held_out) == (7, ())
    assert read_status(store).unapproved == (TRUCK,)


def test_approvals_of_an_earlier_fleet_in_the_same_place_do_not_count(tmp_path):
    store, server = open_store(tmp_path / "state"), tracker(grace=1, shadow=True)
    rounds(store, server, "abcd")
    approve(store, ["2"])
    for checkpoint in (tmp_path / "state").glob("*.checkpoint"):
        checkpoint.unlink()
    fresh = tracker(grace=1, shadow=True)
    first = rounds(store, fresh, "abcd", "abcd", "bcd", "bcd")[0]
    assert (first.round, first.what) == (1, "ignored")
    assert first.why.endswith("was of an earlier fleet in this place, and is removed")
    assert (fresh.state.approved, fresh.held_out) == ((), ())


def test_the_status_says_what_waits_for_approval(where):
    def shown():
        return call("fleet", "status", where).output

    assert "shadow mode: departed and not approved, so trained on: truck\n" in shown()
    assert "approved, so not trained on once departed: none\n" in shown()
    store, server = resumed(where)
    found = read_status(store)
    assert (found.shadow, found.unapproved) == (True, (TRUCK,))
    assert (found.classes[RARE].tracked.state, found.classes[RARE].tracked.held_out) == ("departed", False)
    text = prometheus(found)
    assert "mpt_fleet_shadow 1\n" in text
    assert 'mpt_fleet_class_state{class="truck",state="departed"} 1\n' in text
    assert 'mpt_fleet_class_held_out{class="truck"} 0\n' in text
    call("fleet", "approve", TRUCK, "--state", where)
    assert "departed and not approved, so trained on: none\n" in shown()
    assert "approved, so not trained on once departed: truck\n" in shown()
    data = json.loads(call("fleet", "status", where, "--json").output)
    assert (data["shadow"], data["classes"][RARE]["approved"]) == (True, True)
    assert data["classes"][RARE]["tracked"]["held_out"] is False
    rounds(store, server, "bcd")
    text = call("fleet", "status", where, "--prometheus").output
    assert 'mpt_fleet_class_held_out{class="truck"} 1\n' in text
    assert 'mpt_fleet_class_approved{class="truck"} 1\n' in text
    assert 'mpt_fleet_class_approved{class="bus"} 0\n' in text
