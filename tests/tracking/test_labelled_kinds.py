"""Devices whose labels are of different kinds in the first round: most of them decide, and nobody stops the tracker."""

import itertools

import numpy as np
import pytest

from mpt.tracking import LabelledTracker

WHICH = np.arange(40) % 4
FEATURES = np.random.default_rng(0).normal(size=(40, 4)) + 3 * np.eye(4)[WHICH]
KINDS = {
    "texts": np.array(list("abcd"))[WHICH],
    "integers": WHICH,
    "real numbers": WHICH + 0.5,
    "truth values": WHICH % 2 == 0,
}


def played(tracker, kinds):
    """A round in which devices answer with labels of these kinds, kept as bytes in the middle of it."""
    question = tracker.begin()
    for device, kind in kinds.items():
        assert tracker.receive(device, question.answer(FEATURES, KINDS[kind])) == ""
    tracker = LabelledTracker.from_bytes(tracker.to_bytes())
    return tracker, tracker.close()


@pytest.mark.parametrize(("most", "other"), list(itertools.permutations(KINDS, 2)))
@pytest.mark.parametrize("first", [False, True])
def test_labels_are_of_the_kind_that_most_answers_have(most, other, first):
    lone = {"hostile": other}
    kinds = {**(lone if first else {}), "a": most, "b": most, **lone}
    tracker, outcome = played(LabelledTracker(), kinds)
    assert outcome.problems == (f"device hostile: answer: labels are {other}, should be {most}, as most have",)
    assert outcome.answered == ("a", "b")
    assert tracker.labels == tuple(np.unique(KINDS[most]).tolist())
    for _ in range(3):  # it goes on, and its own bytes are read
        question = tracker.begin()
        tracker.close({device: question.answer(FEATURES, KINDS[most]) for device in "ab"})
        tracker = LabelledTracker.from_bytes(tracker.to_bytes())
    assert tracker.receive("hostile", tracker.question().answer(FEATURES, KINDS[most])) == ""


def test_of_as_many_the_kind_counts_that_came_first():
    tracker, outcome = played(LabelledTracker(), {"y": "texts", "x": "integers"})
    assert (outcome.answered, tracker.labels) == (("y",), ("a", "b", "c", "d"))


def test_devices_without_samples_do_not_decide_and_a_round_of_them_decides_nothing():
    tracker = LabelledTracker()
    empty = {device: tracker.begin().answer(np.zeros((0, 4)), []) for device in ("n", "o", "p")}
    tracker.close(empty)
    assert tracker.dim == 4
    tracker, outcome = played(tracker, {"x": "integers", "y": "texts", "z": "texts"})
    assert (outcome.answered, tracker.labels) == (("y", "z"), ("a", "b", "c", "d"))


def test_devices_without_samples_do_not_decide_about_the_dimension():
    tracker = LabelledTracker()
    question = tracker.begin()
    for device in ("n", "o"):
        assert tracker.receive(device, question.answer(np.zeros((0, 7)), [])) == ""
    assert tracker.receive("x", question.answer(FEATURES, KINDS["texts"])) == ""
    outcome = LabelledTracker.from_bytes(tracker.to_bytes()).close()
    assert outcome.answered == ("x",)
    said = "answer: features of 7 dimensions, most have 4"
    assert outcome.problems[:2] == (f"device n: {said}", f"device o: {said}")


@pytest.mark.parametrize("first", [False, True])
def test_one_that_invents_labels_until_there_is_no_room_locks_nobody_out(first):
    tracker = LabelledTracker(num_classes=30)
    question = tracker.begin()
    invented = question.answer(np.ones((30, 4)), [f"label {i}" for i in range(30)])
    told = {"evil": invented} if first else {}
    told |= {device: question.answer(FEATURES, KINDS["texts"]) for device in "pqr"} | {"evil": invented}
    for device, answer in told.items():
        assert tracker.receive(device, answer) == ""
    outcome = LabelledTracker.from_bytes(tracker.to_bytes()).close()
    assert outcome.answered == ("p", "q", "r")
    assert outcome.problems[0] == "device evil: answer: with its new labels there would be more than 30"


def test_labels_that_are_named_or_watched_say_the_kind_from_the_start():
    for settings in ({"labels": list("abcd")}, {"watch": ["a"]}):
        tracker = LabelledTracker(**settings)
        lie = LabelledTracker().question().answer(FEATURES, WHICH)
        assert "should be of one kind" in tracker.receive("hostile", lie)
        outcome = tracker.close({"a": tracker.question().answer(FEATURES, KINDS["texts"])})
        assert outcome.answered == ("a",)


def test_the_kind_counts_before_the_dimension():
    """Two devices with another kind and dimension do not outvote three, whose dimensions differ."""
    tracker = LabelledTracker()
    question = tracker.begin()
    for device in "ab":
        tracker.receive(device, question.answer(FEATURES[:, :3], WHICH))
    for device, d in {"c": 3, "d": 4, "e": 4}.items():
        tracker.receive(device, question.answer(FEATURES[:, :d], KINDS["texts"]))
    outcome = tracker.close()
    assert (outcome.answered, tracker.dim) == (("d", "e"), 4)
    assert len(outcome.problems) == 3
