"""The method "mpt-x" in a fleet in which anything may happen, and against wrong cross moments; without the gate."""

import struct
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mpt
from mpt.fleet import Tracker
from mpt.protocol.question import parts
from tests.tracking.fleets import RARE, C, D, paper_fleet, tracker
from tests.tracking.test_cross import play
from tests.tracking.test_disorder import check, crowd, two_on_one

kinds = st.sampled_from(["answers", "answers", "lacks", "silent", "leaves", "left", "nonsense"])
happening = st.fixed_dictionaries(dict.fromkeys("abcd", kinds))


def check_references(server, fleet, history):
    """Each is the deposit's own model, or one under which the class was known as a whole."""
    tracked = server.state.tracked.values()
    assert len({t.reference.round for t in tracked if t.reference}) <= server.settings.most_references
    assert {t.reference.round for t in tracked if t.reference} <= set(server.models_needed)
    for one in tracked:
        if one.reference is None or one.deposit.anchor is None:
            assert one.reference is None or one.reference.round == one.round
            continue
        rows, labels = zip(*(fleet.features(v, one.reference.round) for v in history[one.round]), strict=True)
        expected = np.concatenate(rows)[np.concatenate(labels) == one.departed].mean(axis=0)
        np.testing.assert_allclose(one.deposit.anchor, expected, rtol=1e-5, atol=1e-5)


def check_crossed(server, outcome, question, answers, held):
    """Every reconstruction is the core's, from all cross moments that came where they are of half of the samples."""
    for c, made in outcome.reconstructions.items():
        one, variant, moments = server.state.tracked[c], "mpt", None
        if one.reference is not None and one.since < outcome.round:
            reports = [parts(answers[v])[1].get(c) for v in outcome.answered]
            reports = [question.cross[c].read(part, {}) for part in reports if part is not None]
            counted = one.reference.weights > 0
            there = sum(int(report.counts[counted].sum()) for report in reports)
            if reports and there >= 0.5 * outcome.statistics.counts[counted].sum():
                variant, moments = "cross", mpt.CrossStatistics.merge(reports)
                held.append(c)
        try:
            expected = mpt.reconstruct(one.deposit, outcome.statistics, variant=variant, cross=moments)
        except mpt.StatisticsError:
            expected = mpt.reconstruct(one.deposit, outcome.statistics)
            assert any("as by mpt in this round" in problem for problem in outcome.problems)
        np.testing.assert_allclose(made.prototype, expected.prototype, rtol=1e-9, atol=1e-9)
        assert (made.samples, made.verdict) == (expected.samples, expected.verdict)


@pytest.mark.parametrize("most_references", [1, 2])
@pytest.mark.parametrize("make", [paper_fleet, two_on_one])
@settings(max_examples=40)
@given(st.lists(happening, min_size=1, max_size=12), st.integers(0, 2), st.integers(0, 11))
def test_nothing_that_vehicles_do_breaks_it(make, most_references, story, grace, stop):
    fleet, server = make(), tracker(grace=grace, variant="cross", most_references=most_references, gate=False)
    other, history, held = server, {}, []
    for number, events in enumerate(story):
        if number == stop:
            other = Tracker.from_bytes(server.to_bytes())
        question = server.question()
        there = [v for v, e in events.items() if e in ("answers", "lacks", "leaves")]
        answers = fleet.cross_answers(question, there, lacking=[v for v, e in events.items() if e == "lacks"])
        answers |= {v: b"nonsense" for v, e in events.items() if e == "nonsense"}
        leaving = [v for v, e in events.items() if e in ("leaves", "left")]
        outcome = server.close(answers, leaving)
        history[outcome.round] = outcome.answered
        check(server, outcome)
        check_references(server, fleet, history)
        check_crossed(server, outcome, question, answers, held)
        if other is not server:
            again = other.close(answers, leaving)
            assert again.decisions == outcome.decisions
            np.testing.assert_array_equal(again.prototypes, outcome.prototypes)
            assert other.to_bytes() == server.to_bytes()


def test_a_crowd_of_which_a_fifth_fails_in_every_round():
    """Most of the time departed classes are tracked by cross moments, whoever comes and goes."""
    rng = np.random.default_rng(0)
    fleet, server = crowd(rng, 60, C), Tracker(num_classes=C, dim=D, grace=2, method="mpt-x", gate=False)
    history, held, made = {}, [], 0
    for number in range(25):
        draws = dict(zip(sorted(fleet.samples), rng.random(60), strict=True))
        there = [v for v, drawn in draws.items() if drawn > 0.2 and not (number > 10 and v == "000")]
        question = server.question()
        lacking = [v for v, drawn in draws.items() if drawn > 0.9]
        answers = fleet.cross_answers(question, there, lacking=lacking)
        outcome = server.close(answers)
        history[outcome.round] = outcome.answered
        check(server, outcome)
        check_references(server, fleet, history)
        check_crossed(server, outcome, question, answers, held)
        made += len(outcome.reconstructions)
    assert made > 14
    assert len(held) > 0.6 * made


def with_nan(answer):
    body = bytearray(answer[:-4])
    body[-8:-4] = struct.pack("<f", np.nan)
    return bytes(body) + struct.pack("<I", zlib.crc32(bytes(body)))


def moments_of(fleet, question, vehicle, **changes):
    """The cross moments of vehicle as it should make them, then changed beyond what the class itself would accept."""
    request = question.cross[RARE]
    (h, labels), (z, _) = fleet.features(vehicle, question.round), fleet.features(vehicle, request.reference)
    options = {name: changes.pop(name, getattr(request, name)) for name in ("weights", "earlier_origin", "origin")}
    made = mpt.CrossStatistics.from_features(z, h, labels, C, **options)
    for name, value in changes.items():
        object.__setattr__(made, name, value(getattr(made, name)))
    return made


def bundled(statistics, moments, c=RARE, times=1):
    body = struct.pack("<I", times) + struct.pack("<Q", len(statistics)) + statistics
    for _ in range(times):
        body += struct.pack("<I", c) + struct.pack("<Q", len(moments)) + moments
    head = struct.pack("<3s1sHHQ", b"MPT", b"B", 1, 0, 20 + len(body))
    return head + body + struct.pack("<I", zlib.crc32(head + body))


def nonsense(fleet, server):
    question = server.question()
    statistics, _, _ = parts(fleet.cross_answers(question, "b")["b"])

    def forged(**changes):
        return bundled(statistics, moments_of(fleet, question, "b", **changes).to_bytes("float32", frame=False))

    good = moments_of(fleet, question, "b").to_bytes("float32", frame=False)
    yield bundled(statistics, good)[:-9], "truncated"
    yield bundled(statistics, good[:-9]), "truncated"
    yield bundled(statistics, with_nan(good)), "should be finite"
    yield bundled(statistics, good, c=0), "class 0, which were not asked for"
    yield bundled(statistics, good, times=2), "class 2: twice in one message"
    yield b"x" * (server.largest_answer + 1), "should be at most"
    yield bundled(good, good), "these are CrossStatistics bytes"
    yield bundled(statistics, statistics), "these are ClassStatistics bytes"
    yield forged(weights=np.ones(C)), "other weights or origins"
    yield forged(origin=np.ones(D)), "other weights or origins"
    other = moments_of(fleet, question, "b", weights=np.eye(C)[0])
    yield bundled(statistics, other.to_bytes("float32")), "another weights"
    wide = mpt.CrossStatistics.from_features(np.ones((3, D + 1)), np.ones((3, D + 1)), [0, 0, 1], C)
    yield bundled(statistics, wide.to_bytes("float32")), "dimension"
    known = moments_of(fleet, question, "b")
    yield bundled(statistics, known.to_bytes("float32", frame=False, known=[known.static_digest])), "leave out a static"
    yield forged(counts=lambda n: n + 1), "counts"
    yield forged(sums=lambda s: 1.1 * s), "the sums of class"
    yield forged(earlier=lambda s: 100 * s), "negative eigenvalues"
    yield forged(gram=lambda s: 1e-9 * s, earlier=lambda s: 0 * s), "larger than features"
    yield forged(cross=lambda s: 1e4 * s), "larger than features"
    yield bundled(statistics, moments_of(fleet, question, "b", cross=lambda s: 1e40 * s).to_bytes(frame=False)), "below"


def test_wrong_cross_moments_are_refused_with_their_answer_and_harm_nobody_else():
    fleet, server = paper_fleet(), tracker(variant="cross", watch=(RARE,), grace=99)
    play(fleet, server, "abcd", "abcd")
    server.close(fleet.cross_answers(server.question()), leaving=["a"])
    for number in range(len(list(nonsense(fleet, server)))):
        wrong, words = list(nonsense(fleet, server))[number]
        good = fleet.cross_answers(server.question(), "cd")
        alone = Tracker.from_bytes(server.to_bytes())
        outcome, without = server.close({**good, "b": wrong}), alone.close(good)
        (refusal,) = [d for d in outcome.decisions if d.what == "refused"]
        assert refusal.vehicle == "b"
        assert words in refusal.why, (number, refusal.why)
        assert outcome.answered == ("c", "d")
        assert outcome.reconstructions[RARE].verdict is not None
        assert np.array_equal(outcome.prototypes, without.prototypes)


def test_well_formed_cross_moments_of_no_samples_break_nothing():
    """A gram that is no sum of squares is refused with its answer, and the round goes on."""
    fleet, server = paper_fleet(), tracker(variant="cross", watch=(RARE,))
    play(fleet, server, "abcd", "abcd", "bcd")
    question = server.question()

    def turned(gram):
        trace, wrong = np.trace(gram), -np.abs(gram) - 100
        np.fill_diagonal(wrong, trace / D)
        return wrong

    statistics, _, _ = parts(fleet.cross_answers(question, "b")["b"])
    moments = moments_of(fleet, question, "b", gram=lambda g: 100 * turned(g))
    wrong = bundled(statistics, moments.to_bytes("float32", frame=False))
    outcome = server.close({**fleet.cross_answers(question, "cd"), "b": wrong})
    assert outcome.answered == ("c", "d")
    assert np.isfinite(outcome.prototypes).all()
    assert "gram of the cross moments" in outcome.problems[0]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("frame", [True, False])
def test_no_right_answer_is_too_long(dtype, frame):
    fleet, server = paper_fleet(), tracker(variant="cross", watch=(RARE,))
    play(fleet, server, "abcd", "abcd", "bcd")
    question = server.question()
    answers = {}
    for v in "bcd":
        rows, labels = fleet.features(v, question.round)
        request = question.statistics
        stats = mpt.ClassStatistics.from_features(rows, labels, C, watched=request.watched, origin=request.origin)
        moments = moments_of(fleet, question, v).to_bytes(dtype, frame=frame)
        answers[v] = bundled(stats.to_bytes(dtype, frame=frame), moments)
    assert max(map(len, answers.values())) <= server.largest_answer
    outcome = server.close(answers)
    assert outcome.answered == tuple("bcd")
    assert outcome.reconstructions[RARE].verdict is not None
