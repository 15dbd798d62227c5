"""What one hostile vehicle may send to a tracker: its answer is refused, and the next round is right."""

import dataclasses
import tracemalloc

import numpy as np
import pytest

import mpt
from mpt.core.wire import Writer
from mpt.fleet import Tracker
from mpt.tracking.answers import largest_answer
from mpt.tracking.operator import Order
from tests.tracking.fleets import METHOD, RARE, C, D, Fleet, paper_fleet, tracker, whats
from tests.tracking.test_answers import forged

VARIANTS = ("mpt", "lite", "cross")


def played(variant="mpt", rounds=3, **options):
    """A fleet after some rounds in which everybody answered."""
    fleet, server = paper_fleet(), tracker(variant, **{"grace": 1, **options})
    for _ in range(rounds):
        server.close(fleet.cross_answers(server.question()))
    return fleet, server


def statistics(fleet, server, vehicle="b"):
    question = server.question()
    return question.statistics.read(question.statistics.answer(*fleet.features(vehicle, question.round)))


def attacked(fleet, server, wrong, vehicle="b"):
    """A round with a wrong answer, and one without; both must be as if the vehicle had been late in the first."""
    calm = Tracker.from_bytes(server.to_bytes())
    others = [v for v in fleet.samples if v != vehicle]
    outcome = server.close({**fleet.cross_answers(server.question(), others), vehicle: wrong})
    (refusal,) = [d for d in outcome.decisions if d.what == "refused"]
    assert refusal.vehicle == vehicle
    assert len(str(refusal)) <= 300
    assert server.roster.state(vehicle) == "refused"
    expected = calm.close(fleet.cross_answers(calm.question(), others), late={vehicle: ""})
    np.testing.assert_array_equal(outcome.prototypes, expected.prototypes)
    again = server.close(fleet.cross_answers(server.question()))
    assert whats(again, vehicle) == ["returned"]
    expected = calm.close(fleet.cross_answers(calm.question()))
    np.testing.assert_array_equal(again.prototypes, expected.prototypes)
    return refusal.why


@pytest.mark.parametrize("variant", VARIANTS)
def test_row_1_a_report_with_a_span_of_its_own(variant):
    fleet, server = played(variant)
    stats = dataclasses.replace(statistics(fleet, server), span=np.ones((1, D)))
    assert "another span" in attacked(fleet, server, stats.to_bytes("float32"))


@pytest.mark.parametrize("variant", VARIANTS)
def test_row_1_in_the_first_round_a_report_with_an_origin_of_its_own(variant):
    fleet, server = played(variant, rounds=0)
    stats = dataclasses.replace(statistics(fleet, server), origin=np.ones(D))
    outcome = server.close({**fleet.cross_answers(server.question(), "acd"), "b": stats.to_bytes()})
    (refusal,) = [d for d in outcome.decisions if d.what == "refused"]
    assert "another origin" in refusal.why
    assert outcome.answered == ("a", "c", "d")
    assert "b" not in server.roster.members


def test_row_4_what_is_claimed_and_others_carry_is_not_deposited():
    """One claims most of three classes and leaves: the others have as much of them as of any other class."""
    fleet, server = played(grace=0)
    fleet.add("x", {0: 5000, 1: 5000, 3: 5000})
    for _ in range(5):
        server.close(fleet.answers(server.request()))
    assert set(server.request().watched) & {0, 1, 3}
    server.close(fleet.answers(server.request()), leaving=["x"])
    assert (server.held_out, server.state.tracked) == ((), {})


def test_row_4_what_was_claimed_can_be_undone():
    """Without the gate deposits are made, and each can be dropped."""
    fleet, server = played(grace=0, gate=False)
    fleet.add("x", {0: 5000, 1: 5000, 3: 5000})
    for _ in range(5):
        server.close(fleet.answers(server.request()))
    server.close(fleet.answers(server.request()), leaving=["x"])
    claimed = sorted(server.state.tracked)
    assert claimed
    assert server.held_out == tuple(claimed)
    server.obey([Order(1, "ban", "x"), *(Order(2 + i, "drop", c) for i, c in enumerate(claimed))])
    assert (server.held_out, server.state.tracked) == ((), {})
    outcome = server.close({**fleet.answers(server.request(), "abcd"), **fleet.answers(server.request(), "x")})
    assert outcome.answered == ("a", "b", "c", "d")
    assert server.held_out == ()
    assert np.isfinite(outcome.prototypes).all()


@pytest.mark.parametrize("variant", ["mpt", "cross"])
@pytest.mark.parametrize("entry", [1e30, 1e3])
def test_row_5_an_entry_that_no_diagonal_allows(variant, entry):
    fleet, server = played(variant)
    scatter = statistics(fleet, server).scatter.copy()
    scatter[0, 1] = scatter[1, 0] = entry * scatter[0, 0]
    wrong = forged(statistics(fleet, server), scatter=scatter)
    assert "beyond what its diagonal allows" in attacked(fleet, server, wrong)


def test_row_5_a_scatter_that_is_none_though_every_entry_is_small_enough():
    fleet, server = played()
    stats = statistics(fleet, server)
    values, vectors = np.linalg.eigh(stats.scatter)
    least, values[0] = values[0], -0.02 * values[-1]
    values[-1] += least - values[0]
    wrong = forged(stats, scatter=(vectors * values) @ vectors.T)
    assert "negative eigenvalues" in attacked(fleet, server, wrong)


@pytest.mark.parametrize("variant", VARIANTS)
def test_row_5_no_deposit_is_kept_that_nothing_can_be_reconstructed_from(variant, monkeypatch):
    fleet, server = played(variant)

    def failing(self, *given):
        raise mpt.StatisticsError("covariance: not positive definite")

    monkeypatch.setattr(type(server.settings.how), "reconstruct", failing)
    outcome = server.close(fleet.cross_answers(server.question(), "bcd"))
    assert server.state.tracked == {}
    (lost,) = [d for d in outcome.decisions if d.what == "lost"]
    assert "nothing can be reconstructed from it" in lost.why


@pytest.mark.parametrize("factor", [0.0, 1e-3])
def test_row_6_squares_below_what_the_sums_need_once_a_span_was_sent(factor):
    fleet, server = played("lite")
    assert server.request().span is not None
    stats = statistics(fleet, server)
    sums = stats.sums.copy()
    basis = np.linalg.svd(server.request().span, full_matrices=True)[2]
    sums[0] += 100 * stats.counts[0] * basis[-1]
    wrong = forged(stats, sums=sums, squares=factor * stats.squares)
    assert "its sums need" in attacked(fleet, server, wrong)


def test_row_7_a_refusal_is_a_line():
    fleet, server = played()
    for wrong in ("x" * 20_000_000, b"MPTS" + b"\n" * 20_000_000, ["\n" * 1000]):
        attacked(fleet, server, wrong)
        assert len(server.to_bytes()) < 20_000


@pytest.mark.parametrize("variant", VARIANTS)
def test_row_9_a_small_message_that_claims_a_large_dimension(variant):
    """It is no longer than right answers are, so that its length does not give it away."""
    server = Tracker(num_classes=C, dim=128, method=METHOD[variant])
    fleet = Fleet({v: dict.fromkeys(range(C), 5) for v in "abcd"}, dim=128)
    server.close(fleet.cross_answers(server.question()))
    writer = Writer(b"S", 0 if variant == "lite" else 1, "float32")
    writer.numbers("4I", 1, 2**25, 0, 0)
    writer.raw(b"\0" * 8200)
    wrong = writer.finish()
    assert len(wrong) < largest_answer(server.settings, server.question())
    server.begin()
    tracemalloc.start()
    why = server.receive("b", wrong)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "(classes, dimension) are (1, 33554432), should be (6, 128)" in why
    assert peak < 2**20


def test_row_10_a_newcomer_gets_no_class_watched_and_nobody_all_slots():
    """Who claims most of all classes in a running fleet does not crowd out one that comes to hang on an old vehicle."""
    even = dict.fromkeys(range(C), 20)
    fleet, server = Fleet(dict.fromkeys("abcd", even)), tracker(grace=0)
    server.close(fleet.answers(server.request()))
    fleet.add("x", {c: 10_000 for c in range(C) if c != RARE})
    for _ in range(3):
        outcome = server.close(fleet.answers(server.request()))
        assert "watched" not in whats(outcome, "x")
    outcome = server.close(fleet.answers(server.request()))
    assert whats(outcome, "x").count("watched") == server.settings.slots == 2
    assert whats(outcome, "x").count("crowded") == C - 1 - 2
    fleet.add("a", {**even, RARE: 500})
    outcome = server.close(fleet.answers(server.request()))
    assert whats(outcome, "a") == ["watched"]
    server.close(fleet.answers(server.request()))
    outcome = server.close(fleet.answers(server.request(), "bcdx"))
    assert whats(outcome, "a") == ["departed", "deposited", "held-out"]
    assert server.held_out == (RARE,)
