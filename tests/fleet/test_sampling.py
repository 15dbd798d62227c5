"""A fleet in which a share of the vehicles is asked in a round: who is not asked has missed nothing."""

import pytest

torch = pytest.importorskip("torch", reason="the extra sim is not installed")

from mpt.fleet.exchange import Failure
from mpt.fleet.policy import RoundPolicy
from mpt.fleet.sampling import drawn
from tests.fleet.served import OWNER, VEHICLES, answering, new_vehicles, server

pytestmark = pytest.mark.usefixtures("one_thread")
HALF = RoundPolicy(timeout=0.2, max_attempts=2, train_share=0.5, report_share=0.5)


@pytest.fixture(scope="module")
def vehicles(dataset):
    return new_vehicles(dataset)


def listening(vehicles, away=()):
    """All vehicles, and what each was asked by kind and round; those that are away since a round fail."""
    asked = {("train", v.name): [] for v in vehicles} | {("report", v.name): [] for v in vehicles}

    def answer(vehicle):
        speak = answering(vehicle)

        def heard(ask):
            asked[ask.kind, vehicle.name].append(ask.round)
            return Failure("it is away") if vehicle.name in away and ask.round > 1 else speak(ask)

        return heard

    return {f"node {v.name}": answer(v) for v in vehicles}, asked


def test_half_of_them_train_and_half_report_and_nobody_is_missed(dataset, vehicles):
    answers, asked = listening(vehicles)
    made = server(dataset, answers, policy=HALF)
    for finished in made.rounds(6):
        for kind in ("train", "report"):
            assert sum(finished.round in rounds for (of, _), rounds in asked.items() if of == kind) == VEHICLES // 2
        assert finished.asked == finished.updated == VEHICLES // 2
        assert len(finished.outcome.answered) == VEHICLES // 2
    assert {m.state for m in made.tracker.roster.members.values()} == {"present"}
    assert not any(d.what in ("suspected", "departed", "lost") for d in made.tracker.state.decisions)
    assert len({tuple(rounds) for rounds in asked.values()}) > 2  # not always the same half


def test_a_silent_one_departs_by_the_questions_that_it_was_asked(dataset, vehicles):
    answers, asked = listening(vehicles, away=(str(OWNER),))
    made = server(dataset, answers, policy=HALF)
    departed = None
    for finished in made.rounds(14):
        state = made.tracker.roster.state(str(OWNER))
        if state == "departed" and departed is None:
            departed = finished.round
    first, second, *_ = [number for number in asked["report", str(OWNER)] if number > 1]
    assert second > first + 1  # it was not asked in every round
    assert departed == second  # a grace of one question: the second that it misses


def test_the_same_are_drawn_after_a_restart():
    nodes = [str(i) for i in range(3000)]
    first, again = (drawn(nodes, 0.02, least=2, seed=0, purpose="report", round=7) for _ in range(2))
    assert first == again
    assert len(first) == 60
    assert first != drawn(nodes, 0.02, least=2, seed=0, purpose="report", round=8)
    assert drawn(nodes[:3], 0.02, least=2, seed=0, purpose="train", round=1) < set(nodes[:3])
    assert drawn(nodes, 1.0, least=2, seed=0, purpose="train", round=1) == set(nodes)
