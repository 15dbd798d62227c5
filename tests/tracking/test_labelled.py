"""Labels as they are, classes that appear, rounds that end by time: against the tracker in numbers."""

import enum
import json
import subprocess
import sys

import numpy as np
import pytest

import mpt
from mpt.core.wire import Reader, Writer
from mpt.protocol.labelled import LabelledAnswer, LabelledQuestion
from mpt.tracking import FleetError, LabelledReadout, LabelledTracker, Tracker
from mpt.tracking.operator import Order

DIM = 5
NAMES = ("saw", "idle", "drill", "mill", "press")
ORDER = tuple(sorted(NAMES))  # in which a first round numbers them


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def samples(device, counts, seed=0):
    """(N, d) and (N,) labels; the classes lie apart."""
    rng = np.random.default_rng((seed, *device.encode()))
    labels = np.repeat(list(counts), list(counts.values()))
    centres = {name: 3 * np.random.default_rng((7, *name.encode())).standard_normal(DIM) for name in counts}
    rows = [centres[label] for label in labels]
    return np.reshape(rows, (-1, DIM)) + rng.standard_normal((len(labels), DIM)), labels


def drifted(features, round):
    turn = np.eye(DIM) + 0.02 * round * np.random.default_rng(3).standard_normal((DIM, DIM))
    return features @ turn + 0.1 * round


USUAL = {"saw": 20, "idle": 20, "drill": 20, "mill": 20, "press": 1}


def fleet(round):
    """Who is there with what: most of press is d's, which vanishes after round 4; e comes in round 3."""
    held = dict.fromkeys("abc", USUAL)
    if round <= 4:
        held["d"] = {"idle": 10, "press": 60}
    if round >= 3:
        held["e"] = USUAL
    return held


def growing(round):
    """The same, in which press is not there before round 2, and mill not before round 7."""
    held = {}
    for device, counts in fleet(round).items():
        held[device] = {k: n for k, n in counts.items() if (k, round) != ("press", 1) and (k != "mill" or round >= 7)}
    return held


def in_numbers(held, round, question, place):
    answers = {}
    for device, counts in held.items():
        features, labels = samples(device, counts)
        earlier = {r: drifted(features, r) for r in question.references}
        classes = np.array([place[label] for label in labels])
        answers[device] = question.answer(drifted(features, round), classes, earlier)
    return answers


def by_label(held, round, question):
    answers = {}
    for device, counts in held.items():
        features, labels = samples(device, counts)
        earlier = {r: drifted(features, r) for r in question.references}
        answers[device] = question.answer(drifted(features, round), labels, earlier)
    return answers


@pytest.mark.parametrize("method", ["mpt", "mpt-x", "mpt-lite:one-message"])
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
        np.testing.assert_array_equal(found.readout.predict(test), np.array(known)[expected.readout.predict(test)])
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
    assert "press" in outcome.prototypes


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
