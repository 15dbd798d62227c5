"""Answers that are nonsense harm only their vehicle."""

import dataclasses
import struct
import zlib

import numpy as np
import pytest

import mpt
from mpt.fleet import Tracker
from mpt.protocol.question import Question
from mpt.tracking.answers import largest_answer
from mpt.tracking.settings import TrackerSettings
from tests.tracking.fleets import RARE, C, D, Fleet, paper_fleet, tracker, whats


def forged(stats, **changes):
    """Bytes of statistics that a right vehicle could not have made."""
    made = dataclasses.replace(stats)
    for name, value in changes.items():
        object.__setattr__(made, name, value)
    return made.to_bytes(frame=False)


def with_nan(answer):
    """A NaN among the sums, and a checksum that fits."""
    body = bytearray(answer[:-4])
    body[-8:-4] = struct.pack("<f", np.nan)
    return bytes(body) + struct.pack("<I", zlib.crc32(bytes(body)))


def stats_of(fleet, request, vehicle, **options):
    features, labels = fleet.features(vehicle, request.round)
    settings = {"watched": request.watched, "origin": request.origin, **options}
    return mpt.ClassStatistics.from_features(features, labels, C, **settings)


def nonsense(fleet, request):
    """Wrong answers of vehicle "b", and words of the refusal."""
    good = stats_of(fleet, request, "b")
    other = Fleet({"b": {0: 10}}, dim=D + 1)
    many = Fleet({"b": {0: 10, C: 10}}, num_classes=C + 1)
    yield b"", "truncated"
    yield b"\x80\x04pickle" * 10, "MPT"
    yield None, "should be bytes"
    yield b"x" * (largest_answer(TrackerSettings(C, D), Question(request)) + 1), "should be at most"
    yield good.to_bytes(frame=False)[:-9], "truncated"
    yield with_nan(good.to_bytes("float32", frame=False)), "should be finite"
    features, labels = other.features("b", 1)
    wide = mpt.ClassStatistics.from_features(features, labels, C, watched=request.watched)
    yield wide.to_bytes(), ""
    features, labels = many.features("b", 1)
    more = mpt.ClassStatistics.from_features(features, labels, C + 1, watched=request.watched, origin=request.origin)
    yield more.to_bytes(frame=False), "classes"
    yield stats_of(fleet, request, "b", origin=np.ones(D)).to_bytes(frame=False), "another origin"
    yield stats_of(fleet, request, "b", watched=[0]).to_bytes(frame=False), "watched"
    yield stats_of(fleet, request, "b", scatter=False).to_bytes(frame=False), "scatter"
    yield forged(good, scatter=2 * good.scatter), "trace"
    yield forged(good, sums=10 * good.sums), "squares"
    yield forged(good, sums=good.sums * 1e100, squares=good.squares * 1e200), "below"
    yield forged(good, counts=good.counts * 10**9), "samples of a class"


def test_each_is_refused_logged_and_the_round_goes_on():
    fleet, server = paper_fleet(), tracker(grace=99)
    for _ in range(2):
        server.close(fleet.answers(server.request()))
    for number in range(len(list(nonsense(fleet, server.request())))):
        good = fleet.answers(server.request(), "acd")
        wrong, words = list(nonsense(fleet, server.request()))[number]
        outcome = server.close({**good, "b": wrong})
        (refusal,) = [d for d in outcome.decisions if d.what == "refused"]
        assert refusal.vehicle == "b"
        assert words in refusal.why
        assert outcome.answered == ("a", "c", "d")
        assert outcome.problems == (f"vehicle b: {refusal.why}",)
        assert server.state.roster.state("b") == "refused"
        expected = sum(server.state.counts[v] for v in "acd")
        np.testing.assert_array_equal(outcome.statistics.counts, expected)
    outcome = server.close(fleet.answers(server.request()))
    assert whats(outcome) == ["returned"]


@pytest.mark.parametrize("variant", ["mpt", "lite", "cross"])
def test_the_vehicle_that_holds_a_class_is_still_there_when_it_talks_nonsense(variant):
    """Nothing is deposited, held out or missed; should it vanish then, the deposit is of its last trusted answer."""
    fleet, server = paper_fleet(), tracker(variant, grace=1)
    for _ in range(3):
        server.close(fleet.cross_answers(server.question()))
    for _ in range(5):
        outcome = server.close({**fleet.cross_answers(server.question(), "bcd"), "a": b"nonsense"})
        assert whats(outcome, "a") == ["refused"]
        assert not server.state.tracked
        assert server.held_out == ()
        assert server.roster.state("a") == "refused"
        assert server.roster.members["a"].missed == 0
        assert outcome.readout.predict(fleet.features("a", outcome.round)[0][-100:]).tolist().count(RARE) > 90
        server = Tracker.from_bytes(server.to_bytes())
    outcome = server.close(fleet.cross_answers(server.question(), "bcd"))
    assert "deposited" in whats(outcome, "a")
    assert server.state.tracked[RARE].round == 3
    assert RARE in outcome.reconstructions
    outcome = server.close(fleet.cross_answers(server.question(), "bcd"))
    assert server.held_out == (RARE,)


def test_late_answers_are_refused():
    fleet, server = paper_fleet(), tracker()
    late = fleet.answers(server.request(), "a")
    server.close(fleet.answers(server.request()))
    outcome = server.close({**fleet.answers(server.request(), "bcd"), **late})
    assert "origin" in next(d.why for d in outcome.decisions if d.what == "refused")
    outcome = server.close(fleet.answers(server.request()), rounds={"a": 2, "b": 3})
    assert [d.why for d in outcome.decisions if d.what == "refused"] == ["answer: made for round 2, this is round 3"]


@pytest.mark.parametrize("variant", ["mpt", "lite"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("frame", [True, False])
def test_no_right_answer_is_too_long(variant, dtype, frame):
    fleet, server = paper_fleet(), tracker(variant=variant)
    for _ in range(3):
        request = server.request()
        options = {"scatter": request.scatter, "span": request.span}
        answers = {v: stats_of(fleet, request, v, **options).to_bytes(dtype, frame=frame) for v in "abcd"}
        assert max(map(len, answers.values())) <= server.largest_answer
        assert server.close(answers).answered == tuple("abcd")


def test_the_order_of_arrival_does_not_matter():
    fleet, one, two = paper_fleet(), tracker(), tracker()
    for _ in range(3):
        answers = fleet.answers(one.request())
        one.close(answers)
        two.close(dict(reversed(answers.items())))
        assert one.to_bytes() == two.to_bytes()


@pytest.mark.filterwarnings("ignore:to_bytes")
@pytest.mark.parametrize("scale", [1e-20, 1.0, 1e15])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("variant", ["mpt", "cross"])
def test_well_formed_statistics_of_no_samples_break_nothing(seed, scale, variant):
    """A scatter that is no sum of squares, and sums of any size: refused or not, the round goes on."""
    rng = np.random.default_rng(seed)
    fleet, server = paper_fleet(), tracker(grace=1, variant=variant)
    for number in range(8):
        request = server.request()
        good = stats_of(fleet, request, "b")
        noise = rng.standard_normal((D, D)) * good.squares.max()
        scatter = (noise + noise.T) * scale**2
        squares = good.squares * scale**2
        trace = np.delete(squares, request.watched).sum()
        np.fill_diagonal(scatter, trace / D)
        made = forged(good, sums=good.sums * scale, squares=squares, scatter=scatter)
        answers = {**fleet.answers(request, "acd" if number in (0, 1, 2, 6) else "cd"), "b": made}
        outcome = server.close(answers)
        assert np.isfinite(outcome.prototypes).all()
        assert outcome.readout is not None


def test_vehicles_without_samples():
    fleet, server = Fleet({"a": {}, "b": {}}), tracker()
    outcome = server.close(fleet.answers(server.request()))
    assert outcome.answered == ("a", "b")
    assert outcome.readout is None
    fleet = Fleet({"a": {}, "b": {0: 5, 1: 5}})
    outcome = server.close(fleet.answers(server.request()))
    assert np.isfinite(outcome.prototypes).all(axis=1).tolist() == [True, True, False, False, False, False]
