"""The variant "cross" in a fleet: reference models, cross moments, and what happens without them."""

import dataclasses
import struct
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mpt
from mpt.fleet import FleetError, Tracker
from mpt.fleet.question import Question, parts
from tests.fleet.fleets import RARE, C, D, Fleet, paper_fleet, tracker, whats
from tests.fleet.test_disorder import check, crowd, two_on_one

OTHER = 4


def play(fleet, server, *rounds, **options):
    return [server.close(fleet.cross_answers(server.question(), there, **options)) for there in rounds]


def two_departures(**options):
    """ "a" holds most of one class, "e" of another; "f" has most of a third."""
    even = dict.fromkeys((c for c in range(C) if c not in (RARE, OTHER, 5)), 20)
    few = {RARE: 2, OTHER: 2, 5: 2}
    holdings = {v: {**even, **few} for v in "bcd"}
    holdings |= {"a": {**even, RARE: 100}, "e": {**even, OTHER: 100}, "f": {**even, 5: 100}}
    return Fleet(holdings), tracker(variant="cross", watch=(RARE, OTHER, 5), grace=1, **options)


def by_hand(fleet, c, there, *, before, then, now, reference=None):
    """The class's reconstruction from all features themselves, in float64; `before` were there in round `then`."""

    def joined(vehicles, number):
        rows, labels = zip(*(fleet.features(v, number) for v in vehicles), strict=True)
        return np.concatenate(rows), np.concatenate(labels)

    def statistics(vehicles, number, watched):
        return mpt.ClassStatistics.from_features(*joined(vehicles, number), C, watched=watched)

    watched = sorted(now["watched"])
    anchor = None
    if reference is not None:
        rows, labels = joined(before, reference)
        anchor = rows[labels == c].mean(axis=0)
    kept = mpt.deposit(statistics(before, then, watched), c, staying=statistics(now["staying"], then, watched))
    kept = dataclasses.replace(kept, anchor=anchor)
    z, labels = joined(there, then if reference is None else reference)
    h, _ = joined(there, now["round"])
    cross = mpt.CrossStatistics.from_features(z, h, labels, C, weights=mpt.class_weights(kept, C))
    return mpt.reconstruct(kept, statistics(there, now["round"], watched), variant="cross", cross=cross)


def close_to(found, expected):
    """To what is left of float16 cross moments, three digits each."""
    scale = np.linalg.norm(expected.prototype)
    assert np.linalg.norm(found.prototype - expected.prototype) < 2e-3 * scale
    assert found.alpha == pytest.approx(expected.alpha, abs=0.01)
    assert found.expected_error == pytest.approx(expected.expected_error, rel=0.05, abs=0.01)
    assert (found.verdict, found.samples) == (expected.verdict, expected.samples)


def test_after_an_announced_leave_it_is_the_cores_reconstruction():
    fleet, server = paper_fleet(), tracker(variant="cross", watch=(RARE,))
    play(fleet, server, "abcd", "abcd")
    last = server.close(fleet.cross_answers(server.question()), leaving=["a"])
    assert "referenced" in whats(last, "a")
    assert not last.reconstructions
    for number in (4, 5, 6):
        (outcome,) = play(fleet, server, "bcd")
        now = {"round": number, "watched": [RARE], "staying": "bcd"}
        close_to(outcome.reconstructions[RARE], by_hand(fleet, RARE, "bcd", before="abcd", then=3, now=now))
        assert outcome.problems == ()
        assert server.models_needed == (3, number)


def test_one_that_vanished_is_tracked_from_the_model_of_its_last_answer():
    fleet, server = paper_fleet(), tracker(variant="cross", watch=(RARE,), grace=1)
    play(fleet, server, "abcd", "abcd", "abcd")
    (first,) = play(fleet, server, "bcd")
    assert server.question().references == (3,)
    plain = mpt.reconstruct(server.state.tracked[RARE].deposit, first.statistics)
    assert first.reconstructions[RARE] == plain
    assert not first.problems
    for number in (5, 6):
        (outcome,) = play(fleet, server, "bcd")
        now = {"round": number, "watched": [RARE], "staying": "bcd"}
        close_to(outcome.reconstructions[RARE], by_hand(fleet, RARE, "bcd", before="abcd", then=3, now=now))


def test_the_map_is_better_than_the_transport_where_everything_turns():
    """The fleet's drift is an affine map, which the cross moments measure; the truth is known here."""
    found = {}
    for variant in ("mpt", "cross"):
        fleet, server = paper_fleet(), tracker(variant=variant, watch=(RARE,))
        play(fleet, server, "abcd", "abcd")
        server.close(fleet.cross_answers(server.question()), leaving=["a"])
        outcome = play(fleet, server, *["bcd"] * 20)[-1]
        rows, labels = zip(*(fleet.features(v, outcome.round) for v in "abcd"), strict=True)
        truth = np.concatenate(rows)[np.concatenate(labels) == RARE].mean(axis=0)
        found[variant] = np.linalg.norm(outcome.prototypes[RARE] - truth)
    assert found["cross"] < 0.5 * found["mpt"]


def test_whoever_lacks_the_model_is_named_and_fits_in_once_it_has_it():
    fleet, server = paper_fleet(), tracker(variant="cross", watch=(RARE,), grace=1)
    play(fleet, server, "abcd", "abcd", "bcd")
    assert server.lacking == {}
    fleet.add("j", {0: 20, 1: 20, RARE: 1})
    (outcome,) = play(fleet, server, "bcdj", lacking="j")
    assert server.lacking == {"j": (2,)}
    now = {"round": 4, "watched": [RARE], "staying": "bcd"}
    without = by_hand(fleet, RARE, "bcd", before="abcd", then=2, now=now)
    assert outcome.reconstructions[RARE].samples == 6
    assert outcome.reconstructions[RARE].expected_error == pytest.approx(without.expected_error, rel=0.05, abs=0.01)
    assert outcome.problems == ()
    (outcome,) = play(fleet, server, "bcdj")
    assert server.lacking == {}
    now = {"round": 5, "watched": [RARE], "staying": "bcd"}
    close_to(outcome.reconstructions[RARE], by_hand(fleet, RARE, "bcdj", before="abcd", then=2, now=now))


def test_one_that_lacks_it_and_is_missing_still_lacks_it():
    fleet, server = paper_fleet(), tracker(variant="cross", watch=(RARE,), grace=1)
    play(fleet, server, "abcd", "abcd", "bcd")
    play(fleet, server, "bcd", lacking="b")
    play(fleet, server, "cd")
    assert server.lacking == {"b": (2,)}
    play(fleet, server, "cd")
    assert server.lacking == {}, "it has departed"


@pytest.mark.parametrize(("lacking", "enough"), [("bcd", False), ("bc", False), ("b", True)])
def test_with_too_few_cross_moments_it_is_as_in_mpt_for_that_round(lacking, enough):
    fleet, server = paper_fleet(), tracker(variant="cross", watch=(RARE,))
    play(fleet, server, "abcd", "abcd", "bcd")
    (outcome,) = play(fleet, server, "bcd", lacking=lacking)
    made = outcome.reconstructions[RARE]
    as_in_mpt = mpt.reconstruct(server.state.tracked[RARE].deposit, outcome.statistics)
    assert (made != as_in_mpt) == enough
    if not enough:
        (problem,) = outcome.problems
        there = 100 * (3 - len(lacking))
        assert (
            f"class {RARE} is reconstructed as in the variant mpt in this round: cross: moments of {there}" in problem
        )
    (outcome,) = play(fleet, server, "bcd")
    assert outcome.reconstructions[RARE].verdict is not None
    assert outcome.problems == ()


def test_the_owner_returns_and_its_reference_model_is_no_longer_needed():
    fleet, server = paper_fleet(), tracker(variant="cross", watch=(RARE,), grace=1)
    play(fleet, server, "abcd", "abcd", "bcd", "bcd")
    assert server.models_needed == (2, 4)
    (outcome,) = play(fleet, server, "abcd", lacking="a")
    assert "recovered" in whats(outcome)
    assert server.models_needed == (5,)
    assert server.question().cross == {}
    play(fleet, server, "bcd")
    assert server.models_needed == (5, 6)


def test_up_to_the_bound_departures_have_models_of_their_own():
    fleet, server = two_departures()
    play(fleet, server, "abcdef", "abcdef", "bcdef", "bcdef", "bcdf", "bcdf")
    assert server.question().references == (2, 4)
    (outcome,) = play(fleet, server, "bcdf")
    now = {"round": 7, "watched": [RARE, OTHER, 5], "staying": "bcdf"}
    close_to(outcome.reconstructions[OTHER], by_hand(fleet, OTHER, "bcdf", before="bcdef", then=4, now=now))


def test_at_the_bound_a_departure_shares_a_model_under_which_it_is_known():
    fleet, server = two_departures(most_references=1)
    play(fleet, server, "abcdef", "abcdef", "bcdef", "bcdef")
    (outcome,) = play(fleet, server, "bcdf")
    assert "which another class has already" in next(d.why for d in outcome.decisions if d.what == "referenced")
    assert server.question().references == (2,)
    assert sorted(server.question().cross) == [RARE, OTHER]
    (outcome,) = play(fleet, server, "bcdf")
    now = {"round": 6, "watched": [RARE, OTHER, 5], "staying": "bcdf"}
    shared = by_hand(fleet, OTHER, "bcdf", before="bcdef", then=4, now=now, reference=2)
    close_to(outcome.reconstructions[OTHER], shared)
    assert server.models_needed == (2, 6)


def test_an_announced_leave_shares_it_too():
    fleet, server = two_departures(most_references=1)
    play(fleet, server, "abcdef", "abcdef", "bcdef")
    outcome = server.close(fleet.cross_answers(server.question(), "bcdef"), leaving=["e"])
    assert "referenced" in whats(outcome, "e")
    (outcome,) = play(fleet, server, "bcdf")
    now = {"round": 5, "watched": [RARE, OTHER, 5], "staying": "bcdf"}
    shared = by_hand(fleet, OTHER, "bcdf", before="bcdef", then=4, now=now, reference=2)
    close_to(outcome.reconstructions[OTHER], shared)


def test_at_the_bound_one_that_is_known_under_no_model_is_tracked_as_in_mpt():
    """ "e" never had the reference model: of its class hardly anything is in the cross moments."""
    fleet, server = two_departures(most_references=1)
    play(fleet, server, "abcdef", "abcdef")
    play(fleet, server, "bcdef", "bcdef", lacking="e")
    (outcome,) = play(fleet, server, "bcdf")
    (said,) = [d for d in outcome.decisions if d.what == "unreferenced"]
    assert (said.vehicle, said.classes) == ("e", (OTHER,))
    assert "1 reference models are kept already, under none of which" in said.why
    (outcome,) = play(fleet, server, "bcdf")
    assert outcome.reconstructions[RARE].verdict is not None
    deposit = server.state.tracked[OTHER].deposit
    assert outcome.reconstructions[OTHER] == mpt.reconstruct(deposit, outcome.statistics)
    assert outcome.problems == ()


def test_two_that_vanish_together_have_one_model():
    fleet, server = two_departures(most_references=1)
    play(fleet, server, "abcdef", "abcdef", "bcdf")
    assert server.question().references == (2,)
    assert sorted(server.question().cross) == [RARE, OTHER]
    assert all(t.deposit.anchor is None for t in server.state.tracked.values())


@pytest.mark.parametrize("cut", range(2, 8))
def test_a_state_goes_on_to_the_same_outcomes(cut):
    rounds = ["abcdef", "abcdef", "bcdef", "bcdef", "bcdf", "bcdf", "bcd", "bcd", "bcdf"]
    lacking = {6: "b", 7: "c"}
    fleet, server = two_departures(most_references=1)
    for number, there in enumerate(rounds, 1):
        whole = play(fleet, server, there, lacking=lacking.get(number, ""))[0]
        if number == cut:
            again = Tracker.from_bytes(server.to_bytes())
            assert again.to_bytes() == server.to_bytes()
        if number > cut:
            (resumed,) = play(fleet, again, there, lacking=lacking.get(number, ""))
            assert np.array_equal(resumed.prototypes, whole.prototypes, equal_nan=True)
            assert (resumed.decisions, resumed.problems) == (whole.decisions, whole.problems)
            assert (again.lacking, again.models_needed) == (server.lacking, server.models_needed)
            assert again.to_bytes() == server.to_bytes()


def test_remaining_samples_of_suspected_vehicles_are_not_remembered():
    fleet, server = paper_fleet(), tracker(variant="cross", watch=(RARE,), grace=5)
    play(fleet, server, "abcd", "abcd", "bcd", "bcd")
    (outcome,) = play(fleet, server, "cd")
    assert outcome.reconstructions[RARE].samples == 4
    assert server.state.remembered == {}


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
            assert any("as in the variant mpt in this round" in problem for problem in outcome.problems)
        np.testing.assert_allclose(made.prototype, expected.prototype, rtol=1e-9, atol=1e-9)
        assert (made.samples, made.verdict) == (expected.samples, expected.verdict)


@pytest.mark.parametrize("most_references", [1, 2])
@pytest.mark.parametrize("make", [paper_fleet, two_on_one])
@settings(max_examples=40)
@given(st.lists(happening, min_size=1, max_size=12), st.integers(0, 2), st.integers(0, 11))
def test_nothing_that_vehicles_do_breaks_it(make, most_references, story, grace, stop):
    fleet, server = make(), tracker(grace=grace, variant="cross", most_references=most_references)
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
    fleet, server = crowd(rng, 60, C), Tracker(num_classes=C, dim=D, grace=2, variant="cross")
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
    statistics, _ = parts(fleet.cross_answers(question, "b")["b"])

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
    yield bundled(statistics, wide.to_bytes("float32")), "shape"
    known = moments_of(fleet, question, "b")
    yield bundled(statistics, known.to_bytes("float32", frame=False, known=[known.still_digest])), "leave out a still"
    yield forged(counts=lambda n: n + 1), "counts"
    yield forged(sums=lambda s: 1.1 * s), "the sums of class"
    yield forged(earlier=lambda s: 100 * s), "its earlier sums need"
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
    """A gram that is no sum of squares: the map cannot be made, and the round goes on."""
    fleet, server = paper_fleet(), tracker(variant="cross", watch=(RARE,))
    play(fleet, server, "abcd", "abcd", "bcd")
    question = server.question()

    def turned(gram):
        trace, wrong = np.trace(gram), -np.abs(gram) - 100
        np.fill_diagonal(wrong, trace / D)
        return wrong

    statistics, _ = parts(fleet.cross_answers(question, "b")["b"])
    moments = moments_of(fleet, question, "b", gram=lambda g: 100 * turned(g))
    wrong = bundled(statistics, moments.to_bytes("float32", frame=False))
    outcome = server.close({**fleet.cross_answers(question, "cd"), "b": wrong})
    assert outcome.answered == ("b", "c", "d")
    assert np.isfinite(outcome.prototypes).all()
    assert "is reconstructed as in the variant mpt in this round" in outcome.problems[0]


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


def test_question_and_answer_without_cross_moments_are_those_of_the_request():
    fleet, server = paper_fleet(), tracker(watch=(RARE,))
    question, request = server.question(), server.request()
    assert question.to_bytes() == request.to_bytes()
    assert Question.from_bytes(request.to_bytes()) == question
    assert question.answer(*fleet.features("a", 1)) == request.answer(*fleet.features("a", 1))


def test_a_question_comes_back():
    fleet, server = two_departures(most_references=2)
    play(fleet, server, "abcdef", "abcdef", "bcdef", "bcdf")
    question = server.question()
    assert len(question.cross) == 2
    assert Question.from_bytes(question.to_bytes()) == question
    with pytest.raises(mpt.StatisticsError, match="truncated"):
        Question.from_bytes(question.to_bytes()[:-1])
    with pytest.raises(mpt.StatisticsError, match="checksum"):
        Question.from_bytes(question.to_bytes()[:-5] + b"12345")


def test_a_change_of_the_verdict_is_a_decision():
    """What the map gets wrong on the reference classes grows with a drift that is none."""
    fleet, server = paper_fleet(), tracker(variant="cross", watch=(RARE,))
    play(fleet, server, "abcd", "abcd", "bcd")
    (calm,) = play(fleet, server, "bcd")
    assert calm.reconstructions[RARE].verdict == "good"
    assert "verdict" not in whats(calm)
    rng = np.random.default_rng(0)
    shuffled = fleet.centres[rng.permutation(C)] * rng.uniform(-3, 3, (C, 1))
    question, answers = server.question(), {}
    for v in "bcd":
        (rows, labels), earlier = fleet.features(v, question.round), fleet.features(v, question.references[0])[0]
        keep = np.array([i for i, c in enumerate(labels) if c != RARE])
        rows, labels, earlier = (rows + shuffled[labels])[keep], labels[keep], earlier[keep]
        answers[v] = question.answer(rows, labels, {question.references[0]: earlier})
    outcome = server.close(answers)
    verdict = outcome.reconstructions[RARE].verdict
    assert verdict != "good"
    (said,) = [d for d in outcome.decisions if d.what == "verdict"]
    assert said.classes == (RARE,)
    assert said.why.startswith(f"{verdict}, an error of ")


def test_a_damaged_state_is_refused():
    fleet, server = paper_fleet(), tracker(variant="cross", watch=(RARE,))
    play(fleet, server, "abcd", "abcd", "bcd", "bcd")
    data = server.to_bytes()
    with pytest.raises(FleetError, match="truncated"):
        Tracker.from_bytes(data[:-20])
