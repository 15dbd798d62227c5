"""What an operator orders: approvals in shadow mode, bans, drops, and what of it is shown."""

import json
from datetime import UTC, datetime

import pytest

for package in ("typer", "rich"):
    pytest.importorskip(package, reason="the extra sim is not installed")

from typer.testing import CliRunner

from mpt.cli.main import app
from mpt.fleet import FleetError, Tracker, open_store
from mpt.fleet.metrics import prometheus
from mpt.fleet.operate import approve
from mpt.fleet.orders import file_of, read_orders, take_orders
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
        decisions += take_orders(store, server)
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
        "truck is approved: it has departed; the server reads this before its question in round 7, and from round 8 on "
        "its 6 remaining samples are not trained on\n",
    )
    (approval,) = read_orders(store)
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
        "verdict",
        "departed",
        "held-out",
    ]
    assert json.loads(file_of(store).read_text()) == {
        "order": 1,
        "what": "approve",
        "subject": 2,
        "time": "2026-11-15T12:00:00.000000+00:00",
        "why": "",
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
    assert [one.subject for one in read_orders(open_store(where))] == [RARE, CLASSES.index("bus")]
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


def test_nobody_there_yet(tmp_path):
    store = open_store(tmp_path)
    rounds(store, tracker(shadow=True), "")
    with pytest.raises(FleetError, match="no vehicle has answered up to round 1, there is nothing to approve yet"):
        approve(store, ["2"])


@pytest.mark.parametrize(
    "content",
    [b"nonsense", b"{}", b"[]", b'{"order": 1}', b'{"order": 2, "what": "approve", "subject": 2, "time": ""}',
     b'{"order": 1, "what": "obey", "subject": 2, "time": ""}',
     b'{"order": 1, "what": "drop", "subject": 2, "time": 7}',
     b'{"order": 1, "what": "approve", "subject": 77, "time": ""}', b"\xff",
     b'{"order": 1, "what": "ban", "subject": "", "time": ""}',
     b'{"order": 1, "what": "ban", "subject": 3, "time": ""}'],
)  # fmt: skip
def test_a_file_that_is_not_right_is_said_and_stops_nothing(content, where):
    store, server = resumed(where)
    file_of(store).write_bytes(content)
    (decision,) = rounds(store, server, "bcd")
    assert decision.what == "ignored"
    assert "should be" in decision.why
    assert (server.round, server.held_out) == (7, ())
    assert read_status(store).unapproved == (TRUCK,)


def test_orders_of_an_earlier_fleet_in_the_same_place_do_not_count(tmp_path):
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


def test_a_banned_vehicle_counts_no_more_until_it_is_let_back(tmp_path):
    """Nothing is deposited of it; what it has reported is gone; its answers are refused."""
    store, server = open_store(tmp_path), tracker(grace=1, class_names=CLASSES)
    rounds(store, server, "abcd", "abcd")
    done = call("fleet", "ban", "a", "--state", tmp_path, "--why", "stolen")
    assert done.exit_code == 0
    assert "vehicle a is banned: it is asked nothing more from round 3 on" in done.output
    assert "it holds most of truck: nothing is deposited of a vehicle that is banned" in done.output
    decisions = rounds(store, server, "abcd")
    assert [(d.what, d.vehicle) for d in decisions][:2] == [("banned", "a"), ("refused", "a")]
    assert ", stolen: it is not asked any more" in decisions[0].why
    assert decisions[1].why.startswith("it is banned: at ")
    assert server.state.tracked == {}
    assert "a" not in server.state.counts
    (shown,) = [v for v in read_status(store).vehicles if v.vehicle == "a"]
    assert (shown.state, shown.samples) == ("banned", None)
    assert "stolen" in call("fleet", "status", tmp_path).output
    assert "is banned already" in call("fleet", "ban", "a", "--state", tmp_path).stderr
    done = call("fleet", "unban", "b", "--state", tmp_path)
    assert "neither banned nor quarantined, should be of vehicle a" in done.stderr
    assert "let back" in call("fleet", "unban", "a", "--state", tmp_path).output
    decisions = rounds(store, server, "abcd")
    assert [(d.what, d.vehicle) for d in decisions][:2] == [("unbanned", "a"), ("returned", "a")]
    assert server.roster.state("a") == "present"


def test_a_stranger_can_be_banned_by_its_number_and_others_are_asked_about(tmp_path):
    store, server = open_store(tmp_path), tracker()
    rounds(store, server, "abcd")
    assert call("fleet", "ban", "1049", "--state", tmp_path).exit_code == 0
    rounds(store, server, "abcd")
    assert server.roster.state("1049") == "banned"
    done = call("fleet", "ban", "vehicle-z", "--state", tmp_path)
    assert (done.exit_code, "is none of the fleet's, should be its id or name" in done.stderr) == (2, True)


def test_a_dropped_deposit_is_gone_and_its_class_trained_on_again(where):
    store, server = resumed(where)
    assert "has no deposit, should be of truck" in call("fleet", "drop", "bus", "--state", where).stderr
    done = call("fleet", "drop", TRUCK, "--state", where)
    assert "truck: the deposit of round 3 is dropped, its samples are trained on again from round 7 on" in done.output
    decisions = rounds(store, server, "bcd", "bcd")
    assert next((d.round, d.what, d.class_names) for d in decisions) == (7, "dropped", (TRUCK,))
    assert (server.state.tracked, server.held_out) == ({}, ())
    assert server.state.made[RARE] == 8


def test_a_forgotten_vehicle_leaves_nothing_that_can_be_removed(tmp_path):
    store, server = open_store(tmp_path), tracker(grace=0, class_names=CLASSES)
    rounds(store, server, "abcd", "abcd", "bcd")
    assert server.state.tracked[RARE].owners == ("a",)
    done = call("fleet", "forget", "a", "--state", tmp_path)
    for words in ("the deposits of truck with it", "what stays: the model", "decisions.jsonl", "ban it first"):
        assert words in done.output
    decisions = rounds(store, server, "bcd")
    assert (decisions[0].what, decisions[0].vehicle) == ("forgotten", "a")
    assert server.state.tracked == {}
    assert '"a"' not in server.to_bytes().decode(errors="replace").split('"decisions"')[0]
    assert "nothing is known of" in call("fleet", "forget", "77", "--state", tmp_path).stderr


def test_a_state_that_is_rolled_back_obeys_again(tmp_path):
    store, server = open_store(tmp_path), tracker()
    rounds(store, server, "abcd", "abcd")
    call("fleet", "ban", "d", "--state", tmp_path)
    rounds(store, server, "abc", "abc")
    assert call("fleet", "rollback", tmp_path, "--to", "2").exit_code == 0
    store, server = resumed(tmp_path)
    assert server.roster.state("d") == "present"
    assert next(d.what for d in rounds(store, server, "abc")) == "banned"
    assert server.roster.state("d") == "banned"


def test_quarantine_keeps_a_vehicle_apart_without_a_miss(tmp_path):
    store, server = open_store(tmp_path), tracker(grace=0)
    rounds(store, server, "abcd", "abcd")
    (decision,) = server.quarantine("a", "it stands far out")
    assert (decision.what, decision.vehicle) == ("quarantined", "a")
    for _ in range(3):
        decisions = rounds(store, server, "abcd")
        assert [d.what for d in decisions if d.vehicle == "a"] == ["refused"]
        assert (server.roster.state("a"), server.state.tracked) == ("quarantined", {})
    call("fleet", "unban", "a", "--state", tmp_path)
    rounds(store, server, "abcd")
    assert server.roster.state("a") == "present"
