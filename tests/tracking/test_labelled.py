"""Labels as they are, classes that appear, rounds that end by time: against the tracker in numbers."""

import enum

import numpy as np
import pytest

import mpt
from mpt.protocol.labelled import LabelledAnswer, LabelledQuestion
from mpt.tracking import FleetError, LabelledReadout, LabelledTracker, Tracker
from tests.tracking.labelled_devices import (
    DIM,
    NAMES,
    ORDER,
    USUAL,
    Clock,
    by_label,
    drifted,
    fleet,
    growing,
    in_numbers,
    samples,
)


@pytest.mark.parametrize("method", ["mpt", "mpt-x", "mpt-duo", "mpt-lite:one-message"])
@pytest.mark.parametrize("world", [fleet, growing])
def test_it_is_the_tracker_in_numbers_that_has_known_all_classes_from_the_start(method, world):
    settings = {"method": method, "grace": 1, "most_watched": 2, "probation": 0}
    tracker = LabelledTracker(**settings)
    known = ("drill", "idle", "saw", "press", "mill") if world is growing else ORDER
    plain = Tracker(num_classes=5, dim=DIM, class_names=known, **settings)
    place = {label: c for c, label in enumerate(known)}
    for round in range(1, 10):
        expected = plain.close(in_numbers(world(round), round, plain.question(), place))
        question = LabelledQuestion.from_bytes(tracker.begin().to_bytes())
        tracker = LabelledTracker.from_bytes(tracker.to_bytes())
        found = tracker.close(by_label(world(round), round, question))
        tracker = LabelledTracker.from_bytes(tracker.to_bytes())
        assert found.problems == expected.problems == ()
        assert [d.what for d in found.decisions] == [d.what for d in expected.decisions]
        assert [d.class_names for d in found.decisions] == [d.class_names for d in expected.decisions]
        count = len(found.labels)
        assert found.labels == known[:count]
        np.testing.assert_allclose(found.plain.prototypes, expected.prototypes[:count], rtol=1e-7, atol=1e-7)
        assert np.isnan(expected.prototypes[count:]).all()
        test = drifted(samples("z", dict.fromkeys(found.labels, 30))[0], round)
        alone = getattr(expected.readout, "current", expected.readout)
        np.testing.assert_array_equal(found.readout.predict(test), np.array(known)[alone.predict(test)])
        assert found.plain.references == expected.references
    assert (found.plain.references != ()) is (method == "mpt-duo")
    assert tracker.held_out == ("press",) == found.tracked
    assert set(found.reconstructions) == {"press"}
    assert len(tracker.labels) == 5


def test_classes_that_appear_while_a_holder_is_there_and_does_not_count():
    """What was last trusted of it grows too; its class is deposited from there when it vanishes."""
    tracker, plain = LabelledTracker(grace=0), Tracker(num_classes=5, dim=DIM, most_watched=2, grace=0)
    known = ("drill", "idle", "press", "saw", "mill")
    place = {label: c for c, label in enumerate(known)}
    for round in range(1, 9):
        there = {d: c for d, c in fleet(1).items() if d != "d" or round < 4}
        held = {d: {k: n for k, n in c.items() if k != "mill" or round > 4} for d, c in there.items()}
        nonsense = {"d": b"nonsense"} if 4 <= round < 7 else {}
        expected = plain.close(in_numbers(held, round, plain.question(), place) | nonsense)
        found = tracker.close(by_label(held, round, tracker.question()) | nonsense)
        tracker = LabelledTracker.from_bytes(tracker.to_bytes())
        np.testing.assert_allclose(found.plain.prototypes, expected.prototypes[: len(found.labels)], rtol=1e-7)
        assert bool(tracker.state.plain.trusted) == (4 <= round < 7) == bool(plain.state.trusted)
    assert found.labels == known
    assert found.tracked == ("press",)
    assert tracker.state.plain.tracked[2].round == 3


def test_a_class_that_departs_stays_recognised_by_its_name():
    tracker = LabelledTracker(method="mpt-x", grace=1)
    for round in range(1, 10):
        outcome = tracker.close(by_label(fleet(round), round, tracker.begin()))
    features, _ = samples("d", {"press": 60})
    now = drifted(features, 9)
    frozen = drifted(features, 4).mean(axis=0)
    error = np.linalg.norm(outcome.prototypes["press"] - now.mean(axis=0))
    assert error < 0.25 * np.linalg.norm(frozen - now.mean(axis=0))
    assert np.mean(outcome.readout.predict(now) == "press") > 0.9
    assert tracker.roster.state("d") == "departed"
    shown = tracker._repr_html_() + outcome._repr_html_()
    assert '<th scope="row">press</th><td>departed</td><td>4</td><td>4</td>' in shown


class Colour(enum.StrEnum):
    RED = "red"
    BLUE = "blue"


class Size(enum.IntEnum):
    SMALL = 1
    LARGE = 2


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        (["x", "y", "z"], ("x", "y", "z")),
        (np.array(["x", "y", "z"]), ("x", "y", "z")),
        (np.array(["x", "y", "z"], dtype=object), ("x", "y", "z")),
        ([np.str_("x"), "y", "z"], ("x", "y", "z")),
        ([Colour.BLUE, Colour.RED, "x"], ("blue", "red", "x")),
        ([-7, 404, 2**62], (-7, 404, 2**62)),
        ([Size.SMALL, Size.LARGE, 3], (1, 2, 3)),
        ([np.int8(1), np.uint64(2), 3], (1, 2, 3)),
        (np.array([3, 1, 2], np.uint8), (1, 2, 3)),
        (np.array([True, False, True]), (False, True)),
        ([True, np.bool_(False), True], (False, True)),
        ([1.5, np.float32(0.5), -0.0], (0.0, 0.5, 1.5)),
        (("ü", "\N{SNOWMAN}", "two words"), ("two words", "ü", "\N{SNOWMAN}")),
    ],
)
def test_labels_of_any_kind(labels, said):
    tracker = LabelledTracker()
    features = np.random.default_rng(0).standard_normal((60, 4)) + 9 * np.arange(60)[:, None]
    many = [label for label in labels for _ in range(20)]
    many = np.array(many) if isinstance(labels, np.ndarray) and labels.dtype != object else many
    outcome = tracker.close({device: tracker.question().answer(features, many) for device in "ab"})
    assert outcome.problems == ()
    assert tracker.labels == said
    assert [type(label) for label in tracker.labels] == [type(label) for label in said]
    found = LabelledReadout.from_bytes(outcome.readout.to_bytes()).predict(features[:1])
    assert found.tolist()[0] in said
    assert LabelledTracker.from_bytes(tracker.to_bytes()).labels == said


def test_labels_of_pandas():
    pandas = pytest.importorskip("pandas")
    question = LabelledTracker().question()
    features, plain = np.random.default_rng(0).standard_normal((6, 2)), ["a", "b", "c"] * 2
    for series in (pandas.Series(plain), pandas.Series(plain, dtype="category"), pandas.Series(plain, dtype="string")):
        assert question.answer(features, series) == question.answer(features, plain)


@pytest.mark.parametrize(
    ("labels", "why"),
    [
        (["x", 1], "'x' is a text and 1 is an integer, all should be of one kind"),
        ([True, 1], "all should be of one kind"),
        ([1, 1.0], "all should be of one kind"),
        (["x", None], "None is a NoneType, should be a text, an integer, a real number or a truth value"),
        (["x", b"y"], "is a bytes"),
        ([("x",), ("y",)], "is a tuple"),
        ([["x"], ["y"]], "is a list"),
        ([float("nan"), 1.0], "nan, should be finite; a sample without a label is to be left out"),
        (np.array([np.nan, 1.0]), "should be finite"),
        (np.array(["2020-01-01", "2020-01-02"], "datetime64[D]"), "is a date"),
        (["x", ""], "should be a text of 1 to 256 characters"),
        (["x", "y" * 257], "should be a text of 1 to 256 characters"),
        (["x", "\ud800"], "should be a text of 1 to 256 characters"),
        (["x", "x\0"], "has a NUL"),
        ([1, 2**70], "an integer of more than 64 bits"),
        ([["x", "y"]], "is a list"),
        (np.array([["x", "y"]]), "shape is (1, 2), should be (N,), one a sample"),
        ("xy", "shape is (), should be (N,), one a sample"),
        (None, "shape is (), should be (N,), one a sample"),
        (["x"], "labels: shape is (1,), should be (2,)"),
        (np.ma.masked_array(["x", "y"], [False, True]), "has masked entries"),
    ],
)
def test_labels_that_are_none(labels, why):
    with pytest.raises(mpt.StatisticsError) as caught:
        LabelledTracker().question().answer(np.eye(2), labels)
    assert why in str(caught.value)


def test_a_device_with_labels_of_another_kind_is_told_so_and_refused_by_the_server():
    tracker = LabelledTracker()
    tracker.close({"a": tracker.question().answer(np.eye(4), list("xxyy"))})
    with pytest.raises(mpt.StatisticsError, match="1 is an integer and 'x' is a text"):
        tracker.question().answer(np.eye(4), [1, 1, 2, 2])
    fooled = LabelledQuestion(tracker.question().plain, (7, 8)).answer(np.eye(4), [1, 1, 2, 2])
    assert "all should be of one kind" in tracker.receive("b", fooled)


def test_labels_of_few_samples_are_not_named():
    question = LabelledTracker().question()
    answer = question.answer(np.eye(6), ["x"] * 4 + ["secret"] * 2, min_samples=3)
    assert LabelledAnswer.from_bytes(answer).new == ("x",)
    assert b"secret" not in answer


def answered(tracker, device, round=1, counts=USUAL):
    features, labels = samples(device, counts)
    return tracker.receive(device, tracker.question().answer(drifted(features, round), labels))


def test_the_dimension_is_that_of_most():
    tracker = LabelledTracker()
    wrong = tracker.question().answer(np.eye(3), ["odd", "odd", "saw"])
    assert tracker.receive("first", wrong) == ""
    assert [answered(tracker, device) for device in "ab"] == ["", ""]
    outcome = tracker.close()
    assert (tracker.dim, outcome.answered) == (DIM, ("a", "b"))
    assert outcome.problems == (f"device first: answer: features of 3 dimensions, most have {DIM}",)
    assert "odd" not in tracker.labels
    why = tracker.receive("first", tracker.question().answer(np.zeros((3, DIM)), ["saw", "saw", "saw"]))
    assert why == ""
    with pytest.raises(mpt.StatisticsError, match="origin"):
        tracker.question().answer(np.eye(3), ["saw", "saw", "saw"])
    assert "should be (5, 3)" in LabelledTracker(dim=3, labels=NAMES).receive(
        "a", LabelledTracker(labels=NAMES).question().answer(*samples("a", USUAL))
    )


def test_rounds_that_nobody_answers_pass():
    tracker = LabelledTracker(round=3)
    assert (tracker.close().readout, tracker.round, tracker.dim) == (None, 4, None)
    tracker = LabelledTracker.from_bytes(tracker.to_bytes())
    assert answered(tracker, "a") == ""
    assert tracker.close().round == 5
    assert tracker.close().readout is not None  # as it was
    assert tracker.roster.state("a") == "suspected"


def test_a_round_is_closed_by_time():
    clock = Clock()
    tracker = LabelledTracker(clock=clock, grace=1)
    assert not tracker.due
    tracker.begin(seconds=30)
    assert [answered(tracker, device) for device in "abc"] == ["", "", ""]
    clock.now += 29.9
    assert tracker.poll() is None
    assert tracker.seconds_left == pytest.approx(0.1)
    clock.now += 0.1
    assert answered(tracker, "d") == "too late: the time of round 1 is over"
    assert tracker.poll().answered == ("a", "b", "c")
    assert tracker.poll() is None

    tracker.begin(seconds=30)
    assert tracker.awaited == ("a", "b", "c", "d")
    answered(tracker, "d", 2)
    answered(tracker, "a", 2)
    assert tracker.poll() is None
    clock.now += 30
    outcome = tracker.poll()
    states = {device: tracker.roster.state(device) for device in "abcd"}
    assert states == {"a": "present", "b": "suspected", "c": "suspected", "d": "present"}
    assert [d.vehicle for d in outcome.decisions if d.what == "suspected"] == ["b", "c"]
    tracker.begin(seconds=30)
    clock.now += 30
    tracker.poll()
    assert tracker.roster.having("departed") == ("b", "c")
    tracker.begin()
    assert tracker.awaited == ("a", "d")


def test_a_round_is_over_when_everybody_is_heard():
    tracker = LabelledTracker(clock=Clock())
    tracker.begin(seconds=30, expected=["a", "b"])
    answered(tracker, "a")
    assert not tracker.due
    answered(tracker, "b")
    assert tracker.poll().round == 1
    late = tracker.begin().answer(*samples("n", USUAL))
    answered(tracker, "a", 2)
    tracker.receive("b", b"nonsense")  # it is there, and heard
    assert tracker.poll().problems == (
        "device b: LabelledAnswer bytes: truncated, 8 bytes are less than an empty message",
    )
    assert tracker.roster.state("b") == "refused"

    assert tracker.receive("n", late) == "too late: the answer is for round 2, this is round 3"
    assert answered(tracker, "a", 3) == answered(tracker, "b", 3) == ""
    assert tracker.poll().answered == ("a", "b")
    tracker.begin()
    assert "n" in tracker.awaited  # a slow newcomer is waited for
    answered(tracker, "a", 4)
    answered(tracker, "b", 4)
    assert tracker.poll() is None
    assert answered(tracker, "n", 4) == ""
    assert tracker.poll().answered == ("a", "b", "n")


def test_who_is_late_has_missed_nothing():
    clock = Clock()
    tracker = LabelledTracker(clock=clock, grace=0)
    tracker.begin(seconds=1)
    first = tracker.question()
    for device in "abc":
        answered(tracker, device)
    clock.now += 1
    tracker.poll()
    tracker.begin(seconds=1)
    answered(tracker, "a", 2)
    tracker.receive("b", first.answer(*samples("b", USUAL)))
    clock.now += 1
    tracker.poll()
    assert {device: tracker.roster.state(device) for device in "abc"} == {"a": "present", "b": "late", "c": "departed"}


def test_a_device_that_says_goodbye_takes_its_class_along():
    tracker = LabelledTracker()
    for round in (1, 2, 3):
        if round == 3:
            tracker.leave("d")
        outcome = tracker.close(by_label(fleet(1), round, tracker.question()))
    assert tracker.roster.state("d") == "departed"
    assert tracker.held_out == ("press",) == tracker.question().held_out
    assert repr(tracker.question()) == "<LabelledQuestion: round 4, 5 labels, 1 held out>"
    assert "press" in outcome.prototypes


@pytest.mark.parametrize("what", ["late", "nonsense", "goodbye"])
def test_what_comes_between_two_rounds_is_heard_in_the_next(what):
    tracker = LabelledTracker()
    late = tracker.question().answer(*samples("a", USUAL))
    tracker.close(by_label(fleet(1), 1, tracker.question()))
    if what == "goodbye":
        tracker.leave("b")
    else:
        assert tracker.receive("b", late if what == "late" else b"nonsense")
    tracker.begin(seconds=30)
    assert tracker.seconds_left is not None
    assert ("b" in tracker.awaited) == (what == "late")
    outcome = tracker.close(by_label(dict.fromkeys("ac", USUAL), 2, tracker.question()))
    assert tracker.roster.state("b") == {"late": "late", "nonsense": "refused", "goodbye": "departed"}[what]
    assert outcome.answered == ("a", "c")


def test_answers_again():
    tracker = LabelledTracker()
    question = tracker.begin()
    features, labels = samples("a", USUAL)
    right = question.answer(features, labels)
    assert tracker.receive("a", right[:-3])
    assert tracker.receive("a", right) == "" == tracker.receive("a", right)
    assert tracker.receive("a", b"") == "LabelledAnswer bytes: truncated, 0 bytes are less than an empty message"
    assert "first one counts" in tracker.receive("a", question.answer(features + 1, labels))
    with pytest.raises(FleetError, match="round 1 is open and has been answered"):
        tracker.begin()
    outcome = tracker.close()
    assert (outcome.answered, outcome.problems) == (("a",), ())
    np.testing.assert_allclose(outcome.prototypes["saw"], features[labels == "saw"].mean(axis=0), rtol=1e-5)
    early = LabelledQuestion(question.plain.__class__(question.plain.statistics.__class__(9, 2)), ()).answer(
        features, labels
    )
    assert "made for round 9, this is round 2" in tracker.receive("a", early)


def test_what_devices_make_up_is_refused():
    tracker = LabelledTracker(num_classes=6)
    tracker.close({device: tracker.question().answer(*samples(device, USUAL)) for device in "abc"})
    question = tracker.question()

    def told(new, plain):
        return tracker.receive("x", LabelledAnswer(2, new, plain).to_bytes())

    good = question.widened(1).answer(np.zeros((2, DIM)), [0, 5])
    assert told(("saw",), good) == "answer: the label 'saw' as a new one, the question has it"
    assert "'num_classes'" not in told(("one", "two"), question.widened(2).answer(np.zeros((2, DIM)), [5, 6]))
    assert "num_classes says how many" in told(("one", "two"), good)
    assert "a new label without samples" in told(("one",), question.widened(1).answer(np.zeros((2, DIM)), [0, 1]))
    assert "(classes, dimension) are (5, 5), should be (6, 5)" in told(
        ("one",), question.plain.answer(np.eye(DIM), [0] * DIM)
    )
    assert told(("one",), b"MPTS") == "ClassStatistics bytes: truncated, 4 bytes are less than an empty message"
    assert tracker.labels == ORDER
    assert tracker.close().problems[0].startswith("device x: ")
    assert tracker.labels == ORDER
    assert sum(tracker.state.plain.refusals.values()) == 1


def test_labels_that_are_too_many_together_are_refused_of_those_who_came_last():
    tracker = LabelledTracker(num_classes=3)
    question = tracker.question()
    for device, labels in {"z": "uv", "a": "wx", "m": "uw"}.items():
        assert tracker.receive(device, question.answer(np.eye(4), list(labels) * 2)) == ""
    outcome = tracker.close()
    assert outcome.answered == ("m", "z")
    assert outcome.problems == ("device a: answer: with its new labels there would be more than 3",)
    assert tracker.labels == ("u", "v", "w")


def test_a_closed_list_of_labels():
    tracker = LabelledTracker(labels=["on", "off"])
    assert tracker.labels == ("on", "off")
    assert tracker.receive("a", tracker.question().answer(np.eye(3), ["on", "off", "of"])) == (
        "answer: the label 'of', which is none of the tracker's labels"
    )
    assert tracker.receive("a", tracker.question().answer(np.eye(3), ["on", "off", "off"])) == ""
    assert tracker.close().answered == ("a",)


def test_samples_in_a_place_without_a_label_are_refused():
    tracker = LabelledTracker()
    forged = LabelledAnswer(1, ("x",), tracker.question().widened(1).answer(np.eye(2), [0, 1]))
    assert "samples without a label" in tracker.receive("a", forged.to_bytes())


def test_one_label_alone():
    tracker = LabelledTracker()
    for _ in range(3):
        outcome = tracker.close({d: tracker.question().answer(np.eye(4), ["only"] * 4) for d in "ab"})
    assert outcome.readout.predict(np.eye(4)).tolist() == ["only"] * 4
    assert tracker._repr_html_().count("<tr>") == 2


def test_watched_from_the_start():
    tracker = LabelledTracker(watch=["press", "saw"])
    assert tracker.watched == tracker.labels == ("press", "saw")
    tracker.close(by_label(fleet(1), 1, tracker.question()))
    tracker.close({d: a for d, a in by_label(fleet(1), 2, tracker.question()).items() if d != "d"})
    assert set(tracker.state.plain.tracked) == {0}
    assert tracker.labels == ("press", "saw", "drill", "idle", "mill")
