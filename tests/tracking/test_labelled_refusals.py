"""A tracker of labels: settings, devices, answers and bytes that are none, and its state as bytes."""

import json
import subprocess
import sys

import numpy as np
import pytest

import mpt
from mpt.core.wire import Reader, Writer
from mpt.protocol.labelled import LabelledQuestion
from mpt.protocol.labels import to_json
from mpt.tracking import FleetError, LabelledReadout, LabelledTracker, Tracker
from mpt.tracking.operator import Order
from tests.tracking.labelled_devices import (
    Clock,
    by_label,
    growing,
)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"labels": "abc"}, "labels: 'abc', should be several labels"),
        ({"labels": ["a", 1]}, "all should be of one kind"),
        ({"labels": ["a", "b"], "watch": ["c"]}, "watch: 'c', should be one of the labels"),
        ({"labels": ["a", "b", "c"], "num_classes": 2}, "num_classes: 2, should be at least 3"),
        ({"num_classes": 1}, "num_classes: 1, should be at least 2"),
        ({"num_classes": "4"}, "num_classes: '4', should be an integer"),
        ({"dim": 0}, "dim: 0, should be at least 1"),
        ({"watch": "press"}, "watch: 'press', should be several labels"),
        ({"round": -1}, "round: -1, should be at least 0"),
        ({"graze": 3}, "graze: no setting of a tracker, did you mean grace?"),
        ({"class_names": ("a", "b")}, "class_names: no setting of a tracker"),
        ({"grace": -1}, "grace"),
        ({"most_watched": -1}, "most_watched"),
        ({"method": "mpt-z"}, "method: 'mpt-z' is none"),
        ({"method": "ccvr"}, "method: 'ccvr' asks what it likes, should be one of mpt, "),
    ],
)
def test_settings_that_are_none(settings, why):
    with pytest.raises(FleetError) as caught:
        LabelledTracker(**settings)
    assert why in str(caught.value)


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), "5", True])
def test_seconds_that_are_none(seconds):
    with pytest.raises(FleetError, match=r"seconds: .* should be a positive number, or None"):
        LabelledTracker().begin(seconds)


@pytest.mark.parametrize("device", ["", 7, None, "x" * 257, "\ud800"])
def test_devices_that_are_none(device):
    tracker = LabelledTracker()
    for call in (
        lambda: tracker.receive(device, b""),
        lambda: tracker.leave(device),
        lambda: tracker.begin(expected=[device]),
    ):
        with pytest.raises(FleetError, match="should be a string of 1 to 256 characters"):
            call()
    with pytest.raises(FleetError, match="should be several devices"):
        tracker.begin(expected="abc")


def test_nobody_forges_a_line_of_a_log():
    tracker = LabelledTracker()
    tracker.receive("x\nround 9: all is well", b"nonsense")
    (problem,) = [said for said in tracker.close().problems if said.startswith("device")]
    assert "\n" not in problem


@pytest.mark.parametrize("answer", [None, 5, "text", b"", b"MPTN", np.zeros(3), object()])
def test_answers_that_are_none(answer):
    tracker = LabelledTracker()
    assert tracker.receive("a", answer)
    assert tracker.answered == ()


def middle(clock):
    """A tracker that has grown, with a deposit, in the middle of a round."""
    tracker = LabelledTracker(method="mpt-x", grace=np.int64(1), clock=clock)
    for round in range(1, 7):
        tracker.close(by_label(growing(round), round, tracker.begin()))
    tracker.begin(seconds=20, expected=["f"])
    answers = by_label(growing(7), 7, tracker.question())
    clock.now += 5
    tracker.receive("a", answers["a"])
    tracker.receive("g", b"nonsense")
    tracker.leave("e")
    return tracker, answers


def test_bytes_in_the_middle_of_a_round():
    clock, other = Clock(), Clock()
    tracker, answers = middle(clock)
    other.now = 7.0
    again = LabelledTracker.from_bytes(tracker.to_bytes(), clock=other)
    assert again.to_bytes() == tracker.to_bytes()
    assert repr(again) == repr(tracker)
    assert (again.seconds_left, again.answered, again.awaited) == (15, ("a",), tracker.awaited)
    assert again.question() == tracker.question()
    outcomes = []
    for one in (tracker, again):
        for device in ("b", "c", "e"):
            assert one.receive(device, answers[device]) == ""
        outcomes.append(one.close())
    first, second = outcomes
    assert [str(d) for d in first.decisions] == [str(d) for d in second.decisions]
    np.testing.assert_array_equal(first.plain.prototypes, second.plain.prototypes)
    assert again.to_bytes() == tracker.to_bytes()
    assert again.labels == ("drill", "idle", "saw", "press", "mill")
    assert again.roster.state("e") == "departed"


def test_broken_bytes_are_refused_with_a_sentence():
    tracker, _ = middle(Clock())
    data = tracker.to_bytes()
    rng = np.random.default_rng(0)
    for place in rng.integers(0, len(data), 80).tolist():
        broken = bytearray(data)
        broken[place] ^= 1 + int(rng.integers(255))
        with pytest.raises(FleetError, match="LabelledTracker bytes: "):
            LabelledTracker.from_bytes(broken)
    for cut in (0, 3, 10, len(data) // 2, len(data) - 1):
        with pytest.raises(FleetError, match="truncated"):
            LabelledTracker.from_bytes(data[:cut])
    later = bytearray(data)
    later[4] = 9
    with pytest.raises(
        FleetError, match=r"version 9 of the protocol, this release of mpt reads 1 and 2; update the rec"
    ):
        LabelledTracker.from_bytes(later)
    with pytest.raises(FleetError, match="these are Tracker bytes"):
        LabelledTracker.from_bytes(Tracker(num_classes=2, dim=2).to_bytes())
    with pytest.raises(FleetError, match="these are LabelledTracker bytes"):
        Tracker.from_bytes(data)
    with pytest.raises(FleetError, match="should be bytes"):
        LabelledTracker.from_bytes("text")


@pytest.mark.parametrize(
    "change",
    [
        {"labels": ["a"]},
        {"labels": [["drill"], 2]},
        {"labels": 5},
        {"chosen": {"grace": 7}},
        {"chosen": {"nothing": 7}},
        {"chosen": []},
        {"dim": 6},
        {"dim": "five"},
        {"watch": ["nowhere"]},
        {"open": {}},
        {"open": {"left": -1}},
        {"knocking": 3},
        {"room": "x"},
        {"room": 1},
    ],
)
def test_bytes_that_say_what_cannot_be_are_refused(change):
    """With a right checksum."""
    tracker, _ = middle(Clock())
    reader = Reader(tracker.to_bytes(), b"U", 0)
    about = json.loads(reader.block())
    if isinstance(change.get("open"), dict) and change["open"]:
        change = {"open": {**about["open"], **change["open"]}}
    writer = Writer(b"U", 0, "float64")
    writer.block(json.dumps({**about, **change}).encode())
    while reader.left:
        writer.block(reader.block())
    with pytest.raises(FleetError):
        LabelledTracker.from_bytes(writer.finish())


def test_a_question_with_a_label_twice_is_refused():
    question = LabelledTracker(labels=["a", "b"]).question()
    writer = Writer(b"L", 0, "float64")
    writer.block(to_json(labels=["a", "a"]))
    writer.block(question.plain.to_bytes())
    with pytest.raises(mpt.StatisticsError, match="a label twice"):
        LabelledQuestion.from_bytes(writer.finish())


def test_a_readout_of_nonsense():
    with pytest.raises(mpt.StatisticsError, match="bias: should be a number or minus infinity"):
        LabelledReadout(("a", "b"), np.eye(2), [np.nan, 0])
    with pytest.raises(mpt.StatisticsError, match="weight: shape is"):
        LabelledReadout(("a", "b"), np.eye(3), [0, 0])
    readout = LabelledReadout(("a", "b"), np.eye(2), [0, -np.inf])
    assert readout.predict([[0, 9]]).tolist() == ["a"]
    assert LabelledReadout.from_bytes(readout.to_bytes()) == readout
    with pytest.raises(mpt.StatisticsError, match=r"should be \(N, 2\)"):
        readout.predict([0, 9])
    with pytest.raises(mpt.StatisticsError, match="altered"):
        LabelledReadout.from_bytes(readout.to_bytes()[:-1] + b"x")


def test_an_operators_orders_and_labels_in_html():
    tracker = LabelledTracker()
    tracker.close({d: tracker.question().answer(np.eye(4), ["<b>", "<b>", "&", "&"]) for d in "abc"})
    assert "<b>" not in tracker._repr_html_() + tracker.close()._repr_html_()
    assert "&lt;b&gt;" in tracker._repr_html_()
    (decision,) = tracker.obey([Order(1, "ban", "c", why="stolen")])
    assert decision.what == "banned"
    tracker.begin(expected=["c", "new"])
    assert tracker.awaited == ("a", "b", "new")
    assert "banned" in tracker.receive("c", tracker.question().answer(np.eye(4), ["<b>", "<b>", "&", "&"]))


def test_the_tracker_in_numbers_says_who_needs_none():
    for settings in ({}, {"dim": 4}, {"num_classes": 4}):
        with pytest.raises(
            FleetError, match=r"num_classes, dim: should both be given; mpt\.LabelledTracker finds them"
        ):
            mpt.Tracker(**settings)


def test_a_device_needs_neither_torch_nor_flower():
    code = "import mpt, sys; mpt.LabelledQuestion, mpt.LabelledReadout, mpt.LabelledTracker; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"torch", "flwr", "sklearn", "pandas", "typer"} & {name.partition(".")[0] for name in loaded}


def test_orders_before_the_first_answer_hold_after_it():
    tracker = LabelledTracker(shadow=True, watch=["press"])
    tracker.obey([Order(1, "ban", "a"), Order(2, "approve", 0)])
    for round in (1, 2):
        answers = by_label(growing(3), round, tracker.begin())
        assert "it is banned" in tracker.receive("a", answers.pop("a"))
        assert tracker.close(answers).answered == ("b", "c", "d", "e")
    assert tracker.roster.state("a") == "banned"
    assert tracker.state.plain.approved == (0,)


@pytest.mark.parametrize("again", [False, True], ids=["at once", "after a restart"])
@pytest.mark.parametrize("method", ["mpt", "mpt-x", "mpt-duo"])
def test_an_order_in_the_middle_of_a_round_changes_nothing_of_what_was_asked(method, again):
    """Of a dropped class nothing more is asked, but those who were asked have answered rightly."""
    tracker = LabelledTracker(method=method, grace=0, returns="off")
    for round in range(1, 7):
        tracker.close(by_label(growing(round), round, tracker.begin()))
    question = tracker.begin()
    answers = by_label(growing(7), 7, question)
    assert tracker.receive("a", answers.pop("a")) == ""
    (dropped,) = tracker.obey([Order(1, "drop", tracker.labels.index("press"))])
    assert dropped.what == "dropped"
    tracker = LabelledTracker.from_bytes(tracker.to_bytes()) if again else tracker
    assert tracker.question() == question
    outcome = tracker.close(answers)
    assert (outcome.answered, outcome.tracked) == (("a", "b", "c", "e"), ())
    assert not tracker.question().plain.cross


@pytest.mark.parametrize("what", ["ban", "forget"])
def test_who_is_sent_away_in_the_middle_of_a_round_is_not_heard_in_it(what):
    clock = Clock()
    tracker = LabelledTracker(clock=clock)
    tracker.close(by_label(growing(1), 1, tracker.begin(20)))
    answers = by_label(growing(2), 2, tracker.begin(20))
    for device in "ab":
        assert tracker.receive(device, answers[device]) == ""
    tracker.obey([Order(1, what, "a"), Order(2, what, "c"), Order(3, what, "d")])
    assert tracker.answered == ("b",)
    assert tracker.awaited == ()
    outcome = tracker.poll()
    assert (outcome.answered, outcome.problems) == (("b",), ())
    assert tracker.roster.having("present") == ("b",)
